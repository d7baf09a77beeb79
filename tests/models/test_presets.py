"""Well-known models by name: golden numbers of their frequencies (read off transformers 5.24)."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.encodings.rope.rotary import rope
from pe_cli.errors import PeError
from pe_cli.models.read import preset_configuration, preset_names
from pe_cli.models.resolve import preset

NOWHERE = np.zeros(0)
LENGTH = 4096


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_makes_a_table_without_a_default(name: str) -> None:
    try:
        tables = [preset(name, seq_len=LENGTH)]
    except PeError:
        tables = [
            preset(f"{name}:{label}", seq_len=LENGTH) for label in ("full_attention", "sliding_attention")
        ]
    for resolved in tables:
        assert not resolved.warnings
        assert resolved.parameters.keys() == resolved.origins.keys()
        assert len(rope(NOWHERE, **resolved.parameters).to_dict()) in (1, 2)
        assert resolved.file == preset_configuration(name).file


@pytest.mark.parametrize(
    ("name", "second", "middle", "last", "magnitude"),
    [
        ("qwen3-yarn", 0.805842188, 6.02941176e-4, 3.1023444e-7, 1.138629),
        ("gpt-oss", 0.689044306, 4.56483919e-4, 3.02351143e-7, 1.346574),
        ("deepseek-v3", 0.749894209, 5.5e-3, 3.33380358e-6, 1.0),
        ("kimi-k2", 0.713111085, 4.47213595e-3, 8.76441291e-7, 1.0),
        ("llama-3.1", 0.814617234, 5.24846161e-4, 3.06892599e-7, 1.0),
        ("llama-3.2-1b", 0.663601238, 4.29556797e-4, 9.41830673e-8, 1.0),
        ("gemma-3-4b:full_attention", 0.112210892, 1.25e-4, 1.39246732e-7, 1.0),
    ],
)
def test_golden_frequencies(name: str, second: float, middle: float, last: float, magnitude: float) -> None:
    parameters = preset(name).parameters | {"layout": "inv-freq", "dtype": "float64"}
    tensors = rope(NOWHERE, **parameters)
    w = tensors["inv_freq"]
    np.testing.assert_allclose([w[1], w[len(w) // 2], w[-1]], [second, middle, last], rtol=1e-8)
    assert tensors.facts["attention_factor"] == pytest.approx(magnitude, abs=5e-7)


def test_dynamic_and_proportional_golden_numbers() -> None:
    dynamic = preset("internlm2.5-7b", seq_len=65536).parameters | {"layout": "inv-freq", "dtype": "float64"}
    w = rope(NOWHERE, **dynamic)["inv_freq"]
    np.testing.assert_allclose([w[1], w[32], w[-1]], [0.791911495, 5.72338151e-4, 4.1364592e-7], rtol=1e-8)
    gemma = preset("gemma-4:full_attention").parameters | {"layout": "inv-freq", "dtype": "float64"}
    w = rope(NOWHERE, **gemma)["inv_freq"]
    assert w[1] == pytest.approx(0.947463526)
    assert (np.count_nonzero(w), len(w)) == (64, 256)


def test_phi_switches_its_factors_at_the_original_length() -> None:
    short, long = (preset("phi-3.5-mini", seq_len=n).parameters for n in (4096, 4097))
    both = [rope(NOWHERE, **p | {"layout": "inv-freq", "dtype": "float64"}) for p in (short, long)]
    np.testing.assert_allclose(both[0]["inv_freq"][0] / both[1]["inv_freq"][0], 1.0800000429153442)
    assert both[0].facts["attention_factor"] == pytest.approx(1.190238, abs=5e-7)


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(PeError, match=r"did you mean 'llama-3\.1'"):
        preset("lama-3.1")


@pytest.mark.parametrize(("name", "layers"), [("gemma-3-1b", 26), ("gemma-3-4b", 34), ("gemma-3-27b", 62)])
def test_the_layers_of_a_type_are_those_of_this_size(name: str, layers: int) -> None:
    """Numbers of layers as litgpt's config.py has them; every sixth layer has full attention."""
    full = preset(f"{name}:full_attention").layers
    assert full == tuple(range(5, layers, 6))
    assert sorted([*full, *preset(f"{name}:sliding_attention").layers]) == list(range(layers))


def test_no_layers_are_named_where_nothing_says_how_many_there_are() -> None:
    assert preset("gemma-4:full_attention").layers == ()
