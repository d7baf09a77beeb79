"""`.gguf`, read only: metadata and tensors of llama.cpp's format (specification: ggml, docs/gguf.md).

Quantised tensors are listed with their type and not read. Long lists and texts in the metadata (vocabularies, tokenizers) are passed over.
"""

from __future__ import annotations

import io
import math
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files import MOST_TENSORS, NO_LINKS, ByteInput, TensorSpec, truncated
from pe_cli.numerics.dtypes import numpy_dtype

MAGIC = b"GGUF"
MAX_LIST = 4096
_LONG_TEXT = 1 << 20  # a whole tokenizer; passed over like a long list
_MAX_ELEMENTS = 1 << 20  # of all lists that are kept together
_MAX_CHARACTERS = 1 << 26  # of all texts
_MAX_TEXT = 1 << 26
_MAX_NAME = 1 << 16
_STRING, _LIST, _BOOL = 8, 9, 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
# number of the type: pe's name where it reads it, else ggml's; elements in a block; bytes of a block
_TYPES = {
    0: ("float32", 1, 4),
    1: ("float16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("int8", 1, 1),
    25: ("int16", 1, 2),
    26: ("int32", 1, 4),
    27: ("int64", 1, 8),
    28: ("float64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("bfloat16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}


@dataclass(frozen=True)
class GgufHeader:
    """`metadata` with its own types (None for a long list or text); offsets count from the file's start."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorSpec]
    offsets: dict[str, int]
    order: str


class _Cursor:
    """Numbers and strings from a buffered file, with the byte order of the machine that wrote it."""

    def __init__(self, file: BinaryIO, size: int, label: str) -> None:
        self._file = file
        self.size = size
        self.label = label
        self.order = "<"
        self._elements = self._characters = 0

    def take(self, count: int) -> bytes:
        if count > self.size - self.tell():
            raise truncated(self.label, count - (self.size - self.tell()))
        data = self._file.read(count)
        if len(data) < count:
            raise truncated(self.label, count - len(data))
        return data

    def number(self, code: str) -> Any:
        return struct.unpack(self.order + code, self.take(struct.calcsize(f"={code}")))[0]

    def name(self) -> str:
        length = self.number("Q")
        if length > _MAX_NAME:
            raise PeError(f"{self.label} has a GGUF name of {length} bytes; it is damaged")
        return str(self.take(length), "utf-8", "replace")

    def text(self) -> str | None:
        """A text; None for a very long one, which is passed over."""
        length = self.number("Q")
        if length > _MAX_TEXT:
            raise PeError(f"{self.label} has a GGUF string of {length} bytes; it is damaged")
        if length > _LONG_TEXT:
            self.skip(length)
            return None
        self.hold(characters=length)
        return str(self.take(length), "utf-8", "replace")

    def hold(self, *, elements: int = 0, characters: int = 0) -> None:
        """Raise where the metadata would take more memory than that of any model does."""
        self._elements += elements
        self._characters += characters
        if self._elements > _MAX_ELEMENTS or self._characters > _MAX_CHARACTERS:
            raise PeError(f"{self.label} holds more metadata than that of any model; it is damaged")

    def skip(self, count: int) -> None:
        if count > self.size - self.tell():
            raise truncated(self.label, count - (self.size - self.tell()))
        self._file.seek(count, io.SEEK_CUR)

    def tell(self) -> int:
        return self._file.tell()


def read_header(stream: ByteInput) -> GgufHeader:
    """Read and check what comes before the data of a GGUF file (version 2 or 3, either byte order).

    Errors: another version, truncated, unknown types, two tensors or keys of one name, tensors outside the file.
    """
    with open(os.dup(stream.fd), "rb", buffering=1 << 16) as file:
        file.seek(0)
        return _parse(_Cursor(file, stream.size or 0, stream.label))


def _parse(cursor: _Cursor) -> GgufHeader:
    if cursor.take(4) != MAGIC:
        raise PeError(f"{cursor.label} is not a GGUF file")
    version = cursor.number("I")
    if version & 0xFFFF == 0:
        cursor.order, version = ">", version >> 24
    if version not in (2, 3):
        raise PeError(f"{cursor.label} is GGUF version {version}; versions 2 and 3 are read")
    tensor_count, key_count = cursor.number("Q"), cursor.number("Q")
    metadata: dict[str, Any] = {}
    for count in (tensor_count, key_count):
        if count > MOST_TENSORS:
            raise PeError(f"{cursor.label} declares {count:,} tensors or keys, which no loader is made for")
    for _ in range(key_count):
        key = cursor.name()
        if key in metadata:
            raise PeError(f"{cursor.label} has the GGUF key {key!r} twice")
        metadata[key] = _value(cursor, cursor.number("I"))
    found: dict[str, tuple[TensorSpec, int]] = {}
    for _ in range(tensor_count):
        spec, offset = _tensor(cursor)
        if spec.name in found:
            raise PeError(f"{cursor.label} has two tensors {spec.name!r}")
        found[spec.name] = (spec, offset)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20:
        raise PeError(f"{cursor.label} has a general.alignment of {alignment!r}")
    start = -(-cursor.tell() // alignment) * alignment
    ordered = sorted(found.values(), key=lambda item: item[1])
    for spec, offset in ordered:
        if start + offset + spec.nbytes > cursor.size:
            raise truncated(
                f"{cursor.label} (tensor {spec.name!r})", start + offset + spec.nbytes - cursor.size
            )
    return GgufHeader(
        metadata,
        {spec.name: spec for spec, _ in ordered},
        {spec.name: start + offset for spec, offset in ordered},
        cursor.order,
    )


def _value(cursor: _Cursor, kind: int, depth: int = 0) -> Any:
    if kind in _SCALARS:
        value = cursor.number(_SCALARS[kind])
        return bool(value) if kind == _BOOL else value
    if kind == _STRING:
        return cursor.text()
    if kind != _LIST or depth > 2:
        raise PeError(f"{cursor.label} has a GGUF value of unknown type {kind}")
    inner, count = cursor.number("I"), cursor.number("Q")
    if count <= MAX_LIST:
        cursor.hold(elements=count)
        return [_value(cursor, inner, depth + 1) for _ in range(count)]
    if inner in _SCALARS:
        cursor.skip(count * struct.calcsize(f"={_SCALARS[inner]}"))
    elif inner == _STRING:
        for _ in range(count):
            cursor.skip(cursor.number("Q"))
    else:
        raise PeError(f"{cursor.label} has a GGUF list of {count} lists")
    return None


def _tensor(cursor: _Cursor) -> tuple[TensorSpec, int]:
    name, axes = cursor.name(), cursor.number("I")
    if axes > 8:
        raise PeError(f"{cursor.label}: tensor {name!r} has {axes} axes")
    # ggml writes the fastest axis first.
    shape = tuple(reversed([cursor.number("Q") for _ in range(axes)]))
    kind, offset = cursor.number("I"), cursor.number("Q")
    if kind not in _TYPES:
        raise PeError(f"{cursor.label}: tensor {name!r} has the unknown GGUF type {kind}")
    dtype, block, block_bytes = _TYPES[kind]
    size = math.prod(shape)
    if size % block or size * block_bytes >= 1 << 63:
        raise PeError(f"{cursor.label}: tensor {name!r} of type {dtype} cannot have the shape {shape}")
    return TensorSpec(name, dtype, shape, None if block == 1 else size // block * block_bytes), offset


class GgufReader:
    """An open `.gguf`."""

    format = "gguf"
    links = NO_LINKS

    def __init__(self, stream: ByteInput) -> None:
        self._stream = stream
        self.header = read_header(stream)
        self.metadata: Mapping[str, str] = {
            key: value if isinstance(value, str) else repr(value)
            for key, value in self.header.metadata.items()
            if value is not None
        }
        self.tensors: Mapping[str, TensorSpec] = self.header.tensors

    def pieces(self, name: str, items: int) -> Iterator[NDArray[Any]]:
        start, stored = self.start(name)
        return self._stream.elements(start, stored, self.tensors[name].size, items)

    def start(self, name: str) -> tuple[int, np.dtype[Any]]:
        """Where the elements begin, and how they are stored."""
        dtype = self.tensors[name].dtype
        stored: np.dtype[Any] = numpy_dtype(dtype)
        if self.header.order == ">":
            if dtype == "bfloat16":
                raise PeError(
                    f"{self._stream.label}: big-endian bfloat16 is not read; convert the file first"
                )
            stored = stored.newbyteorder(">")
        return self.header.offsets[name], stored

    def close(self) -> None:
        """Nothing of its own."""
