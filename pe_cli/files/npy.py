"""`.npy`: one array. Elements that numpy lacks are raw bytes, as numpy itself writes them.

bfloat16 is `<V2`; both float8 types are `<V1`, and a comment in the header, which numpy skips, tells them apart.
`numpy.load` opens all of them; `.view(ml_dtypes.bfloat16)` gives the values.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files.base import NO_LINKS, READABLE, Layout, TensorSpec, check_memory
from pe_cli.files.stream import ByteInput, truncated
from pe_cli.numerics.dtypes import NOT_IN_NUMPY, numpy_dtype

MAGIC = b"\x93NUMPY"
_MAX_HEADER = 10_000  # numpy's own bound: literal_eval of more may take the interpreter down
_RAW = {"V2": "bfloat16", "f1": "float8_e5m2"}
_RAW_BYTE = ("float8_e4m3fn", "float8_e5m2")


def header(spec: TensorSpec) -> bytes:
    """The bytes before the elements, a multiple of 64."""
    dtype = numpy_dtype(spec.dtype)
    descr = f"<V{dtype.itemsize}" if spec.dtype in NOT_IN_NUMPY else dtype.str
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {spec.shape!r}, }}"
    if spec.dtype in _RAW_BYTE:
        text += f"  # {spec.dtype}"
    length = -(-(10 + len(text) + 1) // 64) * 64 - 10
    if length < 1 << 16:
        return MAGIC + b"\x01\x00" + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"
    raise PeError(f"an array of {len(spec.shape)} dimensions does not fit into .npy; use .safetensors")


def layout(specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> Layout:
    """Where the elements go; `.npy` has no room for metadata."""
    if len(specs) != 1:
        names = ", ".join(spec.name for spec in specs)
        raise PeError(
            f".npy holds one array, and there are {len(specs)} ({names}); use .safetensors, .npz or .h5"
        )
    prefix = header(specs[0])
    return Layout(((0, prefix),), {specs[0].name: len(prefix)}, tuple(specs))


class NpyHeader:
    """A header that was read: where the elements begin, how they are stored, and what they mean."""

    def __init__(
        self, shape: tuple[int, ...], stored: np.dtype[Any], dtype: str, fortran: bool, start: int
    ) -> None:
        self.shape = shape
        self.stored = stored
        self.dtype = dtype
        self.fortran = fortran
        self.start = start


def read_header(stream: ByteInput, label: str) -> NpyHeader:
    """Read and check a header at the present position of `stream`.

    Errors: not `.npy`, truncated, object arrays and other elements that are not numbers, a shape that is none.
    """
    start = stream.read(8)
    if len(start) < 8 or not start.startswith(MAGIC):
        raise PeError(f"{label} is not a .npy file: it does not begin with \\x93NUMPY")
    width = 2 if start[6] == 1 else 4
    if start[6] not in (1, 2, 3):
        raise PeError(f"{label} is .npy version {start[6]}.{start[7]}; versions 1 to 3 are known")
    raw = stream.read(width)
    length = int.from_bytes(raw, "little")
    if length > _MAX_HEADER:
        raise PeError(f"{label} has a .npy header of {length} bytes; more than {_MAX_HEADER} are not read")
    text = stream.read(length)
    if len(raw) < width or len(text) < length:
        raise truncated(label, length - len(text) or 1)
    fields = _fields(text, label)
    stored, dtype = _element_type(fields["descr"], text, label)
    shape = _shape(fields["shape"], label)
    if math.prod(shape) * stored.itemsize >= 1 << 63:
        raise PeError(f"{label} declares an array of shape {shape}, which no machine can hold")
    if not isinstance(fields["fortran_order"], bool):
        raise PeError(f"{label} has a .npy header in which fortran_order is not True or False")
    return NpyHeader(shape, stored, dtype, fields["fortran_order"], 8 + width + length)


def _fields(text: bytes, label: str) -> dict[str, Any]:
    try:
        value = ast.literal_eval(text.decode("utf-8").strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, dict) or set(value) != {"descr", "fortran_order", "shape"}:
        raise PeError(f"{label} has a broken .npy header: descr, fortran_order and shape are expected")
    return value


def _element_type(descr: Any, text: bytes, label: str) -> tuple[np.dtype[Any], str]:
    if isinstance(descr, str):
        kind = descr.lstrip("<>|=")
        comment = re.search(rb"#\s*(float8_\w+)", text)
        if kind == "V1":
            if comment and comment[1].decode() in _RAW_BYTE:
                name = comment[1].decode()
                return numpy_dtype(name), name
            if descr[0] == "<":  # what numpy writes for ml_dtypes' float8_e4m3fn
                return numpy_dtype("float8_e4m3fn"), "float8_e4m3fn"
            raise PeError(
                f"{label} holds raw bytes; which float8 they are cannot be told, so store them as safetensors"
            )
        if kind in _RAW and descr[0] != ">":
            return numpy_dtype(_RAW[kind]), _RAW[kind]
        try:
            stored = np.dtype(descr)
        except (TypeError, ValueError, SyntaxError, OverflowError, MemoryError):
            stored = np.dtype(object)
            kind = "?"
        if stored.name in READABLE:
            return stored, stored.name
        if kind.startswith("O"):
            raise PeError(
                f"{label} holds Python objects (a pickle), which are never loaded; save it as numbers"
            )
    shown = repr(descr)
    raise PeError(f"{label} holds elements of type {shown[:60]}; pe reads {', '.join(sorted(READABLE))}")


def _shape(value: Any, label: str) -> tuple[int, ...]:
    if (
        isinstance(value, tuple)
        and len(value) <= 64
        and all(type(n) is int and 0 <= n < 1 << 63 for n in value)
    ):
        return value
    raise PeError(f"{label} has a .npy header whose shape is {repr(value)[:60]}, not a tuple of sizes")


class NpyReader:
    """An open `.npy`; its tensor has the name given by the caller, usually empty."""

    format = "npy"
    links = NO_LINKS

    def __init__(self, stream: ByteInput, name: str = "") -> None:
        self._stream = stream
        self._header = read_header(stream, stream.label)
        spec = TensorSpec(name, self._header.dtype, self._header.shape)
        if stream.size is not None and self._header.start + spec.nbytes > stream.size:
            raise truncated(stream.label, self._header.start + spec.nbytes - stream.size)
        self.metadata: Mapping[str, str] = {}
        self.tensors: Mapping[str, TensorSpec] = {name: spec}

    def pieces(self, name: str, items: int) -> Iterator[NDArray[Any]]:
        found, count = self._header, self.tensors[name].size
        raw = self._stream.elements(found.start, found.stored, count, items)
        return reordered(raw, found, items, self._stream.label) if found.fortran else raw

    def start(self, name: str) -> tuple[int, np.dtype[Any]] | None:
        """Where the elements begin; None in Fortran order."""
        return None if self._header.fortran else (self._header.start, self._header.stored)

    def close(self) -> None:
        """Nothing of its own."""


def reordered(
    raw: Iterator[NDArray[Any]], found: NpyHeader, items: int, label: str
) -> Iterator[NDArray[Any]]:
    """Fortran order turned into C order; the whole array is held for that."""
    count = math.prod(found.shape)
    check_memory(2 * count * found.stored.itemsize, f"turning {label} from Fortran order")
    whole = np.concatenate([*raw]) if count else np.empty(0, found.stored)
    flat = whole.reshape(found.shape, order="F").reshape(-1)
    for first in range(0, count, items):
        yield flat[first : first + items]
