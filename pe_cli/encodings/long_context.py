"""The rules by which long-context methods number tokens, one function each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.distances import require_room
from pe_cli.errors import PeError, no_such, parameter
from pe_cli.numerics.randomness import distinct_integers, uniform_rows
from pe_cli.signature import Tensors

NOT_SEEN = -1
ALIASES = {"streaming-llm": "sinks", "dca": "dual-chunk"}


def apply_scheme(scheme: str, length: int, options: Mapping[str, Any]) -> Tensors:
    """The tensors of `scheme`; PeError where an option is missing, not used, or does not fit."""
    name = ALIASES.get(scheme, scheme)
    if name not in SCHEMES:
        raise no_such("scheme", scheme, [*SCHEMES, *ALIASES])
    if length < 1:
        raise PeError(f"--len {length}: at least one token is needed")
    rule = SCHEMES[name]
    known = {n: p.default for n, p in inspect.signature(rule).parameters.items() if n != "length"}
    unused = [parameter(n) for n in options if n not in known]
    missing = [
        parameter(n) for n, default in known.items() if default is inspect.Parameter.empty if n not in options
    ]
    if unused:
        raise PeError(f"--scheme {scheme} does not use {', '.join(unused)}")
    if missing:
        raise PeError(f"--scheme {scheme} needs {', '.join(missing)}")
    lowest = {
        "stride": 1,
        "group": 1,
        "window": 1,
        "max_position": 1,
        "max_distance": 1,
        "sinks": 0,
        "start": 0,
    }
    for option, value in options.items():
        if option in lowest and value < lowest[option]:
            raise PeError(f"{parameter(option)} {value}: it must be at least {lowest[option]}")
    return rule(length, **options)


def _stride(length: int, *, stride: int, start: int = 0, fill: str = "left") -> Tensors:
    if start >= length:
        raise PeError(f"--start {start} is not below --len {length}")
    return _filled(length, np.arange(start, length, stride), fill)


def _anchors(length: int, *, anchors: tuple[int, ...], fill: str = "left") -> Tensors:
    if min(anchors) < 0 or max(anchors) >= length:
        raise PeError(f"--anchors {','.join(map(str, anchors))}: they lie between 0 and {length - 1}")
    return _filled(length, np.unique(np.array(anchors, np.int64)), fill)


def _filled(length: int, rows: NDArray[np.int64], fill: str) -> Tensors:
    tokens = np.arange(length)
    left = np.searchsorted(rows, tokens, side="right") - 1
    ids = np.where(left >= 0, rows[np.maximum(left, 0)], NOT_SEEN)
    if fill == "nearest":
        right = rows[np.minimum(left + 1, len(rows) - 1)]
        ids = np.where((left < 0) | (np.abs(right - tokens) < tokens - ids), right, ids)
    elif fill == "none":
        ids = np.where(ids == tokens, ids, NOT_SEEN)
    return Tensors({"position_ids": ids}, facts={"rows": len(rows)})


def _sinks(length: int, *, window: int, sinks: int = 4) -> Tensors:
    recent = np.arange(max(length - window, 0), length)
    kept = np.union1d(np.arange(min(sinks, length)), recent)
    return Tensors(
        {"position_ids": np.arange(len(kept)), "kept": kept}, facts={"next_query_position": len(kept)}
    )


def _randomised(length: int, *, max_position: int, seed: int = 0) -> Tensors:
    if max_position < length:
        raise PeError(f"--max-position {max_position}: {length} different positions do not fit below it")
    return Tensors({"position_ids": distinct_integers(length, max_position, seed)}, facts={"seed": seed})


def _pose(length: int, *, max_position: int, seed: int = 0) -> Tensors:
    if max_position < length:
        raise PeError(f"--max-position {max_position} is below --len {length}: there is nothing to skip")
    drawn = uniform_rows(np.arange(2), 1, seed)[:, 0]
    first = 1 + int(drawn[0] * ((length + 1) // 2))
    skip = int(drawn[1] * (max_position - length + 1))
    ids = np.arange(length)
    ids[first:] += skip
    return Tensors({"position_ids": ids}, facts={"seed": seed, "first_run": first, "skip": skip})


def _lm_infinite(length: int, *, window: int, max_distance: int, sinks: int = 10) -> Tensors:
    distances = _causal_distances(length)
    keys = np.arange(length)
    hidden = (distances >= window) & (keys >= sinks)
    np.minimum(distances, max_distance, out=distances)
    distances[hidden] = NOT_SEEN
    return Tensors({"distances": distances})


def _self_extend(length: int, *, group: int, window: int, pairs: bool = False) -> Tensors:
    tokens = np.arange(length)
    key_ids = tokens // group
    query_ids = key_ids + window - window // group
    tensors = {"neighbor_ids": tokens, "group_query_ids": query_ids, "group_key_ids": key_ids}
    if pairs:
        distances = _causal_distances(length)
        far = distances >= window
        np.copyto(distances, query_ids[:, None] - key_ids, where=far)
        tensors["distances"] = distances
    return Tensors(tensors, facts={"largest_distance": int(max(min(window - 1, length - 1), query_ids[-1]))})


def _dual_chunk(length: int, *, max_position: int, pairs: bool = False) -> Tensors:
    chunk = max_position * 3 // 4
    size = chunk - max_position // 8
    if size < 1:
        raise PeError(f"--max-position {max_position}: it is too short to be cut into chunks")
    tokens = np.arange(length)
    within = tokens % size
    successive = np.minimum(within + size, chunk)
    farthest = min(2 * size - 1, chunk)
    tensors = {
        "key_ids": within,
        "intra_ids": within.copy(),
        "successive_ids": successive,
        "inter_ids": np.full(length, farthest),
    }
    if pairs:
        require_room((length, length), np.int64)
        distances = np.full((length, length), NOT_SEEN)
        for start in range(0, length, size):
            own = slice(start, start + size)
            previous, before = slice(max(start - size, 0), start), slice(0, max(start - size, 0))
            distances[own, own] = np.maximum(within[own, None] - within[own], NOT_SEEN)
            distances[own, previous] = successive[own, None] - within[previous]
            distances[own, before] = farthest - within[before]
        tensors["distances"] = distances
    return Tensors(tensors, facts={"chunk": size, "largest_distance": max(farthest, chunk)})


def _causal_distances(length: int) -> NDArray[np.int64]:
    """(n, n): query minus key, NOT_SEEN above the diagonal."""
    require_room((length, length), np.int64)
    tokens = np.arange(length)
    distances: NDArray[np.int64] = tokens[:, None] - tokens
    return np.maximum(distances, NOT_SEEN, out=distances)


SCHEMES: dict[str, Callable[..., Tensors]] = {
    "stride": _stride,
    "anchors": _anchors,
    "sinks": _sinks,
    "randomised": _randomised,
    "pose": _pose,
    "self-extend": _self_extend,
    "dual-chunk": _dual_chunk,
    "lm-infinite": _lm_infinite,
}
