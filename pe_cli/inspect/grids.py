"""Tables over a grid: pairs of cosine and sine that turn with the rows and columns (and frames), and Swin's windows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.inspect.result import Array, Identified, Precision, Solution, checked, stored_precision, tidy
from pe_cli.inspect.rotation import GLANCE, rotation
from pe_cli.inspect.sinusoids import solve
from pe_cli.inspect.tables import Arrangement, arrangements, turning_pairs

LEAP = 0.02  # the fast pairs of an axis move by more from one place to the next


@dataclass
class AxisGroup:
    """Pairs `first` to `last` of the table, which turn once every `run` rows, along an axis of `size` places."""

    first: int
    last: int
    run: int
    size: int
    solved: Solution


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
    for arrangement in _grid_arrangements(table.shape[1]):
        if layout is not None and arrangement.name != "cos|sin":
            continue
        parts = turning_pairs(table, arrangement, precision)
        if parts is None:
            continue
        cos, sin = parts
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
    few, leap, _ = _first_moves(np.stack([cos[:GLANCE], sin[:GLANCE]]), precision)
    begun = {int(run) for run, size in zip(few, leap, strict=True) if run < min(n, GLANCE) and size >= LEAP}
    if 1 not in begun or len(begun) > 3:  # what is no grid is refused by its first rows
        return None
    pairs = np.stack([cos, sin])
    runs, leap, slack = _first_moves(pairs, precision)
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


def _first_moves(pairs: Array, precision: Precision) -> tuple[NDArray[np.intp], Array, Array]:
    """After how many rows each pair of cosines and sines [2, n, m] first moves (n where it does not), how far, and twice
    the rounding of each entry."""
    n = pairs.shape[1]
    slack = 2 * precision.half_ulp(pairs)
    moved = (np.abs(pairs[:, 1:] - pairs[:, :1]) > slack[:, 1:] + slack[:, :1]).any(axis=0)
    runs = np.where(moved.any(axis=0), moved.argmax(axis=0) + 1, n)
    leap = np.abs(pairs[:, np.minimum(runs, n - 1), np.arange(len(runs))] - pairs[:, 0]).max(axis=0)
    return runs, leap, slack


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
        if not outer_first and style not in COLUMN_FIRST:
            facts["axis_order"] = "column first"
            what = f"sinusoidal, as style {style} but with the columns of the grid before its rows"
            return Identified(None, facts, precision=precision.name, maybe=[what])
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


COLUMN_FIRST = ("mae",)  # the styles whose first pairs turn along a row of the grid


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


# -- windows ------------------------------------------------------------------------------------------------------

LARGEST_SIDE = 1024


def window_index(numbers: NDArray[np.int64]) -> Identified | None:
    """Swin's index of each pair of places in a window."""
    from pe_cli.encodings.relative import swin

    side = len(numbers)
    if side < 4 or side > LARGEST_SIDE or numbers.min() < 0:
        return None
    for class_token in (False, True):
        patches = side - class_token
        for height in range(1, patches + 1):
            if patches % height:
                continue
            width = patches // height
            offsets = (2 * height - 1) * (2 * width - 1)
            first = numbers[int(class_token), int(class_token)]
            if first != (height - 1) * (2 * width - 1) + width - 1:
                continue
            if numbers.max() != offsets - 1 + 3 * class_token:
                continue
            made = swin(window=(height, width), class_token=class_token)["relative_position_index"]
            if np.array_equal(made, numbers):
                facts = {"window": f"{height}x{width}", "class_token": class_token}
                return Identified("swin", facts | {"tensor": "relative_position_index"}, 0.0)
    return None


def identify_coordinates(values: NDArray[Any]) -> Identified | None:
    """Swin v2's coordinates (2H-1, 2W-1, 2)."""
    from pe_cli.encodings.relative import swin

    table = values.astype(np.float64)
    if (
        table.ndim != 3
        or table.shape[2] != 2
        or not np.isfinite(table).all()
        or not np.any(table)
        or not (table.shape[0] % 2 and table.shape[1] % 2)
    ):
        return None
    window = (table.shape[0] + 1) // 2, (table.shape[1] + 1) // 2
    precision = stored_precision(values)
    edge = np.abs(table[-1, -1])
    pretrained = []
    for side, reach in zip(window, edge, strict=True):
        scale = 8 * (side - 1) / max(2.0 ** (3 * reach) - 1, 1e-9) + 1 if side > 1 else 1
        pretrained.append(round(scale))
    sizes = None if tuple(pretrained) == window else (pretrained[0], pretrained[1])
    try:
        made = swin(window=window, version="2", pretrained_window=sizes, dtype="float64")[
            "relative_coords_table"
        ]
    except PeError:
        return None
    facts: dict[str, Any] = {
        "window": "x".join(map(str, window)),
        "version": 2,
        "tensor": "relative_coords_table",
    }
    if sizes:
        facts["pretrained_window"] = "x".join(map(str, sizes))
    return checked(Identified("swin", facts, 0.0, precision.name), table, made, precision)
