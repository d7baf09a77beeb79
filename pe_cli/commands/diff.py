"""`pe diff`: compare two tables and say why they differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import typer

from pe_cli.commands import options
from pe_cli.commands.options import argument, option
from pe_cli.diff import Report, compare_sources
from pe_cli.diff.metrics import Tolerance
from pe_cli.errors import PeError
from pe_cli.files.sources import Source, open_source, split_spec
from pe_cli.files.text import canonical, jsonable
from pe_cli.process import DIFFERENT, DONE, step
from pe_cli.render import shown, tell

DRAWN_ROWS = 512


@dataclass(frozen=True)
class Tables:
    """What is compared."""

    heading: ClassVar[str] = "Tables"
    a: str = argument("A", "FILE, FILE:TENSOR, or - (stdin).")
    b: str = argument("B", "FILE, FILE:TENSOR, or - (stdin). B is the reference.")
    tensor_a: str | None = option("KEY", "The tensor of A, where there are several.")
    tensor_b: str | None = option("KEY", "The tensor of B, where there are several.")


@dataclass(frozen=True)
class Same:
    """What counts as the same."""

    heading: ClassVar[str] = "What counts as the same"
    atol: float = option("X", "Absolute tolerance.", default=0.0, minimum=0, common=True)
    rtol: float = option("X", "Relative tolerance, of |b|.", default=0.0, minimum=0, common=True)
    ulp: int = option(
        "N", "Also same: at most N steps of the narrower type.", default=0, minimum=0, common=True
    )
    explain: bool = option(
        None, "Look for the change that makes them agree.", default=True, flags="--explain/--no-explain"
    )


def diff(tables: Tables, same: Same, output: options.Told) -> None:
    """Compare two tables and say why they differ.

    Same means |a-b| <= atol + rtol*|b|; NaN equals NaN, and an infinity the same infinity. Files with several tensors
    are compared by name; one table against such a file is compared with each of its tensors, and the one that fits is
    named. The exit code is 0 where they are the same, 1 where they differ, 2 in trouble. Where they differ, the
    changes that turn a into b are looked for: layout, base, scaling, positions, rounding, rows, and others. A change
    is told only if undoing it on every row makes the tables agree.

    \b
    Example:
      pe diff mine.npy theirs.safetensors:cos --rtol 1e-6
    """
    a, b = tables.a, tables.b
    if a == "-" and b == "-":
        raise PeError("both sides are '-': stdin can be read once; save one of them to a file")
    for flag, value in (("--atol", same.atol), ("--rtol", same.rtol)):
        if not math.isfinite(value):
            raise PeError(f"{flag} {value}: a finite number is needed")
    tolerance = Tolerance(same.atol, same.rtol, same.ulp)
    named = (
        tables.tensor_a is not None or split_spec(a)[1] is not None,
        tables.tensor_b is not None or split_spec(b)[1] is not None,
    )
    with (
        open_source(a, tensor=tables.tensor_a, again=True) as left,
        open_source(b, tensor=tables.tensor_b, again=True) as right,
        shown(quiet=output.quiet),
    ):
        output.require_picture()
        report = compare_sources(
            left, right, named, tolerance, explained=same.explain, progress=_progress(left, right)
        )
        if output.plot:
            _plot(report, output.plot, output.force)
    if output.json:
        print(canonical(jsonable(report.to_dict())))
    elif not output.quiet or not report.equal:
        from pe_cli.render.difference import show

        show(report, explained=same.explain)
    raise typer.Exit(DONE if report.equal else DIFFERENT)


def _progress(a: Source, b: Source) -> Callable[[int], None]:
    """Tells whoever watches how much of the larger file has been compared."""
    total = max(sum(spec.nbytes for spec in side.tensors.values()) for side in (a, b))
    done = 0

    def told(count: int) -> None:
        nonlocal done
        done += count
        step("compared", done, total)

    return told


def _plot(report: Report, path: str, force: bool) -> None:
    from pe_cli.diff.operands import spread
    from pe_cli.render.difference import sentence
    from pe_cli.render.plots import plot_difference

    for pair in report.pairs:
        if pair.sides is not None and pair.same_shape and not pair.equal:
            a, b = pair.sides
            rows = spread(a.rows, DRAWN_ROWS)
            causes = [sentence(cause) for cause in pair.explanation.causes]
            title = "\n".join([f"a: {report.labels[0]}, b: {report.labels[1]}", *causes])
            plot_difference(a.at(rows), b.at(rows), path, force, names=("a", "b"), rows=a.rows, title=title)
            return
    tell(f"pe: note: --plot {path}: nothing is drawn, there is no pair of tables of one shape that differ")


diff_command = options.of_groups(diff, Tables, Same, options.Told)
