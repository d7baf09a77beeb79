"""`.pt` and `.bin`, read only, by torch itself with `weights_only`: no code in the file is ever run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, needs
from pe_cli.files.base import NO_LINKS, READABLE, TensorSpec, shown
from pe_cli.files.inputs import ByteInput
from pe_cli.numerics.dtypes import NOT_IN_NUMPY, numpy_dtype

_MAX_DEPTH = 8


class TorchReader:
    """An open checkpoint; nested dictionaries become names joined with dots."""

    format = "torch"
    links = NO_LINKS

    def __init__(self, stream: ByteInput, *, zipped: bool) -> None:
        try:
            import torch
        except ImportError as error:
            raise needs(f"{stream.label} is a torch checkpoint, and reading it", "torch", "torch") from error
        try:
            loaded = torch.load(stream.named(), map_location="cpu", weights_only=True, mmap=zipped)
        except Exception as error:  # torch raises nearly anything on a file that it does not like
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise PeError(
                f"{stream.label} is not a torch checkpoint of plain weights: {shown(lines[0], 120)}"
            ) from error
        self._stream = stream
        self._torch = torch
        self._found = dict(_tensors(loaded, "", torch.Tensor, 0))
        self.metadata: Mapping[str, str] = {}
        self.tensors: Mapping[str, TensorSpec] = {name: _describe(name, t) for name, t in self._found.items()}

    def pieces(self, name: str, items: int) -> Iterator[NDArray[Any]]:
        dtype = self.tensors[name].dtype
        flat = self._found[name].detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        for first in range(0, flat.numel(), items):
            piece = flat[first : first + items]
            if dtype in NOT_IN_NUMPY:
                raw = piece.view(self._torch.int16 if dtype == "bfloat16" else self._torch.uint8)
                yield np.array(raw.numpy()).view(numpy_dtype(dtype))
            else:
                yield np.array(piece.numpy())

    def start(self, name: str) -> tuple[int, np.dtype[Any]] | None:
        """Nowhere: the elements must be unpacked."""
        return None

    def close(self) -> None:
        """Let go of the tensors."""
        self._found = {}


def _describe(name: str, tensor: Any) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    plain = dtype in READABLE and str(tensor.layout) == "torch.strided" and not tensor.is_meta
    stored = None if plain else tensor.numel() * tensor.element_size()
    return TensorSpec(
        name, dtype if plain else f"torch {dtype} ({tensor.layout})", tuple(tensor.shape), stored
    )


def _tensors(value: Any, name: str, kind: type, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, kind):
        yield name, value
    elif isinstance(value, dict) and depth < _MAX_DEPTH:
        for key, inner in value.items():
            yield from _tensors(inner, f"{name}.{key}" if name else str(key), kind, depth + 1)
