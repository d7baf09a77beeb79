"""The vocabulary of an encoding's signature, from which `pe gen` derives its options.

An encoding is a plain function. Its parameters are annotated with ordinary types (`int`, `float`, `bool`,
`str`, `Literal[...]`, `X | None`) or with the names below, which say where the argument comes from:

    Positions   (n,) integers or floats, or (n, k) for k axes: the rows asked for
    Queries     (q,) positions of the queries          Keys   (k,) positions of the keys
    Distances   key position minus query position: (q, k), or (n,) where a list of distances was asked for
    Array       an array read from a file (`FILE` or `FILE:TENSOR`)
    Mask        zeros and ones, written out (`0011`) or read from a file
    Grid        (H, W) or (T, H, W)
    Ints, Floats  comma-separated numbers
    GraphLike, ForestLike (in `pe_cli.structures`)   a graph or trees, read from a file

A function whose first parameter is `positions: Positions` is row-wise: every tensor it returns whose first
dimension is the number of positions is written block by block, and it must accept zero positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pe_cli.errors import no_such


class Source(Enum):
    """Where an argument of an encoding comes from on the command line."""

    POSITIONS = "positions"
    QUERIES = "queries"
    KEYS = "keys"
    DISTANCES = "distances"
    ARRAY = "array"
    MASK = "mask"
    GRID = "grid"
    NUMBERS = "numbers"
    GRAPH = "graph"
    FOREST = "forest"


Positions: TypeAlias = Annotated[NDArray[Any], Source.POSITIONS]
Queries: TypeAlias = Annotated[NDArray[np.int64], Source.QUERIES]
Keys: TypeAlias = Annotated[NDArray[np.int64], Source.KEYS]
Distances: TypeAlias = Annotated[NDArray[np.int64], Source.DISTANCES]
Array: TypeAlias = Annotated[NDArray[Any], Source.ARRAY]
Mask: TypeAlias = Annotated[NDArray[Any], Source.MASK]
Grid: TypeAlias = Annotated[tuple[int, ...], Source.GRID]
Ints: TypeAlias = Annotated[tuple[int, ...], Source.NUMBERS, int]
Floats: TypeAlias = Annotated[tuple[float, ...], Source.NUMBERS, float]

DTypeName: TypeAlias = Literal["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
Compute: TypeAlias = Literal["exact", "float32"]


def require_named(names: Any, **given: str) -> None:
    """An error for a value that is not among the names of a Literal: Python does not look at annotations."""
    for parameter, value in given.items():
        if value not in get_args(names):
            raise no_such(parameter.replace("_", " "), value, get_args(names))


@dataclass(frozen=True)
class Choice:
    """A `str` parameter with known values: `style: Annotated[str, Choice(STYLES, ALIASES)]`."""

    names: tuple[str, ...]
    aliases: Mapping[str, str] | None = field(default=None, hash=False)  # `Choice | None` is hashed


class Tensors(dict[str, NDArray[Any]]):
    """Named arrays, with what else there is to say about them.

    `facts` are recorded in the file and shown in the summary (a solver, a residual, a magnitude);
    `warnings` are sentences for the user.
    """

    def __init__(
        self,
        tensors: Mapping[str, NDArray[Any]],
        facts: Mapping[str, Any] | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        super().__init__(tensors)
        self.facts: dict[str, Any] = dict(facts or {})
        self.warnings = warnings

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """The only tensor, so that `numpy.asarray(rope(...))` works; an error where there are several."""
        if len(self) != 1:
            raise ValueError(f"there are several tensors, choose one: {', '.join(self)}")
        return np.asarray(next(iter(self.values())), dtype=dtype)


F = TypeVar("F", bound=Callable[..., Any])


def default_positions(rule: Callable[..., NDArray[Any]], *, only: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Say which positions `--len N` means where they are not 0..N-1: `rule(length, **parameters)`.

    `only` names parameters that the rule alone looks at: they say nothing beside `--positions`.
    """

    def mark(function: F) -> F:
        function.default_positions = rule  # type: ignore[attr-defined]
        function.only_by_default = only  # type: ignore[attr-defined]
        return function

    return mark
