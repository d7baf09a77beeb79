from __future__ import annotations

import numpy as np
import pytest

from pe_cli.numerics.randomness import distinct_integers, in_turn, uniform_rows


def test_arrays_are_consecutive_pieces_of_the_stream() -> None:
    first, second = in_turn(uniform_rows, [(2, 3), (4,)], seed=5)
    stream = uniform_rows(np.arange(10), 1, 5)[:, 0]
    np.testing.assert_array_equal(first.reshape(-1), stream[:6])
    np.testing.assert_array_equal(second, stream[6:])


@pytest.mark.parametrize(("count", "below"), [(1, 1), (5, 5), (4, 9), (9, 10), (50, 60), (100, 10**12)])
def test_distinct_integers_are_sorted_and_within(count: int, below: int) -> None:
    drawn = distinct_integers(count, below, seed=3)
    assert len(set(drawn.tolist())) == len(drawn) == count
    assert drawn.tolist() == sorted(drawn.tolist())
    assert 0 <= drawn[0] <= drawn[-1] < below


def test_every_integer_is_drawn_as_often() -> None:
    counts = np.zeros(10)
    for seed in range(2000):
        counts[distinct_integers(3, 10, seed)] += 1
        counts[distinct_integers(7, 10, seed)] += 1
    # 2,000 expected, with a deviation of about 30.
    assert np.abs(counts - 2000).max() < 150
