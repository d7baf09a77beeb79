"""`pe gen model`: the table of a model, made from its own configuration."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import PurePath
from typing import Annotated, Any

import typer

from pe_cli import positions
from pe_cli.commands import gen, options
from pe_cli.commands.emit import Request, emit
from pe_cli.errors import PeError, no_such, option_name
from pe_cli.files.sources import load_positions
from pe_cli.models import Resolved, resolve
from pe_cli.models.extra_tables import FUNCTIONS
from pe_cli.models.resolved import EVERY_LENGTH
from pe_cli.numerics.dtypes import FLOATS
from pe_cli.render.console import INDENT, spell
from pe_cli.tables import RowTable, Table, WholeTable, as_tensors

ENCODING_TABLE = "encoding"


@dataclass(frozen=True)
class Which:
    """Which table of which part of the model, and for what."""

    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG", help="config.json, a model folder, a .gguf file, or - (JSON on stdin)."
        ),
    ]
    component: Annotated[
        str | None,
        typer.Option(
            "--component", metavar="NAME", help="Part of a composite model: text_config; dots go deeper."
        ),
    ] = None
    layer_type: Annotated[
        str | None,
        typer.Option(
            "--layer-type", metavar="NAME", help="Where layer types differ: full_attention, encoder, …"
        ),
    ] = None
    seq_len: Annotated[
        int | None,
        typer.Option(
            "--seq-len",
            metavar="N",
            min=1,
            help="Length served, where the table depends on it (dynamic NTK, LongRoPE).",
        ),
    ] = None
    layout: Annotated[
        str | None,
        typer.Option(
            "--layout",
            metavar="NAME",
            help="As in `pe gen rope`; by default as the model's own code stores it.",
        ),
    ] = None
    truncate: Annotated[
        bool | None,
        typer.Option("--truncate/--no-truncate", help="Round YaRN's range or not, whatever the file says."),
    ] = None
    compute: Annotated[
        str | None,
        typer.Option(
            "--compute", metavar="NAME", help="exact (default), or float32 as the frameworks compute."
        ),
    ] = None
    grid: Annotated[
        str | None,
        typer.Option(
            "--grid", metavar="HxW", help="Rows are the cells of this grid (vision towers, M-RoPE)."
        ),
    ] = None
    table: Annotated[
        str,
        typer.Option(
            "--table",
            metavar="NAME",
            help="encoding, or what the model has beside it: query-temperature, rotated-layers.",
            autocompletion=lambda: [ENCODING_TABLE, "query-temperature", "rotated-layers"],
        ),
    ] = ENCODING_TABLE


@dataclass(frozen=True)
class Rows(options.DistanceChoice):
    """Which rows or pairs, whatever the encoding turns out to be."""

    shard: options.Shard = None
    prefix_rows: Annotated[
        int, typer.Option("--prefix-rows", metavar="N", min=0, help="Zero rows in front.")
    ] = 0


def model_command(**values: Any) -> None:
    """The encoding of a model, from its config.json, model folder or .gguf file.

    Reads Hugging Face configurations of transformers 4 and 5 and GGUF metadata, prints each value with where it
    came from, and warns of every default that the file leaves to the model's class. The table comes in the layout
    in which the model's own code has it. Models without rotation give their own encoding (ALiBi, T5, sinusoidal);
    a learned table is not in a configuration: then it says where it lies.

    \b
    Example:
      pe gen model ./Llama-3.1-8B/config.json --len 131072 -o cache.safetensors
    """
    which: Which = options.take(Which, values)
    naming: options.Naming = options.take(options.Naming, values)
    output: options.Output = options.take(options.Output, values)
    rows: Rows = options.take(Rows, values)
    resolved = resolve(
        which.config,
        component=which.component,
        layer_type=which.layer_type,
        seq_len=which.seq_len,
        truncate=which.truncate,
    )
    if naming.dtype is not None and naming.dtype not in FLOATS:
        raise no_such("dtype", naming.dtype, FLOATS)
    arguments = _with_options(resolved, which, rows)
    if which.table == ENCODING_TABLE:
        table = _encoding_table(resolved, arguments, rows, naming)
    else:
        table, arguments = _extra_table(resolved, which.table, rows, naming)
    if resolved.origins.get("policy") == EVERY_LENGTH:
        table.warnings = ()  # that long factors have a short side, which these do not
    table.facts = {**table.facts, **_model_facts(resolved)}
    name = resolved.encoding if which.table == ENCODING_TABLE else which.table
    command = shlex.join(_command_words(which, rows, naming))
    remarks = tuple(_remarks(resolved, arguments))
    more = {"unread": list(resolved.unread)}
    emit(Request(name, table, command, arguments, output, resolved.origins, resolved.warnings, remarks, more))


def _with_options(resolved: Resolved, which: Which, rows: Rows) -> dict[str, Any]:
    """The arguments of the encoding, with those that the command line gives."""
    arguments = dict(resolved.parameters)
    taken = gen.Encoding(resolved.encoding).parameters
    for option in ("layout", "compute"):
        value = getattr(which, option)
        if value is not None:
            if option not in taken:
                raise PeError(
                    f"--{option} {value}: this model uses {resolved.encoding}, which has no {option}"
                )
            arguments[option] = value
    if which.grid is not None:
        if "grid" not in taken:
            raise PeError(f"--grid {which.grid}: this model uses {resolved.encoding}, which has no grid")
        arguments["grid"] = positions.parse_grid(which.grid)
    elif rows.positions is not None or rows.len is not None:
        arguments.pop("grid", None)
    return arguments


def _encoding_table(
    resolved: Resolved, arguments: dict[str, Any], rows: Rows, naming: options.Naming
) -> Table:
    encoding = gen.Encoding(resolved.encoding)
    if "dtype" in encoding.parameters and naming.dtype is not None:
        arguments["dtype"] = naming.dtype
    chosen = _chosen_rows(encoding, rows)
    dtype = None if "dtype" in encoding.parameters else naming.dtype
    return gen.build(encoding, arguments, chosen, dtype=dtype, name=naming.name)


def _chosen_rows(encoding: gen.Encoding, rows: Rows) -> Any:
    """The row options that the encoding takes; an error for those that it does not."""
    group = encoding.rows
    if group is None:
        raise PeError(f"{encoding.name} does not go by positions")
    taken = {field.name for field in fields(group)}
    pairs = ("len", "q_len", "k_len", "distances")
    if "q_len" in taken and all(getattr(rows, name) is None for name in pairs):
        raise PeError(
            f"this model uses {encoding.name}, whose table goes by pairs of positions: which? Give --len N, or --q-len and "
            "--k-len or --distances A:B"
        )
    for field in fields(rows):
        value = getattr(rows, field.name)
        if field.name not in taken and value not in (None, 0):
            raise PeError(
                f"{option_name(field.name)} {value}: this model uses {encoding.name}, which does not take it"
            )
    return group(**{name: getattr(rows, name) for name in taken})


def _extra_table(
    resolved: Resolved, asked: str, rows: Rows, naming: options.Naming
) -> tuple[Table, dict[str, Any]]:
    known = {table.name: table for table in resolved.extra_tables}
    if asked not in known:
        raise no_such("table of this model", asked, [ENCODING_TABLE, *known])
    arguments = dict(known[asked].parameters)
    function = FUNCTIONS[asked]
    if known[asked].by == "layer":
        return WholeTable(as_tensors(function(**arguments), asked), None, naming.name), arguments
    if rows.positions is None and rows.len is None:
        raise PeError("which rows? Give --len N or --positions SPEC")
    where = (
        positions.parse(rows.positions, load_positions) if rows.positions else positions.first(rows.len or 0)
    )
    shard = positions.parse_shard(rows.shard) if rows.shard else (0, 1)
    dtype = naming.dtype or "float32"
    return RowTable(asked, function, arguments, where, dtype, naming.name, rows.prefix_rows, shard), arguments


def _model_facts(resolved: Resolved) -> dict[str, Any]:
    """What the file says about the model, beside the arguments."""
    facts = {
        "model_type": resolved.model_type,
        "component": resolved.component,
        "layer_type": resolved.layer_type,
        "max_position": resolved.max_position,
        "pairing": resolved.pairing,
        "also": [table.name for table in resolved.extra_tables],
    }
    return {name: value for name, value in facts.items() if value}


def _remarks(resolved: Resolved, arguments: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every value with where it came from, and the notes."""
    kind = f" of {resolved.model_type}" if resolved.model_type else ""
    yield f"pe: {resolved.encoding}{kind}, from {resolved.file}", INDENT
    shown = {name: _short(value) for name, value in arguments.items()}
    names = max((len(name) for name in shown), default=0)
    values = max((len(value) for value in shown.values()), default=0)
    for name, value in shown.items():
        origin = resolved.origins.get(name, "")
        if resolved.parameters.get(name) != arguments[name] or name not in resolved.parameters:
            origin = "command line"
        yield f"pe:   {name:{names}}  {value:{values}}  {origin}".rstrip(), names + values + 10
    for note in resolved.notes:
        yield f"pe: note: {note}", INDENT
    for table in resolved.extra_tables:
        yield f"pe: note: {table.summary}: --table {table.name}", INDENT


def _short(value: Any) -> str:
    text = spell(value)
    return text if len(text) <= 40 else text[:37] + "…"


def _command_words(which: Which, rows: Rows, naming: options.Naming) -> list[str]:
    """The command line that makes this table again; the path is cut to its name."""
    words = ["pe", "gen", "model", PurePath(which.config).name]
    for group in (which, rows, naming):
        for field in fields(group):
            value = getattr(group, field.name)
            if field.name == "config" or value == field.default or value is None:
                continue
            if isinstance(value, bool):
                words.append(option_name(field.name if value else f"no_{field.name}"))
            else:
                words += gen.spelled_shared(field.name, value)
    return words


def _declare() -> None:
    """Give `model_command` the signature of its groups of options."""
    options.HEADINGS.update({Which: "Model", Rows: "Rows"})
    groups = (Which, Rows, options.Naming, options.Output)
    declared = [parameter for group in groups for parameter in options.declarations(group)]
    model_command.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
    model_command.__annotations__ = {parameter.name: parameter.annotation for parameter in declared}


_declare()
