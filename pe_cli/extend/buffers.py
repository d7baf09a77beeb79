"""Buffers whose size follows a table: they are made anew, in their own type, as the model's code would."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.files import TensorSpec


@dataclass(frozen=True)
class BufferChange:
    """`old` becomes `new`, made from the old values by `make`; `make` is None where the buffer is left out."""

    old: TensorSpec
    new: TensorSpec
    what: str
    make: Callable[[NDArray[Any]], NDArray[Any]] | None


def follow(
    tensors: Mapping[str, TensorSpec], table: str, old: tuple[int, int], new: tuple[int, int]
) -> Iterator[BufferChange]:
    """Buffers of a table of tokens that goes from `old` to `new` (rows, usable).

    They are those beside it (`position_ids`, `token_type_ids`) and the causal masks in the layers of GPT-2 and Neo.
    """
    beside = re.sub(r"[^./]*(?:\.weight|/embeddings(?::0)?)?$", "", table)
    for name, spec in tensors.items():
        if not spec.shape or spec.shape[-1] not in old or name == table:
            continue
        size = new[0] if spec.shape[-1] == old[0] else new[1]
        if name in (f"{beside}position_ids", f"{beside}token_type_ids") and spec.size == spec.shape[-1]:
            grown = TensorSpec(name, spec.dtype, (*spec.shape[:-1], size))
            counting = name.endswith("position_ids")
            yield BufferChange(
                spec,
                grown,
                "counts on" if counting else "zeros",
                _counting(grown) if counting else _padded(grown),
            )
        elif re.search(r"\.attn(?:\.attention)?\.bias$", name) and spec.shape == (
            1,
            1,
            spec.shape[-1],
            spec.shape[-1],
        ):
            grown = TensorSpec(name, spec.dtype, (1, 1, size, size))
            yield BufferChange(spec, grown, "causal mask", _causal(grown))


def _counting(new: TensorSpec) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def make(old: NDArray[Any]) -> NDArray[Any]:
        """Counts on from the first value; where the old ones did not count, the new ones continue the last."""
        flat = old.reshape(-1)
        count = new.shape[-1]
        start = flat[0] if np.array_equal(flat, flat[0] + np.arange(len(flat))) else None
        if start is not None:
            values = start + np.arange(count)
        else:
            more = flat[-1] + 1 + np.arange(max(count - len(flat), 0))
            values = np.concatenate([flat, more])[:count]
        grown: NDArray[Any] = values.astype(old.dtype).reshape(new.shape)
        return grown

    return make


def _padded(new: TensorSpec) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def make(old: NDArray[Any]) -> NDArray[Any]:
        grown = np.zeros(new.shape, old.dtype)
        keep = min(new.shape[-1], old.shape[-1])
        grown[..., :keep] = old[..., :keep]
        return grown

    return make


def _causal(new: TensorSpec) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def make(old: NDArray[Any]) -> NDArray[Any]:
        """A lower triangle, or as wide a band below the diagonal as there was (GPT-Neo's local layers)."""
        size, before = new.shape[-1], old.shape[-1]
        band = int(np.count_nonzero(old[0, 0, -1]))
        mask = np.tri(size, dtype=np.bool_)
        if band < before:
            mask ^= np.tri(size, k=-band, dtype=np.bool_)
        return mask.astype(old.dtype).reshape(new.shape)

    return make


def window_buffers(
    tensors: Mapping[str, TensorSpec], table: str, window: Sequence[int], class_rows: int
) -> Iterator[BufferChange]:
    """Swin's and BEiT's `relative_position_index` beside a bias table; masks that the loader makes again are left out."""
    from pe_cli.encodings.windows import swin

    beside = table.rpartition(".")[0]
    for name, spec in tensors.items():
        if name == f"{beside}.relative_position_index":
            index = swin(window=tuple(window), class_token=class_rows > 0)["relative_position_index"]
            yield BufferChange(
                spec, TensorSpec(name, spec.dtype, index.shape), "index of the new window", _give(index)
            )


def masks(tensors: Mapping[str, TensorSpec]) -> Iterator[BufferChange]:
    """Swin's shift masks, which belong to the old window and which its code makes again."""
    for name, spec in tensors.items():
        if re.search(r"blocks\.\d+\.attn_mask$", name):
            yield BufferChange(spec, spec, "left out: made again by the model's code", None)


def _give(values: NDArray[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    return lambda old: values.astype(old.dtype)
