"""All differences of two tables in one pass and in bounded memory.

Both sides are read in blocks of about 1 MiB into reused buffers. Bytes are compared first: only blocks that
differ are looked into. Two threads take a half each where both files can be read at any place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.compare.metrics import Comparison, Metrics, Spare, Tolerance, squeezed
from pe_cli.dtypes import numpy_dtype
from pe_cli.errors import PeError
from pe_cli.formats import TensorSpec
from pe_cli.sources import Source

BLOCK_BYTES = 1 << 20
THREADS_FROM = 64 << 20

Blocks = Iterator[tuple[int, NDArray[Any], NDArray[Any]]]  # first row, rows of a, rows of b


def compare(
    a: Source,
    name_a: str,
    b: Source,
    name_b: str,
    tolerance: Tolerance,
    progress: Callable[[int], None] | None = None,
) -> Metrics:
    """Compare two tensors of the same shape, axes of length 1 aside; `progress` is told the bytes done of one side.

    Errors: a tensor of a type that is not read.
    """
    spec_a, spec_b = a.spec(name_a), b.spec(name_b)
    a.require_readable(spec_a)
    b.require_readable(spec_b)
    comparison = Comparison(squeezed(spec_a.shape), spec_a.dtype, spec_b.dtype, tolerance)
    whole = comparison.empty()
    if spec_a.size == 0:
        return whole
    spans = a.span(name_a), b.span(name_b)
    if spans[0] is None or spans[1] is None:
        spare = Spare()
        for first, x, y in _walk(a, spec_a, b, spec_b, comparison.rows):
            comparison.block(whole, first, x, y, spare)
            if progress:
                progress(x.nbytes)
        return whole
    reader = _Spans(spans[0], spans[1], spec_a, spec_b, comparison)
    parts = 2 if spec_a.nbytes >= THREADS_FROM else 1
    edges = [comparison.rows * k // parts for k in range(parts + 1)]
    if parts == 1:
        return reader.run(0, comparison.rows, progress)
    with ThreadPoolExecutor(parts) as pool:
        for found in pool.map(lambda k: reader.run(edges[k], edges[k + 1], progress), range(parts)):
            whole.merge(found)
    return whole


class _Spans:
    """Both tensors in regular files: read at any row into buffers of one's own."""

    def __init__(
        self,
        a: tuple[int, int, np.dtype[Any]],
        b: tuple[int, int, np.dtype[Any]],
        spec_a: TensorSpec,
        spec_b: TensorSpec,
        comparison: Comparison,
    ) -> None:
        self.sides = ((a, spec_a), (b, spec_b))
        self.comparison = comparison
        self.items = spec_a.size // comparison.rows
        widest = max(a[2].itemsize, b[2].itemsize) * self.items
        self.step = max(1, BLOCK_BYTES // widest)

    def run(self, start: int, stop: int, progress: Callable[[int], None] | None) -> Metrics:
        found = self.comparison.empty()
        spare = Spare()
        buffers = [np.empty(self.step * self.items, span[2]) for span, _ in self.sides]
        for row in range(start, stop, self.step):
            rows = min(self.step, stop - row)
            blocks = []
            for (span, spec), buffer in zip(self.sides, buffers, strict=True):
                part = buffer[: rows * self.items]
                _fill(span[0], span[1] + row * self.items * span[2].itemsize, part, spec)
                native = part if span[2].isnative else part.astype(span[2].newbyteorder("="))
                blocks.append(native.reshape(rows, -1))
            self.comparison.block(found, row, blocks[0], blocks[1], spare)
            if progress:
                progress(blocks[0].nbytes)
        return found


def _fill(descriptor: int, offset: int, part: NDArray[Any], spec: TensorSpec) -> None:
    view = part.view(np.uint8).data
    done = 0
    while done < len(view):
        got = os.preadv(descriptor, [view[done:]], offset + done)
        if got == 0:
            raise PeError(f"tensor {spec.name!r} ends before its {spec.nbytes} bytes: the file has been cut")
        done += got


def _walk(a: Source, spec_a: TensorSpec, b: Source, spec_b: TensorSpec, count: int) -> Blocks:
    """Blocks of the same of `count` rows from two sources that are read forward."""
    if not (spec_a.shape and spec_b.shape):
        yield 0, a.read(spec_a.name).reshape(1, 1), b.read(spec_b.name).reshape(1, 1)
        return
    items = spec_a.size // count
    rows = max(1, BLOCK_BYTES // (items * max(numpy_dtype(s.dtype).itemsize for s in (spec_a, spec_b))))
    pieces = a.flat(spec_a.name, items=rows * items), b.flat(spec_b.name, items=rows * items)
    first = 0
    for x, y in zip(*pieces, strict=True):
        yield first, x.reshape(-1, items), y.reshape(-1, items)
        first += x.size // items
