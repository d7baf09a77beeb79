"""A progress bar on stderr: only at a terminal, only for work that takes longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pe_cli.process import watched

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE = 1.0


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

        from pe_cli.render.console import console

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
