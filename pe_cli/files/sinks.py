"""`open_sink`: from named blocks of rows to a file of any format, or to standard output."""

from __future__ import annotations

import io
import math
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files import FileLayout, Sink, TensorSpec, as_bytes, default_format
from pe_cli.files.atomic import OpenOutput, open_output
from pe_cli.numerics.dtypes import numpy_dtype

BLOCK = 2 << 20
THREAD_FROM = 64 << 20
_BUFFERS = 3
_SMALL = 1 << 16
_DATE = (1980, 1, 1, 0, 0, 0)  # of all members of an .npz
_ZIP64_FROM = 1 << 31
# Where `layout` of each format lies.
_MODULES = {"npy": "npy", "h5": "hdf5", "safetensors": "safetensors"}


class Writer:
    """Writes byte ranges to an output that expects `total` bytes; small neighbours are joined into blocks.

    What the caller passes may be reused as soon as `write` returns.
    """

    def __init__(self, output: OpenOutput, total: int) -> None:
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
    if kind == "csv":
        _require_plane(specs)
    with open_output(path, force=force) as output, _opened(output, specs, layout, kind) as sink:
        yield sink


def _layout_of(kind: str, specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> FileLayout | None:
    """The whole file in advance, but for npz, whose checksums come with the elements."""
    if kind not in _MODULES:
        return None
    module = import_module(f"pe_cli.files.{_MODULES[kind]}")
    return cast(FileLayout, module.layout(specs, metadata))


@contextmanager
def _opened(
    output: OpenOutput, specs: Sequence[TensorSpec], layout: FileLayout | None, kind: str
) -> Iterator[Sink]:
    total = sum(spec.nbytes for spec in specs) if layout is None else layout.end
    sink: _Closing
    if kind == "csv":
        sink = _CsvSink(specs, Writer(output, total))
    else:
        output.reserve(total)
        sink = _NpzSink(specs, Writer(output, total)) if layout is None else _FlatSink(output, layout)
    try:
        yield sink
        sink.finish()
    except BaseException:
        sink.abandon()
        raise


class _Closing(Sink, Protocol):
    def finish(self) -> None: ...

    def abandon(self) -> None: ...


class _FlatSink:
    """Writes elements where the layout says, and the fixed parts before the elements that follow them."""

    def __init__(self, output: OpenOutput, layout: FileLayout) -> None:
        self.specs = layout.specs
        self.sequential = not output.seekable
        self._ledger = _Written(layout.specs, sequential=self.sequential)
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


def _require_plane(specs: Sequence[TensorSpec]) -> None:
    """A table of one or two axes of real numbers is what lines with commas can hold."""
    if len(specs) != 1:
        names = ", ".join(spec.called for spec in specs)
        raise PeError(f"csv holds one table, here are {names}: write .npz, .h5 or .safetensors")
    spec = specs[0]
    if len(spec.shape) > 2 or spec.dtype.startswith("complex"):
        raise PeError(
            f"csv holds lines of real numbers, {spec.called} is {spec.dtype} of shape {spec.shape}: write .npy"
        )


class _CsvSink:
    """`.csv`: a line for each row, numbers as short as they can be and still mean the stored value, without a heading."""

    sequential = True
    VALUES = 4096  # that are text at a time

    def __init__(self, specs: Sequence[TensorSpec], writer: Writer) -> None:
        self.specs = tuple(specs)
        self._ledger = _Written(specs, sequential=True)
        self._writer = writer
        self._end = 0

    def write(self, name: str, start: int, rows: NDArray[Any]) -> None:
        self._ledger.accept(name, start, rows)
        lines = rows.reshape(len(rows) if rows.ndim else 1, -1)
        plain = lines.astype(
            np.int8 if lines.dtype.kind == "b" else np.float32 if lines.dtype.kind == "V" else lines.dtype
        )
        step = max(1, self.VALUES // max(1, lines.shape[1]))
        for first in range(0, len(plain), step):
            text = "".join(f"{','.join(line)}\n" for line in plain[first : first + step].astype(str))
            self._writer.write(self._end, memoryview(text.encode("ascii")))
            self._end += len(text)

    def finish(self) -> None:
        """Write what is still held back; an error if rows are missing."""
        self._ledger.finish()
        self._writer.finish()

    def abandon(self) -> None:
        """Write no more."""
        self._writer.abandon()


class _OnlyForward(io.RawIOBase):
    """A file for zipfile that only goes forward, so that a pipe and a file get the same bytes."""

    def __init__(self, writer: Writer) -> None:
        self._writer: Writer | None = writer
        self._end = 0

    def stop(self) -> None:
        """Swallow what zipfile still writes when it is thrown away."""
        self._writer = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._writer is not None:
            self._writer.write(self._end, view)
        self._end += len(view)
        return len(view)


class _NpzSink:
    """`.npz`: members one after the other in the order of `specs`, stored without compression and with a fixed date, so that
    equal data is equal bytes; written front to back, also to a pipe.
    """

    sequential = True

    def __init__(self, specs: Sequence[TensorSpec], writer: Writer) -> None:
        import zipfile  # with all it brings, for this format alone

        from pe_cli.files.npy import header

        self.specs = tuple(specs)
        self._head = header
        self._ledger = _Written(specs, sequential=True)
        self._forward = _OnlyForward(writer)
        self._zip = zipfile.ZipFile(cast(IO[bytes], self._forward), "w", zipfile.ZIP_STORED)
        self._describe = zipfile.ZipInfo
        self._writer = writer
        self._member: IO[bytes] | None = None
        self._opened = 0

    def write(self, name: str, start: int, rows: NDArray[Any]) -> None:
        self._advance()
        _, data = self._ledger.accept(name, start, rows)
        if data and self._member is not None:
            self._member.write(data)
        self._advance()

    def finish(self) -> None:
        """Write the list of members, which is the end of the file."""
        self._ledger.finish()
        self._advance()
        self._zip.close()
        self._writer.finish()

    def abandon(self) -> None:
        """Write no more, also not when the archive is collected."""
        self._forward.stop()
        self._close_member()
        self._zip.close()
        self._writer.abandon()

    def _advance(self) -> None:
        """Close the member that is complete, and open the next, past those that have no elements."""
        while self._opened < len(self.specs) and self._opened <= self._ledger.turn:
            self._close_member()
            spec = self.specs[self._opened]
            info = self._describe(f"{spec.name}.npy", _DATE)
            head = self._head(spec)
            self._member = self._zip.open(info, "w", force_zip64=len(head) + spec.nbytes >= _ZIP64_FROM)
            self._member.write(head)
            self._opened += 1
        if self._ledger.turn >= len(self.specs):
            self._close_member()

    def _close_member(self) -> None:
        if self._member is not None:
            self._member.close()
            self._member = None


class _Written:
    """Which elements of which tensors have been written: refuses what does not fit, is out of turn or comes twice.

    `turn` is the index of the first tensor that is not yet whole.
    """

    def __init__(self, specs: Sequence[TensorSpec], *, sequential: bool) -> None:
        self.specs = tuple(specs)
        self.sequential = sequential
        self._specs = {spec.name: spec for spec in specs}
        self._written: dict[str, list[tuple[int, int]]] = {spec.name: [] for spec in specs}
        self.turn = 0
        self._skip_complete()

    def accept(self, name: str, start: int, rows: NDArray[Any]) -> tuple[int, memoryview]:
        """Where these rows begin, in bytes from the tensor's beginning, and their bytes in C order."""
        spec = self._specs[name]
        if rows.dtype != numpy_dtype(spec.dtype) or not rows.dtype.isnative:
            raise TypeError(f"tensor {name!r} was announced as {spec.dtype}, not {rows.dtype}")
        leading = len(spec.shape) - rows.ndim + 1
        if spec.shape and (leading < 1 or rows.ndim < 1 or rows.shape[1:] != spec.shape[leading:]):
            raise ValueError(
                f"tensor {name!r} was announced as {spec.shape}; rows of shape {rows.shape} do not fit"
            )
        row_size = math.prod(rows.shape[1:])
        if not 0 <= start * row_size <= start * row_size + rows.size <= spec.size:
            raise ValueError(
                f"rows {start}..{start + len(rows)} lie outside tensor {name!r} of shape {spec.shape}"
            )
        if rows.size == 0:
            return 0, memoryview(b"")
        if self.sequential:
            self._check_turn(name, start * row_size)
        self._note(name, start * row_size, start * row_size + rows.size)
        self._skip_complete()
        return start * row_size * rows.itemsize, as_bytes(rows)

    def finish(self) -> None:
        """Raise unless every row of every tensor has been written."""
        for spec in self.specs:
            if not self._complete(spec):
                raise RuntimeError(f"tensor {spec.name!r} of shape {spec.shape} was not written whole")

    def _check_turn(self, name: str, start: int) -> None:
        expected = self.specs[self.turn].name if self.turn < len(self.specs) else None
        spans = self._written[name]
        done = spans[-1][1] if spans else 0
        if name != expected or start != done:
            raise ValueError(
                f"this sink takes tensors in order: {expected!r} element {done} is next, not {name!r} element {start}"
            )

    def _note(self, name: str, start: int, stop: int) -> None:
        spans = self._written[name]
        if any(start < b and a < stop for a, b in spans):
            raise ValueError(f"elements {start}..{stop} of tensor {name!r} overlap those already written")
        merged: list[tuple[int, int]] = []
        for span in sorted([*spans, (start, stop)]):
            if merged and merged[-1][1] == span[0]:
                merged[-1] = (merged[-1][0], span[1])
            else:
                merged.append(span)
        self._written[name] = merged

    def _complete(self, spec: TensorSpec) -> bool:
        return spec.size == 0 or self._written[spec.name] == [(0, spec.size)]

    def _skip_complete(self) -> None:
        while self.turn < len(self.specs) and self._complete(self.specs[self.turn]):
            self.turn += 1
