"""Reading a configuration: a `config.json`, a model folder, standard input, or the metadata of a `.gguf` file."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pe_cli.errors import PeError, no_such
from pe_cli.models.defaults import Defaults, defaults, part_defaults
from pe_cli.models.schemes import SCHEMES

NAMES = ("config.json", "params.json", "transformer/config.json")
GGUF_MAGIC = b"GGUF"
LARGEST = 64 << 20
# A Mistral or Meta `params.json` names the same things otherwise.
PARAMS_NAMES = {
    "dim": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "max_seq_len": "max_position_embeddings",
}
META_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@dataclass(frozen=True)
class Configuration:
    """The keys and values of a configuration, or of one nested in it at the dotted `path`.

    `file` is what the user typed, for messages; `part` is what a composite assumes of this part of it.
    """

    file: str
    values: Mapping[str, Any]
    path: str = ""
    model_type: str = ""
    part: Defaults | None = None

    @property
    def known(self) -> Defaults:
        """What is known of the model type, here."""
        return self.part or defaults(self.model_type)

    def key(self, name: str) -> str:
        """The full path of a key, for messages."""
        return f"{self.path}.{name}" if self.path else name

    def trouble(self, key: str, what: str) -> PeError:
        return PeError(f"{self.file}: {self.key(key)} {what}")


def is_gguf(spec: str) -> bool:
    """Whether the file is GGUF, by its first bytes."""
    path = Path(spec)
    if spec == "-" or not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(4) == GGUF_MAGIC


def read_configuration(spec: str) -> Configuration:
    """The configuration in a JSON file, in a model folder, or on stdin (`-`).

    Raises PeError where there is none, or where it is not a JSON object.
    """
    if spec == "-":
        return _parsed("stdin", sys.stdin.buffer.read(LARGEST + 1))
    path = Path(spec)
    if path.is_dir():
        path = _in_folder(path)
    try:
        with path.open("rb") as stream:
            text = stream.read(LARGEST + 1)
    except FileNotFoundError:
        raise PeError(f"{spec}: no such file; give a config.json, a model folder or a .gguf file") from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise PeError(
            f"{spec}: a link that leads back to itself; give a config.json or a model folder"
        ) from None
    found = _parsed(str(path), text)
    return _from_params(found) if "dim" in found.values and "n_heads" in found.values else found


def _in_folder(folder: Path) -> Path:
    for name in NAMES:
        if (folder / name).is_file():
            return folder / name
        if os.path.lexists(folder / name):
            what = "a folder" if (folder / name).is_dir() else "a link that leads nowhere, or no file"
            raise PeError(
                f"{folder / name}: this is {what}; give a config.json, a model folder or a .gguf file"
            )
    models = sorted(folder.glob("*.gguf"))
    if models:
        raise PeError(
            f"{folder}: there is no config.json in it; name the file itself, for example {models[0]}"
        )
    raise PeError(f"{folder}: there is no config.json in this folder")


def _parsed(file: str, text: bytes) -> Configuration:
    if len(text) > LARGEST:
        raise PeError(f"{file}: more than {LARGEST >> 20} MiB, so this is no configuration")
    try:
        values = json.loads(text.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise PeError(
            f"{file}: this is not text; give a config.json, a model folder or a .gguf file"
        ) from None
    except (json.JSONDecodeError, RecursionError) as error:
        at = (
            f" at line {error.lineno}, column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else ""
        )
        raise PeError(f"{file}: this is not JSON{at}: {getattr(error, 'msg', 'too deep')}") from None
    except ValueError:  # Python refuses to read whole numbers of thousands of digits
        raise PeError(f"{file}: there is a number of thousands of digits in it, which no key needs") from None
    if not isinstance(values, dict):
        raise PeError(f"{file}: a configuration is a JSON object, not {type(values).__name__}")
    return Configuration(file, values, model_type=str(values.get("model_type") or ""))


def _from_params(config: Configuration) -> Configuration:
    """A Meta or Mistral `params.json` with the names of a `config.json`; Meta's own code stores complex numbers."""
    values = {PARAMS_NAMES.get(key, key): value for key, value in config.values.items()}
    if values.pop("use_scaled_rope", False):
        scaling = dict(META_SCALING)
        if "rope_scaling_factor" in values:
            scaling["factor"] = values["rope_scaling_factor"]
        values["rope_scaling"] = scaling
    return Configuration(config.file, values, model_type=config.model_type or "meta_llama")


TEXT = re.compile(r"(text|llm|language|lm)(_config|_model|_cfg)?$")
WIDTHS = (
    "hidden_size",
    "n_embd",
    "d_model",
    "embed_dim",
    "dim",
    "memory_attention_hidden_size",
    "projection_dim",
)
ROTARY_KEYS = (
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rotary_dim",
    "rotary_pct",
    "rotary_emb_base",
    "rope_pct",
)


def choose(config: Configuration, component: str | None) -> tuple[Configuration, tuple[str, ...]]:
    """The configuration named by `component` (dotted), or the one that alone can be meant, with what to say about it.

    Raises PeError, with the names there are, where several could be meant.
    """
    if component:
        return _walk(config, component)
    if describes_itself(config):
        return config, ()
    names = list(_leaves(config))
    texts = [name for name in names if TEXT.search(name)]
    chosen = texts if len(texts) == 1 else names
    if len(chosen) == 1:
        found, notes = _walk(config, chosen[0])
        return found, (f"{chosen[0]} of this composite model is used (--component {chosen[0]})", *notes)
    if not names:
        return config, ()
    raise PeError(
        f"{config.file}: this model has several parts, choose one with --component: {', '.join(names)}"
    )


def parts(config: Configuration, component: str | None) -> Iterator[tuple[Configuration, tuple[str, ...]]]:
    """The configuration that is meant, or where several could be all of them, each with what to say about it."""
    names = [] if component or describes_itself(config) else list(_leaves(config))
    if sum(bool(TEXT.search(name)) for name in names) == 1 or len(names) < 2:
        yield choose(config, component)
        return
    for name in names:
        yield _walk(config, name)


def describes_itself(config: Configuration) -> bool:
    """Whether position parameters and a width are at this level."""
    known = config.known
    if config.model_type in SCHEMES:
        return True
    if known.known and known.rope is None and known.theta is None:
        return False
    width = any(name in config.values for name in WIDTHS) or any(name in known.fields for name in WIDTHS)
    aliased = any(known.aliases.get(name) in config.values for name in ("hidden_size",))
    return width or aliased


def _walk(config: Configuration, component: str) -> tuple[Configuration, tuple[str, ...]]:
    notes: list[str] = []
    for name in component.split("."):
        config = _nested(config, name, component, notes)
    return config, tuple(notes)


def _nested(config: Configuration, name: str, component: str, notes: list[str]) -> Configuration:
    parts = defaults(config.model_type).components
    values = config.values.get(name)
    path = config.key(name)
    if isinstance(values, Mapping):
        own = values.get("model_type")
        # Old checkpoints repeat the type of the whole in a part.
        model_type = parts.get(name, "") if own in (None, "", config.model_type) else str(own)
        model_type = model_type or str(own or "")
        part = part_defaults(config.model_type, name, model_type, given=True)
        return Configuration(config.file, values, path, model_type, part)
    if values is not None and name not in parts:
        raise PeError(f"{config.file}: {path} is no configuration, so it cannot be --component {component}")
    if name not in parts and not (TEXT.search(name) and _holds_text(config)):
        known = _names(config)
        if not known:
            raise PeError(f"{config.file}: this model has no parts; leave --component {component} out")
        raise no_such("component", component, known)
    model_type = parts.get(name, config.model_type)
    if TEXT.search(name) and _holds_text(config):
        notes.append(f"{path} is not in {config.file}: its keys are at the level above, as in older files")
        flat = {
            key: value
            for key, value in config.values.items()
            if not isinstance(value, Mapping) or key.startswith("rope")
        }
        return Configuration(config.file, flat, config.path, model_type)
    part = part_defaults(config.model_type, name, model_type, given=False)
    notes.append(f"{path} is not in {config.file}: everything is {part.described()}")
    return Configuration(config.file, {}, path, model_type, part)


def _holds_text(config: Configuration) -> bool:
    return any(name in config.values for name in (*WIDTHS, *ROTARY_KEYS))


def _names(config: Configuration) -> list[str]:
    nested = [
        key for key, value in config.values.items() if isinstance(value, Mapping) and _is_part(key, value)
    ]
    return list(dict.fromkeys([*nested, *defaults(config.model_type).components]))


def _is_part(key: str, value: Mapping[str, Any]) -> bool:
    return "model_type" in value or (
        not key.startswith(("rope", "quantization")) and any(name in value for name in WIDTHS)
    )


def _leaves(config: Configuration, prefix: str = "") -> Iterator[str]:
    for name in _names(config):
        part = _nested(config, name, name, [])
        if describes_itself(part):
            yield prefix + name
        else:
            yield from _leaves(part, f"{prefix}{name}.")
