"""`pe gen model`: the table of a model, made from its own configuration."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import PurePath
from typing import Annotated, Any

import typer

from pe_cli import positions
from pe_cli.commands import gen, options
from pe_cli.commands.emit import Request, emit
from pe_cli.errors import PeError, no_such, option_name
from pe_cli.files.sources import load_positions
from pe_cli.models.layers import FUNCTIONS
from pe_cli.models.resolve import ALL_LAYERS, resolve_every
from pe_cli.models.resolved import EVERY_LENGTH, Resolved
from pe_cli.numerics.dtypes import dtype_name
from pe_cli.render.console import INDENT, spell
from pe_cli.tables import JoinedTables, RowTable, Table, WholeTable

ENCODING_TABLE = "encoding"
ROW_ORDERS = ("model", "raster")


@dataclass(frozen=True)
class Which:
    """Which table of which part of the model, and for what."""

    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="config.json, a model folder, a .gguf file, a preset (llama-3.1), the name of a model in the local "
            "Hugging Face cache, or - (JSON on stdin).",
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
            "--layer-type",
            metavar="NAME",
            help="Where layer types differ: full_attention, encoder, …; all writes each as LAYER_TYPE.NAME.",
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
    row_order: Annotated[
        str,
        typer.Option(
            "--row-order",
            metavar="NAME",
            help="Of the cells of a grid: model, as its attention holds them, or raster, row by row.",
            autocompletion=lambda: list(ROW_ORDERS),
        ),
    ] = "model"
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
class ModelRows(options.DistanceChoice):
    """Which rows or pairs, whatever the encoding turns out to be."""

    shard: options.Shard = None
    prefix_rows: Annotated[
        int, typer.Option("--prefix-rows", metavar="N", min=0, help="Zero rows in front.")
    ] = 0


def model_command(**values: Any) -> None:
    """The encoding of a model, from its config.json, model folder or .gguf file.

    Reads Hugging Face configurations of transformers 4 and 5, those of other formats (params.json, mlc, litgpt,
    TensorRT-LLM, NeMo …) and GGUF metadata, prints each value with where it came from, and warns of every default
    that the file leaves to the model's class. Position settings that had no part in the table are named. The table
    comes in the layout in which the model's own code has it. Models without rotation give their own encoding (ALiBi,
    T5, sinusoidal); a learned table is not in a configuration: then it says where it lies.

    \b
    Example:
      pe gen model ./Llama-3.1-8B/config.json --len 131072 -o cache.safetensors
    """
    which: Which = options.take(Which, values)
    naming: options.Naming = options.take(options.Naming, values)
    output: options.Output = options.take(options.Output, values)
    rows: ModelRows = options.take(ModelRows, values)
    if which.row_order not in ROW_ORDERS:
        raise no_such("row order", which.row_order, ROW_ORDERS)
    every = resolve_every(
        which.config,
        component=which.component,
        layer_type=which.layer_type,
        seq_len=which.seq_len,
        truncate=which.truncate,
    )
    if naming.dtype is not None:
        naming = replace(naming, dtype=dtype_name(naming.dtype))
    made = {label: _table(resolved, which, rows, naming) for label, resolved in every.items()}
    first = next(iter(every.values()))
    if which.layer_type == ALL_LAYERS:
        table: Table = JoinedTables({str(label): one for label, (one, _) in made.items()})
        arguments: dict[str, Any] = {str(label): given for label, (_, given) in made.items()}
        origins = {f"{label}.{name}": of for label, one in every.items() for name, of in one.origins.items()}
        warnings = tuple(dict.fromkeys(said for one in every.values() for said in one.warnings))
    else:
        table, arguments = made[which.layer_type]
        origins, warnings = first.origins, first.warnings
    name = first.encoding if which.table == ENCODING_TABLE else which.table
    command = shlex.join(_command_words(which, rows, naming))
    remarks = tuple(remark for label, one in every.items() for remark in _remarks(one, made[label][1]))
    more = {"unread": list(dict.fromkeys(key for one in every.values() for key in one.unread))}
    emit(Request(name, table, command, arguments, output, origins, warnings, remarks, more))


def _table(
    resolved: Resolved, which: Which, rows: ModelRows, naming: options.Naming
) -> tuple[Table, dict[str, Any]]:
    """The table asked for, and its arguments."""
    arguments = _with_options(resolved, which, rows)
    if which.table == ENCODING_TABLE:
        table = _encoding_table(resolved, arguments, rows, naming, raster=which.row_order == "raster")
    else:
        table, arguments = _extra_table(resolved, which.table, rows, naming)
    if resolved.origins.get("policy") == EVERY_LENGTH:
        table.warnings = ()  # that long factors have a short side, which these do not
    table.facts = {**table.facts, **_model_facts(resolved)}
    return table, arguments


def _with_options(resolved: Resolved, which: Which, rows: ModelRows) -> dict[str, Any]:
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
    elif resolved.axes == 1 and (rows.positions is not None or rows.len is not None):
        resolved.drop_grid(arguments, coordinates=False)
    if which.row_order != "model" and resolved.axes == 1:
        raise PeError(
            f"--row-order {which.row_order}: this model has no grid of patches, its rows are positions"
        )
    return arguments


def _encoding_table(
    resolved: Resolved, arguments: dict[str, Any], rows: ModelRows, naming: options.Naming, *, raster: bool
) -> Table:
    encoding = gen.Encoding(resolved.encoding)
    if "dtype" in encoding.parameters and naming.dtype is not None:
        arguments["dtype"] = naming.dtype
    chosen = _chosen_rows(encoding, rows)
    dtype = None if "dtype" in encoding.parameters else naming.dtype
    if resolved.axes == 1:
        return gen.build(encoding, arguments, chosen, dtype=dtype, name=naming.name)
    return _table_of_cells(resolved, encoding, arguments, chosen, naming, raster=raster)


def _table_of_cells(
    resolved: Resolved,
    encoding: gen.Encoding,
    arguments: dict[str, Any],
    rows: options.RowChoice,
    naming: options.Naming,
    *,
    raster: bool,
) -> Table:
    """The table of a model whose positions have several coordinates: cells of a grid, or places of an array."""
    where = None
    if rows.positions is not None:
        if rows.len is not None:
            raise PeError("--len and --positions both say which rows: give one of them")
        where = positions.parse(rows.positions, load_positions)
        resolved.drop_grid(arguments, coordinates=where.block(0, 0).ndim == 2)
    function, taken, count = resolved.by_rows(encoding.function, arguments, raster=raster)
    if where is None:
        constants = None if count else gen.same_for_every_position(encoding, arguments)
        if constants is not None:
            return WholeTable(constants, None, naming.name)
        length = count if rows.len is None else rows.len
        if length is None:
            raise PeError("which rows? Give --grid HxW, or --positions @FILE with coordinates")
        where = positions.first(length)
    if rows.prefix_rows:
        raise PeError(
            f"--prefix-rows {rows.prefix_rows}: rows of zeros would wipe these tokens out of a rotary table"
        )
    shard = positions.parse_shard(rows.shard) if rows.shard else (0, 1)
    table = RowTable(function, taken, where, None, naming.name, 0, shard)
    if count is not None and where.block(0, 0).ndim == 1:
        table.facts = {**table.facts, "row_order": resolved.order_of_rows(raster=raster)}
    return table


def _chosen_rows(encoding: gen.Encoding, rows: ModelRows) -> Any:
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
    resolved: Resolved, asked: str, rows: ModelRows, naming: options.Naming
) -> tuple[Table, dict[str, Any]]:
    known = {table.name: table for table in resolved.extra_tables}
    if asked not in known:
        raise no_such("table of this model", asked, [ENCODING_TABLE, *known])
    arguments = dict(known[asked].parameters)
    function = FUNCTIONS[asked]
    if known[asked].by == "layer":
        return WholeTable(function(**arguments), None, naming.name), arguments
    if rows.positions is None and rows.len is None:
        raise PeError("which rows? Give --len N or --positions SPEC")
    where = (
        positions.parse(rows.positions, load_positions) if rows.positions else positions.first(rows.len or 0)
    )
    shard = positions.parse_shard(rows.shard) if rows.shard else (0, 1)
    dtype = naming.dtype or "float32"
    return RowTable(function, arguments, where, dtype, naming.name, rows.prefix_rows, shard), arguments


def _model_facts(resolved: Resolved) -> dict[str, Any]:
    """What the file says about the model, beside the arguments."""
    facts = {
        "model_type": resolved.model_type,
        "component": resolved.component,
        "layer_type": resolved.layer_type,
        "layers": list(resolved.layers),
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


def _command_words(which: Which, rows: ModelRows, naming: options.Naming) -> list[str]:
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
    options.HEADINGS.update({Which: "Model", ModelRows: "Rows"})
    groups = (Which, ModelRows, options.Naming, options.Output)
    declared = [parameter for group in groups for parameter in options.declarations(group)]
    model_command.__signature__ = inspect.Signature(declared)  # type: ignore[attr-defined]
    model_command.__annotations__ = {parameter.name: parameter.annotation for parameter in declared}


_declare()
