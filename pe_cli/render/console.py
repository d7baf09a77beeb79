"""The one place that decides about colour, width and encoding of what is shown."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

_COMMANDS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST, WIDEST = 20, 10_000  # what COLUMNS says beyond them is no width
_TRAILING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)(?=\n|$)")


def wants_colour(stream_is_terminal: bool) -> bool:
    """NO_COLOR wins, then FORCE_COLOR (0 and empty count as unset), then whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0", "false"):
        return True
    return stream_is_terminal and os.environ.get("TERM") != "dumb"


def width_asked() -> int | None:
    """What COLUMNS says, if that is a width."""
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and NARROWEST <= int(columns[:6]) <= WIDEST else None


class Trimmed:
    """A stream without the spaces with which tables fill their lines."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(_TRAILING.sub(r"\1", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(*, stderr: bool = False) -> Console:
    """A rich console that never interprets data as markup; into a pipe, where nobody said COLUMNS, no line is broken."""
    from rich.console import Console
    from rich.segment import Segment

    class Safe(Console):
        """Shows what would command the terminal, such as an escape in the name of a tensor, as a sign."""

        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                if segment.control or segment.text.isprintable():
                    yield segment
                else:
                    yield Segment(_COMMANDS.sub("\N{REPLACEMENT CHARACTER}", segment.text), segment.style)

    stream = sys.stderr if stderr else sys.stdout
    terminal = stream.isatty()
    colour = wants_colour(terminal)
    environment = dict(os.environ)
    if width_asked() is None:
        environment.pop("COLUMNS", None)
    width = None if terminal or "COLUMNS" in environment else WIDEST
    file: Any = stream if stderr else Trimmed(stream)
    return Safe(
        file=file,
        force_terminal=colour,
        no_color=not colour,
        color_system=("auto" if terminal else "truecolor") if colour else None,
        width=width,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
        _environ=environment,
    )


def can_print(text: str, *, stderr: bool = False) -> bool:
    """Whether the stream's encoding has these characters (a C locale has no block elements)."""
    encoding = (sys.stderr if stderr else sys.stdout).encoding or "ascii"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
