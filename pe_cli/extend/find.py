"""Which tensors of a checkpoint are position tables, told by the header alone, and which others have to follow them.

What follows is made anew in its own type, as the model's code would: buffers, masks, an optimizer's state.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, no_such, parameter
from pe_cli.extend.rows import spans
from pe_cli.extend.table import TableChange
from pe_cli.files import TensorSpec
from pe_cli.position_names import Kind, named

# What sizes a table of each kind in the configurations of most models.
USUAL_FIELDS: dict[Kind, str] = {
    "grid": "image_size",
    "bias": "image_size",
    "window": "window_size",
    "relative": "image_size",
    "axial": "axial_pos_shape and max_position_embeddings",
    "sequence": "max_position_embeddings (n_positions in GPT-2, context_length in open_clip)",
}
FLOATS = ("float64", "float32", "float16", "bfloat16")


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

    @property
    def sized_by(self) -> str:
        """The fields that usually count its rows in a configuration, in words; of no kind none."""
        return " and ".join(self.fields) or (USUAL_FIELDS[self.kind] if self.kind is not None else "")


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
        pixels = spec.name.endswith("wpe.weight")  # ImageGPT writes the pixels one after the other, as a text
        return Candidate(spec, "grid", "rows by image patch, says the configuration", either=pixels)
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
    if names == [word]:
        return [recognise(tensors[word], is_grid) or Candidate(tensors[word], None, "named")]
    found = find((tensors[name] for name in names), is_grid)
    if not found:
        raise PeError(
            f"{label}: none of the tensors that match {word!r} is a position table by its name ({', '.join(names[:3])}"
            f"{' …' if len(names) > 3 else ''}); write the name of a table in full"
        )
    return found


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
    "sequence": f"{parameter('length')} N",
    "grid": f"{parameter('grid')} HxW",
    "window": f"{parameter('window')} HxW",
    "bias": f"{parameter('grid')} HxW (of the first stage) or {parameter('window')} HxW",
    "relative": f"{parameter('length')} N with {parameter('tensor')}",
    "axial": f"{parameter('grid')} HxW (their product is the length)",
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
        raise PeError(f"{label}: name the table with {parameter('tensor')}, of {_listing(candidates)}")
    if not main:
        from pe_cli.extend.rotary import other_scheme

        raise PeError(f"{label} holds no position table: {other_scheme(tensors, config_text)}")
    right = next((those for one in _MEANT[kind] if (those := [c for c in main if c.kind == one])), [])
    if not right:
        right = [_as(kind, candidate) for candidate in main if candidate.either and kind != "window"]
    if not right:
        found = main[0]
        raise PeError(
            f"{label}: {_listing(main)} is what there is; say {_OPTION[found.kind or 'sequence']}, "
            f"or name another tensor with {parameter('tensor')}"
        )
    groups = {candidate.group for candidate in right}
    if len(groups) > 1 and right[0].kind not in ("bias", "window"):  # those of all stages change together
        raise PeError(
            f"{label} holds {len(groups)} position tables that {_OPTION[kind].split()[0]} can mean; name one with {parameter('tensor')} "
            f"(a glob for several): {_listing(right)}"
        )
    return right


def _as(kind: Kind, candidate: Candidate) -> Candidate:
    """The candidate as a table of `kind`, where its name is given to both kinds."""
    return replace(candidate, kind=kind) if candidate.either and kind in ("sequence", "grid") else candidate


@dataclass(frozen=True)
class BufferChange:
    """`old` becomes `new`, made from the old values by `make`; `make` is None where the buffer is left out."""

    old: TensorSpec
    new: TensorSpec
    what: str
    make: Callable[[NDArray[Any]], NDArray[Any]] | None

    def json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return {"tensor": self.old.name, "what": self.what, "shape": list(self.new.shape)}


def coordinate_table(window: tuple[int, ...]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    from pe_cli.encodings.relative import swin

    def make(old: NDArray[Any]) -> NDArray[Any]:
        """In the scale that the network was trained in, which the outermost old coordinate tells."""
        sides = []
        for axis in (0, 1):
            outermost = float(np.abs(old[..., axis]).max())
            side = (old.shape[-3 + axis] + 1) // 2
            sides.append(round(8 * (side - 1) / (2 ** (3 * outermost) - 1)) + 1 if outermost else side)
        made = swin(window=window, version="2", pretrained_window=tuple(sides), dtype="float64")[
            "relative_coords_table"
        ]
        return np.asarray(made).reshape(*old.shape[:-3], *spans(window), 2).astype(old.dtype)

    return make


def follow(
    tensors: Mapping[str, TensorSpec], table: str, old: tuple[int, int], new: tuple[int, int]
) -> Iterator[BufferChange]:
    """Buffers of a table of tokens that goes from `old` to `new` (rows, usable).

    They are those beside it (`position_ids`, `token_type_ids`) and the causal masks in the layers of GPT-2 and Neo, each of
    which belongs to the table that is nearest in the tree of modules.
    """
    tables = {table, *(found.name for found in find(tensors.values()) if found.kind == "sequence")}
    beside = re.sub(r"[^./]*(?:\.weight|/embeddings(?::0)?)?$", "", table)
    for name, spec in tensors.items():
        axis = 0 if name == f"{table}_integer" else -1
        if not spec.shape or spec.shape[axis] not in old or name == table:
            continue
        size = new[0] if spec.shape[axis] == old[0] else new[1]
        if name in (f"{beside}position_ids", f"{beside}token_type_ids") and spec.size == spec.shape[-1]:
            grown = TensorSpec(name, spec.dtype, (*spec.shape[:-1], size))
            counting = name.endswith("position_ids")
            yield BufferChange(
                spec,
                grown,
                "counts on" if counting else "zeros",
                _counting(grown) if counting else _padded(grown),
            )
        elif name == f"{table}_integer":  # what I-BERT quantises its table to, made at run time
            grown = TensorSpec(name, spec.dtype, (size, *spec.shape[1:]))
            yield BufferChange(spec, grown, "zeros", _zeros(grown))
        elif (
            MASK.search(name)
            and _square_mask(spec)
            and _shared(name, table) == max(_shared(name, other) for other in tables)
        ):
            grown = TensorSpec(name, spec.dtype, (*spec.shape[:-2], size, size))
            yield BufferChange(spec, grown, "causal mask", _causal(grown))


# Causal masks of the layers: GPT-2 and Neo, nanoGPT (bias), minGPT (mask), Karpathy's lecture (tril), open_clip (attn_mask).
MASK = re.compile(r"(?:^|[._])(?:attn(?:\.attention)?\.(?:bias|mask)|(?:attn|causal|src)_mask|tril)$")


def _shared(name: str, other: str) -> int:
    """How many modules two tensors lie in together."""
    pairs = zip(name.split("."), other.split("."), strict=False)
    return next((depth for depth, (one, two) in enumerate(pairs) if one != two), 0)


def _square_mask(spec: TensorSpec) -> bool:
    return len(spec.shape) >= 2 and spec.shape[-1] == spec.shape[-2] and spec.size == spec.shape[-1] ** 2


# The state of Adam and its kin for one parameter, by its number.
MOMENT = re.compile(
    r"^(?P<group>.*?)state\.(?P<number>\d+)\.(?P<what>exp_avg|exp_avg_sq|max_exp_avg_sq|exp_inf|momentum_buffer|square_avg)$"
)


def moments(tensors: Mapping[str, TensorSpec], table: TableChange, label: str) -> Iterator[BufferChange]:
    """The optimizer's running means of the gradients of a table, which follow its rows.

    Errors: several parameters have the shape of the table, and their order does not tell which is the table.
    """
    states = {name: found for name in tensors if (found := MOMENT.match(name))}
    groups: dict[str, dict[int, tuple[int, ...]]] = {}
    for name, found in states.items():
        groups.setdefault(found["group"], {})[int(found["number"])] = tensors[name].shape
    for group, shapes in groups.items():
        alike = [number for number, shape in shapes.items() if shape == table.old.shape]
        if len(alike) > 1:
            alike = [number for number in alike if number == _number_of(tensors, table.old.name, shapes)]
            if not alike:
                raise PeError(
                    f"{label}: several parameters of {group}state have the shape of {table.old.name}, and nothing tells which is the "
                    "table's; take the optimizer's state out of the file first"
                )
        for name, found in states.items():
            if found["group"] == group and int(found["number"]) in alike:
                spec = tensors[name]
                squares = found["what"] not in ("exp_avg", "momentum_buffer")
                yield BufferChange(
                    spec,
                    TensorSpec(name, spec.dtype, table.new.shape),
                    f"{found['what']} follows the rows",
                    _followed(table, squares=squares),
                )


def _number_of(
    tensors: Mapping[str, TensorSpec], table: str, shapes: Mapping[int, tuple[int, ...]]
) -> int | None:
    """The place of `table` among the parameters of its model, where these have the shapes that the optimizer counts."""
    top = table.split(".")[0] + "."
    own = [name for name in tensors if name.startswith(top) and tensors[name].dtype in FLOATS]
    order = sorted(shapes)
    if [tensors[name].shape for name in own] != [shapes[number] for number in order]:
        return None
    return order[own.index(table)] if table in own else None


def _followed(table: TableChange, *, squares: bool) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def make(old: NDArray[Any]) -> NDArray[Any]:
        if not table.applied:
            raise PeError(
                f"the optimizer's state of {table.old.name} cannot follow it: nothing of the old rows is in the new"
            )
        made = table.applied[-1](old)
        return np.maximum(made, 0) if squares else made

    return make


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


def _zeros(new: TensorSpec) -> Callable[[NDArray[Any]], NDArray[Any]]:
    return lambda old: np.zeros(new.shape, old.dtype)


def _padded(new: TensorSpec) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def make(old: NDArray[Any]) -> NDArray[Any]:
        grown = np.zeros(new.shape, old.dtype)
        keep = min(new.shape[-1], old.shape[-1])
        grown[..., :keep] = old[..., :keep]
        return grown

    return make


def _causal(new: TensorSpec) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def make(old: NDArray[Any]) -> NDArray[Any]:
        """One value on and below the diagonal and another above, or in a band below it (GPT-Neo's local layers)."""
        size, before = new.shape[-1], old.shape[-1]
        mask = old.reshape(before, before)
        seen, hidden = mask[-1, -1], mask[0, -1] if before > 1 else np.zeros((), old.dtype)
        band = int(np.count_nonzero(mask[-1] == seen))
        for count, given in ((before, mask), (size, None)):
            below = np.tri(count, dtype=np.bool_)
            if band < before:
                below ^= np.tri(count, k=-band, dtype=np.bool_)
            made = np.where(below, seen, hidden).astype(old.dtype)
            if given is not None and made.tobytes() != np.ascontiguousarray(given).tobytes():
                raise PeError(
                    f"{new.name} is no causal mask, and has the size of the table: it cannot be made longer"
                )
        return made.reshape(new.shape)

    return make


def distance_buffers(
    tensors: Mapping[str, TensorSpec], table: str, old: Sequence[int], new: Sequence[int]
) -> Iterator[BufferChange]:
    """`attention_bias_idxs` beside biases by distance: which of them each query and key have."""
    name = f"{table.rpartition('.')[0]}.attention_bias_idxs".lstrip(".")
    spec = tensors.get(name)
    if spec is None or len(spec.shape) != 2:
        return
    step = 1 if spec.shape[0] == prod(old) else 2
    index = _distance_index(new, step)
    yield BufferChange(
        spec,
        TensorSpec(name, spec.dtype, index.shape),
        "index of the new grid",
        _give_if(_distance_index(old, step), index, name),
    )


def _distance_index(grid: Sequence[int], step: int) -> NDArray[np.int64]:
    """(queries, keys) row distance times the width plus column distance; queries are every `step` cells."""
    keys = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), axis=-1)
    queries = keys[::step, ::step].reshape(-1, 1, 2)
    apart = np.abs(queries - keys.reshape(1, -1, 2))
    index: NDArray[np.int64] = apart[..., 0] * grid[1] + apart[..., 1]
    return index


def _give_if(
    expected: NDArray[Any], values: NDArray[Any], name: str
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def make(old: NDArray[Any]) -> NDArray[Any]:
        if not np.array_equal(old, expected):
            raise PeError(
                f"{name} is no index by distance in rows and columns; take it out of the file first"
            )
        return values.astype(old.dtype)

    return make


def window_buffers(
    tensors: Mapping[str, TensorSpec], table: str, window: Sequence[int], class_rows: int
) -> Iterator[BufferChange]:
    """Swin's and BEiT's `relative_position_index` beside a bias table; masks that the loader makes again are left out."""
    from pe_cli.encodings.relative import swin

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
