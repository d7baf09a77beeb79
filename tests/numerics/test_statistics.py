"""Statistics of tables whose numbers are known without computing them."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli import sinusoidal
from pe_cli.numerics import statistics
from pe_cli.numerics.statistics import describe, similarity


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


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "BLOCK_ITEMS", 7 * 16)


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 300, 701])
def test_numbers_do_not_depend_on_the_blocks(rows: int, small_blocks: None) -> None:
    table = np.random.default_rng(0).normal(3, 2, size=(rows, 16)).astype(np.float32)
    table[rows // 2] = 0
    found = describe(table)
    wide = table.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1)
    assert (found["min"], found["max"], found["zeros"]) == (wide.min(), wide.max(), 16)
    assert found["mean"] == pytest.approx(wide.mean(), rel=1e-12)
    assert found["std"] == pytest.approx(wide.std(), rel=1e-12)
    assert found["row_norm"] == pytest.approx({"min": 0, "median": np.median(norms), "max": norms.max()})


@pytest.mark.parametrize("rows", [2, 9, 300, 701])
def test_similarity_is_the_mean_cosine_of_rows_that_far_apart(rows: int, small_blocks: None) -> None:
    table = np.random.default_rng(1).normal(1, 1, size=(rows, 16))
    table[::5] = 0
    found = similarity(table)
    for lag in (lag for lag in statistics.LAGS if lag < rows):
        pairs = [
            a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            for a, b in zip(table[lag:], table[:-lag], strict=True)
            if a.any() and b.any()
        ]
        assert found.get(str(lag)) == (pytest.approx(np.mean(pairs)) if pairs else None)


@pytest.mark.parametrize("scale", [2.0**1020, 2.0**-1060, 2.0**500, 1.0])
def test_numbers_whose_squares_are_out_of_reach(scale: float, small_blocks: None) -> None:
    plain = np.random.default_rng(2).integers(-7, 8, size=(40, 16)).astype(float)
    plain[20:] += 3
    found, wanted = describe(plain * scale), describe(plain)
    for name in ("min", "max", "mean", "std"):
        assert found[name] == pytest.approx(wanted[name] * scale, rel=1e-3)  # type: ignore[literal-required]
    assert found["row_norm"]["median"] == pytest.approx(wanted["row_norm"]["median"] * scale, rel=1e-3)
    assert found["similarity"] == pytest.approx(wanted["similarity"], rel=1e-12)
