"""Finding and reading a configuration: a file, a model folder, standard input, a preset's name or a model of the hub's cache."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pe_cli.errors import PeError, no_such
from pe_cli.files.inputs import open_input
from pe_cli.files.text import read_object
from pe_cli.models.configuration import Configuration
from pe_cli.models.model_types import data

# What a model folder may hold its configuration in; sentence-transformers and diffusers have folders in folders.
NAMES = (
    "config.json", "params.json", "transformer/config.json", "unet/config.json", "original/params.json",
    "0_Transformer/config.json", "mlc-chat-config.json", "model_config.yaml",
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
    if spec == "-":
        return _configuration("stdin", read_object(spec), links)
    if not os.path.lexists(spec):
        if spec in data("presets"):
            return preset_configuration(spec)
        if HUB_NAME.fullmatch(spec) and not spec.endswith((".json", ".gguf", ".yaml")):
            return read_configuration(str(_cached(spec)))
        if not Path(spec).suffix and os.sep not in spec:
            near = [name for name in preset_names() if name.startswith(spec) or spec.startswith(name)]
            meant = f"; presets of that name: {', '.join(near)}" if near else ""
            raise PeError(
                f"{spec}: no such file, folder or preset; give a config.json, a model folder or a .gguf file{meant}"
            )
    path = _in_folder(Path(spec)) if Path(spec).is_dir() else Path(spec)
    return _configuration(str(path), _read(path), links)


def _configuration(file: str, values: Mapping[str, Any], links: int) -> Configuration:
    if isinstance(values.get("model"), Mapping) and "decoder" in values["model"]:
        raise PeError(
            f"{file}: a genai_config of onnxruntime-genai does not say how positions are encoded; give the config.json of the "
            "model that it was made from"
        )
    base = values.get("base_model_name_or_path")
    if base and "peft_type" in values:
        return read_configuration(_base_of_adapter(file, str(base)), links=links + 1)
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
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PeError(f"{path}: this is not YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise PeError(f"{path}: a configuration is a mapping, not {type(values).__name__}")
    return values


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
        raise PeError(
            f"{name}: no such file or folder, and not in the local Hugging Face cache ({cache}); pe downloads nothing: fetch "
            f"https://huggingface.co/{name}/resolve/main/config.json and give it"
        )
    return folder


def _base_of_adapter(file: str, base: str) -> str:
    """Where the configuration of an adapter's base model lies."""
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
