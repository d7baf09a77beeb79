"""`.h5`: contiguous datasets, laid out by HDF5 and then written as raw bytes at their offsets.

bfloat16 and float8_e5m2 are HDF5 floats of that very form: h5py gives them as float32 and float16 with the same
values. HDF5 cannot express float8_e4m3fn (it would take values from 256 for infinities), so it is stored as uint8.
All three have an attribute `dtype` with the name. Links to other files are never followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pe_cli.dtypes import NOT_IN_NUMPY, numpy_dtype
from pe_cli.errors import PeError
from pe_cli.formats.base import READABLE, Layout, TensorSpec, check_memory
from pe_cli.formats.stream import ByteInput

MAGIC = b"\x89HDF\r\n\x1a\n"
# exponent bits, mantissa bits, exponent bias
_FLOAT_FORMS = {"bfloat16": (8, 7, 127), "float8_e5m2": (5, 2, 15)}
_MAX_OBJECTS = 1_000_000
_PAGE = 4096


def layout(specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> Layout:
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
    return Layout(tuple(fixed), offsets, ordered)


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
    if name in _FLOAT_FORMS:
        exponent, mantissa, bias = _FLOAT_FORMS[name]
        bits = 1 + exponent + mantissa
        form = h5py.h5t.IEEE_F16LE.copy()
        form.set_fields(bits - 1, mantissa, exponent, 0, mantissa)
        form.set_ebias(bias)
        form.set_precision(bits)
        form.set_size(bits // 8)
        return form
    return h5py.h5t.py_create(np.dtype(np.uint8) if name in NOT_IN_NUMPY else numpy_dtype(name), logical=True)


class Hdf5Reader:
    """An open HDF5 file; tensors are called by their path without the leading slash."""

    format = "hdf5"

    def __init__(self, stream: ByteInput) -> None:
        self._stream = stream
        # HDF5 wants to resolve the path, which a temporary file without a name does not have.
        self._raw = None if stream.path else open(os.dup(stream.fd), "rb", buffering=0)  # noqa: SIM115 (see close)
        options = {"locking": False} if stream.path else {}
        try:
            self._file = h5py.File(self._raw or stream.path, "r", rdcc_nbytes=16 << 20, **options)
        except (OSError, ValueError, RuntimeError) as error:
            self._close_raw()
            raise self._broken(error) from error
        self.metadata: Mapping[str, str] = {}
        self.tensors: Mapping[str, TensorSpec] = {}
        try:
            self.metadata = _texts(self._file.attrs)
            self.tensors = {name: _describe(name, dataset) for name, dataset in self._datasets()}
        except PeError:
            self.close()
            raise
        except Exception as error:  # the library raises whatever a damaged file makes it meet
            self.close()
            raise self._broken(error) from error

    def pieces(self, name: str, items: int) -> Iterator[NDArray[Any]]:
        try:
            dataset = self._file[name]
            creation = dataset.id.get_create_plist()
            self._refuse_elsewhere(name, creation)
            offset = dataset.id.get_offset()
        except PeError:
            raise
        except Exception as error:
            raise self._broken(error) from error
        spec = self.tensors[name]
        stored = _raw_type(dataset, spec)
        if offset is not None and stored is not None and creation.get_layout() == h5py.h5d.CONTIGUOUS:
            return self._stream.elements(offset, stored, spec.size, items)
        return self._through_library(dataset, spec, items)

    def close(self) -> None:
        """Close the library's handles."""
        with suppress(Exception):
            self._file.close()
        self._close_raw()

    def _close_raw(self) -> None:
        if self._raw is not None:
            self._raw.close()

    def _datasets(self) -> Iterator[tuple[str, h5py.Dataset]]:
        """Every dataset that a chain of hard links reaches, each once, in the order of names."""
        seen: set[Any] = set()
        waiting: list[tuple[str, h5py.Group]] = [("", self._file["/"])]
        while waiting:
            prefix, group = waiting.pop(0)
            for key in group:
                if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                    continue
                if len(seen) > _MAX_OBJECTS:
                    raise PeError(f"{self._stream.label} has more than {_MAX_OBJECTS} HDF5 objects")
                child = group[key]
                address = h5py.h5o.get_info(child.id).addr
                if address in seen:
                    continue
                seen.add(address)
                if isinstance(child, h5py.Group):
                    waiting.append((f"{prefix}{key}/", child))
                elif isinstance(child, h5py.Dataset) and child.shape is not None:
                    yield f"{prefix}{key}", child

    def _refuse_elsewhere(self, name: str, creation: Any) -> None:
        if creation.get_layout() == h5py.h5d.VIRTUAL or creation.get_external_count():
            raise PeError(
                f"{self._stream.label}: dataset {name!r} lies in other files, which are not followed; copy it with h5repack"
            )

    def _through_library(self, dataset: h5py.Dataset, spec: TensorSpec, items: int) -> Iterator[NDArray[Any]]:
        """Whatever is chunked, compressed or of another byte order: whole rows (of chunks), cut into pieces."""
        if spec.size == 0:
            return
        rows = max(1, items * spec.shape[0] // spec.size) if spec.shape else 1
        if dataset.chunks:
            rows = -(-rows // dataset.chunks[0]) * dataset.chunks[0]
        total = spec.shape[0] if spec.shape else 1
        check_memory(min(rows, total) * (spec.nbytes // total), f"reading {self._stream.label}")
        rest = np.empty(0, numpy_dtype(spec.dtype))
        for first in range(0, total, rows):
            try:
                block = dataset[first : first + rows] if spec.shape else dataset[()]
            except Exception as error:
                raise self._broken(error) from error
            flat = _values(np.asarray(block), spec.dtype)
            rest = np.concatenate([rest, flat]) if rest.size else flat
            while rest.size >= items:
                yield rest[:items]
                rest = rest[items:]
        if rest.size:
            yield rest

    def _broken(self, error: Exception) -> PeError:
        reason = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        return PeError(
            f"{self._stream.label} cannot be read as HDF5 ({reason}); it may be damaged or cut off"
        )


def _texts(attributes: h5py.AttributeManager) -> dict[str, str]:
    found = {}
    for key in attributes:
        with suppress(OSError, TypeError, ValueError, RuntimeError):
            if isinstance(value := attributes[key], str):
                found[key] = value
    return found


def _describe(name: str, dataset: h5py.Dataset) -> TensorSpec:
    dtype = _logical_name(dataset)
    shape = tuple(int(n) for n in dataset.shape)
    stored = None if dtype in READABLE else dataset.size * dataset.id.get_type().get_size()
    return TensorSpec(name, dtype, shape, stored)


def _logical_name(dataset: h5py.Dataset) -> str:
    kind = dataset.id.get_type()
    declared = _texts(dataset.attrs).get("dtype")
    if isinstance(kind, h5py.h5t.TypeFloatID):
        form = (*kind.get_fields()[2:3], kind.get_fields()[4], kind.get_ebias())
        for name, known in _FLOAT_FORMS.items():
            if form == known:
                return name
    if declared == "float8_e4m3fn" and dataset.dtype == np.uint8:
        return declared
    if isinstance(kind, h5py.h5t.TypeOpaqueID) and dataset.dtype == np.dtype("V2"):
        return "bfloat16"  # what h5py makes of ml_dtypes' bfloat16
    return str(dataset.dtype.name)


def _raw_type(dataset: h5py.Dataset, spec: TensorSpec) -> np.dtype[Any] | None:
    """The elements as they lie in the file, or None where only the library can tell."""
    kind = dataset.id.get_type()
    if spec.dtype in NOT_IN_NUMPY:
        dtype = numpy_dtype(spec.dtype)
        little = not isinstance(kind, h5py.h5t.TypeFloatID) or kind.get_order() == h5py.h5t.ORDER_LE
        return dtype if little and kind.get_size() == dtype.itemsize else None
    dtype = np.dtype(dataset.dtype)
    plain = isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID) and kind.equal(
        h5py.h5t.py_create(dtype)
    )
    return dtype if plain and kind.get_size() == dtype.itemsize else None


def _values(block: NDArray[Any], dtype: str) -> NDArray[Any]:
    flat = block.reshape(-1)
    if dtype in NOT_IN_NUMPY and flat.dtype.kind in "Vu":
        return flat.view(numpy_dtype(dtype))
    return flat.astype(numpy_dtype(dtype), copy=False)
