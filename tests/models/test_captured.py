"""What the attention of every rotary text model of transformers receives in a forward pass: tables, pairing, layers.

Each model runs in a process of its own, with few and narrow layers and a limit of memory.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration, data, defaults
from pe_cli.models.resolve import from_config, layer_types, resolve_configuration

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.slow, pytest.mark.interop]

# Why a model is not run; its table is that of the module, which test_transformers.py compares for every type.
NOT_RUN = {
    **dict.fromkeys(
        [
            "blt_local_decoder",
            "blt_local_encoder",
            "muse_glimmer_assistant",
            "qwen2_5_omni_dit",
            "voxtral_realtime_text",
        ],
        "its parts take what other parts of it made",
    ),
    **dict.fromkeys(
        ["blt", "evolla", "phi4_multimodal"],
        "it is too large for the memory and the time of the test, whatever its layers",
    ),
    **dict.fromkeys(
        [
            "deepseek_ocr2_encoder",
            "idefics",
            "neucodec",
            "pe_audio_encoder",
            "xcodec2",
            "dia_decoder",
        ],
        "it takes images or sounds, and its rows are not those of 13 tokens",
    ),
    **dict.fromkeys(
        [
            "chameleon",
            "dots3_note_audio_encoder",
            "gradium_phonon_tts",
            "kyutai_speech_to_text",
            "mimi",
            "pocket_tts",
            "pocket_tts_audio_tokenizer",
            "zaya",
        ],
        "its sizes are tied to one another, so that no small model is made",
    ),
    **dict.fromkeys(
        [
            "qwen4_exp_text",
            "step3p5",
        ],
        "its default configuration lacks what its model reads, in transformers 5.24",
    ),
    **dict.fromkeys(
        ["pe_audio_video_encoder", "pe_video_encoder"], "it needs a library that the tests do not install"
    ),
    **dict.fromkeys(["t5_gemma_module"], "no model class has this configuration"),
}
LONGEST, MEMORY = 60.0, 3_000_000_000


def rotary_text_types() -> list[str]:
    """The types whose positions lie on a line."""
    models = data("transformers")["models"]
    return [
        name
        for name, entry in models.items()
        if "rope" in entry
        and entry.get("rotary")
        and not defaults(name).has_axes
        and name not in data("refused")["model_types"]
    ]


@cache
def configuration_classes() -> dict[str, Any]:
    import transformers

    found = {}
    root = Path(transformers.__file__).parent / "models"
    for path in sorted(root.glob("*/configuration_*.py")):
        module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
        found.update({name: value for name, value in vars(module).items() if name.endswith("Config")})
    return found


def troubles_of(model_type: str) -> dict[str, Any]:
    """What differs from a forward pass; `not run` where the model could not be run."""
    from capture import LENGTH, run

    try:
        captured, config = run(configuration_classes()[defaults(model_type).name])
    except Exception as error:
        return {"not run": str(error)}
    if not captured.tables:
        return {"not run": "no function of its file rotates"}
    values = json.loads(json.dumps(config.to_dict(), default=str))
    troubles = {}
    ours = {}
    resolved = None
    config_here = Configuration("config.json", values, model_type=model_type)
    for label in layer_types(config_here) or (None,):
        try:
            made = from_config(values, np.arange(LENGTH), layer_type=label, seq_len=LENGTH, compute="float32")
            ours[label] = [np.asarray(t) for t in made.values()]
            resolved = resolved or resolve_configuration(config_here, layer_type=label, seq_len=LENGTH)
        except PeError as error:
            troubles[f"refused {label}"] = str(error)
    if resolved is None:
        return troubles
    tables = [t for t in captured.tables if t[0].shape[0] == LENGTH]
    if not tables:
        return {"not run": f"no table of {LENGTH} rows among {[t[0].shape for t in captured.tables]}"}
    differing = [
        [t.shape for t in theirs]
        for theirs in tables
        if not any(fits(theirs, o, model_type) for o in ours.values())
    ]
    pairings = captured.pairings - {None}
    layers = next((t.parameters["layers"] for t in resolved.extra_tables if t.name == "rotated-layers"), None)
    kinds = values.get("layer_types") or values.get("layers_block_type") or ()
    hybrid = not kinds and any(re.search("attn_layer|block_types", key) for key in values)
    attends = [not re.search("linear|mamba|conv|recurrent", kind) for kind in kinds]
    expected = tuple(layers or map(int, attends)) or (1,) * captured.count
    turned = tuple(int(index in captured.layers) for index in range(captured.count))
    found = troubles
    if differing:
        found["tables"] = str(differing)
    if pairings and pairings != {resolved.pairing}:
        found["pairing"] = f"{sorted(pairings)}, not {resolved.pairing}"
    if captured.layers and not hybrid and len(expected) == captured.count and turned != expected:
        found["layers"] = f"{turned}, not {expected}"
    return found


def fits(theirs: list[np.ndarray], ours: list[np.ndarray], model_type: str) -> bool:
    """Whether the tables are the same but for what repeats a column, sine first or cosine first."""
    if len(theirs) != len(ours):
        return False
    turns_back = model_type == "deepseek_v4"  # it turns the values back after attention
    forms = [theirs, [theirs[0], -theirs[-1]]] if turns_back else [theirs]
    return any(all(map(alike, given, order)) for order in (ours, ours[::-1]) for given in forms)


def alike(theirs: np.ndarray, ours: np.ndarray) -> bool:
    return any(theirs.shape == form.shape and np.allclose(theirs, form, atol=2e-6) for form in forms(ours))


def forms(table: np.ndarray) -> list[np.ndarray]:
    half = table[:, : table.shape[1] // 2]
    return [
        table,
        half,
        np.repeat(table, 2, axis=1),
        np.repeat(half, 2, axis=1),
        np.concatenate([table, table], axis=1),
    ]


def in_a_process(model_type: str) -> dict[str, Any]:
    import resource

    import capture  # type: ignore[import-not-found]  # noqa: F401  here, and not in each process again
    import torch

    configuration_classes()
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)  # threads that an earlier test has started are not there in a fork
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            signal.setitimer(
                signal.ITIMER_PROF, LONGEST
            )  # processor time, so that a busy machine changes nothing
            Path(result.name).write_text(json.dumps(troubles_of(model_type)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        text = Path(result.name).read_text()
    return json.loads(text) if status == 0 and text else {"not run": f"no answer (status {status})"}


def test_few_models_are_not_run() -> None:
    assert set(NOT_RUN) <= set(rotary_text_types())
    assert len(NOT_RUN) < len(rotary_text_types()) / 7


@pytest.mark.parametrize("model_type", rotary_text_types())
def test_attention_receives_the_table_that_is_made(model_type: str) -> None:
    importlib.import_module("sys").path.insert(0, str(Path(__file__).parent))
    found = in_a_process(model_type)
    if model_type in NOT_RUN:
        assert "not run" in found
        pytest.skip(NOT_RUN[model_type])
    assert not found
