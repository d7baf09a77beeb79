"""Reading a configuration: a `config.json`, a model folder, standard input, or a preset's name."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

from pe_cli.errors import PeError, no_such
from pe_cli.models.configuration import Configuration
from pe_cli.models.model_types import data

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
