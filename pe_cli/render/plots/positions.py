"""Pictures of encodings of positions: of tables made of sines and cosines (wavelengths beside the length, and what a scaling
does to them), and of what goes by pairs of query and key (bias per head by distance, buckets, windows, patterns).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.catalogue import load
from pe_cli.errors import PeError
from pe_cli.numerics.kernels import geometric
from pe_cli.render.plots.drawing import (
    AXIS_COLOURS,
    GREY,
    ORANGE,
    Drawing,
    View,
    curves,
    heat_map,
    heat_maps,
    joined_rows,
    legend,
    likeness,
    norms,
    tensor,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TURN = 2 * np.pi
MOST_LINES = 64
MOST_AXES = 4  # of positions, that are a line each


def wavelengths(
    frequencies: NDArray[np.float64],
    length: int | None,
    what: str,
    *,
    axis: NDArray[Any] | None = None,
    before: NDArray[np.float64] | None = None,
    sides: tuple[int, ...] = (),
) -> Drawing:
    """Wavelength of each pair and the length that the model was trained at: hollow pairs never complete a turn.

    `frequencies` (pairs,) radians per position; `axis` (pairs,) which coordinate turns a pair; `before` (pairs,) the
    frequencies without scaling; `sides` the length of each coordinate, where each has its own.
    """

    def draw(axes: Axes) -> None:
        turning = np.flatnonzero(frequencies > 0)
        waves = TURN / frequencies[turning]
        if before is not None and len(before) == len(frequencies):
            axes.plot(np.arange(len(before)), TURN / before, color=GREY, linewidth=1, label="without scaling")
        groups = axis[turning] if axis is not None else np.zeros(len(turning), dtype=int)
        own = bool(sides) and axis is not None and int(groups.max(initial=0)) < len(sides)
        full = waves <= (np.array(sides)[groups] if own else length or np.inf)
        for group in np.unique(groups):
            colour = AXIS_COLOURS[int(group) % len(AXIS_COLOURS)]
            inside, outside = (groups == group) & full, (groups == group) & ~full
            name = f"axis {group}" if axis is not None else None
            axes.plot(turning[inside], waves[inside], "o", color=colour, markersize=3.5, label=name)
            axes.plot(
                turning[outside], waves[outside], "o", color=colour, markersize=4, markerfacecolor="none"
            )
        title = "wavelengths"
        if own:
            for group in np.unique(groups).tolist():
                colour = AXIS_COLOURS[group % len(AXIS_COLOURS)]
                axes.axhline(
                    sides[group], color=colour, linestyle="--", label=f"side {group}: {sides[group]}"
                )
        elif length is not None:
            axes.axhline(length, color=ORANGE, linestyle="--", linewidth=1.2, label=f"{what} {length}")
        if own or length is not None:
            title = f"wavelengths: {int(full.sum())} of {len(frequencies)} pairs complete a turn"
        axes.set(
            title=title,
            xlabel="pair",
            ylabel="positions per turn",
            yscale="log",
        )
        axes.grid(alpha=0.3)
        axes.locator_params(axis="x", integer=True)
        if axes.get_legend_handles_labels()[0]:
            legend(axes)

    return draw


def rope(view: View) -> list[Drawing]:
    """The tables, the wavelengths, what the scaling does, and how a rotated vector's likeness falls with distance."""
    drawings = heat_maps(view)
    found = _rope_frequencies(view, {})
    if found is not None:
        frequencies, axis = found
        scaled = view.parameters.get("scaling", "none") != "none"
        plain = _rope_frequencies(view, _WITHOUT_SCALING) if scaled else None
        before = plain[0] if plain is not None and len(plain[0]) == len(frequencies) else None
        length, what = _trained_length(view)
        drawings.append(
            wavelengths(frequencies, length, what, axis=axis, before=before, sides=view.grid or ())
        )
        if before is not None:
            ratio = np.divide(before, frequencies, out=np.full(len(before), np.nan), where=frequencies > 0)
            drawings.append(
                curves(
                    {"": ratio}, "how much longer each wavelength became", labels=("pair", "times as long")
                )
            )
    return drawings + likeness(view)


def sinusoidal(view: View) -> list[Drawing]:
    """The table, its wavelengths where positions lie on a line, and the likeness of rows."""
    from pe_cli.encodings.sinusoidal import ALIASES, STYLES

    name = view.parameters.get("style", "paper")
    style = STYLES.get(ALIASES.get(name, name))
    drawings = heat_maps(view)
    if style is not None:
        dim = view.parameters["dim"] // 2 * 2
        drawings.append(_geometric(view, view.parameters.get("base", 10000.0), dim, style.shift))
    return drawings + likeness(view)


def timestep(view: View) -> list[Drawing]:
    """As for sinusoidal, with the names of diffusion models."""
    asked = view.parameters
    dim = asked["dim"] // 2 * 2
    return [
        *heat_maps(view),
        _geometric(view, asked["max_period"], dim, asked["downscale_freq_shift"]),
        *likeness(view),
    ]


def by_distance(view: View) -> list[Drawing]:
    """Transformer-XL: rows are distances."""
    return [
        *heat_maps(view),
        _geometric(view, view.parameters["base"], view.parameters["dim"], 0.0),
        *likeness(view),
    ]


def xpos(view: View) -> list[Drawing]:
    """Both tables, and the product of a rotated query and key by their distance."""
    drawings = heat_maps(view)
    run = [array.astype(np.float64) for array in view.runs.values() if array.ndim == 2]
    if len(run) == 2 and len(run[0]) > 2:
        queries, keys = run
        products = queries @ keys.T
        own = np.diagonal(products).mean()
        fall = np.array([np.diagonal(products, -lag).mean() / own for lag in range(len(queries) * 7 // 8)])
        drawings.append(
            curves({"": fall}, "query times key by distance", labels=("query minus key", "relative product"))
        )
    return drawings


def features(view: View) -> list[Drawing]:
    """Fourier features: the table, some of its columns over the rows, likeness."""
    rows = joined_rows(view.sampled)
    drawings = heat_maps(view)
    if rows is not None and view.grid and len(view.grid) == 2 and len(rows) == int(np.prod(view.grid)):
        for column in np.unique(np.linspace(0, rows.shape[1] - 1, 4).round().astype(int)).tolist():
            plane = rows[:, column].reshape(view.grid)
            drawings.append(heat_map(plane, f"column {column} over the grid", square=True))
    elif rows is not None:
        chosen = np.unique(np.linspace(0, rows.shape[1] - 1, 5).round().astype(int))
        lines = {f"column {column}": rows[:, column] for column in chosen}
        drawings.append(curves(lines, "some columns", labels=("row", "value")))
    return drawings + likeness(view)


def learned(view: View) -> list[Drawing]:
    """The table, the length of its rows, their likeness."""
    rows = joined_rows(view.sampled)
    return [
        *heat_maps(view),
        *([norms(rows, view.row_count())] if rows is not None else []),
        *likeness(view),
    ]


def factors(view: View) -> list[Drawing]:
    """Axial: each axis has its own table, and its own likeness of rows."""
    drawings = []
    for name, array in view.sampled.items():
        drawings.append(heat_map(array, name))
    return drawings


# What to leave out of the arguments to get the frequencies as they were before the scaling.
_WITHOUT_SCALING = {"scaling": "none"} | dict.fromkeys(
    "factor original_len seq_len beta_fast beta_slow mscale mscale_all_dim attention_factor low_freq_factor "
    "high_freq_factor short_factor long_factor policy mixed_b".split()
)


def _rope_frequencies(
    view: View, changes: dict[str, Any]
) -> tuple[NDArray[np.float64], NDArray[Any] | None] | None:
    function = load("rope")
    taken = inspect.signature(function).parameters
    arguments = {
        name: value for name, value in view.parameters.items() if name in taken and name != "positions"
    }
    asked = {**arguments, **changes, "layout": "inv-freq", "dtype": "float64"}
    if changes:
        asked["truncate"] = True
        if arguments.get("scaling") == "proportional":
            asked["partial"] = None
    try:
        tensors = function(np.arange(0), **asked)
    except PeError:  # some forms of several axes have no frequency vector
        return None
    axis = tensors.get("axis")
    return tensors["inv_freq"].astype(np.float64), axis if axis is not None and len(
        np.unique(axis)
    ) > 1 else None


def _trained_length(view: View) -> tuple[int | None, str]:
    for name, source in (("original_len", view.parameters), ("max_position", view.facts)):
        if source.get(name):
            return int(source[name]), "trained length"
    if view.grid:
        return max(view.grid), "longest side"
    return view.reach()


def _geometric(view: View, base: float, dim: int, shift: float) -> Drawing:
    frequencies = np.array([float(w) for w in geometric(base, dim, shift=shift)])
    return wavelengths(frequencies, *view.reach())


# Pairs of query and key


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
    """Position numbers: all lines in one drawing, then a line for each axis of a table of few, and other tables."""
    tables = {name: array for name, array in view.sampled.items() if array.ndim == 2}
    return _lines(view) + [
        _coordinates(view, name)
        if array.shape[1] <= MOST_AXES
        else heat_map(array, name, rows=view.rows[name])
        for name, array in tables.items()
    ]


def _coordinates(view: View, name: str) -> Drawing:
    array = view.sampled[name]
    lines = {f"axis {axis}": array[:, axis] for axis in range(array.shape[1])}
    where = np.linspace(0, view.rows[name] - 1, len(array))
    return curves(lines, name, labels=("token", "position"), x=where)


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
    single = max(view.rows.values(), default=1) > 1
    lines = {
        name: array
        for name, array in view.sampled.items()
        if array.ndim == 1 and not (single and len(array) == 1)  # one number beside rows is no line
    }
    sizes = {len(array) for array in lines.values()}
    if len(sizes) == 1:
        labels = ("token", "number")
        title = "numbers by token" if len(lines) > 1 else next(iter(lines))
        steps = all(array.dtype.kind in "iub" for array in lines.values())
        return [curves(lines, title, labels=labels, x=_evenly(view, lines), steps=steps)]
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
