"""How `diff` shows what it found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import counted, option_name, ordinal
from pe_cli.render import can_print, console, spell

if TYPE_CHECKING:
    from rich.console import Console

    from pe_cli.diff import Difference, Report
    from pe_cli.diff.metrics import Metrics
    from pe_cli.diff.verify import Reason

LEVELS = "▁▂▃▄▅▆▇█"
ASCII_LEVELS = "_-=+*%#@"
NOTHING, ASCII_NOTHING = "·", "."
DECADES = 6  # of the largest difference, that a bar's height spans
MANY = 8  # pairs up to which those that are the same are listed too
NARROWEST, WIDEST = 8, 64  # blocks in a sparkline
LISTED = 8  # rows or entries that a sentence names


def show(report: Report, *, explained: bool = True) -> None:
    """On stdout: the verdict, the numbers, the shape of the error, the causes."""
    out = console()
    out.print(f"a  {report.labels[0]}", style="dim")
    out.print(f"b  {report.labels[1]}", style="dim")
    if report.equal:
        exact = all(pair.metrics is not None and pair.metrics.equal_bytes for pair in report.pairs)
        out.print(
            "same, byte for byte" if exact else f"same, by the rule {report.tolerance.rule}", style="bold"
        )
    else:
        out.print(f"differ, by the rule {report.tolerance.rule}", style="bold")
    for cause in report.names:
        out.print(f"why  {sentence(cause)}", style="bold")
    counts_same = len(report.pairs) > MANY
    for pair in report.pairs:
        if not (counts_same and pair.equal):
            _show_pair(out, pair, named=len(report.pairs) > 1, explained=explained)
    if counts_same:
        same = sum(pair.equal for pair in report.pairs)
        out.print(f"{counted(same, 'tensor is', 'tensors are')} the same")
    for side, names in (("a", report.only_a), ("b", report.only_b)):
        names = [name for name in names if name]
        if names:
            out.print(
                f"only in {side}: {', '.join(names[:8])}{f' and {len(names) - 8} more' if len(names) > 8 else ''}"
            )


def _show_pair(out: Console, pair: Difference, *, named: bool, explained: bool) -> None:
    if pair.a is not None and pair.b is not None and (named or not pair.same_shape):
        shapes = f"{_shape(pair.a.shape)} {pair.a.dtype}"
        if (pair.a.shape, pair.a.dtype) != (pair.b.shape, pair.b.dtype):
            shapes += f" against {_shape(pair.b.shape)} {pair.b.dtype}"
        out.print(f"{pair.a.name + '  ' if pair.a.name else ''}{shapes}{'  same' if pair.equal else ''}")
    if pair.metrics is not None and pair.metrics.differing:
        _show_numbers(out, pair.metrics)
    explanation = pair.explanation
    if not pair.equal:
        for cause in explanation.causes:
            out.print(f"why  {sentence(cause)}", style="bold")
        if explanation.causes and not explanation.explained:
            out.print("     and more, for which no change that is known accounts")
        if (
            explained
            and not explanation.causes
            and not explanation.explained
            and (pair.sides or pair.a is None)
        ):
            out.print("why  no change that is known makes them agree")
    if explanation.parting:
        parting = explanation.parting
        out.print(
            f"from position {spell(parting['position'])} on (row {spell(parting['row'])}) the angles of pair "
            f"{parting['pair']} are more than 0.1 radians apart"
        )
    for note in explanation.notes:
        out.print(note, style="dim")


def sentence(cause: Reason) -> str:
    """What to change, on which side, and what is then left."""
    told = cause.to_dict()
    text = SENTENCES.get(cause.cause, _in_general)(told["a"], told["b"], told)
    if told.get("ambiguous"):
        text += f" (or: {'; '.join(dict.fromkeys(told['ambiguous'][:2]))})"
    left = cause.residual_after
    return (
        text if left is None else f"{text}; then {'nothing' if left == 0 else f'at most {left:.3g}'} is left"
    )


Facts = dict[str, Any]


def _in_general(a: Facts, b: Facts, told: Facts) -> str:
    facts = {
        k: v
        for k, v in told.items()
        if k not in ("cause", "a", "b", "residual_after", "ambiguous", "shared_rows")
    }
    return f"{told['cause']}: a has {_facts(a)}, b has {_facts(b)}{f' ({_facts(facts)})' if facts else ''}"


def _facts(facts: Facts) -> str:
    return (
        ", ".join(f"{name.replace('_', ' ')} {_value(value)}" for name, value in facts.items())
        or "what is usual"
    )


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return _list(value)
    return str(spell(value))


def _list(values: list[Any]) -> str:
    shown = [str(tuple(v)) if isinstance(v, list) else str(spell(v)) for v in values[:LISTED]]
    return ", ".join(shown) + (f" and {len(values) - LISTED} more" if len(values) > LISTED else "")


def _side(a: Facts, b: Facts, name: str, usual: Any) -> str:
    """Which side has what is not usual."""
    return "a" if a.get(name) != usual else "b"


def _parameter(a: Facts, b: Facts, told: Facts) -> str:
    changed = [name for name in b if a.get(name) != b[name]]
    options = " ".join(
        f"{option_name(name)} {spell(b[name])}" for name in changed if not isinstance(b[name], (list, bool))
    )
    remedy = f": make a with {options}" if options and "name" not in b else ""
    return f"a has {_facts(a)}, b has {_facts(b)}{remedy}"


def _shift(a: Facts, b: Facts, told: Facts) -> str:
    pairs = "n" if b["shift"] == 0 else f"(n - {spell(b['shift'])})"
    return (
        f"a has frequency shift {spell(a['shift'])}, b has {spell(b['shift'])}: the frequency of pair i of n is "
        f"base^(-i / {pairs}) in b (sinusoids of style paper have shift 0, of style t2t 1)"
    )


def _of_one_encoding(a: Facts, b: Facts, told: Facts) -> str:
    alike = {name: value for name, value in a.items() if name in b and b[name] == value}
    sides = [{name: value for name, value in side.items() if name not in alike} for side in (a, b)]
    same = f" ({_facts(alike)} in both)" if alike else ""
    return f"both are {told.get('encoding')}: a with {_facts(sides[0])}, b with {_facts(sides[1])}{same}"


def _scaling(a: Facts, b: Facts, told: Facts) -> str:
    if a.get("scaling") == "none":
        return f"b scales its frequencies ({_facts(b)}), a does not: scale a, or make b without"
    if b.get("scaling") == "none":
        return f"a scales its frequencies ({_facts(a)}), b does not: make a without scaling"
    return f"the frequencies are scaled in two ways: a by {_facts(a)}, b by {_facts(b)}"


def _reshaped(a: Facts, b: Facts, told: Facts) -> str:
    shapes = f"a is {_shape(a['shape'])}, b is {_shape(b['shape'])}"
    if prod(a["shape"]) == prod(b["shape"]):
        return f"the same numbers in another shape: {shapes}; reshape a"
    return f"the rows have another shape: {shapes}; reshape the rows of a"


def _positions(a: Facts, b: Facts, told: Facts) -> str:
    side, rule = _side(a, b, "positions", "count up"), told.get("rule")
    first, last, count = told.get("first"), told.get("last"), told.get("count")
    if rule == "restart":
        starts = told["restarts"]
        rows = "row" if len(starts) == 1 else "rows"
        return f"positions of {side} start again at {rows} {_list(starts)} (packed documents?)"
    if rule == "clamp":
        return f"positions of {side} stop at {last}: from row {first} on all rows repeat row {last}"
    if rule in ("bfloat16", "float16"):
        return f"{side} counts positions in {rule}: from row {first} on they are rounded ({counted(count or 0, 'row', 'rows')})"
    if rule in ("int8", "int16"):
        return f"{side} counts positions in {rule}: from row {first} on they wrap around"
    if rule == "stride":
        return f"positions grow by {spell(a.get('stride'))} a row in a, and by {spell(b.get('stride'))} in b"
    return f"positions of {side} do not count up: rows {first} to {last}, {counted(count or 0, 'row differs', 'rows differ')}"


def _offset(a: Facts, b: Facts, told: Facts) -> str:
    if "start" in a or "start" in b:
        return f"a starts at position {spell(a['start'])}, b at {spell(b['start'])}: shift the positions of a by {spell(told['rows'])}"
    rows = told["rows"]
    return f"row r of b is row r {'+' if rows > 0 else '-'} {abs(rows)} of a: leave out the first {abs(rows)} rows of {'a' if rows > 0 else 'b'}"


def _rows(a: Facts, b: Facts, told: Facts) -> str:
    first, last, count = told["first"], told["last"], told["count"]
    if "rows" in a and "rows" in b:
        longer = "a" if a["rows"] > b["rows"] else "b"
        if told.get("every"):
            other = "b" if longer == "a" else "a"
            return f"{other} holds every {ordinal(told['every'])} row of {longer}, from row 0 on"
        if first != min(a["rows"], b["rows"]):
            if count == 1:
                return f"{longer} has row {first} more, and all others agree: leave it out"
            return f"{longer} has {count} rows more between rows {first} and {last}, and all others agree: leave them out"
        return f"{longer} has {counted(count, 'row', 'rows')} more at its end ({_span(told)})"
    return f"{_span(told)} {'differs' if count == 1 else 'differ'}, and all others agree"


def _span(told: Facts) -> str:
    """The rows of a cause: one, all from the first to the last, or so many between these."""
    first, last, count = told["first"], told["last"], told["count"]
    if count == 1:
        return f"row {first}"
    return (
        f"rows {first} to {last}" if last - first + 1 == count else f"{count} rows between {first} and {last}"
    )


def _entries(a: Facts, b: Facts, told: Facts) -> str:
    if told.get("columns"):
        return f"{counted(told['count'], 'entry differs', 'entries differ')}, in the columns {_list(told['columns'])}; all others agree"
    where = _list(told["at"])
    return f"{counted(told['count'], 'entry differs', 'entries differ')}, at {where}; all others agree"


def _mask(a: Facts, b: Facts, told: Facts) -> str:
    sides = [(name, side) for name, side in (("a", a), ("b", b)) if side.get("masked") != "none"]
    if len(sides) == 2:
        return f"both mask {counted(told['count'], 'entry', 'entries')}: a with {spell(a['masked'])}, b with {spell(b['masked'])}"
    name, side = sides[0]
    pattern = (
        "keys after their query"
        if side.get("pattern") == "causal"
        else counted(told["count"], "entry", "entries")
    )
    return f"{name} masks {pattern} with {spell(side['masked'])}, the other does not"


def _zeros(a: Facts, b: Facts, told: Facts) -> str:
    if told.get("inserted"):
        side = "a" if len(a.get("zero_rows", [])) > len(b.get("zero_rows", [])) else "b"
        return f"{side} has {counted(told['count'], 'row', 'rows')} of zeros more, from row {told['first']} on: leave them out"
    side = "a" if a.get("rows") == "zeros" else "b"
    return f"{_span(told)} of {side} {'holds' if told['count'] == 1 else 'hold'} zeros"


def _layout(a: Facts, b: Facts, told: Facts) -> str:
    if not (a.get("layout") and b.get("layout")):
        return "the columns lie in another order"
    return f"the columns lie in another order: a is {a['layout']}, b is {b['layout']}; use --layout {b['layout']} for a"


def _sign(a: Facts, b: Facts, told: Facts) -> str:
    of = told.get("of", "columns")
    what = {"all": "all numbers", "columns": f"the columns {_list(told.get('columns', []))}"}.get(
        of, f"the {of}"
    )
    return f"{what} have the opposite sign: negate them in a"


def _rounding(a: Facts, b: Facts, told: Facts) -> str:
    if told.get("of") == "frequencies" or "angles" in a:
        return f"the frequencies are rounded in one of them: a {_facts(a)}, b {_facts(b)}"
    if told.get("of") == "numbers cut off":
        return f"a holds numbers of {a.get('dtype')}, b of {b.get('dtype')}: the lower bits were cut off instead of rounded"
    return f"a holds numbers of {a.get('dtype')}, b of {b.get('dtype')}"


def _angles(a: Facts, b: Facts, told: Facts) -> str:
    side = "a" if a.get("angles") != "exact" else "b"
    kind = told["cause"].removesuffix("-angles")
    return f"{side} computed position times frequency in {kind}; compute it in float64, or the other with --compute {kind}"


SENTENCES: dict[str, Callable[[Facts, Facts, Facts], str]] = {
    "names": lambda a, b, told: f"tensor {a['name']!r} of a is called {b['name']!r} in b",
    "shape": _reshaped,
    "transpose": lambda a, b, told: "rows and columns are exchanged: transpose a",
    "layout": _layout,
    "swap-sin-cos": lambda a, b, told: "sines stand where b has cosines: exchange them in a",
    "axes": lambda a, b, told: (
        f"the axes are exchanged: a has {_facts(a)}, b has {_facts(b)}"
        if a or b
        else "the halves of the columns belong to the other axis: exchange the two halves of a"
    ),
    "sign": _sign,
    "eigenvector-sign": lambda a, b, told: (
        f"eigenvectors {_list(told['columns'])} have the other sign, which is free"
    ),
    "amplitude": lambda a, b, told: f"b is a times {spell(told['ratio'])}",
    "base": _parameter,
    "frequency-shift": _shift,
    "factor": _parameter,
    "width": _parameter,
    "scaling": _scaling,
    "sections": lambda a, b, told: f"pairs belong to other axes: a has sections {_facts(a)}, b {_facts(b)}",
    "offset": _offset,
    "positions": _positions,
    "permutation": lambda a, b, told: (
        f"the {told['of']} are in the reverse order"
        if told.get("reversed")
        else f"the {told['of']} are in another order"
        + (f" ({told['moved']} of them elsewhere)" if "moved" in told else "")
    ),
    "padding-row": _zeros,
    "rows": _rows,
    "entries": _entries,
    "mask": _mask,
    "parameters": _of_one_encoding,
    "resampled": lambda a, b, told: (
        f"{'a' if told['direction'] == 'b to a' else 'b'} is the other resampled by {told['method']} from {min(a['rows'], b['rows']) if told['direction'] == ('a to b' if a['rows'] < b['rows'] else 'b to a') else max(a['rows'], b['rows'])} rows"
    ),
    "dtype-rounding": _rounding,
    "float32-angles": _angles,
    "bfloat16-angles": _angles,
    "float16-angles": _angles,
}


def _shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "scalar"


def _show_numbers(out: Console, m: Metrics) -> None:
    total = m.rows * m.columns
    lines = [
        ("outside", f"{m.outside} of {total} ({100 * m.outside / max(total, 1):.3g} %)"),
        ("largest |a-b|", f"{m.max_abs:.6g}{_at(m.max_abs_at)}, mean {m.mean_abs:.3g}"),
        ("largest |a-b|/|b|", f"{m.max_rel:.6g}{_at(m.max_rel_at)}"),
        ("largest in ulp", f"{m.max_ulp} of {m.dtype}{_at(m.max_ulp_at)}"),
    ]
    if m.max_cosine_at is not None:
        lines.append(("largest 1-cos", f"{m.max_cosine_distance:.3g} in row {m.max_cosine_at}"))
    if m.nan_a or m.nan_b:
        lines.append(("NaN", f"{m.nan_a} in a, {m.nan_b} in b, {m.nan_unmatched} without the other"))
    if not m.nan_unmatched:
        lines.append(("would pass with", f"--atol {m.needed_atol:.9g}"))
    for name, text in lines:
        out.print(f"{name:18} {text}")
    for name, values in (("error by position", m.by_position), ("error by column", m.by_column)):
        if len(values) > 1:
            scale = f"up to {float(np.max(values)):.3g}, logarithmic"
            room = max(NARROWEST, out.width - 21 - len(scale))
            out.print(f"{name:18} {sparkline(values, min(room, WIDEST))}  {scale}")


def _at(place: tuple[int, int] | None) -> str:
    return "" if place is None else f" at row {place[0]}, column {place[1]}"


def sparkline(values: NDArray[np.float64], width: int) -> str:
    """A line of blocks, each as high as the logarithm of the largest of its values: a dot where there is nothing."""
    if len(values) > width:
        values = np.array([part.max() for part in np.array_split(values, width)])
    plain = can_print(LEVELS + NOTHING)
    levels, nothing = (LEVELS, NOTHING) if plain else (ASCII_LEVELS, ASCII_NOTHING)
    finite = values[np.isfinite(values)]
    top = float(np.max(finite, initial=0.0))
    made = []
    for value in values:
        if value == 0:
            made.append(nothing)
        elif not np.isfinite(value) or top == 0:
            made.append(levels[-1])
        else:
            height = 1 + np.log10(value / top) / DECADES
            made.append(levels[int(np.clip(np.ceil(height * len(levels)) - 1, 0, len(levels) - 1))])
    return "".join(made)
