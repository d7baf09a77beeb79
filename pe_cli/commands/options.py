"""The one way to declare an option, and the one function that spells a command line again.

An option is a field of a group (`len: int | None = option("N", "Positions 0..N-1.", common=True)`) or a parameter of an encoding's
function, with its line in the docstring. Both become an `Option`; the declaration for Typer, the words of the command
line and the help are made from it.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from pe_cli.errors import PeError, option_name
from pe_cli.numerics.dtypes import FLOATS

if TYPE_CHECKING:
    from pe_cli.signature import Meaning, Parameter

OPPOSITES = {"bidirectional": "causal"}
LONG_ONLY = frozenset("oq")  # -o and -q are shared options
# Under which heading of the help a parameter of an encoding stands, where it is not that of all others.
PURPOSES = {
    "Context extension": "scaling factor original_len seq_len beta_fast beta_slow truncate mscale mscale_all_dim "
    "attention_factor low_freq_factor high_freq_factor short_factor long_factor policy mixed_b",
    "Several axes": "sections interleave_sections axes axis_style axis_factors ref_grid grid normalize",
    "Storage": "layout compute dtype form parts",
}
# Parameters that the short help names.
COMMON = frozenset(
    "dim heads base style scheme form layout scaling factor grid dtype table k steps window num_bands causal".split()
)
METAVARS = {"ARRAY": "SOURCE", "MASK": "0011…|SOURCE", "GRID": "HxW"}


@dataclass(frozen=True)
class Option:
    """An option or argument of a command: `name` as Python has it, `flags` as it is typed, empty for an argument.

    `is_file` says that the value is a file, whose folder is left out where the command line is spelled again; `common`
    that the option stands in the first lines of the help; `parameter` is that of the encoding's function.
    """

    name: str = ""
    type: Any = str
    default: Any = None
    required: bool = False
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    help: str = ""
    heading: str | None = None
    choices: Callable[[], Sequence[str]] | None = None
    minimum: int | None = None
    many: bool = False
    is_file: bool = False
    common: bool = False
    parameter: Parameter | None = None

    @property
    def meaning(self) -> Meaning | None:
        return None if self.parameter is None else self.parameter.meaning

    @property
    def flag(self) -> str:
        """The long spelling: `--len`, `--truncate/--no-truncate`."""
        return max(self.flags, key=len)

    @property
    def typed(self) -> str:
        """How it is typed, with what follows it: `--len N`."""
        return " ".join(part for part in (", ".join(self.flags), self.metavar) if part)

    @property
    def line(self) -> str:
        """The first sentence of its help, and the names that it takes."""
        first = self.help if self.choices else self.help.split(". ")[0]
        word = first.split(" ")[0]
        is_name = "_" in word or not word.rstrip(",").isalpha() or len(word.rstrip(",")) == 1
        return f"{first[:1] if is_name else first[:1].upper()}{first[1:].rstrip('.')}."

    def declared(self) -> inspect.Parameter:
        """What Typer is told; anything but a number or a flag arrives as text."""
        about: dict[str, Any] = {"metavar": self.metavar, "help": self.help, "rich_help_panel": self.heading}
        if self.minimum is not None:
            about["min"] = self.minimum
        if self.choices is not None:
            about["autocompletion"] = self.choices
        shows_default = self.default is not None and (self.type is not bool or "/" in self.flags[0])
        told = (
            typer.Option(*self.flags, show_default=shows_default, **about)
            if self.flags
            else typer.Argument(show_default=False, **about)
        )
        kind: Any = list[str] if self.many else self.type
        may_miss = not self.required and (kind is not bool or self.default is None)
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if self.required else None if self.many else self.default,
            annotation=Annotated[kind | None if may_miss else kind, told],
        )

    def words(self, value: Any) -> list[str]:
        """The words of a command line that give `value`; none where it is the default."""
        if value is None or (value == self.default and not self.required):
            return []
        if self.type is bool:
            on, _, off = self.flag.partition("/")
            return [on if value else off]
        if self.many:
            return [f"{self.flag}={one}" for one in value]
        text = _spell(value)
        if self.is_file or (self.metavar == "SPEC" and "@" in text):
            from pe_cli.files.sources import without_folder as cut

            listed = (f"@{cut(part[1:])}" if part[:1] == "@" else part for part in text.split(","))
            text = cut(text) if self.is_file else ",".join(listed)
        if not self.flags:
            return [text]
        return [f"{self.flag}={text}"] if text.startswith("-") else [self.flag, text]


def command_line(command: Sequence[str], *given: Iterable[tuple[Option, Any]]) -> str:
    """The line that does this again: folders of files and values that are the default are left out."""
    words = (word for pairs in given for option, value in pairs for word in option.words(value))
    return shlex.join(["pe", *command, *words])


# Groups


def option(metavar: str | None, help: str, *, default: Any = None, flags: str = "", **more: Any) -> Any:
    """A field of a group that is an option; `flags` ("-q --quiet") where they are not `--` and the field's name."""
    about = {"metavar": metavar, "help": help, "default": default, "flags": tuple(flags.split()), **more}
    return field(default=default, metadata={"option": about})


def argument(metavar: str, help: str) -> Any:
    """A field of a group that is an argument, without which the command cannot be run."""
    about = {"metavar": metavar, "help": help, "required": True, "is_file": True, "positional": True}
    return field(metadata={"option": about})


Group = TypeVar("Group")


def of_group(group: type) -> list[Option]:
    """The options of a group, under its heading."""
    hints = get_type_hints(group)
    found = []
    for one in fields(group):
        about = dict(one.metadata["option"])
        hint = hints[one.name]
        kind = next((t for t in get_args(hint) if t is not types.NoneType), hint) if get_args(hint) else hint
        flags = about.pop("flags", ()) or (option_name(one.name),)
        if about.pop("positional", False):
            flags = ()
        heading = getattr(group, "heading", None)
        many = get_origin(hint) is tuple
        found.append(
            Option(
                **{"name": one.name, "type": kind, "flags": flags, "heading": heading, "many": many, **about}
            )
        )
    return found


def take(group: type[Group], values: dict[str, Any]) -> Group:
    """Build the group from the values of a command line, removing them there."""
    named = list(of_group(group))
    return group(
        **{one.name: tuple(values.pop(one.name) or ()) if one.many else values.pop(one.name) for one in named}
    )


def given_in(group: Any) -> list[tuple[Option, Any]]:
    """The options of a group with their values."""
    return [(one, getattr(group, one.name)) for one in of_group(type(group))]


def command(
    run: Callable[..., None], declared: Iterable[Option], *, context: bool = False
) -> Callable[..., None]:
    """`run`, which takes its values by name, as Typer wants it: with a signature of these options.

    With `context` it also takes Typer's, which knows what the command line named.
    """
    known = list(declared)
    told = [one.declared() for one in known]
    if context:
        told.append(inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context))
    told.sort(key=lambda one: one.default is not inspect.Parameter.empty)

    def call(**values: Any) -> None:
        run(**values)

    call.__signature__ = inspect.Signature(told)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in told}
    call.__doc__ = run.__doc__
    call.options = known  # type: ignore[attr-defined]
    return call


def of_groups(run: Callable[..., None], *groups: type) -> Callable[..., None]:
    """`run`, which takes one value of each group, as a command with the options of all."""

    def call(**values: Any) -> None:
        run(*(take(group, values) for group in groups))

    call.__doc__ = run.__doc__
    return command(call, [one for group in groups for one in of_group(group)])


# Options of an encoding


class Doc(NamedTuple):
    """What a docstring says: its text without the sections for programmers, and each parameter's line."""

    text: str
    parameters: dict[str, str]


_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
_SOURCE = re.compile(r"^Sources?:.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"^(\w+(?:, \w+)*) *:(.*)$")


def documentation(function: Callable[..., Any]) -> Doc:
    """Split a docstring into the prose that a user reads and the sentences about its parameters."""
    text = inspect.getdoc(function) or ""
    credits = [match[0] for match in _SOURCE.finditer(text)]
    pieces = _HEADING.split(_SOURCE.sub("", text))
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    parts = [*pieces[0].strip().split("\n\n"), sections.get("Notes", "").strip(), *credits]
    prose = [part for part in parts if part and not part.startswith(">>> ")]
    linked = re.sub(r"arXiv (\d{4}\.\d{4,5})", r"https://arxiv.org/abs/\1", "\n\n".join(prose))
    linked = re.sub(r"kexue\.fm (\d+)", r"https://kexue.fm/archives/\1", linked)
    return Doc(linked, _lines_of_parameters(sections.get("Parameters", "")))


def _lines_of_parameters(section: str) -> dict[str, str]:
    lines: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        match = _PARAMETER.match(line)
        if match:
            names = match[1].split(", ")
            for name in names:
                lines[name] = match[2].strip()
        elif line.strip():
            for name in names:
                lines[name] = f"{lines[name]} {line.strip()}".strip()
    return lines


def of_function(function: Callable[..., Any]) -> dict[str, Option]:
    """The options of an encoding's function by parameter, in order."""
    from pe_cli.signature import parameters

    text = documentation(function).parameters
    return {name: _of_parameter(own, text.get(name, "")) for name, own in parameters(function).items()}


def _of_parameter(own: Parameter, text: str) -> Option:
    from pe_cli.signature import READ_FROM_FILE, Meaning

    if own.meaning in READ_FROM_FILE:
        named = READ_FROM_FILE[own.meaning]
        return Option(
            own.name, required=True, metavar=named, help=text, heading="Source", is_file=True, parameter=own
        )
    long = option_name(own.name)
    flags: tuple[str, ...] = (long,)
    if own.type is bool:
        flags = (f"{long}/--{OPPOSITES.get(own.name, 'no-' + own.name.replace('_', '-'))}",)
    elif len(own.name) == 1 and own.name not in LONG_ONLY:
        flags = (f"-{own.name}", long)
    kind, metavar = _type_and_metavar(own)
    values = f"One of: {', '.join(own.choice.names)}" if own.choice is not None else ""
    default = None if own.required else own.default
    return Option(
        own.name,
        kind,
        _spell(default) if kind is str and default is not None else default,
        own.required,
        flags,
        metavar,
        ". ".join(part for part in (text.rstrip("."), values) if part),
        next((heading for heading, names in PURPOSES.items() if own.name in names.split()), "Encoding"),
        choices=(lambda: choices(own)) if own.choice is not None else None,
        is_file=own.meaning in (Meaning.ARRAY, Meaning.MASK),
        common=own.required or own.name in COMMON,
        parameter=own,
    )


def _type_and_metavar(own: Parameter) -> tuple[Any, str | None]:
    kind = "" if own.meaning is None else own.meaning.name
    if kind in METAVARS:
        return str, METAVARS[kind]
    if kind == "NUMBERS":
        return str, "N,N,…" if own.element is int else "X,X,…"
    if own.choice is not None:
        return str, "NAME"
    return own.type, None if own.type is bool else {int: "N", float: "X"}.get(own.type, "TEXT")


def choices(own: Parameter) -> list[str]:
    """Every value that a parameter with known values accepts, aliases included; else nothing."""
    return [] if own.choice is None else [*own.choice.names, *(own.choice.aliases or ())]


def taken(one: Option, value: Any, load_array: Callable[[str], Any]) -> Any:
    """The argument of the encoding's function from what the command line gave."""
    from pe_cli.signature import Meaning

    own = one.parameter
    assert own is not None
    if isinstance(value, str):
        if own.meaning is Meaning.MASK and value and set(value) <= set("01"):
            value = [int(digit) for digit in value]
        elif own.meaning in (Meaning.ARRAY, Meaning.MASK):
            if not value:
                raise PeError(f"{one.flag} '': the name of a file is missing")
            try:
                value = load_array(value)
            except PeError as error:
                raise PeError(f"{one.flag} {value}: {error}") from error
        elif own.meaning is Meaning.GRID:
            from pe_cli.positions import parse_grid

            value = parse_grid(value, own.name)
        elif own.meaning is Meaning.NUMBERS:
            value = _numbers(one.flag, own.element, value)
    return own.taken(value)


def _numbers(flag: str, element: Callable[[str], float], text: str) -> tuple[float, ...]:
    joined = text.lower().replace("×", "x").replace("x", ",") if element is int else text
    try:
        return tuple(element(part) for part in joined.split(","))
    except ValueError:
        bare = ",".join(text.strip("[](){} ").replace(",", " ").split())
        meant = f", {flag} {bare}" if bare and bare != text else ""
        raise PeError(f"{flag} {text}: write numbers joined by commas{meant}") from None


def _spell(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


# The groups that commands share

FORMATS = ("npy", "npz", "h5", "safetensors", "csv")


@dataclass(frozen=True)
class Shown:
    """How a report is given."""

    heading: ClassVar[str] = "Output"
    json: bool = option(None, "Print one JSON object on stdout.", default=False, common=True)
    plot: str | None = option("FILE", "Draw it: .png, .svg or .pdf.", common=True)
    force: bool = option(None, "Replace an existing file.", default=False)

    def require_picture(self, beside: str | None = None) -> None:
        """Refuse a picture that cannot be written, and --force where there is none, before the work is done."""
        if self.plot:
            from pe_cli.render.plots.drawing import require_picture

            require_picture(self.plot, force=self.force, beside=beside)
        elif self.force:
            raise PeError("--force is for --plot FILE: nothing else is written here")


@dataclass(frozen=True)
class Told(Shown):
    """How a report is given by a command that also speaks on stderr."""

    quiet: bool = option(None, "Say nothing on stderr but errors.", default=False, flags="-q --quiet")


@dataclass(frozen=True)
class Written:
    """Where tensors go."""

    heading: ClassVar[str] = "Output"
    output: str | None = option(
        "FILE", "Write FILE (.npy .npz .h5 .safetensors .csv); - is stdout.", flags="-o --output", common=True
    )
    format: str | None = option(
        "NAME", f"{', '.join(FORMATS)}, whatever the file is called.", choices=lambda: FORMATS
    )


@dataclass(frozen=True)
class Output(Told, Written):
    """Where tensors go and what is said about them."""

    def require_targets(self) -> None:
        """Refuse bytes for a terminal, and a picture that cannot be written, before there is either."""
        if self.output == "-" and (self.json or sys.stdout.isatty()):
            raise PeError("-o - writes bytes: send stdout into a pipe or file, without --json")
        if self.plot:
            self.require_picture(beside=self.output)


@dataclass(frozen=True)
class Naming:
    """What the tensors are called and what type they have."""

    heading: ClassVar[str] = "Output"
    dtype: str | None = option(
        "NAME",
        f"{', '.join(FLOATS)} (default float32); computed in float64 and rounded once.",
        choices=lambda: FLOATS,
        common=True,
    )
    name: str | None = option("KEY", "Tensor name in the file.")


@dataclass(frozen=True)
class RowChoice:
    """Which rows of a row-wise encoding."""

    heading: ClassVar[str] = "Rows"
    len: int | None = option("N", "Positions 0..N-1.", common=True)
    positions: str | None = option(
        "SPEC", "0,5,7 or 0:4096 or 0:1000000:64 or 15:-16:-1 or @FILE; comma-joined.", common=True
    )
    shard: str | None = option("I/N", "Only the I-th (from 0) of N equal row blocks.")
    prefix_rows: int = option("N", "Zero rows in front (class or register tokens).", default=0, minimum=0)


@dataclass(frozen=True)
class PairChoice:
    """Which pairs of query and key."""

    heading: ClassVar[str] = "Pairs"
    len: int | None = option("N", "Queries and keys 0..N-1.", common=True)
    q_len: int | None = option("N", "The last N positions as queries.")
    k_len: int | None = option("N", "Keys 0..N-1.")
    positions: str | None = option("SPEC", "Only these query positions (see `pe gen rope`).")
    shard: str | None = option("I/N", "Only the I-th (from 0) of N equal blocks of queries.")


@dataclass(frozen=True)
class DistanceChoice(PairChoice):
    """Pairs, or a plain list of distances."""

    distances: str | None = option("SPEC", "A:B: a list of distances, key minus query, instead of pairs.")


@dataclass(frozen=True)
class GraphChoice:
    """Which graphs of a dataset."""

    heading: ClassVar[str] = "Rows"
    shard: str | None = option(
        "I/N", "Of a dataset, only the I-th (from 0) of N runs of graphs of nearly equal number."
    )
    pad_to: int | None = option(
        "N",
        "Of a dataset, tables (graphs, N, …) filled up with 0, with a mask (graphs, N) of the nodes.",
        minimum=1,
    )


@dataclass(frozen=True)
class Computing:
    """Who computes the blocks of a table; the bytes are the same."""

    heading: ClassVar[str] = "Rows"
    workers: int | None = option("N", "Compute in N processes of this machine.", minimum=1)
    dask: str | None = option(
        "ADDRESS",
        "Compute on the Dask cluster whose scheduler is there; it runs what it is sent, so both must trust each other.",
    )
