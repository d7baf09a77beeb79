"""Pictures that suit any table: heat map, likeness of rows by distance, norms, lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli import heatmap
from pe_cli.render.plots.canvas import (
    DIVERGING,
    SEQUENTIAL,
    YES_NO,
    Drawing,
    View,
    joined_rows,
    line_colours,
    spread,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST_LAG = 512
FEW_LINES = 8


def heat_map(
    array: NDArray[Any],
    title: str,
    *,
    rows: int | None = None,
    labels: tuple[str, str] = ("row", "column"),
    limits: tuple[float, float] | None = None,
    colours: str | None = None,
    square: bool = False,
) -> Drawing:
    """The values of a table, first row on top; of three and more dimensions the last two of the first entry."""

    def draw(axes: Axes) -> None:
        plane = _picked(array)
        low, high = limits or heatmap.limits(plane)
        usual = DIVERGING if low < 0 < high else SEQUENTIAL
        two_values = array.dtype.kind in "biu" and (low, high) == (0, 1)
        image = axes.imshow(
            plane,
            aspect="equal" if square else "auto",
            interpolation="nearest",
            cmap=colours or (YES_NO if two_values else usual),
            vmin=low,
            vmax=high,
            extent=(0, array.shape[-1] if array.ndim else 1, rows or len(plane), 0),
        )
        axes.set(title=title, ylabel=labels[0], xlabel=labels[1])
        axes.figure.colorbar(image, ax=axes)
        axes.locator_params(axis="both", integer=True)

    return draw


def _picked(array: NDArray[Any]) -> NDArray[np.float64]:
    """Evenly spaced rows and columns of the first plane, so that a large table costs no more than a small one."""
    while array.ndim > 2:
        array = array[0]
    for axis, size in enumerate(array.shape):
        array = np.take(array, spread(size), axis=axis)
    return heatmap.as_plane(array)


def similarity(rows: NDArray[np.float64], title: str = "likeness of rows by distance") -> Drawing:
    """Mean cosine of rows by their distance, all distances up to 512."""
    return curves({"": mean_cosines(rows)}, title, labels=("distance in rows", "mean cosine"))


def mean_cosines(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """(lags,) the mean cosine of rows 0, 1, 2 … apart; rows of zeros are left out."""
    norms = np.sqrt((rows * rows).sum(axis=1))
    unit = rows[norms > 0] / norms[norms > 0, None]
    gram = unit @ unit.T
    # A lag with few pairs says more about those pairs than about the lag.
    longest = max(2, min(LONGEST_LAG, len(unit) - len(unit) // 8))
    return np.array([np.diagonal(gram, lag).mean() for lag in range(min(longest, len(unit)))])


def curves(
    values: Mapping[str, NDArray[Any]],
    title: str,
    *,
    labels: tuple[str, str],
    x: NDArray[Any] | Mapping[str, NDArray[Any]] | None = None,
    steps: bool = False,
    from_zero: bool = False,
) -> Drawing:
    """One line for each entry, over `x` (one for all or one for each), named in a legend where they are few and by a colour bar where they are many."""

    def draw(axes: Axes) -> None:
        for (name, line), colour in zip(values.items(), line_colours(len(values)), strict=True):
            where = np.arange(len(line)) if x is None else x[name] if isinstance(x, Mapping) else x
            few = len(line) <= 40
            axes.plot(
                where,
                line,
                color=colour,
                label=name,
                drawstyle="steps-mid" if steps else "default",
                marker="." if few else None,
                linewidth=1.4,
            )
        axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
        axes.grid(alpha=0.3)
        if from_zero:
            axes.set_ylim(bottom=0)
        if x is None:
            axes.locator_params(axis="x", integer=True)
        if any(values) and len(values) <= FEW_LINES:
            axes.legend(fontsize="small", framealpha=0.8)
        elif any(values):
            _number_colours(axes, len(values), next(iter(values)).rpartition(" ")[0])

    return draw


def _number_colours(axes: Axes, count: int, label: str) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    scale = ScalarMappable(Normalize(-0.5, count - 0.5), ListedColormap(line_colours(count)))
    axes.figure.colorbar(scale, ax=axes, label=label)


def norms(rows: NDArray[np.float64], total: int) -> Drawing:
    """The length of each row."""
    where = np.linspace(0, max(total - 1, 0), len(rows))
    lengths = np.sqrt((rows * rows).sum(axis=1))
    return curves({"": lengths}, "length of rows", labels=("row", "norm"), x=where, from_zero=True)


def cells(rows: NDArray[np.float64], grid: tuple[int, ...]) -> Drawing:
    """The cosine of every cell of a grid with the one in its middle (of the middle frame)."""
    height, width = grid[-2:]
    frame = int(np.prod(grid[:-2])) // 2
    plane = rows[frame * height * width : (frame + 1) * height * width]
    unit = plane / np.maximum(np.sqrt((plane * plane).sum(axis=1, keepdims=True)), 1e-300)
    middle = (height // 2) * width + width // 2
    alike = (unit @ unit[middle]).reshape(height, width)
    return heat_map(
        alike, f"cosine with cell ({height // 2}, {width // 2})", labels=("row", "column"), square=True
    )


def likeness(view: View) -> list[Drawing]:
    """Cells with the middle one on a grid, else rows by distance; nothing where there are no real rows."""
    rows = joined_rows(view.runs)
    if rows is None:
        return []
    if view.grid and len(view.grid) >= 2 and len(rows) == int(np.prod(view.grid)):
        return [cells(rows, view.grid)]
    return [similarity(rows)]


def tensor(view: View, name: str, labels: tuple[str, str] | None = None) -> Drawing:
    """A heat map of a tensor, or a line where it has one dimension."""
    array = view.sampled[name]
    if array.ndim < 2:
        return curves({"": np.atleast_1d(array)}, name, labels=("index", "value"))
    first = f", head 0 of {' x '.join(map(str, array.shape[:-2]))}" if array.ndim > 2 else ""
    rows = view.rows.get(name) if array.ndim == 2 else array.shape[-2]
    return heat_map(
        array,
        f"{name}{first}",
        rows=rows,
        labels=labels or (("row", "column") if not first else ("query", "key")),
    )


def heat_maps(view: View, most: int = 2) -> list[Drawing]:
    """Heat maps of the first tensors of two and more dimensions."""
    matrices = [name for name, array in view.sampled.items() if array.ndim >= 2]
    return [tensor(view, name) for name in matrices[:most]]


def anything(view: View) -> list[Drawing]:
    """What can be said of a table whose encoding is not known."""
    drawings = [tensor(view, name) for name in view.sampled]
    run, sample = joined_rows(view.runs), joined_rows(view.sampled)
    if run is not None and sample is not None:
        drawings += [similarity(run), norms(sample, view.row_count())]
    return drawings
