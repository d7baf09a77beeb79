"""What a long computation tells whoever is watching, without knowing who that is.

    with watched(lambda what, done, total: ...):
        laplacian(graph, 16)

`total` is None where the end is not known beforehand. With no watcher a step costs a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Watcher: TypeAlias = Callable[[str, int, "int | None"], None]

_WATCHER: ContextVar[Watcher | None] = ContextVar("pe_progress", default=None)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Call `watcher(what, done, total)` at each step made inside the block."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def step(what: str, done: int, total: int | None = None) -> None:
    """Say that `done` of `total` steps of `what` are over."""
    watcher = _WATCHER.get()
    if watcher is not None:
        watcher(what, done, total)
