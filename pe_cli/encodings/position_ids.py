"""Position numbers of long-context methods: one function for each rule that numbers tokens."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.distances import require_room
from pe_cli.errors import PeError, no_such, parameter
from pe_cli.numerics.randomness import distinct_integers, uniform_rows
from pe_cli.positions import spell
from pe_cli.signature import Choice, Ints, Tensors, require_named

Fill: TypeAlias = Literal["left", "nearest", "none"]

NOT_SEEN = -1
ALIASES = {"streaming-llm": "sinks", "dca": "dual-chunk"}
LOWEST = {"stride": 1, "group": 1, "window": 1, "max_position": 1, "max_distance": 1, "sinks": 0, "start": 0}


def apply_scheme(scheme: str, options: Mapping[str, Any]) -> Tensors:
    """The tensors of `scheme`; PeError where an option is missing, not used, or does not fit."""
    name = ALIASES.get(scheme, scheme)
    if name not in SCHEMES:
        raise no_such("scheme", scheme, [*SCHEMES, *ALIASES])
    rule = SCHEMES[name]
    known = {n: p.default for n, p in inspect.signature(rule).parameters.items()}
    unused = [parameter(n) for n in options if n not in known]
    missing = [
        parameter(n) for n, default in known.items() if default is inspect.Parameter.empty if n not in options
    ]
    if unused:
        raise PeError(f"{parameter('scheme')} {scheme} does not use {', '.join(unused)}")
    if missing:
        raise PeError(f"{parameter('scheme')} {scheme} needs {', '.join(missing)}")
    for option, value in options.items():
        if option in LOWEST and value < LOWEST[option]:
            raise PeError(f"{parameter(option)} {value}: it must be at least {LOWEST[option]}")
    if "length" in options:
        if options["length"] < 1:
            raise PeError(f"{parameter('length')} {options['length']}: at least one token is needed")
        require_room((4, options["length"]), np.int64)
    return rule(**options)


def _stride(length: int, *, stride: int, start: int = 0, fill: str = "left") -> Tensors:
    if start >= length:
        raise PeError(f"{parameter('start')} {start} is not below {parameter('length')} {length}")
    return _filled(length, np.arange(start, length, stride), fill)


def _anchors(length: int, *, anchors: tuple[int, ...], fill: str = "left") -> Tensors:
    if min(anchors) < 0 or max(anchors) >= length:
        raise PeError(f"{parameter('anchors')} {spell(anchors)}: they lie between 0 and {length - 1}")
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
        raise PeError(
            f"{parameter('max_position')} {max_position}: {length} different positions do not fit below it"
        )
    return Tensors({"position_ids": distinct_integers(length, max_position, seed)}, facts={"seed": seed})


def _pose(length: int, *, max_position: int, seed: int = 0) -> Tensors:
    if max_position < length:
        raise PeError(
            f"{parameter('max_position')} {max_position} is below {parameter('length')} {length}: there is nothing to skip"
        )
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
        raise PeError(f"{parameter('max_position')} {max_position}: it is too short to be cut into chunks")
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


def position_ids(
    length: int,
    *,
    scheme: Annotated[str, Choice(tuple(SCHEMES), ALIASES)],
    stride: int | None = None,
    start: int | None = None,
    anchors: Ints | None = None,
    fill: Fill | None = None,
    sinks: int | None = None,
    window: int | None = None,
    max_position: int | None = None,
    max_distance: int | None = None,
    group: int | None = None,
    pairs: bool = False,
    seed: int | None = None,
) -> Tensors:
    """Position numbers of long-context schemes: integers, with which any table can be indexed.

    All are int64 (length,). With --pairs (always for lm-infinite) there are `distances` (length, length) too,
    query minus key as attention sees it, -1 where the query does not see the key.

    \b
    stride, anchors  Only some positions have a row, the others take the one
                     to the left, the nearest or none (-1).
    sinks            StreamingLLM: the tokens `kept` in the cache, and as
                     `position_ids` their rank there.
    randomised       Sorted draws below --max-position.
    pose             Two runs with a random gap, below --max-position.
    self-extend      `neighbor_ids` within the window, `group_query_ids`
                     and `group_key_ids` beyond it.
    dual-chunk       `key_ids`, and a query's `intra_ids`, `successive_ids`
                     and `inter_ids` for keys of the same, the previous and
                     farther chunks.
    lm-infinite      Sinks and a window; distances stop at a limit.

    Extrapolates: this is what they are for: a model sees no position or distance that it was not trained on.

    Source: Xiao et al. 2024, arXiv 2309.17453; Ruoss et al. 2023, arXiv 2305.16843; Zhu et al. 2024, arXiv
    2309.10400; Jin et al. 2024, arXiv 2401.01325; An et al. 2024, arXiv 2402.17463; Han et al. 2024, arXiv 2308.16137.

    Parameters
    ----------
    length : number of tokens
    scheme : which rule; an option that the rule does not use is an error
    stride : stride: distance between two positions that have a row
    start : stride: the first position that has a row (0)
    anchors : anchors: the positions that have a row
    fill : stride, anchors: what the other tokens get (left; none is -1)
    sinks : sinks, lm-infinite: tokens at the start that are always kept
    window : sinks, self-extend, lm-infinite: how many recent tokens are kept as they are
    max_position : randomised, pose: positions stay below it; dual-chunk: length of the pre-training
    max_distance : lm-infinite: the distance at which counting stops
    group : self-extend: how many far tokens share a position
    pairs : self-extend, dual-chunk: write the distances of all pairs too
    seed : randomised, pose: of the draws (0)
    """
    if fill is not None:
        require_named(Fill, fill=fill)
    given = {
        "length": length,
        "stride": stride,
        "start": start,
        "anchors": anchors,
        "fill": fill,
        "sinks": sinks,
        "window": window,
        "max_position": max_position,
        "max_distance": max_distance,
        "group": group,
        "pairs": pairs or None,
        "seed": seed,
    }
    return apply_scheme(scheme, {name: value for name, value in given.items() if value is not None})
