"""What `gen` does with a table: bytes into a file or pipe, a summary and a picture at a terminal, JSON where asked."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pe_cli.commands.options import Output
from pe_cli.errors import PeError
from pe_cli.files.base import NoSuchTypeError, default_format
from pe_cli.files.sinks import open_sink
from pe_cli.files.text import canonical, jsonable, metadata
from pe_cli.process import size, step
from pe_cli.render.console import shown, tell
from pe_cli.tables import Table

SCHEMA = "pe.gen/1"
MEASURED = ("residual",)  # facts that are reported and not stored, since they differ between processors
NAMELESS = ("npy", "npz")  # formats without metadata
LARGEST_FILE = 2**63 - 2**32  # with room for a header


@dataclass(frozen=True)
class Request:
    """A table to put out: `origins` says where a parameter came from, where that is not the command line.

    `more` are fields of `--json` that this command adds.
    `remarks` are lines for stderr, each with the indent of its continuation; they come when the table is out, so that
    nothing is said of one that cannot be.
    """

    encoding: str
    table: Table
    command: str
    parameters: Mapping[str, Any]
    output: Output
    origins: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    remarks: tuple[tuple[str, int], ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)


def emit(request: Request) -> None:
    """Write, show and report as the output options say."""
    output, table = request.output, request.table
    writes = output.output is not None or not (output.json or sys.stdout.isatty())
    if output.output == "-" and (sys.stdout.isatty() or output.json):
        raise PeError("-o - writes bytes: send stdout into a pipe or file, without --json")
    if not writes and output.format:
        raise PeError(f"--format {output.format}: nothing is written to a terminal; give -o FILE or a pipe")
    if output.plot:
        from pe_cli.render.plots.drawing import require_picture

        require_picture(output.plot, force=output.force, beside=output.output)
    if writes:
        with shown(quiet=output.quiet):
            write(request)
    if output.plot:
        from pe_cli.render.plots import plot_table

        plot_table(request, output.plot)
    if output.json:
        print(canonical(report(request)))
    if not output.quiet:
        for remark, indent in request.remarks:
            tell(remark, indent=indent)
        for warning in (*table.warnings, *request.warnings):
            tell(f"pe: warning: {warning}")
        if writes:
            _say_written(request)
        elif not output.json:
            from pe_cli.render.summary import show_table

            show_table(request)


def write(request: Request) -> None:
    """Stream the table into its file, or into stdout."""
    table, output = request.table, request.output
    facts = {name: value for name, value in table.facts.items() if name not in MEASURED}
    about = metadata(request.command, request.encoding, request.parameters, facts)
    specs = list(table.specs.values())
    if table.nbytes >= LARGEST_FILE:
        raise PeError(
            f"a table of {size(table.nbytes)} fits into no file: ask for fewer rows, or a --shard of them"
        )
    path = None if output.output in (None, "-") else output.output
    with (
        _otherwise(request.parameters),
        open_sink(path, specs, metadata=about, format=output.format, force=output.force) as sink,
    ):
        names = tuple(spec.name for spec in sink.specs)
        done = 0
        for group in [(name,) for name in names] if sink.sequential else [names]:
            for block in table.blocks(group):
                sink.write(block.name, block.start, block.rows)
                done += block.rows.nbytes
                step("bytes written", done, table.nbytes)


@contextmanager
def _otherwise(parameters: Mapping[str, Any]) -> Iterator[None]:
    """Add to the error of a format without a type the options that give another type."""
    try:
        yield
    except NoSuchTypeError as error:
        ways = ["--dtype float32 (complex64)"] if error.dtype == "complex128" else []
        ways += ["--parts split (real and imaginary part)"] if "parts" in parameters else []
        raise PeError(", or ".join([str(error), *ways])) from error


def report(request: Request) -> dict[str, Any]:
    """What `--json` prints."""
    table = request.table
    return {
        "schema": SCHEMA,
        "encoding": request.encoding,
        "command": request.command,
        "parameters": jsonable({n: v for n, v in request.parameters.items() if v is not None}),
        "origins": dict(request.origins),
        "facts": jsonable(table.facts),
        "warnings": [*table.warnings, *request.warnings],
        **request.more,
        "output": request.output.output,
        "tensors": [
            {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "bytes": spec.nbytes}
            for spec in table.specs.values()
        ],
    }


def _say_written(request: Request) -> None:
    from pe_cli.render.console import spell, telling

    specs = list(request.table.specs.values())
    tensors = ", ".join(f"{spec.name} {spec.dtype} {list(spec.shape)}" for spec in specs)
    facts = [
        f"{name.replace('_', ' ')} {_cut(spell(value))}"
        for name, value in telling(request.table.facts).items()
    ]
    where = request.output.output or "stdout"
    said = "; ".join([f"{tensors}, {size(request.table.nbytes)} to {where}", *facts])
    tell(f"pe: {said}")
    kind = default_format(request.output.output, specs, request.output.format)
    if "node_ids" in request.table.facts and kind in NAMELESS:
        tell(
            f"pe: warning: {kind} files carry no names: the ids of the nodes are in none of it; "
            "write .safetensors or .h5 to keep them"
        )


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"
