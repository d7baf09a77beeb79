"""The one place that decides about colour, width and encoding of what is shown."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

_COMMANDS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST, WIDEST = 20, 10_000  # what COLUMNS says beyond them is no width


def wants_colour(stream_is_terminal: bool) -> bool:
    """NO_COLOR wins, then FORCE_COLOR (0 and empty count as unset), then whether it is a terminal."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0", "false"):
        return True
    return stream_is_terminal and os.environ.get("TERM") != "dumb"


def console(*, stderr: bool = False) -> Console:
    """A rich console that never interprets data as markup and never cuts a piped table at 80 columns."""
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
    columns = environment.get("COLUMNS", "")
    if not (columns.isdecimal() and NARROWEST <= int(columns[:6]) <= WIDEST):
        environment.pop("COLUMNS", None)
    width = None if terminal or "COLUMNS" in environment else 120
    return Safe(
        file=stream,
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
