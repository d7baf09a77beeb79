"""Pictures of tables made of sines and cosines: wavelengths beside the length, and what a scaling does to them."""

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
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TURN = 2 * np.pi


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
