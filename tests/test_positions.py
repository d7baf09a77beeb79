"""Rows by `--len`, `--positions`, `--grid` and `--shard`."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.positions import first, parse, parse_grid, parse_shard


def no_file(source: str) -> np.ndarray:
    raise AssertionError(source)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0,5,7", [0, 5, 7]),
        ("3", [3]),
        ("0:5", [0, 1, 2, 3, 4]),
        (":3", [0, 1, 2]),
        ("0:100:64", [0, 64]),
        ("3:-4:-1", [3, 2, 1, 0, -1, -2, -3]),
        ("1,0:3,9", [1, 0, 1, 2, 9]),
        ("-5:-3", [-5, -4]),
        ("0.5,2", [0.5, 2.0]),
        ("0:1:0.25", [0, 0.25, 0.5, 0.75]),
        ("1_000", [1000]),
        ("1e3", [1000.0]),
    ],
)
def test_positions_are_those_of_python_slices(text: str, want: list[float]) -> None:
    positions = parse(text, no_file)
    assert positions.block(0, len(positions)).tolist() == want
    assert len(positions) == len(want)


def test_blocks_joined_are_the_whole() -> None:
    positions = parse("7,0:10:3,2.5,-1:-4:-1", no_file)
    whole = positions.block(0, len(positions))
    for cut in range(len(positions) + 1):
        joined = np.concatenate([positions.block(0, cut), positions.block(cut, len(positions))])
        assert joined.tobytes() == whole.tobytes()


def test_a_long_range_is_never_expanded() -> None:
    positions = parse("0:9223372036854775807", no_file)
    assert positions.block(2**62, 2**62 + 2).tolist() == [2**62, 2**62 + 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "1:2:0",
        "1:",
        "1:2:3:4",
        "nan",
        "inf",
        "1,,2",
        "5:5",
        "99999999999999999999",
        "0:x",
        "0:1:2e-313",
    ],
)
def test_what_is_not_a_position_is_named(text: str) -> None:
    with pytest.raises(PeError, match="positions"):
        parse(text, no_file)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_an_array_of_several_axes_has_a_row_for_each_position_however_few(count: int) -> None:
    points = np.arange(3 * count).reshape(count, 3)
    assert parse("@xyz.npy", lambda source: points).block(0, count).tolist() == points.tolist()


@pytest.mark.parametrize("array", [np.array(["a"]), np.zeros((2, 2, 2)), np.array([1.0, np.nan])])
def test_an_array_that_holds_no_positions_is_refused(array: np.ndarray) -> None:
    with pytest.raises(PeError, match=r"@a\.npy"):
        parse("@a.npy", lambda source: array)


def test_length_must_be_positive() -> None:
    for length in (0, -3):
        with pytest.raises(PeError, match=f"len {length}"):
            first(length)


def test_grid_and_shard() -> None:
    assert parse_grid("7x9") == (7, 9)
    assert parse_grid("2x3x4") == (2, 3, 4)
    assert parse_shard("0/4") == (0, 4)
    for bad in ("4/4", "1", "-1/3", "a/b", "1/0"):
        with pytest.raises(PeError, match="shard"):
            parse_shard(bad)
    for bad in ("7x", "x", "0x3", "7*9", "-1x2"):
        with pytest.raises(PeError, match="grid"):
            parse_grid(bad)
