"""The one place that decides about colour, width and encoding of what is shown, and about bars of progress."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from pe_cli.errors import TERMINAL_COMMANDS, one_line
from pe_cli.process import watched

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

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
                    yield Segment(
                        TERMINAL_COMMANDS.sub("\N{REPLACEMENT CHARACTER}", segment.text), segment.style
                    )

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


def can_print(text: str) -> bool:
    """Whether standard output's encoding has these characters (a C locale has no block elements)."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


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


USUAL = {
    "nodes_without_edge_onwards": 0,
    "isolated_nodes": 0,
    "connected_components": 1,
}
PATIENCE = 1.0  # seconds of work without a bar
LARGEST_WHOLE = 1e15  # up to which a float without a fraction is written as a whole number


def telling(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts without those that say that nothing is special."""
    plain = {name for name, value in USUAL.items() if facts.get(name) == value}
    if facts.get("attention_factor") == 1:
        plain |= {"attention_factor", "baked_in"}  # there is no factor, so it is nowhere
    return {name: value for name, value in facts.items() if name not in plain}


def in_lines(phrases: Iterable[str], width: int) -> str:
    """The phrases with two spaces between them, in as many lines of `width` as they need; none is broken."""
    lines: list[str] = []
    for phrase in phrases:
        if lines and len(lines[-1]) + 2 + len(phrase) <= width:
            lines[-1] += f"  {phrase}"
        else:
            lines.append(phrase)
    return "\n".join(lines)


def spell(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (float, np.floating)):
        whole = abs(value) < LARGEST_WHOLE and value == int(value)
        return str(int(value)) if whole else f"{value:.9g}"
    if isinstance(value, (tuple, list)):
        shown = ", ".join(spell(item) for item in value[:8])
        return f"{shown}, … ({len(value)})" if len(value) > 8 else shown
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {spell(item)}" for key, item in value.items())
    return str(value)


@contextmanager
def shown(*, quiet: bool = False) -> Iterator[None]:
    """Show the steps that are made inside the block."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    bar = Bar()
    try:
        with watched(bar.step):
            yield
    finally:
        bar.close()


class Bar:
    """A bar that is not made before the work has taken long enough, so that quick work does not wait for rich."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def step(self, what: str, done: int, total: int | None) -> None:
        """Take a step of `what` into account."""
        if self._progress is None:
            if time.monotonic() - self._start < PATIENCE:
                return
            self._progress = self._open()
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)

    def close(self) -> None:
        """Take the bar away."""
        if self._progress is not None:
            self._progress.stop()

    @staticmethod
    def _open() -> Progress:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        made = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(show_speed=True),
            TimeRemainingColumn(),
            console=console(stderr=True),
            transient=True,
        )
        made.start()
        return made
