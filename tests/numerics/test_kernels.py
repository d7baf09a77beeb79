"""The rotation kernel against 60-digit arithmetic, and its promise that a row never depends on its company."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_cli.errors import PeError
from pe_cli.numerics import kernels
from pe_cli.numerics.kernels import geometric, rotation_blocks, rotations, scaled

DIGITS = 60
ENTRIES = 3000


def reference_frequencies(base: float, dim: int, shift: float = 0) -> list[Any]:
    with mpmath.workdps(DIGITS):
        steps = mpmath.mpf(dim) / 2 - mpmath.mpf(shift)
        return [mpmath.mpf(base) ** (-i / steps) for i in range((dim + 1) // 2)]


def reference(positions: Sequence[Any], frequencies: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """cos and sin of p * w, pair by pair."""
    with mpmath.workdps(DIGITS + 30):
        angles = [mpmath.mpf(p) * w for p, w in zip(positions, frequencies, strict=True)]
        return [mpmath.cos(a) for a in angles], [mpmath.sin(a) for a in angles]


def entries(positions: np.ndarray, count: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(len(positions))
    return rng.integers(len(positions), size=count), rng.integers((dim + 1) // 2, size=count)


def whole(low: int, high: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(low, high, size=500)


def fractional(low: float, high: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, size=500)


POSITIONS = {
    "to 1e7": whole(0, 10**7),
    "negative": whole(-(10**7), 0),
    "about 1e15": whole(10**15, 10**15 + 10**6),
    "to 2^63": whole(-(2**63), 2**63 - 1),
    "fractional": fractional(-5000, 5000),
    "small fractions": fractional(-1e-3, 1e-3),
}


@pytest.mark.parametrize(("base", "dim"), [(10000, 128), (500000, 96)])
def test_float32_is_correctly_rounded_at_positions_up_to_1e7(base: float, dim: int) -> None:
    positions = whole(0, 10**7, seed=dim)
    j, i = entries(positions, ENTRIES, dim)
    z = rotations(positions, geometric(base, dim))[j, i]
    w = reference_frequencies(base, dim)
    cos, sin = reference(positions[j].tolist(), [w[k] for k in i])
    np.testing.assert_array_equal(z.real.astype(np.float32), np.array(cos, float).astype(np.float32))
    np.testing.assert_array_equal(z.imag.astype(np.float32), np.array(sin, float).astype(np.float32))


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)
@pytest.mark.parametrize(("base", "dim"), [(10000, 64), (1.5e6 / 7, 10), (1e30, 64), (3, 2)])
def test_errors_stay_within_their_bounds(positions: np.ndarray, base: float, dim: int) -> None:
    j, i = entries(positions, 300, dim)
    inv_freq = geometric(base, dim)
    w = reference_frequencies(base, dim)
    cos, sin = reference(positions[j].tolist(), [w[k] for k in i])
    close, closer = rotations(positions, inv_freq)[j, i], rotations(positions, inv_freq, relative=True)[j, i]
    for got, want in ((close.real, cos), (close.imag, sin)):
        assert np.abs(np.array([g - x for g, x in zip(got.tolist(), want, strict=True)], float)).max() < 4e-16
    # Near a zero, 128 bits of phase are not enough for positions of 63 bits.
    floor = 2.0**-64 if np.abs(positions).max() > 2**52 else 0.0
    for got, want in ((closer.real, cos), (closer.imag, sin)):
        errors = np.array([g - x for g, x in zip(got.tolist(), want, strict=True)], float)
        assert (np.abs(errors) <= np.spacing(np.abs(np.array(want, float))) + floor).all()


def test_frequencies_above_one_turn_and_fractional_positions() -> None:
    positions = np.array([0.1, -0.3, 1e-20, 0.25, 3.0, -7.0, 123456.789])
    inv_freq = [2**40, 12345678901234567, Decimal("333333333333333.25"), 0, -2.5]
    z = rotations(positions, inv_freq, relative=True)
    for k, frequency in enumerate(inv_freq):
        with mpmath.workdps(2 * DIGITS):
            exact = mpmath.mpf(str(frequency))
        cos, sin = reference(positions.tolist(), [exact] * len(positions))
        np.testing.assert_allclose(z[:, k].real, np.array(cos, float), rtol=2e-15)
        np.testing.assert_allclose(z[:, k].imag, np.array(sin, float), rtol=2e-15)


def test_a_float_frequency_is_what_its_bits_say() -> None:
    w = 10000 ** (-0.25)
    z = rotations([10**7], [w])
    assert z[0, 0] == rotations([10**7], [Decimal(w)])[0, 0]
    with mpmath.workdps(DIGITS):
        assert abs(z[0, 0].real - mpmath.cos(mpmath.mpf(w) * 10**7)) < 4e-16


def test_amplitude_and_order() -> None:
    positions = np.array([0, 1, 5, 700, -3])
    for relative in (False, True):
        z = rotations(positions, geometric(1e4, 8), relative=relative)
        other = rotations(positions, geometric(1e4, 8), relative=relative, sin_first=True, amplitude=0.75)
        np.testing.assert_allclose(other.real, 0.75 * z.imag, rtol=0, atol=2e-16)
        np.testing.assert_allclose(other.imag, 0.75 * z.real, rtol=0, atol=2e-16)
    assert rotations([0], geometric(1e4, 8), sin_first=True).view(float).tolist() == [[0.0, 1.0] * 4]


WIDTHS = (1, 2, 3, 64, 700)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("count", WIDTHS)
def test_a_row_has_the_same_bits_in_any_company(count: int, relative: bool) -> None:
    rng = np.random.default_rng(count)
    inv_freq = geometric(1e4, 2 * count)
    table = rotations(np.arange(-600, 1500), inv_freq, relative=relative)

    def rows(positions: Any) -> np.ndarray:
        return rotations(positions, inv_freq, relative=relative)

    for start, stop in ((-600, -599), (-33, 40), (0, 1), (511, 514), (1023, 1500)):
        np.testing.assert_array_equal(rows(np.arange(start, stop)), table[start + 600 : stop + 600])
    shuffled = rng.permutation(np.arange(-600, 1500))
    np.testing.assert_array_equal(rows(shuffled), table[shuffled + 600])
    np.testing.assert_array_equal(rows(np.arange(1400, -600, -7)), table[2000:0:-7])
    np.testing.assert_array_equal(rows([7, 7, 7, -5]), table[[607, 607, 607, 595]])
    np.testing.assert_array_equal(
        rows([2.5, 8.0, -100.0]),
        rows([2.5, 2.5, 2.5]) * [[1], [0], [0]] + table[[0, 608, 500]] * [[0], [1], [1]],
    )
    fractions = rng.uniform(-100, 100, 50)
    alone = np.concatenate([rows(fractions[k : k + 1]) for k in range(50)])
    np.testing.assert_array_equal(rows(fractions), alone)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20), st.booleans())
@settings(max_examples=30, deadline=None)
def test_any_positions_one_by_one_or_together(positions: list[int], relative: bool) -> None:
    inv_freq = geometric(5e5, 6)
    together = rotations(np.array(positions), inv_freq, relative=relative)
    for k, position in enumerate(positions):
        np.testing.assert_array_equal(
            rotations(np.array([position]), inv_freq, relative=relative)[0], together[k]
        )


DIGEST = "3ab87d29f68b2d5011bd4cedcac226421b62de37f6f20c77ce3b169efc9f952b"


def test_the_bits_of_direct_evaluation_are_those_of_every_machine() -> None:
    table = rotations(np.arange(0, 10**6, 997), geometric(1e4, 64), relative=True)
    assert hashlib.sha256(table.astype("<c16").tobytes()).hexdigest() == DIGEST


def test_positions_of_every_type_are_the_same_positions() -> None:
    inv_freq = geometric(1e4, 8)
    want = rotations(np.arange(100, dtype=np.int64), inv_freq)
    for kind in (np.int8, np.uint8, np.int32, np.uint64, np.float16, np.float32, np.float64):
        np.testing.assert_array_equal(rotations(np.arange(100).astype(kind), inv_freq), want)
    np.testing.assert_array_equal(
        rotations(np.arange(200)[::2], inv_freq), rotations(np.arange(0, 200, 2), inv_freq)
    )
    np.testing.assert_array_equal(rotations(np.array([-0.0, 0.0]), inv_freq), rotations([0, 0], inv_freq))


def test_blocks_cover_the_rows_in_order_and_two_walks_do_not_share_a_buffer() -> None:
    inv_freq = geometric(1e4, 128)
    positions = np.arange(100, 1000)
    want = rotations(positions, inv_freq)
    expected = 0
    for (rows, z), (_, other) in zip(
        rotation_blocks(positions, inv_freq), rotation_blocks(positions + 5, inv_freq), strict=True
    ):
        assert not np.shares_memory(z, other)
        assert rows.start == expected
        assert rows.stop - rows.start == len(z)
        np.testing.assert_array_equal(z, want[rows])
        expected = rows.stop
        if expected == len(positions):
            break
    assert expected == len(positions)


def test_nothing_asked_for_nothing_given() -> None:
    assert rotations([], geometric(1e4, 8)).shape == (0, 4)
    assert rotations(np.arange(3), []).shape == (3, 0)
    assert list(rotation_blocks(np.arange(0), [1.0])) == []


@pytest.mark.parametrize(
    ("positions", "inv_freq", "message"),
    [
        ([np.nan], [1.0], "position nan"),
        ([1e19], [1.0], "position 1e+19"),
        (np.array([2**63], np.uint64), [1.0], "9223372036854775808 is not below 2^63"),
        ([[1, 2]], [1.0], "positions of 2 axes"),
        ([1j], [1.0], "complex128"),
        ([10**20], [1.0], "object"),
        ([1], [np.inf], "frequency of Infinity"),
        ([1], [1e20], "frequency of 1"),
    ],
)
def test_what_cannot_be_computed_is_said(positions: Any, inv_freq: Any, message: str) -> None:
    with pytest.raises(PeError, match=message.translate(str.maketrans({c: f"\\{c}" for c in "()+^."}))):
        rotations(np.array(positions), inv_freq)


@pytest.mark.parametrize(
    ("base", "dim", "shift"),
    [(10000, 128, 0), (500000.0, 96, 0), (1e4 / 3, 7, 0), (10000, 384, 1), (0.5, 8, 0.25), (10000, 2, 1)],
)
def test_frequencies_have_fifty_digits(base: float, dim: int, shift: float) -> None:
    w = geometric(base, dim, shift=shift)
    assert len(w) == (dim + 1) // 2
    with mpmath.workdps(DIGITS):
        want = reference_frequencies(base, dim, shift) if len(w) > 1 else [mpmath.mpf(1)]
        for got, expected in zip(w, want, strict=True):
            assert abs(mpmath.mpf(str(got)) / expected - 1) < mpmath.mpf(10) ** -55


def test_the_last_frequency_of_tensor2tensor_is_one_over_the_base() -> None:
    assert float(geometric(10000, 512, shift=1)[-1]) == 1e-4
    assert geometric(10000, 512, shift=1) is geometric(10000, 512, shift=1)
    assert len(geometric(10000, 512, count=3)) == 3


def test_a_factor_of_frequencies_is_a_factor_of_positions() -> None:
    third = scaled(geometric(1e4, 8), Decimal(1) / Decimal(4))
    np.testing.assert_array_equal(
        rotations([4 * 10**9], third, relative=True), rotations([10**9], geometric(1e4, 8), relative=True)
    )


@pytest.mark.parametrize(
    ("base", "dim", "shift", "message"),
    [
        (0, 8, 0, "base 0"),
        (-5, 8, 0, "base -5"),
        (float("nan"), 8, 0, "base nan"),
        (10, 0, 0, "dim 0"),
        (10, 4, 2, "shift of 2"),
    ],
)
def test_impossible_frequencies_are_refused(base: float, dim: int, shift: float, message: str) -> None:
    with pytest.raises(PeError, match=message):
        geometric(base, dim, shift=shift)


def test_offsets_fit_the_cache_whatever_the_width() -> None:
    for count in (1, 3, 64, 5000):
        plan = kernels._Plan(geometric(1e4, 2 * count))
        assert plan.rows & (plan.rows - 1) == 0
        assert kernels.FEWEST_ROWS <= plan.rows <= kernels.MOST_ROWS
