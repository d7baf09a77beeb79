"""`.pt`, `.pth` and `.bin`, read and written by torch itself with `weights_only`: no code in the file is ever run."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, needs
from pe_cli.files import READABLE, ByteInput, TensorSpec, shown
from pe_cli.files.atomic import OpenOutput, cannot_write
from pe_cli.numerics.dtypes import NOT_IN_NUMPY, numpy_dtype

EXTENSIONS = (".pt", ".pth", ".bin", ".ckpt")
_MAX_DEPTH = 8
_REFUSED = re.compile(r"GLOBAL ([\w.]+)|class ([\w.]+)")


@dataclass
class _Place:
    """A tensor and where it hangs: `holder[key]`."""

    tensor: Any
    holder: Any
    key: Any


class TorchReader:
    """An open checkpoint; nested dictionaries become names joined with dots.

    `others` names the entries that are no tensors, which no other format can take.
    """

    format = "torch"

    def __init__(self, stream: ByteInput, *, zipped: bool) -> None:
        try:
            import torch
        except ImportError as error:
            raise needs(f"{stream.label} is a torch checkpoint, and reading it", "torch", "torch") from error
        try:
            self._loaded = torch.load(stream.named(), map_location="cpu", weights_only=True, mmap=zipped)
        except Exception as error:  # torch raises nearly anything on a file that it does not like
            raise PeError(_why_not(stream.label, str(error), type(error).__name__)) from error
        self._stream, self._torch, self._zipped = stream, torch, zipped
        self._places: dict[str, list[_Place]] = {}
        self.others: list[str] = []
        self._collect(self._loaded, "", None, None, 0)
        self.metadata: Mapping[str, str] = {}
        self.tensors: Mapping[str, TensorSpec] = {
            name: _describe(name, places[-1].tensor) for name, places in self._places.items()
        }
        self.links: Mapping[str, str] = self._tied()

    def _collect(self, value: Any, name: str, holder: Any, key: Any, depth: int) -> None:
        if isinstance(value, self._torch.Tensor):
            self._places.setdefault(name, []).append(_Place(value, holder, key))
        elif isinstance(value, dict) and depth < _MAX_DEPTH:
            for inner in list(value):
                self._collect(
                    value[inner], f"{name}.{inner}" if name else str(inner), value, inner, depth + 1
                )
        elif name:
            self.others.append(name)

    def _tied(self) -> dict[str, str]:
        """Tensors that are the same memory as one before them, and the name of that one."""
        first: dict[Any, str] = {}
        tied = {}
        for name, places in self._places.items():
            tensor = places[-1].tensor
            if tensor.is_meta or str(tensor.layout) != "torch.strided" or not tensor.numel():
                continue
            memory = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
            if memory in first:
                tied[name] = f"/{first[memory]}"
            else:
                first[memory] = name
        return tied

    def pieces(self, name: str, items: int) -> Iterator[NDArray[Any]]:
        dtype = self.tensors[name].dtype
        flat = self._places[name][-1].tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
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

    def write(self, made: Mapping[str, NDArray[Any] | None], output: OpenOutput) -> None:
        """Write the whole file anew with the tensors `made` in their places; those that are None are left out.

        Dictionaries, their order, all other entries and tensors that share memory stay as they are.
        """
        for name, array in made.items():
            places = self._places[name]
            if len(places) > 1:
                raise PeError(
                    f"{self._stream.label} has two tensors that are called {name}; rename one of them"
                )
            place = places[0]
            if place.holder is None:
                raise PeError(
                    f"{self._stream.label} is one tensor without a name; write .npy or .safetensors"
                )
            if array is None:
                del place.holder[place.key]
            else:
                place.holder[place.key] = self._tensor(array, place.tensor)
        for name, origin in self.links.items():
            if (array := made.get(origin[1:])) is not None and name not in made:
                original = self._places[origin[1:]][0]
                place = self._places[name][0]
                place.holder[place.key] = original.holder[original.key]
        try:
            with os.fdopen(os.dup(output.fd), "wb") as file:
                self._torch.save(self._loaded, file, _use_new_zipfile_serialization=self._zipped)
        except OSError as error:
            raise cannot_write(output.label, error) from error

    def _tensor(self, array: NDArray[Any], old: Any) -> Any:
        plain = np.ascontiguousarray(array)
        if str(array.dtype) in NOT_IN_NUMPY:
            raw = np.int16 if array.dtype.itemsize == 2 else np.uint8
            tensor = self._torch.from_numpy(plain.view(raw).copy()).view(old.dtype)
        else:
            tensor = self._torch.from_numpy(plain.copy())
        if isinstance(old, self._torch.nn.Parameter):
            return self._torch.nn.Parameter(tensor, requires_grad=old.requires_grad)
        return tensor

    def close(self) -> None:
        """Let go of the tensors."""
        self._places, self._loaded = {}, None


def _why_not(label: str, message: str, kind: str) -> str:
    """Why torch does not load a file with `weights_only`, and what to do."""
    if "TorchScript" in message or "constants.pkl" in message:
        return (
            f"{label} is a compiled TorchScript model, not a checkpoint of weights: extend the model that it was made from, "
            "and compile that"
        )
    named = _REFUSED.search(message)
    if "weights_only" in message.lower() and named is not None:
        what = next(filter(None, named.groups()))
        return (
            f"{label} is not a torch checkpoint of plain weights: it holds an object of {shown(what, 60)}, and loading it could run "
            "code; if you trust the file, save its weights alone: torch.save(torch.load(FILE, weights_only=False)['state_dict'], NEW)"
        )
    first = (message.strip().splitlines() or [kind])[0]
    return f"{label} is not a torch checkpoint of plain weights: {shown(first, 120)}"


def _describe(name: str, tensor: Any) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    plain = dtype in READABLE and str(tensor.layout) == "torch.strided" and not tensor.is_meta
    stored = None if plain else tensor.numel() * tensor.element_size()
    return TensorSpec(
        name, dtype if plain else f"torch {dtype} ({tensor.layout})", tuple(tensor.shape), stored
    )
