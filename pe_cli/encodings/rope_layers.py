"""What stands beside a rotary table: which layers rotate at all, and factors of queries by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, no_such

LLAMA4_BETA = 0.1


def _llama4(p: NDArray[np.int64], length: int, beta: float) -> NDArray[np.float64]:
    scale: NDArray[np.float64] = 1 + beta * np.log1p((p + 1) // length)
    return scale


def _ministral(p: NDArray[np.int64], length: int, beta: float) -> NDArray[np.float64]:
    scale: NDArray[np.float64] = 1 + beta * np.log1p(p // length)
    return scale


def _log_n(p: NDArray[np.int64], length: int, beta: float) -> NDArray[np.float64]:
    scale: NDArray[np.float64] = np.maximum(1.0, np.log1p(p) / np.log(length))
    return scale


QUERY_TEMPERATURES: dict[str, Callable[[NDArray[np.int64], int, float], NDArray[np.float64]]] = {
    "llama4": _llama4,
    "ministral": _ministral,
    "log-n": _log_n,
}


def query_temperature(
    positions: NDArray[Any], *, scheme: str, original_len: int, beta: float = LLAMA4_BETA
) -> NDArray[np.float64]:
    """The factor that queries are multiplied with at each position, so that long contexts stay sharp.

    llama4 : 1 + beta ln(1 + floor((p + 1) / L0)), only in the layers without rotation; L0 is `floor_scale`
    ministral : 1 + beta ln(1 + floor(p / L0)), in all layers; beta is `llama_4_scaling_beta`
    log-n : max(1, ln(p + 1) / ln L0), Su Jianlin 2021, kexue.fm 8823; beta has no part in it

    Parameters
    ----------
    positions : (n,) whole numbers from 0
    scheme : llama4, ministral or log-n
    original_len : L0, the original training length (8192 for Llama 4)
    beta : strength

    Returns
    -------
    (n,) float64. Raises PeError for an unknown scheme and values out of range.

    Source: Llama 4 (Meta 2025), Ministral 3 (Mistral 2025), in their transformers code.
    """
    if scheme not in QUERY_TEMPERATURES:
        raise no_such("query temperature", scheme, QUERY_TEMPERATURES)
    where = np.asarray(positions)
    if where.ndim != 1 or where.dtype.kind not in "iu" or (where < 0).any():
        raise PeError("a query temperature is for whole positions from 0, shape (n,)")
    if original_len < 2:
        raise PeError(f"--original-len {original_len} must be above 1")
    return QUERY_TEMPERATURES[scheme](where.astype(np.int64), original_len, beta)


def rotating_layers(
    layers: int, *, no_rope_layers: Sequence[int] | None = None, interval: int | None = None
) -> NDArray[np.bool_]:
    """(layers,) True where a layer rotates its queries and keys, False where it is a NoPE layer.

    `no_rope_layers` is read as configurations mean it, against its name: 1 uses RoPE, 0 does not. Without it,
    every `interval`-th layer is a NoPE layer (Llama 4 and SmolLM3: 4).
    """
    if no_rope_layers:
        if len(no_rope_layers) != layers:
            raise PeError(f"no_rope_layers has {len(no_rope_layers)} entries for {layers} layers")
        return np.array(no_rope_layers, dtype=bool)
    if interval is None or interval < 1:
        raise PeError(f"no_rope_layer_interval {interval} must be at least 1")
    rotates: NDArray[np.bool_] = np.arange(1, layers + 1) % interval != 0
    return rotates
