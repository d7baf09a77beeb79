"""`pe gen ENCODING`: a subcommand for every encoding of the catalogue, derived from its function's signature."""

from __future__ import annotations

import inspect
import shlex
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import PurePath
from typing import Any

from pe_cli import catalogue, positions
from pe_cli.commands import derive, options
from pe_cli.commands import derive as docstring
from pe_cli.commands.emit import Request, emit
from pe_cli.errors import PeError, option_name, parameter
from pe_cli.files.sources import load_array, load_positions
from pe_cli.numerics.dtypes import dtype_name
from pe_cli.parallel import Run, mapping
from pe_cli.process import require_memory
from pe_cli.render.console import shown
from pe_cli.signature import Source
from pe_cli.tables import PairTable, RowTable, Table, WholeTable
from pe_cli.tensors import Tensors

# Widths of a row: lists of their length are made before anything is written.
LONGEST = {"dim": 1 << 22, "num_bands": 1 << 20, "heads": 1 << 20, "width": 1 << 20, "num_buckets": 1 << 24}
FILLERS = {"rope": "presets"}  # modules of this package that fill in arguments from elsewhere
ROWS = {"queries": "len", "keys": "k_len"}  # how the command line says what a function calls so
READERS = {Source.GRAPH: "read_graph", Source.FOREST: "read_forest"}


@dataclass(frozen=True)
class Filled:
    """Arguments that do not come one by one from the command line, and the words there that gave them."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


def gen_function(name: str) -> Callable[..., None]:
    """The Typer callback of `pe gen NAME`: its options are those of the function and those that all share."""
    encoding = Encoding(name)
    fill = import_module(f"pe_cli.commands.{FILLERS[name]}") if name in FILLERS else None
    own = fill.declarations(encoding.own) if fill else map(derive.typer_parameter, encoding.own.values())
    declared = [
        *own,
        *(options.declarations(encoding.rows) if encoding.rows else ()),
        *(options.declarations(options.Computing) if encoding.by_blocks else ()),
        *(derive.typer_parameter(p) for p in encoding.reader.values()),
        *(p for p in options.declarations(options.Naming) if p.name not in encoding.parameters),
        *options.declarations(options.Output),
    ]

    def run(**values: Any) -> None:
        generate(encoding, values, fill.fill(encoding.own, values) if fill else Filled())

    required = [p for p in declared if p.default is inspect.Parameter.empty]
    ordered = [*required, *(p for p in declared if p.default is not inspect.Parameter.empty)]
    run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in ordered}
    lines = textwrap.wrap(
        catalogue.CATALOGUE[name].example(name), 74, break_long_words=False, break_on_hyphens=False
    )
    example = " \\\n      ".join(lines)
    run.__doc__ = f"{docstring.read(encoding.function).text}\n\n\b\nExample:\n  {example}"
    return run


class Encoding:
    """An encoding with what its signature asks of the command line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.function = catalogue.load(name)
        self.parameters = derive.parameters(self.function)
        self.own = {n: p for n, p in self.parameters.items() if p.source not in derive.SUPPLIED}
        self.sources = {p.source: n for n, p in self.parameters.items() if p.source is not None}
        self.rows = self._row_options()
        self.reader = self._reader_options()

    def _row_options(self) -> type | None:
        if Source.POSITIONS in self.sources:
            return options.RowChoice
        if Source.DISTANCES in self.sources:
            return options.DistanceChoice
        if Source.GRAPH in self.sources:
            return options.GraphChoice
        return options.PairChoice if Source.QUERIES in self.sources else None

    @property
    def by_blocks(self) -> bool:
        """Whether the table can be computed in blocks, which several processes can share."""
        return self.rows in (options.RowChoice, options.GraphChoice)

    @property
    def needs_rows(self) -> bool:
        """Whether the function can do nothing without positions, queries, keys or distances."""
        supplied = [self.parameters[n] for source, n in self.sources.items() if source in derive.SUPPLIED]
        return any(parameter.required for parameter in supplied)

    def _reader_options(self) -> dict[str, derive.Parameter]:
        for source, reader in READERS.items():
            if source in self.sources:
                from pe_cli import structures

                return dict(list(derive.parameters(getattr(structures, reader)).items())[1:])
        return {}


def generate(encoding: Encoding, values: dict[str, Any], filled: Filled) -> None:
    """Build the table that the command line asks for and hand it to its output."""
    output: options.Output = options.take(options.Output, values)
    rows = options.take(encoding.rows, values) if encoding.rows else None
    computing = options.take(options.Computing, values) if encoding.by_blocks else options.Computing()
    given = {n: values[n] for n in (*encoding.own, *encoding.reader)}
    try:
        with mapping(computing.workers, computing.dask) as run:
            _generate(encoding, given, filled, rows, output, values.get("dtype"), values["name"], run)
    except PeError as error:
        raise PeError(error.spelled(speller(encoding, given))) from error
    except ArithmeticError as error:
        raise PeError(
            f"{encoding.name}: these numbers are too large or too small to compute with ({error})"
        ) from error


def _generate(
    encoding: Encoding,
    given: Mapping[str, Any],
    filled: Filled,
    rows: Any,
    output: options.Output,
    dtype: str | None,
    name: str | None,
    run: Run,
) -> None:
    if dtype is not None and "dtype" not in encoding.own:
        dtype = dtype_name(dtype)
    if name is not None:
        _require_text(name)
    with shown(quiet=output.quiet):
        arguments = {**_arguments(encoding, given, filled.arguments), **filled.arguments}
        _require_use(encoding, arguments, rows)
        table = build(encoding, arguments, rows, dtype=dtype, name=name)
        table.run = run
    if dtype is not None and "dtype" not in encoding.own and table.holds_integers:
        raise PeError(f"--dtype {dtype}: this table holds whole numbers, leave --dtype out")
    words = [*command_words(encoding, given, rows, dtype=dtype, name=name), *filled.words]
    made = {**arguments, **_asked(rows)}
    emit(Request(encoding.name, table, shlex.join(words), made, output, filled.origins, filled.warnings))


def build(
    encoding: Encoding,
    arguments: dict[str, Any],
    rows: Any,
    *,
    dtype: str | None = None,
    name: str | None = None,
) -> Table:
    """The table of `encoding` with its own `arguments` and the rows asked for."""
    for n, most in LONGEST.items():
        if n in arguments and (arguments[n] or 0) > most:
            raise PeError(f"{parameter(n)} {arguments[n]}: at most {most}, a single row would be too large")
    if isinstance(rows, options.GraphChoice):
        return _of_graphs(encoding, arguments, rows.shard, dtype, name)
    chosen = _asked(rows)
    if not chosen and not encoding.needs_rows:
        return WholeTable(encoding.function(**arguments), dtype, name)
    if isinstance(rows, options.RowChoice):
        if not chosen and not arguments.get("grid"):
            constants = same_for_every_position(encoding, arguments)
            if constants is not None:
                return WholeTable(constants, dtype, name)
        if rows.prefix_rows and catalogue.CATALOGUE[encoding.name].family == "rotary":
            raise PeError(
                f"--prefix-rows {rows.prefix_rows}: rows of zeros would wipe these tokens out of a rotary table; "
                "position 0 leaves a token as it is, so write --positions 0,0:N"
            )
        shard = positions.parse_shard(rows.shard) if rows.shard else (0, 1)
        where = chosen_positions(encoding, rows, arguments)
        return RowTable(encoding.function, arguments, where, dtype, name, rows.prefix_rows, shard)
    pairs = chosen_pairs(encoding, rows) if rows is not None else {}
    if "queries" in pairs:
        by_distance = Source.DISTANCES in encoding.sources
        return PairTable(
            encoding.function, arguments, **pairs, by_distance=by_distance, dtype=dtype, key=name
        )
    return WholeTable(encoding.function(**arguments, **pairs), dtype, name)


def _of_graphs(
    encoding: Encoding, arguments: dict[str, Any], shard: str | None, dtype: str | None, name: str | None
) -> Table:
    """The table of one graph, or of the graphs of a dataset."""
    from pe_cli.dataset_tables import DatasetTable, by_blocks
    from pe_cli.structures import GraphDataset

    dataset = arguments[encoding.sources[Source.GRAPH]]
    if isinstance(dataset, GraphDataset) and by_blocks(encoding.function, arguments):
        part = positions.parse_shard(shard) if shard else (0, 1)
        return DatasetTable(encoding.function, arguments, dataset, dtype, name, part)
    if shard:
        what = (
            "this form of the table has no rows that could be divided"
            if isinstance(dataset, GraphDataset)
            else "this is one graph, and only those of a dataset are divided"
        )
        raise PeError(f"{parameter('shard')} {shard}: {what}")
    return WholeTable(encoding.function(**arguments), dtype, name)


def _asked(rows: Any) -> dict[str, Any]:
    """The row options that were given, also where they ask for nothing."""
    if rows is None:
        return {}
    return {f.name: getattr(rows, f.name) for f in fields(rows) if getattr(rows, f.name) != f.default}


def same_for_every_position(encoding: Encoding, arguments: dict[str, Any]) -> Tensors | None:
    """The tensors if none of them has a row for each position (frequencies, factors), else None."""
    import numpy as np

    tensors = encoding.function(np.arange(0), **arguments)
    return tensors if all(array.size for array in tensors.values()) else None


def chosen_positions(
    encoding: Encoding, rows: options.RowChoice, arguments: Mapping[str, Any]
) -> positions.Positions:
    """The positions of `--positions`, `--len` or `--grid`."""
    if rows.positions is not None:
        if rows.len is not None:
            raise PeError("--len and --positions both say which rows: give one of them")
        return positions.parse(rows.positions, load_positions)
    grid = arguments.get("grid")
    if rows.len is None and grid:
        size = 1
        for side in grid:
            size *= side
        return positions.first(size, f"--grid {'x'.join(map(str, grid))}")
    if rows.len is None:
        also = " or --grid HxW" if "grid" in encoding.parameters else ""
        raise PeError(f"which rows? Give --len N or --positions SPEC{also}")
    rule = getattr(encoding.function, "default_positions", None)
    if rule is None:
        return positions.first(rows.len)
    positions.first(rows.len)
    require_memory(16 * rows.len, f"--len {rows.len}", "ask for some of them by --positions")
    return positions.Positions([positions.Rows(rule(rows.len, **arguments))], f"--len {rows.len}")


def chosen_pairs(encoding: Encoding, rows: options.PairChoice) -> dict[str, Any]:
    """The arguments that say which queries and keys, or which distances."""
    import numpy as np

    distances = getattr(rows, "distances", None)
    if distances is not None:
        if _asked(rows).keys() - {"shard"} != {"distances"}:
            raise PeError(
                "--distances is a list instead of pairs: leave out --len, --q-len, --k-len and --positions"
            )
        where = positions.parse(distances, load_positions, "--distances")
        require_memory(16 * len(where), f"--distances {distances}", "ask for fewer")
        listed = _integers(where.block(0, len(where)), "--distances")
        return {encoding.sources[Source.DISTANCES]: _part(listed, rows.shard)}
    k_len = rows.k_len if rows.k_len is not None else rows.len
    q_len = rows.q_len if rows.q_len is not None else rows.len
    if k_len is None or (q_len is None and rows.positions is None):
        also = " or --distances A:B" if hasattr(rows, "distances") else ""
        raise PeError(f"which pairs? Give --len N, or --q-len and --k-len{also}")
    keys = positions.first(k_len, None if rows.k_len is None else f"--k-len {k_len}")
    require_memory(16 * k_len, f"a table of {k_len} keys", "ask for fewer by --k-len")
    if rows.positions is not None:
        where = positions.parse(rows.positions, load_positions)
        require_memory(16 * len(where), f"--positions {rows.positions}", "ask for fewer")
        queries = _integers(where.block(0, len(where)), "--positions")
    else:
        assert q_len is not None
        positions.first(q_len, None if rows.q_len is None else f"--q-len {q_len}")
        if q_len > k_len:
            raise PeError(
                f"--q-len {q_len}: the queries are the last of the {k_len} keys, so there cannot be more"
            )
        queries = np.arange(k_len - q_len, k_len)
    queries = _part(queries, rows.shard)
    pairs: dict[str, Any] = {}
    for source, name in encoding.sources.items():
        # A function that takes queries takes distances instead of them, not beside them.
        if source is Source.QUERIES:
            pairs[name] = queries
        elif source is Source.KEYS:
            pairs[name] = keys.block(0, k_len)
    return pairs


def _part(values: Any, shard: str | None) -> Any:
    """The `I/N`-th block of the queries or distances."""
    if shard is None:
        return values
    index, count = positions.parse_shard(shard)
    return values[len(values) * index // count : len(values) * (index + 1) // count]


def speller(encoding: Encoding, given: Mapping[str, Any]) -> Callable[[str], str]:
    """How the command line writes a parameter: its option, with the file that was given, or the file alone."""

    def spell(name: str) -> str:
        own = encoding.parameters.get(name) or encoding.reader.get(name)
        if own is None or name in ROWS:
            return option_name(ROWS.get(name, name))
        typed = given.get(name)
        if own.source in derive.READ_FROM_FILE:
            return str(typed)
        return f"{own.option} {typed}" if own.source is Source.ARRAY and typed else own.option

    return spell


def command_words(
    encoding: Encoding, given: Mapping[str, Any], rows: Any, *, dtype: str | None, name: str | None
) -> list[str]:
    """The command line that makes this table again: paths are cut to names, defaults left out."""
    words = ["pe", "gen", encoding.name]
    for n, p in {**encoding.own, **encoding.reader}.items():
        value = given[n]
        if p.source in derive.READ_FROM_FILE:
            words.append(PurePath(value).name)
        elif value is not None and (p.required or value != p.default):
            words += derive.spelled(p, PurePath(value).name if p.source is Source.ARRAY else value)
    shared = dict(vars(rows)) if rows is not None else {}
    if "dtype" not in encoding.own:
        shared["dtype"] = dtype
    shared["name"] = name
    for n, value in shared.items():
        if value:
            words += spelled_shared(n, value)
    return words


def spelled_shared(name: str, value: Any) -> list[str]:
    """The words that give a shared option."""
    option, text = option_name(name), str(value)
    return [f"{option}={text}"] if text.startswith("-") else [option, text]


def _arguments(encoding: Encoding, given: Mapping[str, Any], filled: Mapping[str, Any]) -> dict[str, Any]:
    """What the command line gives, where nothing else does."""
    own = {n: p for n, p in encoding.own.items() if n not in filled}
    arguments = {n: derive.argument(p, given[n], load_array) for n, p in own.items()}
    for source, reader in READERS.items():
        if source in encoding.sources:
            from pe_cli import structures

            n = encoding.sources[source]
            read = {r: derive.argument(p, given[r], load_array) for r, p in encoding.reader.items()}
            arguments[n] = getattr(structures, reader)(arguments[n], **read)
    return arguments


def _require_use(encoding: Encoding, arguments: Mapping[str, Any], rows: Any) -> None:
    """Refuse options that only say which rows --len means where --positions says it."""
    if getattr(rows, "positions", None) is None:
        return
    for n in getattr(encoding.function, "only_by_default", ()):
        p = encoding.parameters[n]
        if arguments[n] != p.default:
            raise PeError(f"{' '.join(derive.spelled(p, arguments[n]))} is about --len: --positions says all")


def _require_text(name: str) -> None:
    """A tensor's name goes into headers in UTF-8."""
    if not name or not name.isprintable():
        raise PeError(f"--name {name!r}: a tensor's name is text that can be printed")


def _integers(values: Any, option: str) -> Any:
    if values.dtype.kind != "i" or values.ndim != 1:
        raise PeError(f"{option}: these are whole numbers, one axis")
    return values
