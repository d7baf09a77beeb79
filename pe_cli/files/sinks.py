"""`open_sink`: from named blocks of rows to a file of any format, or to standard output."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files import npy, safetensors
from pe_cli.files.atomic import Output, open_output
from pe_cli.files.base import Layout, Ledger, Sink, TensorSpec, default_format

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


@contextmanager
def open_sink(
    path: str | Path | None,
    specs: Sequence[TensorSpec],
    *,
    metadata: Mapping[str, str],
    format: str | None = None,
    force: bool = False,
) -> Iterator[Sink]:
    """Open `path` (None or `-`: standard output) for the tensors `specs`; it appears whole when the block ends.

    `metadata` goes into safetensors and HDF5 files; `.npy` and `.npz` have no place for it. The format goes by the
    extension where it is not given. After any exception, also Ctrl-C, nothing is left behind.

    Errors: an existing file without `force`, an extension that is not known, several tensors for `.npy`, a full disk.
    A pipe that was closed raises BrokenPipeError.
    """
    kind = default_format(path, specs, format)
    twice = [name for name, count in Counter(spec.name for spec in specs).items() if count > 1]
    if twice:
        raise PeError(f"two tensors are called {twice[0]!r}; a file needs different names")
    layout = _layout_of(kind, specs, metadata)
    with open_output(path, force=force) as output, _opened(output, specs, layout) as sink:
        yield sink


def _layout_of(kind: str, specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> Layout | None:
    """The whole file in advance, but for npz, whose checksums come with the elements."""
    if kind == "npz":
        return None
    if kind == "h5":
        from pe_cli.files import hdf5_write as hdf5_layout

        return hdf5_layout.layout(specs, metadata)
    return npy.layout(specs, metadata) if kind == "npy" else safetensors.layout(specs, metadata)


@contextmanager
def _opened(output: Output, specs: Sequence[TensorSpec], layout: Layout | None) -> Iterator[Sink]:
    total = sum(spec.nbytes for spec in specs) if layout is None else layout.end
    output.reserve(total)
    sink = _open_npz(specs, Writer(output, total)) if layout is None else _FlatSink(output, layout)
    try:
        yield sink
        sink.finish()
    except BaseException:
        sink.abandon()
        raise


class _Closing(Sink, Protocol):
    def finish(self) -> None: ...

    def abandon(self) -> None: ...


def _open_npz(specs: Sequence[TensorSpec], writer: Writer) -> _Closing:
    from pe_cli.files.npz import NpzSink

    return NpzSink(specs, writer)


class _FlatSink:
    """Writes elements where the layout says, and the fixed parts before the elements that follow them."""

    def __init__(self, output: Output, layout: Layout) -> None:
        self.specs = layout.specs
        self.sequential = not output.seekable
        self._ledger = Ledger(layout.specs, sequential=self.sequential)
        self._offsets = layout.offsets
        self._fixed = list(layout.fixed)
        self._writer = Writer(output, layout.end)

    def write(self, name: str, start: int, rows: NDArray[Any]) -> None:
        offset, data = self._ledger.accept(name, start, rows)
        if data:
            self._write_fixed(self._offsets[name] + offset)
            self._writer.write(self._offsets[name] + offset, data)

    def finish(self) -> None:
        """Write the fixed parts that are left; an error if elements are missing."""
        self._ledger.finish()
        self._write_fixed(None)
        self._writer.finish()

    def abandon(self) -> None:
        """Write no more."""
        self._writer.abandon()

    def _write_fixed(self, before: int | None) -> None:
        while self._fixed and (before is None or self._fixed[0][0] < before):
            offset, data = self._fixed.pop(0)
            self._writer.write(offset, memoryview(data))
