"""Tables that are one vector at heart: frequencies and divisors by pair, slopes by head, and buckets, indices and biases
by distance.

The rule is guessed from a few entries, then made again whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.inspect.laws import (
    ROUND_DIGITS,
    digits_of,
    rope_laws,
    rounded_geometric,
    roundest,
    unknown_law,
    variants,
)
from pe_cli.inspect.result import (
    FLOAT32_STEP,
    PRECISIONS,
    Array,
    Identified,
    Law,
    Precision,
    checked,
    stored_precision,
    tidy,
)
from pe_cli.inspect.sinusoids import rope_frequencies
from pe_cli.numerics.dtypes import round_to

FEWEST = 4
FEWEST_ROUND = 8  # pairs of which a round base says something


def identify_frequencies(vector: NDArray[Any], named_so: bool = False) -> Identified | None:
    """`inv_freq` (m,) falling, or its inverse (m,) rising as mlx stores it.

    Frequencies of no known rule are believed only where the tensor is `named_so`.
    """
    values = vector.astype(np.float64)
    if values.ndim != 1 or len(values) < FEWEST or np.isnan(values).any() or np.isinf(values[:2]).any():
        return None
    precision = stored_precision(vector)
    rising = values[-1] > values[0] >= 0.99 and not np.isinf(values[0])
    with np.errstate(divide="ignore"):
        w = 1 / values if rising else values
    if w[0] > 1.01 or w[0] <= 0 or (w < 0).any() or (np.diff(w) > 0).any():
        return None
    live = int((w > 0).sum())
    if live < FEWEST:
        return None
    with np.errstate(divide="ignore"):
        error = w[:live] * np.maximum(precision.half_ulp(values[:live]) / values[:live], FLOAT32_STEP)
    for law in rope_laws(w[:live], error, len(w)):
        fitting = [(one, _matched(one, w, values, rising, precision)) for one in variants(law)]
        told = [(one, named, named.residual or 0.0) for one, named in fitting if named is not None]
        best = min((residual for *_, residual in told), default=0.0)
        for variant, named, residual in told:
            if residual > max(FLOAT32_RECIPES, WORSE * best):
                continue  # its base is rounder than the numbers allow
            if residual > EXACT:
                sharper = _matched(_sharper(variant, values, rising, precision), w, values, rising, precision)
                if sharper is not None and (sharper.residual or 0.0) < residual:
                    named = sharper
            return named if named_so else _if_round(named, live)
    cast = None if rising or live < len(w) else rounded_geometric(w)
    if cast is not None:
        facts = {
            "layout": "inv-freq",
            "dim": 2 * live,
            "base": cast[1],
            "scaling": "none",
            "frequency_dtype": cast[0],
        }
        return Identified("rope", facts, 0.0, precision.name)
    if not named_so or live < len(w):
        return None
    law, note = unknown_law(w, 1.0)
    facts = {"layout": "mlx-freqs" if rising else "inv-freq", "dim": 2 * live}
    facts |= {"base": law.base} if law.scaling != "unknown" else {}
    return Identified("rope", facts | {"scaling": law.scaling} | law.parameters, None, precision.name, [note])


EXACT = 0.51  # ulps
FLOAT32_RECIPES, WORSE = (
    32.0,
    4.0,
)  # ulps by which code in float32 misses the frequencies, and how much worse a base may be
SMALL = 1e-7


def _if_round(named: Identified, pairs: int) -> Identified:
    """What a nameless vector is: any geometric row has some base, so that only a round one says that it is of frequencies."""
    if named.facts["scaling"] not in ("none", "linear"):
        return named
    any_row = "any geometric row"
    if digits_of(named.facts["base"]) <= ROUND_DIGITS and pairs >= FEWEST_ROUND:
        return replace(named, ambiguous=[*named.ambiguous, any_row])
    what = f"rope frequencies of base {named.facts['base']:.9g}"
    if named.facts["scaling"] == "linear":
        what += f", divided by {named.facts['factor']:.9g}"
    shifted = [note for note in named.ambiguous if "shift" in note]
    return Identified(None, precision=named.precision, maybe=[any_row, what, *shifted])


def _sharper(law: Law, values: Array, rising: bool, precision: Precision) -> Law:
    """The law with the roundest base that all entries allow within half an ulp, if there is one."""
    stored = []
    for base in (law.base, law.base * (1 + SMALL)):
        try:
            frequencies, _ = rope_frequencies(2 * len(values), base, law.scaling, **law.parameters)
        except PeError:
            return law
        made = np.array([float(f) for f in frequencies])
        stored.append(1 / made if rising else made)
    slope = (stored[1] - stored[0]) / (SMALL * law.base)
    telling = np.isfinite(slope) & (np.abs(slope) * law.base > 1e-3 * np.abs(stored[0]))
    if not telling.any():
        return law
    middle = law.base + (values - stored[0])[telling] / slope[telling]
    room = precision.half_ulp(values[telling]) / np.abs(slope[telling])
    low, high = float((middle - room).max()), float((middle + room).min())
    if not 10 < low < high:
        return law
    return replace(law, base=roundest(0.5 * (low + high), 0.5 * (high - low)))


def _matched(law: Law, w: Array, values: Array, rising: bool, precision: Precision) -> Identified | None:
    if law.unit != 1 or not 10 <= law.base <= 1e12:
        return None
    try:
        frequencies, magnitude = rope_frequencies(2 * len(w), law.base, law.scaling, **law.parameters)
    except PeError:
        return None
    made = np.array([float(f) for f in frequencies])
    with np.errstate(divide="ignore", invalid="ignore"):
        stored = 1 / made if rising else made
        half = precision.half_ulp(np.where(np.isfinite(stored), stored, 0))
        error = np.abs(values - stored)
        error[values == round_to(stored, precision.name).astype(np.float64)] = 0
    room = 2.1 * half + 1.5e-6 * np.where(np.isfinite(stored), stored, 0)
    if not (error <= room).all():
        return None
    worst = float(np.max(error / (2 * half)))
    facts = {
        "layout": "mlx-freqs" if rising else "inv-freq",
        "dim": 2 * len(w),
        "base": law.base,
    }
    facts |= {"scaling": law.scaling} | law.parameters
    if magnitude != 1:
        facts["attention_factor"] = tidy(magnitude)
    ambiguous = list(law.ambiguous)
    if law.scaling == "none" and law.base != 10000:
        ambiguous.append(f"a base of {law.base:.10g}, or NTK scaling of a smaller base")
    if law.scaling == "none" and not rising:
        ambiguous.append("the frequencies of sinusoidal positions, which are the same row")
        shifted = law.base ** (1 - 1 / len(w))
        if digits_of(roundest(shifted, 1e-5 * shifted)) <= ROUND_DIGITS < digits_of(law.base):
            short = roundest(shifted, 1e-5 * shifted)
            ambiguous.append(f"base {short:.9g} with a frequency shift of 1, as sinusoidal positions have it")
    return Identified("rope", facts, worst, precision.name, ambiguous)


# -- by distance --------------------------------------------------------------------------------------------------

Ints = NDArray[np.int64]
USUAL_DISTANCES = (128, 512, 256, 64, 1024, 800, 2048, 32, 4096, 100, 20, 16, 8192, 20000)
USUAL_T5 = ((32, 128), (64, 256), (128, 512), (320, 800))
FARTHEST = 32768
SIZES_TRIED = 256  # of the buckets of DeBERTa, below twice the first bucket that two distances share
MOST_BUCKETS = 1024  # a rule of more is not looked for: models have 32 to 512


def identify_integers(values: NDArray[Any]) -> Identified | None:
    """A vector or matrix of whole numbers that is a function of distance, or a window's index."""
    numbers = values.astype(np.int64)
    if numbers.ndim == 2 and numbers.shape[0] == numbers.shape[1]:
        from pe_cli.inspect.grids import window_index

        window = window_index(numbers)
        if window is not None:
            return window
    for distances, buckets in _by_distance(numbers):
        counting = numbers.ndim == 1 and len(np.unique(buckets)) == len(buckets)
        for rule in (_t5, _deberta) if counting else (_t5, _deberta, _clipped):
            found = rule(distances, buckets)
            if found is not None:
                facts, encoding, ambiguous = found
                ambiguous = [*ambiguous, *_equally(numbers, distances, buckets)]
                if numbers.ndim == 2:
                    facts["shape"] = list(numbers.shape)
                return Identified(encoding, facts, 0.0, None, ambiguous)
    return None


def _equally(numbers: Ints, distances: Ints, buckets: Ints) -> list[str]:
    """What else distances that are only cut off may be: no rule of buckets shows in them."""
    farthest = int(buckets.max())
    if numbers.ndim == 1 and any(
        np.array_equal(one, np.minimum(np.arange(len(one)), farthest)) for one in (numbers, numbers[::-1])
    ):
        return [f"position ids that stop at {farthest}"]
    for signed in (distances, -distances, np.abs(distances)):
        if np.array_equal(buckets, np.clip(signed, 0, farthest)):
            if signed.max() > farthest:
                return [
                    f"distances cut off at {farthest}: t5 buckets that are all exact, or shaw of one side"
                ]
            larger = " or ".join(f"{n} and {m}" for n, m in USUAL_T5 if n > 2 * farthest)
            return [
                "num_buckets and max_distance: every distance has a bucket of its own, so that larger ones"
                f" ({larger}) fit as well",
                "shaw of one side: no distance is cut off",
            ]
    return []


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
        sizes: Sequence[int] = [int(at_zero[0])]
        if signed:  # beyond the exact half the buckets, rounded up, may go on by ones for a while
            sizes = range(2 * exact, max(exact, 2 * exact - SIZES_TRIED), -2)
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
    named = _slopes(values, precision, {"form": "slopes"})
    if named is not None and np.allclose(
        values[1:] * values[:-1].mean(), values[:-1] * values[1:].mean(), rtol=1e-5
    ):
        named.ambiguous.append(f"any geometric row of ratio {values[1] / values[0]:.6g}, such as frequencies")
    return named


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
        return checked(named, table, np.asarray(made), precision)
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
    return checked(named, block, np.where(blocked, block, np.asarray(made)), precision)
