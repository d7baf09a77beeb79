"""Two tables that have been identified: in which of their parameters they differ, and whether that is all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.inspect import Identified
from pe_cli.inspect.laws import digits_of, roundest
from pe_cli.inspect.result import FLOAT32_STEP, Reading, tidy
from pe_cli.inspect.rotation import frequency_slack
from pe_cli.numerics.kernels import rotations

PARTING = 0.1  # radians
SCALING_PARTS = (
    "original_len",
    "beta_fast",
    "beta_slow",
    "truncate",
    "low_freq_factor",
    "high_freq_factor",
    "partial",
    "factors",
)
FoundCause = tuple[str, dict[str, Any], float | None]


@dataclass
class ParameterChanges:
    causes: list[FoundCause] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parting: dict[str, float] | None = None


@dataclass
class RotationState:
    """What a rotation is made of; taking over the parts of the other table one by one shows what each explains."""

    columns: str
    order: str
    start: float
    stride: float
    amplitude: float
    frequencies: NDArray[np.float64]

    @classmethod
    def of(cls, reading: Reading) -> RotationState:
        solved = reading.solved
        frequencies = np.array([float(w) for w in solved.frequencies])
        return cls(reading.columns, reading.order, solved.start, solved.stride, solved.amplitude, frequencies)


def spectral_causes(a: Identified, b: Identified) -> ParameterChanges:
    """The parameters in which two identified tables differ, each with what is left after it."""
    if a.reading is None or b.reading is None:
        return _by_facts(a, b)
    found = ParameterChanges()
    first, second = _with_factor(a.reading), _with_factor(b.reading)
    skip_a, skip_b = _written_over(first, second)
    rows = min(len(first.z) - skip_a, len(second.z) - skip_b)
    pairs = first.z.shape[1]
    if rows < 1 or pairs != second.z.shape[1]:
        return found
    first, second = _from_row(first, skip_a), _from_row(second, skip_b)
    target = second.z[:rows, :pairs]
    places = _places(first, rows)
    state, other = RotationState.of(first), RotationState.of(second)
    coarse = max(first.precision, second.precision, key=lambda p: p.unit)

    def note(cause: str, facts: dict[str, Any]) -> None:
        found.causes.append((cause, facts, _left(state, places, target)))

    if state.columns != other.columns:
        change = {"a": state.columns, "b": other.columns}
        state.columns = other.columns
        note("layout", change)
    if state.order != other.order and state.order and other.order:
        state.order = other.order
        note("swap-sin-cos", {"a": first.order, "b": second.order})
    if first.zero_rows != second.zero_rows:
        note("padding-row", {"rows_a": list(first.zero_rows), "rows_b": list(second.zero_rows)})
    if _mirrored(state, other):
        note("sign", {"of": "sines"})
        if other.stride < 0:
            target, second = target.conj(), _negative(second)
            other.start, other.stride = -other.start, -other.stride
        else:
            places, first = -places, _negative(first)
            state.start, state.stride = -state.start, -state.stride
        found.causes[-1] = (*found.causes[-1][:2], _left(state, places, target))
    order = _another_order(places, _places(second, rows))
    if order is not None:
        places = _places(second, rows)
        state.start, state.stride = other.start, other.stride
        moved = int((order != np.arange(rows)).sum())
        note("permutation", {"of": "rows", "moved": moved, "order": [int(i) for i in order[:64]]})
    if not _same(state.start, other.start) or not _same(state.stride, other.stride):
        shift = other.start - state.start
        facts = {"positions": tidy(shift), "start_a": tidy(state.start), "start_b": tidy(other.start)}
        if not _same(state.stride, other.stride):
            facts |= {"stride_a": tidy(state.stride), "stride_b": tidy(other.stride)}
        state.start, state.stride = other.start, other.stride
        places = _places(second, rows)
        note("offset", facts)
    by_scaling = _frequency_change(first, second)
    for cause, facts in by_scaling:
        state.frequencies = other.frequencies
        note(cause, facts)
    own = (_own_magnitude(first), _own_magnitude(second))
    ratio = other.amplitude / state.amplitude
    explained = abs(own[0] - state.amplitude) < 1e-6 and abs(own[1] - other.amplitude) < 1e-6
    state.amplitude = other.amplitude
    if abs(ratio - 1) > 4 * coarse.unit and not (explained and by_scaling):
        note("amplitude", {"ratio": roundest(ratio, ratio * max(coarse.unit, 1e-7))})
    elif abs(ratio - 1) > 4 * coarse.unit and found.causes:
        cause, facts, _ = found.causes[-1]
        found.causes[-1] = (
            cause,
            facts | {"amplitude_ratio": tidy(ratio)},
            _left(state, places, target),
        )
    state.frequencies = other.frequencies
    _last_bits(found, first, second, target, rows, pairs, places, state)
    found.parting = _parting(first, second, rows, pairs)
    return found


def _mirrored(a: RotationState, b: RotationState) -> bool:
    """Every position negative in one of them: its sines have the other sign. (Rows that fall from a positive
    position to a lower one are in another order.)"""
    falling = a.stride if a.stride < 0 else b.stride
    start = a.start if a.stride < 0 else b.start
    return _same(a.stride, -b.stride) and falling < 0 and start <= 0


def _negative(reading: Reading) -> Reading:
    """The same with sines of the other sign."""
    return replace(
        reading, z=reading.z.conj(), solved=replace(reading.solved, positions=-reading.solved.positions)
    )


def _written_over(a: Reading, b: Reading) -> tuple[int, int]:
    """Rows to leave out in front of each, where the other has zeros in their place."""
    skip = b.before - a.before
    if skip > 0 and skip < len(a.z) and _same(float(a.solved.positions[skip]), b.solved.start):
        return skip, 0
    if skip < 0 and -skip < len(b.z) and _same(float(b.solved.positions[-skip]), a.solved.start):
        return 0, -skip
    return 0, 0


def _from_row(reading: Reading, row: int) -> Reading:
    if not row:
        return reading
    solved = replace(reading.solved, positions=reading.solved.positions[row:])
    return replace(reading, z=reading.z[row:], solved=solved)


def _places(reading: Reading, rows: int) -> NDArray[np.float64]:
    return np.asarray(reading.solved.positions[:rows], dtype=np.float64)


def _another_order(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.intp] | None:
    """For each of the positions b its place among a, where they are the same ones in no regular order."""
    if len(a) != len(b) or (np.ptp(np.diff(a)) < 1e-6 and np.ptp(np.diff(b)) < 1e-6):
        return None
    by_a, by_b = np.argsort(a, kind="stable"), np.argsort(b, kind="stable")
    if np.abs(a[by_a] - b[by_b]).max() > 1e-3 or np.array_equal(by_a, by_b):
        return None
    order = np.empty(len(a), dtype=np.intp)
    order[by_b] = by_a
    return order


def _same(x: float, y: float) -> bool:
    return abs(x - y) <= 1e-6 * max(1.0, abs(x), abs(y))


def _own_magnitude(reading: Reading) -> float:
    """The magnitude that the scaling itself brings."""
    from pe_cli.inspect.sinusoids import rope_frequencies

    law = reading.solved.law
    if law.scaling not in ("yarn",) or reading.solved.shift is not None:
        return 1.0
    return rope_frequencies(2 * len(reading.solved.frequencies), law.base, law.scaling, **law.parameters)[1]


def _left(state: RotationState, places: NDArray[np.float64], target: NDArray[np.complex128]) -> float:
    """The largest difference between the second table and one made with what has been taken over so far."""
    z = rotations(places, state.frequencies, amplitude=state.amplitude)
    parts = np.concatenate([np.abs(z.real - target.real), np.abs(z.imag - target.imag)])
    return float(np.nanmax(parts))


def _with_factor(reading: Reading) -> Reading:
    """A step of less than one position is a linear scaling of whole positions."""
    solved = reading.solved
    stride = solved.stride
    if solved.law.scaling != "none" or not solved.even or not 0 < stride < 1:
        return reading
    law = replace(solved.law, scaling="linear", parameters={"factor": roundest(1 / stride, 1e-6 / stride)})
    frequencies = [float(w) * stride for w in solved.frequencies]
    solved = replace(solved, law=law, frequencies=frequencies, positions=solved.positions / stride)
    return replace(reading, solved=solved)


def _frequency_change(a: Reading, b: Reading) -> list[tuple[str, dict[str, Any]]]:
    """base, frequency-shift, scaling and factor, whichever differ."""
    first, second = a.solved, b.solved
    w, v = (np.array([float(x) for x in solved.frequencies]) for solved in (first, second))
    if np.allclose(w, v, rtol=3e-6, atol=0):
        return []
    changes: list[tuple[str, dict[str, Any]]] = []
    law, other = first.law, second.law
    shift_a, shift_b = first.shift or 0.0, second.shift or 0.0
    stored = [each.parameters.get("frequency_dtype") for each in (law, other)]
    if stored[0] != stored[1]:
        names = {side: name or "not rounded" for side, name in zip("ab", stored, strict=True)}
        changes.append(("dtype-rounding", {"of": "frequencies"} | names))
        if _close_base(law.base, other.base):
            return changes
    if law.scaling == other.scaling == "none":
        shifted = _shift_alone(law.base, shift_a, other.base, shift_b, len(w))
        if shifted is not None:
            return [shifted]
    if shift_a != shift_b:
        changes.append(("frequency-shift", {"a": shift_a, "b": shift_b}))
    if law.scaling != other.scaling:
        facts = {"a": law.scaling, "b": other.scaling} | other.parameters
        changes.append(("scaling", facts))
        if not _close_base(law.base, other.base):
            changes.append(_base_change(law.base, other.base, len(w)))
        return changes
    if not _close_base(law.base, other.base):
        changes.append(_base_change(law.base, other.base, len(w)))
    factor_a, factor_b = law.parameters.get("factor"), other.parameters.get("factor")
    if factor_a != factor_b and abs((factor_b or 1) / (factor_a or 1) - 1) > 1e-5:
        changes.append(("factor", {"a": factor_a, "b": factor_b}))
    different = {
        name: [law.parameters.get(name), other.parameters.get(name)]
        for name in SCALING_PARTS
        if law.parameters.get(name) != other.parameters.get(name)
    }
    if different:
        changes.append(("scaling", {"type": law.scaling} | different))
    return changes


def _shift_alone(
    a: float, shift_a: float, b: float, shift_b: float, pairs: int
) -> tuple[str, dict[str, Any]] | None:
    """One base with another frequency shift: b^(n/(n-1)) is the base that shows, where the shift does not."""
    if pairs < 2 or (shift_a == shift_b and max(digits_of(a), digits_of(b)) <= 4):
        return None
    plain_a, plain_b = a ** (pairs / (pairs - shift_a)), b ** (pairs / (pairs - shift_b))
    power = pairs / (pairs - 1)
    if abs(plain_a**power / plain_b - 1) < 1e-5:
        return "frequency-shift", {"a": 0, "b": 1}
    if abs(plain_b**power / plain_a - 1) < 1e-5:
        return "frequency-shift", {"a": 1, "b": 0}
    return None


def _close_base(x: float, y: float) -> bool:
    return abs(x / y - 1) < 3e-6


def _base_change(a: float, b: float, pairs: int) -> tuple[str, dict[str, Any]]:
    """Another base; NTK where the factor that makes one of the other is a rounder number than the base."""
    if pairs > 1 and b > a:
        factor = (b / a) ** ((pairs - 1) / pairs)
        short = roundest(factor, 1e-5 * factor)
        if digits_of(short) <= 3 and digits_of(b) > 4 and factor > 1:
            return "scaling", {"a": "none", "b": "ntk", "factor": short, "base_a": a, "base_b": b}
    return "base", {"a": a, "b": b}


def _last_bits(
    found: ParameterChanges,
    first: Reading,
    second: Reading,
    target: NDArray[np.complex128],
    rows: int,
    pairs: int,
    places: NDArray[np.float64],
    state: RotationState,
) -> None:
    """What is left once all parameters agree: rounding to another type, angles in float32."""
    changed = any(cause not in ("layout", "swap-sin-cos", "padding-row") for cause, _, _ in found.causes)
    source = first.z[:rows, :pairs]
    coarse = max(first.precision, second.precision, key=lambda p: p.unit)
    if first.precision.name != second.precision.name:
        facts = {"a": first.precision.name, "b": second.precision.name}
        found.causes.append(("dtype-rounding", facts, _left(state, places, target)))
    exact = [reading.solved.match.exact for reading in (first, second)]
    if exact[0] == exact[1] and changed:
        return
    if exact[0] != exact[1]:
        inexact = second if exact[0] else first
        own = inexact.solved.match.max_abs
        measured = inexact.solved.amplitude not in (1.0, _own_magnitude(inexact))
        if measured and changed:
            return  # the last digits of a measured amplitude do as much
        if own > 2.2 * float(coarse.half_ulp(np.array([inexact.solved.amplitude]))[0]):
            facts = {"table": "b" if exact[0] else "a"}
            found.causes.append(("float32-angles", facts, _left(state, places, target)))
        elif first.precision.name == second.precision.name and not changed:
            found.causes.append(("float32-angles", {"table": "b" if exact[0] else "a"}, own))
        return
    left = float(np.nanmax(np.abs(np.nan_to_num(source - target)))) if source.shape == target.shape else 0.0
    if left > 0 and not changed and first.precision.name == second.precision.name == "float32":
        angular = state.frequencies
        room = 8 * FLOAT32_STEP + 8 * float((frequency_slack(angular) * angular).max() * np.abs(places).max())
        if left <= room * state.amplitude:
            found.causes.append(("float32-angles", {"table": "both"}, left))


def _parting(first: Reading, second: Reading, rows: int, pairs: int) -> dict[str, float] | None:
    """The first row in which the angle of a pair differs by more than 0.1 radians."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.angle(first.z[:rows, :pairs] * second.z[:rows, :pairs].conj()))
    far = np.flatnonzero(np.nan_to_num(apart).max(axis=1) > PARTING)
    if not len(far):
        return None
    row = int(far[0])
    pair = int(np.nan_to_num(apart[row]).argmax())
    return {"row": row, "position": tidy(float(first.solved.positions[row])), "pair": pair}


def _by_facts(a: Identified, b: Identified) -> ParameterChanges:
    """Tables over grids and others that are not kept as rotations: compared by name of parameter."""
    found = ParameterChanges()
    unsolved = any(known.facts.get("scaling") == "longrope" and "base" not in known.facts for known in (a, b))
    if a.encoding != b.encoding or a.encoding == "learned" or unsolved:
        return found
    if (a.reading is None) != (b.reading is None):
        return found
    causes = {
        "style": "layout",
        "layout": "layout",
        "base": "base",
        "shift": "frequency-shift",
        "amplitude": "amplitude",
        "start": "offset",
        "prefix_rows": "padding-row",
        "scaling": "scaling",
        "factor": "factor",
        "form": "layout",
    }
    for name, cause in causes.items():
        x, y = a.facts.get(name), b.facts.get(name)
        if cause == "factor" and a.facts.get("scaling") != b.facts.get("scaling"):
            continue
        if x != y and not (cause == "scaling" and {x, y} <= {None, "none"}):
            facts = {"a": x, "b": y}
            if cause == "scaling":
                facts |= {part: b.facts[part] for part in ("factor", *SCALING_PARTS) if part in b.facts}
            found.causes.append((cause, facts, None))
    if found.causes and a.precision != b.precision and a.precision and b.precision:
        found.causes.append(("dtype-rounding", {"a": a.precision, "b": b.precision}, None))
    return found
