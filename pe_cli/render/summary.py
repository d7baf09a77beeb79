"""The summary of a table at a terminal: what it is, its numbers and its picture."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli import heatmap
from pe_cli.catalogue import CATALOGUE, load
from pe_cli.numerics import statistics
from pe_cli.render.console import can_print, console, in_lines, spell, telling, wants_colour

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from pe_cli.commands.emit import Request

PICTURE_ROWS = 24
SAMPLE_ROWS = 512
ESSENTIAL = frozenset({"dim", "heads", "base", "style", "scheme", "form", "layout", "dtype", "norm", "q"})
REQUIRED = object()
BLOCKS = " ░▒▓█"


def show_table(request: Request) -> None:
    """What `pe gen` prints at a terminal when it writes nothing."""
    out = console()
    table = request.table
    sample = table.sample(SAMPLE_ROWS)
    out.print(f"{request.encoding}", style="bold")
    out.print(key_values({**_parameters(request), **telling(table.facts)}, dict(request.origins)))
    for name, spec in table.specs.items():
        show_tensor(out, name, spec.dtype, spec.shape, sample[name])
    out.print("nothing was written: give -o FILE, or send stdout into a pipe", style="dim")


def show_tensor(out: Console, name: str, dtype: str, shape: tuple[int, ...], sample: NDArray[Any]) -> None:
    """One tensor: a line of facts, its statistics and its heat map."""
    out.print()
    out.print(f"{name}  {dtype}  {list(shape)}", style="bold")
    numbers = statistics.describe(sample)
    out.print(statistics_line(numbers, out.width), style="dim")
    draw(out, sample)


def statistics_line(numbers: Mapping[str, Any], width: int) -> str:
    """`min -1  max 1  mean 0.2 …`, broken between the numbers where a line of `width` does not hold them."""
    words = [f"{key} {numbers[key]:.4g}" for key in ("min", "max", "mean", "std") if key in numbers]
    words += [f"{key} {numbers[key]}" for key in ("zeros", "nan", "infinite") if numbers.get(key)]
    if "row_norm" in numbers:
        norm = numbers["row_norm"]
        words.append(f"row norm {norm['min']:.4g} / {norm['median']:.4g} / {norm['max']:.4g}")
    return in_lines(words, width)


def draw(out: Console, array: NDArray[Any]) -> None:
    """The heat map, as wide as the terminal allows."""
    plane = heatmap.as_plane(array)
    if not plane.size:
        return
    width = max(8, min(out.width - 2, 128))
    low, high = heatmap.limits(plane)
    if wants_colour(out.is_terminal) and can_print("▀"):
        for line in _colour_lines(heatmap.shrink(plane, PICTURE_ROWS * 2, width)):
            out.print(line, no_wrap=True, crop=True)
    else:
        unicode = can_print(BLOCKS + "≡≣·")
        for text in _text_lines(heatmap.shrink(plane, PICTURE_ROWS, width), unicode=unicode):
            out.print(text, no_wrap=True, crop=True)
    clipped = " and beyond" if plane.size and max(-low, high) < np.nanmax(np.abs(plane), initial=0) else ""
    out.print(f"rows down, columns across; {low:.3g} to {high:.3g}{clipped}", style="dim")


def _colour_lines(plane: NDArray[np.float64]) -> list[Text]:
    """Lines of half blocks, two rows of cells in each."""
    from rich.style import Style
    from rich.text import Text

    names = [["rgb({},{},{})".format(*cell) for cell in row] for row in heatmap.colours(plane).tolist()]
    lines = []
    for top in range(0, len(names), 2):
        line = Text()
        lower = names[top + 1] if top + 1 < len(names) else [None] * plane.shape[1]
        for upper, under in zip(names[top], lower, strict=True):
            line.append("▀", Style(color=upper, bgcolor=under))
        lines.append(line)
    return lines


def _text_lines(plane: NDArray[np.float64], *, unicode: bool) -> list[str]:
    """Lines of shades: from blank at zero to full; where both signs occur, minus has letters of its own."""
    low, high = heatmap.limits(plane)
    span = max(-low, high) or 1.0
    shades = BLOCKS if unicode else " .+#@"
    minus = "·-=≡≣" if unicode else "_-=%&"
    lines = []
    for row in plane:
        cells = []
        for value in row:
            if not np.isfinite(value):
                cells.append("?" if np.isnan(value) else "!")
                continue
            value = min(max(value, low), high)
            scaled = (value - low) / (high - low) if low >= 0 and high > low else abs(value) / span
            level = min(4, int(scaled * 4.999))
            cells.append(minus[level] if value < 0 < high and level else shades[level])
        lines.append("".join(cells))
    return lines


def key_values(facts: Mapping[str, Any], origins: Mapping[str, str]) -> RichTable:
    """Two columns, and a third with where a value came from if any is known."""
    from rich.table import Table as RichTable

    grid = RichTable.grid(padding=(0, 2), pad_edge=False)
    grid.add_column(no_wrap=True)
    for _ in ("value", "origin"):
        grid.add_column(overflow="fold")
    for name, value in facts.items():
        grid.add_row(name.replace("_", " "), spell(value), origins.get(name, ""))
    return grid


def _parameters(request: Request) -> dict[str, Any]:
    """What tells this table from others of its kind: what is not as always, and what is asked first."""
    usual = _defaults(request.encoding)
    return {
        name: value
        for name, value in request.parameters.items()
        if value is not None
        and _is_short(value)
        and (name in ESSENTIAL or name in request.origins or usual.get(name, REQUIRED) != value)
    }


def _defaults(encoding: str) -> dict[str, Any]:
    if encoding not in CATALOGUE:
        return {}
    return {name: p.default for name, p in signature(load(encoding)).parameters.items()}


def _is_short(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool, tuple))
