"""Resampling of learned position tables: every published way, as a few weights per new row.

A method says, for one axis of `old` rows, from which old rows each of `new` rows is made and with which weights
(`Taps`). Tables with several axes are separable, so a method is only ever written for one axis. Nothing here
knows files, names or models.

Sources: Chen et al., LongEmbed (2024); Zhang et al., Long-CLIP (2024), eq. 3; Beltagy et al., Longformer (2020),
section 5; Su, hierarchical decomposition of position encodings (2020); Bao et al., BEiT (2021), geometric knots
of its window tables. Kernels and coordinates are those of `torch.nn.functional.interpolate`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, no_such, parameter

Anchor: TypeAlias = Literal["ends", "half", "left"]
ANCHORS: tuple[Anchor, ...] = ("ends", "half", "left")


def coordinates(old: int, new: int, anchor: Anchor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Whole part (new,) and fraction (new,) in [0, 1) of each new row's place on the old axis."""
    j = np.arange(new, dtype=np.int64)
    if anchor == "ends":
        top, below = j * (old - 1), max(new - 1, 1)
    elif anchor == "half":
        top, below = (2 * j + 1) * old - new, 2 * new
    else:
        top, below = j * old, new
    whole = top // below
    return whole, (top - whole * below) / below


def keys_cubic(distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """Keys' cubic convolution kernel at `distance` (any shape), zero from 2 on."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    kernel: NDArray[np.float64] = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    return kernel


def triangle(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """The kernel of linear interpolation at `distance` (any shape)."""
    kernel: NDArray[np.float64] = np.maximum(0.0, 1 - np.abs(distance))
    return kernel


def spline_matrix(knots: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """(points, knots) weights of the cubic spline with not-a-knot ends through values at `knots`."""
    n, h = len(knots), np.diff(knots)
    system, right = np.zeros((n, n)), np.zeros((n, n))  # second derivatives: system @ m = right @ values
    for i in range(1, n - 1):
        system[i, i - 1 : i + 2] = h[i - 1], 2 * (h[i - 1] + h[i]), h[i]
        right[i, i - 1 : i + 2] = 6 / h[i - 1], -6 / h[i - 1] - 6 / h[i], 6 / h[i]
    system[0, :3] = h[1], -(h[0] + h[1]), h[0]
    system[-1, -3:] = h[-1], -(h[-1] + h[-2]), h[-2]
    curvature = np.linalg.solve(system, right)
    k = np.clip(np.searchsorted(knots, points, side="right") - 1, 0, n - 2)
    b = (points - knots[k]) / h[k]
    a = 1 - b
    identity = np.eye(n)
    bend = (h[k] ** 2 / 6)[:, None]
    spline: NDArray[np.float64] = a[:, None] * identity[k] + b[:, None] * identity[k + 1]
    spline += bend * ((a**3 - a)[:, None] * curvature[k] + (b**3 - b)[:, None] * curvature[k + 1])
    return spline


FRESH = -1  # the index of a row that is made from no old row


@dataclass(frozen=True)
class Taps:
    """new[j] = sum over t of weight[j, t] * old[index[j, t]].

    index (new, t) int64, FRESH in column 0 where a row has no source; weight (new, t) float64.
    """

    index: NDArray[np.int64]
    weight: NDArray[np.float64]
    old: int
    notes: tuple[str, ...] = field(default=())

    @property
    def new(self) -> int:
        return len(self.index)

    @property
    def copied_from(self) -> NDArray[np.int64]:
        """(new,) the old row that a new row equals, or FRESH where it is not a copy."""
        used = self.weight != 0
        column = np.argmax(used, axis=1)[:, None]
        first = np.take_along_axis(self.index, column, axis=1)
        whole = ((self.index == first) | ~used).all(axis=1)
        whole &= np.abs(self.weight.sum(axis=1) - 1) < 1e-15
        return np.where(whole, first[:, 0], FRESH)

    def matrix(self) -> NDArray[np.float64]:
        """The weights as a dense (new, old) matrix."""
        dense = np.zeros((self.new, self.old))
        rows = np.broadcast_to(np.arange(self.new)[:, None], self.index.shape)
        real = self.index >= 0
        np.add.at(dense, (rows[real], self.index[real]), self.weight[real])
        return dense


def row_sources(taps: Sequence[Taps]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For every new row, flattened: the old row it copies (or FRESH), and whether it has no source at all."""
    source, fresh = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.bool_)
    for axis in taps:
        own = axis.copied_from
        known = (source[:, None] != FRESH) & (own[None, :] != FRESH)
        source = np.where(known, source[:, None] * axis.old + own[None, :], FRESH).reshape(-1)
        fresh = (fresh[:, None] | (axis.index[:, 0] == FRESH)[None, :]).reshape(-1)
    return source, fresh


@dataclass(frozen=True)
class Options:
    """What a method may be told; each method reads what concerns it.

    anchor, antialias   where coordinates are fixed, and whether the kernel widens when shrinking
    keep                rows that `stretch` leaves where they are
    alpha               share of the coarse position in `hierarchical`, between 0 and 1
    scale_offset        added to the new size before the scale is taken (0.1 in DINO and DINOv2)
    head, tail          outlier rows at both ends: they stay at their end, and no other row is made from them
    """

    anchor: Anchor = "ends"
    antialias: bool = False
    keep: int = 20
    alpha: float = 0.4
    scale_offset: float = 0.0
    head: int = 0
    tail: int = 0


def _interpolate(old: int, new: int, options: Options, *, cubic: bool) -> Taps:
    if old == new == 1:
        return _picked(np.zeros(1, np.int64), old)
    if old < 2:
        raise PeError(
            f"a table of {old} row has nothing to interpolate between; use {parameter('method')} repeat-last"
        )
    if options.scale_offset:
        x = (np.arange(new) + 0.5) * old / (new + options.scale_offset) - 0.5
        whole = np.floor(x).astype(np.int64)
        fraction = x - whole
    else:
        whole, fraction = coordinates(old, new, options.anchor)
    if options.antialias:
        return _antialiased(old, new, whole, fraction, options, cubic=cubic)
    steps = np.arange(-1, 3) if cubic else np.arange(2)
    distance = steps[None, :] - fraction[:, None]
    weight = keys_cubic(distance, -0.75) if cubic else triangle(distance)
    return Taps(np.clip(whole[:, None] + steps, 0, old - 1), weight, old)


def _antialiased(
    old: int,
    new: int,
    whole: NDArray[np.int64],
    fraction: NDArray[np.float64],
    options: Options,
    *,
    cubic: bool,
) -> Taps:
    ratio = (old - 1) / max(new - 1, 1) if options.anchor == "ends" else old / new
    stretch = max(ratio, 1.0)
    reach = int(np.ceil((2 if cubic else 1) * stretch))
    steps = np.arange(-reach, reach + 2)
    distance = (steps[None, :] - fraction[:, None]) / stretch
    weight = keys_cubic(distance, -0.5) if cubic else triangle(distance)
    index = whole[:, None] + steps
    weight[(index < 0) | (index >= old)] = 0
    weight /= weight.sum(axis=1, keepdims=True)
    return Taps(np.clip(index, 0, old - 1), weight, old)


def _picked(index: NDArray[np.int64], old: int) -> Taps:
    weight = np.where(index == FRESH, 0.0, 1.0)
    return Taps(index.astype(np.int64)[:, None], weight[:, None], old)


def _linear(old: int, new: int, options: Options) -> Taps:
    return _interpolate(old, new, options, cubic=False)


def _cubic(old: int, new: int, options: Options) -> Taps:
    return _interpolate(old, new, options, cubic=True)


def _nearest(old: int, new: int, options: Options) -> Taps:
    """`left`: floor(j / s), torch's `nearest`; `half`: torch's `nearest-exact`; `ends`: the closest row."""
    whole, fraction = coordinates(old, new, options.anchor)
    if options.anchor != "left":
        whole = whole + (fraction >= 0.5)
    return _picked(np.clip(whole, 0, old - 1), old)


def _stretch(old: int, new: int, options: Options) -> Taps:
    """Long-CLIP: the first `keep` rows stay, the others are stretched; past the last row the line goes on."""
    keep = options.keep
    if old < keep + 2:
        raise PeError(
            f"stretch keeps {keep} rows and needs two more, the table has {old}; give a smaller {parameter('keep')}"
        )
    if new < keep + 2:
        raise PeError(
            f"stretch keeps {keep} rows, {new} are asked for; give a smaller {parameter('keep')} or {parameter('method')} truncate"
        )
    whole, fraction = coordinates(old - keep, new - keep, options.anchor)
    low = np.clip(whole, 0, old - keep - 2)
    fraction = fraction + (whole - low)
    index = np.concatenate([np.arange(keep).repeat(2).reshape(-1, 2), keep + low[:, None] + np.arange(2)])
    weight = np.concatenate([np.tile([1.0, 0.0], (keep, 1)), np.stack([1 - fraction, fraction], axis=1)])
    return Taps(index, weight, old)


def _hierarchical(old: int, new: int, options: Options) -> Taps:
    """Su: with u_k = (P_k - a P_0) / (1 - a), row i L + j is a u_i + (1 - a) u_j; rows below L come out as P_j."""
    if not 0 < options.alpha < 1 or options.alpha == 0.5:
        raise PeError(
            f"{parameter('alpha')} {options.alpha:g} is out of range: between 0 and 1, and not 0.5 (rows would repeat)"
        )
    if new > old * old:
        raise PeError(
            f"hierarchical reaches {old} x {old} = {old * old} rows from {old}, {new} are asked for"
        )
    coarse, fine = np.divmod(np.arange(new, dtype=np.int64), old)
    share = np.where(coarse > 0, options.alpha / (1 - options.alpha), 0.0)
    weight = np.stack([np.ones(new), share, -share], axis=1)
    return Taps(np.stack([fine, coarse, np.zeros_like(fine)], axis=1), weight, old)


def _repeat_last(old: int, new: int, options: Options) -> Taps:
    return _picked(np.minimum(np.arange(new), old - 1), old)


def _tile(old: int, new: int, options: Options) -> Taps:
    return _picked(np.arange(new) % old, old)


def _fresh(old: int, new: int, options: Options) -> Taps:
    row = np.arange(new)
    return _picked(np.where(row < old, row, FRESH), old)


def _truncate(old: int, new: int, options: Options) -> Taps:
    return _picked(np.arange(new), old)


def _crop(old: int, new: int, options: Options) -> Taps:
    return _picked(np.arange(new) + (old - new) // 2, old)


Weights = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]


def _geometric_knots(old: int, new: int) -> tuple[NDArray[np.float64], float]:
    """Where the old rows of a table of offsets lie: at 0, ±1, ±(1 + q), …; and q in [1.01, 1.5].

    q is found by bisection so that the outermost row reaches the new edge, as far as that can be.
    """
    if old % 2 == 0 or new % 2 == 0:
        raise PeError(
            f"knots are for tables of offsets, of 2 w - 1 rows on an axis, not from {old} to {new}; use {parameter('method')} cubic"
        )
    half, edge = old // 2, new // 2
    low, high, q = 1.01, 1.5, 1.255
    while high - low > 1e-6:
        q = (low + high) / 2
        low, high = (low, q) if (1 - q**half) / (1 - q) > edge else (q, high)
    steps = np.cumsum(q ** np.arange(half))
    return np.concatenate([-steps[::-1], [0.0], steps]), q


def _at_offsets(old: int, new: int, knots: NDArray[np.float64], weights: Weights) -> Taps:
    """The rows at whole offsets, none beyond the outermost knots."""
    points = np.clip(np.arange(new) - float(new // 2), knots[0], knots[-1])
    return Taps(np.broadcast_to(np.arange(old), (new, old)), weights(knots, points), old)


def _knots(old: int, new: int, options: Options) -> Taps:
    """BEiT's window tables: the spline through geometric knots, read at whole steps.

    Where the knots cannot reach the new edge (shrinking, or growing much) they mean nothing, and cubic is used
    instead, with a note.
    """
    if new == old:
        return _picked(np.arange(new), old)
    knots, q = _geometric_knots(old, new)
    if new < old or not 1.0101 < q < 1.4999 or old < 4:
        note = f"BEiT's knots do not reach from {old} to {new}: cubic (half) was used"
        return replace(_cubic(old, new, replace(options, anchor="half", antialias=False)), notes=(note,))
    return _at_offsets(old, new, knots, spline_matrix)


def _linear_knots(old: int, new: int, options: Options) -> Taps:
    """timm's window tables: straight lines between BEiT's geometric knots (timm/layers/pos_embed_rel.py)."""
    if new == old:
        return _picked(np.arange(new), old)
    return _at_offsets(old, new, _geometric_knots(old, new)[0], _hats)


def _hats(knots: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """(points, knots) weights of linear interpolation."""
    return np.stack([np.interp(points, knots, unit) for unit in np.eye(len(knots))], axis=1)


@dataclass(frozen=True)
class Method:
    """One way to resample: its weights, and how it treats what is there.

    in_place   old rows stay where they are, new ones follow; outlier rows are then no sources of new rows
    reads      what it can be told; anything else is a contradiction
    """

    taps: Callable[[int, int, Options], Taps]
    in_place: bool = False
    grows: bool = True
    shrinks: bool = True
    one_axis: bool = False
    anchor: Anchor | None = None
    reads: tuple[str, ...] = ()


METHODS: dict[str, Method] = {
    "linear": Method(_linear, reads=("anchor", "antialias")),
    "cubic": Method(_cubic, reads=("anchor", "antialias")),
    "nearest": Method(_nearest, anchor="left", reads=("anchor",)),
    "repeat-last": Method(_repeat_last, in_place=True, shrinks=False),
    "tile": Method(_tile, in_place=True, shrinks=False),
    "stretch": Method(_stretch, one_axis=True, anchor="left", reads=("anchor", "keep")),
    "hierarchical": Method(_hierarchical, in_place=True, shrinks=False, one_axis=True, reads=("alpha",)),
    "zeros": Method(_fresh, in_place=True, shrinks=False),
    "random": Method(_fresh, in_place=True, shrinks=False, reads=("seed",)),
    "truncate": Method(_truncate, in_place=True, grows=False),
    "crop": Method(_crop, grows=False),
    "knots": Method(_knots),
    "linear-knots": Method(_linear_knots),
}
ALIASES = {"bilinear": "linear", "bicubic": "cubic"}


def method_named(name: str) -> Method:
    """The method called `name`; `bilinear` and `bicubic` are linear and cubic on two axes."""
    known = ALIASES.get(name, name)
    if known not in METHODS:
        raise no_such("method", name, [*METHODS, *ALIASES])
    return METHODS[known]


def axis_taps(method: str, old: int, new: int, options: Options | None = None) -> Taps:
    """The weights of `method` from `old` rows to `new` rows of one axis.

    Raises PeError where the method cannot make that many rows from so few, and says what would.
    """
    options = options or Options()
    rule = method_named(method)
    if new < 1:
        raise PeError(f"{new} rows are asked for; at least 1 is needed")
    if new > old and not rule.grows:
        raise PeError(
            f"{method} only shrinks, and {new} is more than the {old} there are; use another {parameter('method')}"
        )
    if new < old and not rule.shrinks:
        raise PeError(
            f"{method} only grows, and {new} is less than the {old} there are; use {parameter('method')} truncate"
        )
    head, tail = options.head, options.tail
    if (not head and not tail) or not rule.grows:
        return rule.taps(old, new, options)
    clean = old - head - tail
    if clean < 1 or new <= head + tail:
        raise PeError(
            f"of {old} rows {head + tail} stand apart and {new} are asked for: nothing is left to resample"
        )
    if rule.in_place:
        return _appended(rule, old, new, head, clean, options)
    inner = rule.taps(clean, new - head - tail, options)
    width = inner.index.shape[1]
    own = np.concatenate([np.arange(head), np.arange(old - tail, old)])
    fixed = np.repeat(own[:, None], width, axis=1)
    alone = np.zeros((head + tail, width))
    alone[:, 0] = 1
    index = np.concatenate([fixed[:head], inner.index + head, fixed[head:]])
    weight = np.concatenate([alone[:head], inner.weight, alone[head:]])
    return Taps(index, weight, old, inner.notes)


def _appended(rule: Method, old: int, new: int, head: int, clean: int, options: Options) -> Taps:
    """All old rows where they are, then what the method makes of the clean ones."""
    if new <= old:
        return _picked(np.arange(new), old)
    made = rule.taps(clean, clean + new - old, options)
    width = made.index.shape[1]
    stay = np.repeat(np.arange(old)[:, None], width, axis=1)
    alone = np.zeros((old, width))
    alone[:, 0] = 1
    added = np.where(made.index[clean:] == FRESH, FRESH, made.index[clean:] + head)
    return Taps(np.concatenate([stay, added]), np.concatenate([alone, made.weight[clean:]]), old, made.notes)
