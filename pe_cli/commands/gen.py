"""`pe gen ENCODING`: a subcommand for every encoding of the catalogue, derived from its function's signature."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pe_cli import catalogue, positions
from pe_cli.commands import options
from pe_cli.commands.options import Option
from pe_cli.errors import PeError, option_name, parameter
from pe_cli.files import NoSuchTypeError, default_format
from pe_cli.files.sinks import open_sink
from pe_cli.files.text import canonical, jsonable, metadata
from pe_cli.numerics.dtypes import dtype_name
from pe_cli.process import size
from pe_cli.render import shown, tell
from pe_cli.signature import READ_FROM_FILE, SUPPLIED, Meaning
from pe_cli.tables import PairTable, Request, RowTable, Table, WholeTable
from pe_cli.tensors import Tensors

if TYPE_CHECKING:
    import typer
    from numpy.typing import NDArray

SCHEMA = "pe.gen/1"
MEASURED = ("residual",)  # facts that are reported and not stored, since they differ between processors
NAMELESS = ("npy", "npz")  # formats without metadata
FOREIGN_TO_NUMPY = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})
LARGEST_FILE = 2**63 - 2**32  # with room for a header
# Widths of a row: lists of their length are made before anything is written.
LONGEST = {"dim": 1 << 22, "num_bands": 1 << 20, "heads": 1 << 20, "width": 1 << 20, "num_buckets": 1 << 24}
ROWS = {"queries": "len", "keys": "k_len"}  # how the command line says what a function calls so
READERS = {Meaning.GRAPH: "read_graph", Meaning.FOREST: "read_forest"}
WITH_PRESETS = "rope"


class Encoding:
    """An encoding with what its signature asks of the command line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.function = catalogue.load(name)
        self.parameters = options.of_function(self.function)
        self.own = {n: p for n, p in self.parameters.items() if p.meaning not in SUPPLIED}
        self.sources = {p.meaning: n for n, p in self.parameters.items() if p.meaning is not None}
        self.rows = self._row_options()
        self.reader = self._reader_options()

    def _row_options(self) -> type | None:
        if Meaning.POSITIONS in self.sources:
            return options.RowChoice
        if Meaning.DISTANCES in self.sources:
            return options.DistanceChoice
        if Meaning.GRAPH in self.sources:
            return options.GraphChoice
        return options.PairChoice if Meaning.QUERIES in self.sources else None

    @property
    def by_blocks(self) -> bool:
        """Whether the table can be computed in blocks, which several processes can share."""
        return self.rows in (options.RowChoice, options.GraphChoice)

    @property
    def needs_rows(self) -> bool:
        """Whether the function can do nothing without positions, queries, keys or distances."""
        supplied = [self.parameters[n] for source, n in self.sources.items() if source in SUPPLIED]
        return any(parameter.required for parameter in supplied)

    def _reader_options(self) -> dict[str, Option]:
        for source, reader in READERS.items():
            if source in self.sources:
                from pe_cli import structures

                return dict(list(options.of_function(getattr(structures, reader)).items())[1:])
        return {}

    def declared(self) -> list[Option]:
        """Every option of `pe gen NAME`."""
        own = list(self.own.values())
        if self.name == WITH_PRESETS:
            own = [PRESET, *(replace(p, required=False, default=None) if p.required else p for p in own)]
        return [
            *own,
            *(options.of_group(self.rows) if self.rows else ()),
            *(options.of_group(options.Computing) if self.by_blocks else ()),
            *self.reader.values(),
            *(p for p in options.of_group(options.Naming) if p.name not in self.parameters),
            *options.of_group(options.Output),
        ]

    def example(self) -> str:
        """The example of the catalogue, in lines that fit a terminal."""
        line = catalogue.CATALOGUE[self.name].example(self.name)
        return " \\\n      ".join(textwrap.wrap(line, 74, break_long_words=False, break_on_hyphens=False))


def gen_function(name: str) -> Callable[..., None]:
    """The callback of `pe gen NAME`: its options are those of the function and those that all share."""
    encoding = Encoding(name)
    run = partial(generate, encoding)
    run.__doc__ = f"{options.documentation(encoding.function).text}\n\n\b\nExample:\n  {encoding.example()}"
    return options.command(run, encoding.declared(), context=name == WITH_PRESETS)


def generate(encoding: Encoding, **values: Any) -> None:
    """Build the table that the command line asks for and hand it to its output."""
    filled = fill(encoding, values) if encoding.name == WITH_PRESETS else Filled()
    output = options.take(options.Output, values)
    rows: Any = options.take(encoding.rows, values) if encoding.rows else None
    computing = options.take(options.Computing, values) if encoding.by_blocks else options.Computing()
    try:
        with _mapping(computing) as run:
            request = _made(encoding, values, filled, rows, output)
            for option, value in _asked(computing).items() if isinstance(request.table, WholeTable) else ():
                raise PeError(f"{parameter(option)} {value}: this table has no blocks to share out")
            request.table.run = run
            emit(request, output)
    except PeError as error:
        raise PeError(error.spelled(speller(encoding, values))) from error
    except ArithmeticError as error:
        raise PeError(
            f"{encoding.name}: these numbers are too large or too small to compute with ({error})"
        ) from error


@contextmanager
def _mapping(computing: options.Computing) -> Iterator[Any]:
    if computing == options.Computing():
        yield map
        return
    from pe_cli.parallel import mapping

    with mapping(computing.workers, computing.dask) as run:
        yield run


def _made(
    encoding: Encoding, values: Mapping[str, Any], filled: Filled, rows: Any, output: options.Output
) -> Request:
    name, dtype = values["name"], values["dtype"]
    rounds_itself = "dtype" in encoding.own
    if dtype is not None:
        dtype = dtype_name(dtype)
    if name is not None:
        _require_text(name)
    with shown(quiet=output.quiet):
        arguments = {**_arguments(encoding, values, filled.arguments), **filled.arguments}
        _require_use(encoding, arguments, rows)
        table = build(encoding, arguments, rows, dtype=dtype, name=name)
    if dtype is not None and not rounds_itself and table.holds_integers:
        raise PeError(f"{parameter('dtype')} {dtype}: this table holds whole numbers, leave it out")
    naming = options.Naming(None if rounds_itself else dtype, name)
    command = options.command_line(
        ("gen", encoding.name),
        [(p, values[n]) for n, p in {**encoding.own, **encoding.reader}.items()],
        options.given_in(rows) if rows is not None else (),
        options.given_in(naming),
        filled.words,
    )
    made = {**arguments, **_asked(rows)}
    return Request(encoding.name, table, command, made, filled.origins, filled.warnings)


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
        return _of_graphs(encoding, arguments, rows, dtype, name)
    asked = _asked(rows)
    if not asked and not encoding.needs_rows:
        return WholeTable(encoding.function(**arguments), dtype, name)
    if isinstance(rows, options.RowChoice):
        if not asked and not arguments.get("grid"):
            constants = same_for_every_position(encoding, arguments)
            if constants is not None:
                return WholeTable(constants, dtype, name)
        refuse_zero_rows(encoding, rows)
        rule = getattr(encoding.function, "default_positions", None)
        where = positions.chosen(
            rows.len,
            rows.positions,
            load=load_positions,
            grid=arguments.get("grid"),
            has_grid="grid" in encoding.parameters,
            rule=None if rule is None else lambda length: rule(length, **arguments),
        )
        shard = positions.parse_shard(rows.shard) if rows.shard else (0, 1)
        return RowTable(encoding.function, arguments, where, dtype, name, rows.prefix_rows, shard)
    if rows is None:
        return WholeTable(encoding.function(**arguments), dtype, name)
    by_distance = Meaning.DISTANCES in encoding.sources
    if by_distance and rows.distances is not None:
        if asked.keys() - {"shard"} != {"distances"}:
            raise PeError(
                "--distances is a list instead of pairs: leave out --len, --q-len, --k-len and --positions"
            )
        listed = positions.part(positions.distances(rows.distances, load_positions), rows.shard)
        return WholeTable(encoding.function(**arguments, distances=listed), dtype, name)
    queries, keys = positions.pairs(
        rows.len, rows.q_len, rows.k_len, rows.positions, load=load_positions, by_distance=by_distance
    )
    return PairTable(
        encoding.function,
        arguments,
        positions.part(queries, rows.shard),
        keys,
        by_distance=by_distance,
        dtype=dtype,
        key=name,
    )


def refuse_zero_rows(encoding: Encoding, rows: options.RowChoice) -> None:
    """Raise where rows of zeros are wanted in front of a rotary table."""
    if rows.prefix_rows and catalogue.CATALOGUE[encoding.name].family == "rotary":
        raise PeError(
            f"--prefix-rows {rows.prefix_rows}: rows of zeros would wipe these tokens out of a rotary table; "
            "position 0 leaves a token as it is, so write --positions 0,0:N"
        )


def _of_graphs(
    encoding: Encoding,
    arguments: dict[str, Any],
    rows: options.GraphChoice,
    dtype: str | None,
    name: str | None,
) -> Table:
    """The table of one graph, or of the graphs of a dataset."""
    from pe_cli.dataset_tables import DatasetTable, by_blocks
    from pe_cli.structures import GraphDataset

    dataset = arguments[encoding.sources[Meaning.GRAPH]]
    if isinstance(dataset, GraphDataset) and by_blocks(encoding.function, arguments):
        part = positions.parse_shard(rows.shard) if rows.shard else (0, 1)
        return DatasetTable(encoding.function, arguments, dataset, dtype, name, part, rows.pad_to)
    for option, value in _asked(rows).items():
        what = (
            "this form of the table has no rows that could be divided or filled up"
            if isinstance(dataset, GraphDataset)
            else "this is one graph, and only those of a dataset are divided or filled up"
        )
        raise PeError(f"{parameter(option)} {value}: {what}")
    return WholeTable(encoding.function(**arguments), dtype, name)


def _asked(rows: Any) -> dict[str, Any]:
    """The row options that were given, also where they ask for nothing."""
    if rows is None:
        return {}
    return {one.name: value for one, value in options.given_in(rows) if value != one.default}


def same_for_every_position(encoding: Encoding, arguments: dict[str, Any]) -> Tensors | None:
    """The tensors if none of them has a row for each position (frequencies, factors), else None."""
    import numpy as np

    tensors = encoding.function(np.arange(0), **arguments)
    return tensors if all(array.size for array in tensors.values()) else None


def load_positions(source: str) -> NDArray[Any]:
    """The positions of `@FILE`."""
    from pe_cli.files import sources

    return sources.load_positions(source)


def load_array(source: str) -> NDArray[Any]:
    """The table of `FILE` or `FILE:TENSOR`."""
    from pe_cli.files import sources

    return sources.load_array(source)


def speller(encoding: Encoding, given: Mapping[str, Any]) -> Callable[[str], str]:
    """How the command line writes a parameter: its option, with the file that was given, or the file alone."""

    def spell(name: str) -> str:
        own = encoding.parameters.get(name) or encoding.reader.get(name)
        if own is None or name in ROWS:
            return option_name(ROWS.get(name, name))
        typed = given.get(name)
        if own.meaning in READ_FROM_FILE:
            return str(typed)
        on, _, off = own.flag.partition("/")
        if off and typed is False and own.default is not False:
            return off
        return f"{on} {typed}" if own.meaning is Meaning.ARRAY and typed else on

    return spell


def _arguments(encoding: Encoding, given: Mapping[str, Any], filled: Mapping[str, Any]) -> dict[str, Any]:
    """What the command line gives, where nothing else does."""
    arguments = {
        n: options.taken(p, given[n], load_array) for n, p in encoding.own.items() if n not in filled
    }
    for source, reader in READERS.items():
        if source in encoding.sources:
            from pe_cli import structures

            n = encoding.sources[source]
            read = {r: options.taken(p, given[r], load_array) for r, p in encoding.reader.items()}
            arguments[n] = getattr(structures, reader)(arguments[n], **read)
    return arguments


def _require_use(encoding: Encoding, arguments: Mapping[str, Any], rows: Any) -> None:
    """Refuse options that only say which rows --len means where --positions says it."""
    if getattr(rows, "positions", None) is None:
        return
    for n in getattr(encoding.function, "only_by_default", ()):
        p = encoding.parameters[n]
        if p.parameter is not None and arguments[n] != p.parameter.default:
            raise PeError(f"{' '.join(p.words(arguments[n]))} is about --len: --positions says all")


def _require_text(name: str) -> None:
    """A tensor's name goes into headers in UTF-8."""
    if not name or not name.isprintable():
        raise PeError(f"--name {name!r}: a tensor's name is text that can be printed")


# Presets


class Filled(NamedTuple):
    """Arguments that do not come one by one from the command line, and the words there that gave them."""

    arguments: Mapping[str, Any] = {}
    origins: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()
    words: tuple[tuple[Option, Any], ...] = ()


def _preset_names() -> list[str]:
    from pe_cli.models.read import preset_names

    return preset_names()


PRESET = Option(
    "preset",
    flags=("--preset",),
    metavar="NAME",
    help="Values of a well-known model, such as llama-3.1 or gemma-3-4b:sliding_attention; "
    "an option beside it wins.",
    choices=_preset_names,
    heading="Encoding",
    common=True,
)


def fill(encoding: Encoding, values: dict[str, Any]) -> Filled:
    """The arguments that the preset gives: those that the command line does not name itself."""
    context: typer.Context = values.pop("context")
    name = values.pop("preset")
    if name is None:
        if values["dim"] is None and values["axes"] is None:
            raise PeError("which width? Give --dim N, or --preset NAME for the values of a well-known model")
        return Filled()
    from pe_cli.encodings.rope.scaling import scaling_options
    from pe_cli.models.resolve import preset

    sources = {n: context.get_parameter_source(n) for n in encoding.own}
    named = {n for n, source in sources.items() if source is not None and source.name == "COMMANDLINE"}
    resolved = preset(name, seq_len=values["seq_len"])
    if "scaling" in named:
        # Another scaling does not take what belongs to the model's own.
        named |= set(scaling_options(resolved.parameters.get("scaling", "none")))
    kept = {n: value for n, value in resolved.parameters.items() if n not in named and n != "layout"}
    origins = {n: f"{resolved.origins[n]}, preset {name}" for n in kept if n in resolved.origins}
    return Filled(kept, origins, resolved.warnings, ((PRESET, name),))


# Output: bytes into a file or pipe, a summary and a picture at a terminal, JSON where asked


def emit(request: Request, output: options.Output) -> None:
    """Write, show and report as the output options say."""
    table = request.table
    writes = output.output is not None or not (output.json or sys.stdout.isatty())
    if not writes and output.format:
        raise PeError(f"--format {output.format}: nothing is written to a terminal; give -o FILE or a pipe")
    output.require_targets()
    if writes:
        with shown(quiet=output.quiet):
            write(request, output)
    if output.plot:
        from pe_cli.render.plots import plot_table

        plot_table(request, output.plot, force=output.force)
    if output.json:
        print(canonical(report(request, output.output)))
    if not output.quiet:
        for line, indent in request.ledger if writes or output.json else ():
            tell(line, indent=indent)
        for note in request.notes:
            tell(f"pe: note: {note}")
        for warning in (*table.warnings, *request.warnings):
            tell(f"pe: warning: {warning}")
        if writes:
            _say_written(request, output)
        elif not output.json:
            from pe_cli.render.summary import show_table

            show_table(request)


def write(request: Request, output: options.Output) -> None:
    """Stream the table into its file, or into stdout."""
    table = request.table
    facts = {name: value for name, value in table.facts.items() if name not in MEASURED}
    about = metadata(request.command, request.encoding, request.parameters, facts)
    if table.nbytes >= LARGEST_FILE:
        raise PeError(
            f"a table of {size(table.nbytes)} fits into no file: ask for fewer rows, or a --shard of them"
        )
    path = None if output.output in (None, "-") else output.output
    try:
        with open_sink(
            path, list(table.specs.values()), metadata=about, format=output.format, force=output.force
        ) as sink:
            table.write(sink)
    except NoSuchTypeError as error:
        ways = ["--dtype float32 (complex64)"] if error.dtype == "complex128" else []
        ways += ["--parts split (real and imaginary part)"] if "parts" in request.parameters else []
        raise PeError(", or ".join([str(error), *ways])) from error


def report(request: Request, output: str | None) -> dict[str, Any]:
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
        "output": output,
        "tensors": [
            {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "bytes": spec.nbytes}
            for spec in table.specs.values()
        ],
    }


def _say_written(request: Request, output: options.Output) -> None:
    from pe_cli.render import spell, telling

    specs = list(request.table.specs.values())
    tensors = ", ".join(f"{spec.name} {spec.dtype} {list(spec.shape)}" for spec in specs)
    facts = [
        f"{name.replace('_', ' ')} {_cut(spell(value))}"
        for name, value in telling(request.table.facts).items()
    ]
    where = output.output or "stdout"
    said = "; ".join([f"wrote {size(request.table.nbytes)} to {where}: {tensors}", *facts])
    tell(f"pe: {said}")
    kind = default_format(output.output, specs, output.format)
    foreign = sorted({spec.dtype for spec in specs} & FOREIGN_TO_NUMPY)
    if foreign and kind in NAMELESS:
        tell(
            f"pe: note: numpy has no {foreign[0]}, np.load gives raw bytes: array.view(ml_dtypes.{foreign[0]}) reads "
            "them; .safetensors keeps the type"
        )
    if output.plot and output.output is None:
        tell(
            "pe: note: stdout is no terminal, so the table went there beside the picture; -o FILE writes it to a file"
        )
    if "node_ids" in request.table.facts and kind in NAMELESS:
        tell(
            f"pe: warning: {kind} files carry no names: the ids of the nodes are in none of it; "
            "write .safetensors or .h5 to keep them"
        )


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"
