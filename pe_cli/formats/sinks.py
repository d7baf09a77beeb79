"""`open_sink`: from named blocks of rows to a file of any format, or to standard output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.formats import npy, safetensors
from pe_cli.formats.atomic import Output, open_output
from pe_cli.formats.base import Layout, Ledger, Sink, TensorSpec, default_format
from pe_cli.formats.writer import Writer

_FLAT: Mapping[str, Callable[[Sequence[TensorSpec], Mapping[str, str]], Layout]] = {
    "npy": npy.layout,
    "safetensors": safetensors.layout,
}


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
    layout = _FLAT[kind](specs, metadata)
    with open_output(path, force=force) as output, _flat_sink(output, layout) as sink:
        yield sink


@contextmanager
def _flat_sink(output: Output, layout: Layout) -> Iterator[Sink]:
    output.reserve(layout.end)
    writer = Writer(output, layout.end)
    sink = _FlatSink(layout, writer, sequential=not output.seekable)
    try:
        writer.write(0, memoryview(layout.prefix))
        yield sink
        sink.ledger.finish()
        writer.finish()
    except BaseException:
        writer.abandon()
        raise


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
