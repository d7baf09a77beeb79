"""Where the cosines and sines sit in a table's columns: one axis of positions, or groups of pairs for the axes of a grid."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.inspect.result import Identified, Precision, Solved, tidy
from pe_cli.inspect.rotation import constant_amplitude, rotation
from pe_cli.inspect.sinusoids import solve

ABSENT = -1
Columns = NDArray[np.intp]


@dataclass(frozen=True)
class Arrangement:
    """`cos` and `sin` give for each pair its column, or ABSENT where an odd width has dropped it."""

    name: str
    cos: Columns
    sin: Columns

    @property
    def pairs(self) -> int:
        return len(self.cos)


def _interleaved(first: Columns, second: Columns) -> Columns:
    return np.concatenate([second, [ABSENT]]) if len(second) < len(first) else second


def _alternating(width: int) -> tuple[Columns, Columns]:
    first = np.arange(0, width, 2)
    return first, _interleaved(first, np.arange(1, width, 2))


def _blocks(width: int) -> tuple[Columns, Columns]:
    long = -(-width // 2)
    first = np.arange(long)
    return first, _interleaved(first, np.arange(long, width))


def _padded_blocks(width: int) -> tuple[Columns, Columns]:
    """Odd width, last column zero."""
    return np.arange(width // 2), np.arange(width // 2, width // 2 * 2)


SplitRule = Callable[[int], tuple[Columns, Columns]]
RULES: dict[str, tuple[SplitRule, bool]] = {
    "sin,cos alternating": (_alternating, True),
    "cos,sin alternating": (_alternating, False),
    "sin|cos": (_blocks, True),
    "cos|sin": (_blocks, False),
    "sin|cos|0": (_padded_blocks, True),
    "cos|sin|0": (_padded_blocks, False),
}


def arrangements(width: int) -> Iterator[Arrangement]:
    """Every way in which `width` columns hold pairs of cosine and sine."""
    for name, (rule, sin_first) in RULES.items():
        if name.endswith("0") and (width % 2 == 0 or width < 3):
            continue
        first, second = rule(width)
        yield Arrangement(name, second, first) if sin_first else Arrangement(name, first, second)


def pick(table: NDArray[Any], columns: Columns) -> NDArray[np.float64]:
    """The chosen columns [n, m] in float64, NaN where there is none."""
    taken = table[:, np.maximum(columns, 0)].astype(np.float64)
    taken[:, columns == ABSENT] = np.nan
    return taken


def repeated(table: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """How a table of cosines (or sines) repeats its values, and each value once.

    `half` [f, f], `adjacent` [f0, f0, f1, f1, ...], `split` without repetition.
    """
    width = table.shape[1]
    if width % 2 == 0 and width >= 4:
        half = width // 2
        if np.array_equal(table[:, :half], table[:, half:]):
            return "half", table[:, :half]
        if np.array_equal(table[:, 0::2], table[:, 1::2]):
            return "adjacent", table[:, 0::2]
    if width == 2 and np.array_equal(table[:, 0], table[:, 1]):
        return "half", table[:, :1]
    return "split", table


Array = NDArray[np.float64]


LEAP = 0.02  # the fast pairs of an axis move by more from one place to the next


@dataclass
class AxisGroup:
    """Pairs `first` to `last` of the table, which turn once every `run` rows, along an axis of `size` places."""

    first: int
    last: int
    run: int
    size: int
    solved: Solved


def _blocked(name: str, widths: tuple[int, ...]) -> Arrangement:
    """sin|cos inside each block of columns."""
    cos, sin, start = [], [], 0
    for width in widths:
        half = width // 2
        sin.append(np.arange(start, start + half))
        cos.append(np.arange(start + half, start + 2 * half))
        start += width
    return Arrangement(name, np.concatenate(cos), np.concatenate(sin))


def _grid_arrangements(width: int) -> Iterator[Arrangement]:
    yield from arrangements(width)
    if width % 4 == 0:
        yield _blocked("sin|cos in halves", (width // 2, width // 2))
    if width % 16 == 0:
        yield _blocked("sin|cos in 1/4, 3/8, 3/8", (width // 4, 3 * width // 8, 3 * width // 8))
    if width % 6 == 0:
        yield _blocked("sin|cos in thirds", (width // 3,) * 3)


def identify_axes(
    table: NDArray[Any], precision: Precision, prefix_rows: int, layout: str | None = None
) -> Identified | None:
    """A table [n, d] whose pairs turn with the rows and columns (and frames) of a grid.

    With `layout`, the table is cosines beside sines of a rotary table.
    """
    if len(table) < 4:
        return None
    values = table.astype(np.float64)
    for arrangement in _grid_arrangements(table.shape[1]):
        if layout is not None and arrangement.name != "cos|sin":
            continue
        cos, sin = pick(values, arrangement.cos), pick(values, arrangement.sin)
        if constant_amplitude(cos, sin, precision) is None:
            continue
        if np.isnan(cos).any() or np.isnan(sin).any():
            cos, sin = cos[:, :-1], sin[:, :-1]
        groups = _groups(cos, sin, precision)
        if groups is not None:
            named = _name(arrangement.name, groups, table.shape[1], precision, prefix_rows, layout)
            if named is not None:
                return named
    return None


def _groups(cos: Array, sin: Array, precision: Precision) -> list[AxisGroup] | None:
    """Neighbouring pairs with one axis each, all of them solved; None where one follows no axis."""
    n = len(cos)
    pairs = np.stack([cos, sin])
    slack = 2 * precision.half_ulp(pairs)
    moved = (np.abs(pairs[:, 1:] - pairs[:, :1]) > slack[:, 1:] + slack[:, :1]).any(axis=0)
    runs = np.where(moved.any(axis=0), moved.argmax(axis=0) + 1, n)
    leap = np.abs(pairs[:, np.minimum(runs, n - 1), np.arange(len(runs))] - pairs[:, 0]).max(axis=0)
    for i in np.flatnonzero((runs == n) | (leap < LEAP)):  # too slow to tell: as the pair before it
        runs[i] = runs[i - 1] if i else runs[i]
    lengths = sorted({int(r) for r in runs})
    if lengths[-1] == n or len(lengths) < 2 or len(lengths) > 3 or lengths[0] != 1:
        return None
    if any(long % short for short, long in itertools.pairwise(lengths)) or n % lengths[-1]:
        return None
    sizes = {run: (after // run) for run, after in zip(lengths, [*lengths[1:], n], strict=True)}
    edges = [0, *(np.flatnonzero(np.diff(runs)) + 1), len(runs)]
    groups = []
    for first, last in itertools.pairwise(edges):
        run = int(runs[first])
        size = sizes[run]
        once = pairs[:, : run * size : run, first:last]
        whole = np.tile(np.repeat(once, run, axis=1), (1, n // (run * size), 1))
        if (np.abs(whole - pairs[:, :, first:last]) > 2 * slack[:, :, first:last]).any():
            return None
        found = rotation(once[0], once[1], precision)
        if found is None:
            return None
        width = 2 * int(last - first)
        candidates = list(solve(once[0], once[1], found, precision, width, sinusoid=True, rope=False))
        # no style of a grid shifts its frequencies
        solved = next((one for one in candidates if not one.shift), candidates[0] if candidates else None)
        if solved is None:
            return None
        groups.append(AxisGroup(int(first), int(last), run, size, solved))
    return groups


def _name(
    arrangement: str,
    groups: list[AxisGroup],
    width: int,
    precision: Precision,
    prefix_rows: int,
    layout: str | None,
) -> Identified | None:
    outer_first = groups[0].run > groups[-1].run
    sizes = [group.size for group in sorted(groups, key=lambda g: -g.run)]
    if len(groups) == 3 and not outer_first:
        return None
    solved = groups[0].solved
    facts: dict[str, Any] = {"dim": width, "base": solved.law.base, "grid": "x".join(map(str, sizes))}
    bases = [group.solved.law for group in groups]
    sharpest = min(bases, key=lambda law: law.base_error)
    if all(abs(law.base - sharpest.base) <= 2 * (law.base_error + sharpest.base_error) for law in bases):
        facts["base"] = sharpest.base
    else:
        facts["base"] = [law.base for law in bases]
    ambiguous: list[str] = []
    rope = arrangement in ("cos,sin alternating", "cos|sin") or layout is not None
    if rope:
        widths = [2 * (group.last - group.first) for group in groups]
        named = {"cos,sin alternating": "interleaved", "cos|sin": "cos-sin"}[arrangement]
        facts |= {"layout": layout or named, "axes": widths, "scaling": "none"}
        if not outer_first:
            facts["axis_order"] = "column first"
    else:
        style = _style(arrangement, groups, outer_first)
        if style is None:
            return None
        facts["style"] = style
        if style in ("canonical", "moco"):
            height, breadth = sizes
            ambiguous.append(
                "moco: on a square grid the two are equal"
                if height == breadth
                else f"moco with a grid of {breadth}x{height}"
            )
        starts = {tidy(group.solved.start) for group in groups}
        facts["start"] = starts.pop() if len(starts) == 1 else [tidy(group.solved.start) for group in groups]
        strides = [tidy(group.solved.stride) for group in groups]
        if any(stride != 1 for stride in strides):
            facts["stride"] = strides
        if style == "detr":
            facts["normalize"] = not float(solved.stride).is_integer()
    if solved.shift:
        facts["shift"] = solved.shift
    if solved.amplitude != 1:
        facts["amplitude"] = tidy(solved.amplitude)
    if prefix_rows:
        facts["prefix_rows"] = prefix_rows
    facts["computed"] = "float32" if any(group.solved.match.float32_angles for group in groups) else "exact"
    facts["max_abs"] = tidy(max(group.solved.match.max_abs for group in groups))
    residual = max(group.solved.match.ulps for group in groups)
    return Identified("rope" if rope else "sinusoidal", facts, residual, precision.name, ambiguous)


def _style(arrangement: str, groups: list[AxisGroup], outer_first: bool) -> str | None:
    if len(groups) == 3:
        return {"sin|cos in 1/4, 3/8, 3/8": "cogvideox", "sin,cos alternating": "tatp22"}.get(arrangement)
    if len(groups) != 2:
        return None
    if arrangement == "sin|cos in halves":
        return "canonical" if outer_first else "mae"
    if arrangement == "sin|cos":
        return "timm"
    if arrangement == "sin,cos alternating":
        first = groups[0].solved
        return "tatp22" if first.start == 0 and first.stride == 1 else "detr"
    return None
