"""`pe extend`: resample a learned position table, alone, inside a checkpoint, or in a whole model folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pe_cli.commands.options import Force, Format, Json, OutputPath, Plot, Quiet
from pe_cli.errors import PeError, option_name
from pe_cli.extend import SCALINGS
from pe_cli.process import refuse_input

if TYPE_CHECKING:
    from pe_cli.extend import Extension

SCHEMA = "pe.extend/1"
# The names are repeated here so that help and completions load no numbers; a test compares them with what there is.
_METHODS = (
    "linear cubic bilinear bicubic nearest repeat-last tile stretch hierarchical zeros random regenerate truncate crop knots "
    "linear-knots"
).split()
_PRESETS = "timm torch dinov2 jax torchvision swin beit long-clip longformer".split()
_ANCHORS = "ends half left".split()


def extend_command(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="FILE, FILE:TENSOR, a model folder, or - for stdin.")
    ],
    length: Annotated[
        int | None,
        typer.Option("--len", metavar="N", help="Usable positions; special rows are kept besides."),
    ] = None,
    grid: Annotated[
        str | None, typer.Option("--grid", metavar="HxW", help="New grid of image patches.")
    ] = None,
    from_grid: Annotated[
        str | None, typer.Option("--from-grid", metavar="HxW", help="Present grid, where it is not square.")
    ] = None,
    window: Annotated[
        str | None, typer.Option("--window", metavar="HxW", help="New attention window (Swin, BEiT).")
    ] = None,
    from_window: Annotated[
        str | None,
        typer.Option("--from-window", metavar="HxW", help="Present window, where it is not square."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            metavar="NAME",
            help=f"{', '.join(_METHODS)}. Default: linear; on grids and windows bicubic; sinusoidal tables that a "
            "checkpoint stores are regenerated.",
            autocompletion=lambda: _METHODS,
        ),
    ] = None,
    anchor: Annotated[
        str | None,
        typer.Option(
            "--anchor",
            metavar="NAME",
            help="What stays: ends (align_corners=True; default in 1-D), half (align_corners=False; default in 2-D), "
            "left (the first row; default of nearest and stretch).",
            autocompletion=lambda: _ANCHORS,
        ),
    ] = None,
    antialias: Annotated[
        bool | None,
        typer.Option(
            "--antialias/--no-antialias", help="Widen the kernel when shrinking. Default: on for grids."
        ),
    ] = None,
    keep: Annotated[int | None, typer.Option("--keep", metavar="K", help="stretch: rows kept (20).")] = None,
    alpha: Annotated[
        float | None,
        typer.Option("--alpha", metavar="A", help="hierarchical: share of the coarse part (0.4)."),
    ] = None,
    prefix_rows: Annotated[
        int | None, typer.Option("--prefix-rows", metavar="P", help="Special rows in front (class tokens).")
    ] = None,
    suffix_rows: Annotated[
        int | None, typer.Option("--suffix-rows", metavar="P", help="Special rows behind (detection tokens).")
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", metavar="R", help="Rows before position 0 (RoBERTa, BART: 2).")
    ] = None,
    outliers: Annotated[
        str | None,
        typer.Option(
            "--outliers",
            metavar="keep|ignore",
            help="Rows at the ends that stand out by their norm: keep them apart (default in checkpoints), or not.",
            autocompletion=lambda: ["keep", "ignore"],
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="S", help="Seed of --method random (0).")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            "--preset",
            metavar="NAME",
            help=f"As the original implementation does it: {', '.join(_PRESETS)}.",
            autocompletion=lambda: _PRESETS,
        ),
    ] = None,
    tensor: Annotated[
        list[str] | None,
        typer.Option(
            "--tensor", metavar="KEY", help="The table, where there are several; a glob, or given twice."
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="The model's config.json; default: beside SOURCE; none to do without.",
        ),
    ] = None,
    scaling: Annotated[
        str | None,
        typer.Option(
            "--scaling",
            metavar="NAME",
            help=f"For models that rotate: {', '.join(SCALINGS)}. The configuration changes, the weights do not.",
            autocompletion=lambda: SCALINGS,
        ),
    ] = None,
    factor: Annotated[
        float | None,
        typer.Option(
            "--factor", metavar="X", help="Of --scaling: by how much (new length / original length)."
        ),
    ] = None,
    force_scaling: Annotated[
        bool, typer.Option("--force-scaling", help="Put --scaling in place of one that the model has.")
    ] = False,
    link: Annotated[
        bool, typer.Option("--link", help="Make hard links of the files of a folder that do not change.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; show the report, and every change to a folder.")
    ] = False,
    output: OutputPath = None,
    format: Format = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
    plot: Plot = None,
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
    asked = dict(locals())
    for shown_only in ("dry_run", "json", "quiet", "plot"):
        del asked[shown_only]
    from pe_cli.extend import run
    from pe_cli.render.console import shown

    if output == "-" and (json or sys.stdout.isatty()):
        raise PeError("-o - writes bytes: send stdout into a pipe or file, without --json")
    if plot:
        from pe_cli.render.plots.drawing import require_picture

        require_picture(plot, force=force, beside=output)
    quietly = json or sys.stdout.isatty()
    if dry_run:
        output = None
    elif output is None and scaling is not None:
        output = "-"
    elif output is None and Path(source).is_dir() and factor is None and not force_scaling:
        raise PeError(
            f"{source} is a folder: give the new one with -o FOLDER, or --dry-run to see what would change"
        )
    elif output is None and not quietly:
        output = "-"
    seen: list[Any] = []
    with shown(quiet=quiet):
        done = run(**{**asked, "output": output}, watch=_watch(seen, plot) if plot else None)
    if plot:
        _plot(done, seen, plot, force)
    if done.text is not None and output == "-" and not json:
        print(done.text, end="" if done.text.endswith("\n") else "\n")
    where = asked["output"] or ("stdout" if output == "-" else None)
    if json:
        _print_record(done, None if output is None else asked["output"])
    if not quiet:
        from pe_cli.render.extend import show

        show(done, where=None if output is None else where, dry_run=dry_run)
    if done.tables and sys.stdout.isatty() and not (json or quiet):
        _draw(done)


def _watch(seen: list[Any], plot: str) -> Any:
    """Keeps the rows of the first table; by then all inputs are open, and none of them may become the picture."""

    def watch(*rows: Any) -> None:
        refuse_input(plot, plot)
        seen.append(rows)

    return watch


def _plot(done: Extension, seen: list[Any], plot: str, force: bool) -> None:
    """The first table before and after, or the wavelengths of a rotary model."""
    from pe_cli.render.plots import plot_extension, plot_stretch

    if done.stretch is not None:
        plot_stretch(done.stretch, plot, force)
    else:
        before, after = seen[-1]
        plot_extension(before, after, plot, force)


def _print_record(done: Extension, output: str | None) -> None:
    from pe_cli.files.text import canonical, jsonable

    record = {"schema": SCHEMA, "output": output, **done.to_dict(option_name)}
    print(canonical(jsonable(record)))


def _draw(done: Extension) -> None:
    """The first new table as a heat map."""
    from pe_cli.render.console import console
    from pe_cli.render.summary import draw

    first = done.reports[0]
    draw(console(), first.layout.rows_of(done.tables[first.name]))
