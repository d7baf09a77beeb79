"""The frameworks' float32 recipe: its own properties, and transformers' tables value by value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli import rope
from pe_cli.encodings.float32 import frequencies32
from pe_cli.encodings.rope.scaling import frequencies

LLAMA = {"base": 5e5, "scaling": "llama3", "factor": 8.0, "original_len": 8192}
MODELS: dict[str, tuple[int, dict[str, Any]]] = {
    "llama-3.1": (128, LLAMA | {"low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    "qwen-2.5": (128, {"base": 1e6, "scaling": "yarn", "factor": 4.0, "original_len": 32768}),
    "gemma-3 full": (256, {"base": 1e6, "scaling": "linear", "factor": 8.0}),
    "gemma-3 sliding": (256, {"base": 1e4}),
    "gpt-oss": (
        64,
        {"base": 150000.0, "scaling": "yarn", "factor": 32.0, "original_len": 4096, "truncate": False},
    ),
    "hunyuan": (128, {"base": 1e4, "scaling": "ntk", "factor": 1000.0}),
    "gemma-4": (256, {"base": 1e6, "scaling": "proportional", "partial": 0.25}),
}
BLOCKS = [(0, 4096), (8000, 12000), (60000, 62000), (131072 - 4096, 131072)]


def steps_apart(a: np.ndarray, b: np.ndarray) -> int:
    """The largest distance in units of the last place of float32."""
    ordered = [
        np.where(x < 0, -(x & 0x7FFFFFFF), x)
        for x in (a.view(np.int32).astype(np.int64), b.view(np.int32).astype(np.int64))
    ]
    return int(np.abs(ordered[0] - ordered[1]).max())


@pytest.mark.parametrize("model", MODELS)
def test_frequencies_are_nearly_the_exact_ones(model: str) -> None:
    dim, options = MODELS[model]
    exact = [float(w) for w in frequencies(dim, **options).inv_freq]
    np.testing.assert_allclose(frequencies32(dim, **options), exact, rtol=4e-7)


def test_the_recipe_shows_at_large_positions_alone() -> None:
    exact, recipe = (rope(np.array([1, 131071]), 128, compute=c)["rope"] for c in ("exact", "float32"))
    difference = np.abs(exact - recipe).max(axis=1)
    assert difference[0] < 1e-6
    assert 1e-4 < difference[1] < 1e-2


def test_longrope_and_dynamic_follow_their_length() -> None:
    lists = {"short_factor": [1.1] * 8, "long_factor": [7.3] * 8, "original_len": 64, "factor": 4.0}
    for length, factor in ((64, 1.1), (65, 7.3)):
        w = frequencies32(16, base=1e4, scaling="longrope", seq_len=length, **lists)
        np.testing.assert_allclose(w, frequencies32(16, base=1e4) / np.float32(factor), rtol=2e-7)
    options: dict[str, Any] = {"base": 1e4, "scaling": "dynamic-ntk", "factor": 2.0, "original_len": 64}
    np.testing.assert_array_equal(frequencies32(16, seq_len=10, **options), frequencies32(16, base=1e4))
    grown = [float(w) for w in frequencies(16, seq_len=200, **options).inv_freq]
    np.testing.assert_allclose(frequencies32(16, seq_len=200, **options), grown, rtol=1e-6)


def transformers_embedding(model: str) -> Any:
    transformers = pytest.importorskip("transformers")
    dim, options = MODELS[model]
    names = {"base": "rope_theta", "scaling": "rope_type", "original_len": "original_max_position_embeddings"}
    names["partial"] = "partial_rotary_factor"
    parameters = {"rope_type": "default"} | {names.get(k, k): v for k, v in options.items()}
    if model == "hunyuan":
        from transformers.models.hunyuan_v1_dense import modeling_hunyuan_v1_dense as hunyuan

        parameters |= {"rope_type": "dynamic", "alpha": parameters["factor"]}
        return hunyuan.HunYuanDenseV1RotaryEmbedding(
            transformers.HunYuanDenseV1Config(head_dim=dim, rope_parameters=parameters)
        )
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = transformers.LlamaConfig(
        head_dim=dim, max_position_embeddings=131072, rope_parameters=parameters
    )
    return LlamaRotaryEmbedding(config)


@pytest.mark.interop
@pytest.mark.parametrize("model", MODELS)
def test_tables_of_transformers(model: str) -> None:
    """At least 98 % of values identical, the rest within 2 units, up to position 131071."""
    torch = pytest.importorskip("torch")
    dim, options = MODELS[model]
    embedding = transformers_embedding(model)
    same = count = 0
    for first, last in BLOCKS:
        theirs = embedding(torch.zeros(1), torch.arange(first, last)[None])
        ours = rope(np.arange(first, last), dim, layout="half", compute="float32", **options)
        for name, table in zip(("cos", "sin"), theirs, strict=True):
            want = np.ascontiguousarray(table[0].numpy())
            same += int((ours[name] == want).sum())
            count += want.size
            assert steps_apart(ours[name], want) <= 2, name
    assert same / count >= 0.98


@pytest.mark.interop
def test_gemma3_by_layer_type() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding

    kinds = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    config = transformers.Gemma3TextConfig(
        head_dim=256, num_hidden_layers=2, layer_types=list(kinds), rope_parameters=kinds
    )
    embedding = Gemma3RotaryEmbedding(config)
    for kind, model in (("full_attention", "gemma-3 full"), ("sliding_attention", "gemma-3 sliding")):
        cos, _ = embedding(torch.zeros(1), torch.arange(129000, 131072)[None], kind)
        dim, options = MODELS[model]
        ours = rope(np.arange(129000, 131072), dim, layout="half", compute="float32", **options)["cos"]
        assert (ours == cos[0].numpy()).mean() >= 0.98
