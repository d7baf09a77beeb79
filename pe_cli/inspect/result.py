"""What is said of a table, and the precision in which its residual is measured.

A table is often kept in a wider type than it was rounded to (bfloat16 values in a float32 file), so the
precision is read from the values, not from the dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FLOAT32_STEP = 2.0**-24  # half an ulp of a float32 between 1 and 2, relative


EXPONENT_BITS = 0x7FF << 52  # of a float64
SMALLEST = 2.0**-1074  # above 0


@dataclass(frozen=True)
class Precision:
    """A floating type: `unit` is half an ulp relative to a power of two, `tiny` half the smallest step."""

    name: str
    unit: float
    tiny: float
    largest: float

    def nearest(self, values: Array) -> Array:
        """The number of the type that is nearest to each of these, ties to even; its largest is no limit here.

        So is seen what is rounded to types that numpy lacks without ml_dtypes, of which some releases take a second to load.
        """
        step = np.maximum(2 * self.half_ulp(values), SMALLEST)
        return np.asarray(np.rint(values / step) * step)

    def holds(self, values: Array) -> bool:
        """Whether all of these finite numbers are numbers of the type."""
        return bool((np.abs(values) <= self.largest).all() and np.array_equal(self.nearest(values), values))

    def half_ulp(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Half the distance between neighbours at each value: the error of one rounding."""
        numbers = np.asarray(values, np.float64)
        powers = (numbers.view(np.int64) & EXPONENT_BITS).view(np.float64)  # of two, none above their number
        return np.maximum(2 * self.unit * powers, self.tiny)


PRECISIONS = {
    p.name: p
    for p in (
        Precision("float64", 2.0**-54, 2.0**-1075, (2 - 2.0**-52) * 2.0**1023),
        Precision("float32", 2.0**-25, 2.0**-150, (2 - 2.0**-23) * 2.0**127),
        Precision("float16", 2.0**-12, 2.0**-25, 65504.0),
        Precision("bfloat16", 2.0**-9, 2.0**-134, (2 - 2.0**-7) * 2.0**127),
        Precision("float8_e4m3fn", 2.0**-5, 2.0**-10, 448.0),
        Precision("float8_e5m2", 2.0**-4, 2.0**-17, 57344.0),
    )
}
NARROW_FIRST = ("float8_e5m2", "float8_e4m3fn", "bfloat16", "float16", "float32", "float64")
SAMPLE = 1 << 14
FEWEST_MANTISSAS, FEWEST_VALUES = 4, 40


@np.errstate(invalid="ignore")  # of a signalling NaN, which is left out like any other
def stored_precision(values: NDArray[Any]) -> Precision:
    """The narrowest floating type that holds every value of the table exactly.

    Values with few distinct mantissas, such as powers of two, would look narrow by chance: their dtype counts.
    """
    if values.dtype.kind == "c":
        values = values.view(values.real.dtype)
    sample = values.reshape(-1)
    if sample.size > SAMPLE:
        sample = sample[:: (sample.size // SAMPLE) | 1]
    if sample.dtype.name in PRECISIONS and sample.dtype.name not in ("float64", "float32"):
        return PRECISIONS[sample.dtype.name]
    exact = sample.astype(np.float64)
    exact = exact[np.isfinite(exact)]
    widest = "float32" if values.dtype.name == "float32" else "float64"
    if (
        np.unique(np.frexp(np.abs(exact))[0]).size < FEWEST_MANTISSAS
        or np.unique(np.abs(exact)).size < FEWEST_VALUES
    ):
        return PRECISIONS[widest]
    return next(PRECISIONS[name] for name in NARROW_FIRST if PRECISIONS[name].holds(exact))


def frequency_slack(angular: Array) -> Array:
    """Relative error of a frequency computed in float32, also by exp(-i/m ln base)."""
    size = np.abs(angular)
    logarithm = np.abs(np.log(np.clip(size, 1e-12, 1e12)))
    return np.asarray(FLOAT32_STEP * (2.0 + 1.5 * logarithm))


@dataclass
class Law:
    """`parameters` carry the names of the options of `pe gen rope`."""

    scaling: str
    base: float
    unit: float  # step of positions, so that w = u / unit
    base_error: float = 0.0
    measured: float = 0.0  # the base before it was rounded within its error
    parameters: dict[str, Any] = field(default_factory=dict)
    ambiguous: tuple[str, ...] = ()


@dataclass
class Match:
    """How well a hypothesis makes a table again.

    `exact` where every entry is within one rounding of the formula; else the formula was computed in float32 arithmetic
    (`float32_angles`). `max_abs` is the largest difference from the exact formula, `ulps` the largest one from the
    formula in its arithmetic, in ulps at the table's amplitude.
    """

    reproduced: bool
    exact: bool
    max_abs: float
    ulps: float
    narrow: str | None = None  # the type, narrower than float32, in which the angles were computed
    only_frequencies: bool = False  # were rounded to float32, the angles were not
    measured: bool = (
        False  # the exact formula is nearer than float32 arithmetic, though its parameters are not exact
    )

    @property
    def float32_angles(self) -> bool:
        return self.reproduced and not (self.exact or self.only_frequencies or self.measured)

    @property
    def arithmetic(self) -> str | None:
        if self.measured:
            return None
        return self.narrow or ("float32" if self.float32_angles else "exact")


@dataclass
class Solution:
    """A hypothesis that reproduces every row but the `strangers`. `shift` is None for a rule of RoPE."""

    law: Law
    width: int
    shift: float | None
    positions: Array
    amplitude: float
    match: Match
    frequencies: Sequence[Any]
    even: bool
    dim: int = 0  # by which the exponents are divided
    likelihood: int = 0  # rank among the hypotheses that also reproduce the rows
    rule: str | None = None  # by which positions leave the line
    strangers: tuple[int, ...] = ()
    line: Array | None = None  # the positions as they count on from the first ones
    other_starts: tuple[str, ...] = ()  # where the rows may begin as well

    @property
    def kind(self) -> tuple[str, float | None, int]:
        return self.law.scaling, self.shift, self.dim

    @property
    def front(self) -> int:
        """How many rows before the first that has a position are none of the table's."""
        return next((k for k, row in enumerate((*self.strangers, -1)) if row != k), 0)

    @property
    def start(self) -> float:
        return float(self.positions[self.front]) if len(self.positions) > self.front else 0.0

    @property
    def stride(self) -> float:
        known = self.positions[self.front :]
        return float(known[1] - known[0]) if len(known) > 1 else 1.0

    def place_facts(self) -> dict[str, Any]:
        """Start and stride, and where they do not tell all, the runs of positions and the first row that leaves the line."""
        facts: dict[str, Any] = {} if self.other_starts else {"start": tidy(self.start)}
        if self.front:
            facts["offset_rows"] = self.front
        stride = tidy(self.stride)
        if self.even:
            return facts | {"stride": stride if stride != 1 else None}
        known = self.positions[self.front :]
        line = (
            known[0] + self.stride * np.arange(len(known)) if self.line is None else self.line[self.front :]
        )
        facts["rule"] = self.rule or "other"
        facts["leaves_line_at"] = int(np.argmax(known != line)) + self.front
        runs = runs_of(known, self.stride)
        facts["runs"] = runs[:MOST_RUNS]
        if len(runs) > MOST_RUNS:
            facts["number_of_runs"] = len(runs)
        return facts


MOST_RUNS = 64


def runs_of(positions: Array, stride: float) -> list[list[float]]:
    """[first, last, rows] of each run of positions that count up by the stride, or stay."""
    steps = np.diff(positions)
    runs, begun = [], 0
    while begun < len(positions):
        end = begun
        if end < len(steps) and steps[end] in (stride, 0.0):
            other = np.flatnonzero(steps[end:] != steps[end])
            end = end + int(other[0]) if len(other) else len(steps)
        runs.append([tidy(float(positions[begun])), tidy(float(positions[end])), end - begun + 1])
        begun = end + 1
    return runs


@dataclass
class NonzeroRows:
    """The rows of a table without zero rows: `body` is the longest run, `before` how many rows lie before it."""

    body: NDArray[Any]
    before: int
    zero: list[int]
    others: NDArray[np.intp]
    table: NDArray[Any]
    numbers: NDArray[np.intp] | None  # of the body's rows in the whole table

    @classmethod
    def of(cls, table: NDArray[Any], numbers: NDArray[np.intp] | None) -> NonzeroRows | None:
        empty = ~np.any(table, axis=1)
        if empty.mean() > 0.5 or len(table) - empty.sum() < 2:
            return None
        edges = np.flatnonzero(np.diff(np.concatenate([[True], empty, [True]]).astype(np.int8)))
        runs = edges.reshape(-1, 2)
        start, stop = runs[np.argmax(runs[:, 1] - runs[:, 0])]
        rest = np.flatnonzero(~empty)
        others = rest[(rest < start) | (rest >= stop)]
        zero = [int(row) for row in np.flatnonzero(empty)]
        body_numbers = None if numbers is None else numbers[start:stop]
        return cls(table[start:stop], int(start), zero, others, table, body_numbers)

    def facts(self, solved: Solution) -> dict[str, Any] | None:
        """What the rows before the body are; None where a row outside it does not belong to the table."""
        if not self.zero:
            return solved.place_facts()
        if not solved.even:
            return None
        expected_first = solved.start - (self.before + solved.front) * solved.stride
        facts = solved.place_facts()
        if len(self.zero) == 1 and abs(expected_first) < 1e-6 and solved.stride == 1:
            return facts | {"start": 0, "padding_idx": self.zero[0]}
        if len(self.others):
            return None
        if self.zero == list(range(self.before)):
            return facts | {"prefix_rows": self.before, "offset_rows": self.before + solved.front}
        return facts | {"zero_rows": self.zero}


@dataclass
class Reading:
    """A table read as rotations: `columns` and `order` say where cosines and sines lie, z [n, m] what they are.

    `zero_rows` are rows of the table that are left out of z, `before` how many rows lie before z.
    """

    columns: str
    order: str
    z: NDArray[np.complex128]
    solved: Solution
    precision: Precision
    zero_rows: tuple[int, ...] = ()
    before: int = 0
    numbers: NDArray[np.intp] | None = None  # of the rows of z in the whole table, where they are a choice


@dataclass
class Identified:
    """What a table is: the encoding whose formula makes it again, or None and what it may be.

    `facts` are the parameters; `residual` is the largest difference in ulps of `precision` at the table's amplitude
    (None where no formula makes it). `ambiguous` lists what fits equally well, `maybe` what a table without a name
    could be. `reading` keeps the angles of a rotation, for `diff`.
    """

    encoding: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    residual: float | None = None
    precision: str | None = None
    ambiguous: list[str] = field(default_factory=list)
    reading: Reading | None = field(default=None, repr=False)
    maybe: list[str] = field(default_factory=list)

    @property
    def nearly(self) -> bool:
        """Whether a formula makes the table again but for some of its rows."""
        return self.encoding is None and "rows_that_differ" in self.facts

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON: `encoding`, then the facts, then how well they reproduce the table."""
        out: dict[str, Any] = {"encoding": self.encoding}
        out |= {name: plain(value) for name, value in self.facts.items() if value is not None}
        if self.precision is not None:
            out["precision"] = self.precision
        if self.residual is not None:
            out["residual"] = float(f"{self.residual:.4g}")
        if self.ambiguous:
            out["ambiguous"] = list(self.ambiguous)
        if self.encoding is None or self.maybe:
            out["maybe"] = list(self.maybe)
        return out


def checked(
    named: Identified, values: NDArray[np.float64], made: NDArray[np.float64], precision: Precision
) -> Identified | None:
    """What was named, with its residual; None where the formula does not make the values again."""
    finite = np.isfinite(values)
    error = np.abs(values[finite] - made[finite])
    if precision.name == "float64" and (error > 1e-12 * np.abs(made[finite])).any():
        precision = PRECISIONS["float32"]
        named.precision = precision.name
    half = precision.half_ulp(made[finite])
    if (error > 3.2 * half + 4e-7 * np.abs(made[finite])).any():
        return None
    named.residual = float((error / (2 * half)).max(initial=0.0))
    return named


def plain(value: Any) -> Any:
    """Python numbers, whole ones as integers, and lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def tidy(value: float) -> float:
    """Without the last digits that came from computing it."""
    return float(f"{value:.9g}")
