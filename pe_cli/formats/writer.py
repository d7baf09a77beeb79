"""Bytes out: large blocks; into a pipe, from 64 MiB on, by a thread, while the next block is computed.

A pipe takes 64 KiB at a time and makes its writer wait, so that the thread saves a third or more of the time. Into the
page cache a file goes at memory speed, and there the thread costs more than it saves (measured: 1.1 to 2 times).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from pe_cli.formats.atomic import Output

BLOCK = 2 << 20
THREAD_FROM = 64 << 20
_BUFFERS = 3
_SMALL = 1 << 16


class Writer:
    """Writes byte ranges to an output that expects `total` bytes; small neighbours are joined into blocks.

    What the caller passes may be reused as soon as `write` returns.
    """

    def __init__(self, output: Output, total: int) -> None:
        self._output = output
        self._end = 0
        self._start = 0
        self._filled = 0
        self._buffer: bytearray | None = None
        self._lane = _Lane(self._put) if total >= THREAD_FROM and not output.seekable else None

    def write(self, offset: int, data: memoryview) -> None:
        """Write `data` at `offset`; on an output that cannot seek, offsets must follow each other."""
        if self._filled and offset != self._start + self._filled:
            self._emit()
        if self._lane is None and len(data) >= _SMALL:
            self._emit()
            for first in range(0, len(data), BLOCK):
                self._put(offset + first, data[first : first + BLOCK])
            return
        done = 0
        while done < len(data):
            if self._buffer is None:
                self._buffer = self._lane.take() if self._lane else bytearray(_SMALL)
            if not self._filled:
                self._start = offset + done
            count = min(len(data) - done, len(self._buffer) - self._filled)
            memoryview(self._buffer)[self._filled : self._filled + count] = data[done : done + count]
            self._filled += count
            done += count
            if self._filled == len(self._buffer):
                self._emit()

    def finish(self) -> None:
        """Write what is still held back, and raise what went wrong in the thread."""
        self._emit()
        if self._lane:
            self._lane.finish()

    def abandon(self) -> None:
        """Stop without writing more; a pipe whose reader sleeps is not waited for."""
        if self._lane:
            self._lane.abandon()

    def _emit(self) -> None:
        if not self._filled or self._buffer is None:
            return
        if self._lane:
            self._lane.give(self._start, self._buffer, self._filled)
            self._buffer = None
        else:
            self._put(self._start, memoryview(self._buffer)[: self._filled])
        self._filled = 0

    def _put(self, offset: int, data: memoryview) -> None:
        if not self._output.seekable and offset != self._end:
            raise ValueError(f"{self._output.label} cannot seek from {self._end} to {offset}")
        self._end = offset + len(data)
        self._output.put(data, offset)


class _Lane:
    """A thread that writes full buffers in order and gives them back; its first error is raised in the caller."""

    def __init__(self, put: Callable[[int, memoryview], None]) -> None:
        self._put = put
        self._full: queue.SimpleQueue[tuple[int, bytearray, int] | None] = queue.SimpleQueue()
        self._free: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
        for _ in range(_BUFFERS):
            self._free.put(bytearray(BLOCK))
        self._error: BaseException | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="pe-writer", daemon=True)
        self._thread.start()

    def take(self) -> bytearray:
        buffer = self._free.get()
        self._raise()
        return buffer

    def give(self, offset: int, buffer: bytearray, count: int) -> None:
        self._full.put((offset, buffer, count))

    def finish(self) -> None:
        self._full.put(None)
        self._thread.join()
        self._raise()

    def abandon(self) -> None:
        self._stopped = True
        self._full.put(None)

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (item := self._full.get()) is not None:
            offset, buffer, count = item
            if self._error is None and not self._stopped:
                try:
                    self._put(offset, memoryview(buffer)[:count])
                except BaseException as error:  # handed to the caller, whatever it is
                    self._error = error
            self._free.put(buffer)
