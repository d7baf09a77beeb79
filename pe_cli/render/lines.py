"""Lines on stderr, which a terminal is not left to break in the middle of a word."""

from __future__ import annotations

import os
import sys

from pe_cli.errors import one_line
from pe_cli.render.console import width_asked

INDENT = 4


def tell(text: str, indent: int = INDENT) -> None:
    """Print one line on stderr; at a terminal too narrow for it, broken between words and indented."""
    line = one_line(text)
    width = _width()
    if width is not None and len(line) > width:
        import textwrap

        room = width - max(map(len, line.split()))  # in front of the longest word
        line = textwrap.fill(
            line,
            width,
            subsequent_indent=" " * max(0, min(indent, room)),
            break_long_words=False,
            break_on_hyphens=False,
        )
    print(line, file=sys.stderr)


def _width() -> int | None:
    if not sys.stderr.isatty():
        return None
    try:
        return width_asked() or os.get_terminal_size(sys.stderr.fileno()).columns or None
    except (OSError, ValueError):
        return None
