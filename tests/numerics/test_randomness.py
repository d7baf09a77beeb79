from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.numerics.randomness import (
    natural_log,
    normal_quantile,
    normal_rows,
    truncated_normal_rows,
    uniform_rows,
)

MASK = 2**64 - 1


def philox4x64(counter: int, key: int) -> list[int]:
    """The definition: ten rounds of two products, with keys that grow by Weyl constants."""
    c = [(counter >> 64 * i) & MASK for i in range(4)]
    k = [key & MASK, key >> 64]
    for _ in range(10):
        first, second = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(second >> 64) ^ c[1] ^ k[0], second & MASK, (first >> 64) ^ c[3] ^ k[1], first & MASK]
        k = [(k[0] + 0x9E3779B97F4A7C15) & MASK, (k[1] + 0xBB67AE8584CAA73B) & MASK]
    return c


def test_philox_gives_the_published_answer_to_zeros() -> None:
    """Random123's known answers, kat_vectors, philox4x64 10."""
    assert philox4x64(0, 0) == [
        0x16554D9ECA36314C,
        0xDB20FE9D672D0FDC,
        0xD7E772CEE186176B,
        0x7E68B68AEC7BA23B,
    ]


@pytest.mark.parametrize("seed", [0, 7, 2**127 + 5])
@pytest.mark.parametrize(("row", "width"), [(0, 3), (5, 3), (10**15, 7), (2**62, 4)])
def test_rows_are_words_of_the_stream(row: int, width: int, seed: int) -> None:
    got = uniform_rows(np.array([row]), width, seed)[0]
    for column in range(width):
        block, word = divmod(row * width + column, 4)
        # numpy counts before it draws.
        bits = philox4x64(block + 1, seed)[word]
        assert got[column] == ((bits >> 12) + 0.5) * 2.0**-52


def test_uniform_numbers_stay_between_their_ends() -> None:
    u = uniform_rows(np.arange(1000), 64, 1)
    assert u.min() > 0
    assert u.max() < 1
    assert ((1 - u) + u == 1).all()


def test_normal_quantile_is_exact_to_a_few_last_bits() -> None:
    p = np.concatenate(
        [2.0 ** -np.arange(2, 54), np.linspace(0.001, 0.999, 97), 1 - 2.0 ** -np.arange(2, 53)]
    )
    with mpmath.workdps(40):
        want = np.array([float(mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(x) - 1)) for x in p.tolist()])
    np.testing.assert_allclose(normal_quantile(p), want, rtol=8e-16, atol=1e-17)


def test_normal_quantile_is_odd() -> None:
    p = uniform_rows(np.arange(50), 8, 3)
    np.testing.assert_array_equal(normal_quantile(1 - p), -normal_quantile(p))


def test_logarithm() -> None:
    values = np.concatenate([2.0 ** -np.arange(1, 60), np.linspace(0.01, 3, 500), [1.0, math.sqrt(0.5)]])
    np.testing.assert_allclose(natural_log(values), np.log(values), rtol=4.5e-16, atol=0)


def test_pieces_do_not_show() -> None:
    whole = normal_rows(np.arange(600), 100, 4)
    np.testing.assert_array_equal(normal_rows(np.arange(590, 600), 100, 4), whole[590:])
    assert np.abs(truncated_normal_rows(np.arange(600), 100, 4, 1.5)).max() < 1.5
    assert normal_rows(np.arange(0), 5, 0).shape == (0, 5)


@pytest.mark.parametrize("seed", [-1, 2**128])
def test_seeds_have_128_bits(seed: int) -> None:
    with pytest.raises(PeError, match=f"seed {seed} "):
        uniform_rows(np.arange(2), 3, seed)
