"""The report of `pe extend` on stderr: plain lines, so that a pipeline does not wait for a table to be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from pe_cli.errors import counted, option_name, spelled
from pe_cli.render.console import INDENT, tell

if TYPE_CHECKING:
    from pe_cli.extend import Extension
    from pe_cli.extend.rows import Geometry
    from pe_cli.extend.table import TableReport

COLUMN = 14  # where the numbers of a table begin
MOST_ALIKE = 3
UNTRAINED = "new rows are untrained: fine-tune, or measure, before you rely on positions beyond the old ones"


def show(done: Extension, *, where: str | None, dry_run: bool = False) -> None:
    """Print what was done; of many tables alike (one in each layer) the first few, and how many more."""
    for line in lines(done, where=where, dry_run=dry_run):
        tell(spelled(line, option_name), indent=COLUMN if line.startswith("  ") else INDENT)


def lines(done: Extension, *, where: str | None, dry_run: bool = False) -> Iterator[str]:
    """The lines that `show` prints."""
    reports, buffers = done.reports, done.buffers
    yield from () if done.stretch is None else done.stretch.lines()
    for report in reports[:MOST_ALIKE]:
        yield from _table(report)
    if len(reports) > MOST_ALIKE:
        yield f"and {counted(len(reports) - MOST_ALIKE, 'more table', 'more tables')} (--json has all)"
    for buffer in buffers[:MOST_ALIKE]:
        yield f"{buffer.old.name} -> {list(buffer.new.shape)} ({buffer.what})"
    if len(buffers) > MOST_ALIKE:
        yield f"and {counted(len(buffers) - MOST_ALIKE, 'more buffer', 'more buffers')}"
    said = dict.fromkeys([*(note for report in reports for note in report.notes), *done.notes])
    for warning in dict.fromkeys(warning for report in reports for warning in report.warnings):
        yield f"pe: warning: {warning}"
    for note in said:
        yield f"pe: note: {note}"
    if reports and all(report.in_place and not report.new and not report.dropped for report in reports):
        yield "pe: note: the size asked for is the present one: no row has changed"
    if any(report.new and report.way != "regenerate" for report in reports):
        yield f"pe: note: {UNTRAINED}"
    for change in done.files or ():
        yield from change.lines()
    if where:
        yield f"written to {where}"
    else:
        why = "--dry-run" if dry_run else "give -o FILE, or send stdout into a pipe"
        yield f"nothing was written: {why}"


def _table(report: TableReport) -> Iterator[str]:
    layout = report.layout
    old, new = report.shape
    yield f"{report.name or 'table'}  {report.dtype}  {list(old)} -> {list(new)}  {report.way}"
    usable = prod(report.sizes)
    special = layout.prefix + layout.suffix
    behind = f", {layout.suffix} behind" if layout.suffix else ""
    rows = (
        f" (rows {layout.rows} -> {usable + special}, {layout.prefix} special in front{behind})"
        if special
        else ""
    )
    if len(layout.old) > 1:
        size = f"{'x'.join(map(str, layout.old))} -> {'x'.join(map(str, report.sizes))}"
    else:
        size = f"{layout.usable} -> {usable} usable"
    place = " where they were" if report.in_place and report.kept else ""
    yield f"  positions   {size}{rows}"
    yield f"  rows        {report.kept} kept{place}, {report.dropped} dropped, {report.new} new"
    yield f"  norm        {_norm(report.before)} -> {_norm(report.after)}"
    lags = ",".join(str(lag) for lag in report.before.cosine)
    if lags:
        yield f"  cosine      {_cosine(report.before)} -> {_cosine(report.after)} (lag {lags})"
    if report.after.seam:
        cosine, row = report.after.seam
        was = f"{report.before.seam[0]:.3f} -> " if report.before.seam else ""
        yield f"  worst seam  {was}{cosine:.3f} between rows {row} and {row + 1}"
    rank = f"{report.before.rank:.1f} -> {report.after.rank:.1f}"
    twice = counted(report.duplicates, "duplicate", "duplicates")
    yield f"  rank        {rank} effective; {twice}; rounding error {report.rounding:.2g}"


def _norm(of: Geometry) -> str:
    return f"{of.norm[0]:.3f} ({of.norm[1]:.3f}..{of.norm[2]:.3f})"


def _cosine(of: Geometry) -> str:
    return " ".join(f"{value:.3f}" for value in of.cosine.values())
