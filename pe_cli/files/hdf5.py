"""`.h5`: contiguous datasets are raw bytes, all others are read through the library. Links to other files stay closed.

The library can crash or run forever on a damaged file, where Python cannot stop it. So everything that it must parse to
list and find the datasets is parsed in a child process first, and what it must unpack is unpacked in one.

bfloat16 and float8_e5m2 are HDF5 floats of that very form: h5py gives them as float32 and float16 with the same
values. HDF5 cannot express float8_e4m3fn (it would take values from 256 for infinities), so it is stored as uint8.
All three have an attribute `dtype` with the name.
"""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import h5py
import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.files import READABLE, ByteInput, FileLayout, TensorSpec, check_memory, shown
from pe_cli.files.child import Verdict, can_fork, from_child, tried
from pe_cli.numerics.dtypes import NOT_IN_NUMPY, numpy_dtype
from pe_cli.process import size

# exponent bits, mantissa bits, exponent bias
FLOAT_FORMS = {"bfloat16": (8, 7, 127), "float8_e5m2": (5, 2, 15)}
_PAGE = 4096
_MAX_OBJECTS = 1_000_000
_MAX_AGAIN = (
    10_000  # names in groups that have several: of n groups, each in the one before twice, there are 2**n
)
_CACHE = 16 << 20
_COPIES = 3  # of what is unpacked, at most: in the library, in numpy and on its way
_PROBE_SECONDS, _MAX_PROBE_SECONDS = 5, 120
_PROBE_BYTES_A_SECOND = 1 << 20
_PROBE_BYTES = 1 << 30
_MAX_CHARACTERS = 1 << 25  # of all names together: in groups within groups each holds those before it
_UNPACKED_BYTES_A_SECOND = 4 << 20
# What is declared and takes no room: deflate packs at most 1032 to one, and what was never written takes none at all.
_MAX_RATIO, _RATIO_FROM = 2000, 16 << 20
# What is not numbers, in words.
_NOT_NUMBERS = {
    h5py.h5t.STRING: "strings",
    h5py.h5t.REFERENCE: "references",
    h5py.h5t.COMPOUND: "compound",
    h5py.h5t.VLEN: "lists",
    h5py.h5t.ARRAY: "arrays",
    h5py.h5t.OPAQUE: "bytes",
    h5py.h5t.TIME: "times",
}


@dataclass(frozen=True)
class _Way:
    """A group on the way from the root: the path to it, where it lies in the file, and the group before.

    `again` says that it, or one before, is known by another name.
    """

    prefix: str
    address: Any
    group: h5py.Group
    again: bool = False
    before: _Way | None = None

    def passes(self, address: Any) -> bool:
        """Whether the way comes by the object at `address`: into that, it would never end."""
        way: _Way | None = self
        while way is not None:
            if way.address == address:
                return True
            way = way.before
        return False


class Hdf5Reader:
    """An open HDF5 file; tensors are called by their path without the leading slash.

    A dataset that has several names is a tensor under each; `links` then has all but the first, and where that is.
    """

    format = "hdf5"

    def __init__(self, stream: ByteInput) -> None:
        self._stream = stream
        self._raw: IO[bytes] | None = None
        self._file: Any = None
        self.metadata: Mapping[str, str] = {}
        self.tensors: Mapping[str, TensorSpec] = {}
        self.links: dict[str, str] = {}
        seconds = min(_PROBE_SECONDS + (stream.size or 0) // _PROBE_BYTES_A_SECOND, _MAX_PROBE_SECONDS)
        verdict = tried(self._parse, cpu_seconds=seconds, more_bytes=_PROBE_BYTES)
        if verdict is Verdict.DIED:
            raise PeError(self._died)
        if verdict is not Verdict.DONE:
            what = f"{seconds} s" if verdict is Verdict.OUT_OF_TIME else f"{size(_PROBE_BYTES)} of memory"
            raise PeError(
                f"{stream.label} takes more than {what} to be listed: it is damaged, or holds far more names than a "
                "file of tensors does"
            )
        try:
            self._open()
        except Exception as error:  # the library raises whatever a damaged file makes it meet
            self.close()
            raise self._broken(error) from error

    @property
    def _died(self) -> str:
        return f"{self._stream.label} is damaged in a way that takes the HDF5 library down; fetch it again"

    def _parse(self) -> None:
        self._open()
        for name in self.tensors:
            with suppress(PeError):
                self.start(name)

    def _open(self) -> None:
        path = self._stream.path
        if path:
            self._file = h5py.File(path, "r", locking=False, rdcc_nbytes=_CACHE)
        else:
            # HDF5 wants to resolve the path, which a temporary file without a name does not have.
            self._raw = open(self._stream.named(), "rb", buffering=0)  # noqa: SIM115 (see close)
            self._file = h5py.File(self._raw, "r", rdcc_nbytes=_CACHE)
        self.metadata = _texts(self._file.attrs)
        self.links = {}
        self.tensors = {name: _describe(name, dataset) for name, dataset in self._datasets()}

    def pieces(self, name: str, items: int) -> Iterator[NDArray[Any]]:
        start = self.start(name)
        if start is not None:
            return self._stream.elements(*start, self.tensors[name].size, items)
        spec = self.tensors[name]
        self._refuse_bomb(spec)
        self._find_filters(name)

        def unpack() -> Iterator[NDArray[Any]]:
            return self._through_library(self._file[name], spec, items)

        def unpack_apart() -> Iterator[NDArray[Any]]:
            if self._raw is not None:
                self._open()  # the position in a file is shared with the parent, unless it is opened again
            return unpack()

        if not can_fork():
            return unpack()
        seconds = _PROBE_SECONDS + spec.nbytes // _UNPACKED_BYTES_A_SECOND
        return from_child(
            unpack_apart,
            numpy_dtype(spec.dtype),
            cpu_seconds=seconds,
            more_bytes=self._unpacking_bytes(spec, items),
            died=self._died,
        )

    def start(self, name: str) -> tuple[int, np.dtype[Any]] | None:
        """Where the elements of a contiguous dataset begin; None where only the library can find them."""
        try:
            dataset = self._file[name]
            creation = dataset.id.get_create_plist()
            if creation.get_layout() == h5py.h5d.VIRTUAL or creation.get_external_count():
                raise PeError(
                    f"{self._stream.label}: dataset {name!r} lies in other files, which are not followed; copy it with h5repack"
                )
            offset = dataset.id.get_offset()
            stored = _raw_type(dataset, self.tensors[name])
        except Exception as error:
            raise self._broken(error) from error
        contiguous = creation.get_layout() == h5py.h5d.CONTIGUOUS
        return (offset, stored) if contiguous and offset is not None and stored is not None else None

    def close(self) -> None:
        """Close the library's handles."""
        with suppress(Exception):
            self._file.close()
        if self._raw is not None:
            self._raw.close()

    def _datasets(self) -> Iterator[tuple[str, h5py.Dataset]]:
        """Every dataset that a chain of hard links reaches, by each of its names, in the order of names."""
        root = self._file["/"]
        first: dict[Any, str] = {address_of(root): ""}
        again = characters = 0
        waiting = deque([_Way("", address_of(root), root)])
        while waiting:
            way = waiting.popleft()
            for key in way.group:
                path = f"{way.prefix}{key}"
                characters += len(path)
                if characters > _MAX_CHARACTERS:
                    raise PeError(
                        f"{self._stream.label} has names of more than {_MAX_CHARACTERS:,} characters together"
                    )
                link = way.group.get(key, getlink=True)
                if not isinstance(link, h5py.HardLink):
                    self.links[path] = _target(link)
                    continue
                if len(first) > _MAX_OBJECTS:
                    raise PeError(f"{self._stream.label} has more than {_MAX_OBJECTS} HDF5 objects")
                child = way.group[key]
                address = address_of(child)
                if address in first and way.passes(address):
                    continue
                again += way.again
                if way.again and again > _MAX_AGAIN:
                    continue
                known = first.setdefault(address, path) != path
                if isinstance(child, h5py.Group):
                    waiting.append(_Way(f"{path}/", address, child, known or way.again, way))
                elif isinstance(child, h5py.Dataset) and child.shape is not None:
                    if known:
                        self.links[path] = f"/{first[address]}"
                    yield path, child

    def _refuse_bomb(self, spec: TensorSpec) -> None:
        """Refuse what declares far more than the file can hold, before it is made; a chunk is made whole."""
        chunks = self._file[spec.name].chunks
        chunk = math.prod(chunks) * numpy_dtype(spec.dtype).itemsize if chunks else 0
        declared, holds = max(spec.nbytes, chunk), self._stream.size or 0
        if declared > _RATIO_FROM + _MAX_RATIO * holds:
            raise PeError(
                f"{self._stream.label}: {shown(spec.name)!r} declares {size(declared)} in a file of {size(holds)}, "
                f"more than {_MAX_RATIO} times; most was never written, or do not trust it"
            )
        check_memory(_COPIES * chunk, f"one chunk of {self._stream.label}")

    def _unpacking_bytes(self, spec: TensorSpec, items: int) -> int:
        """How much memory it takes to unpack a dataset: a row of chunks and what is asked for, some times each."""
        chunks = self._file[spec.name].chunks
        rows = chunks[0] if chunks else 1
        row = spec.nbytes // max(1, spec.shape[0]) if spec.shape else spec.nbytes
        asked = items * numpy_dtype(spec.dtype).itemsize
        return _PROBE_BYTES + 2 * _COPIES * (rows * row + asked)

    def _missing_filter(self, name: str) -> int | None:
        """The number of a filter that the dataset needs and the library does not have."""
        creation = self._file[name].id.get_create_plist()
        numbers = (creation.get_filter(index)[0] for index in range(creation.get_nfilters()))
        return next((number for number in numbers if not h5py.h5z.filter_avail(number)), None)

    def _find_filters(self, name: str) -> None:
        """Filters that do not come with the library are known to it once the package that brings them is imported."""
        with suppress(ImportError):
            if self._missing_filter(name) is not None:
                importlib.import_module("hdf5plugin")

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
                if (number := self._missing_filter(spec.name)) is not None:
                    raise PeError(
                        f"{self._stream.label}: {shown(spec.name)!r} is packed by the HDF5 filter {number}, which is not "
                        "installed; pip install hdf5plugin"
                    ) from error
                raise self._broken(error) from error
            flat = _values(np.asarray(block), spec.dtype)
            rest = np.concatenate([rest, flat]) if rest.size else flat
            while rest.size >= items:
                yield rest[:items]
                rest = rest[items:]
        if rest.size:
            yield rest

    def _broken(self, error: Exception) -> Exception:
        if isinstance(error, (PeError, MemoryError)):
            return error
        reason = shown(str(error).partition("\n")[0], 120) or type(error).__name__
        return PeError(
            f"{self._stream.label} cannot be read as HDF5 ({reason}); it may be damaged or cut off"
        )


def names_of(file: h5py.File, addresses: set[Any]) -> dict[Any, list[tuple[h5py.Group, str]]]:
    """All hard links to the objects at `addresses`, as (group, key in it); each group is looked into once."""
    found: dict[Any, list[tuple[h5py.Group, str]]] = {address: [] for address in addresses}
    seen = {address_of(file["/"])}
    waiting = deque([file["/"]])
    while waiting:
        group = waiting.popleft()
        for key in group:
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                continue
            child = group[key]
            address = address_of(child)
            if address in found:
                found[address].append((group, key))
            elif isinstance(child, h5py.Group) and address not in seen:
                seen.add(address)
                waiting.append(child)
    return found


def put_anew(file: h5py.File, old: h5py.Dataset, values: NDArray[Any]) -> h5py.Dataset:
    """A dataset without a name that holds `values` as `old` holds its own: chunks, filters, byte order, attributes."""
    creation = old.id.get_create_plist()
    creation.set_obj_track_times(False)
    most = tuple(
        h5py.h5s.UNLIMITED if limit is None else n if limit == before else max(limit, n)
        for limit, before, n in zip(old.maxshape, old.shape, values.shape, strict=True)
    )
    if creation.get_layout() == h5py.h5d.CHUNKED:
        pairs = zip(creation.get_chunk(), most, strict=True)
        creation.set_chunk(tuple(n if limit == h5py.h5s.UNLIMITED else min(n, limit) for n, limit in pairs))
    else:
        creation.set_layout(h5py.h5d.CONTIGUOUS)  # what is compact may have grown out of its header
    same = np.dtype(old.dtype).newbyteorder("=") == values.dtype
    kind = old.id.get_type() if same else h5py.h5t.py_create(values.dtype, logical=True)
    space = h5py.h5s.create_simple(values.shape, most)
    new = h5py.Dataset(h5py.h5d.create(file.id, None, kind, space, creation))
    new[...] = values
    new.attrs.update(old.attrs)
    return new


def address_of(thing: h5py.Group | h5py.Dataset) -> Any:
    return h5py.h5o.get_info(thing.id).addr


def _target(link: Any) -> str:
    """Where a soft or external link leads, as `FILE:/path` or `/path`; `nowhere` for links of other kinds."""
    file = f"{link.filename}:" if isinstance(link, h5py.ExternalLink) else ""
    return f"{file}{link.path}" if link is not None else "nowhere"


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
    dtype = None
    with suppress(TypeError):  # numpy has nothing like it
        dtype = dataset.dtype
    declared = _texts(dataset.attrs).get("dtype")
    if isinstance(kind, h5py.h5t.TypeFloatID):
        form = (*kind.get_fields()[2:3], kind.get_fields()[4], kind.get_ebias())
        for name, known in FLOAT_FORMS.items():
            if form == known:
                return name
    if declared == "float8_e4m3fn" and dtype == np.uint8:
        return declared
    if isinstance(kind, h5py.h5t.TypeOpaqueID) and dtype == np.dtype("V2"):
        return "bfloat16"  # what h5py makes of ml_dtypes' bfloat16
    name = "unknown" if dtype is None else str(dtype.name)
    return name if name in READABLE else _NOT_NUMBERS.get(kind.get_class(), name)


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


def layout(specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> FileLayout:
    """Where HDF5 puts the elements of each dataset, and all the bytes that it writes around them.

    The library writes into memory; since every dataset is allocated and none is filled, that is little.
    """
    memory = _Sparse()
    with h5py.File(memory, "w", libver=("earliest", "v110")) as file:
        file.attrs.update(sorted(metadata.items()))
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
        view[:] = self.read(len(view))
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
        raise PeError(f"an HDF5 dataset cannot be called {spec.name!r}; choose another {parameter('name')}")
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
