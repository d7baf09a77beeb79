"""Options derived from a signature, and the words that spell their values again."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import pytest

from pe_cli.commands import options
from pe_cli.errors import PeError
from pe_cli.signature import Array, Choice, Floats, Grid, Ints, Positions

STYLES = ("paper", "t2t")


def example(
    positions: Positions,
    dim: int,
    *,
    base: float = 10000.0,
    style: Annotated[str, Choice(STYLES, {"whisper": "t2t"})] = "paper",
    layout: Literal["half", "split"] = "half",
    grid: Grid | None = None,
    sections: Ints | None = None,
    weights: Floats = (0.5, 1.0),
    table: Array | None = None,
    bidirectional: bool = True,
    truncate: bool = True,
    k: int = 1,
    q: float = 0.25,
    length: int | None = None,
) -> np.ndarray:
    """Make an example.

    It is (n, dim).

    Parameters
    ----------
    dim : width of a row,
        an even number
    k, q : small numbers

    Source: nobody.
    """
    raise NotImplementedError


PARAMETERS = options.of_function(example)


def no_file(source: str) -> np.ndarray:
    raise AssertionError(source)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dim", ["--dim"]),
        ("bidirectional", ["--bidirectional/--causal"]),
        ("truncate", ["--truncate/--no-truncate"]),
        ("k", ["-k", "--k"]),
        ("q", ["--q"]),
        ("length", ["--len"]),
    ],
)
def test_the_names_of_options(name: str, words: list[str]) -> None:
    assert PARAMETERS[name].flags == tuple(words)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("style", "whisper", "t2t"),
        ("style", "paper", "paper"),
        ("layout", "split", "split"),
        ("grid", "7x9", (7, 9)),
        ("sections", "16,24,24", (16, 24, 24)),
        ("weights", "1,2.5", (1.0, 2.5)),
        ("sections", None, None),
    ],
)
def test_values_of_options(name: str, text: str | None, value: object) -> None:
    assert options.taken(PARAMETERS[name], text, no_file) == value


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("style", "whispr", "no style 'whispr'; did you mean 'whisper'"),
        ("layout", "zzz", "no layout 'zzz'; known: half, split"),
        ("grid", "7by9", "grid 7by9"),
        ("sections", "1;2", "--sections 1;2"),
    ],
)
def test_what_is_wrong_is_said(name: str, text: str, sentence: str) -> None:
    with pytest.raises(PeError, match=sentence):
        options.taken(PARAMETERS[name], text, no_file)


def test_arrays_are_loaded() -> None:
    assert options.taken(PARAMETERS["table"], "f.npy", lambda source: np.array([len(source)])) == [5]


def test_values_are_spelled_so_that_they_can_be_read_again() -> None:
    assert PARAMETERS["truncate"].words(False) == ["--no-truncate"]
    assert PARAMETERS["sections"].words((1, 2)) == ["--sections", "1,2"]
    assert PARAMETERS["base"].words(-1.0) == ["--base=-1.0"]


def test_help_comes_from_the_docstring() -> None:
    assert PARAMETERS["dim"].help == "width of a row, an even number"
    assert PARAMETERS["q"].help == "small numbers"
    text = options.documentation(example).text
    assert "It is (n, dim)." in text
    assert "Source: nobody." in text
    assert "small numbers" not in text
