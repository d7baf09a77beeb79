"""Which tensors of a checkpoint are position tables, told by the header alone with reasons, and where positions lie in them."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, counted, no_such
from pe_cli.files import TensorSpec
from pe_cli.position_names import (
    ALIBI,
    CONVOLUTION,
    DEBERTA,
    GRID_PREFIXES,
    ROPE,
    SWIN2,
    T5,
    Kind,
    named,
    squares,
)

FLOATS = ("float64", "float32", "float16", "bfloat16")
MOST_PREFIX = 64
BEIT_CLASS_ROWS = 3  # token to class, class to token, class to class

# What to say of the encodings that `pe gen model` reads out of a configuration.
SENTENCES = {
    "rope": ROPE,
    "alibi": ALIBI,
    "t5": T5,
    "deberta": DEBERTA,
    "sinusoidal": "sinusoidal positions, computed at run time; any length works (see `pe gen model`)",
}
# Other signs of how a model knows positions: (in the names, in the configuration), what to say.
OTHER_SCHEMES = (
    (r"(?!)", r"relative_attention_num_buckets", T5),
    (r"(?!)", r"relative_attention\b", DEBERTA),
    (r"(?!)", r"pretrained_window_size", SWIN2),
    (r"(?!)", r"num_conv_pos_embeddings", CONVOLUTION),
    (r"rotary|rope", r"rope_theta|rope_scaling|rope_parameters|rotary_dim|rotary_pct", ROPE),
    (
        r"time_mix|mixer\.A_log|ssm",
        r"\"model_type\": ?\"(?:rwkv|mamba)",
        "recurrence; it has no positions",
    ),
    (
        r"self_attn\.q_proj|attention\.wqkv",
        r"(?!)",
        "most likely rotary embeddings (attention without any table)",
    ),
)


@dataclass(frozen=True)
class Candidate:
    """A tensor that is, or may be, a position table, and why."""

    spec: TensorSpec
    kind: Kind | None
    reason: str
    main: bool = True
    either: bool = False
    axis: int | None = None
    fields: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def group(self) -> str:
        """Tables of all layers have one group."""
        return re.sub(r"\d+", "#", self.name)


IsGrid: TypeAlias = Callable[[str], bool]


def _by_name(name: str) -> bool:
    return False


def find(tensors: Iterable[TensorSpec], is_grid: IsGrid = _by_name) -> list[Candidate]:
    """The position tables among `tensors`, by their names and shapes."""
    return [found for spec in tensors if (found := recognise(spec, is_grid)) is not None]


def recognise(spec: TensorSpec, is_grid: IsGrid = _by_name) -> Candidate | None:
    """What `spec` is as a position table, or None.

    `is_grid` says of which tensors the configuration knows that they belong to an image model, where a name as
    `embeddings.position_embedding.weight` does not.
    """
    row = named(spec.name, spec.shape)
    if row is None or row.kind is None:
        return None
    if row.kind == "sequence" and row.main and is_grid(spec.name):
        return Candidate(spec, "grid", "rows by image patch, says the configuration")
    return Candidate(spec, row.kind, row.role, row.main, row.either, row.axis, row.fields)


def choose(
    tensors: Mapping[str, TensorSpec],
    wanted: Sequence[str],
    kind: Kind,
    label: str,
    config_text: str = "",
    is_grid: IsGrid = _by_name,
) -> list[Candidate]:
    """The tables to change: those named by `wanted` (names or globs), or the only one there is.

    Errors: no table (with the scheme that the model uses instead), several that could be meant, one without rows, a quantised one.
    """
    if wanted:
        chosen = [candidate for word in wanted for candidate in _named(tensors, word, label, is_grid)]
        chosen = [_as(kind, c) for c in {candidate.name: candidate for candidate in chosen}.values()]
    elif len(tensors) == 1:
        (only,) = tensors.values()
        chosen = [_as(kind, recognise(only, is_grid) or Candidate(only, None, "the only tensor"))]
    else:
        chosen = _only_group(find(tensors.values(), is_grid), tensors, kind, label, config_text)
    for candidate in chosen:
        if not candidate.spec.shape or not candidate.spec.size:
            raise PeError(
                f"{label}: {candidate.spec.called} of shape {list(candidate.spec.shape)} has nothing to extend"
            )
        if candidate.spec.dtype not in (*FLOATS, "complex64", "complex128"):
            raise PeError(
                f"{label}: {candidate.spec.called} is stored as {candidate.spec.dtype}: a quantised or integer table cannot "
                "be resampled; extend the model before it is quantised"
            )
    return chosen


def companions(chosen: Sequence[Candidate], tensors: Mapping[str, TensorSpec]) -> list[Candidate]:
    """Tables that depend on the same grid and move along: `rel_pos_h/w`, window biases and per-layer grids."""
    names = {candidate.name for candidate in chosen}
    moving = ("relative", "window")
    return [
        found
        for found in find(tensors.values())
        if found.name not in names
        and found.spec.size
        and (found.kind in moving or (found.kind == "grid" and not found.main))
    ]


def _named(tensors: Mapping[str, TensorSpec], word: str, label: str, is_grid: IsGrid) -> list[Candidate]:
    names = [word] if word in tensors else fnmatch.filter(tensors, word)
    if not names:
        if set(tensors) == {""}:
            raise PeError(f"{label} is .npy, one array without a name; leave out {word!r}")
        if any(c in word for c in "*?["):
            raise PeError(f"{label}: no tensor matches {word!r}; {_offer(find(tensors.values()), tensors)}")
        raise (
            no_such(f"tensor in {label}", word, tensors)
            if len(tensors) < 20
            else PeError(f"{label} has no tensor {word!r}; {_offer(find(tensors.values()), tensors)}")
        )
    return [recognise(tensors[name], is_grid) or Candidate(tensors[name], None, "named") for name in names]


def _offer(candidates: Sequence[Candidate], tensors: Mapping[str, TensorSpec]) -> str:
    if candidates:
        return f"its position tables: {_listing(candidates)}"
    some = ", ".join(list(tensors)[:6])
    return f"it holds {some}{' …' if len(tensors) > 6 else ''}"


def _listing(candidates: Sequence[Candidate]) -> str:
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.group, []).append(candidate)
    words = []
    for members in groups.values():
        first = members[0]
        more = f" and {len(members) - 1} like it" if len(members) > 1 else ""
        words.append(f"{first.name} {list(first.spec.shape)}{more} ({first.kind}: {first.reason})")
    return "; ".join(words)


_OPTION: dict[Kind, str] = {
    "sequence": "--len N",
    "grid": "--grid HxW",
    "window": "--window HxW",
    "bias": "--grid HxW (of the first stage) or --window HxW",
    "relative": "--len N with --tensor",
    "axial": "--grid HxW (their product is the length)",
}
# Kinds of tables that a size can mean.
_MEANT: dict[Kind, tuple[Kind, ...]] = {
    "sequence": ("sequence",),
    "grid": ("grid", "axial", "bias", "window"),
    "window": ("window", "bias"),
}


def _only_group(
    candidates: Sequence[Candidate],
    tensors: Mapping[str, TensorSpec],
    kind: Kind,
    label: str,
    config_text: str,
) -> list[Candidate]:
    main = [candidate for candidate in candidates if candidate.main]
    if any(candidate.kind == "grid" for candidate in main) and kind != "window":
        main = [candidate for candidate in main if candidate.kind != "window"]  # they follow the grid
    if not main and candidates:
        raise PeError(f"{label}: name the table with --tensor, of {_listing(candidates)}")
    if not main:
        raise PeError(f"{label} holds no position table: {other_scheme(tensors, config_text)}")
    right = next((those for one in _MEANT[kind] if (those := [c for c in main if c.kind == one])), [])
    if not right:
        right = [_as(kind, candidate) for candidate in main if candidate.either and kind != "window"]
    if not right:
        found = main[0]
        raise PeError(
            f"{label}: {_listing(main)} is what there is; say {_OPTION[found.kind or 'sequence']}, "
            "or name another tensor with --tensor"
        )
    groups = {candidate.group for candidate in right}
    if len(groups) > 1 and right[0].kind not in ("bias", "window"):  # those of all stages change together
        raise PeError(
            f"{label} holds {len(groups)} position tables that {_OPTION[kind].split()[0]} can mean; name one with --tensor "
            f"(a glob for several): {_listing(right)}"
        )
    return right


def _as(kind: Kind, candidate: Candidate) -> Candidate:
    """The candidate as a table of `kind`, where its name is given to both kinds."""
    return replace(candidate, kind=kind) if candidate.either and kind in ("sequence", "grid") else candidate


def other_scheme(tensors: Mapping[str, TensorSpec], config_text: str) -> str:
    """How a model without a table knows positions, as far as names and configuration tell."""
    data = json.loads(config_text or "{}")
    relative = [name for name in tensors if name.endswith("rel_embeddings.weight")]
    if relative and not _buckets(data):
        most = tensors[relative[0]].shape[0] // 2
        return (
            f"{relative[0]} has a row for each distance up to max_relative_positions {most} on either side; for longer inputs write "
            f"max_relative_positions {most} and the new max_position_embeddings into config.json: distances beyond count as the longest"
        )
    said = _said_by(data)
    if said is not None:
        return f"it uses {said}"
    names = "\n".join(tensors)
    for spec in tensors.values():
        row = named(spec.name, spec.shape)
        if row is not None and row.remark:
            return f"it uses {row.remark}"
    for in_names, in_config, sentence in OTHER_SCHEMES:
        if re.search(in_names, names) or (config_text and re.search(in_config, config_text)):
            return f"it uses {sentence}"
    if not names:
        return "it holds no tensors at all"
    return "no name looks like one; name the tensor with --tensor"


def _buckets(data: dict[str, Any]) -> bool:
    """Whether DeBERTa gathers its distances in buckets; without a configuration it is taken for granted."""
    return not data or data.get("position_buckets", -1) > 0


def _said_by(data: dict[str, Any]) -> str | None:
    """What the configuration itself says, read as `pe gen model` reads it; None where it does not settle it."""
    from pe_cli.models.configuration import Configuration
    from pe_cli.models.resolve import resolve_configuration

    try:
        config = Configuration("config.json", data, model_type=str(data.get("model_type") or ""))
        return SENTENCES.get(resolve_configuration(config, seq_len=1).encoding)
    except PeError:
        return None


@dataclass(frozen=True)
class PositionAxes:
    """The positions of a table: `old` sizes on tensor axes `axes`.

    One axis holds all sizes flattened, between `prefix` and `suffix` special rows; several axes hold one size each.
    Where `unfolded` is given, the last axis of the tensor is several in one, and `axes` count those of this shape.
    """

    axes: tuple[int, ...]
    old: tuple[int, ...]
    prefix: int = 0
    suffix: int = 0
    unfolded: tuple[int, ...] = ()

    @property
    def usable(self) -> int:
        return prod(self.old)

    @property
    def rows(self) -> int:
        return self.prefix + self.usable + self.suffix

    def shape(self, shape: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tensor of `shape` when its sizes have become `new`."""
        changed = self._resized(shape, new)
        fixed = len(shape) - 1
        return (*changed[:fixed], prod(changed[fixed:])) if self.unfolded else changed

    def _resized(self, shape: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
        changed = list(self.unfolded or shape)
        if len(self.axes) == 1:
            changed[self.axes[0]] = self.prefix + prod(new) + self.suffix
        else:
            for axis, size in zip(self.axes, new, strict=True):
                changed[axis] = size
        return tuple(changed)

    def rows_of(self, array: NDArray[Any]) -> NDArray[Any]:
        """All rows, special ones too: (rows, d), in memory of their own where they do not lie so."""
        array = array.reshape(self.unfolded or array.shape)
        moved = np.moveaxis(array, self.axes, range(len(self.axes)))
        sizes = [array.shape[axis] for axis in self.axes]
        return np.ascontiguousarray(moved).reshape(prod(sizes), -1)

    def restore(self, rows: NDArray[Any], shape: Sequence[int], new: Sequence[int]) -> NDArray[Any]:
        """The tensor of `shape` from its `rows`, of which the positions are now `new`: the inverse of `rows_of`."""
        resized = self._resized(shape, new)
        front = [resized[axis] for axis in self.axes]
        rest = [size for axis, size in enumerate(resized) if axis not in self.axes]
        moved = np.moveaxis(rows.reshape(*front, *rest), range(len(self.axes)), self.axes)
        return np.ascontiguousarray(moved).reshape(tuple(shape))


def sequence_axis(shape: Sequence[int]) -> int:
    """The axis of rows in a one-dimensional table: (N,), (N, D), (1, N, D), (2, P, D), (L, 1, N, D)."""
    if len(shape) <= 2:
        return 0
    if len(shape) == 3:
        return 1 if shape[0] < shape[1] else 0
    return len(shape) - 2


def sequence(shape: Sequence[int], prefix: int, suffix: int = 0) -> PositionAxes:
    """A table of rows one after the other, the first `prefix` and last `suffix` of them special."""
    axis = sequence_axis(shape)
    body = shape[axis] - prefix - suffix
    if body < 1:
        raise PeError(f"{shape[axis]} rows are not more than {prefix + suffix} special ones; check --offset")
    return PositionAxes((axis,), (body,), prefix, suffix)


def grid(
    shape: Sequence[int],
    name: str,
    *,
    old: tuple[int, ...] | None,
    count: int,
    prefix: int | None,
    suffix: int | None,
    d: int | None = None,
    axis: int | None = None,
) -> PositionAxes:
    """A table of a grid of `count` axes; `old` is its present size where it is known, `d` the width of a row.

    `axis` is the one that holds all positions, where the shape would be read otherwise (blocks of Nest).

    Errors: rows that are not a square behind 0, 1 or 2 special ones and no `old`, or do not agree with it.
    """
    special = bool(prefix or suffix)
    if (
        axis is None
        and len(shape) == count + 2
        and shape[0] == 1
        and shape[2] > 1
        and not (special and shape[1] == 1)
    ):
        if special:
            raise PeError(
                f"{name} of shape {list(shape)} has an axis for each side, and no room for special rows; "
                "leave out --prefix-rows, --offset and --suffix-rows"
            )
        axes = _spread_axes(shape, name, old, count, d)
        sizes = tuple(shape[axis] for axis in axes)
        if old is not None and sizes != old:
            raise PeError(f"{name} of shape {list(shape)} holds a grid of {times(sizes)}, not {times(old)}")
        return PositionAxes(axes, sizes)
    if (
        axis is None
        and len(shape) == count + 1
        and shape[0] > 1
        and (shape[:count] == old or len(set(shape[:count])) == 1)
    ):
        return PositionAxes(tuple(range(count)), tuple(shape[:count]))
    axis = sequence_axis(shape) if axis is None else axis
    rows = shape[axis]
    if old is None:
        prefix, side = _square(rows - (suffix or 0), name, prefix, count)
        return PositionAxes((axis,), (side,) * count, prefix, suffix or 0)
    suffix = suffix or 0
    if prefix is None:
        prefix = rows - prod(old) - suffix
    if not 0 <= prefix <= MOST_PREFIX or prefix + prod(old) + suffix != rows:
        raise PeError(
            f"{name} has {rows} rows, which are not {prefix if prefix >= 0 else 0} special ones in front, "
            f"{times(old)} = {prod(old)} and {suffix} behind; check --from-grid, --prefix-rows and --suffix-rows"
        )
    return PositionAxes((axis,), old, prefix, suffix)


def window(shape: Sequence[int], name: str, old: tuple[int, ...] | None) -> PositionAxes:
    """Bias by offset: ((2h-1)(2w-1) [+ 3], heads), (heads, 2h-1, 2w-1), or one axis of 2w-1; `old` is (h, w)."""
    if len(shape) == 3:
        sizes: tuple[int, ...] = (shape[1], shape[2])
        if any(size % 2 == 0 for size in sizes) or (old is not None and sizes != spans(old)):
            raise PeError(
                f"{name} of shape {list(shape)} is no window of {times(old) if old else 'odd sides'}"
            )
        return PositionAxes((1, 2), sizes)
    rows = shape[0]
    if old is not None:
        for suffix in (0, BEIT_CLASS_ROWS):
            if rows == prod(spans(old)) + suffix:
                return PositionAxes((0,), spans(old), 0, suffix)
        raise PeError(f"{name} has {rows} rows; a window of {times(old)} has {prod(spans(old))} (or 3 more)")
    for suffix in (0, BEIT_CLASS_ROWS):
        side = isqrt(max(rows - suffix, 0))
        if side * side == rows - suffix and side % 2 == 1:
            return PositionAxes((0,), (side, side), 0, suffix)
    raise PeError(f"{name} has {rows} rows, no square window has so many; say --from-window HxW")


def distances(shape: Sequence[int], name: str, old: tuple[int, ...] | None) -> PositionAxes:
    """Bias by distance (heads, h w) of LeViT and kin: a value for each distance in rows and columns of a grid `old`."""
    side = isqrt(shape[1])
    sizes = (side, side) if old is None or prod(old) != shape[1] else old
    if prod(sizes) != shape[1]:
        raise PeError(f"{name} of shape {list(shape)} is not for a square grid; say --from-grid HxW")
    return PositionAxes((1,), sizes)


def tiles(shape: Sequence[int], name: str, rows: int, width: int, where: PositionAxes) -> PositionAxes:
    """Rows of every tile in one axis (ratios, tiles x rows x width), as in Llama 3.2 Vision beside its grid at `where`."""
    count, left = divmod(shape[1], rows * width)
    if left or not count:
        raise PeError(
            f"{name} of shape {list(shape)} does not hold tiles of {rows} rows of {width}, as the table beside it has"
        )
    return PositionAxes((2,), where.old, where.prefix, where.suffix, (shape[0], count, rows, width))


def spans(sizes: Sequence[int]) -> tuple[int, ...]:
    """How many offsets a window of these sides has on each axis: 2 w - 1."""
    return tuple(2 * size - 1 for size in sizes)


def in_step(
    new: tuple[int, ...], old: tuple[int, ...], largest: tuple[int, ...], *, halving: bool
) -> tuple[int, ...]:
    """What grid `old` becomes where `largest`, of the first stage of the same pyramid, becomes `new`.

    Stages divide the image and round down (PVT); with `halving` they come of convolutions that round up (LeViT).
    """
    step = _halved if halving else _divided
    return tuple(step(n, o, most) for n, o, most in zip(new, old, largest, strict=True))


def _divided(new: int, old: int, largest: int) -> int:
    return max(1, new * old // largest)


def _halved(new: int, old: int, largest: int) -> int:
    while largest > old:
        largest, new = (largest + 1) // 2, (new + 1) // 2
    return new


def times(sizes: Sequence[int]) -> str:
    """`24x24`"""
    return "x".join(map(str, sizes))


def _square(rows: int, name: str, prefix: int | None, count: int) -> tuple[int, int]:
    """How many special rows stand before a square (cube), and its side."""
    tried = GRID_PREFIXES if prefix is None else (prefix,)
    found = next(squares(rows, count, tried), None)
    if found is not None:
        return found
    words = "0, 1, 2 or 5 special rows" if prefix is None else counted(prefix, "special row", "special rows")
    raise PeError(
        f"{name} has {rows} rows: not a square grid behind {words}; say --from-grid HxW (and --prefix-rows)"
    )


def _spread_axes(
    shape: Sequence[int], name: str, old: tuple[int, ...] | None, count: int, d: int | None
) -> tuple[int, ...]:
    """Axes of (1, H, W, D) or (1, D, H, W): by the size given, by the width, by the equal pair, by the longest."""
    last, first = tuple(range(1, count + 1)), tuple(range(2, count + 2))
    options = {last: shape[count + 1], first: shape[1]}
    for known in (
        [axes for axes in options if old is not None and tuple(shape[axis] for axis in axes) == old],
        [axes for axes, width in options.items() if width == d],
        [axes for axes in options if len({shape[axis] for axis in axes}) == 1],
    ):
        if len(known) == 1:
            return known[0]
    if shape[1] != shape[count + 1]:
        return last if shape[count + 1] > shape[1] else first
    raise PeError(f"{name} of shape {list(shape)} can be read as H, W, D or D, H, W; say --from-grid HxW")
