"""`open_sink`: from named blocks of rows to a file of any format, or to standard output."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.formats import npy, safetensors
from pe_cli.formats.atomic import Output, open_output
from pe_cli.formats.base import Layout, Ledger, Sink, TensorSpec, default_format
from pe_cli.formats.writer import BLOCK, Writer


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
    with open_output(path, force=force) as output, _SINKS[kind](output, specs, metadata) as sink:
        yield sink


@contextmanager
def _writing(output: Output, total: int) -> Iterator[Writer]:
    writer = Writer(output, total)
    try:
        yield writer
        writer.finish()
    except BaseException:
        writer.abandon()
        raise


@contextmanager
def _laid_out(output: Output, layout: Layout) -> Iterator[Sink]:
    output.reserve(layout.end)
    with _writing(output, layout.end) as writer:
        sink = _FlatSink(layout, writer, sequential=not output.seekable)
        writer.write(0, memoryview(layout.prefix))
        yield sink
        sink.ledger.finish()


@contextmanager
def _npy(output: Output, specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> Iterator[Sink]:
    with _laid_out(output, npy.layout(specs, metadata)) as sink:
        yield sink


@contextmanager
def _safetensors(output: Output, specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> Iterator[Sink]:
    with _laid_out(output, safetensors.layout(specs, metadata)) as sink:
        yield sink


@contextmanager
def _npz(output: Output, specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> Iterator[Sink]:
    from pe_cli.formats.npz import NpzSink

    total = sum(spec.nbytes for spec in specs)
    output.reserve(total)
    with _writing(output, total) as writer:
        sink = NpzSink(specs, writer)
        try:
            yield sink
            sink.finish()
        except BaseException:
            sink.abandon()
            raise


@contextmanager
def _h5(output: Output, specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> Iterator[Sink]:
    from pe_cli.formats import hdf5

    if output.seekable:
        with _laid_out(output, hdf5.create(output.fd, specs, metadata)) as sink:
            yield sink
        return
    # HDF5 cannot be written front to back: a pipe gets it from a temporary file.
    with tempfile.TemporaryFile() as file:
        inner = Output(file.fileno(), f"{output.label} (by way of {tempfile.gettempdir()})", True)
        with _laid_out(inner, hdf5.create(inner.fd, specs, metadata)) as sink:
            yield sink
        _copy(file.fileno(), output)


def _copy(fd: int, output: Output) -> None:
    size = os.fstat(fd).st_size
    with _writing(output, size) as writer:
        for start in range(0, size, BLOCK):
            writer.write(start, memoryview(os.pread(fd, BLOCK, start)))


_Opener = Callable[[Output, Sequence[TensorSpec], Mapping[str, str]], AbstractContextManager[Sink]]
_SINKS: Mapping[str, _Opener] = {"npy": _npy, "npz": _npz, "h5": _h5, "safetensors": _safetensors}


class _FlatSink:
    """Writes elements where the layout says."""

    def __init__(self, layout: Layout, writer: Writer, *, sequential: bool) -> None:
        self.specs = layout.specs
        self.sequential = sequential
        self.ledger = Ledger(layout.specs, sequential=sequential)
        self._offsets = layout.offsets
        self._writer = writer

    def write(self, name: str, start: int, rows: NDArray[Any]) -> None:
        offset, data = self.ledger.accept(name, start, rows)
        if data:
            self._writer.write(self._offsets[name] + offset, data)
