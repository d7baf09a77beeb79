"""What `pe inspect` shows: the tensors of a file, their numbers and pictures, and what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pe_cli.catalogue import CATALOGUE
from pe_cli.errors import counted, one_line
from pe_cli.inspect.contents import FileReport, TensorReport
from pe_cli.process import size
from pe_cli.render.console import console, in_lines, spell
from pe_cli.render.summary import draw, key_values, statistics_line

if TYPE_CHECKING:
    from rich.console import Console

MANY_ROWS = 300  # above, a table that fits its columns to the terminal takes seconds
WIDEST = 100
OVER_LENGTH = 256  # of the rows chosen from a large table: those that lie over its whole length


def show_file(report: FileReport) -> None:
    """Print the whole report."""
    out = console()
    total = sum(tensor.spec.nbytes for tensor in report.tensors)
    many = counted(len(report.tensors), "tensor", "tensors")
    out.print(f"{report.label}: {report.format}, {many}, {size(total)}", style="bold")
    if report.made_by:
        out.print(f"made by: {report.made_by.get('command')}")
    for name, where in report.links.items():
        out.print(f"{name} is a link to {where}, which is not followed", style="dim")
    for name, where in report.same_as.items():
        out.print(f"{name} is the same as {where}", style="dim")
    if report.tensors and (
        all(tensor.values is None for tensor in report.tensors) or len(report.tensors) > 4
    ):
        _list(out, report)
    said = (report.made_by or {}).get("encoding")
    for tensor in report.tensors:
        if tensor.not_read is not None:
            out.print()
            _title(out, tensor)
            out.print(f"values not read: {tensor.not_read}", style="dim")
        elif tensor.values is not None:
            _show_tensor(out, tensor, said if said in CATALOGUE else None)


def _list(out: Console, report: FileReport) -> None:
    found = [tensor for tensor in report.tensors if tensor.role]
    shown = found or report.tensors
    rows = []
    for tensor in shown:
        spec = tensor.spec
        what = f"{tensor.role.encoding}: {tensor.role.role}" if tensor.role else ""
        rows.append((spec.name, spec.dtype, str(list(spec.shape)), size(spec.nbytes), what))
    _table(out, ("tensor", "dtype", "shape", "size", "what it is"), rows)
    rest = len(report.tensors) - len(shown)
    if rest:
        out.print(f"and {counted(rest, 'tensor that holds', 'tensors that hold')} no positions", style="dim")


def _table(out: Console, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if len(rows) > MANY_ROWS:
        widths = [min(max(map(len, column)), WIDEST) for column in zip(headings, *rows, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (headings, *rows)
        )
        from rich.text import Text

        out.print(Text("\n".join(map(one_line, lines))), soft_wrap=True)
        return
    from rich.table import Table as RichTable

    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    out.print(table)


def _title(out: Console, tensor: TensorReport) -> None:
    spec = tensor.spec
    out.print(f"{spec.name or 'table'}  {spec.dtype}  {list(spec.shape)}", style="bold")


def _show_tensor(out: Console, tensor: TensorReport, said: str | None) -> None:
    assert tensor.values is not None
    out.print()
    _title(out, tensor)
    if tensor.rows_read is not None:
        out.print(f"looked at {counted(tensor.rows_read, 'row', 'rows')} over its length", style="dim")
    if tensor.statistics:
        out.print(statistics_line(tensor.statistics, out.width), style="dim")
        lags = tensor.statistics.get("similarity")
        if lags:
            words = [f"{lag}: {value:.3f}" for lag, value in lags.items()]
            out.print(in_lines(["mean cosine of rows by distance", *words], out.width), style="dim")
    out.print(key_values(_identity(tensor, said), {}))
    draw(out, tensor.values if tensor.numbers is None else tensor.values[-OVER_LENGTH:])


def _identity(tensor: TensorReport, said: str | None) -> dict[str, Any]:
    found = tensor.identified
    if found is None or found.encoding is None:
        if said:
            return {"encoding": f"{said}, as the file says; its numbers alone do not tell"}
        told = {key: spell(value) for key, value in found.to_dict().items()} if found else {}
        maybe = told.pop("maybe", "")
        told["encoding"] = "no formula gives this table"
        return told | ({"it could be": maybe} if maybe else {})
    if said and found.encoding != said:
        return {
            "encoding": f"{said}, as the file says",
            "numbers": f"alone they look like {found.encoding}",
        }
    return {key: spell(value) for key, value in found.to_dict().items()}
