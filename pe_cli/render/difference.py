"""How `diff` shows what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import counted
from pe_cli.render.console import can_print, console, spell

if TYPE_CHECKING:
    from rich.console import Console

    from pe_cli.diff.compare import Difference, Report
    from pe_cli.diff.metrics import Metrics

LEVELS = "▁▂▃▄▅▆▇█"
ASCII_LEVELS = "._-=+*#@"
MANY = 8  # pairs up to which those that are the same are listed too
NARROWEST, WIDEST = 8, 64  # blocks in a sparkline


def show(report: Report) -> None:
    """On stdout: the verdict, the numbers, the shape of the error, the causes."""
    out = console()
    out.print(f"a  {report.labels[0]}", style="dim")
    out.print(f"b  {report.labels[1]}", style="dim")
    if report.equal:
        exact = all(pair.metrics is not None and pair.metrics.equal_bytes for pair in report.pairs)
        out.print("same, byte for byte" if exact else f"same: {report.tolerance.rule}", style="bold")
    else:
        out.print(f"differ: {report.tolerance.rule}", style="bold")
    counts_same = len(report.pairs) > MANY
    for pair in report.pairs:
        if not (counts_same and pair.equal):
            _show_pair(out, pair, named=len(report.pairs) > 1)
    if counts_same:
        same = sum(pair.equal for pair in report.pairs)
        out.print(f"{counted(same, 'tensor is', 'tensors are')} the same")
    for side, names in (("a", report.only_a), ("b", report.only_b)):
        names = [name for name in names if name]
        if names:
            out.print(
                f"only in {side}: {', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}"
            )


def _show_pair(out: Console, pair: Difference, *, named: bool) -> None:
    if pair.a is not None and pair.b is not None and (named or not pair.same_shape):
        shapes = f"{_shape(pair.a.shape)} {pair.a.dtype}"
        if (pair.a.shape, pair.a.dtype) != (pair.b.shape, pair.b.dtype):
            shapes += f" against {_shape(pair.b.shape)} {pair.b.dtype}"
        out.print(f"{pair.a.name + '  ' if pair.a.name else ''}{shapes}{'  same' if pair.equal else ''}")
    if pair.metrics is not None and pair.metrics.differing:
        _show_numbers(out, pair.metrics)
    explanation = pair.explanation
    if not pair.equal:
        for cause in explanation.causes:
            left = "" if cause.residual_after is None else f"  (then left: {cause.residual_after:.3g})"
            facts = ", ".join(
                f"{name} {spell(value)}" for name, value in cause.facts.items() if value is not None
            )
            out.print(f"why  {cause.cause}{': ' if facts else ''}{facts}{left}", style="bold")
        if not explanation.causes and (pair.sample is not None or pair.a is None):
            out.print("why  no change that is known makes them agree")
    if explanation.parting:
        parting = explanation.parting
        out.print(
            f"angles part by 0.1 rad from position {spell(parting['position'])} on (pair {parting['pair']})"
        )
    for note in explanation.notes:
        out.print(note, style="dim")


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "scalar"


def _show_numbers(out: Console, m: Metrics) -> None:
    total = m.rows * m.columns
    lines = [
        ("outside", f"{m.outside} of {total} ({100 * m.outside / max(total, 1):.3g} %)"),
        ("largest |a-b|", f"{m.max_abs:.6g}{_at(m.max_abs_at)}, mean {m.mean_abs:.3g}"),
        ("largest |a-b|/|b|", f"{m.max_rel:.6g}{_at(m.max_rel_at)}"),
        ("largest in ulp", f"{m.max_ulp} of {m.dtype}{_at(m.max_ulp_at)}"),
    ]
    if m.max_cosine_at is not None:
        lines.append(("largest 1-cos", f"{m.max_cosine_distance:.3g} in row {m.max_cosine_at}"))
    if m.nan_a or m.nan_b:
        lines.append(("NaN", f"{m.nan_a} in a, {m.nan_b} in b, {m.nan_unmatched} without the other"))
    if not m.nan_unmatched:
        lines.append(("would pass with", f"--atol {m.needed_atol:.9g}"))
    for name, text in lines:
        out.print(f"{name:18} {text}")
    for name, values in (("error by position", m.by_position), ("error by column", m.by_column)):
        if len(values) > 1:
            scale = f"0 to {float(np.max(values)):.3g}"
            room = max(NARROWEST, out.width - 21 - len(scale))
            out.print(f"{name:18} {sparkline(values, min(room, WIDEST))}  {scale}")


def _at(place: tuple[int, int] | None) -> str:
    return "" if place is None else f" at row {place[0]}, column {place[1]}"


def sparkline(values: NDArray[np.float64], width: int) -> str:
    """A line of blocks, each as high as the largest of its values."""
    if len(values) > width:
        values = np.array([part.max() for part in np.array_split(values, width)])
    levels = LEVELS if can_print(LEVELS) else ASCII_LEVELS
    top = float(np.max(values))
    if not top > 0 or not np.isfinite(top):
        return levels[0] * len(values)
    height = np.ceil(np.nan_to_num(values / top) * (len(levels) - 1)).astype(int)
    return "".join(levels[min(h, len(levels) - 1)] for h in height)
