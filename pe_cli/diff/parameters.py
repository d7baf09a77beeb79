"""Two tables read as turning pairs: in what they differ, as steps that turn the one into the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.diff.operands import Array, Operand, Rearranged, Rows, Viewed
from pe_cli.diff.turning import (
    COS,
    PARAMETERS,
    SIN,
    ZERO,
    ColumnPlan,
    Turning,
    frequencies_of,
    own_magnitude,
    place_changes,
)
from pe_cli.diff.verify import LISTED, Extra, Pair, Reason, Step, largest
from pe_cli.errors import PeError
from pe_cli.inspect.laws import digits_of, roundest
from pe_cli.inspect.result import tidy

CLOSE = 3e-6
HUGE = 1e6  # a divisor of frequencies that nobody chose
TELLING = 8  # divisors: fewer are those of many scalings
ROUND_DIGITS = 4  # of a base that somebody chose


class Replaced(Viewed):
    """What one model makes is what another makes; numbers that the first does not make stay as they are."""

    def __init__(self, of: Operand, old: Operand, new: Operand, room: Extra = 0.0) -> None:
        super().__init__(of)
        self.old, self.new, self.room = old, new, room
        self.columns = new.columns
        if old.rows != new.rows:
            self.rows = new.rows
        self.precision = new.precision

    def take(self, start: int, stop: int) -> Array:
        block = self.of.take(start, stop)
        old, new = self.old.take(start, stop), self.new.take(start, stop)
        if old.shape != new.shape:
            return new
        unit = self.old.precision.unit
        scale = largest(old)
        room = (5e-7 * (unit > 1e-15) + 1e-12) * scale
        with np.errstate(invalid="ignore"):
            apart = np.subtract(block, old)
            np.abs(apart, out=apart)
            if float(apart.max(initial=0.0)) <= room:
                return new
            steps = 6.4 * unit * np.abs(old) if unit > 1e-6 else 0.0
            extra = self.room(start, stop) if callable(self.room) else self.room
            made = apart <= steps + room + extra
        return new if made.all() else np.where(made, new, block)


def replacing(old: Operand, new: Operand, room: Extra = 0.0) -> Callable[[Operand, Operand], Pair]:
    return lambda a, b: (Replaced(a, old, new, room), b)


def turning_steps(a: Turning, b: Turning) -> list[Step]:
    """The differences of two readings, one step each, from the columns to the last bits."""
    steps = column_steps(a, b)
    state = replace(a, plan=b.plan) if len(a.frequencies) == len(b.frequencies) else a
    room = _last_step(a, b)

    def change(
        cause: str, side_a: dict[str, Any], side_b: dict[str, Any], facts: dict[str, Any], **parts: Any
    ) -> None:
        nonlocal state
        new = replace(state, **parts)
        steps.append(Step(Reason(cause, side_a, side_b, facts), replacing(state, new, room), room))
        state = new

    if len(a.frequencies) != len(b.frequencies):
        try:
            other = frequencies_of(a.law, len(b.frequencies))
        except (PeError, KeyError, ValueError):
            return []
        change(
            "width",
            {"dim": 2 * len(a.frequencies)},
            {"dim": 2 * len(b.frequencies)},
            {},
            plan=b.plan,
            frequencies=other,
        )
    turned = frequency_changes(state, b)
    for cause, side_a, side_b, facts, parts in turned:
        change(cause, side_a, side_b, facts, **parts)
    own = own_magnitude(a.law, len(a.frequencies)), own_magnitude(b.law, len(b.frequencies))
    ratio = b.amplitude / a.amplitude
    unit = max(a.precision.unit, b.precision.unit)
    if abs(ratio - 1) > max(4 * unit, 1e-6):
        by_scaling = abs(own[0] - a.amplitude) < CLOSE and abs(own[1] - b.amplitude) < CLOSE and bool(turned)
        if by_scaling:
            last = next((step for step in reversed(steps) if step.cause.cause in ("scaling", "factor")), None)
            by_scaling = last is not None
        if by_scaling and last is not None:
            new = replace(state, amplitude=b.amplitude)
            old_undo, before = last.undo, state
            last.undo = lambda x, y: (Replaced(old_undo(x, y)[0], before, new, room), y)
            last.cause.a["attention_factor"], last.cause.b["attention_factor"] = a.amplitude, b.amplitude
            state = new
        else:
            ratio = roundest(ratio, max(unit, 1e-7) * ratio)
            for step in steps:  # which have not applied the factor, so that they must not name it
                for side in (step.cause.a, step.cause.b):
                    side.pop("attention_factor", None)
            change(
                "amplitude",
                {"amplitude": a.amplitude},
                {"amplitude": b.amplitude},
                {"ratio": ratio},
                amplitude=b.amplitude,
            )
    else:
        state = replace(state, amplitude=b.amplitude)
    for cause, side_a, side_b, facts, places in place_changes(state.places, b.places, min(a.rows, b.rows)):
        change(cause, side_a, side_b, facts, places=places)
    if state.angles != b.angles:
        cause = _angles_cause(state.angles, b.angles)
        change(cause, {"angles": state.angles}, {"angles": b.angles}, {}, angles=b.angles)
    if a.precision.name != b.precision.name:
        change(
            "dtype-rounding",
            {"dtype": a.precision.name},
            {"dtype": b.precision.name},
            {},
            precision=b.precision,
        )
    return steps


def _last_step(a: Turning, b: Turning) -> Extra:
    """One step of the narrower type at the amplitude, and what float32 angles may differ by."""
    coarse = max(a.precision, b.precision, key=lambda p: p.unit)
    step = 2.02 * float(coarse.half_ulp(np.array([b.amplitude]))[0])
    loose = b if b.angles == "float32" else a
    return (lambda start, stop: loose.slack(start, stop) + step) if loose.angles == "float32" else step


def _angles_cause(a: str, b: str) -> str:
    name = b if a == "exact" else a
    kind = name.split()[0]
    return "dtype-rounding" if name.endswith("frequencies") and "positions" not in name else f"{kind}-angles"


# -- columns ------------------------------------------------------------------------------------------------------


def _by_pair(plan: ColumnPlan) -> dict[tuple[int, int], float]:
    """The sign of each part of each pair."""
    return {
        (int(i), int(k)): float(s)
        for i, k, s in reversed([*zip(plan.pair, plan.part, plan.sign, strict=True)])
        if k != ZERO
    }


def _slots(plan: ColumnPlan) -> list[int]:
    """For each column whether it is the first or the second of its pair."""
    width = len(plan.pair)
    if plan.name in ("half", "adjacent", "split"):
        return [0] * width
    if plan.name in ("interleaved", "complex"):
        return [c % 2 for c in range(width)]
    if plan.name == "quarters":
        return [c * 4 // width % 2 for c in range(width)]
    return [int(c >= width // 2) for c in range(width)]


def _first_is_cos(plan: ColumnPlan) -> dict[int, bool]:
    slots = _slots(plan)
    return {
        int(i): bool((k == COS) == (slot == 0))
        for i, k, slot in zip(plan.pair, plan.part, slots, strict=True)
        if k != ZERO
    }


def layout_name(plan: ColumnPlan) -> str:
    """What `pe gen` calls the layout."""
    cos_first = sum(_first_is_cos(plan).values()) * 2 >= len(set(plan.pair.tolist()))
    if plan.name == "halves":
        return "cos-sin" if cos_first else "sin-cos"
    if plan.name == "halves, each twice":
        return "cos-sin-adjacent" if cos_first else "sin-cos-adjacent"
    return plan.name


def _made_like(
    shape: ColumnPlan, order: Mapping[int, bool], signs: Mapping[tuple[int, int], float]
) -> ColumnPlan:
    """The arrangement of one plan with cosines first or not, and with signs, as another has them."""
    slots = _slots(shape)
    alone = shape.name in ("half", "adjacent", "split")
    part = np.array(
        [
            ZERO if k == ZERO else k if alone else (COS if (slot == 0) == order[int(i)] else SIN)
            for i, k, slot in zip(shape.pair, shape.part, slots, strict=True)
        ],
        dtype=np.intp,
    )
    sign = np.array([signs.get((int(i), int(k)), 1.0) for i, k in zip(shape.pair, part, strict=True)])
    return ColumnPlan(shape.name, shape.pair, part, sign)


def column_steps(a: Turning, b: Turning) -> list[Step]:
    """Layout, order of cosines and sines, signs: what is undone by moving columns."""
    first, last = a.plan, b.plan
    if len(a.frequencies) != len(b.frequencies) or len(first.pair) != len(last.pair):
        return []
    steps: list[Step] = []
    alone = [plan.name in ("half", "adjacent", "split") for plan in (first, last)]
    if alone[0] != alone[1]:
        return []
    if alone[0]:
        part = int(first.part[0])
        if part != int(last.part[0]):
            swapped = replace(
                a,
                plan=ColumnPlan(
                    first.name, first.pair, np.full_like(first.part, last.part[0]), np.abs(first.sign)
                ),
            )
            names = ("cos", "sin")
            cause = Reason("swap-sin-cos", {"holds": names[part]}, {"holds": names[1 - part]})
            steps.append(Step(cause, replacing(a, swapped, a.room), a.room))
            first = swapped.plan
    else:
        by_pair = _by_pair(first)
        if first.name != last.name:
            middle = _made_like(last, _first_is_cos(first), by_pair)
            steps += _move(
                "layout", first, middle, {"layout": layout_name(first)}, {"layout": layout_name(middle)}
            )
            first = middle
        order_a, order_b = _first_is_cos(first), _first_is_cos(last)
        if order_a != order_b:
            middle = _made_like(last, order_b, by_pair)
            words = [
                {"first": "cos" if sum(order.values()) * 2 >= len(order) else "sin"}
                for order in (order_a, order_b)
            ]
            if words[0] == words[1]:
                words = [{}, {}]
            swapped_pairs = [i for i in order_a if order_a[i] != order_b.get(i)]
            facts = {} if len(swapped_pairs) == len(order_a) else {"pairs": swapped_pairs[:LISTED]}
            steps += _move("swap-sin-cos", first, middle, words[0], words[1], facts)
            first = middle
    if first.name != last.name:
        steps += _move(
            "layout",
            first,
            ColumnPlan(
                last.name,
                last.pair,
                last.part,
                first.sign[[int(np.argmax(first.pair == i)) for i in last.pair]],
            ),
            {"layout": first.name},
            {"layout": last.name},
        )
        first = ColumnPlan(
            last.name, last.pair, last.part, first.sign[[int(np.argmax(first.pair == i)) for i in last.pair]]
        )
    different = np.flatnonzero(first.sign * last.sign < 0)
    if len(different):
        sides, facts = _sign_words(last, different)
        steps += _move("sign", first, last, *sides, facts)
    return steps


def _move(
    cause: str,
    first: ColumnPlan,
    last: ColumnPlan,
    a: dict[str, Any],
    b: dict[str, Any],
    facts: dict[str, Any] | None = None,
) -> list[Step]:
    found = first.leading_to(last)
    if found is None:
        return []
    index, sign = found
    signs = None if (sign > 0).all() else sign
    return [Step(Reason(cause, a, b, facts or {}), lambda x, y: (Rearranged(x, index, signs), y))]


def _sign_words(
    plan: ColumnPlan, columns: Rows
) -> tuple[tuple[dict[str, Any], dict[str, Any]], dict[str, Any]]:
    """Which columns are negative, in words where there are some."""
    negative = plan.sign < 0
    chosen = np.zeros(len(plan.pair), bool)
    chosen[columns] = True
    facts: dict[str, Any]
    if chosen.all():
        facts = {"of": "all"}
    elif np.array_equal(chosen, plan.part == SIN):
        facts = {"of": "sines"}
    elif np.array_equal(chosen, plan.part == COS):
        facts = {"of": "cosines"}
    else:
        facts = {
            "of": "columns",
            "columns": [int(c) for c in np.flatnonzero(chosen)[:LISTED]],
            "count": int(chosen.sum()),
        }
    in_b = bool(negative[chosen].mean() > 0.5)
    return ({"negative": not in_b}, {"negative": in_b}), facts


# -- frequencies --------------------------------------------------------------------------------------------------

Change = tuple[str, dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]


def _known(law: Mapping[str, Any]) -> bool:
    return "base" in law and law.get("scaling") != "unknown" and not law.get("factors")


def frequency_changes(a: Turning, b: Turning) -> list[Change]:
    """base, frequency-shift, scaling and factor, whichever differ; each with the frequencies after it."""
    pairs = len(b.frequencies)
    w = np.array([float(x) for x in a.frequencies]) * abs(a.places.stride)
    v = np.array([float(x) for x in b.frequencies]) * abs(b.places.stride)
    unit = max(a.precision.unit, b.precision.unit)
    alike = len(w) == len(v) and np.allclose(w, v, rtol=max(CLOSE, 1e-3 * unit), atol=1e-12)
    if alike and a.places.stride == b.places.stride:
        return []
    law, other = a.law, b.law
    final = {"frequencies": b.frequencies, "law": other}
    if not (_known(law) and _known(other)):
        change = _unknown(a, b, w, v, final)
        return [] if change is None else [change]
    stored = [each.get("frequency_dtype") for each in (law, other)]
    changes: list[Change] = []
    if law.get("scaling") == other.get("scaling") == "none" and stored[0] == stored[1]:
        shifted = _shift_alone(law, other, pairs)
        if shifted is not None:
            return [(*shifted, {}, final)]
    state = dict(law)

    def add(
        cause: str, side_a: dict[str, Any], side_b: dict[str, Any], facts: dict[str, Any], **new: Any
    ) -> None:
        for name, value in new.items():
            state.pop(name, None)
            if value is not None:
                state[name] = value
        try:
            frequencies = frequencies_of(state, pairs)
        except (PeError, KeyError, ValueError, TypeError):
            frequencies = b.frequencies
        changes.append((cause, side_a, side_b, facts, {"frequencies": frequencies, "law": dict(state)}))

    if stored[0] != stored[1]:
        sides = [{"frequencies": name or "not rounded"} for name in stored]
        add("dtype-rounding", sides[0], sides[1], {"of": "frequencies"}, frequency_dtype=stored[1])
    shift_a, shift_b = law.get("shift") or 0, other.get("shift") or 0
    if shift_a != shift_b:
        add("frequency-shift", {"shift": shift_a}, {"shift": shift_b}, {}, shift=shift_b)
    scalings = law.get("scaling", "none"), other.get("scaling", "none")
    if not _close(law["base"], other["base"]):
        ntk = _as_ntk(law, other, pairs) if set(scalings) == {"none"} else None
        if ntk is not None:
            add("scaling", ntk[0], ntk[1], {"ambiguous": ntk[2]}, base=other["base"])
        else:
            add("base", {"base": law["base"]}, {"base": other["base"]}, {}, base=other["base"])
    options_a, options_b = ({k: each[k] for k in PARAMETERS if k in each} for each in (law, other))
    if scalings[0] != scalings[1]:
        emptied = dict.fromkeys(options_a)
        new = emptied | options_b | {"scaling": scalings[1]}
        add("scaling", {"scaling": scalings[0]} | options_a, {"scaling": scalings[1]} | options_b, {}, **new)
    else:
        different = [
            n
            for n in PARAMETERS
            if not _same_value(options_a.get(n), options_b.get(n)) and n != "attention_factor"
        ]
        if "factor" in different:
            sides = [{"factor": options.get("factor")} for options in (options_a, options_b)]
            add("factor", sides[0], sides[1], {"scaling": scalings[0]}, factor=options_b.get("factor"))
            different.remove("factor")
        if different and not _only_unseen(state, b):
            sides = [{"scaling": scalings[0]} | options for options in (options_a, options_b)]
            add("scaling", sides[0], sides[1], {}, **{n: options_b.get(n) for n in different})
    if changes:
        last = changes[-1]
        changes[-1] = (*last[:4], final)
    return changes


def _only_unseen(state: Mapping[str, Any], b: Turning) -> bool:
    """Whether parameters that differ make no difference to the frequencies."""
    try:
        made = np.array([float(w) for w in frequencies_of(state, len(b.frequencies))])
    except (PeError, KeyError, ValueError, TypeError):
        return False
    wanted = np.array([float(w) for w in b.frequencies])
    return len(made) == len(wanted) and bool(np.allclose(made, wanted, rtol=CLOSE, atol=1e-12))


def _unknown(a: Turning, b: Turning, w: Array, v: Array, final: dict[str, Any]) -> Change | None:
    """Frequencies of one side follow no law that has a name: divisors of the plain ones of the other.

    None where a divisor is negative or huge: such a pair turns by more than half a circle a row, and shows another angle.
    """
    known = a if _known(a.law) else b if _known(b.law) else None
    base = known.law["base"] if known is not None else a.law.get("base", b.law.get("base"))
    sides: list[dict[str, Any]] = []
    for one, frequencies in ((a, w), (b, v)):
        if _known(one.law):
            sides.append(
                {"scaling": one.law.get("scaling", "none")}
                | {k: one.law[k] for k in PARAMETERS if k in one.law}
            )
            continue
        side: dict[str, Any] = {"scaling": "unknown"}
        if base is not None:
            plain = np.array(
                [float(x) for x in frequencies_of({"base": base, "scaling": "none"}, len(frequencies))]
            )
            with np.errstate(divide="ignore"):
                factors = plain / frequencies
            if (factors < 0).any() or (np.isfinite(factors) & (factors > HUGE)).any():
                return None
            if (factors > 0.99).all() and np.isfinite(factors).all() and len(factors) >= TELLING:
                side["scaling"] = "longrope"
            side["factors"] = [float(f"{f:.6g}") for f in factors]
        else:
            side["frequencies"] = [float(f"{f:.6g}") for f in frequencies]
        sides.append(side)
    facts = {"ambiguous": [f"base {base:g} is assumed for both"]} if base is not None else {}
    if all(side["scaling"] == "longrope" for side in sides):
        return "factor", sides[0], sides[1], facts, final
    return "scaling", sides[0], sides[1], facts, final


def _same_value(x: Any, y: Any) -> bool:
    if isinstance(x, (int, float)) and isinstance(y, (int, float)) and not isinstance(x, bool):
        return abs(x - y) <= 1e-5 * max(abs(x), abs(y))
    return bool(np.array_equal(np.asarray(x), np.asarray(y))) if x is not None and y is not None else x is y


def _close(x: float, y: float) -> bool:
    return abs(x / y - 1) < CLOSE


def _shift_alone(
    law: Mapping[str, Any], other: Mapping[str, Any], pairs: int
) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
    """One base with another frequency shift: base^(n/(n-1)) is the base that shows where the shift does not."""
    shift_a, shift_b = float(law.get("shift") or 0), float(other.get("shift") or 0)
    if pairs < 2 or (
        shift_a == shift_b
        and max(digits_of(tidy(law["base"])), digits_of(tidy(other["base"]))) <= ROUND_DIGITS
    ):
        return None
    a, b = law["base"] ** (pairs / (pairs - shift_a)), other["base"] ** (pairs / (pairs - shift_b))
    power = pairs / (pairs - 1)
    if abs(a**power / b - 1) < 1e-5:
        return "frequency-shift", {"shift": 0}, {"shift": 1}
    if abs(b**power / a - 1) < 1e-5:
        return "frequency-shift", {"shift": 1}, {"shift": 0}
    return None


def _as_ntk(
    law: Mapping[str, Any], other: Mapping[str, Any], pairs: int
) -> tuple[dict[str, Any], dict[str, Any], list[str]] | None:
    """A larger base that the NTK rule makes of the smaller with a rounder factor than the base itself is."""
    small, large = sorted((law["base"], other["base"]))
    if pairs < 2 or law.get("shift") or other.get("shift"):
        return None
    factor = (large / small) ** ((pairs - 1) / pairs)
    short = roundest(factor, 1e-5 * factor)
    if digits_of(tidy(short)) > 3 or digits_of(tidy(large)) <= ROUND_DIGITS or factor <= 1:
        return None
    scaled, plain = {"scaling": "ntk", "factor": short, "base": small}, {"scaling": "none", "base": small}
    note = [f"base {large:.10g} without scaling"]
    return (scaled, plain, note) if law["base"] == large else (plain, scaled, note)
