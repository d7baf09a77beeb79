"""`pe diff`: compare two tables and say why they differ."""

from __future__ import annotations

import math
from typing import Annotated

import typer

from pe_cli.commands.options import Force, Json, Plot, Quiet
from pe_cli.diff.compare import Report, compare_sources
from pe_cli.diff.metrics import Tolerance
from pe_cli.errors import PeError
from pe_cli.files import provenance
from pe_cli.files.sources import open_source, split_spec
from pe_cli.process import refuse_input
from pe_cli.render.console import tell

SOURCE_HELP = "FILE, FILE:TENSOR, or - (stdin)."


def diff_command(
    a: Annotated[str, typer.Argument(metavar="A", help=SOURCE_HELP)],
    b: Annotated[str, typer.Argument(metavar="B", help=f"{SOURCE_HELP} B is the reference.")],
    atol: Annotated[float, typer.Option("--atol", metavar="X", min=0, help="Absolute tolerance.")] = 0.0,
    rtol: Annotated[
        float, typer.Option("--rtol", metavar="X", min=0, help="Relative tolerance, of |b|.")
    ] = 0.0,
    ulp: Annotated[
        int,
        typer.Option("--ulp", metavar="N", min=0, help="Also same: at most N steps of the narrower type."),
    ] = 0,
    tensor_a: Annotated[
        str | None,
        typer.Option("--tensor-a", metavar="KEY", help="The tensor of A, where there are several."),
    ] = None,
    tensor_b: Annotated[
        str | None,
        typer.Option("--tensor-b", metavar="KEY", help="The tensor of B, where there are several."),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    plot: Plot = None,
    force: Force = False,
) -> None:
    """Compare two tables and say why they differ.

    Same means |a-b| <= atol + rtol*|b|; NaN equals NaN. Files with several tensors are compared by name. The exit
    code is 0 where they are the same, 1 where they differ, 2 in trouble. Where they differ, the change that makes them
    agree is looked for: layout, base, scaling, offset, rounding, and others.

    \b
    Example:
      pe diff mine.npy theirs.safetensors:cos --rtol 1e-6
    """
    if a == "-" and b == "-":
        raise PeError("both sides are '-': stdin can be read once; save one of them to a file")
    for option, value in (("--atol", atol), ("--rtol", rtol)):
        if not math.isfinite(value):
            raise PeError(f"{option} {value}: a finite number is needed")
    tolerance = Tolerance(atol, rtol, ulp)
    named = (
        tensor_a is not None or split_spec(a)[1] is not None,
        tensor_b is not None or split_spec(b)[1] is not None,
    )
    with (
        open_source(a, tensor=tensor_a, again=True) as left,
        open_source(b, tensor=tensor_b, again=True) as right,
    ):
        if plot:
            refuse_input(plot, plot)
        report = compare_sources(left, right, named, tolerance)
    if plot:
        _plot(report, plot, force)
    if json:
        print(provenance.canonical(provenance.jsonable(report.as_dict())))
    elif not quiet or not report.equal:
        from pe_cli.render.difference import show

        show(report)
    raise typer.Exit(0 if report.equal else 1)


def _plot(report: Report, path: str, force: bool) -> None:
    from pe_cli.diff.metrics import squeezed
    from pe_cli.render.plot import plot_difference

    for pair in report.pairs:
        if pair.sample is not None and pair.same_shape and pair.a is not None:
            left, right = (side.reshape(squeezed(side.shape)) for side in pair.sample)
            plot_difference(left, right, path, force, names=report.labels)
            return
    tell(f"pe: note: --plot {path}: nothing is drawn, there is no pair of tables of one shape that differ")
