"""`pe gen model`: the table of a model, made from its own configuration."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from pe_cli import positions
from pe_cli.commands import gen, options
from pe_cli.commands.options import argument, option
from pe_cli.errors import PeError, no_such, option_name
from pe_cli.models.layers import FUNCTIONS
from pe_cli.models.resolve import ALL_LAYERS, resolve_every
from pe_cli.models.resolved import EVERY_LENGTH, Resolved
from pe_cli.numerics.dtypes import dtype_name
from pe_cli.render import INDENT, spell
from pe_cli.tables import JoinedTables, Request, RowTable, Table, WholeTable

ENCODING_TABLE = "encoding"
ROW_ORDERS = ("model", "raster")
FROM_COMMAND_LINE = frozenset({"layout", "compute", "grid", "dtype"})  # in place of what the model has


@dataclass(frozen=True)
class Which:
    """Which table of which part of the model, and for what."""

    heading: ClassVar[str] = "Model"
    config: str = argument(
        "CONFIG",
        "config.json, a model folder, a .gguf file, a preset (llama-3.1), the name of a model in the local "
        "Hugging Face cache, or - (JSON on stdin).",
    )
    component: str | None = option("NAME", "Part of a composite model: text_config; dots go deeper.")
    layer_type: str | None = option(
        "NAME", "Where layer types differ: full_attention, encoder, …; all writes each as LAYER_TYPE.NAME."
    )
    seq_len: int | None = option(
        "N", "Length served, where the table depends on it (dynamic NTK, LongRoPE).", minimum=1, common=True
    )
    layout: str | None = option(
        "NAME",
        "A layout of `pe gen rope`, or the software that takes it: onnx, tensorrt-llm, vllm, sglang, transformers, "
        "diffusers, llama.cpp and others; by default as the model's own code stores it.",
        common=True,
    )
    truncate: bool | None = option(
        None, "Round YaRN's range or not, whatever the file says.", flags="--truncate/--no-truncate"
    )
    compute: str | None = option("NAME", "exact (default), or float32 as the frameworks compute.")
    grid: str | None = option("HxW", "Rows are the cells of this grid (vision towers, M-RoPE).", common=True)
    row_order: str = option(
        "NAME",
        "Of the cells of a grid: model, as its attention holds them, or raster, row by row.",
        default="model",
        choices=lambda: ROW_ORDERS,
    )
    table: str = option(
        "NAME",
        "encoding, or what the model has beside it: query-temperature, rotated-layers.",
        default=ENCODING_TABLE,
        choices=lambda: [ENCODING_TABLE, *FUNCTIONS],
    )


@dataclass(frozen=True)
class ModelRows(options.DistanceChoice):
    """Which rows or pairs, whatever the encoding turns out to be."""

    heading: ClassVar[str] = "Rows"
    shard: str | None = option("I/N", "Only the I-th (from 0) of N equal row blocks.")
    prefix_rows: int = option("N", "Zero rows in front.", default=0, minimum=0)


def model(which: Which, rows: ModelRows, naming: options.Naming, output: options.Output) -> None:
    """The encoding of a model, from its config.json, model folder or .gguf file.

    Reads Hugging Face configurations of transformers 4 and 5, those of other formats (params.json, mlc, litgpt,
    TensorRT-LLM, NeMo …) and GGUF metadata, prints each value with where it came from, and warns of every default
    that the file leaves to the model's class. Position settings that had no part in the table are named. The table
    comes in the layout in which the model's own code has it. `pe gen model --list` shows the presets with their values
    and where those were read. Models without rotation give their own encoding (ALiBi,
    T5, sinusoidal); a learned table is not in a configuration: then it says where it lies.

    \b
    Example:
      pe gen model ./Llama-3.1-8B/config.json --len 131072 -o cache.safetensors
    """
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
        origins = {
            f"{label}.{name}": of
            for label, one in every.items()
            for name, of in _origins(one, made[label][1]).items()
        }
        warnings = tuple(dict.fromkeys(said for one in every.values() for said in one.warnings))
    else:
        table, arguments = made[which.layer_type]
        origins, warnings = _origins(first, arguments), first.warnings
    name = first.encoding if which.table == ENCODING_TABLE else which.table
    command = options.command_line(("gen", "model"), *map(options.given_in, (which, rows, naming)))
    ledger = tuple(line for label, one in every.items() for line in _ledger(one, made[label][1]))
    notes = tuple(dict.fromkeys(note for one in every.values() for note in _notes(one)))
    more = {"unread": list(dict.fromkeys(key for one in every.values() for key in one.unread))}
    request = Request(name, table, command, arguments, origins, warnings, _title(first), ledger, notes, more)
    gen.emit(request, output)


def _table(
    resolved: Resolved, which: Which, rows: ModelRows, naming: options.Naming
) -> tuple[Table, dict[str, Any]]:
    """The table asked for, and its arguments."""
    arguments = _with_options(resolved, which, rows)
    if which.table == ENCODING_TABLE:
        table = _encoding_table(resolved, arguments, rows, naming, raster=which.row_order == "raster")
    else:
        table, arguments = _extra_table(resolved, which, rows, naming)
    if resolved.origins.get("policy") == EVERY_LENGTH:
        table.warnings = ()  # that long factors have a short side, which these do not
    table.facts = {**table.facts, **_model_facts(resolved)}
    return table, arguments


def _with_options(resolved: Resolved, which: Which, rows: ModelRows) -> dict[str, Any]:
    """The arguments of the encoding, with those that the command line gives."""
    arguments = dict(resolved.parameters)
    taken = gen.Encoding(resolved.encoding).parameters
    for name in ("layout", "compute"):
        value = getattr(which, name)
        if value is not None:
            if name not in taken:
                raise PeError(f"--{name} {value}: this model uses {resolved.encoding}, which has no {name}")
            arguments[name] = value
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
    if resolved.axes == 1:
        return gen.build(encoding, arguments, chosen, dtype=naming.dtype, name=naming.name)
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
        where = positions.parse(rows.positions, gen.load_positions)
        resolved.drop_grid(arguments, coordinates=where.block(0, 0).ndim == 2)
    function, taken, count = resolved.by_rows(encoding.function, arguments, raster=raster)
    if where is None:
        constants = None if count else gen.same_for_every_position(encoding, arguments)
        if constants is not None:
            return WholeTable(constants, naming.dtype, naming.name)
        length = count if rows.len is None else rows.len
        if length is None:
            raise PeError("which rows? Give --grid HxW, or --positions @FILE with coordinates")
        where = positions.first(length)
    gen.refuse_zero_rows(encoding, rows)
    shard = positions.parse_shard(rows.shard) if rows.shard else (0, 1)
    table = RowTable(function, taken, where, naming.dtype, naming.name, rows.prefix_rows, shard)
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
    _refuse(rows, {field.name for field in fields(rows)} - taken, f"this model uses {encoding.name}, which")
    return group(**{name: getattr(rows, name) for name in taken})


def _refuse(group: Any, names: Collection[str], what: str) -> None:
    """Raise for the first of the options `names` that was given, since `what` does not take it."""
    for field in fields(group):
        value = getattr(group, field.name)
        if field.name in names and value not in (None, 0):
            raise PeError(f"{option_name(field.name)} {value}: {what} does not take it")


def _extra_table(
    resolved: Resolved, which: Which, rows: ModelRows, naming: options.Naming
) -> tuple[Table, dict[str, Any]]:
    asked, known = which.table, {table.name: table for table in resolved.extra_tables}
    if asked not in known:
        raise no_such("table of this model", asked, [ENCODING_TABLE, *known])
    arguments = dict(known[asked].parameters)
    function = FUNCTIONS[asked]
    by_layer = known[asked].by == "layer"
    taken = set() if by_layer else {field.name for field in fields(options.RowChoice)}
    _refuse(which, ("layout", "compute", "grid"), f"--table {asked}")
    _refuse(rows, {field.name for field in fields(rows)} - taken, f"--table {asked}")
    if by_layer:
        _refuse(naming, ("dtype",), f"--table {asked}")
        return WholeTable(function(**arguments), None, naming.name), arguments
    where = positions.chosen(rows.len, rows.positions, load=gen.load_positions)
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


def _origins(resolved: Resolved, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Where each value came from: the file, or the command line where that gives another."""
    known = resolved.parameters
    given = {name for name in FROM_COMMAND_LINE & set(arguments) if arguments[name] != known.get(name)}
    origins = {**resolved.origins, **dict.fromkeys(given, "command line")}
    return {name: origins[name] for name in arguments if name in origins}


def _title(resolved: Resolved) -> str:
    kind = f" of {resolved.model_type}" if resolved.model_type else ""
    return f"{resolved.encoding}{kind}, from {resolved.file}"


def _ledger(resolved: Resolved, arguments: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Every value with where it came from, under the title."""
    yield f"pe: {_title(resolved)}", INDENT
    origins = _origins(resolved, arguments)
    shown = {name: _short(value) for name, value in arguments.items()}
    names = max((len(name) for name in shown), default=0)
    values = max((len(value) for value in shown.values()), default=0)
    for name, value in shown.items():
        yield f"pe:   {name:{names}}  {value:{values}}  {origins.get(name, '')}".rstrip(), names + values + 10


def _notes(resolved: Resolved) -> list[str]:
    return [*resolved.notes, *(f"{table.summary}: --table {table.name}" for table in resolved.extra_tables)]


def _short(value: Any) -> str:
    text = spell(value)
    return text if len(text) <= 40 else text[:37] + "…"


model_command = options.of_groups(model, Which, ModelRows, options.Naming, options.Output)
