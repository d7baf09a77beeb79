"""What `pe inspect config.json` shows: each table of a model, where its values came from, and its wavelengths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pe_cli.render.console import console
from pe_cli.render.summary import key_values

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_PAIRS = 16


def show_model(report: Mapping[str, Any]) -> None:
    """Print the whole report of `models.describe.inspect_config`."""
    out = console()
    out.print(f"{report['file']}: {report['model_type'] or 'a model'}", style="bold")
    for table in report["tables"]:
        out.print()
        if "parameters" not in table:
            out.print(table.get("note") or table["error"])
        else:
            _show(out, table)
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
        out.print(f"contradiction: {finding['what']}", style="yellow")
        out.print(
            f"  between {' and '.join(finding['where'])}"
            if len(finding["where"]) > 1
            else f"  in {finding['where'][0]}"
        )


def _show(out: Console, table: Mapping[str, Any]) -> None:
    where = ", ".join(table[key] for key in ("component", "layer_type") if table[key])
    out.print(f"{table['encoding']}{f' of {where}' if where else ''}", style="bold")
    out.print(key_values(table["parameters"], table["origins"]))
    for warning in table["warnings"]:
        out.print(f"warning: {warning}", style="yellow")
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
        out.print(f"every {_ordinal(step)} of {len(pairs)} pairs; all of them with --json", style="dim")


def _ordinal(number: int) -> str:
    """`2nd`, `11th`, `23rd`"""
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number // 10 % 10 == 1 else endings.get(number % 10, 'th')}"
