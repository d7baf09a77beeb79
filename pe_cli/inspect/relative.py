"""Indices, buckets and biases by distance: the rule is guessed from a few entries, then made again whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.inspect.laws import digits_of, roundest
from pe_cli.inspect.result import PRECISIONS, Identified, Precision, stored_precision

Ints = NDArray[np.int64]
USUAL_DISTANCES = (128, 512, 256, 64, 1024, 800, 2048, 32, 4096, 100, 20, 16, 8192, 20000)
FARTHEST = 32768
LARGEST_SIDE = 1024
MOST_BUCKETS = 1024  # a rule of more is not looked for: models have 32 to 512


def identify_integers(values: NDArray[Any]) -> Identified | None:
    """A vector or matrix of whole numbers that is a function of distance, or a window's index."""
    numbers = values.astype(np.int64)
    if numbers.ndim == 2 and numbers.shape[0] == numbers.shape[1]:
        window = _swin_index(numbers)
        if window is not None:
            return window
    for distances, buckets in _by_distance(numbers):
        counting = numbers.ndim == 1 and len(np.unique(buckets)) == len(buckets)
        for rule in (_t5, _deberta) if counting else (_t5, _deberta, _clipped):
            found = rule(distances, buckets)
            if found is not None:
                facts, encoding, ambiguous = found
                if numbers.ndim == 2:
                    facts["shape"] = list(numbers.shape)
                return Identified(encoding, facts, 0.0, None, ambiguous)
    return None


def _by_distance(numbers: Ints) -> Iterator[tuple[Ints, Ints]]:
    """(distances, value at each): key minus query for a matrix whose diagonals are constant; for a vector
    consecutive distances, rising or falling, with 0 where the values say."""
    if numbers.ndim == 2:
        if min(numbers.shape) < 2 or np.any(numbers[1:, 1:] != numbers[:-1, :-1]):
            return
        queries, keys = numbers.shape
        profile = np.concatenate([numbers[::-1, 0], numbers[0, 1:]])
        yield np.arange(1 - queries, keys), profile
        if queries != keys:  # queries at the end of the keys
            yield np.arange(1 - keys, queries), profile
    elif numbers.ndim == 1 and numbers.size >= 8:
        for profile in (numbers, numbers[::-1]):
            for zero in _zeros(profile):
                yield np.arange(len(profile)) - zero, profile


def _zeros(profile: Ints) -> Iterator[int]:
    """Places where distance 0 may be."""
    at = np.flatnonzero(profile == 0)
    if len(at):
        yield int(at[0])
        if len(at) > 1:
            yield int(at[-1])
    middle = len(profile) // 2
    if len(profile) % 2 and middle not in at:
        yield middle
    steps = np.flatnonzero(np.diff(profile) == 1)
    if len(steps) and len(at):
        size = int(profile.max() + 1) // 2
        yield int(np.argmin(np.abs(profile - size)))


def _equal(rule: Callable[[Ints], Ints], distances: Ints, buckets: Ints) -> bool:
    try:
        return bool(np.array_equal(rule(distances), buckets))
    except PeError:
        return False


Found = tuple[dict[str, Any], str, list[str]]


def _farthest(
    rule: Callable[[int], Callable[[Ints], Ints]], lowest: int, distances: Ints, buckets: Ints
) -> tuple[int, list[str]] | None:
    """The largest distance of a bucket rule: a usual one, or else the only range that reproduces all."""
    fitting = [m for m in USUAL_DISTANCES if m > lowest and _equal(rule(m), distances, buckets)]
    if not fitting:
        # the bucket of the farthest distance falls as the limit grows: bisect for where the sums agree
        low, high = lowest, FARTHEST
        wanted = int(np.abs(buckets).sum())
        while high - low > 1:
            middle = (low + high) // 2
            try:
                reached = int(np.abs(rule(middle)(distances)).sum())
            except PeError:
                low = middle
                continue
            low, high = (middle, high) if reached > wanted else (low, middle)
        fitting = [m for m in (high, low) if m > lowest and _equal(rule(m), distances, buckets)]
    if not fitting:
        return None
    best = fitting[0]
    neighbours = [m for m in (best - 1, best + 1) if m > lowest and _equal(rule(m), distances, buckets)]
    return best, ["max_distance: the distances shown do not fix it"] if neighbours else []


def _t5(distances: Ints, buckets: Ints) -> Found | None:
    from pe_cli.encodings.distances import t5_buckets

    if buckets.min() < 0 or buckets.max() < 2 or np.any(buckets[distances == 0] != 0):
        return None
    right = buckets[distances == 1]
    bidirectional = bool(len(right) and right[0] > 0)
    sizes = [2 * (int(right[0]) - 1)] if bidirectional else _causal_sizes(distances, buckets)
    for size in sizes:
        if not 4 <= size <= MOST_BUCKETS:
            continue

        def rule(limit: int, size: int = size) -> Callable[[Ints], Ints]:
            return lambda d: t5_buckets(d, num_buckets=size, max_distance=limit, bidirectional=bidirectional)

        reached = _farthest(rule, size // (4 if bidirectional else 2), distances, buckets)
        if reached is not None:
            facts = {"num_buckets": size, "max_distance": reached[0], "bidirectional": bidirectional}
            return facts, "t5", reached[1]
    return None


def _causal_sizes(distances: Ints, buckets: Ints) -> list[int]:
    """How many buckets there may be: one more than the largest, or twice the first that is shared."""
    left = buckets[distances <= 0][::-1]
    repeated = np.flatnonzero(np.diff(left) == 0)
    sizes = [int(buckets.max()) + 1]
    if len(repeated):
        sizes += [2 * int(left[repeated[0]]), 2 * int(left[repeated[0]]) - 2]
    return sizes


def _deberta(distances: Ints, buckets: Ints) -> Found | None:
    """Signed buckets, or the index that adds S and clips; DeBERTa counts query minus key."""
    from pe_cli.encodings.mixed import deberta

    at_zero = buckets[distances == 0]
    if not len(at_zero):
        return None
    signed = at_zero[0] == 0
    if not signed and buckets.min() < 0:
        return None
    for minus_key in (-distances, distances):
        near = np.argsort(np.abs(minus_key), kind="stable")
        order = near[minus_key[near] >= 0]
        climb = buckets[order] - at_zero[0]
        repeated = np.flatnonzero(np.diff(climb) == 0)
        if len(climb) < 3 or climb[1] != 1 or not len(repeated):
            continue
        exact = int(climb[repeated[0]])
        sizes = [int(at_zero[0])] if not signed else [2 * exact, 2 * exact - 2, 256, 512, 64, 128]
        name = "relative_bucket" if signed else "relative_index"
        for size in sizes:
            if size < 4:
                continue

            def rule(limit: int, size: int = size, tensor: str = name) -> Callable[[Ints], Ints]:
                return lambda d: deberta(distances=d, position_buckets=size, max_relative_positions=limit)[
                    tensor
                ]

            reached = _farthest(rule, size // 2 + 1, minus_key, buckets)
            if reached is not None:
                facts = {"position_buckets": size, "max_relative_positions": reached[0], "tensor": name}
                also = [note.replace("max_distance", "max_relative_positions") for note in reached[1]]
                return facts, "deberta", also
    return None


def _clipped(distances: Ints, buckets: Ints) -> Found | None:
    """Shaw's clipped index, in the numberings of `pe gen shaw`."""
    from pe_cli.encodings.relative import SHAW_NUMBERINGS, shaw

    at_zero = buckets[distances == 0]
    if buckets.min() < 0 or not len(at_zero) or len(np.unique(buckets)) < 3:
        return None
    limits = dict.fromkeys([int(at_zero[0]), int(buckets.max()) // 2, int(buckets.max()) // 2 + 1])
    for limit in limits:
        for numbering in SHAW_NUMBERINGS:
            rights: list[int | None] = [None]
            if numbering == "shaw" and int(buckets.max()) - limit >= 0:
                rights.append(int(buckets.max()) - limit)
            for right in rights:

                def rule(d: Ints, limit: int = limit, right: int | None = right, of: str = numbering) -> Ints:
                    return shaw(distances=d, max_distance=limit, max_right=right, numbering=of).array

                if limit >= 1 and _equal(rule, distances, buckets):
                    facts = {"max_distance": limit, "max_right": right, "numbering": numbering}
                    hidden = buckets.max() < 2 * limit - 1 and right is None
                    return facts, "shaw", ["max_distance: no distance shown is clipped"] if hidden else []
    return None


def _swin_index(numbers: Ints) -> Identified | None:
    from pe_cli.encodings.relative import swin

    side = len(numbers)
    if side < 4 or side > LARGEST_SIDE or numbers.min() < 0:
        return None
    for class_token in (False, True):
        patches = side - class_token
        for height in range(1, patches + 1):
            if patches % height:
                continue
            width = patches // height
            offsets = (2 * height - 1) * (2 * width - 1)
            first = numbers[int(class_token), int(class_token)]
            if first != (height - 1) * (2 * width - 1) + width - 1:
                continue
            if numbers.max() != offsets - 1 + 3 * class_token:
                continue
            made = swin(window=(height, width), class_token=class_token)["relative_position_index"]
            if np.array_equal(made, numbers):
                facts = {"window": f"{height}x{width}", "class_token": class_token}
                return Identified("swin", facts | {"tensor": "relative_position_index"}, 0.0)
    return None


def _precision(values: NDArray[Any]) -> Precision:
    """Multiples of powers of two look like numbers of few bits, so that the dtype has the last word."""
    found = stored_precision(values)
    return PRECISIONS.get(values.dtype.name, found) if found.name.startswith("float8") else found


def identify_slopes(vector: NDArray[Any]) -> Identified | None:
    """ALiBi's slopes (heads,)."""
    values = vector.astype(np.float64)
    if values.size < 2 or not ((values > 0) & (values <= 1)).all():
        return None
    precision = _precision(vector)
    return _slopes(values, precision, {"form": "slopes"})


def _slopes(values: NDArray[np.float64], precision: Precision, facts: dict[str, Any]) -> Identified | None:
    from pe_cli.encodings.biases import alibi_slopes

    heads = len(values)
    smaller = 1 << (heads.bit_length() - 1)
    measured = -float(np.log2(values[smaller - 1]))
    bias_max = roundest(measured, max(1e-5, 4 * precision.unit))
    if bias_max <= 0 or digits_of(bias_max) > 4 or measured <= 0:
        return None
    made = alibi_slopes(heads, bias_max=bias_max)
    error = np.abs(values - made)
    half = precision.half_ulp(made)
    if (error > 3.2 * half + 2e-7 * made * (precision.unit < 1e-7)).any():
        return None
    facts = {"heads": heads, "bias_max": bias_max, **facts}
    return Identified("alibi", facts, float((error / (2 * half)).max()), precision.name)


def identify_bias(values: NDArray[Any]) -> Identified | None:
    """ALiBi by key (heads, keys) or by pair (heads, queries, keys), where blocked pairs may be -inf or very low."""
    from pe_cli.encodings.biases import alibi

    table = values.astype(np.float64)
    if table.ndim not in (2, 3) or table.shape[-1] < 3 or len(table) < 2 or np.isnan(table).any():
        return None
    precision = _precision(values[np.isfinite(values)])
    if table.ndim == 2:
        rise = np.where(table[:, 0] == 0, table[:, 1], -table[:, -2])
        form: Literal["key", "mpt"] = "key" if table[0, 0] == 0 else "mpt"
        named = _slopes(np.abs(rise), precision, {"form": form}) if (rise > 0).all() else None
        if named is None:
            return None
        made = alibi(
            table.shape[1],
            heads=len(table),
            form=form,
            bias_max=named.facts["bias_max"],
            dtype="float64",
        )
        return _checked(named, table, np.asarray(made), precision)
    block = table[:, :512, :512]
    below = block[:, 1, 0]
    named = _slopes(-below, precision, {"form": "matrix"}) if (below < 0).all() else None
    if named is None:
        return None
    blocked = block <= -1e9
    future = block[:, 0, 1]
    causal = bool((blocked[:, 0, 1] | (future == 0)).all())
    named.facts |= {"bidirectional": not causal, "masked": bool(blocked.any())}
    made = alibi(
        np.arange(block.shape[1]),
        np.arange(block.shape[2]),
        heads=len(table),
        bias_max=named.facts["bias_max"],
        bidirectional=not causal,
        dtype="float64",
    )
    return _checked(named, block, np.where(blocked, block, np.asarray(made)), precision)


def _checked(
    named: Identified, values: NDArray[np.float64], made: NDArray[np.float64], precision: Precision
) -> Identified | None:
    finite = np.isfinite(values)
    error = np.abs(values[finite] - made[finite])
    if precision.name == "float64" and (error > 1e-12 * np.abs(made[finite])).any():
        precision = PRECISIONS["float32"]
        named.precision = precision.name
    half = precision.half_ulp(made[finite])
    if (error > 3.2 * half + 4e-7 * np.abs(made[finite])).any():
        return None
    named.residual = float((error / (2 * half)).max(initial=0.0))
    return named


def identify_coordinates(values: NDArray[Any]) -> Identified | None:
    """Swin v2's coordinates (2H-1, 2W-1, 2)."""
    from pe_cli.encodings.relative import swin

    table = values.astype(np.float64)
    if (
        table.ndim != 3
        or table.shape[2] != 2
        or not np.isfinite(table).all()
        or not np.any(table)
        or not (table.shape[0] % 2 and table.shape[1] % 2)
    ):
        return None
    window = (table.shape[0] + 1) // 2, (table.shape[1] + 1) // 2
    precision = stored_precision(values)
    edge = np.abs(table[-1, -1])
    pretrained = []
    for side, reach in zip(window, edge, strict=True):
        scale = 8 * (side - 1) / max(2.0 ** (3 * reach) - 1, 1e-9) + 1 if side > 1 else 1
        pretrained.append(round(scale))
    sizes = None if tuple(pretrained) == window else (pretrained[0], pretrained[1])
    try:
        made = swin(window=window, version="2", pretrained_window=sizes, dtype="float64")[
            "relative_coords_table"
        ]
    except PeError:
        return None
    facts: dict[str, Any] = {
        "window": "x".join(map(str, window)),
        "version": 2,
        "tensor": "relative_coords_table",
    }
    if sizes:
        facts["pretrained_window"] = "x".join(map(str, sizes))
    return _checked(Identified("swin", facts, 0.0, precision.name), table, made, precision)
