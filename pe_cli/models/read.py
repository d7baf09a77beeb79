"""Reading a configuration: a `config.json`, a model folder, standard input, or a preset's name."""

from __future__ import annotations

import os
from pathlib import Path

from pe_cli.errors import PeError, no_such
from pe_cli.files.inputs import open_input
from pe_cli.files.text import read_object
from pe_cli.models.configuration import Configuration
from pe_cli.models.model_types import data

NAMES = ("config.json", "params.json", "transformer/config.json")
GGUF_MAGIC = b"GGUF"


def is_gguf(spec: str) -> bool:
    """Whether the file is GGUF, by its first bytes."""
    if spec == "-" or not Path(spec).is_file():
        return False
    with open_input(spec) as stream:
        return stream.peek(4) == GGUF_MAGIC


def read_configuration(spec: str) -> Configuration:
    """The configuration in a JSON file, in a model folder, or on stdin (`-`).

    Raises PeError where there is none, or where it is not a JSON object.
    """
    path = str(_in_folder(Path(spec))) if spec != "-" and Path(spec).is_dir() else spec
    values = read_object(path)
    return Configuration(
        "stdin" if spec == "-" else path, values, model_type=str(values.get("model_type") or "")
    )


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
