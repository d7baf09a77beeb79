from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pe_cli.encodings.sinusoidal import DRAWS, FIXED, learned, sinusoidal
from pe_cli.errors import PeError

ROWS, DIM = 512, 96


def table(init: str, rows: Any = None, **options: Any) -> np.ndarray:
    return learned(np.arange(ROWS) if rows is None else np.asarray(rows), DIM, init=init, **options)


def distance_to(cumulative: Any, values: np.ndarray) -> float:
    """Kolmogorov's distance between the values and a distribution."""
    values = np.sort(values.ravel())
    steps = np.arange(len(values) + 1) / len(values)
    want = np.array([cumulative(v) for v in values.tolist()])
    return float(max(np.abs(want - steps[:-1]).max(), np.abs(want - steps[1:]).max()))


def normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


DISTRIBUTIONS = {
    "normal": lambda x: normal(x / 0.5),
    "truncated-normal": lambda x: (normal(x / 0.5) - normal(-2)) / (normal(2) - normal(-2)),
    "uniform": lambda x: 0.5 + x / (math.sqrt(12) * 0.5),
}


@pytest.mark.parametrize("init", DISTRIBUTIONS)
def test_values_have_the_distribution_asked_for(init: str) -> None:
    values = table(init, std=0.5)
    # 1.95 / sqrt(n) is passed by one table in a thousand.
    assert distance_to(DISTRIBUTIONS[init], values) < 1.95 / math.sqrt(values.size)
    near = np.corrcoef(values[:-1].ravel(), values[1:].ravel())[0, 1]
    assert abs(near) < 4 / math.sqrt(values.size)


def test_a_truncated_normal_ends_where_it_is_cut() -> None:
    assert 0.99 < np.abs(table("truncated-normal", std=0.5)).max() <= 1.0
    assert np.abs(table("truncated-normal", std=1.0, cut=0.25)).max() <= 0.25


def test_the_default_is_that_of_bert() -> None:
    np.testing.assert_array_equal(table("normal"), table("normal", std=0.02, seed=0))
    assert abs(table("normal").std() / 0.02 - 1) < 0.01


@pytest.mark.parametrize("init", [*DRAWS, *FIXED])
def test_a_row_depends_on_the_seed_and_its_position_alone(init: str) -> None:
    whole = table(init)
    for rows in ([7], [7, 8, 9], [300, 2, 2, 511, 0], np.arange(511, 0, -3)):
        np.testing.assert_array_equal(table(init, rows), whole[np.asarray(rows)])
    assert table(init, np.arange(0)).shape == (0, DIM)
    assert table(init, [2**62]).shape == (1, DIM)


def test_seeds_differ() -> None:
    assert (table("normal", seed=1) != table("normal", seed=2)).all()
    assert (table("normal", seed=2**62) != table("normal", seed=0)).all()


def test_values_are_those_of_every_machine_and_version() -> None:
    """Computed once; Philox is checked against its definition in test_randomness.py."""
    np.testing.assert_array_equal(learned(np.array([0, 10**12]), 3, std=1.0, seed=42), KNOWN)


KNOWN = [
    [0.916120485634522, -0.8806796243156723, 1.115401585936976],
    [1.4758555134178222, 1.6545645000262545, -0.1361136082205176],
]


def test_fixed_starts() -> None:
    assert not table("zeros").any()
    np.testing.assert_array_equal(table("sinusoidal"), sinusoidal(np.arange(ROWS), DIM, dtype="float64"))


@pytest.mark.parametrize(
    ("positions", "options", "message"),
    [
        ([0], {"init": "norml"}, "did you mean 'normal'"),
        ([0.5], {}, "whole positions"),
        ([3, -2], {}, "no position -2"),
        ([0], {"dim": 0}, "dim 0"),
        ([0], {"std": -0.1}, "std -0.1"),
        ([0], {"std": float("nan")}, "std nan"),
        ([0], {"seed": -1}, "seed -1"),
        ([0], {"init": "truncated-normal", "cut": 0.0}, "cut 0"),
        ([0], {"cut": 2.0}, "cut is for init truncated-normal, not for normal"),
        (
            [0],
            {"init": "zeros", "std": 1.0},
            "std is for init normal, truncated-normal, uniform, not for zeros",
        ),
        ([0], {"init": "sinusoidal", "seed": 3}, "not for sinusoidal"),
    ],
)
def test_wrong_use_is_said(positions: list[float], options: dict[str, Any], message: str) -> None:
    with pytest.raises(PeError, match=message):
        learned(np.array(positions), **{"dim": 4, **options})
