"""Figures without a window system, written whole or not at all, the same bytes from the same numbers."""

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
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli import process
from pe_cli.errors import PeError, needs
from pe_cli.files.atomic import open_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
if TYPE_CHECKING:
    from pe_cli.commands.emit import Request

Drawing: TypeAlias = "Callable[[Axes], None]"

SUFFIXES = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
# Two colours and two scales that every common form of colour blindness tells apart.
BLUE, ORANGE, GREY = "#2166ac", "#d95f02", "#8c8c8c"
AXIS_COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7")
DIVERGING, SEQUENTIAL, CYCLIC, YES_NO = "PuOr", "cividis", "twilight", "Greys"
MOST_DRAWINGS = 12
WIDE = 3
CHARACTERS = 52  # of a title above one drawing


class _NotYetError(Exception):
    """A file could be opened; it is not to appear yet."""


def require_picture(path: str, *, force: bool, beside: str | None = None) -> None:
    """Refuse a picture that cannot be written before the file `beside` it is: both appear, or neither does."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise PeError(f"--plot {path}: the name must end in {', '.join(SUFFIXES)}")
    if beside and os.path.realpath(path) == os.path.realpath(beside):
        raise PeError(f"--plot {path}: this is the file of the table; give the picture another name")
    if find_spec("matplotlib") is None:
        raise needs("--plot", "matplotlib", "plot")
    with suppress(_NotYetError), open_output(path, force=force):
        raise _NotYetError


def write(drawings: Sequence[Drawing], path: str, *, force: bool, title: str | None = None) -> None:
    """Draw them side by side, three in a row, into the file `path`."""
    suffix = Path(path).suffix.lower()
    if suffix not in SUFFIXES:
        raise PeError(f"--plot {path}: the name must end in {', '.join(SUFFIXES)}")
    if not drawings:
        raise PeError(f"--plot {path}: there is nothing to draw in an empty table")
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
            figure.suptitle("\n".join(textwrap.wrap(title, CHARACTERS * columns)), fontsize="medium")
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
        raise needs("--plot", "matplotlib", "plot") from None
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


SAMPLE_ROWS = 1024
RUN_ROWS = 1024


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
