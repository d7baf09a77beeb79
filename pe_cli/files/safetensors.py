"""`.safetensors`: a JSON header, then the elements without holes.

The header is written here and not by the library, whose order of metadata changes from process to process and which
wants all tensors in memory. Reading checks everything that the header says before any of it is believed.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.files import (
    MOST_TENSORS,
    NO_LINKS,
    ByteInput,
    FileLayout,
    NoSuchTypeError,
    TensorSpec,
    truncated,
)
from pe_cli.files.text import parse_json
from pe_cli.numerics.dtypes import SAFETENSORS_CODES, numpy_dtype
from pe_cli.process import require_memory
from pe_cli.process import size as size_of

PAGE = 4096  # bytes
MAX_HEADER = 100_000_000  # the format's own bound
_NAMES = {code: name for name, code in SAFETENSORS_CODES.items()}
_MAX_AXES = 64
SOME = 1 << 16  # brackets in metadata
BYTES_A_BYTE = 12  # of text in which no list or object is empty, once it is parsed
_SURROGATE = re.compile("[\ud800-\udfff]")
# Sizes in bits of all types of the format; those without a name above pe passes through and does not read.
_BITS = {
    **dict.fromkeys(("F64", "C64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of a header: its type's code, shape, and byte range from the end of the header."""

    name: str
    code: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.begin

    @property
    def spec(self) -> TensorSpec:
        """The tensor in pe's words; a type that pe does not read keeps its code and its size."""
        if self.code in _NAMES:
            return TensorSpec(self.name, _NAMES[self.code], self.shape)
        return TensorSpec(self.name, self.code, self.shape, self.nbytes)


@dataclass(frozen=True)
class Header:
    """A header that was read and found true.

    `tensors` are in the order of their bytes, without holes from 0 to `data_bytes`; `names` are in the order of
    the header's text; `metadata` is None where the file has none. `data_start` is where byte 0 of the data lies.
    """

    metadata: dict[str, str] | None
    tensors: dict[str, TensorEntry]
    names: tuple[str, ...]
    data_start: int
    data_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_bytes", max((entry.end for entry in self.tensors.values()), default=0))


class Readable(Protocol):
    """Anything with `read(n)`; fewer bytes only at the end."""

    def read(self, count: int, /) -> bytes: ...


def read_header(stream: Readable, *, label: str = "the input", size: int | None = None) -> Header:
    """Read and check the header at the beginning of `stream`; `size` of the whole file, where it is known.

    Errors: a header that is too long, no JSON, names a tensor twice, or whose ranges do not agree with the shapes,
    overlap, leave holes, or do not end with the file.
    """
    prefix = _exactly(stream, 8, label)
    length = int.from_bytes(prefix, "little")
    if length > MAX_HEADER:
        raise PeError(
            f"{label} declares a safetensors header of {size_of(length)}; the format allows {MAX_HEADER} bytes"
        )
    if size is not None and 8 + length > size:
        raise truncated(label, 8 + length - size)
    table = _parse(_exactly(stream, length, label), label)
    _refuse_half_characters(table, label)
    metadata = _metadata(table.pop("__metadata__", None), label)
    entries = [_entry(name, fields, label) for name, fields in table.items()]
    names = tuple(entry.name for entry in entries)
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    expected = 0
    for entry in entries:
        if entry.begin != expected:
            what = "overlaps the tensor before it" if entry.begin < expected else "leaves a hole before it"
            raise PeError(
                f"{label}: tensor {entry.name!r} {what} (it begins at {entry.begin}, not {expected})"
            )
        expected = entry.end
    header = Header(metadata, {entry.name: entry for entry in entries}, names, 8 + length)
    if size is not None and size < header.data_start + expected:
        raise truncated(label, header.data_start + expected - size)
    if size is not None and size > header.data_start + expected:
        extra = size - header.data_start - expected
        raise PeError(f"{label} has {extra} bytes after its last tensor; no safetensors loader accepts that")
    return header


def write_header(
    tensors: Iterable[TensorEntry], metadata: Mapping[str, str] | None, *, page_of: int = 0
) -> bytes:
    """The length, the header's JSON in the order given, and spaces up to a multiple of 8 bytes.

    The library's own spelling: `write_header` of what `read_header` gave, in the order of `names`, is the same bytes.
    With `page_of`, more spaces: elements that began at this offset come to lie in their pages as they did, so that the
    kernel copies them page by page, in about half of the time.
    """
    table: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    for entry in tensors:
        table[entry.name] = {
            "dtype": entry.code,
            "shape": entry.shape,
            "data_offsets": (entry.begin, entry.end),
        }
    text = json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text = text.ljust(-(-len(text) // 8) * 8)
    if page_of and page_of % 8 == 0:
        text = text.ljust(len(text) + (page_of - 8 - len(text)) % PAGE)
    if len(text) > MAX_HEADER:
        raise PeError(f"a safetensors header of {size_of(len(text))} is more than the format allows")
    return len(text).to_bytes(8, "little") + text


def entries_of(specs: Sequence[TensorSpec]) -> list[TensorEntry]:
    """The specs one after the other, without holes."""
    entries, begin = [], 0
    for spec in specs:
        if spec.dtype not in SAFETENSORS_CODES:
            raise NoSuchTypeError(
                f"safetensors has no {spec.dtype} (tensor {spec.name!r}); use .npy, .npz or .h5", spec.dtype
            )
        entries.append(
            TensorEntry(spec.name, SAFETENSORS_CODES[spec.dtype], spec.shape, begin, begin + spec.nbytes)
        )
        begin += spec.nbytes
    return entries


def layout(specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> FileLayout:
    """Where the elements go: wider types first, so that all are aligned, as loaders that map the file need."""
    if any(spec.name == "__metadata__" for spec in specs):
        raise PeError(
            f"a safetensors tensor cannot be called __metadata__; choose another {parameter('name')}"
        )
    ordered = sorted(specs, key=lambda spec: -numpy_dtype(spec.dtype).itemsize)
    entries = entries_of(ordered)
    prefix = write_header(entries, {"format": "pt"} | dict(sorted(metadata.items())))
    return FileLayout(
        ((0, prefix),), {entry.name: len(prefix) + entry.begin for entry in entries}, tuple(ordered)
    )


class SafetensorsReader:
    """An open `.safetensors`."""

    format = "safetensors"
    links = NO_LINKS

    def __init__(self, stream: ByteInput) -> None:
        self._stream = stream
        self.header = read_header(stream, label=stream.label, size=stream.size)
        self.metadata: Mapping[str, str] = self.header.metadata or {}
        self.tensors: Mapping[str, TensorSpec] = {
            name: entry.spec for name, entry in self.header.tensors.items()
        }

    def pieces(self, name: str, items: int) -> Iterator[NDArray[Any]]:
        start, stored = self.start(name)
        return self._stream.elements(start, stored, self.tensors[name].size, items)

    def start(self, name: str) -> tuple[int, np.dtype[Any]]:
        """Where the elements begin, and how they are stored."""
        return self.header.data_start + self.header.tensors[name].begin, stored_dtype(
            self.tensors[name].dtype
        )

    def close(self) -> None:
        """Nothing of its own."""


def stored_dtype(name: str) -> np.dtype[Any]:
    """The dtype called `name` as elements lie in the file: little-endian."""
    dtype: np.dtype[Any] = numpy_dtype(name)
    return dtype if sys.byteorder == "little" else dtype.newbyteorder("<")


def _exactly(stream: Readable, count: int, label: str) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise truncated(label, count - len(data))
    return data


def _parse(text: bytes, label: str) -> dict[str, Any]:
    label = f"{label} has a safetensors header that"

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise PeError(f"{label} names {twice[:80]!r} twice")
        return table

    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError:
        raise PeError(f"{label} is not UTF-8") from None
    # An object and two lists for each tensor: what is small in the file and large in memory is counted beforehand.
    if text.count(b"{") > MOST_TENSORS + SOME or text.count(b"[") > 2 * MOST_TENSORS + SOME:
        raise PeError(f"{label} describes more than {MOST_TENSORS:,} tensors, which no loader is made for")
    require_memory(BYTES_A_BYTE * len(text), f"{label} of {size_of(len(text))}", "it is damaged")
    table = parse_json(decoded, label, pairs=once)
    if not isinstance(table, dict):
        raise PeError(f"{label} is not a JSON object")
    return table


def _refuse_half_characters(table: dict[str, Any], label: str) -> None:
    """JSON can spell half of a character (a lone surrogate), which no file can be given again in UTF-8."""
    about = table.get("__metadata__")
    texts = [*about, *about.values()] if isinstance(about, dict) else []
    for text in (*table, *texts):
        if isinstance(text, str) and _SURROGATE.search(text):
            raise PeError(f"{label} has a safetensors header with half of a character in {text[:80]!a}")


def _metadata(value: Any, label: str) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise PeError(f"{label} has safetensors metadata that does not map strings to strings")
    return value


def _entry(name: str, fields: Any, label: str) -> TensorEntry:
    if not isinstance(fields, dict) or set(fields) != {"dtype", "shape", "data_offsets"}:
        raise PeError(f"{label}: tensor {name!r} needs exactly dtype, shape and data_offsets in the header")
    code, shape, offsets = fields["dtype"], fields["shape"], fields["data_offsets"]
    if not isinstance(code, str) or code not in _BITS:
        raise PeError(f"{label}: tensor {name!r} has the unknown type {repr(code)[:40]}")
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2:
        raise PeError(
            f"{label}: tensor {name!r} has a shape or data_offsets that are not whole numbers from 0"
        )
    begin, end = offsets
    if len(shape) > _MAX_AXES:
        raise PeError(
            f"{label}: tensor {name!r} has {len(shape)} axes; no loader takes more than {_MAX_AXES}"
        )
    nbytes = -(-math.prod(shape) * _BITS[code] // 8)
    if end - begin != nbytes:
        needed = f"{nbytes} bytes" if nbytes < 1 << 63 else "more than any machine has"
        raise PeError(
            f"{label}: tensor {name!r}, {code} of shape {str(shape)[:60]}, takes {needed}, "
            f"and its data_offsets give {end - begin}"
        )
    return TensorEntry(name, code, tuple(shape), begin, end)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 1 << 63 for n in value)
