"""Causes that would not be true: rows that are the same, parts of the rows, and angles that do not show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from pe_cli import compare
from pe_cli.diff.explain import Explanation, Side, explain
from pe_cli.diff.operands import StoredTable
from pe_cli.encodings.sinusoidal import sinusoidal
from pe_cli.render.difference import sentence


def explained(a: NDArray[Any], b: NDArray[Any]) -> Explanation:
    return explain(Side(StoredTable.of(a), lambda: a), Side(StoredTable.of(b), lambda: b))


def halves(positions: np.ndarray) -> np.ndarray:
    angles = np.outer(positions, 1e4 ** (-np.arange(32) / 32))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def told(a: NDArray[Any], b: NDArray[Any]) -> tuple[bool, list[tuple[str, dict[str, Any]]]]:
    found = explained(a, b)
    return found.explained, [(cause.cause, cause.facts) for cause in found.causes]


def heads(slopes: NDArray[np.float64]) -> NDArray[np.float32]:
    apart = np.abs(np.arange(64)[None] - np.arange(64)[:, None])
    return (-slopes[:, None, None] * apart).astype(np.float32)


def cut(numbers: NDArray[np.float32]) -> NDArray[np.float32]:
    """The bits that bfloat16 has no room for are zeros."""
    return (numbers.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def later(first: int, other: NDArray[np.float32]) -> NDArray[np.float32]:
    made = LONG.copy()
    made[first:] = other[first:]
    return made


LONG = halves(np.arange(4096.0))
LEARNED = np.random.default_rng(3).standard_normal((512, 64)).astype(np.float32)
OTHER = np.random.default_rng(4).standard_normal((512, 64)).astype(np.float32)
SLOPES = 2.0 ** (-np.arange(1, 17) / 2)
BEGUN_AGAIN = np.r_[0:55, 0:95]
TRUE_CAUSES: dict[str, tuple[NDArray[Any], NDArray[Any], dict[str, dict[str, Any]]]] = {
    "heads in another order": (heads(SLOPES), heads(SLOPES[::-1]), {"permutation": {"reversed": True}}),
    "the later heads": (heads(SLOPES), heads(SLOPES[8:]), {"offset": {"rows": 8}}),
    "begun again, in half the length": (
        LEARNED[:300],
        LEARNED[BEGUN_AGAIN],
        {"rows": {"first": 150, "count": 150}, "positions": {"rule": "restart", "restarts": [55]}},
    ),
    "slower from row 1100 on": (LONG, later(1100, halves(np.arange(4096) / 4)), {"rows": {"first": 1100}}),
    "a jump of positions": (
        LONG,
        later(2000, halves(np.arange(500.0, 4596))),
        {"positions": {"rule": "other", "first": 2000}},
    ),
    "a row left out": (LONG, np.delete(LONG, 1000, 0), {"rows": {"first": 1000, "last": 1000, "count": 1}}),
    "a row put in": (np.delete(LONG, 1000, 0), LONG, {"rows": {"first": 1000, "last": 1000, "count": 1}}),
    "every other row": (LONG, LONG[::2], {"rows": {"every": 2}}),
    "every third row": (LEARNED, LEARNED[::3], {"rows": {"every": 3}}),
    "backwards": (LONG, LONG[::-1], {"permutation": {"reversed": True}}),
    "bits cut off": (LONG[:512], cut(LONG[:512]), {"dtype-rounding": {"of": "numbers cut off"}}),
}


@pytest.mark.parametrize("name", TRUE_CAUSES)
def test_the_change_is_told_that_holds_of_all_rows(name: str) -> None:
    a, b, expected = TRUE_CAUSES[name]
    complete, found = told(a, np.ascontiguousarray(b))
    assert complete
    assert [cause for cause, _ in found] == list(expected)
    for cause, facts in found:
        assert expected[cause].items() <= facts.items()


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (LEARNED, np.concatenate([OTHER[:312], LEARNED[:200]])),  # fewer than half of the rows are elsewhere
        (np.outer([1, 2, 3, 5.0], np.arange(64.0)), np.outer([7, 1, 4, 2.0], np.arange(64.0))),
        (LONG[:200], np.pad(LONG[:200], ((0, 0), (0, 1)))),  # a width that is no other number of pairs
        (LONG[:200], halves(np.arange(200) * 2 * np.pi)),  # a pair that turns by a whole circle a row
    ],
)
def test_what_is_so_for_fewer_than_half_of_the_rows_is_no_cause(a: NDArray[Any], b: NDArray[Any]) -> None:
    for pair in ((a, b), (b, a)):
        assert not explained(*pair).explained


def test_zeros_among_sines_do_not_begin_again() -> None:
    sines = [
        np.sin(np.outer(np.arange(512), b ** (-np.arange(32) / 32))).astype(np.float32) for b in (1e4, 2e4)
    ]
    sines[1][460:] = 0
    _, found = told(*sines)
    assert [cause for cause, _ in found] == ["base", "padding-row"]
    assert found[1][1] == {"first": 460, "last": 511, "count": 52}


@pytest.mark.parametrize(("rows", "restart", "pairs", "base"), [(20, 7, 32, 5e5), (512, 189, 16, 2e4)])
def test_positions_that_begin_again_in_float32(rows: int, restart: int, pairs: int, base: float) -> None:
    w = base ** (-np.arange(pairs) / pairs)
    places = np.r_[0:restart, 0 : rows - restart].astype(np.float32)
    exact, single = np.outer(np.arange(rows), w), np.outer(places, w.astype(np.float32))
    _, found = told(*(np.concatenate([np.cos(x), np.sin(x)], 1).astype(np.float32) for x in (exact, single)))
    assert [cause for cause, _ in found] == ["positions", "float32-angles"]
    assert found[0][1]["restarts"] == [restart]


def test_a_factor_is_told_once() -> None:
    found = explained(halves(np.arange(300.0)), 8 * halves(np.arange(300) / 8))
    assert [cause.cause for cause in found.causes] == ["scaling", "amplitude"]
    assert "attention_factor" not in found.causes[0].b


@pytest.mark.parametrize("seed", range(4))
def test_positions_of_any_kind_begin_nowhere(seed: int) -> None:
    """The position that counting back from one run of rows gives the first row is none that it has."""
    places = np.sort(np.random.default_rng(seed).choice(2048, 512, replace=False))
    _, found = told(LONG[:512], LONG[places])
    assert "offset" not in [cause for cause, _ in found]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda table: table[::-1], "the rows are in the reverse order"),
        (lambda table: np.delete(table, 100, 0), "a has row 100 more, and all others agree: leave it out"),
        (lambda table: np.delete(table, range(100, 120), 0), "a has 20 rows more between rows 100 and 119"),
        (lambda table: table[::2], "b holds every 2nd row of a"),
    ],
)
def test_rows_that_moved_or_went_are_said_in_words(changed: Any, said: str) -> None:
    table = halves(np.arange(256.0))
    assert said in sentence(explained(table, changed(table)).causes[0])


def parts(positions: NDArray[Any], dim: int, dtype: type = np.float64) -> dict[str, NDArray[np.float32]]:
    """Cosines and sines in two tensors, in halves."""
    angles = np.outer(positions.astype(dtype), (1e4 ** (-np.arange(0, dim, 2) / dim)).astype(dtype))
    angles = np.concatenate([angles, angles], axis=1).astype(np.float64)
    return {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}


def stopped(length: int, last: int, zeros: int) -> dict[str, NDArray[np.float32]]:
    tables = parts(np.minimum(np.arange(length), last), 64)
    for table in tables.values():
        table[zeros:] = 0
    return tables


SIGNED = {
    name: table * np.float32(1.5 if name == "cos" else -1.5)
    for name, table in parts(np.arange(256), 64).items()
}
HALVES: dict[str, tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], list[list[str]]]] = {
    "a few narrow rows from position 2, in float32": (
        parts(np.arange(60), 8),
        parts(np.arange(2, 62), 8, np.float32),
        [["offset", "float32-angles"]] * 2,
    ),
    "a clamp before rows of zeros": (
        parts(np.arange(512), 64),
        stopped(512, 308, 460),
        [["positions", "padding-row"]] * 2,
    ),
    "what concerns the sines alone": (
        parts(np.arange(256), 64),
        SIGNED,
        [["amplitude"], ["sign", "amplitude"]],
    ),
}


@pytest.mark.parametrize("kind", HALVES)
def test_cosines_and_sines_of_a_file_have_the_same_causes(kind: str, tmp_path: Path) -> None:
    a, b, wanted = HALVES[kind]
    for name, tables in (("a", a), ("b", b)):
        save_file(tables, tmp_path / f"{name}.safetensors")
    found = compare(str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors"))
    assert found.explained
    assert [[cause["cause"] for cause in pair["causes"]] for pair in found.to_dict()["tensors"]] == wanted


def test_a_grid_that_is_counted_from_one() -> None:
    counted, plain = (
        np.asarray(sinusoidal(np.arange(600), 128, grid=(20, 30), style=style))
        for style in ("detr", "tatp22")
    )
    (cause,) = explained(counted, plain).causes
    assert (cause.cause, cause.a, cause.b) == ("parameters", {"start": 1}, {"start": 0})


@pytest.mark.parametrize(("share", "known"), [(0.3, True), (0.7, False)])
def test_most_of_the_rows_here_and_there_are_no_exception(share: float, known: bool) -> None:
    changed = np.where((np.random.default_rng(5).random(512) < share)[:, None], OTHER, LEARNED)
    assert explained(LEARNED, changed).explained == known
