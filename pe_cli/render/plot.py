"""Pictures in a file: heat map, similarity by distance, and what else suits a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.formats.atomic import open_output
from pe_cli.render import heatmap, statistics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pe_cli.commands.emit import Request

SUFFIXES = (".png", ".svg", ".pdf")
DIVERGING = "PuOr"
SEQUENTIAL = "viridis"
SAMPLE_ROWS = 1024


def figure(columns: int, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """An empty figure of `rows` by `columns` drawings, without a window system."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise PeError("--plot needs matplotlib: pip install 'pe-cli[plot]'") from None
    made = Figure(figsize=(5.2 * columns, 4.0 * rows), layout="constrained", dpi=120)
    FigureCanvasAgg(made)
    return made, list(np.atleast_1d(made.subplots(rows, columns)).ravel())


def save(made: Figure, path: str, *, force: bool = True) -> None:
    """Write the figure whole or not at all, without the date, so that it is repeatable."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise PeError(f"--plot {path}: the name must end in {', '.join(SUFFIXES)}")
    import matplotlib

    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}[suffix]
    with (
        matplotlib.rc_context({"svg.hashsalt": "pe"}),
        open_output(path, force=force) as output,
        open(output.fd, "wb", closefd=False) as stream,
    ):
        made.savefig(stream, format=suffix[1:], metadata=metadata)


def draw_heat_map(axes: Axes, array: NDArray[Any], title: str, rows: tuple[int, int] | None = None) -> None:
    """The values of a table, first row on top."""
    plane = heatmap.as_plane(array)
    low, high = heatmap.limits(plane)
    extent = (0, plane.shape[1], rows[1], rows[0]) if rows else None
    image = axes.imshow(
        plane,
        aspect="auto",
        interpolation="nearest",
        cmap=DIVERGING if low < 0 < high else SEQUENTIAL,
        vmin=low,
        vmax=high,
        extent=extent,
    )
    axes.set(title=title, xlabel="column", ylabel="row")
    axes.figure.colorbar(image, ax=axes)


def draw_similarity(axes: Axes, array: NDArray[Any]) -> None:
    """Mean cosine of rows by their distance."""
    found = statistics.similarity(heatmap.as_plane(array))
    axes.plot([int(lag) for lag in found], list(found.values()), marker="o", color="#2166ac")
    axes.set(
        title="similarity of rows by distance", xlabel="distance in rows", ylabel="mean cosine", xscale="log"
    )
    axes.grid(alpha=0.3)


def plot_tensors(
    tensors: Mapping[str, NDArray[Any]], path: str, *, lengths: Mapping[str, int], force: bool
) -> None:
    """A heat map for each tensor, and the similarity of rows for those that have at least two dimensions."""
    shown = {name: array for name, array in tensors.items() if array.size and array.dtype.kind != "U"}
    if not shown:
        raise PeError(f"--plot {path}: there is nothing to draw in an empty table")
    made, axes = figure(2, len(shown))
    for index, (name, array) in enumerate(shown.items()):
        plane = heatmap.as_plane(array)
        draw_heat_map(
            axes[2 * index], array, name, (0, lengths.get(name, len(plane))) if array.ndim == 2 else None
        )
        if len(plane) > 2 and np.isfinite(plane).all():
            draw_similarity(axes[2 * index + 1], array)
        else:
            axes[2 * index + 1].plot(plane.ravel(), marker=".", color="#2166ac")
            axes[2 * index + 1].set(title=name, xlabel="index", ylabel="value")
    save(made, path, force=force)


def plot_table(request: Request, path: str) -> None:
    """What `pe gen --plot` draws."""
    sample = request.table.sample(SAMPLE_ROWS)
    lengths = {name: spec.shape[0] for name, spec in request.table.specs.items() if spec.shape}
    plot_tensors(sample, path, lengths=lengths, force=request.output.force)
