"""What a tensor's name, its shape and the rows of a learned table show, where no formula is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.files import TensorSpec
from pe_cli.inspect.result import Array, Identified
from pe_cli.position_names import PositionName, front_of_rows, named, squares

Shape = tuple[int, ...]


@dataclass(frozen=True)
class PositionTensor:
    """A tensor that carries positions: the encoding it belongs to, its role, what the shape tells."""

    name: str
    encoding: str
    role: str
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "encoding": self.encoding, "role": self.role, **self.facts}


def describe_checkpoint(tensors: Mapping[str, TensorSpec]) -> dict[str, PositionTensor]:
    """The position tensors among `tensors`, by name and shape alone; no values are read."""
    found = {}
    for name, spec in tensors.items():
        row = named(name, spec.shape)
        if row is not None and row.encoding is not None:
            role = f"{row.role} ({row.source})" if row.source else row.role
            found[name] = PositionTensor(name, row.encoding, role, _shape_facts(row, spec.shape))
    return found


def _shape_facts(row: PositionName, shape: Shape) -> dict[str, Any]:
    if row.encoding == "rope" and len(shape) == 1:
        return {"dim": 2 * shape[0]}
    if row.encoding == "deberta" and shape[0] % 2 == 0:
        return {"position_buckets": shape[0] // 2}
    if row.encoding != "learned":
        return {}
    if row.kind == "bias":
        side = isqrt(shape[1])
        return {"heads": shape[0], **({"grid": f"{side}x{side}"} if side * side == shape[1] else {})}
    live = [size for size in shape if size != 1]
    if len(live) not in (2, 3):
        return {}
    rows, width = (live[0], live[1]) if len(live) == 2 else (live[0] * live[1], live[2])
    facts: dict[str, Any] = {"rows": rows, "dim": width}
    if len(live) == 3:
        return facts | {"grid": f"{live[0]}x{live[1]}"}
    if row.kind == "sequence" and (front := front_of_rows(rows)) is not None:
        return facts | {"offset_rows": front.rows, "usable": rows - front.rows}
    if row.kind == "grid" or (row.either and len(shape) > 2):
        special, side = next(squares(rows), (0, 0))
        if side > 3:
            return facts | ({"prefix_rows": special} if special else {}) | {"grid": f"{side}x{side}"}
    return facts


# -- rows ---------------------------------------------------------------------------------------------------------

FEWEST = 8
MOST_PREFIX = 8
LONGEST_ASPECT = 4
MOST_ROWS = 8192
MOST_COLUMNS = 512


def named_learned(array: NDArray[Any], name: str) -> Identified | None:
    """A table whose name says that it holds trained positions, and what its rows show; None where the name does not."""
    spec = TensorSpec(name, array.dtype.name, array.shape)
    role = describe_checkpoint({name: spec}).get(name)
    if role is None or role.encoding != "learned":
        return None
    live = [n for n in array.shape if n != 1]
    grid = (live[0], live[1]) if len(live) == 3 else None
    shown = structure(array.reshape(-1, array.shape[-1]), grid) or Identified(facts=dict(role.facts))
    return replace(shown, encoding="learned")


def could_be(array: NDArray[Any]) -> list[str]:
    """What a table that no formula makes could be."""
    if array.ndim < 2 or array.dtype.kind not in "fV" or min(array.reshape(-1, array.shape[-1]).shape) < 2:
        return []
    rows = array.reshape(-1, array.shape[-1])[:MOST_ROWS, :MOST_COLUMNS].astype(np.float64)
    return ["learned"] if np.isfinite(rows).all() and not _is_made(rows) else []


def structure(table: NDArray[Any], grid: tuple[int, int] | None = None) -> Identified | None:
    """What the rows of a trained table [n, d] show; `grid` where its shape already says H and W.

    The claim is only what the rows show: whether neighbours are alike, over which grid, and how many rows
    at either end are different from the rest.
    """
    rows = table[:MOST_ROWS, :MOST_COLUMNS].astype(np.float64)
    if min(rows.shape) < FEWEST or not np.isfinite(rows).all():
        return None
    facts: dict[str, Any] = {"rows": table.shape[0], "dim": table.shape[1]}
    zero = np.flatnonzero(~np.any(rows, axis=1))
    if len(zero) == len(rows):
        return Identified(facts=facts | {"init": "zeros"})
    if len(zero) and len(zero) < len(rows) // 2:
        facts["zero_rows"] = [int(r) for r in zero[:16]]
    tail = untrained_tail(rows)
    trained = rows[: len(rows) - tail]
    prefix = 0
    ambiguous: list[str] = []
    near = similarity(trained, 1)
    if grid is None:
        found = find_grid(trained)
        if found is not None:
            prefix, height, width, square = found
            grid = height, width
            facts["prefix_rows"] = prefix or None
            if not square:
                ambiguous.append("rows and columns of the grid may be the other way round")
    facts["grid"] = "x".join(map(str, grid)) if grid else None
    facts["neighbour_similarity"] = round(near, 4)
    if near < noise_level(trained) and grid is None:
        facts["order"] = "none seen: neighbouring rows are unrelated, as in a table before training"
    if tail:
        facts["untrained_tail"] = tail
    return Identified(facts=facts, ambiguous=ambiguous)


def _is_made(rows: Array) -> bool:
    """Whether no training can have left this: one row all 1, as the cosines of position 0 are, or columns twice."""
    half = rows.shape[1] // 2
    twice = np.array_equal(rows[:, :half], rows[:, half : 2 * half]) or np.array_equal(
        rows[:, 0 : 2 * half : 2], rows[:, 1 : 2 * half : 2]
    )
    return bool(twice or (rows == 1).all(axis=1).any())


def noise_level(rows: Array) -> float:
    """Mean similarity of unrelated rows that is reached by chance, with room."""
    return float(5 / np.sqrt(rows.shape[0] * rows.shape[1]) + 0.02)


def _unit_rows(rows: Array) -> Array:
    centred = rows - rows.mean(axis=0)
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / np.maximum(length, 1e-300))


def similarity(rows: Array, lag: int) -> float:
    """Mean cosine of rows `lag` apart, the mean row taken off."""
    if len(rows) <= lag:
        return 0.0
    unit = _unit_rows(rows)
    return float(np.mean(np.einsum("rd,rd->r", unit[lag:], unit[:-lag])))


def find_grid(rows: Array) -> tuple[int, int, int, bool] | None:
    """(prefix rows, height, width, square) of a table whose rows are like those one grid row further on,
    and more so than those a little less or more far away."""
    n = len(rows)
    unit = _unit_rows(rows)
    transform = np.fft.rfft(unit, 2 * n, axis=0)
    together = np.fft.irfft((np.abs(transform) ** 2).sum(axis=1))[:n]
    by_lag = together / np.arange(n, 0, -1)
    neighbours = np.einsum("rd,rd->r", unit[1:], unit[:-1])
    best: tuple[float, tuple[int, int, int, bool]] | None = None
    for prefix in range(min(MOST_PREFIX, n - 9) + 1):
        patches = n - prefix
        for width in range(3, patches // 3 + 1):
            if patches % width or not 1 / LONGEST_ASPECT <= patches / width**2 <= LONGEST_ASPECT:
                continue
            around = max(by_lag[width - 1], by_lag[width + 1])
            if width + 2 < n and width > 3:
                around = max(around, 0.5 * (by_lag[width - 2] + by_lag[width + 2]))
            peak = float(by_lag[width] - around)
            if by_lag[width] < 0.05 or peak < 0.02 + noise_level(rows) / 2:
                continue
            height = patches // width
            if not _breaks_at_edges(neighbours[prefix:], width):
                continue
            score = float(by_lag[width]) * (1.0 if height == width else 0.8) - 0.01 * prefix
            if best is None or score > best[0]:
                best = score, (prefix, height, width, height == width)
    return None if best is None else best[1]


EDGE_DROP = 0.3  # of the likeness within a grid row
EDGE_ERRORS = 4.0


def _breaks_at_edges(neighbours: Array, width: int) -> bool:
    """Whether the last place of a grid row is less like the first of the next than neighbours within a row
    are: in a line of positions with a period of `width` it is not."""
    edge = np.arange(len(neighbours)) % width == width - 1
    inner, across = neighbours[~edge], neighbours[edge]
    if len(across) < 2:
        return False
    drop = float(inner.mean() - across.mean())
    error = float(np.hypot(inner.std() / np.sqrt(len(inner)), inner.std() / np.sqrt(len(across))))
    return drop > EDGE_DROP * abs(float(inner.mean())) and drop > EDGE_ERRORS * error


def untrained_tail(rows: Array) -> int:
    """How many rows at the end are zero, or unrelated to their neighbours and of another size while all before are not."""
    n = len(rows)
    size = np.sqrt(np.mean(rows**2, axis=1))
    dead = np.flatnonzero(size > 1e-9 * size.max())
    trailing = n - 1 - int(dead[-1])
    if trailing:
        return trailing
    if n < 16:
        return 0
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    alike = np.einsum("rd,rd->r", unit[1:], unit[:-1])
    chance = 3 / np.sqrt(rows.shape[1])
    head = float(np.median(alike[: n // 2]))
    if head < 1.5 * chance:
        return 0
    related = np.flatnonzero(alike > max(chance, 0.25 * head))
    tail = n - 2 - int(related[-1])
    return tail if tail >= 4 else 0
