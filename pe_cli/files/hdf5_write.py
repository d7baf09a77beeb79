"""`.h5`, written: contiguous datasets that HDF5 lays out in memory, so that their elements can be streamed.

bfloat16 and float8_e5m2 are HDF5 floats of that very form: h5py gives them as float32 and float16 with the same
values. HDF5 cannot express float8_e4m3fn (it would take values from 256 for infinities), so it is stored as uint8.
All three have an attribute `dtype` with the name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from pe_cli.errors import PeError
from pe_cli.files.base import FileLayout, TensorSpec
from pe_cli.numerics.dtypes import NOT_IN_NUMPY, numpy_dtype

# exponent bits, mantissa bits, exponent bias
FLOAT_FORMS = {"bfloat16": (8, 7, 127), "float8_e5m2": (5, 2, 15)}
_PAGE = 4096


def layout(specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> FileLayout:
    """Where HDF5 puts the elements of each dataset, and all the bytes that it writes around them.

    The library writes into memory; since every dataset is allocated and none is filled, that is little.
    """
    memory = _Sparse()
    with h5py.File(memory, "w", libver=("earliest", "v110")) as file:
        for key, text in sorted(metadata.items()):
            file.attrs[key] = text
        offsets = {spec.name: _allocate(file, spec) for spec in specs}
    ordered = tuple(sorted(specs, key=lambda spec: offsets[spec.name]))
    fixed, end = [], 0
    for spec in ordered:
        if spec.size:
            fixed.append((end, memory.between(end, offsets[spec.name])))
            end = offsets[spec.name] + spec.nbytes
    fixed.append((end, memory.between(end, memory.size)))
    return FileLayout(tuple(fixed), offsets, ordered)


class _Sparse:
    """A file in memory that holds only the pages that were written."""

    def __init__(self) -> None:
        self.size = 0
        self._at = 0
        self._pages: dict[int, bytearray] = {}

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self.size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view):
            page, begin = divmod(self._at, _PAGE)
            count = min(_PAGE - begin, len(view) - done)
            self._pages.setdefault(page, bytearray(_PAGE))[begin : begin + count] = view[done : done + count]
            done += count
            self._at += count
        self.size = max(self.size, self._at)
        return done

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = self.between(self._at, self._at + len(view))
        self._at += len(view)
        return len(view)

    def read(self, count: int) -> bytes:
        self._at += count
        return self.between(self._at - count, self._at)

    def between(self, begin: int, end: int) -> bytes:
        """The bytes of that range, zero where nothing was written."""
        first, last = begin // _PAGE, -(-end // _PAGE)
        pages = b"".join(self._pages.get(page, bytes(_PAGE)) for page in range(first, last))
        return pages[begin - first * _PAGE : end - first * _PAGE]

    def truncate(self, size: int) -> int:
        self.size = size
        return size

    def flush(self) -> None:
        pass


def _allocate(file: h5py.File, spec: TensorSpec) -> int:
    if not spec.name.strip("/.") or "\0" in spec.name:
        raise PeError(f"an HDF5 dataset cannot be called {spec.name!r}; choose another --name")
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_layout(h5py.h5d.CONTIGUOUS)
    creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    creation.set_obj_track_times(False)
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    links.set_char_encoding(h5py.h5t.CSET_UTF8)
    space = h5py.h5s.create_simple(spec.shape) if spec.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    try:
        identifier = h5py.h5d.create(file.id, None, _file_type(spec.dtype), space, creation)
        h5py.h5o.link(identifier, file.id, spec.name.encode(), lcpl=links)
    except (ValueError, RuntimeError, KeyError, OSError) as error:
        raise PeError(f"HDF5 cannot hold tensor {spec.name!r} of shape {spec.shape}: {error}") from error
    if spec.dtype in NOT_IN_NUMPY:
        h5py.Dataset(identifier).attrs["dtype"] = spec.dtype
    return identifier.get_offset() or 0


def _file_type(name: str) -> h5py.h5t.TypeID:
    if name in FLOAT_FORMS:
        exponent, mantissa, bias = FLOAT_FORMS[name]
        bits = 1 + exponent + mantissa
        form = h5py.h5t.IEEE_F16LE.copy()
        form.set_fields(bits - 1, mantissa, exponent, 0, mantissa)
        form.set_ebias(bias)
        form.set_precision(bits)
        form.set_size(bits // 8)
        return form
    return h5py.h5t.py_create(np.dtype(np.uint8) if name in NOT_IN_NUMPY else numpy_dtype(name), logical=True)
