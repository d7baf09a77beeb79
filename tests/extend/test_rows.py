"""Rows that stand apart, and the numbers they are told by."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.extend.rows import MOST_AT_AN_END, median, norms, outliers

RNG = np.random.default_rng(4)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 101])
def test_median_is_numpys(count: int) -> None:
    values = RNG.standard_normal(count)
    assert median(values) == np.median(values)


def test_norms_in_blocks_are_those_of_linalg() -> None:
    rows = RNG.standard_normal((300, 257)).astype(np.float32)
    assert np.allclose(norms(rows), np.linalg.norm(rows.astype(np.float64), axis=1), rtol=1e-14)
    assert np.allclose(norms(rows[:2] + 1j), np.linalg.norm(rows[:2] + 1j, axis=1), rtol=1e-6)


def test_only_short_runs_at_an_end_are_ends() -> None:
    size = np.ones(64) + 0.01 * RNG.standard_normal(64)
    size[[0, 1, 30, 63]] = 5
    found = outliers(size)
    assert (found.flagged, found.head, found.tail) == ((0, 1, 30, 63), 2, 1)
    size[: MOST_AT_AN_END + 1] = 5
    assert outliers(size).head == 0


def test_few_rows_have_no_outliers() -> None:
    assert outliers(np.array([1.0, 9, 1])).flagged == ()
    assert outliers(np.empty(0)).median == 0
