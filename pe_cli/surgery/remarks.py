"""What there is to say of a file beside the numbers of its tables: that a formula made it, that tensors are left out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from pe_cli.formats.base import shown
from pe_cli.provenance import made_by
from pe_cli.sources import Source
from pe_cli.surgery.containers import target_format
from pe_cli.surgery.layout import times
from pe_cli.surgery.plan import Plan
from pe_cli.surgery.presets import REGENERATE, Request
from pe_cli.surgery.report import TableReport

STARTING_VALUES = "learned"  # the one encoding of `pe gen` that is trained afterwards


def warn_of_formula(source: Source, request: Request, reports: Sequence[TableReport]) -> None:
    """Add a warning to `reports` of rows made from their neighbours, where the file says that a formula gives them."""
    record = made_by(source.metadata) or {}
    command, encoding = record.get("command"), record.get("encoding")
    if not isinstance(command, str) or not command.startswith("pe gen ") or encoding == STARTING_VALUES:
        return
    for report in reports:
        if report.new and report.way != REGENERATE:
            size = "longer" if sum(report.shape[1]) > sum(report.shape[0]) else "smaller"
            report.warnings.append(
                f"this table was made by `{shown(command)}`, which makes the {size} one too: {_again(command, request)}"
            )


def _again(command: str, request: Request) -> str:
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if request.length is not None and "--len" in words:
        return f"run it with --len {request.length}"
    if request.grid is not None and "--grid" in words:
        return f"run it with --grid {times(request.grid)}"
    return "run it for that size"


def left_out(source: Source, plan: Plan, path: str | None, format: str | None) -> list[str]:
    """A note where the file that is written has no room for the tensors beside the table."""
    others = len(source.tensors) - len(plan.tables)
    if not others or target_format(source, plan, path, format) != "npy":
        return []
    are, them = ("other tensor is", "it") if others == 1 else ("other tensors are", "them")
    return [
        f"only the table is written: .npy holds one array; {others} {are} left out: write .safetensors to keep {them}"
    ]
