"""Rounding once, checked against exact midpoints between all neighbours of a type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.numerics.dtypes import FLOATS, largest, numpy_dtype, round_into, round_to, rounding_of

NARROW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def all_finite(name: str) -> np.ndarray:
    """Every finite value of a type of one or two bytes, rising, zero once."""
    dtype = numpy_dtype(name)
    codes = np.arange(2 ** (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = codes.view(dtype).astype(np.float64)
    return np.unique(values[np.isfinite(values)])


def same(got: np.ndarray, want: np.ndarray) -> None:
    got = got.astype(np.float64)
    wrong = ~((got == want) | (np.isnan(got) & np.isnan(want)))
    assert not wrong.any(), (got[wrong][:5], want[wrong][:5])


@pytest.mark.parametrize("name", NARROW)
def test_the_largest_number_of_a_type(name: str) -> None:
    assert largest(name) == all_finite(name)[-1]


@pytest.mark.parametrize("name", NARROW)
def test_values_of_the_type_are_kept(name: str) -> None:
    values = all_finite(name)
    same(round_to(values, name), values)


@pytest.mark.parametrize("name", NARROW)
def test_just_beside_a_tie_is_rounded_to_its_own_side(name: str) -> None:
    values = all_finite(name)
    ties = (values[1:] + values[:-1]) / 2
    same(round_to(np.nextafter(ties, -np.inf), name), values[:-1])
    same(round_to(np.nextafter(ties, np.inf), name), values[1:])


@pytest.mark.parametrize("name", NARROW)
def test_ties_go_to_the_even_neighbour(name: str) -> None:
    values = all_finite(name)
    dtype = numpy_dtype(name)
    below, above = values[:-1], values[1:]
    even_below = below.astype(dtype).view(f"u{dtype.itemsize}") % 2 == 0
    same(round_to((below + above) / 2, name), np.where(even_below, below, above))


@pytest.mark.parametrize(
    ("name", "largest", "beyond"),
    [
        ("float32", 3.4028234663852886e38, np.inf),
        ("float16", 65504.0, np.inf),
        ("bfloat16", 3.3895313892515355e38, np.inf),
        ("float8_e5m2", 57344.0, np.inf),
        ("float8_e4m3fn", 448.0, np.nan),
    ],
)
@pytest.mark.filterwarnings("error")
def test_overflow_begins_half_a_step_above_the_largest(name: str, largest: float, beyond: float) -> None:
    step = largest - float(all_finite(name)[-2]) if name in NARROW else 2.0**104
    tie = largest + step / 2
    same(
        round_to(np.array([largest, np.nextafter(tie, 0), 1e300, -1e300]), name),
        np.array([largest, largest, beyond, -beyond]),
    )


@pytest.mark.parametrize("name", FLOATS)
def test_zero_keeps_its_sign_and_nan_stays(name: str) -> None:
    rounded = round_to(np.array([0.0, -0.0, np.nan, -1e-300 if name != "float64" else -0.0]), name)
    wide = rounded.astype(np.float64)
    assert np.signbit(wide).tolist()[:2] == [False, True]
    assert np.isnan(wide[2])
    assert wide[3] == 0
    assert np.signbit(wide[3])


def test_infinity_stays_infinite_or_becomes_nan() -> None:
    for name in FLOATS:
        rounded = round_to(np.array([np.inf, -np.inf]), name).astype(np.float64)
        same(rounded, np.array([np.nan, np.nan] if name == "float8_e4m3fn" else [np.inf, -np.inf]))


def test_subnormal_bfloat16_is_rounded_once() -> None:
    tie = 3 * 2.0**-134
    values = np.array([tie, tie * (1 + 2.0**-50), tie * (1 - 2.0**-50), -tie * (1 + 2.0**-50)])
    same(round_to(values, "bfloat16"), np.array([2, 2, 1, -2]) * 2.0**-133)


def test_one_step_differs_from_two() -> None:
    """The case that the rounding to odd is for: float32 lands on a tie of bfloat16, then goes the wrong way."""
    value = np.array([1 + 2.0**-8 + 2.0**-40])
    assert float(value.astype(np.float32).astype(ml_dtypes.bfloat16)[0]) == 1.0
    assert float(round_to(value, "bfloat16")[0]) == 1 + 2.0**-7


def test_random_values_of_all_sizes() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(size=20000) * 2.0 ** rng.uniform(-150, 20, size=20000)
    for name in ("bfloat16", "float8_e5m2", "float8_e4m3fn"):
        known = all_finite(name)
        inside = values[np.abs(values) < known[-1]]
        above = np.searchsorted(known, inside)
        lower, upper = known[above - 1], known[above]
        same(round_to(inside, name), np.where(inside - lower < upper - inside, lower, upper))


def test_strided_and_integer_arrays() -> None:
    pairs = np.linspace(-2, 2, 40).reshape(20, 2)
    same(round_to(pairs[:, 1], "bfloat16"), round_to(pairs[:, 1].copy(), "bfloat16").astype(np.float64))
    assert round_to(np.array([257, 259]), "bfloat16").astype(float).tolist() == [256.0, 260.0]
    assert round_to(np.array(1 + 2.0**-8 + 2.0**-40), "bfloat16").astype(float) == 1 + 2.0**-7
    assert round_to(np.zeros((0, 3)), "bfloat16").shape == (0, 3)


@pytest.mark.parametrize("name", FLOATS)
def test_round_into_is_round_to(name: str) -> None:
    values = np.random.default_rng(1).normal(size=(30, 4))
    out = np.zeros((30, 8), numpy_dtype(name))
    round_into(out[:, ::2], values)
    assert out[:, ::2].tobytes() == round_to(values, name).tobytes()
    assert not out[:, 1::2].astype(np.float64).any()


def test_nothing_is_copied_where_nothing_changes() -> None:
    values = np.ones(3, np.float32)
    assert round_to(values, "float32") is values


def test_unknown_name_is_answered_with_a_near_one() -> None:
    with pytest.raises(PeError, match="did you mean 'float16'"):
        numpy_dtype("flaot16")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float32", "complex64"])
def test_rounding_is_within_what_rounding_of_says(dtype: str) -> None:
    values = np.random.default_rng(1).uniform(-3, 3, 5000)
    worst = np.abs(round_to(values, dtype).astype(np.complex128).real - values).max()
    assert worst <= rounding_of(3, dtype) <= 1.1 * worst
