"""Figures without a window system, written whole or not at all, the same bytes from the same numbers; and the pictures that
suit any table: heat map, likeness of rows by distance, norms, lines.
"""

from __future__ import annotations

import io
import logging
import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli import heatmap, process
from pe_cli.errors import PeError, needs, parameter
from pe_cli.files.atomic import open_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from pe_cli.tables import Request

Drawing: TypeAlias = "Callable[[Axes], None]"

SUFFIXES = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
# Two colours and two scales that every common form of colour blindness tells apart.
BLUE, ORANGE, GREY = "#2166ac", "#d95f02", "#8c8c8c"
AXIS_COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7")
DIVERGING, SEQUENTIAL, CYCLIC, YES_NO = "PuOr", "cividis", "twilight", "Greys"
MOST_DRAWINGS = 12
WIDE = 3
LONGEST_LAG = 512
FUTURE = "#d9d9d9"
SHARP_ROWS = 256  # that a drawing is high enough to show one by one
FEW_LINES = 8
CHARACTERS = 52  # of a title above one drawing


class _NotYetError(Exception):
    """A file could be opened; it is not to appear yet."""


def require_picture(path: str, *, force: bool, beside: str | None = None) -> None:
    """Refuse a picture that cannot be written before the file `beside` it is: both appear, or neither does."""
    _suffix(path)
    if beside and os.path.realpath(path) == os.path.realpath(beside):
        raise PeError(
            f"{parameter('plot')} {path}: this is the file of the table; give the picture another name"
        )
    if find_spec("matplotlib") is None:
        raise needs(parameter("plot"), "matplotlib", "plot")
    with suppress(_NotYetError), open_output(path, force=force):
        raise _NotYetError


def _suffix(path: str) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise PeError(f"{parameter('plot')} {path}: the name must end in {', '.join(SUFFIXES)}")
    return suffix


def write(drawings: Sequence[Drawing], path: str, *, force: bool, title: str | None = None) -> None:
    """Draw them side by side, three in a row, into the file `path`."""
    suffix = _suffix(path)
    if not drawings:
        raise PeError(f"{parameter('plot')} {path}: there is nothing to draw in an empty table")
    shown = drawings[:MOST_DRAWINGS]
    columns = 2 if len(shown) in (2, 4) else min(len(shown), WIDE)
    rows = -(-len(shown) // columns)
    with _own_folder(), _plain_style(), open_output(path, force=force) as output:
        figure, axes = _figure(columns, rows)
        for ax, drawing in zip(axes, shown, strict=False):
            drawing(ax)
        for unused in axes[len(shown) :]:
            unused.set_axis_off()
        if title:
            lines = [line for part in title.split("\n") for line in textwrap.wrap(part, CHARACTERS * columns)]
            figure.suptitle("\n".join(lines), fontsize="medium")
        picture = io.BytesIO()  # so that a full disk is met by our own writing, which names the file
        figure.savefig(picture, format=suffix[1:], metadata=SUFFIXES[suffix])
        output.put(picture.getbuffer(), 0)


def line_colours(count: int) -> list[Any]:
    """Colours of `count` lines in order, from dark to light but never too light to see."""
    from matplotlib import colormaps

    if count <= 2:
        return [BLUE, ORANGE][:count]
    return [colormaps["viridis"](share) for share in np.linspace(0, 0.9, max(count, 1))]


def _figure(columns: int, rows: int) -> tuple[Any, list[Any]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = Figure(figsize=(4.6 * columns, 3.5 * rows), layout="constrained", dpi=110)
    FigureCanvasAgg(made)
    return made, list(np.atleast_1d(made.subplots(rows, columns)).ravel())


@contextmanager
def _own_folder() -> Iterator[None]:
    """Let matplotlib keep its files in a folder that is removed again, not in the user's home, and be silent about it.

    Only for a command: a program that draws with matplotlib as well has made its own choice. The list of fonts that an
    earlier use of matplotlib left in its usual place is read, since making it anew takes time.
    """
    if not process.in_command() or "matplotlib" in sys.modules or "MPLCONFIGDIR" in os.environ:
        yield
        return
    logging.getLogger("matplotlib").setLevel(logging.CRITICAL)
    usual = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "matplotlib"
    with tempfile.TemporaryDirectory(prefix="pe-") as folder:
        with suppress(OSError):
            for fonts in usual.glob("fontlist-*.json"):
                shutil.copy(fonts, folder)
        os.environ["MPLCONFIGDIR"] = folder
        try:
            yield
        finally:
            del os.environ["MPLCONFIGDIR"]


@contextmanager
def _plain_style() -> Iterator[None]:
    """Matplotlib's own settings, not those of the user's machine, so that pictures can be repeated."""
    try:
        from matplotlib import rc_context, style
    except ImportError:
        raise needs(parameter("plot"), "matplotlib", "plot") from None
    with (
        style.context("default"),
        rc_context(
            {
                "svg.hashsalt": "pe",
                "axes.titlesize": "medium",
                "axes.spines.top": False,
                "axes.spines.right": False,
            }
        ),
    ):
        yield


IN_A_ROW = 2  # entries of a legend
LARGE = 10_000  # from which on numbers at an axis need room
SAMPLE_ROWS = 1024
RUN_ROWS = 1024
MOST_POSITIONS = 1 << 22  # that are looked at


@dataclass(frozen=True)
class View:
    """The tensors of a table.

    `sampled` holds rows over the whole length, `runs` the first rows without gaps; `rows` how many rows there are.
    """

    encoding: str
    sampled: Mapping[str, NDArray[Any]]
    runs: Mapping[str, NDArray[Any]]
    rows: Mapping[str, int]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    table: Any = None

    @classmethod
    def of_request(cls, request: Request) -> View:
        """What `pe gen` is about to write."""
        table = request.table
        sampled = {name: array for name, array in table.sample(SAMPLE_ROWS).items() if array.size}
        runs = {name: next(iter(table.blocks((name,)))).rows for name in sampled}
        runs = {name: rows[:RUN_ROWS] if rows.ndim else rows for name, rows in runs.items()}
        rows = {name: spec.shape[0] for name, spec in table.specs.items() if spec.shape}
        return cls(request.encoding, sampled, runs, rows, request.parameters, table.facts, table)

    @classmethod
    def of_arrays(cls, tensors: Mapping[str, NDArray[Any]], rows: Mapping[str, int]) -> View:
        """Arrays that are held whole."""
        shown = {name: array for name, array in tensors.items() if array.size and array.dtype.kind != "U"}
        sampled = {name: array[spread(len(array))] if array.ndim else array for name, array in shown.items()}
        runs = {name: array[:RUN_ROWS] if array.ndim else array for name, array in shown.items()}
        return cls("", sampled, runs, rows)

    @property
    def grid(self) -> tuple[int, ...] | None:
        """The grid whose cells the rows are, if they are."""
        grid = self.parameters.get("grid")
        return tuple(grid) if grid and int(np.prod(grid)) in self.rows.values() else None

    @cached_property
    def span(self) -> tuple[float, float] | None:
        """The first and the last position, where there is one for each row and they are evenly spaced."""
        found = self._positions()
        if found is None or len(found) < 2 or self.grid:
            return None
        steps = np.diff(found)
        return (float(found[0]), float(found[-1])) if np.allclose(steps, steps[0]) and steps[0] > 0 else None

    def reach(self) -> tuple[int | None, str]:
        """How many positions there are from the least to the largest, and what to call that."""
        found = self._positions()
        if found is None or not len(found):
            return len(getattr(self.table, "positions", ())) or None, "length"
        reach = int(found.max() - found.min()) + 1
        return reach, "length" if reach == len(found) and not found.min() else "span of positions"

    def _positions(self) -> NDArray[np.float64] | None:
        positions = getattr(self.table, "positions", None)
        if positions is None or len(positions) > MOST_POSITIONS:
            return None
        found = np.asarray(positions.block(0, len(positions)), dtype=np.float64)
        return found if found.ndim == 1 else None

    def row_count(self) -> int:
        """Rows of the longest tensor."""
        return max(self.rows.values(), default=0)


def joined_rows(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float64] | None:
    """The matrices of equal length side by side as real numbers, (rows, columns): cos and sin are one code."""
    matrices = [array for array in arrays.values() if array.ndim == 2 and array.dtype.kind in "fVc"]
    longest = max((len(array) for array in matrices), default=0)
    parts: list[NDArray[Any]] = []
    for array in matrices:
        if len(array) == longest:
            parts += [array.real, array.imag] if array.dtype.kind == "c" else [array]
    if not parts or longest < 3:
        return None
    joined: NDArray[np.float64] = np.concatenate([part.astype(np.float64) for part in parts], axis=1)
    return joined if np.isfinite(joined).all() else None


def spread(size: int, most: int = SAMPLE_ROWS) -> NDArray[np.int64]:
    """At most `most` of the numbers 0..size-1, evenly spaced, the first and last among them."""
    return np.unique(np.linspace(0, size - 1, min(size, most)).round().astype(np.int64))


def heat_map(
    array: NDArray[Any],
    title: str,
    *,
    rows: int | None = None,
    labels: tuple[str, str] = ("row", "column"),
    limits: tuple[float, float] | None = None,
    colours: str | None = None,
    square: bool = False,
    span: tuple[float, float] | None = None,
    future: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
) -> Drawing:
    """The values of a table, first row on top; of three and more dimensions the last two of the first entry.

    Cells have their numbers in their middle: those of rows, or the positions from `span[0]` to `span[1]`. `future` are the
    positions of queries and keys of a causal table: what lies ahead of a query is grey.
    """

    def draw(axes: Axes) -> None:
        plane = _picked(array)
        low, high = limits or heatmap.limits(plane)
        if future is not None:
            queries, keys = (positions[spread(len(positions))] for positions in future)
            plane = np.where(keys > queries[:, None], np.nan, plane)
        count = rows or len(plane)
        first, last = span or (0, count - 1)
        half = (last - first) / (count - 1) / 2 if count > 1 and last != first else 0.5
        usual = DIVERGING if low < 0 < high else SEQUENTIAL
        two_values = array.dtype.kind in "biu" and (low, high) == (0, 1)
        image = axes.imshow(
            plane,
            aspect="equal" if square else "auto",
            interpolation="nearest",
            cmap=colours or (YES_NO if two_values else usual),
            vmin=low,
            vmax=high,
            extent=(-0.5, (array.shape[-1] if array.ndim else 1) - 0.5, last + half, first - half),
        )
        if future is not None:
            axes.set_facecolor(FUTURE)
        axes.set(title=title, ylabel=labels[0], xlabel=labels[1])
        axes.figure.colorbar(
            image, ax=axes, label="value (grey: the future)" if future is not None else "value"
        )
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
            axes.set_ylim(0, 1.05 * max(float(np.max(line)) for line in values.values()) or 1)
        if _whole([axes.get_lines()[0].get_xdata()]):
            axes.locator_params(axis="x", integer=True)
        if axes.get_xlim()[1] >= LARGE:
            axes.locator_params(axis="x", nbins=4)
        if _whole(list(values.values())):
            axes.locator_params(axis="y", integer=True)
        if any(values) and len(values) <= FEW_LINES:
            legend(axes)
        elif any(values):
            _number_colours(axes, len(values), next(iter(values)).rpartition(" ")[0])

    return draw


def _whole(numbers: Sequence[Any]) -> bool:
    return all(np.asarray(line).dtype.kind in "iub" for line in numbers)


def legend(axes: Axes) -> None:
    """What the lines are, so that it covers none of them: few of them under the title, more beside the drawing."""
    count = len(axes.get_legend_handles_labels()[1])
    style: dict[str, Any] = {"fontsize": "small", "frameon": False, "borderaxespad": 0.2}
    if count > IN_A_ROW:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), **style)
        return
    axes.set_title(axes.get_title(), pad=22)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=count, **style)


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
    if array.ndim > 2:
        heads = " x ".join(map(str, array.shape[:-2]))
        return heat_map(
            array, f"{name}, head 0 of {heads}", rows=array.shape[-2], labels=labels or ("query", "key")
        )
    rows, span, some = view.rows.get(name, len(array)), view.span, ""
    if span is not None and rows != len(view.table.positions):
        span = None
    first = view.runs[name][:SHARP_ROWS]
    if rows > len(first) > 2 and heatmap.aliased(
        *map(heatmap.as_plane, (array[spread(len(array), SHARP_ROWS)], first))
    ):
        some = f", the first {len(first)} of {rows} rows"
        span = span and (span[0], span[0] + (span[1] - span[0]) * (len(first) - 1) / (rows - 1))
        array, rows = first, len(first)
    elif rows > len(array):
        some = f", {len(array)} of {rows} rows"
    usual = ("position" if span is not None else "row", "column")
    return heat_map(array, f"{name}{some}", rows=rows, labels=labels or usual, span=span)


def heat_maps(view: View) -> list[Drawing]:
    """Heat maps of the first two tensors of two and more dimensions."""
    matrices = [name for name, array in view.sampled.items() if array.ndim >= 2]
    return [tensor(view, name) for name in matrices[:2]]


def anything(view: View) -> list[Drawing]:
    """What can be said of a table whose encoding is not known."""
    drawings = [tensor(view, name) for name in view.sampled]
    run, sample = joined_rows(view.runs), joined_rows(view.sampled)
    if run is not None and sample is not None:
        drawings += [similarity(run), norms(sample, view.row_count())]
    return drawings
