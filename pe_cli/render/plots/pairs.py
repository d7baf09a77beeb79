"""Pictures of what goes by pairs of query and key: bias per head by distance, buckets, windows, patterns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.render.plots.drawing import Drawing, View, curves, heat_map, tensor

MOST_LINES = 64


def biases(view: View) -> list[Drawing]:
    """Each table of pairs: a heat map, and one line for each head by distance; other tensors if there is none."""
    drawings: list[Drawing] = []
    for name, array in view.sampled.items():
        line = distance_lines(view, name, array) if array.ndim else None
        if line is not None:
            drawings += [_pair_map(view, name, array), line]
    return drawings or [tensor(view, name) for name in view.sampled]


def _pair_map(view: View, name: str, array: NDArray[Any]) -> Drawing:
    """The heat map of a table of pairs; what a causal one leaves to the caller's mask is grey."""
    pairs = _future(view, array)
    if array.ndim < 2 or pairs is None:
        return tensor(view, name, ("query", "key") if array.ndim >= 2 else None)
    heads = f", head 0 of {' x '.join(map(str, array.shape[:-2]))}" if array.ndim > 2 else ""
    return heat_map(array, f"{name}{heads}", rows=array.shape[-2], labels=("query", "key"), future=pairs)


def _future(view: View, array: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """The positions of queries and keys of a table without a future."""
    if array.ndim < 2:
        return None
    queries, keys = array.shape[-2:]
    if view.encoding in ("cope", "fox"):
        return np.arange(keys - queries, keys), np.arange(keys)
    pairs = (
        _pairs(view) if view.parameters.get("bidirectional") is False and _distances(view) is None else None
    )
    return pairs if pairs is not None and (len(pairs[0]), len(pairs[1])) == (queries, keys) else None


def distance_lines(view: View, name: str, array: NDArray[Any]) -> Drawing | None:
    """The values of a Toeplitz table by distance, one line for each head; None for other tables."""
    asked = _distances(view)
    if asked is not None:
        if array.shape[-1] != len(asked):
            return None
        values = array.reshape(-1, len(asked))
        order = np.argsort(asked, kind="stable")
        distances = asked[order]
        values = values[:, order]
    else:
        pairs = _pairs(view)
        if pairs is None or array.shape[-2:] != (len(pairs[0]), len(pairs[1])):
            return None
        queries, keys = pairs
        planes = array.reshape(-1, *array.shape[-2:])
        # The last query sees the keys before it, the first the keys behind it.
        around = np.concatenate([keys - queries[-1], keys - queries[0]])
        both = np.concatenate([planes[:, -1], planes[:, 0]], axis=1)
        distances, first = np.unique(around, return_index=True)
        values = both[:, first]
    if view.parameters.get("bidirectional") is False:
        values, distances = values[:, distances <= 0], distances[distances <= 0]
    values = values[:MOST_LINES].astype(np.float64)
    finite = np.where(np.isfinite(values), values, np.nan)
    lines = {f"head {head}" if len(values) > 1 else "": line for head, line in enumerate(finite)}
    whole = array.dtype.kind in "iu"
    return curves(lines, f"{name} by distance", labels=("key minus query", name), x=distances, steps=whole)


def windows(view: View) -> list[Drawing]:
    """Swin and BEiT: the tables, and what the cell in the middle of the window sees of the others."""
    sides: tuple[int, ...] = tuple(view.parameters.get("window") or ())
    area = int(np.prod(sides)) if len(sides) == 2 else 0
    drawings: list[Drawing] = []
    for name, array in view.sampled.items():
        if array.ndim >= 3 and array.shape[-1] == 2:
            planes = array.reshape(-1, *array.shape[-3:])[0] if array.ndim > 3 else array
            drawings += [
                heat_map(planes[..., side], f"{name}, {what}", square=True)
                for side, what in enumerate(("rows", "columns"))
            ]
            continue
        drawings.append(tensor(view, name, ("query", "key") if array.ndim >= 2 else None))
        if array.ndim >= 2 and array.shape[-2:] == (area, area):
            plane = array.reshape(-1, area, area)[0]
            middle = (sides[0] // 2) * sides[1] + sides[1] // 2
            seen = plane[middle].reshape(sides)
            drawings.append(heat_map(seen, f"{name} from the middle cell", square=True))
    return drawings


def last_queries(view: View) -> list[Drawing]:
    """CoPE and FoX: a heat map of each tensor, and its last row over the keys, one line for each head."""
    drawings: list[Drawing] = []
    for name, array in view.sampled.items():
        drawings.append(_pair_map(view, name, array))
        if array.ndim >= 2:
            rows = array.reshape(-1, *array.shape[-2:])[:MOST_LINES, -1].astype(np.float64)
            lines = {f"head {head}" if len(rows) > 1 else "": row for head, row in enumerate(rows)}
            drawings.append(curves(lines, f"{name} of the last query", labels=("key", name)))
    return drawings


def patterns(view: View) -> list[Drawing]:
    """Sparse Transformer: who sees whom in each of the two heads, and the summed tables' indices."""
    drawings: list[Drawing] = []
    for name, array in view.sampled.items():
        if array.ndim == 3:
            drawings += [
                heat_map(plane, f"{name} of head {head}", labels=("query", "key"), square=True)
                for head, plane in enumerate(array)
            ]
        elif array.ndim == 2:
            drawings.append(tensor(view, name))
    return drawings + _lines(view)


def numbers(view: View) -> list[Drawing]:
    """Position numbers: all lines in one drawing, then the tables."""
    return _lines(view) + [
        heat_map(array, name, rows=view.rows[name]) for name, array in view.sampled.items() if array.ndim == 2
    ]


def images(view: View) -> list[Drawing]:
    """Conditional encodings: the table, and its first channels over the grid."""
    drawings: list[Drawing] = []
    grid = view.parameters.get("grid")
    for name, array in view.sampled.items():
        drawings.append(tensor(view, name))
        if grid and array.ndim == 2 and len(array) >= int(np.prod(grid)):
            cells = array[-int(np.prod(grid)) :]
            drawings += [
                heat_map(cells[:, channel].reshape(grid), f"channel {channel} over the grid", square=True)
                for channel in range(min(2, array.shape[1]))
            ]
    return drawings


def _lines(view: View) -> list[Drawing]:
    lines = {name: array for name, array in view.sampled.items() if array.ndim == 1}
    sizes = {len(array) for array in lines.values()}
    if len(sizes) == 1:
        labels = ("token", "number")
        title = "numbers by token" if len(lines) > 1 else next(iter(lines))
        return [curves(lines, title, labels=labels, x=_evenly(view, lines))]
    return [tensor(view, name) for name in lines]


def _evenly(view: View, lines: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    name, array = next(iter(lines.items()))
    return np.linspace(0, max(view.rows.get(name, len(array)) - 1, 0), len(array))


def _distances(view: View) -> NDArray[np.int64] | None:
    spec = view.parameters.get("distances")
    return _numbers(spec) if isinstance(spec, str) else None


def _pairs(view: View) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    asked = view.parameters
    k_len = asked.get("k_len") or asked.get("len")
    if not k_len:
        return None
    spec = asked.get("positions")
    queries = (
        _numbers(spec)
        if isinstance(spec, str)
        else np.arange(k_len - (asked.get("q_len") or asked.get("len") or k_len), k_len)
    )
    return (queries, np.arange(k_len)) if queries is not None and len(queries) else None


def _numbers(spec: str) -> NDArray[np.int64] | None:
    from pe_cli import positions
    from pe_cli.files.sources import load_array

    try:
        where = positions.parse(spec, load_array)
        return where.block(0, len(where)).astype(np.int64)
    except PeError:
        return None
