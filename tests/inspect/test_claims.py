"""What `identify` tells of tables that leave room for something else: the simplest answer that makes them, or a doubt."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from pe_cli.inspect import identify

Array = NDArray[Any]


def frequencies(dim: int, base: float = 1e4) -> Array:
    return np.asarray(base ** (-np.arange(0, dim, 2) / dim))


def cos_sin(positions: Any, w: Array) -> Array:
    angles = np.outer(positions, w)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def interleaved(positions: Any, w: Array) -> Array:
    angles = np.outer(positions, w)
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(len(angles), -1).astype(np.float32)


def told(table: Array, name: str | None = None) -> dict[str, Any]:
    return identify(table, name).to_dict()


@pytest.mark.parametrize("start", [10**6, 10**7, -(10**6), 4321])
@pytest.mark.parametrize("dim", [8, 10])
def test_a_far_start_of_a_narrow_table_is_the_whole_number_that_makes_it(start: int, dim: int) -> None:
    found = told(cos_sin(np.arange(start, start + 64), frequencies(dim)))
    assert (found["start"], found["computed"]) == (start, "exact")
    assert found["residual"] <= 0.51


@pytest.mark.parametrize(
    ("table", "base"),
    [
        (interleaved(np.arange(10**6, 10**6 + 128), frequencies(8)).astype(ml_dtypes.bfloat16), 10000),
        (cos_sin(np.arange(10**5, 10**5 + 10), frequencies(4)), 10000),
        (cos_sin(np.arange(10**5, 10**5 + 128), frequencies(4, 100.0)), 100),
    ],
)
def test_a_start_that_other_positions_give_as_well_is_not_told(table: Array, base: int) -> None:
    """Frequencies that are multiples of one another: all angles come again."""
    found = told(table)
    assert found["base"] == base
    assert "start" not in found
    assert "float32" not in found.get("computed", "")
    assert any(note.startswith("start ") for note in found["ambiguous"])


@pytest.mark.parametrize(
    ("rows", "dim", "base"), [(32, 4, 1e3), (4, 4, 1e4), (32, 8, 1e3), (16, 4, 1e4), (48, 6, 500.0)]
)
def test_small_tables_in_bfloat16_are_the_plain_ones(rows: int, dim: int, base: float) -> None:
    """Sines of a start that was searched for look like cosines from 0 on."""
    found = told(cos_sin(np.arange(rows), frequencies(dim, base)).astype(ml_dtypes.bfloat16))
    assert (found["layout"], found["base"], found["start"]) == ("cos-sin", base, 0)
    assert found.get("stride", 1) == 1


@pytest.mark.parametrize("start", [0.5, 3.5, -0.25, 17.125])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_start_of_few_digits_is_told_as_such(start: float, dtype: Any) -> None:
    found = told(cos_sin(np.arange(64) + start, frequencies(64)).astype(dtype))
    assert (found["base"], found["start"], found["computed"]) == (10000, start, "exact")
    assert found["residual"] <= 0.51


@pytest.mark.parametrize("seed", [0, 3, 11])
@pytest.mark.parametrize("base", [1e4, 5e5])
def test_scattered_whole_positions_are_whole(seed: int, base: float) -> None:
    positions = np.sort(np.random.default_rng(seed).choice(2048, 512, replace=False))
    found = identify(cos_sin(positions, frequencies(64, base)))
    assert found.facts["computed"] == "exact"
    assert found.reading is not None
    assert np.array_equal(found.reading.solved.positions, positions)


@pytest.mark.parametrize(("base", "pairs"), [(2.0**16, 16), (2.0**8, 8), (4.0**12, 12)])
def test_powers_of_two_are_not_frequencies_that_were_rounded(base: float, pairs: int) -> None:
    found = told(cos_sin(np.arange(64), frequencies(2 * pairs, base)))
    assert (found["base"], found["start"], found["computed"]) == (base, 0, "exact")
    assert "frequency_dtype" not in found


@pytest.mark.parametrize("base", [1e4, 5e5])
def test_float32_frequencies_in_exact_products(base: float) -> None:
    single = frequencies(64, base).astype(np.float32)
    found = told(cos_sin(np.arange(512), single.astype(np.float64)))
    assert (found["base"], found["frequency_dtype"], found["computed"]) == (base, "float32", "exact")
    assert found["residual"] <= 0.51
    rounded = np.outer(np.arange(512, dtype=np.float32), single)
    products = told(np.concatenate([np.cos(rounded), np.sin(rounded)], axis=1))
    assert (products["computed"], products.get("frequency_dtype")) == ("float32", None)


@pytest.mark.parametrize(
    ("name", "scaling"),
    [
        ("rope_freqs.weight", None),
        ("rope_factors_long.weight", "longrope"),
        ("rope_factors_short.weight", "longrope"),
    ],
)
@pytest.mark.parametrize(
    "values",
    [
        np.ones(64),
        np.sort(1 + 63 * np.random.default_rng(0).random(48)),
        np.r_[np.ones(64), np.full(64, 1e30)],
    ],
)
def test_what_ggml_names_divisors_are_divisors(name: str, scaling: str | None, values: Array) -> None:
    found = told(values.astype(np.float32), name)
    assert (found["encoding"], found["layout"], found.get("scaling")) == ("rope", "ggml-factors", scaling)
    assert "base" not in found
    assert found["factors"] == pytest.approx(values.tolist(), rel=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        np.ones(32),
        np.sort(np.random.default_rng(0).random(32))[::-1],
        np.linspace(1, 0.1, 32),
        np.array([1.0, 0.178 / 1.7778, 0.0316 / 8, 0.0056 / 8]),
    ],
)
def test_frequencies_of_no_rule_are_no_longrope(values: Array) -> None:
    found = told(values.astype(np.float32), "model.rotary_emb.inv_freq")
    assert (found["encoding"], found["scaling"]) == ("rope", "unknown")
    assert "base" not in found
    assert found["frequencies"] == pytest.approx(values.tolist(), rel=1e-6)


def test_a_table_of_unknown_frequencies_has_no_base_and_no_arithmetic() -> None:
    w = np.linspace(1, 0.01, 32) ** 1.3
    found = told(cos_sin(np.arange(300), w), "cos_sin")
    assert (found["scaling"], found["start"]) == ("unknown", 0)
    assert found["frequencies"] == pytest.approx(w.tolist(), rel=1e-7)
    assert "base" not in found
    assert "computed" not in found
    assert found["residual"] < 2


@pytest.mark.parametrize(
    "values",
    [2.0 ** np.arange(10), 1e-3 * 0.9 ** np.arange(64), 0.97 ** np.arange(100), 3.0 ** np.arange(12)],
)
def test_a_geometric_row_without_a_name_is_no_encoding(values: Array) -> None:
    found = told(values)
    assert found["encoding"] is None
    assert "any geometric row" in found["maybe"]


@pytest.mark.parametrize("name", [None, "inv_freq"])
def test_timescales_with_a_frequency_shift_are_listed(name: str | None) -> None:
    """inv_timescales of tensor2tensor, Whisper and fairseq: base 10000 over one pair less."""
    found = told(np.exp(-np.log(1e4) * np.arange(32) / 31), name)
    listed = [*found.get("ambiguous", []), *found.get("maybe", [])]
    assert any(note.startswith("base 10000 with a frequency shift of 1") for note in listed)
    assert found["encoding"] == (None if name is None else "rope")
    if name:
        assert found["base"] == pytest.approx(1e4 ** (32 / 31), rel=1e-13)


def test_a_base_of_a_float64_vector_makes_it_again() -> None:
    found = told(np.asarray(31415.926535 ** (-np.arange(64) / 64)), "inv_freq")
    assert found["base"] == pytest.approx(31415.926535, rel=1e-12)
    assert found["residual"] < 64


def test_t5_of_distances_that_share_no_bucket_leaves_larger_numbers_open() -> None:
    found = told(np.clip(np.arange(16)[:, None] - np.arange(16), 0, 15))
    assert found["encoding"] == "t5"
    notes = " ".join(found["ambiguous"])
    assert "32 and 128 or 64 and 256" in notes
    assert "cut off at" not in notes


def test_a_linear_scaling_says_which_steps_are_the_same() -> None:
    found = told(cos_sin(np.arange(512) / 8, frequencies(64)))
    assert (found["scaling"], found["factor"]) == ("linear", 8)
    assert "scaling none with positions 0.125 apart" in found["ambiguous"]


def test_a_wide_step_is_not_read_as_a_scaling() -> None:
    found = told(cos_sin(np.linspace(0, 1, 50) * 1000, frequencies(256)))
    assert found["scaling"] == "none"
    assert found["stride"] == pytest.approx(1000 / 49, rel=1e-8)
