"""Finding and reading a configuration, and choosing the part of a composite model in it.

A configuration is a file, a model folder, standard input, a preset's name or a model of the hub's cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pe_cli.errors import PeError, no_such, parameter
from pe_cli.files import open_input
from pe_cli.files.text import read_object
from pe_cli.models.configuration import (
    ROTARY_KEYS,
    WIDTHS,
    Configuration,
    data,
    defaults,
    has_schemes,
    is_part,
    part_defaults,
    translated,
)

# What a model folder may hold its configuration in; sentence-transformers and diffusers have folders in folders.
NAMES = (
    "config.json", "params.json", "transformer/config.json", "unet/config.json", "original/params.json",
    "0_Transformer/config.json", "mlc-chat-config.json", "model_config.yaml",
    "open_clip_config.json", "model_config.json", "lit_config.json",
)  # fmt: skip
GGUF_MAGIC = b"GGUF"
LFS_POINTER = b"version https://git-lfs"
HUB_FOLDER = re.compile(r"models--[^/]+$")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
MOST_LINKS = 5  # adapters on adapters


def is_gguf(spec: str) -> bool:
    """Whether the file is GGUF, by its first bytes."""
    if spec == "-" or not Path(spec).is_file():
        return False
    with open_input(spec) as stream:
        return stream.peek(4) == GGUF_MAGIC


def read_configuration(spec: str, *, links: int = 0) -> Configuration:
    """The configuration in a JSON or YAML file, in a model folder, on stdin (`-`), of a preset or of a cached model.

    Raises PeError where there is none, or where it is not an object; it says which file would help.
    """
    if links > MOST_LINKS:
        raise PeError(
            f"{spec}: more than {MOST_LINKS} adapters on one another; give the config.json of the model itself"
        )
    if "://" in spec:
        raise PeError(
            f"{spec}: pe downloads nothing; fetch the config.json and give it, or the name of a preset"
        )
    if spec == "-":
        return configuration_of("stdin", read_object(spec), links)
    if not os.path.lexists(spec):
        if spec.lower() in data("presets"):
            return preset_configuration(spec.lower())
        if HUB_NAME.fullmatch(spec) and not spec.endswith((".json", ".gguf", ".yaml")):
            return read_configuration(str(_cached(spec)))
        if not spec.endswith((".json", ".gguf", ".yaml", ".yml")) and os.sep not in spec:
            near = presets_like(spec)
            meant = f"; presets of that name: {', '.join(near)}" if near else ""
            raise PeError(
                f"{spec}: no such file, folder or preset; give a config.json, a model folder or a .gguf file{meant}"
            )
    path = _in_folder(Path(spec)) if Path(spec).is_dir() else Path(spec)
    return configuration_of(str(path), _read(path), links)


def presets_like(word: str) -> list[str]:
    """The presets that `word` can mean: `Llama3.1` and `meta-llama/Llama-3.1-8B` are llama-3.1, `mistral` several."""
    asked = word.lower().replace("_", "-").rpartition("/")[2]
    names = preset_names()
    same = [name for name in names if _letters(name) == _letters(asked)]
    parts = asked.split("-")
    beginnings = {"".join(parts[:count]) for count in range(1, len(parts) + 1)}  # llama3.1-8b is llama-3.1
    begins = [name for name in names if name.replace("-", "") in beginnings]
    if same or begins:
        return [max(same or begins, key=len)]
    return [name for name in names if len(asked) > 2 and name.startswith(asked)]


def _letters(name: str) -> str:
    return name.replace("-", "").replace(".", "")


def configuration_of(file: str, values: Mapping[str, Any], links: int = 0) -> Configuration:
    """A configuration by what is in it; `file` names it in messages.

    Errors: what another file says, which is named.
    """
    if isinstance(values.get("model"), Mapping) and "decoder" in values["model"]:
        raise PeError(
            f"{file}: a genai_config of onnxruntime-genai does not say how positions are encoded; give the config.json of the "
            "model that it was made from"
        )
    if "architecture" in values and "pretrained_cfg" in values:
        raise PeError(
            f"{file}: a configuration of timm does not say how positions are encoded, but {values['architecture']} in timm's code "
            "does; a learned table is the tensor pos_embed of the checkpoint (`pe inspect CHECKPOINT`)"
        )
    if "peft_type" in values:
        return read_configuration(_base_of_adapter(file, values), links=links + 1)
    return Configuration(file, values, model_type=str(values.get("model_type") or ""))


def _read(path: Path) -> Mapping[str, Any]:
    if path.is_file():
        with open_input(str(path)) as stream:
            if stream.peek(len(LFS_POINTER)) == LFS_POINTER:
                raise PeError(
                    f"{path}: this is a Git LFS pointer and not the file itself; fetch it with `git lfs pull`"
                )
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path)
    if path.suffix == ".nemo":
        raise PeError(
            f"{path}: a .nemo archive; unpack it (`tar -xf {path.name} ./model_config.yaml`) and give its model_config.yaml"
        )
    return read_object(str(path))


def _yaml(path: Path) -> Mapping[str, Any]:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise PeError(f"{path}: reading YAML needs PyYAML: pip install pyyaml") from None
    try:
        values = _interpolated(yaml.safe_load(path.read_text(encoding="utf-8")), ())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PeError(f"{path}: this is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise PeError(f"{path}: a configuration is a mapping, not {type(values).__name__}")
    return values


REFERENCE = re.compile(r"\$\{([.\w]+)\}")
MOST_REFERENCES = 20  # one after the other


def _interpolated(node: Any, above: tuple[Any, ...], depth: int = 0) -> Any:
    """A node of a YAML file with the values that `${model.size}` and, in the object it is in, `${.size}` stand for."""
    if isinstance(node, dict):
        return {key: _interpolated(value, (*above, node), depth) for key, value in node.items()}
    match = REFERENCE.fullmatch(node) if isinstance(node, str) else None
    if match is None or not above or depth > MOST_REFERENCES:
        return node
    path = match[1].lstrip(".")
    ups = len(match[1]) - len(path)
    around = above[: len(above) - ups + 1] if ups else above[:1]
    for key in path.split("."):
        inner = around[-1].get(key) if around and isinstance(around[-1], dict) else None
        around = (*around, inner)
    found = around[-1]
    return node if found is None else _interpolated(found, around[:-1], depth + 1)


def _in_folder(folder: Path) -> Path:
    """The file of a model folder that holds its configuration."""
    for name in NAMES:
        if (folder / name).is_file():
            return folder / name
        if os.path.lexists(folder / name):
            what = "a folder" if (folder / name).is_dir() else "a link that leads nowhere, or no file"
            raise PeError(
                f"{folder / name}: this is {what}; give a config.json, a model folder or a .gguf file"
            )
    for name in ("adapter_config.json", "genai_config.json"):
        if (folder / name).is_file():
            return folder / name
    if HUB_FOLDER.search(folder.name) and (folder / "snapshots").is_dir():
        return _in_folder(_snapshot(folder))
    if (folder / "model_index.json").is_file():
        parts = sorted(str(path.parent.name) for path in folder.glob("*/config.json"))
        raise PeError(
            f"{folder}: a pipeline of several models ({', '.join(parts) or 'none of them here'}); give one of them, "
            f"for example {folder / (parts or ['transformer'])[0] / 'config.json'}"
        )
    for pattern in ("*.gguf", "*.nemo", "*.json", "*.yaml"):
        others = sorted(folder.glob(pattern))
        if others:
            raise PeError(
                f"{folder}: there is no config.json in it; name the file itself, for example {others[0]}"
            )
    raise PeError(f"{folder}: there is no config.json in this folder")


def _snapshot(folder: Path) -> Path:
    """The snapshot of a folder of the hub's cache that `main` names, or else the newest."""
    main = folder / "refs" / "main"
    if main.is_file() and (found := folder / "snapshots" / main.read_text().strip()).is_dir():
        return found
    snapshots = [path for path in (folder / "snapshots").iterdir() if path.is_dir()]
    if not snapshots:
        raise PeError(f"{folder}: its snapshots are empty; download config.json first")
    return max(snapshots, key=lambda path: path.stat().st_mtime)


def _cached(name: str) -> Path:
    """The folder of a model in the local Hugging Face cache; nothing is downloaded."""
    home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub"))
    folder = cache / f"models--{name.replace('/', '--')}"
    if not (folder / "snapshots").is_dir():
        near = presets_like(name)
        preset = f", or take the preset {near[0]}" if len(near) == 1 else ""
        raise PeError(
            f"{name}: no such file or folder, and not in the local Hugging Face cache ({cache}); pe downloads nothing: fetch "
            f"https://huggingface.co/{name}/resolve/main/config.json and give it{preset}"
        )
    return folder


def _base_of_adapter(file: str, values: Mapping[str, Any]) -> str:
    """Where the configuration of an adapter's base model lies."""
    base = str(values.get("base_model_name_or_path") or "")
    if not base:
        raise PeError(
            f"{file}: an adapter that does not name its base model; give the config.json of that model"
        )
    beside = Path(file).parent / base
    if beside.exists() and beside.resolve() != Path(file).parent.resolve():
        return str(beside)
    if HUB_NAME.fullmatch(base):
        try:
            return str(_cached(base))
        except PeError as error:
            raise PeError(
                f"{file}: an adapter, whose base model {base} says how positions are encoded. {error}"
            ) from None
    raise PeError(f"{file}: an adapter of {base}; give the config.json of that model")


def preset_names() -> list[str]:
    """The well-known models that have a name here."""
    return list(data("presets"))


def preset_values() -> list[tuple[str, str, dict[str, Any]]]:
    """Each preset: its name, where its numbers were read, and the keys of its config.json."""
    return [
        (name, values["source"], {key: value for key, value in values.items() if key != "source"})
        for name, values in data("presets").items()
    ]


def preset_configuration(name: str) -> Configuration:
    """The rotary part of the configuration of a well-known model.

    `presets.json` has for each the keys of its config.json, and under `source` where the numbers were read: `mlc`
    model_preset.py of mlc-llm, copies of config.json · `litgpt` config.py of litgpt · `authors` the model's own code ·
    `candle` candle-transformers · `quoted` a configuration quoted in a public thread or file · `class` the default of
    the transformers class, which checkpoints may override. Raises PeError for a name that is not known.
    """
    if name not in data("presets"):
        raise no_such("preset", name, preset_names())
    values = dict(data("presets")[name])
    return Configuration(f"preset {name} ({values.pop('source')})", values, model_type=values["model_type"])


TEXT = re.compile(r"(text|llm|language|lm)(_config|_model|_cfg)?$")


def choose(config: Configuration, component: str | None) -> tuple[Configuration, tuple[str, ...]]:
    """The configuration named by `component` (dotted), or the one that alone can be meant, with what to say about it.

    Raises PeError, with the names there are, where several could be meant.
    """
    config = translated(config)
    if component:
        return _walk(config, component)
    if describes_itself(config):
        return config, ()
    names = list(_leaves(config))
    texts = [name for name in names if TEXT.search(name)]
    chosen = texts if len(texts) == 1 else names
    if len(chosen) == 1:
        found, notes = _walk(config, chosen[0])
        return found, (f"the component {chosen[0]} of this composite model is used", *notes)
    if not names:
        return config, ()
    raise PeError(
        f"{config.file}: this model has several parts, choose one with {parameter('component')}: {', '.join(names)}"
    )


def of_tokens(config: Configuration) -> Configuration:
    """The one part of a model whose positions are those of tokens, for what cannot be told of several at once."""
    config = translated(config)
    names = [] if describes_itself(config) else list(_leaves(config))
    counting = [name for name in names if "max_position_embeddings" in _walk(config, name)[0].values]
    texts = counting or [name for name in names if TEXT.search(name)]
    if len(names) > 1 and len(texts) != 1:
        raise PeError(
            f"{config.file}: this model has several parts ({', '.join(texts or names)}), each with positions of its own; give the "
            "configuration of one as a file, and write what comes of it back into its part"
        )
    return _walk(config, texts[0])[0] if texts else choose(config, None)[0]


def parts(config: Configuration, component: str | None) -> Iterator[tuple[Configuration, tuple[str, ...]]]:
    """The configuration that is meant, or where several could be all of them, each with what to say about it."""
    config = translated(config)
    names = [] if component or describes_itself(config) else list(_leaves(config))
    if sum(bool(TEXT.search(name)) for name in names) == 1 or len(names) < 2:
        yield choose(config, component)
        return
    for name in names:
        yield _walk(config, name)


def describes_itself(config: Configuration) -> bool:
    """Whether position parameters and a width are at this level."""
    known = config.known
    if has_schemes(config.model_type):
        return True
    if known.known and known.rope is None and known.theta is None:
        return False
    nested = [
        key for key, value in config.values.items() if isinstance(value, Mapping) and is_part(key, value)
    ]
    if not known.known and any(map(TEXT.search, nested)) and not config.values.keys() & set(ROTARY_KEYS):
        return False
    width = any(name in config.values for name in WIDTHS) or any(name in known.fields for name in WIDTHS)
    aliased = any(known.aliases.get(name) in config.values for name in ("hidden_size",))
    return width or aliased


def _walk(config: Configuration, component: str) -> tuple[Configuration, tuple[str, ...]]:
    notes: list[str] = []
    rest = component
    while rest:
        name = _first_name(config, rest)
        config = translated(_nested(config, name, component, notes))
        rest = rest[len(name) + 1 :]
    return config, tuple(notes)


def _first_name(config: Configuration, component: str) -> str:
    """The longest name of a part with which `component` begins; names may have dots in them."""
    names = component.split(".")
    for count in range(len(names), 1, -1):
        if isinstance(config.values.get(".".join(names[:count])), Mapping):
            return ".".join(names[:count])
    return names[0]


def _nested(config: Configuration, name: str, component: str, notes: list[str]) -> Configuration:
    parts = defaults(config.model_type).components
    values = config.values.get(name)
    path = config.key(name)
    above = (*config.above, (config.path, config.values))
    if isinstance(values, Mapping):
        own = values.get("model_type")
        # Old checkpoints repeat the type of the whole in a part.
        model_type = parts.get(name, "") if own in (None, "", config.model_type) else str(own)
        model_type = model_type or str(own or "")
        part = part_defaults(config.model_type, name, model_type, given=True)
        return Configuration(config.file, values, path, model_type, part, above=above)
    if values is not None and name not in parts:
        raise PeError(
            f"{config.file}: {path} is no configuration, so it cannot be the {parameter('component')} {component}"
        )
    if name not in parts and not (TEXT.search(name) and _holds_text(config)):
        known = _names(config)
        if not known:
            raise PeError(
                f"{config.file}: this model has no parts; leave {parameter('component')} {component} out"
            )
        raise no_such("component", component, known)
    model_type = parts.get(name, config.model_type)
    if TEXT.search(name) and _holds_text(config):
        notes.append(f"{path} is not in {config.file}: its keys are at the level above, as in older files")
        flat = {
            key: value
            for key, value in config.values.items()
            if not isinstance(value, Mapping) or key.startswith("rope")
        }
        return Configuration(config.file, flat, config.path, model_type, above=config.above)
    part = part_defaults(config.model_type, name, model_type, given=False)
    notes.append(f"{path} is not in {config.file}: everything is {part.described()}")
    return Configuration(config.file, {}, path, model_type, part, above=above)


def _holds_text(config: Configuration) -> bool:
    return any(name in config.values for name in (*WIDTHS, *ROTARY_KEYS))


def _names(config: Configuration) -> list[str]:
    nested = [
        key for key, value in config.values.items() if isinstance(value, Mapping) and is_part(key, value)
    ]
    return list(dict.fromkeys([*nested, *defaults(config.model_type).components]))


def _leaves(config: Configuration, prefix: str = "") -> Iterator[str]:
    for name in _names(config):
        part = translated(_nested(config, name, name, []))
        if describes_itself(part):
            yield prefix + name
        else:
            yield from _leaves(part, f"{prefix}{name}.")
