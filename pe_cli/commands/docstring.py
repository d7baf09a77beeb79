"""Reading a numpy-style docstring: the text for `--help` and a line for each parameter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

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
