"""A table as pictures need it: sampled rows, its first rows in a run, and what it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pe_cli.commands.emit import Request

SAMPLE_ROWS = 1024
RUN_ROWS = 1024


@dataclass(frozen=True)
class View:
    """The tensors of a table.

    `sampled` holds rows over the whole length, `runs` the first rows without gaps; `rows` how many rows there are.
    """

    encoding: str
    sampled: Mapping[str, NDArray[Any]]
    runs: Mapping[str, NDArray[Any]]
    rows: Mapping[str, int]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    table: Any = None

    @classmethod
    def of_request(cls, request: Request) -> View:
        """What `pe gen` is about to write."""
        table = request.table
        sampled = {name: array for name, array in table.sample(SAMPLE_ROWS).items() if array.size}
        runs = {name: next(iter(table.blocks((name,)))).rows for name in sampled}
        runs = {name: rows[:RUN_ROWS] if rows.ndim else rows for name, rows in runs.items()}
        rows = {name: spec.shape[0] for name, spec in table.specs.items() if spec.shape}
        return cls(request.encoding, sampled, runs, rows, request.parameters, table.facts, table)

    @classmethod
    def of_arrays(cls, tensors: Mapping[str, NDArray[Any]], rows: Mapping[str, int]) -> View:
        """Arrays that are held whole."""
        shown = {name: array for name, array in tensors.items() if array.size and array.dtype.kind != "U"}
        sampled = {name: array[spread(len(array))] if array.ndim else array for name, array in shown.items()}
        runs = {name: array[:RUN_ROWS] if array.ndim else array for name, array in shown.items()}
        return cls("", sampled, runs, rows)

    @property
    def grid(self) -> tuple[int, ...] | None:
        """The grid whose cells the rows are, if they are."""
        grid = self.parameters.get("grid")
        return tuple(grid) if grid and int(np.prod(grid)) in self.rows.values() else None

    def row_count(self) -> int:
        """Rows of the longest tensor."""
        return max(self.rows.values(), default=0)


def joined_rows(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float64] | None:
    """The matrices of equal length side by side as real numbers, (rows, columns): cos and sin are one code."""
    matrices = [array for array in arrays.values() if array.ndim == 2 and array.dtype.kind in "fVc"]
    longest = max((len(array) for array in matrices), default=0)
    parts: list[NDArray[Any]] = []
    for array in matrices:
        if len(array) == longest:
            parts += [array.real, array.imag] if array.dtype.kind == "c" else [array]
    if not parts or longest < 3:
        return None
    joined: NDArray[np.float64] = np.concatenate([part.astype(np.float64) for part in parts], axis=1)
    return joined if np.isfinite(joined).all() else None


def spread(size: int, most: int = SAMPLE_ROWS) -> NDArray[np.int64]:
    """At most `most` of the numbers 0..size-1, evenly spaced, the first and last among them."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).round().astype(np.int64))
