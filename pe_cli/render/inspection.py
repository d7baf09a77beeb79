"""What `pe inspect` shows: the tensors of a file, their numbers and pictures, and what they are; and, of a configuration, each
table of its model, where the values came from, and its wavelengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any

from pe_cli.catalogue import CATALOGUE
from pe_cli.errors import counted, one_line
from pe_cli.heatmap import ordinal
from pe_cli.process import size
from pe_cli.render.console import INDENT, console, in_lines, spell
from pe_cli.render.summary import draw, key_values, statistics_line

if TYPE_CHECKING:
    from rich.console import Console

    from pe_cli.inspect import FileReport, TensorReport

WIDEST = 100
LISTED_FROM = 4  # tensors of a file that are listed before they are shown
SHOWN_PAIRS = 16
HALF_AN_ULP = 0.505  # up to which rounding alone is to blame
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
    said = (report.made_by or {}).get("encoding")
    carrying = any(tensor.role or _encoding(tensor) for tensor in report.tensors)
    shown = [tensor for tensor in report.tensors if not carrying or _may_carry(tensor)]
    rest = [tensor for tensor in report.tensors if carrying and not _may_carry(tensor)]
    listed = all(tensor.values is None for tensor in report.tensors) or len(report.tensors) > LISTED_FROM
    if listed and shown:
        _list(out, shown)
        if rest:
            many = counted(len(rest), "tensor that holds", "tensors that hold")
            out.print(f"and {many} no positions", style="dim")
    if said:
        shown, rest = report.tensors, []
    for tensor in shown:
        if tensor.not_read is not None:
            out.print()
            _title(out, tensor)
            out.print(f"values not read: {tensor.not_read}", style="dim")
        elif tensor.values is not None:
            _show_tensor(out, tensor, said if said in CATALOGUE else None)
    if rest and not listed:
        out.print()
        names = ", ".join(one_line(tensor.spec.name) for tensor in rest)
        out.print(f"no positions are seen in {names}", style="dim")


def _may_carry(tensor: TensorReport) -> bool:
    """Whether a tensor carries positions, by its name or its numbers, or was not read, so that it may."""
    return bool(tensor.role or _encoding(tensor) or tensor.not_read)


def _encoding(tensor: TensorReport) -> str | None:
    """What the numbers are."""
    return tensor.identified.encoding if tensor.identified is not None else None


def _list(out: Console, tensors: Sequence[TensorReport]) -> None:
    """A line for each tensor; where the terminal is too narrow for that, its name and what it is below it."""
    rows = []
    for tensor in tensors:
        spec = tensor.spec
        what = f"{tensor.role.encoding}: {tensor.role.role}" if tensor.role else _encoding(tensor) or ""
        rows.append((one_line(spec.name), spec.dtype, str(list(spec.shape)), size(spec.nbytes), what))
    headings = ("tensor", "dtype", "shape", "size", "what it is")
    from rich.cells import cell_len
    from rich.text import Text

    widths = [min(max(map(cell_len, column)), WIDEST) for column in zip(headings, *rows, strict=True)]
    if sum(widths) + 2 * len(widths) - 2 > out.width:
        below = TextWrapper(out.width, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT)
        lines = [f"{name}\n{below.fill('  '.join(facts))}" for name, *facts in rows]
    else:
        lines = [
            "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
            for row in (headings, *rows)
        ]
    out.print(Text("\n".join(lines)), soft_wrap=True)


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
    told = found.to_dict()
    precision, most = told.pop("precision", None), told.pop("max_abs", None)
    if told.pop("residual", None) is not None and found.residual is not None:
        off = f"at most {found.residual:.3g} ulp{'' if most is None else f', {most:.3g},'} from the formula"
        correct = (
            f"correctly rounded to {precision}, " if found.residual <= HALF_AN_ULP else f"in {precision} "
        )
        told["accuracy"] = correct + off
    return {key: spell(value) for key, value in told.items()}


def show_model(report: Mapping[str, Any]) -> None:
    """Print the whole report of `models.describe.inspect_config`."""
    out = console()
    out.print(f"{report['file']}: {report['model_type'] or 'a model'}", style="bold")
    for table in report["tables"]:
        out.print()
        if "parameters" not in table:
            out.print(table.get("note") or table["error"])
        else:
            _show_model_table(out, table)
    if report.get("tensors"):
        out.print()
        out.print("position tensors in the checkpoint", style="bold")
        for tensor in report["tensors"]:
            what = f"{tensor['encoding']}: {tensor['role']}"
            out.print(
                f"{tensor['file']}:{tensor['name']}  {tensor['dtype']} {tensor['shape']}  {what}",
            )
    for finding in report.get("findings", ()):
        out.print()
        out.print(f"contradiction: {finding['what']}", style="bold")
        out.print(
            f"  between {' and '.join(finding['where'])}"
            if len(finding["where"]) > 1
            else f"  in {finding['where'][0]}"
        )


def _show_model_table(out: Console, table: Mapping[str, Any]) -> None:
    where = ", ".join(table[key] for key in ("component", "layer_type") if table[key])
    out.print(f"{table['encoding']}{f' of {where}' if where else ''}", style="bold")
    out.print(key_values(table["parameters"], table["origins"]))
    for warning in table["warnings"]:
        out.print(f"warning: {warning}", style="bold")
    for note in table["notes"]:
        out.print(f"note: {note}", style="dim")
    for extra in table["side_tables"]:
        out.print(f"beside it: {extra['summary']} (pe gen model … --table {extra['name']})")
    if table["rotary"]:
        _show_rotation(out, table)


def _show_rotation(out: Console, table: Mapping[str, Any]) -> None:
    rotary = table["rotary"]
    facts = {
        "pairs": f"{rotary['kept']} kept, {rotary['interpolated']} interpolated, {rotary['still']} that do not turn",
        "attention factor": rotary["attention_factor"],
        **rotary["facts"],
    }
    if table["trained_length"]:
        facts["trained length"] = f"{table['trained_length']} ({table['trained_origin']})"
        facts["complete turns"] = (
            f"{rotary['complete_turns']} pairs turn at least once within the trained length"
        )
    if table["max_position"]:
        facts["max position"] = table["max_position"]
    out.print(key_values(facts, {}))
    if rotary.get("leaves_trained_range") is not None:
        out.print(
            f"from position {rotary['leaves_trained_range']:.0f} on, pair {rotary['leaving_pair']} meets angles that "
            f"training has not shown it, if the trained length is {table['trained_length']}",
        )
    _list_pairs(out, rotary["pairs"])


def _list_pairs(out: Console, pairs: list[Mapping[str, Any]]) -> None:
    from rich.table import Table as RichTable

    grid = RichTable(box=None, pad_edge=False, header_style="bold")
    for heading in ("pair", "wavelength", "unscaled", "divided by", "turns in training"):
        grid.add_column(heading, justify="right")
    step = max(1, -(-len(pairs) // SHOWN_PAIRS))
    for index in sorted({*range(0, len(pairs), step), len(pairs) - 1}):
        pair = pairs[index]
        cells = (pair["wavelength"], pair["unscaled_wavelength"], pair["divided_by"], pair["turns"])
        grid.add_row(str(index), *("" if cell is None else f"{cell:.5g}" for cell in cells))
    out.print(grid)
    if step > 1:
        out.print(f"every {ordinal(step)} of {len(pairs)} pairs; all of them with --json", style="dim")
