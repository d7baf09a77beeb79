"""From the signature of an encoding to the options of its `pe gen` subcommand, and from their values back to arguments."""

from __future__ import annotations

import inspect
import math
import re
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np
import typer
from numpy.typing import NDArray

from pe_cli.errors import PeError, no_such, option_name
from pe_cli.numerics.dtypes import FLOATS
from pe_cli.signature import Choice, Source

_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)
_SOURCE = re.compile(r"^Sources?:.*?(?=\n\n|\Z)", re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"^(\w+(?:, \w+)*) *:(.*)$")


class Doc(NamedTuple):
    """What a docstring says: its text without the sections for programmers, and each parameter's line."""

    text: str
    parameters: dict[str, str]


def read(function: Callable[..., Any]) -> Doc:
    """Split a docstring into the prose that a user reads and the sentences about its parameters."""
    text = inspect.getdoc(function) or ""
    credits = [match[0] for match in _SOURCE.finditer(text)]
    pieces = _HEADING.split(_SOURCE.sub("", text))
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    prose = [pieces[0].strip()]
    prose += [sections[name].strip() for name in ("Notes", "Examples") if name in sections]
    prose += credits
    return Doc("\n\n".join(prose), _parameters(sections.get("Parameters", "")))


def _parameters(section: str) -> dict[str, str]:
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


OPPOSITES = {"bidirectional": "causal"}
LONG_ONLY = frozenset("oq")  # -o and -q are shared options
RENAMED = {"length": "len"}
SUPPLIED = frozenset({Source.POSITIONS, Source.QUERIES, Source.KEYS, Source.DISTANCES})
LARGEST = 2**63
READ_FROM_FILE = {Source.GRAPH: "GRAPH", Source.FOREST: "FILE"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of an encoding, taken apart."""

    name: str
    type: Any
    default: Any
    source: Source | None
    choice: Choice | None
    element: type
    help: str

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def option(self) -> str:
        return option_name(RENAMED.get(self.name, self.name))

    def declarations(self) -> list[str]:
        if self.type is bool:
            opposite = OPPOSITES.get(self.name, f"no-{self.name.replace('_', '-')}")
            return [f"{self.option}/--{opposite}"]
        if len(self.name) == 1 and self.name not in LONG_ONLY:
            return [f"-{self.name}", self.option]
        return [self.option]


def parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of `function`, in order."""
    hints = get_type_hints(function, include_extras=True)
    text = read(function).parameters
    return {
        name: _take_apart(name, hints[name], parameter.default, text.get(name, ""))
        for name, parameter in inspect.signature(function).parameters.items()
    }


def typer_parameter(parameter: Parameter) -> inspect.Parameter:
    """The Typer declaration of one parameter; anything but a number or a flag arrives as text."""
    kind = inspect.Parameter.KEYWORD_ONLY
    if parameter.source in READ_FROM_FILE:
        argument = typer.Argument(
            metavar=READ_FROM_FILE[parameter.source], help=parameter.help, show_default=False
        )
        return inspect.Parameter(parameter.name, kind, annotation=Annotated[str, argument])
    metavar, typed = _metavar(parameter)
    names = _names(parameter)
    default = None if parameter.required else parameter.default
    as_text = typed is str and default is not None
    option = typer.Option(
        *parameter.declarations(),
        metavar=metavar,
        help=". ".join(
            part for part in (parameter.help.rstrip("."), f"One of: {names}" if names else "") if part
        ),
        show_default=default is not None,
        autocompletion=(lambda: choices(parameter)) if names else None,
    )
    return inspect.Parameter(
        parameter.name,
        kind,
        default=inspect.Parameter.empty if parameter.required else (_spell(default) if as_text else default),
        annotation=Annotated[typed if parameter.required or typed is bool else typed | None, option],
    )


def argument(parameter: Parameter, value: Any, load_array: Callable[[str], Any]) -> Any:
    """The argument of the function from what the command line gave."""
    if value is None or (not isinstance(value, str) and parameter.source is None):
        return _number(parameter, value) if isinstance(value, (int, float)) else value
    if parameter.choice is not None or get_origin(parameter.type) is Literal:
        return _chosen(parameter, value)
    if parameter.source is Source.MASK and value and set(value) <= set("01"):
        return np.array([int(digit) for digit in value])
    if parameter.source in (Source.ARRAY, Source.MASK):
        if not value:
            raise PeError(f"{parameter.option} '': the name of a file is missing")
        if parameter.source is Source.MASK:
            return load_array(value)
        return _numeric(load_array(value), f"{parameter.option} {value}")
    if parameter.source is Source.GRID and isinstance(value, str):
        from pe_cli.positions import parse_grid

        return parse_grid(value, parameter.option)
    if parameter.source is Source.NUMBERS and isinstance(value, str):
        return _numbers(parameter, value)
    return value


def spelled(parameter: Parameter, value: Any) -> list[str]:
    """The words on a command line that give this value."""
    if parameter.type is bool:
        on, off = parameter.declarations()[0].split("/")
        return [on if value else off]
    text = _spell(value)
    return [f"{parameter.option}={text}"] if text.startswith("-") else [parameter.option, text]


def _take_apart(name: str, hint: Any, default: Any, text: str) -> Parameter:
    source: Source | None = None
    choice: Choice | None = None
    element: type = int
    hint = _without_none(hint)
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        for mark in marks:
            if isinstance(mark, Source):
                source = mark
            elif isinstance(mark, Choice):
                choice = mark
            elif mark in (int, float):
                element = mark
    return Parameter(name, hint, default, source, choice, element, text)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) in (Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        return members[0] if len(members) == 1 else hint
    return hint


def _metavar(parameter: Parameter) -> tuple[str | None, Any]:
    if parameter.source is Source.ARRAY:
        return "SOURCE", str
    if parameter.source is Source.MASK:
        return "0011…|SOURCE", str
    if parameter.source is Source.GRID:
        return "HxW", str
    if parameter.source is Source.NUMBERS:
        return "N,N,…" if parameter.element is int else "X,X,…", str
    if parameter.choice is not None or get_origin(parameter.type) is Literal:
        return "NAME", str
    return (
        None if parameter.type is bool else {int: "N", float: "X"}.get(parameter.type, "TEXT")
    ), parameter.type


def _names(parameter: Parameter) -> str:
    if parameter.choice is not None:
        return ", ".join(parameter.choice.names)
    return ", ".join(map(str, get_args(parameter.type))) if get_origin(parameter.type) is Literal else ""


def choices(parameter: Parameter) -> list[str]:
    """Every value that a parameter with known values accepts, aliases included; else nothing."""
    if parameter.choice is not None:
        return [*parameter.choice.names, *(parameter.choice.aliases or ())]
    return [str(name) for name in get_args(parameter.type)] if get_origin(parameter.type) is Literal else []


def _chosen(parameter: Parameter, value: str) -> str:
    aliases: Mapping[str, str] = (parameter.choice.aliases if parameter.choice else None) or {}
    name = aliases.get(value, value)
    return known(parameter.name.replace("_", " "), name, choices(parameter))


def known(kind: str, name: str, names: Collection[str]) -> str:
    """`name` if it is among `names`, else an error with a near one."""
    if name not in names:
        raise no_such(kind, name, names)
    return name


def _numbers(parameter: Parameter, text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(parameter.element(part) for part in text.split(","))
    except ValueError:
        raise PeError(f"{parameter.option} {text}: write numbers joined by commas") from None
    if not all(-LARGEST < number < LARGEST for number in numbers):  # false for NaN too
        raise PeError(f"{parameter.option} {text}: a number here is finite and below 2^63 in size")
    return numbers


def _number(parameter: Parameter, value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise PeError(f"{parameter.option} {value}: a finite number is needed")
    if isinstance(value, int) and not -LARGEST <= value < LARGEST:
        raise PeError(f"{parameter.option} {value}: a whole number here is below 2^63 in size")
    return value


def _numeric(values: NDArray[Any], asked: str) -> NDArray[Any]:
    """`values` if there are some, they are real numbers and none is NaN."""
    if not values.size:
        raise PeError(f"{asked} holds no numbers, its shape is {values.shape}")
    if values.dtype.kind in "iu":
        return values
    if values.dtype.kind != "f" and values.dtype.name not in FLOATS:
        raise PeError(f"{asked} holds {values.dtype}; real numbers are needed")
    wrong = np.isnan(values)
    if wrong.any():
        where = [int(i) for i in np.unravel_index(int(wrong.argmax()), values.shape)]
        raise PeError(f"{asked} has a NaN at {where}; it would spread over the table")
    return values


def _spell(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)
