"""Every model type of the installed transformers: a scheme, a place, or none, and nothing untrue."""

from __future__ import annotations

import importlib
import importlib.util
import json
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration, defaults, known_types, schemes
from pe_cli.models.resolve import resolve_configuration
from pe_cli.models.resolved import LearnedTableError

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.interop]

ROOT = Path(__file__).parent.parent.parent
FEW = 60
# Keys that transformers' own defaults hold and that are named because they may change a table, or belong to another part.
NAMED = {
    "rotary_dim": "MiniMax M3: the class reads partial_rotary_factor",
    "rope_scaling_layers": "Molmo 2: the layers outside the list are not scaled",
    "rope_parameters": "Music Flamingo: the rotation of audio frames by their time",
    "position_embedding_type": "Grounding DINO: the kind of its two-dimensional sine",
}


@cache
def collector() -> ModuleType:
    """tools/collect_schemes.py as a module."""
    spec = importlib.util.spec_from_file_location("collect_schemes", ROOT / "tools" / "collect_schemes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def classes() -> dict[str, tuple[Any, Any]]:
    """(configuration class, modelling file) of each model type."""
    return {
        cls.model_type or cls.__name__: (cls, module) for cls, module in collector().configuration_classes()
    }


def answers(model_type: str) -> list[Any]:
    """What is made, or raised, for the defaults of a class, by layer type."""
    config = classes()[model_type][0]()
    values = json.loads(json.dumps(config.to_dict(), default=str))
    whole = Configuration("config.json", values, model_type=model_type)
    found: list[Any] = []
    for label in (None, "full_attention", "sliding_attention"):
        try:
            found.append(resolve_configuration(whole, layer_type=label, seq_len=64))
        except PeError as error:
            found.append(error)
        if "layer_type" not in str(found[-1]):
            break
    return found


def default_answers() -> dict[str, list[Any]]:
    found = {}
    for model_type in classes():
        try:
            found[model_type] = answers(model_type)
        except PeError:
            raise
        except Exception:  # the class makes no configuration without arguments
            continue
    return found


def test_few_types_are_unknown_and_few_keys_are_named() -> None:
    found = default_answers()
    assert len(found) > 780
    unknown = [
        name for name, said in found.items() if any("not known here" in str(answer) for answer in said)
    ]
    assert len(unknown) < FEW, unknown
    named = {key for said in found.values() for answer in said for key in getattr(answer, "unread", ())}
    assert {key.rpartition(".")[2] for key in named} <= set(NAMED)


def test_every_answer_has_a_source() -> None:
    for model_type in known_types():
        known = defaults(model_type)
        assert known.components or known.source or all(scheme.source for scheme in schemes(model_type)), (
            model_type
        )


def test_learned_tables_lie_where_it_is_said() -> None:
    wrong = {}
    for model_type, said in default_answers().items():
        places = {
            answer.where: answer.shape
            for answer in said
            if isinstance(answer, LearnedTableError) and not answer.component
        }
        model = collector().built(*classes()[model_type]) if places else None
        if model is None:
            continue
        held = {
            name.replace("._orig_mod", ""): tuple(tensor.shape)
            for name, tensor in (*model.named_parameters(), *model.named_buffers())
        }
        for place, shape in places.items():
            ends = place.replace(" or ", " and ").partition(" (")[0].split(" and ")
            shapes = {held[name] for name in held for end in ends if name.endswith(end)}
            if not shapes or (shape is not None and shape not in shapes):
                wrong[model_type] = (place, shape, sorted(shapes))
    assert not wrong
