"""Statistics of tables whose numbers are known without computing them."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli import sinusoidal
from pe_cli.statistics import describe, similarity


def test_numbers_of_a_small_table() -> None:
    found = describe(np.array([[3.0, 4.0], [0.0, 0.0], [-6.0, 8.0]]))
    assert (found["min"], found["max"], found["mean"]) == (-6.0, 8.0, 1.5)
    assert found["std"] == pytest.approx(np.sqrt(125 / 6 - 1.5**2))
    assert found["row_norm"] == {"min": 0.0, "median": 5.0, "max": 10.0}
    assert (found["zeros"], found["nan"], found["infinite"]) == (2, 0, 0)


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    found = describe(np.array([[1.0, np.nan], [np.inf, 3.0]]))
    assert (found["nan"], found["infinite"], found["min"], found["max"]) == (1, 1, 1.0, 3.0)
    assert "row_norm" not in found
    assert "min" not in describe(np.array([np.nan]))


@pytest.mark.parametrize(
    ("array", "largest"),
    [
        (np.array(7), 7.0),
        (np.array([True, False]), 1.0),
        (np.array([3 + 4j]), 5.0),
        (np.ones((2, 3, 4)), 1.0),
    ],
    ids=["0-d", "bool", "complex", "three axes"],
)
def test_every_kind_of_array(array: np.ndarray, largest: float) -> None:
    assert describe(array)["max"] == largest


def test_nothing_is_said_of_an_empty_table() -> None:
    assert describe(np.zeros((0, 4))) == {}


def test_similarity_of_sinusoidal_rows_is_the_mean_cosine_of_their_distance() -> None:
    rows = np.asarray(sinusoidal(np.arange(40), 16, dtype="float64"))
    w = 10000.0 ** (-np.arange(8) / 8)
    found = similarity(rows)
    assert found == pytest.approx(
        {str(lag): np.cos(lag * w).mean() for lag in (1, 2, 4, 8, 16, 32)}, abs=1e-12
    )


def test_zero_rows_are_like_nothing() -> None:
    rows = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert similarity(rows) == {"1": 0.5, "2": 0.0}
