"""From the signature of an encoding to the options of its `pe gen` subcommand, and from their values back to arguments."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import typer

from pe_cli import signature
from pe_cli.errors import PeError, option_name
from pe_cli.signature import Source

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
READ_FROM_FILE = {Source.GRAPH: "GRAPH", Source.FOREST: "FILE"}


@dataclass(frozen=True)
class Parameter(signature.Parameter):
    """One parameter of an encoding, with its line of help."""

    help: str

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
    text = read(function).parameters
    return {
        name: Parameter(**vars(own), help=text.get(name, ""))
        for name, own in signature.parameters(function).items()
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
    if isinstance(value, str):
        if parameter.source is Source.MASK and value and set(value) <= set("01"):
            value = [int(digit) for digit in value]
        elif parameter.source in (Source.ARRAY, Source.MASK):
            if not value:
                raise PeError(f"{parameter.option} '': the name of a file is missing")
            try:
                value = load_array(value)
            except PeError as error:
                raise PeError(f"{parameter.option} {value}: {error}") from error
        elif parameter.source is Source.GRID:
            from pe_cli.positions import parse_grid

            value = parse_grid(value, parameter.option)
        elif parameter.source is Source.NUMBERS:
            value = _numbers(parameter, value)
    return parameter.taken(value)


def spelled(parameter: Parameter, value: Any) -> list[str]:
    """The words on a command line that give this value."""
    if parameter.type is bool:
        on, off = parameter.declarations()[0].split("/")
        return [on if value else off]
    text = _spell(value)
    return [f"{parameter.option}={text}"] if text.startswith("-") else [parameter.option, text]


def _metavar(parameter: Parameter) -> tuple[str | None, Any]:
    if parameter.source is Source.ARRAY:
        return "SOURCE", str
    if parameter.source is Source.MASK:
        return "0011…|SOURCE", str
    if parameter.source is Source.GRID:
        return "HxW", str
    if parameter.source is Source.NUMBERS:
        return "N,N,…" if parameter.element is int else "X,X,…", str
    if parameter.choice is not None:
        return "NAME", str
    return (
        None if parameter.type is bool else {int: "N", float: "X"}.get(parameter.type, "TEXT")
    ), parameter.type


def _names(parameter: Parameter) -> str:
    return ", ".join(parameter.choice.names) if parameter.choice is not None else ""


def choices(parameter: Parameter) -> list[str]:
    """Every value that a parameter with known values accepts, aliases included; else nothing."""
    if parameter.choice is None:
        return []
    return [*parameter.choice.names, *(parameter.choice.aliases or ())]


def _numbers(parameter: Parameter, text: str) -> tuple[float, ...]:
    try:
        parts = (
            text.lower().replace("×", "x").replace("x", ",") if parameter.element is int else text
        ).split(",")
        numbers = tuple(parameter.element(part) for part in parts)
    except ValueError:
        raise PeError(f"{parameter.option} {text}: write numbers joined by commas") from None
    return numbers


def _spell(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)
