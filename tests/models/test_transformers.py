"""Every rotary module of the pinned transformers, on its default configuration and on changed ones."""

from __future__ import annotations

import importlib
import importlib.util
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.encodings.rope.rotary import rope
from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration, data, defaults, known_types
from pe_cli.models.resolve import resolve_configuration

pytestmark = [pytest.mark.interop, pytest.mark.slow]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

POSITIONS = np.array([0, 1, 2, 3, 7, 64, 1000, 4095, 8191, 32767, 131071])


def one_axis(model_type: str) -> bool:
    known = defaults(model_type)
    return bool(known.module) and known.source.startswith("transformers") and not known.axial


@lru_cache(maxsize=1)
def modules() -> dict[str, tuple[type, type]]:
    """(rotary module, configuration class) by model type."""
    found = {}
    root = Path(transformers.__file__).parent / "models"
    for path in sorted(root.glob("*/modeling_*.py")):
        if "Rotary" not in path.read_text():
            continue
        package = f"transformers.models.{path.parent.name}"
        code = importlib.import_module(f"{package}.{path.stem}")
        configs = importlib.import_module(f"{package}.{path.stem.replace('modeling', 'configuration')}")
        for model_type in known_types():
            known = defaults(model_type)
            if hasattr(code, known.module or "-") and hasattr(configs, known.name):
                found[model_type] = (getattr(code, known.module), getattr(configs, known.name))
    return found


def their_tables(rotary: Any) -> dict[str | None, list[np.ndarray]]:
    """What the module makes at POSITIONS, for each of its layer types."""
    types = getattr(rotary, "rope_type", None)
    tables = {}
    for label in types if isinstance(types, dict) and types else [None]:
        words = {"layer_type": label} if label else {}
        with torch.no_grad():
            result = rotary(torch.zeros(1, 1, 8), torch.tensor(POSITIONS)[None], **words)
        parts = [result] if isinstance(result, torch.Tensor) else list(result)
        tables[label] = [part[0].numpy() for part in parts]
    return tables


def difference(
    values: dict[str, Any], model_type: str, theirs: dict[str | None, list[np.ndarray]]
) -> str | None:
    """None where the tables agree, else what differs; float32 angles lose about 1e-7 of the position."""
    config = Configuration("config.json", json.loads(json.dumps(values, default=str)), model_type=model_type)
    for label, wanted in theirs.items():
        parameters = resolve_configuration(config, layer_type=label).parameters
        tables = rope(POSITIONS, dtype="float64", **parameters).values()
        for got, want in zip(tables, wanted, strict=True):
            if got.shape != want.shape:
                return f"{label}: shape {got.shape}, theirs {want.shape}"
            error = np.abs(got - want)
            if not (error <= (2e-6 + 1e-7 * POSITIONS[:, None]) * max(1, np.abs(want).max())).all():
                return f"{label}: off by {error.max():.3g}"
    return None


@pytest.mark.parametrize("change", ["none", "silent", "hidden", "base"])
def test_every_rotary_module_agrees(change: str) -> None:
    wrong, right = {}, 0
    for model_type, (module, config_class) in modules().items():
        if not one_axis(model_type) or model_type in data("refused")["model_types"]:
            continue
        known = defaults(model_type)
        values: dict[str, Any] = {}
        if change == "hidden" and "hidden_size" in known.fields:
            values = {known.aliases.get("hidden_size", "hidden_size"): 2 * known.fields["hidden_size"]}
        if change == "base" and known.rope and not known.labels and "rope_theta" not in known.ignores:
            values = {"rope_theta": 123456.0}
        try:
            config = config_class(**values)
            theirs = their_tables(module(config))
        except Exception:  # a class that refuses the change, or wants a part of the composite
            continue
        given = config.to_dict() if change == "none" else values
        if model_type in data("refused")["turns_only_if"]:  # classes that turn only if told to
            key, turning, _ = data("refused")["turns_only_if"][model_type]
            given = {**given, key: turning[0]}
        try:
            trouble = difference(given, model_type, theirs)
        except PeError as error:
            trouble = str(error)
        right += trouble is None
        if trouble:
            wrong[model_type] = trouble
    assert not wrong
    assert right > 120


YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048}
LLAMA3 = YARN | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CHANGES: dict[str, dict[str, Any]] = {
    "linear as in transformers 4": {"rope_theta": 5e4, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "yarn as in transformers 4": {"rope_theta": 5e4, "rope_scaling": YARN},
    "llama3": {"rope_parameters": LLAMA3 | {"rope_theta": 5e4}},
    "a part of the head": {"partial_rotary_factor": 0.5},
}
# What transformers 5.24 does with these files is an error of its own, which the models were not trained with.
ERRORS = {
    "mistral4": "it forgets which part of the head turns where the file has rope_scaling",
    "olmo3": "rope_theta beside rope_scaling reaches the layers with full attention only",
}


@pytest.mark.parametrize("change", CHANGES)
def test_where_a_class_reads_less_than_the_file_says_it_is_told(change: str) -> None:
    """Equal tables, or a warning that names a key of the file which the class does not read."""
    silent, right = {}, 0
    for model_type, (module, config_class) in modules().items():
        unlike = model_type in data("refused")["turns_only_if"] or model_type in ERRORS
        if not one_axis(model_type) or model_type in data("refused")["model_types"] or unlike:
            continue
        try:
            theirs = their_tables(module(config_class(**json.loads(json.dumps(CHANGES[change])))))
        except Exception:  # a class that refuses the change, or wants a part of the composite
            continue
        trouble = difference(CHANGES[change], model_type, theirs)
        right += trouble is None
        config = Configuration("config.json", CHANGES[change], model_type=model_type)
        said = [w for label in theirs for w in resolve_configuration(config, layer_type=label).warnings]
        if trouble and not any(
            "does not read" in warning or "reads rope_type only" in warning for warning in said
        ):
            silent[model_type] = trouble
    assert not silent
    assert right > 40


def test_the_table_of_defaults_is_current() -> None:
    tool = Path(__file__).parents[2] / "tools" / "collect_model_defaults.py"
    spec = importlib.util.spec_from_file_location("collect_model_defaults", tool)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_text() == module.collected()
