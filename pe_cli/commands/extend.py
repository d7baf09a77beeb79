"""`pe extend`: resample a learned position table, alone, inside a checkpoint, or in a whole model folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pe_cli.commands import options
from pe_cli.commands.options import argument, option
from pe_cli.errors import PeError, counted, option_name, spelled
from pe_cli.extend import SCALINGS
from pe_cli.process import refuse_input

if TYPE_CHECKING:
    from pe_cli.extend import Extension
    from pe_cli.extend.rows import Geometry
    from pe_cli.extend.table import TableReport

SCHEMA = "pe.extend/1"
COLUMN = 14  # where the numbers of a table begin
MOST_ALIKE = 3
UNTRAINED = "new rows are untrained: fine-tune, or measure, before you rely on positions beyond the old ones"
# The names are repeated here so that help and completions load no numbers; a test compares them with what there is.
_METHODS = (
    "linear cubic bilinear bicubic nearest repeat-last tile stretch hierarchical zeros random regenerate truncate crop knots "
    "linear-knots"
).split()
_PRESETS = "timm torch dinov2 jax torchvision swin beit long-clip longformer".split()
_ANCHORS = "ends half left".split()


@dataclass(frozen=True)
class NewSize:
    """Which table, and how large it is to be."""

    heading: ClassVar[str] = "Table and new size"
    source: str = argument("SOURCE", "FILE, FILE:TENSOR, a model folder, or - for stdin.")
    length: int | None = option(
        "N", "Usable positions; special rows are kept besides.", flags="--len", common=True
    )
    grid: str | None = option("HxW", "New grid of image patches.", common=True)
    from_grid: str | None = option("HxW", "Present grid, where it is not square.")
    window: str | None = option("HxW", "New attention window (Swin, BEiT).", common=True)
    from_window: str | None = option("HxW", "Present window, where it is not square.")
    tensor: tuple[str, ...] = option(
        "KEY", "The table, where there are several; a glob, or given twice.", default=(), common=True
    )
    config: str | None = option(
        "FILE", "The model's config.json; default: beside SOURCE; none to do without.", is_file=True
    )


@dataclass(frozen=True)
class Resampling:
    """How the new rows are made."""

    heading: ClassVar[str] = "How new rows are made"
    method: str | None = option(
        "NAME",
        f"One of: {', '.join(_METHODS)}. Default: linear; on grids and windows bicubic; sinusoidal tables that a "
        "checkpoint stores are regenerated.",
        choices=lambda: _METHODS,
        common=True,
    )
    preset: str | None = option(
        "NAME",
        f"As the original implementation does it: {', '.join(_PRESETS)}.",
        choices=lambda: _PRESETS,
        common=True,
    )
    anchor: str | None = option(
        "NAME",
        "What stays: ends (align_corners=True; default in 1-D), half (align_corners=False; default in 2-D), "
        "left (the first row; default of nearest and stretch).",
        choices=lambda: _ANCHORS,
    )
    antialias: bool | None = option(
        None,
        "Widen the kernel when shrinking. Default: on for grids.",
        flags="--antialias/--no-antialias",
    )
    keep: int | None = option("K", "stretch: rows kept (20).")
    alpha: float | None = option("A", "hierarchical: share of the coarse part (0.4).")
    seed: int | None = option("S", "Seed of --method random (0).")


@dataclass(frozen=True)
class SpecialRows:
    """Rows that are no positions, and stay."""

    heading: ClassVar[str] = "Rows that are no positions"
    prefix_rows: int | None = option("P", "Special rows in front (class tokens).")
    suffix_rows: int | None = option("P", "Special rows behind (detection tokens).")
    offset: int | None = option("R", "Rows before position 0 (RoBERTa, BART: 2).")
    outliers: str | None = option(
        "keep|ignore",
        "Rows at the ends that stand out by their norm: keep them apart (default in checkpoints), or not.",
        choices=lambda: ("keep", "ignore"),
    )


@dataclass(frozen=True)
class Rotary:
    """Models that rotate."""

    heading: ClassVar[str] = "Models that rotate (RoPE)"
    scaling: str | None = option(
        "NAME",
        f"One of: {', '.join(SCALINGS)}. The configuration changes, the weights do not.",
        choices=lambda: SCALINGS,
        common=True,
    )
    factor: float | None = option("X", "Of --scaling: by how much (new length / original length).")
    force_scaling: bool = option(None, "Put --scaling in place of one that the model has.", default=False)


@dataclass(frozen=True)
class Folders:
    """How a folder is written."""

    heading: ClassVar[str] = "Model folders"
    link: bool = option(None, "Make hard links of the files of a folder that do not change.", default=False)
    dry_run: bool = option(
        None, "Write nothing; show the report, and every change to a folder.", default=False, common=True
    )


def extend(
    size: NewSize,
    resampling: Resampling,
    special: SpecialRows,
    rotary: Rotary,
    folders: Folders,
    target: options.Output,
) -> None:
    """Lengthen, shorten or regrid a learned position table, alone or inside a checkpoint.

    SOURCE is a bare table, a checkpoint (every other tensor keeps its bytes; only the table is held in memory, also in a
    pipe), or a model folder, in which config, tokenizer and image processor limits change along.

    The table is found by its name. Rows that are no positions (offset rows, class tokens) and rows that stand apart
    stay as they are. New rows are untrained: fine-tune where you can.

    \b
    Examples:
      cat model.safetensors | pe extend - --len 1024 > longer.safetensors
      pe extend ./all-MiniLM-L6-v2 --len 1024 --method tile -o ./longer
      pe extend ./vit-base --grid 24x24 --preset timm -o ./vit-384
      pe extend ./Qwen2.5-7B --len 131072 --scaling yarn -o ./Qwen2.5-7B-128k
    """
    from pe_cli.extend import run
    from pe_cli.render import shown

    asked = {**vars(size), **vars(resampling), **vars(special), **vars(rotary), "link": folders.link}
    source, output, plot, json = size.source, target.output, target.plot, target.json
    target.require_targets()
    quietly = json or sys.stdout.isatty()
    if folders.dry_run:
        output = None
    elif output is None and rotary.scaling is not None:
        output = "-"
    elif output is None and Path(source).is_dir() and rotary.factor is None and not rotary.force_scaling:
        raise PeError(
            f"{source} is a folder: give the new one with -o FOLDER, or --dry-run to see what would change"
        )
    elif output is None and not quietly:
        output = "-"
    seen: list[Any] = []
    with shown(quiet=target.quiet):
        done = run(
            **asked,
            output=output,
            format=target.format,
            force=target.force,
            watch=_watch(seen, plot) if plot else None,
        )
    if plot:
        given = map(options.given_in, (size, resampling, special, rotary))
        _plot(done, seen, plot, target.force, options.command_line(("extend",), *given))
    if done.text is not None and output == "-" and not json:
        print(done.text, end="" if done.text.endswith("\n") else "\n")
    where = target.output or ("stdout" if output == "-" else None)
    if json:
        _print_record(done, None if output is None else target.output)
    if not target.quiet:
        _tell(done, where=None if output is None else where, dry_run=folders.dry_run)
    if done.tables and sys.stdout.isatty() and not (json or target.quiet):
        _draw(done)


def _watch(seen: list[Any], plot: str) -> Any:
    """Keeps the rows of the first table; by then all inputs are open, and none of them may become the picture."""

    def watch(*rows: Any) -> None:
        refuse_input(plot, plot)
        seen.append(rows)

    return watch


def _plot(done: Extension, seen: list[Any], plot: str, force: bool, title: str) -> None:
    """The first table before and after, or the wavelengths of a rotary model."""
    from pe_cli.render.plots import plot_extension, plot_stretch

    if done.stretch is not None:
        plot_stretch(done.stretch, plot, force, title)
    else:
        before, after = seen[-1]
        plot_extension(before, after, plot, force, title=title)


def _tell(done: Extension, *, where: str | None, dry_run: bool = False) -> None:
    """What was done, in plain lines on stderr, so that a pipeline does not wait for a table to be drawn."""
    from pe_cli.render import INDENT, tell

    for line in _lines(done, where=where, dry_run=dry_run):
        tell(spelled(line, option_name), indent=COLUMN if line.startswith("  ") else INDENT)


def _lines(done: Extension, *, where: str | None, dry_run: bool) -> Iterator[str]:
    """Of many tables alike (one in each layer) the first few, and how many more."""
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
    yield f"  rank        {rank} effective; {twice}; rounding by at most {report.rounding:.2g}"


def _norm(of: Geometry) -> str:
    return f"{of.norm[0]:.3f} ({of.norm[1]:.3f}..{of.norm[2]:.3f})"


def _cosine(of: Geometry) -> str:
    return " ".join(f"{value:.3f}" for value in of.cosine.values())


def _print_record(done: Extension, output: str | None) -> None:
    from pe_cli.files.text import canonical, jsonable

    record = {"schema": SCHEMA, "output": output, **done.to_dict(option_name)}
    print(canonical(jsonable(record)))


def _draw(done: Extension) -> None:
    """The first new table as a heat map."""
    from pe_cli.render import console
    from pe_cli.render.summary import draw

    first = done.reports[0]
    draw(console(), first.layout.rows_of(done.tables[first.name]))


extend_command = options.of_groups(extend, NewSize, Resampling, SpecialRows, Rotary, Folders, options.Output)
