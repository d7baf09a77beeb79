"""`open_sink`: from named blocks of rows to a file of any format, or to standard output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.formats import npy, safetensors
from pe_cli.formats.atomic import Output, open_output
from pe_cli.formats.base import Layout, Ledger, Sink, TensorSpec, default_format
from pe_cli.formats.writer import Writer


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
        from pe_cli.formats import hdf5_layout

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
    from pe_cli.formats.npz import NpzSink

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
