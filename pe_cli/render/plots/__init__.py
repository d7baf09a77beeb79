"""Pictures in a file: what `--plot` of each command draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli import heatmap
from pe_cli.errors import PeError, parameter
from pe_cli.render.plots import drawing, graphs, positions
from pe_cli.render.plots.drawing import BLUE, GREY, ORANGE, Drawing, View, spread, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pe_cli.extend.rotary import Stretch
    from pe_cli.tables import Request

# What one looks at in each encoding; the others get heat maps and the likeness of their rows.
PICTURES: dict[str, Callable[[View], list[Drawing]]] = {
    "sinusoidal": positions.sinusoidal,
    "timestep": positions.timestep,
    "transformer-xl": positions.by_distance,
    "fourier": positions.features,
    "learned": positions.learned,
    "axial": positions.factors,
    "rope": positions.rope,
    "xpos": positions.xpos,
    **dict.fromkeys(
        ("alibi", "kerple", "sandwich", "fire", "t5", "shaw", "deberta", "tupe"), positions.biases
    ),
    "swin": positions.windows,
    "cope": positions.last_queries,
    "fox": positions.last_queries,
    "peg": positions.images,
    "global-tokens": positions.numbers,
    "position-ids": positions.numbers,
    "sparse-transformer": positions.patterns,
    "laplacian": graphs.laplacian,
    "magnetic": graphs.magnetic,
    "random-walk": graphs.walks,
    "rrwp": graphs.relative_walks,
    "heat-kernel": graphs.heat,
    "shortest-path": graphs.distances,
    "resistance-distance": graphs.resistances,
    "tree": graphs.tree,
    "dependency": graphs.dependency,
}


def plot_table(request: Request, path: str, *, force: bool) -> None:
    """What `pe gen --plot` draws."""
    view = View.of_request(request)
    drawings = PICTURES.get(request.encoding, drawing.anything)(view)
    write(drawings, path, force=force, title=request.command)


def plot_tensors(
    tensors: Mapping[str, NDArray[Any]],
    path: str,
    *,
    lengths: Mapping[str, int],
    force: bool,
    title: str | None = None,
) -> None:
    """What `pe inspect --plot` draws: each tensor, and how its rows are alike; `lengths` are their rows."""
    if not tensors:
        raise PeError(
            f"{parameter('plot')} {path}: only headers were read; name a tensor, or give {parameter('values')}"
        )
    write(drawing.anything(View.of_arrays(tensors, lengths)), path, force=force, title=title)


def plot_extension(
    before: NDArray[Any],
    after: NDArray[Any],
    path: str,
    force: bool,
    *,
    name: str = "table",
    title: str | None = None,
) -> None:
    """What `pe extend --plot` draws: a table (rows, dim) before and after, its norms, the likeness of its rows."""
    pictures = {"before": before, "after": after}
    rows = {when: len(table) for when, table in pictures.items()}
    sampled = {when: _rows(table[spread(len(table))]) for when, table in pictures.items()}
    runs = {when: _rows(table[: 2 * drawing.LONGEST_LAG]) for when, table in pictures.items()}
    limits = heatmap.limits(np.concatenate(list(sampled.values())))
    drawings = [
        drawing.heat_map(plane, f"{name} {when}, {rows[when]} rows", rows=rows[when], limits=limits)
        for when, plane in sampled.items()
    ]
    places = {when: spread(count).astype(np.float64) for when, count in rows.items()}
    lengths = {when: np.sqrt((plane * plane).sum(axis=1)) for when, plane in sampled.items()}
    drawings.append(
        drawing.curves(lengths, "length of rows", labels=("row", "norm"), x=places, from_zero=True)
    )
    if min(rows.values()) > 2:
        alike = {when: drawing.mean_cosines(run) for when, run in runs.items()}
        labels = ("distance in rows", "mean cosine")
        drawings.append(drawing.curves(alike, "likeness of rows by distance", labels=labels))
    write(drawings, path, force=force, title=title)


def plot_stretch(stretch: Stretch, path: str, force: bool, title: str | None = None) -> None:
    """What `pe extend --scaling --plot` draws: wavelengths, and the score of a vector with itself by distance.

    The score at distance d is the mean over the pairs of cos(d w): what q.k becomes where q and k are the same vector.
    """
    turns = {
        when: 2 * np.pi / np.array(lengths)
        for when, lengths in zip(("before", "after"), stretch.wavelengths(), strict=True)
    }
    places = np.unique(np.geomspace(1, stretch.length, 400).astype(np.int64)).astype(np.float64)
    scores = {when: np.cos(places[:, None] * w).mean(axis=1) for when, w in turns.items()}
    drawings = [
        positions.wavelengths(turns["after"], stretch.original_len, "trained length", before=turns["before"]),
        drawing.curves(
            {"": turns["before"] / turns["after"]},
            "how much longer each wavelength became",
            labels=("pair", "times as long"),
        ),
        drawing.curves(
            scores, "score of a vector with itself", labels=("distance in positions", "mean cosine"), x=places
        ),
    ]
    write(drawings, path, force=force, title=title)


def plot_difference(
    left: NDArray[Any],
    right: NDArray[Any],
    path: str,
    force: bool,
    *,
    names: tuple[str, str] = ("left", "right"),
    rows: int | None = None,
    title: str | None = None,
) -> None:
    """What `pe diff --plot` draws: both tables, the error, and the largest error by row and by column.

    `left` and `right` have one shape; where they are evenly spaced rows of larger tables, `rows` says how many those
    have.
    """
    a, b = _rows(left), _rows(right)
    total = rows or len(a)
    limits = heatmap.limits(np.concatenate([a, b]))
    error = np.abs(a - b)
    drawings = [
        drawing.heat_map(a, names[0], rows=total, limits=limits),
        drawing.heat_map(b, names[1], rows=total, limits=limits),
        drawing.heat_map(error, "absolute error", rows=total, limits=(0, float(np.nanmax(error)))),
        drawing.curves(
            {"": error.max(axis=1)},
            "largest error by row",
            labels=("row", "absolute error"),
            x=np.linspace(0, max(total - 1, 0), len(error)),
        ),
        drawing.curves(
            {"": error.max(axis=0)}, "largest error by column", labels=("column", "absolute error")
        ),
    ]
    write(drawings, path, force=force, title=title)


def _rows(array: NDArray[Any]) -> NDArray[np.float64]:
    """(rows, columns) of real numbers: the leading dimensions are rows, complex numbers two columns."""
    if array.dtype.kind == "c":
        array = np.stack([array.real, array.imag], axis=-1).reshape(*array.shape[:-1], -1)
    if array.ndim == 0:
        return array.astype(np.float64).reshape(1, 1)
    flat = array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array.reshape(-1, 1)
    return flat.astype(np.float64)


def plot_model(report: Mapping[str, Any], path: str, *, force: bool) -> None:
    """One drawing for each rotary table of `models.describe.inspect_config`."""
    tables = [table for table in report["tables"] if table.get("rotary")]
    if not tables:
        raise PeError(
            f"{parameter('plot')} {path}: {report['file']} has no rotary table on one axis, so no wavelengths to draw"
        )
    drawings = [_wavelengths(table, report["model_type"]) for table in tables]
    write(drawings, path, force=force, title=f"pe inspect {report['file']}")


def _wavelengths(table: Mapping[str, Any], model_type: str) -> Drawing:
    def draw(axes: Axes) -> None:
        pairs = [(index, pair) for index, pair in enumerate(table["rotary"]["pairs"]) if pair["wavelength"]]
        index = [number for number, _ in pairs]
        plain = [pair["unscaled_wavelength"] for _, pair in pairs]
        axes.plot(index, plain, "--", color=GREY, label="unscaled")
        scaled = [pair["wavelength"] for _, pair in pairs]
        axes.plot(index, scaled, color=BLUE, label=table["rotary"]["scaling"])
        if table["trained_length"]:
            label = f"trained length {table['trained_length']}"
            axes.axhline(table["trained_length"], color=ORANGE, label=label)
        where = ", ".join(table[key] for key in ("component", "layer_type") if table[key])
        axes.set(title=where or model_type, xlabel="pair", ylabel="wavelength in positions", yscale="log")
        axes.grid(alpha=0.3)
        drawing.legend(axes)

    return draw
