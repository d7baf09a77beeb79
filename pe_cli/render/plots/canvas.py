"""Figures without a window system, written whole or not at all, the same bytes from the same numbers."""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pe_cli.errors import PeError
from pe_cli.formats import refuse_same_file
from pe_cli.formats.atomic import open_output
from pe_cli.sources import STDIN, split_spec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawing: TypeAlias = "Callable[[Axes], None]"

SUFFIXES = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
MISSING = "--plot needs matplotlib: pip install matplotlib"
# Two colours and two scales that every common form of colour blindness tells apart.
BLUE, ORANGE, GREY = "#2166ac", "#d95f02", "#8c8c8c"
AXIS_COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7")
DIVERGING, SEQUENTIAL, CYCLIC, YES_NO = "PuOr", "cividis", "twilight", "Greys"
MOST_DRAWINGS = 12
WIDE = 3
CHARACTERS = 52  # of a title above one drawing


class _NotYetError(Exception):
    """A file could be opened; it is not to appear yet."""


def require_picture(
    path: str, *, force: bool, beside: str | None = None, inputs: Sequence[str | None] = ()
) -> None:
    """Refuse a picture that cannot be written before the file `beside` it is: both appear, or neither does.

    `inputs` are what the command reads, as they were typed.
    """
    refuse_inputs(path, *inputs)
    if Path(path).suffix.lower() not in SUFFIXES:
        raise PeError(f"--plot {path}: the name must end in {', '.join(SUFFIXES)}")
    if beside and os.path.realpath(path) == os.path.realpath(beside):
        raise PeError(f"--plot {path}: this is the file of the table; give the picture another name")
    if find_spec("matplotlib") is None:
        raise PeError(MISSING)
    with suppress(_NotYetError), open_output(path, force=force):
        raise _NotYetError


def refuse_inputs(path: str, *inputs: str | None) -> None:
    """Refuse a picture in the place of an input, also through a link: `FILE`, `FILE:TENSOR`, `-` or a folder's files.

    Pictures that lie in a folder are no inputs: an older one may be replaced there.
    """
    if not os.path.exists(path):
        return
    for given in filter(None, inputs):
        file = split_spec(given)[0]
        if file == "-":
            refuse_same_file(path, STDIN)
        elif Path(file).is_dir():
            inside = Path(file).rglob("*")
            refuse_same_file(path, *(one for one in inside if one.suffix.lower() not in SUFFIXES))
        else:
            refuse_same_file(path, file)


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
    with _plain_style(), open_output(path, force=force) as output:
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
def _plain_style() -> Iterator[None]:
    """Matplotlib's own settings, not those of the user's machine, so that pictures can be repeated."""
    try:
        from matplotlib import rc_context, style
    except ImportError:
        raise PeError(MISSING) from None
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
