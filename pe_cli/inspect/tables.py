"""A table of numbers by position: where cosines and sines lie in its columns, and which fixed encoding it is, if any."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.inspect.laws import (
    ROUND_DIGITS,
    as_rounded,
    digits_of,
    rounded_geometric,
    roundest,
    unknown_law,
    written,
)
from pe_cli.inspect.result import (
    Array,
    Identified,
    Law,
    NonzeroRows,
    Precision,
    Reading,
    Solution,
    stored_precision,
    tidy,
)
from pe_cli.inspect.rotation import (
    GLANCE,
    Rotation,
    constant_amplitude,
    rotation,
    rotation_of_component,
    rounded_angles,
)
from pe_cli.inspect.sinusoids import layout_reading, solve, solve_with, usable_pairs

ABSENT = -1
Columns = NDArray[np.intp]


@dataclass(frozen=True)
class Arrangement:
    """`cos` and `sin` give for each pair its column, or ABSENT where an odd width has dropped it."""

    name: str
    cos: Columns
    sin: Columns

    @property
    def pairs(self) -> int:
        return len(self.cos)


def _interleaved(first: Columns, second: Columns) -> Columns:
    return np.concatenate([second, [ABSENT]]) if len(second) < len(first) else second


def _alternating(width: int) -> tuple[Columns, Columns]:
    first = np.arange(0, width, 2)
    return first, _interleaved(first, np.arange(1, width, 2))


def _blocks(width: int) -> tuple[Columns, Columns]:
    long = -(-width // 2)
    first = np.arange(long)
    return first, _interleaved(first, np.arange(long, width))


def _padded_blocks(width: int) -> tuple[Columns, Columns]:
    """Odd width, last column zero."""
    return np.arange(width // 2), np.arange(width // 2, width // 2 * 2)


SplitRule = Callable[[int], tuple[Columns, Columns]]
RULES: dict[str, tuple[SplitRule, bool]] = {
    "sin,cos alternating": (_alternating, True),
    "cos,sin alternating": (_alternating, False),
    "sin|cos": (_blocks, True),
    "cos|sin": (_blocks, False),
    "sin|cos|0": (_padded_blocks, True),
    "cos|sin|0": (_padded_blocks, False),
}


def arrangements(width: int) -> Iterator[Arrangement]:
    """Every way in which `width` columns hold pairs of cosine and sine."""
    for name, (rule, sin_first) in RULES.items():
        if name.endswith("0") and (width % 2 == 0 or width < 3):
            continue
        first, second = rule(width)
        yield Arrangement(name, second, first) if sin_first else Arrangement(name, first, second)


def pick(table: NDArray[Any], columns: Columns) -> NDArray[np.float64]:
    """The chosen columns [n, m] in float64, NaN where there is none."""
    taken = table[:, np.maximum(columns, 0)].astype(np.float64)
    taken[:, columns == ABSENT] = np.nan
    return taken


def turning_pairs(
    table: NDArray[Any], arrangement: Arrangement, precision: Precision
) -> tuple[Array, Array] | None:
    """Cosines and sines [n, m] where their squares add up to one number; a few rows and pairs refuse what is none."""
    rows, pairs = max(1, len(table) // GLANCE), max(1, arrangement.pairs // GLANCE)
    glances = [(table, arrangement.cos, arrangement.sin)]
    if rows > 1 or pairs > 1:
        glances.insert(0, (table[::rows], arrangement.cos[::pairs], arrangement.sin[::pairs]))
    for part, first, second in glances:
        cos, sin = pick(part, first), pick(part, second)
        if constant_amplitude(cos, sin, precision) is None:
            return None
    return cos, sin


def repeated(table: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    """How a table of cosines (or sines) repeats its values, and each value once.

    `half` [f, f], `adjacent` [f0, f0, f1, f1, ...], `split` without repetition.
    """
    width = table.shape[1]
    if width % 2 == 0 and width >= 4:
        half = width // 2
        if np.array_equal(table[:, :half], table[:, half:]):
            return "half", table[:, :half]
        if np.array_equal(table[:, 0::2], table[:, 1::2]):
            return "adjacent", table[:, 0::2]
    if width == 2 and np.array_equal(table[:, 0], table[:, 1]):
        return "half", table[:, :1]
    return "split", table


# Arrangement of columns, frequency shift: style of `pe gen sinusoidal`
STYLES = {
    ("sin,cos alternating", 0.0): "paper",
    ("sin|cos", 0.0): "paper-cat",
    ("sin|cos", 1.0): "t2t",
    ("cos|sin", 1.0): "t2t-cossin",
    ("cos|sin", 0.0): "diffusion",
    ("sin|cos|0", 1.0): "t2t",
    ("cos|sin|0", 1.0): "t2t-cossin",
    ("sin|cos|0", 0.0): "paper-cat",
    ("cos|sin|0", 0.0): "diffusion",
}
LAYOUTS = {"cos,sin alternating": "interleaved", "cos|sin": "cos-sin", "sin|cos": "sin-cos"}
SINUSOIDAL_ONLY = ("sin,cos alternating", "sin|cos|0", "cos|sin|0")
MOST_ROWS = 1 << 16


# How `diff` speaks of an arrangement: where the two parts lie, and which comes first.
COLUMNS = {
    "sin,cos alternating": ("interleaved", "sin-first"),
    "cos,sin alternating": ("interleaved", "cos-first"),
    "sin|cos": ("halves", "sin-first"),
    "cos|sin": ("halves", "cos-first"),
    "sin|cos|0": ("halves", "sin-first"),
    "cos|sin|0": ("halves", "cos-first"),
}


def identify_table(
    table: NDArray[Any], hint: str | None, numbers: Columns | None = None
) -> Identified | None:
    """A table [n, d] that holds cosines and sines in its columns, or cosines or sines alone.

    `numbers` (n,) are those of its rows in the whole table, where they were chosen from a large one.
    """
    if table.dtype.kind == "c":
        return identify_pair(table.real, table.imag, "complex", numbers)
    rows = NonzeroRows.of(table, numbers)
    if rows is None:
        return None
    precision = stored_precision(table)
    way, once = repeated(rows.body)
    if way != "split":
        return _alone(once, way, rows, precision)
    unnamed: Identified | None = None
    named_ones: list[Identified] = []
    for arrangement in arrangements(table.shape[1]):
        if arrangement.name.endswith("|0") and np.any(rows.body[:, -1]):
            continue
        parts = turning_pairs(rows.body, arrangement, precision)
        if parts is None:
            continue
        cos, sin = parts
        found = rotation(cos, sin, precision)
        known = rounded_angles(cos, sin, precision) if rows.numbers is None else None
        if found is not None or known is not None:
            found = replace(found, numbers=rows.numbers) if found is not None else None
            named = _named(arrangement.name, cos, sin, found, known, precision, table.shape[1], rows, hint)
            if named is not None and (named.encoding is not None or named.nearly):
                if _is_plain(named):
                    return named
                named_ones.append(named)
            unnamed = unnamed or named
    if named_ones:
        return named_ones[0]
    from pe_cli.inspect.grids import identify_axes

    return (
        identify_axes(rows.body, precision, rows.before)
        or unnamed
        or _alone(rows.body, "split", rows, precision)
    )


def _is_plain(named: Identified) -> bool:
    """Whether rows begin and step on by numbers that someone wrote down: else another order of the columns may be simpler,
    since sines are cosines that begin elsewhere."""
    solved = None if named.reading is None else named.reading.solved
    return solved is None or (written(solved.start) and written(solved.stride))


def flat_width(values: NDArray[Any]) -> int:
    """The width of a table of pairs of cosine and sine whose rows lie one after the other, by its row of position 0; or 0."""
    if len(values) < 16 or values.dtype.kind not in "fV" or values[0] == 0 or values[1] != 0:
        return 0
    even = values[::2] == values[0]
    pairs = int(np.argmin(even & (values[1::2] == 0))) if len(values) % 2 == 0 else 0
    return 2 * pairs if pairs > 1 and len(values) % (2 * pairs) == 0 else 0


def _named(
    arrangement: str,
    cos: Array,
    sin: Array,
    found: Rotation | None,
    known: Solution | None,
    precision: Precision,
    width: int,
    rows: NonzeroRows,
    hint: str | None,
) -> Identified | None:
    layout = LAYOUTS.get(arrangement)
    sinusoid = arrangement != "cos,sin alternating"
    rope = arrangement not in SINUSOIDAL_ONLY
    if arrangement.endswith("|0"):
        width -= 1
    candidates = [known] if known is not None else []
    if found is not None and not candidates:
        candidates = list(solve(cos, sin, found, precision, width, sinusoid=sinusoid, rope=rope))
    if found is not None and not candidates and arrangement == "sin,cos alternating":
        # no model stores a rotary table like this, yet sines and cosines may have been exchanged
        candidates = list(solve(cos, sin, found, precision, width, sinusoid=False, rope=True))
        layout = "interleaved"
    if not candidates:
        if found is None or not rope or rows.zero:
            return None
        return _unruled(*COLUMNS[arrangement], layout or "interleaved", cos, sin, found, precision)
    if arrangement == "sin,cos alternating" and digits_of(candidates[0].law.base) > 2:
        candidates.sort(key=lambda one: one.shift or 0.0)  # no named style has another shift
    solved = candidates[0]
    style = STYLES.get((arrangement, solved.shift), "paper") if solved.shift is not None else None
    shared = layout if (rope and not solved.shift) or solved.shift is None else None
    encoding, ambiguous = layout_reading(solved, style, shared, hint)
    place = rows.facts(solved)
    if place is None:
        return None
    reading = Reading(
        *COLUMNS[arrangement],
        _complex(cos, sin),
        solved,
        precision,
        tuple(rows.zero),
        rows.before,
        rows.numbers,
    )
    if encoding == "rope":
        if arrangement == "sin,cos alternating":
            place["order"] = "sin-first"
        ambiguous += _other_shift(arrangement, solved) if style else []
        return rope_facts(reading, shared or "interleaved", candidates, place, ambiguous)
    if style == "t2t" and "padding_idx" in place:
        style = "fairseq"
    facts: dict[str, Any] = {"style": style, "layout": shared if ambiguous else None, "dim": width}
    if facts["layout"]:
        facts["scaling"] = "none"
    facts |= {"base": solved.law.base, "shift": solved.shift}
    if solved.amplitude != 1:
        facts["amplitude"] = tidy(solved.amplitude)
    facts |= place
    ambiguous += _other_shift(arrangement, solved)
    if arrangement == "sin,cos alternating" and solved.shift:
        ambiguous.append("no named style alternates columns with a frequency shift of 1")
    return _finished("sinusoidal", facts, reading, ambiguous)


def _other_shift(arrangement: str, solved: Solution) -> list[str]:
    """What the table is with the other frequency shift, where its base does not say which one it is."""
    if solved.shift is None:
        return list(solved.law.ambiguous)
    other = STYLES.get((arrangement, 1.0 - solved.shift))
    notes = list(solved.law.ambiguous)
    pairs = solved.dim / 2
    if not notes and other and pairs > 1:
        base = solved.law.base ** ((pairs - 1 + solved.shift) / (pairs - solved.shift))
        short = roundest(base, 1e-9 * base)
        both_round = digits_of(short) <= ROUND_DIGITS or float(np.log2(short)).is_integer()
        if both_round or digits_of(solved.law.base) > ROUND_DIGITS:
            layout = (
                f", rope layout {LAYOUTS[arrangement]}" if solved.shift and arrangement in LAYOUTS else ""
            )
            notes = [f"base {base:.6g} with a frequency shift of {1 - solved.shift:g}{layout}"]
    return [f"style {other}: {note}" if other else note for note in notes]


def _complex(cos: Array, sin: Array) -> NDArray[np.complex128]:
    """NaN in either part where a column is absent."""
    z = np.empty(cos.shape, np.complex128)
    z.real, z.imag = cos, sin
    return z


MOST_FRONT = 8
SHOWN = 16


def _finished(encoding: str, facts: dict[str, Any], reading: Reading, ambiguous: list[str]) -> Identified:
    """The answer; without a name where rows are left over that the formula does not make."""
    solved = reading.solved
    ambiguous = [*ambiguous, *solved.other_starts]
    if solved.match.exact or not solved.other_starts:
        facts["computed"] = solved.match.arithmetic
    if solved.match.only_frequencies:
        facts["frequency_dtype"] = "float32"
    facts["max_abs"] = tidy(solved.match.max_abs)
    front = solved.front if solved.front <= min(MOST_FRONT, len(solved.positions) // 4) else 0
    left = solved.strangers[front:]
    if not left:
        return Identified(encoding, facts, solved.match.ulps, reading.precision.name, ambiguous, reading)
    numbers = reading.numbers
    rows = [row + reading.before if numbers is None else int(numbers[row]) for row in left]
    shown = ", ".join(map(str, rows[:SHOWN])) + (", ..." if len(rows) > SHOWN else "")
    also = [note.split()[0] for note in ambiguous if note.startswith(("sinusoidal style", "rope layout"))]
    seen = f"{len(solved.positions)} rows" + ("" if numbers is None else " that were read")
    likely = [f"{name}, but for {len(rows)} of {seen}" for name in (encoding, *also)]
    told = {
        key: facts[key] for key in ("style", "layout", "dim", "base", "start") if facts.get(key) is not None
    }
    return Identified(
        None, told | {"rows_that_differ": shown}, precision=reading.precision.name, maybe=likely
    )


def rope_facts(
    reading: Reading, layout: str, candidates: list[Solution], place: dict[str, Any], ambiguous: list[str]
) -> Identified:
    """The answer for a rotary table."""
    solved, law = reading.solved, reading.solved.law
    facts: dict[str, Any] = {"layout": layout, "dim": 2 * len(solved.frequencies)}
    facts |= {"base": law.base} if law.scaling != "unknown" else {}
    facts |= {"scaling": law.scaling} | law.parameters
    if solved.amplitude != 1 or law.scaling in ("yarn", "longrope"):
        facts["attention_factor"] = tidy(solved.amplitude)
    facts |= place
    also = [*ambiguous, *(law.ambiguous if not ambiguous else ())]
    if law.scaling == "none" and law.base != 10000:
        also.append(f"a base of {law.base:.10g}, or NTK scaling of a smaller base")
    for other in candidates[1:]:
        if other.law.scaling != law.scaling:
            step = f" with positions {tidy(other.stride)} apart" if other.stride != solved.stride else ""
            also.append(f"scaling {other.law.scaling}{step}")
    return _finished("rope", facts, reading, list(dict.fromkeys(also)))


def _unruled(
    columns: str, order: str, layout: str, cos: Array, sin: Array, found: Rotation, precision: Precision
) -> Identified | None:
    """A rotation by position whose frequencies follow no rule that is known: factors that were searched."""
    clear = usable_pairs(found)
    first = found.first[~np.isnan(found.first)]
    if len(first) > 2 and np.ptp(first) < 1e-3 < abs(first[0]):
        return None  # one angle for all pairs that is not 0: sines taken for cosines
    if clear < 4 or found.step[0] <= 0 or (np.diff(found.step[:clear]) > 0).any():
        return None
    unit = max(1.0, float(np.round(found.step[0])))
    frequencies = np.where(np.isnan(found.step), 0, found.step) / unit
    cast = rounded_geometric(frequencies)
    if cast is not None:
        law = Law("none", cast[1], unit, parameters={"frequency_dtype": cast[0]})
        for solved in solve_with(
            cos, sin, found, precision, law, list(as_rounded(cast[1], len(frequencies), cast[0]))
        ):
            reading = Reading(columns, order, _complex(cos, sin), solved, precision)
            return rope_facts(reading, layout, [solved], solved.place_facts(), [])
    law, note = unknown_law(frequencies, unit)
    if law.scaling == "longrope":  # its factors are exact, what was measured is not
        plain = law.base ** (-np.arange(len(frequencies)) / len(frequencies))
        frequencies = plain / np.array(law.parameters["factors"])
    alone = np.isnan(cos).all() or np.isnan(sin).all()  # cosines alone may be those of anything
    falls = (frequencies[2:] <= frequencies[:-2]).all() and frequencies[0] <= 1.001 and frequencies[-1] < 0.1
    if clear >= len(found.step) - 1 and falls and not (alone and law.scaling == "unknown"):
        for solved in solve_with(cos, sin, found, precision, law, [float(w) for w in frequencies]):
            reading = Reading(columns, order, _complex(cos, sin), solved, precision)
            return rope_facts(reading, layout, [solved], solved.place_facts(), [note])
    return Identified(  # in which order cosines and sines lie, only a formula tells
        None,
        precision=precision.name,
        maybe=["rope or sinusoidal, of unknown frequencies or positions"],
    )


def identify_component(table: NDArray[Any]) -> Identified | None:
    """A table [n, d] as cosines alone or sines alone."""
    rows = NonzeroRows.of(table, None)
    if rows is None:
        return None
    way, once = repeated(rows.body)
    return _alone(once, way, rows, stored_precision(table))


def identify_pair(
    cos: NDArray[Any], sin: NDArray[Any], layout: str | None, numbers: Columns | None = None
) -> Identified | None:
    """Cosines and sines in two tables [n, m] of one shape; `layout` where it is known to be complex."""
    precision = stored_precision(np.concatenate([cos.reshape(-1)[: 1 << 15], sin.reshape(-1)[: 1 << 15]]))
    if layout is None:
        layout, cos = repeated(cos)
        _, sin = repeated(sin)
        if sin.shape != cos.shape:
            return None
    cos, sin = cos.astype(np.float64), sin.astype(np.float64)
    found = rotation(cos, sin, precision)
    known = rounded_angles(cos, sin, precision) if numbers is None else None
    if known is not None:
        reading = Reading(layout, "", _complex(cos, sin), known, precision)
        return rope_facts(reading, layout, [known], known.place_facts(), [])
    if found is None:
        from pe_cli.inspect.grids import identify_axes

        return identify_axes(np.concatenate([cos, sin], axis=1), precision, 0, layout)
    found = replace(found, numbers=numbers)
    candidates = list(solve(cos, sin, found, precision, 2 * cos.shape[1], sinusoid=False, rope=True))
    if not candidates:
        return _unruled(layout, "", layout, cos, sin, found, precision)
    reading = Reading(layout, "", _complex(cos, sin), candidates[0], precision, numbers=numbers)
    return rope_facts(reading, layout, candidates, candidates[0].place_facts(), [])


def _alone(component: NDArray[Any], way: str, rows: NonzeroRows, precision: Precision) -> Identified | None:
    """Cosines alone or sines alone."""
    if rows.zero and rows.zero != [0]:
        return None
    values = (
        rows.table[:, : component.shape[1]]
        if way == "half"
        else rows.table[:, ::2]
        if way == "adjacent"
        else rows.table
    )
    values = values.astype(np.float64)
    if values.shape[1] < 2:
        return None
    found = rotation_of_component(values, precision)
    if found is None:
        return None
    if rows.numbers is not None and len(rows.numbers) == len(values):
        found = replace(found, numbers=rows.numbers)
    for part, solved in _component_readings(values, found, precision):
        absent = np.full_like(values, np.nan)
        z = _complex(values, absent) if part == "cos" else _complex(absent, values)
        reading = Reading(way, part, z, solved, precision, numbers=found.numbers)
        named = rope_facts(reading, way, [solved], solved.place_facts(), [])
        named.facts["part"] = part
        return named
    for part, cos, sin, turned in _parts(values, found):
        searched = _unruled(way, part, way, cos, sin, turned, precision)
        if searched is not None:
            searched.facts |= {"part": part} if searched.encoding else {}
            return searched
    return None


def _component_readings(
    values: Array, found: Rotation, precision: Precision
) -> Iterator[tuple[str, Solution]]:
    for part, cos, sin, turned in _parts(values, found):
        for solved in solve(cos, sin, turned, precision, 2 * values.shape[1], sinusoid=False, rope=True):
            yield part, solved


def _parts(values: Array, found: Rotation) -> Iterator[tuple[str, Array, Array, Rotation]]:
    """The component read as cosines, and as sines, likelier first."""
    absent = np.full_like(values, np.nan)
    readings = [("cos", values, absent, found.first), ("sin", absent, values, found.first + np.pi / 2)]
    if not np.any(values[0]):
        readings.reverse()
    for part, cos, sin, first in readings:
        sure = found.step * len(values) > 0.5
        turned = replace(found, first=np.where(sure, np.angle(np.exp(1j * first)), np.nan))
        yield part, cos, sin, turned
