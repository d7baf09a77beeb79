"""The summary at a terminal of a table that was made, of the tensors of a file, and of a configuration.

Of a table: what it is, its numbers and its picture; of a configuration: each table of its model, where the values came
from, and its wavelengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli import heatmap
from pe_cli.catalogue import CATALOGUE, load
from pe_cli.errors import counted, one_line, ordinal
from pe_cli.numerics import statistics
from pe_cli.process import size
from pe_cli.render import INDENT, can_print, console, in_lines, spell, telling, wants_colour

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from pe_cli.inspect import FileReport, TensorReport
    from pe_cli.tables import Request

PICTURE_ROWS = 24
SAMPLE_ROWS = 512
ESSENTIAL = frozenset({"dim", "heads", "base", "style", "scheme", "form", "layout", "dtype", "norm", "q"})
REQUIRED = object()
SMALL = 8  # rows and columns of a table whose numbers are printed
# Shades from 0 to the end of the scale, for numbers above 0 and below, in Unicode and without it.
BLOCKS, MINUS = " ░▒▓█", " -=≡≣"
PLAIN, PLAIN_MINUS = " .+#@", " _-=%"
# The scale of `heatmap` in the 256 colours of xterm: blue, white, orange.
RAMP_256 = (25, 32, 74, 110, 153, 231, 223, 215, 208, 172, 130)
WIDEST = 100  # columns of a list
LISTED_FROM = 4  # tensors of a file that are listed before they are shown
SHOWN_PAIRS = 16
HALF_AN_ULP = 0.505  # up to which rounding alone is to blame
OVER_LENGTH = 256  # of the rows chosen from a large table: those that lie over its whole length


def show_table(request: Request) -> None:
    """What `pe gen` prints at a terminal when it writes nothing."""
    out = console()
    table = request.table
    sample, rows = table.sample(SAMPLE_ROWS), picture_rows(out)
    spaced = table.pick(lambda n: np.arange(0, n, heatmap.stride(n, rows)))
    first = table.pick(lambda n: np.arange(min(n, rows)))
    out.print(request.title or request.encoding, style="bold")
    out.print(key_values({**_parameters(request), **telling(table.facts)}, dict(request.origins)))
    for name, spec in table.specs.items():
        show_tensor(out, name, spec.dtype, spec.shape, sample[name], (spaced[name], first[name]))
    out.print("nothing was written: give -o FILE, or send stdout into a pipe", style="dim")


def show_tensor(
    out: Console,
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    sample: NDArray[Any],
    picked: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> None:
    """One tensor: a line of facts, its statistics, and its heat map or, where it is small, its numbers.

    `sample` holds some of its rows, or all; `picked` those that are `picture_rows` steps apart, and the first ones.
    """
    out.print()
    out.print(f"{name}  {dtype}  {list(shape)}", style="bold")
    numbers = statistics.describe(sample)
    out.print(statistics_line(numbers, out.width), style="dim")
    if len(shape) in (1, 2) and max(shape) <= SMALL and sample.shape == shape:
        for line in _number_lines(sample.reshape(-1, shape[-1])):
            out.print(line, no_wrap=True)
        return
    total = shape[-2] if len(shape) > 1 else 1
    if picked is None or picked[0].shape == shape:
        draw(out, sample)
        return
    spaced, first = map(heatmap.as_plane, picked)
    step = heatmap.stride(total, picture_rows(out))
    if len(spaced) != len(range(0, total, step)):  # a table that gives its first rows alone
        spaced, step = first[: picture_rows(out)], 1
    _draw(out, heatmap.choose_rows(spaced, first, _columns(out), row_step=step, rows=total), shape)


def statistics_line(numbers: Mapping[str, Any], width: int) -> str:
    """`min -1  max 1  mean 0.2 …`, broken between the numbers where a line of `width` does not hold them."""
    words = [f"{key} {numbers[key]:.4g}" for key in ("min", "max", "mean", "std") if key in numbers]
    words += [f"{key} {numbers[key]}" for key in ("zeros", "nan", "infinite") if numbers.get(key)]
    if "row_norm" in numbers:
        norm = numbers["row_norm"]
        words.append(f"row norm {norm['min']:.4g} / {norm['median']:.4g} / {norm['max']:.4g}")
    return in_lines(words, width)


def draw(out: Console, array: NDArray[Any]) -> None:
    """The heat map of a table, as wide as the terminal allows."""
    plane = heatmap.as_plane(array)
    if plane.size:
        _draw(out, heatmap.excerpt(plane, picture_rows(out), _columns(out)), array.shape)


def picture_rows(out: Console) -> int:
    """How many rows of a table a picture in this terminal holds."""
    return PICTURE_ROWS * 2 if _in_colour(out) else PICTURE_ROWS


def _columns(out: Console) -> int:
    return max(8, min(out.width - 2, 128))


def _in_colour(out: Console) -> bool:
    """Whether the terminal has colours enough for a scale; 16 are not."""
    return wants_colour(out.is_terminal) and out.color_system in ("256", "truecolor") and can_print("▀")


def _draw(out: Console, seen: heatmap.Excerpt, shape: tuple[int, ...]) -> None:
    low, high = heatmap.limits(seen.cells)
    if _in_colour(out):
        for line in _colour_lines(seen.cells, exact=out.color_system == "truecolor"):
            out.print(line, no_wrap=True, crop=True)
    else:
        for text in _text_lines(seen.cells, unicode=can_print(BLOCKS + MINUS)):
            out.print(text, no_wrap=True, crop=True)
    out.print(_legend(out, low, high))
    beyond = np.abs(seen.cells[np.isfinite(seen.cells)])
    clipped = "; some lie beyond" if beyond.size and beyond.max() > max(-low, high) else ""
    layers = shape[:-2] if len(shape) > 2 else ()
    which = f"; the first of {' x '.join(map(str, layers))} such tables" if layers else ""
    out.print(f"{seen.caption()}{which}{clipped}", style="dim")


def _legend(out: Console, low: float, high: float) -> Text:
    """The ends of the scale with their colours or signs."""
    from rich.style import Style
    from rich.text import Text

    if not _in_colour(out):
        unicode = can_print(BLOCKS + MINUS)
        positive, negative = (BLOCKS, MINUS) if unicode else (PLAIN, PLAIN_MINUS)
        if low < 0 < high:
            return Text(f"{low:.3g} {negative[:0:-1]}  0  {positive[1:]} {high:.3g}", style="dim")
        start, end = (low, high) if high > 0 else (0.0, low)
        return Text(f"{start:.3g} blank, {positive[1:]} {end:.3g}", style="dim")
    ramp = np.linspace(low, high, 11).reshape(1, -1)
    text = Text(f"{low:.3g} ", style="dim")
    for colour in _names(ramp, exact=out.color_system == "truecolor")[0]:
        text.append("  ", Style(bgcolor=colour))
    return text.append(f" {high:.3g}", style="dim")


def _names(plane: NDArray[np.float64], *, exact: bool) -> list[list[str]]:
    """The colour of each cell as rich calls it."""
    if exact:
        return [["rgb({},{},{})".format(*cell) for cell in row] for row in heatmap.colours(plane).tolist()]
    low, high = heatmap.limits(plane)
    span = high - low or 1.0
    share = (np.clip(np.nan_to_num(plane, nan=0.0), low, high) - low) / span
    if not low < 0 < high:  # one half of the scale, its light end at the value nearest to 0
        share = 0.5 + share / 2 if high > 0 else share / 2
    steps = np.rint(share * (len(RAMP_256) - 1)).astype(int)
    known = np.isfinite(plane)
    return [
        [f"color({RAMP_256[step]})" if fine else "color(244)" for step, fine in zip(row, whole, strict=True)]
        for row, whole in zip(steps.tolist(), known.tolist(), strict=True)
    ]


def _number_lines(plane: NDArray[Any]) -> list[str]:
    """The numbers of a small table, aligned."""
    values = plane if plane.dtype.kind == "c" else plane.astype(np.float64)
    words = [[f"{value:.4g}" for value in row] for row in values.tolist()]
    width = max((len(word) for row in words for word in row), default=0)
    return ["  ".join(word.rjust(width) for word in row) for row in words]


def _colour_lines(plane: NDArray[np.float64], *, exact: bool) -> list[Text]:
    """Lines of half blocks, two rows of cells in each."""
    from rich.style import Style
    from rich.text import Text

    names = _names(plane, exact=exact)
    lines = []
    for top in range(0, len(names), 2):
        line = Text()
        lower = names[top + 1] if top + 1 < len(names) else [None] * plane.shape[1]
        for upper, under in zip(names[top], lower, strict=True):
            line.append("▀", Style(color=upper, bgcolor=under))
        lines.append(line)
    return lines


def _text_lines(plane: NDArray[np.float64], *, unicode: bool) -> list[str]:
    """Lines of shades: from blank at zero to full; where both signs occur, minus has signs of its own."""
    low, high = heatmap.limits(plane)
    span = max(-low, high) or 1.0
    shades, minus = (BLOCKS, MINUS) if unicode else (PLAIN, PLAIN_MINUS)
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
        for name, value in _flat(request.parameters).items()
        if value is not None
        and _is_short(value)
        and (name in ESSENTIAL or name in request.origins or usual.get(name, REQUIRED) != value)
    }


def _flat(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Of several tables in one, which keep theirs under a label, `LABEL.NAME`."""
    flat: dict[str, Any] = {}
    for name, value in parameters.items():
        below = value.items() if isinstance(value, Mapping) else ()
        flat |= {f"{name}.{key}": one for key, one in below} or {name: value}
    return flat


def _defaults(encoding: str) -> dict[str, Any]:
    if encoding not in CATALOGUE:
        return {}
    return {name: p.default for name, p in signature(load(encoding)).parameters.items()}


def _is_short(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool, tuple))


# -- files and configurations -------------------------------------------------------------------------------------


def show_file(report: FileReport) -> None:
    """Print the whole report."""
    out = console()
    total = sum(tensor.spec.nbytes for tensor in report.tensors)
    many = counted(len(report.tensors), "tensor", "tensors")
    out.print(f"{report.label}: {report.format}, {many}, {size(total)}", style="bold")
    if report.made_by:
        out.print(f"made by: {report.made_by.get('command')}")
    for name, where in report.links.items():
        out.print(f"{name} is a link to {where}, which is not followed", style="dim")
    for name, where in report.same_as.items():
        out.print(f"{name} is the same as {where}", style="dim")
    said = (report.made_by or {}).get("encoding")
    carrying = any(tensor.role or _encoding(tensor) for tensor in report.tensors)
    shown = [tensor for tensor in report.tensors if not carrying or _may_carry(tensor)]
    rest = [tensor for tensor in report.tensors if carrying and not _may_carry(tensor)]
    listed = all(tensor.values is None for tensor in report.tensors) or len(report.tensors) > LISTED_FROM
    if listed and shown:
        _list(out, shown)
        if rest:
            many = counted(len(rest), "tensor that holds", "tensors that hold")
            out.print(f"and {many} no positions", style="dim")
    if said:
        shown, rest = report.tensors, []
    for tensor in shown:
        if tensor.not_read is not None:
            out.print()
            _title(out, tensor)
            out.print(f"values not read: {tensor.not_read}", style="dim")
        elif tensor.values is not None:
            _show_tensor(out, tensor, said if said in CATALOGUE else None)
    if rest and not listed:
        out.print()
        names = ", ".join(one_line(tensor.spec.name) for tensor in rest)
        out.print(f"no positions are seen in {names}", style="dim")


def _may_carry(tensor: TensorReport) -> bool:
    """Whether a tensor carries positions, by its name or its numbers, or was not read, so that it may."""
    return bool(tensor.role or _encoding(tensor) or tensor.not_read)


def _encoding(tensor: TensorReport) -> str | None:
    """What the numbers are."""
    return tensor.identified.encoding if tensor.identified is not None else None


def _list(out: Console, tensors: Sequence[TensorReport]) -> None:
    """A line for each tensor; where the terminal is too narrow for that, its name and what it is below it."""
    rows = []
    for tensor in tensors:
        spec = tensor.spec
        what = f"{tensor.role.encoding}: {tensor.role.role}" if tensor.role else _encoding(tensor) or ""
        rows.append((one_line(spec.name), spec.dtype, str(list(spec.shape)), size(spec.nbytes), what))
    headings = ("tensor", "dtype", "shape", "size", "what it is")
    from rich.cells import cell_len
    from rich.text import Text

    widths = [min(max(map(cell_len, column)), WIDEST) for column in zip(headings, *rows, strict=True)]
    if sum(widths) + 2 * len(widths) - 2 > out.width:
        below = TextWrapper(out.width, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT)
        lines = [f"{name}\n{below.fill('  '.join(facts))}" for name, *facts in rows]
    else:
        lines = [
            "  ".join(cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
            for row in (headings, *rows)
        ]
    out.print(Text("\n".join(lines)), soft_wrap=True)


def _title(out: Console, tensor: TensorReport) -> None:
    spec = tensor.spec
    out.print(f"{spec.name or 'table'}  {spec.dtype}  {list(spec.shape)}", style="bold")


def _show_tensor(out: Console, tensor: TensorReport, said: str | None) -> None:
    assert tensor.values is not None
    out.print()
    _title(out, tensor)
    if tensor.rows_read is not None:
        out.print(f"looked at {counted(tensor.rows_read, 'row', 'rows')} over its length", style="dim")
    if tensor.statistics:
        out.print(statistics_line(tensor.statistics, out.width), style="dim")
        lags = tensor.statistics.get("similarity")
        if lags:
            words = [f"{lag}: {value:.3f}" for lag, value in lags.items()]
            out.print(in_lines(["mean cosine of rows by distance", *words], out.width), style="dim")
    out.print(key_values(_identity(tensor, said), {}))
    draw(out, tensor.values if tensor.numbers is None else tensor.values[-OVER_LENGTH:])


def _identity(tensor: TensorReport, said: str | None) -> dict[str, Any]:
    found = tensor.identified
    if found is None or found.encoding is None:
        if said:
            return {"encoding": f"{said}, as the file says; its numbers alone do not tell"}
        told = {key: spell(value) for key, value in found.to_dict().items()} if found else {}
        maybe = told.pop("maybe", "")
        told["encoding"] = "no formula gives this table"
        return told | ({"it could be": maybe} if maybe else {})
    if said and found.encoding != said:
        return {
            "encoding": f"{said}, as the file says",
            "numbers": f"alone they look like {found.encoding}",
        }
    told = found.to_dict()
    precision, most = told.pop("precision", None), told.pop("max_abs", None)
    if told.pop("residual", None) is not None and found.residual is not None:
        off = f"at most {found.residual:.3g} ulp{'' if most is None else f', {most:.3g},'} from the formula"
        correct = (
            f"correctly rounded to {precision}, " if found.residual <= HALF_AN_ULP else f"in {precision} "
        )
        told["accuracy"] = correct + off if precision else "every number is that of the formula"
    return {key: spell(value) for key, value in told.items()}


def show_model(report: Mapping[str, Any]) -> None:
    """Print the whole report of `models.describe.inspect_config`."""
    out = console()
    out.print(f"{report['file']}: {report['model_type'] or 'a model'}", style="bold")
    for table in report["tables"]:
        out.print()
        if "parameters" not in table:
            out.print(table.get("note") or table["error"])
        else:
            _show_model_table(out, table)
    if report.get("tensors"):
        out.print()
        out.print("position tensors in the checkpoint", style="bold")
        for tensor in report["tensors"]:
            what = f"{tensor['encoding']}: {tensor['role']}"
            out.print(
                f"{tensor['file']}:{tensor['name']}  {tensor['dtype']} {tensor['shape']}  {what}",
            )
    for finding in report.get("findings", ()):
        out.print()
        out.print(f"contradiction: {finding['what']}", style="bold")
        out.print(
            f"  between {' and '.join(finding['where'])}"
            if len(finding["where"]) > 1
            else f"  in {finding['where'][0]}"
        )


def _show_model_table(out: Console, table: Mapping[str, Any]) -> None:
    where = ", ".join(table[key] for key in ("component", "layer_type") if table[key])
    out.print(f"{table['encoding']}{f' of {where}' if where else ''}", style="bold")
    out.print(key_values(table["parameters"], table["origins"]))
    for warning in table["warnings"]:
        out.print(f"warning: {warning}", style="bold")
    for note in table["notes"]:
        out.print(f"note: {note}", style="dim")
    for extra in table["side_tables"]:
        out.print(f"beside it: {extra['summary']} (pe gen model … --table {extra['name']})")
    if table["rotary"]:
        _show_rotation(out, table)


def _show_rotation(out: Console, table: Mapping[str, Any]) -> None:
    rotary = table["rotary"]
    facts = {
        "pairs": f"{rotary['kept']} kept, {rotary['interpolated']} interpolated, {rotary['still']} that do not turn",
        "attention factor": rotary["attention_factor"],
        **rotary["facts"],
    }
    if table["trained_length"]:
        facts["trained length"] = f"{table['trained_length']} ({table['trained_origin']})"
        facts["complete turns"] = (
            f"{rotary['complete_turns']} pairs turn at least once within the trained length"
        )
    if table["max_position"]:
        facts["max position"] = table["max_position"]
    out.print(key_values(facts, {}))
    if rotary.get("leaves_trained_range") is not None:
        out.print(
            f"from position {rotary['leaves_trained_range']:.0f} on, pair {rotary['leaving_pair']} meets angles that "
            f"training has not shown it, if the trained length is {table['trained_length']}",
        )
    _list_pairs(out, rotary["pairs"])


def _list_pairs(out: Console, pairs: list[Mapping[str, Any]]) -> None:
    from rich.table import Table as RichTable

    grid = RichTable(box=None, pad_edge=False, header_style="bold")
    for heading in ("pair", "wavelength", "unscaled", "divided by", "turns in training"):
        grid.add_column(heading, justify="right")
    step = max(1, -(-len(pairs) // SHOWN_PAIRS))
    for index in sorted({*range(0, len(pairs), step), len(pairs) - 1}):
        pair = pairs[index]
        cells = (pair["wavelength"], pair["unscaled_wavelength"], pair["divided_by"], pair["turns"])
        grid.add_row(str(index), *("" if cell is None else f"{cell:.5g}" for cell in cells))
    out.print(grid)
    if step > 1:
        out.print(f"every {ordinal(step)} of {len(pairs)} pairs; all of them with --json", style="dim")
