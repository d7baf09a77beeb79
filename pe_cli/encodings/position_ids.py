"""Position numbers that a model computes before any table: one function for each rule that numbers tokens."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.distances import require_room
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.randomness import distinct_integers, uniform_rows
from pe_cli.positions import LIMIT, parse_grid, spell
from pe_cli.signature import Choice, Ints, Mask, encoding
from pe_cli.tensors import Tensors

Fill: TypeAlias = Literal["left", "nearest", "none"]
After: TypeAlias = Literal["grid", "largest"]

NOT_SEEN = -1
ALIASES = {"streaming-llm": "sinks", "dca": "dual-chunk"}
LOWEST = {
    **dict.fromkeys(
        ("stride", "group", "window", "max_position", "max_distance", "merge", "temporal_merge"), 1
    ),
    **dict.fromkeys(("sinks", "start", "time_interval", "padding_idx"), 0),
}
COUNTED, SHAPED = ("text", "audio"), ("image", "video")
PADDED = 1  # what transformers 4 and Qwen2.5-Omni number tokens that nothing attends to; transformers 5 generates with 0


def apply_scheme(scheme: str, options: Mapping[str, Any]) -> Tensors:
    """The tensors of `scheme`; PeError where an option is missing, not used, or does not fit."""
    rule = SCHEMES[scheme]
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


def _mrope(
    *,
    segments: str,
    merge: int | None = None,
    temporal_merge: int = 1,
    time_interval: float = 1.0,
    after: After = "grid",
) -> Tensors:
    step = min(time_interval, float(LIMIT))
    pieces, warnings = [], []
    start = 0
    for kind, *sizes in _segments(segments):
        frames, rows, columns = sizes if kind in COUNTED else _merged(kind, sizes, merge, temporal_merge)
        require_room((3, start + frames * rows * columns), np.int64)
        if start + frames * max(step, 1) + rows + columns >= LIMIT:
            raise PeError(f"{parameter('time_interval')} {time_interval:g}: positions go up to 2^63")
        if kind in COUNTED:
            pieces.append(np.repeat(np.arange(start, start + frames)[:, None], 3, axis=1))
            start += frames
            continue
        # In float32, as transformers multiplies.
        times = np.arange(frames, dtype=np.float32) * np.float32(step if kind == "video" else 1)
        axes = np.meshgrid(times.astype(np.int64), np.arange(rows), np.arange(columns), indexing="ij")
        pieces.append(np.stack(axes, axis=-1).reshape(-1, 3) + start)
        behind = {"grid": start + max(rows, columns), "largest": int(pieces[-1].max()) + 1}
        if after == "grid" and behind["largest"] > behind["grid"]:
            warnings.append(
                f"a {kind} reaches position {behind['largest'] - 1} in time, but what follows goes on at {behind['grid']}, behind "
                "its rows and columns, as in transformers 5; transformers 4 and Qwen2.5-Omni go on behind the largest (after: largest)"
            )
        start = behind[after]
    ids = np.concatenate(pieces)
    delta = int(ids.max()) + 1 - len(ids)
    return Tensors(
        {"position_ids": ids, "mrope_delta": np.array([delta], np.int64)},
        {"next_position": len(ids) + delta},
        tuple(dict.fromkeys(warnings)),
    )


def _segments(text: str) -> list[tuple[Any, ...]]:
    """(kind, frames, rows, columns) of each; of what is counted the tokens in place of frames, and one row and column."""
    found: list[tuple[Any, ...]] = []
    for part in text.split(","):
        kind, _, size = part.strip().partition(":")
        if kind in COUNTED and size.isdecimal() and len(size) <= 18 and int(size):
            found.append((kind, int(size), 1, 1))
        elif kind in SHAPED and size:
            sides = parse_grid(size, "segments")
            if not 2 <= len(sides) <= 3:
                raise PeError(f"{parameter('segments')} {text}: {part!r} has {len(sides)} sides; write TxHxW")
            found.append((kind, *((1,) * (3 - len(sides))), *sides))
        else:
            raise PeError(
                f"{parameter('segments')} {text}: {part!r} is no segment; write text:5, audio:20, image:1x4x6 or video:2x4x6"
            )
    return found


def _merged(kind: str, sizes: list[int], merge: int | None, temporal_merge: int) -> tuple[int, int, int]:
    """Frames, rows and columns of a grid as the language model sees them."""
    if merge is None:
        raise PeError(
            f"{parameter('segments')} {kind}: give {parameter('merge')}, the patches on each side of a token (2 in Qwen-VL)"
        )
    together = (temporal_merge if kind == "video" else 1, merge, merge)
    if any(size % whole for size, whole in zip(sizes, together, strict=True)):
        raise PeError(
            f"{parameter('segments')} {kind}:{spell(sizes, 'x')}: the sides are patches before merging, and no multiples of {spell(together, 'x')}"
        )
    frames, rows, columns = (size // whole for size, whole in zip(sizes, together, strict=True))
    return frames, rows, columns


def _packed(*, lengths: tuple[int, ...], start: int = 0) -> Tensors:
    if min(lengths) < 1:
        raise PeError(f"{parameter('lengths')} {spell(lengths)}: a document has at least one token")
    total = sum(lengths)
    require_room((2, total), np.int64)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Tensors({"position_ids": np.arange(start, start + total) - starts}, {"documents": len(lengths)})


def _from_mask(*, mask: NDArray[Any], padding_idx: int | None = None) -> Tensors:
    given = np.asarray(mask)
    if (
        given.dtype.kind not in "biuf"
        or given.ndim not in (1, 2)
        or not given.size
        or not np.isin(given, (0, 1)).all()
    ):
        raise PeError(
            f"{parameter('mask')}: 1 for each token and 0 for padding are needed, (n,) or (batch, n)"
        )
    seen = given != 0
    count = np.cumsum(seen, axis=-1, dtype=np.int64)
    ids = np.where(seen, count - 1, PADDED) if padding_idx is None else count * seen + padding_idx
    return Tensors({"position_ids": ids}, {"tokens": int(seen.sum())})


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
    "mrope": _mrope,
    "packed": _packed,
    "from-mask": _from_mask,
}


@encoding
def position_ids(
    length: int | None = None,
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
    segments: str | None = None,
    merge: int | None = None,
    temporal_merge: int | None = None,
    time_interval: float | None = None,
    after: After | None = None,
    lengths: Ints | None = None,
    mask: Mask | None = None,
    padding_idx: int | None = None,
) -> Tensors:
    """Position numbers that models compute before any table: integers for `--positions @FILE` of every encoding.

    >>> position_ids(scheme="packed", lengths=(3, 2)).tolist()
    [0, 1, 2, 0, 1]

    All are int64 (n,), those of mrope (n, 3). With --pairs (always for lm-infinite) there are `distances` (n, n) too,
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
    mrope            Time, row and column of each token of Qwen-VL and its
                     relatives: text counts up on all three, an image or
                     video has its merged grid behind what came before.
                     `mrope_delta` (1,) is the next position minus the length.
    packed           Every document counts from --start (0).
    from-mask        Tokens count from 0, padding is 1; with --padding-idx P
                     they count from P + 1 and padding is P (RoBERTa).

    Extrapolates: the long-context schemes are made for it: a model sees no position or distance that it was not
    trained on.

    Source: Xiao et al. 2024, arXiv 2309.17453; Ruoss et al. 2023, arXiv 2305.16843; Zhu et al. 2024, arXiv
    2309.10400; Jin et al. 2024, arXiv 2401.01325; An et al. 2024, arXiv 2402.17463; Han et al. 2024, arXiv 2308.16137;
    mrope: Wang et al. 2024, arXiv 2409.12191, `get_rope_index` of transformers 5.24; packed:
    `DataCollatorWithFlattening`; from-mask: `create_position_ids_from_input_ids` of RoBERTa.

    Parameters
    ----------
    length : number of tokens, where the scheme does not say it itself
    scheme : which rule; an option that the rule does not use is an error
    stride : stride: distance between two positions that have a row
    start : stride: the first position that has a row (0); packed: the first of each document (0)
    anchors : anchors: the positions that have a row
    fill : stride, anchors: what the other tokens get (left; none is -1)
    sinks : sinks, lm-infinite: tokens at the start that are always kept
    window : sinks, self-extend, lm-infinite: how many recent tokens are kept as they are
    max_position : randomised, pose: positions stay below it; dual-chunk: length of the pre-training
    max_distance : lm-infinite: the distance at which counting stops
    group : self-extend: how many far tokens share a position
    pairs : self-extend, dual-chunk: write the distances of all pairs too
    seed : randomised, pose: of the draws (0)
    segments : mrope: what follows what, such as text:5,image:1x4x6,video:2x4x6: tokens, or a grid TxHxW of patches
    merge : mrope: patches on each side of what becomes one token (spatial_merge_size)
    temporal_merge : mrope: frames of a video that become one token (1; temporal_merge_size of ERNIE)
    time_interval : mrope: positions in time from one frame of a video to the next, rounded down (1; Qwen2.5-VL:
        tokens per second times seconds per frame)
    after : mrope: what follows an image goes on behind its rows and columns (grid, transformers 5) or behind its
        largest position, time included (largest, transformers 4 and Qwen2.5-Omni)
    lengths : packed: tokens of each document
    mask : from-mask: 1 for each token and 0 for padding, (n,) or (batch, n)
    padding_idx : from-mask: the position of padding, tokens count from the next

    Returns
    -------
    Tensors with `position_ids`, and what is named above.

    Raises
    ------
    PeError
        Where an option is missing, not used by the scheme, or does not fit.
    """
    given: dict[str, Any] = {**locals(), "pairs": pairs or None}
    return apply_scheme(given.pop("scheme"), {n: value for n, value in given.items() if value is not None})
