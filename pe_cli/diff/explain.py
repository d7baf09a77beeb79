"""Why two tables differ: the change, or the two changes, that make them agree.

Two searches. One changes the first table by moves (`arrangement.py`), a scale and a rounding until it is the second,
to the last bit that the narrower type holds. The other identifies both tables and compares what they are: base,
scaling, positions. Nothing is named that does not make the tables agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.diff.arrangement import MOVES, Rearranged, other_sections, sign
from pe_cli.diff.parameters import spectral_causes
from pe_cli.inspect import Identified, identify
from pe_cli.inspect.laws import roundest
from pe_cli.inspect.result import Precision, plain, stored_precision

Array = NDArray[np.float64]
GLANCES = (12, 256)
LARGEST = 1 << 25
KNOWN_BY = 1 << 17  # numbers of a table that tell what it is, if it is a rotation by position
SEARCHED = 1 << 18
GLANCED = 1 << 13
SEARCHED_WHOLE = 1 << 22
SOLVER = 1e-4  # of the largest entry
VISIBLE = 0.25  # of the largest entry
FEWEST = 6  # numbers: fewer agree by chance


@dataclass
class Cause:
    """One change, its parameters, and the largest difference that is left once it is undone as well."""

    cause: str
    facts: dict[str, Any] = field(default_factory=dict)
    residual_after: float | None = None

    def as_dict(self) -> dict[str, Any]:
        left = None if self.residual_after is None else float(f"{self.residual_after:.6g}")
        facts = {name: plain(value) for name, value in self.facts.items() if value is not None}
        return {"cause": self.cause, **facts, "residual_after": left}


@dataclass
class Explanation:
    """`causes` in the order in which they are undone; `notes` are sentences; `parting` the first position where
    the angles differ by 0.1 radians."""

    causes: list[Cause] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    parting: dict[str, float] | None = None
    identified: tuple[Identified | None, Identified | None] = (None, None)
    shared_rows: tuple[int, int, int] | None = None  # first row of a, of b, how many
    strain: float = 0.0  # an offset that leaves at most half of the rows explains less


@np.errstate(all="ignore")
def explain(
    a: NDArray[Any],
    b: NDArray[Any],
    *,
    names: tuple[str | None, str | None] = (None, None),
    companions: tuple[Mapping[str, NDArray[Any]] | None, Mapping[str, NDArray[Any]] | None] = (None, None),
) -> Explanation:
    """Find what makes `a` into `b`.

    `companions` are the other tensors of the two files, by which cosines and sines are read together.
    """
    if a.dtype.kind == "c" or b.dtype.kind == "c":
        return _by_identity(
            Explanation(), _known(a, names[0], companions[0]), _known(b, names[1], companions[1])
        )
    whole = _flat(a), _flat(b)
    left, right = _shortened(*whole)
    precisions = stored_precision(a), stored_precision(b)
    moved = _one_move(left, right, precisions)
    if not moved.causes and len(left) < len(whole[0]) and _same_numbers(*whole):
        left, right = whole
        moved = _one_move(left, right, precisions)
    known = _known(a, names[0], companions[0]), _known(b, names[1], companions[1])
    spectral = _by_identity(Explanation(), *known)
    best = min((spectral, moved) if _are_frequencies(*known) else (moved, spectral), key=_cost)
    if _cost(best) > 2:
        only = REGULAR if [cause.cause for cause in best.causes] == ["permutation"] else None
        best = min((best, _two_moves(left, right, precisions, only)), key=_cost)
    if not best.causes:
        best = _after_a_move(left, right, names) or spectral
    if not _helps(best, *whole):
        best.causes = []
    best.identified, best.parting = known, spectral.parting
    if not best.causes:
        sections = other_sections(a, b, names, companions)
        if sections is not None:
            best.causes = [Cause("layout", {"of": "sections"} | sections)]
            best.notes.append(
                f"equal on the first {sections['equal_rows']} rows, where all axes have one position (text); "
                "the axes have other pairs (M-RoPE sections)"
            )
    return best


# An order of rows or columns that follows no rule says less than two changes that do.
COSTS = {"permutation": 2.2}
REGULAR = {"layout", "swap-sin-cos", "sign", "transpose"}
NOTHING = 99.0


def _cost(explanation: Explanation) -> float:
    """How much has to be said; nothing found costs most."""
    said = sum(COSTS.get(cause.cause, 1.0) for cause in explanation.causes)
    return said + explanation.strain if said else NOTHING


def _helps(explanation: Explanation, a: Array, b: Array) -> bool:
    """Whether its causes take away most of what can be seen: two identities may be right, and the tables differ elsewhere."""
    left = explanation.causes[-1].residual_after if explanation.causes else None
    if left is None:
        return True
    size = float(np.nanmax(np.abs(b), initial=0.0))
    before = _apart(a, b) if a.shape == b.shape else size
    return left <= max(VISIBLE * size, before / 2)


def _known(
    table: NDArray[Any], name: str | None, companions: Mapping[str, NDArray[Any]] | None
) -> Identified | None:
    if table.size > KNOWN_BY and table.ndim == 2:
        rows = max(GLANCES[-1], KNOWN_BY // table.shape[1])
        first = {key: other[:rows] for key, other in companions.items()} if companions else None
        found = identify(table[:rows], name, first)
        if found is not None and found.reading is not None:
            return found
    return identify(table, name, companions) if table.size <= LARGEST else None


def _flat(table: NDArray[Any]) -> Array:
    """Two axes: rows by the first one; unit axes in front are dropped."""
    values = table.astype(np.float64)
    while values.ndim > 2 and values.shape[0] == 1:
        values = values[0]
    if values.ndim == 1:
        return values[:, None]
    return values.reshape(values.shape[0], -1) if values.ndim else values.reshape(1, 1)


def _are_frequencies(a: Identified | None, b: Identified | None) -> bool:
    """Vectors of frequencies, whose scaling looks like a change of size."""
    return all(
        known is not None and known.facts.get("layout") in ("inv-freq", "mlx-freqs") for known in (a, b)
    )


def _shortened(a: Array, b: Array) -> tuple[Array, Array]:
    """The first rows of long tables; whole ones where rows and columns may be exchanged."""
    if max(a.size, b.size) <= SEARCHED or (
        a.shape[1] != b.shape[1] and max(a.size, b.size) <= SEARCHED_WHOLE
    ):
        return a, b
    rows = max(64, SEARCHED // max(a.shape[1], b.shape[1]))
    return a[:rows], b[:rows]


def _one_move(a: Array, b: Array, precisions: tuple[Precision, Precision]) -> Explanation:
    """The best explanation by a scale, a rounding and at most one move."""
    direct = _agree(a, b, precisions)
    if direct is not None:
        return _explanation_of([], direct, a, b)
    best = Explanation()
    for change in _next(a, b):
        agreed = _agree(change.a, change.b, precisions, change.solved)
        if agreed is not None:
            best = min((best, _explanation_of([change], agreed, a, b)), key=_cost)
    return best


def _two_moves(
    a: Array, b: Array, precisions: tuple[Precision, Precision], only: set[str] | None
) -> Explanation:
    """The best explanation by two moves, a scale and a rounding.

    Looked for in the first rows, and in the whole where its numbers are the same in another order.
    """
    rows = max(64, GLANCED // max(a.shape[1], b.shape[1]))
    if max(len(a), len(b)) <= 2 * rows:
        return _search(a, b, precisions, only)
    glance = _search(a[:rows], b[:rows], precisions, only)
    if glance.causes:
        found = _search(a, b, precisions, only={cause.cause for cause in glance.causes})
        if found.causes:
            return found
    return _search(a, b, precisions, only) if only is None and _same_numbers(a, b) else Explanation()


def _search(
    a: Array, b: Array, precisions: tuple[Precision, Precision], only: set[str] | None = None
) -> Explanation:
    best = Explanation()
    for first in _next(a, b, only):
        for second in _next(first.a, first.b, only):
            if second.cause == first.cause:
                continue
            agreed = _agree(second.a, second.b, precisions, second.solved)
            if agreed is not None:
                best = min((best, _explanation_of([first, second], agreed, a, b)), key=_cost)
                if _cost(best) <= 2:
                    return best
    return best


def _same_numbers(a: Array, b: Array) -> bool:
    """Whether the largest sizes, in units of the root mean square, are the same: what moves do not change."""
    few = min(64, a.size, b.size)
    top = []
    for side in (a, b):
        size = np.abs(np.nan_to_num(side)).reshape(-1)
        largest = np.partition(size, -few)[-few:]
        top.append(np.sort(largest) / max(float(np.sqrt(np.mean(size**2))), 1e-300))
    return bool(np.allclose(top[0], top[1], rtol=0.01))


def _next(a: Array, b: Array, only: set[str] | None = None) -> Iterator[Rearranged]:
    for move, cause in MOVES.items():
        if only is None or cause in only:
            yield from move(a, b)


def _agree(
    a: Array, b: Array, precisions: tuple[Precision, Precision], solved: bool = False
) -> list[Cause] | None:
    """Equal, up to a scale and to rounding to the narrower type: the causes for that, none if equal.

    Eigenvectors of two solvers (`solved`) agree only to what the solvers reached.
    """
    if solved and a.shape == b.shape and a.size >= FEWEST:
        return [] if np.abs(a - b).max() <= SOLVER * np.abs(b).max() else None
    if a.shape != b.shape or a.size < FEWEST:
        return None
    for rows in GLANCES:  # most candidates are wrong in the first rows
        if rows < len(a) and not (
            _close(a[:rows], b[:rows], precisions) or _scale(a[:rows], b[:rows], precisions) is not None
        ):
            return None
    if np.array_equal(a, b, equal_nan=True):
        return []
    if _close(a, b, precisions):
        return _rounding(a, b, precisions)
    scale = _scale(a, b, precisions)
    if scale is None:
        return None
    left = _apart(a * scale, b)
    causes = [Cause("amplitude", {"ratio": scale}, left)]
    return causes + (_rounding(a * scale, b, precisions) if precisions[0].name != precisions[1].name else [])


def _rounding(a: Array, b: Array, precisions: tuple[Precision, Precision]) -> list[Cause]:
    """What tables that agree to the narrower type differ by."""
    first, second = precisions
    if first.name != second.name:
        return [Cause("dtype-rounding", {"a": first.name, "b": second.name}, 0.0)]
    return [
        Cause(
            "float32-angles" if first.name in ("float32", "float64") else "dtype-rounding",
            {},
            _apart(a, b),
        )
    ]


def _apart(a: Array, b: Array) -> float:
    """The largest difference, where both are numbers."""
    apart = np.abs(a - b)
    return float(np.max(apart, where=np.isfinite(apart), initial=0.0))


def _close(a: Array, b: Array, precisions: tuple[Precision, Precision]) -> bool:
    """Within one step of the narrower type."""
    if (np.isnan(a) != np.isnan(b)).any():
        return False
    coarse = max(precisions, key=lambda p: p.unit)
    size = np.maximum(np.abs(a), np.abs(b))
    with np.errstate(invalid="ignore"):
        room = 2.02 * coarse.half_ulp(np.nan_to_num(size)) + (
            1e-13 * np.max(size, where=np.isfinite(size), initial=0.0) if coarse.unit < 1e-15 else 0
        )
        apart = np.abs(a - b) > room
    return not (apart & (a != b)).any()


def _scale(a: Array, b: Array, precisions: tuple[Precision, Precision]) -> float | None:
    """The positive number, not 1, by which all of a must be multiplied to be b."""
    finite = np.isfinite(a) & np.isfinite(b)
    x, y = a[finite], b[finite]
    power = float(x @ x)
    if x.size < FEWEST or power == 0:
        return None
    ratio = float(x @ y) / power
    coarse = max(precisions, key=lambda p: p.unit)
    if not ratio > 0 or abs(ratio - 1) < 4 * coarse.unit or not np.isfinite(ratio):
        return None
    short = roundest(ratio, ratio * max(coarse.unit, 1e-7))
    for tried in (short, ratio):
        made = x * tried
        apart = np.abs(made - y)
        if (
            apart
            <= 2.02 * coarse.half_ulp(np.maximum(np.abs(made), np.abs(y)))
            + 2.4e-7 * np.abs(y) * (coarse.unit < 1e-6)
        ).all():
            return tried
    return None


def _explanation_of(chain: list[Rearranged], agreed: list[Cause], a: Array, b: Array) -> Explanation:
    causes = []
    for change in chain:
        left = _apart(change.a, change.b) if change.a.shape == change.b.shape else None
        causes.append(Cause(change.cause, change.facts, left))
    explanation = Explanation([*causes, *agreed])
    offsets = [change for change in chain if change.cause == "offset"]
    if offsets:
        last = chain[-1]
        explanation.shared_rows = (*offsets[0].rows, len(last.b))
        explanation.strain = 0.5 if 2 * len(last.b) <= min(len(a), len(b)) else 0.0
    return explanation


def _by_identity(explanation: Explanation, a: Identified | None, b: Identified | None) -> Explanation:
    explanation.identified = (a, b)
    if a is None or b is None:
        return explanation
    found = spectral_causes(a, b)
    explanation.causes = [Cause(name, facts, left) for name, facts, left in found.causes]
    explanation.notes += found.notes
    explanation.parting = found.parting
    return explanation


def _after_a_move(a: Array, b: Array, names: tuple[str | None, str | None]) -> Explanation | None:
    """A move that makes one side a table that is known, and then what the two tables are."""
    for swapped in (False, True):
        first, second = (b, a) if swapped else (a, b)
        reference = identify(second, names[1 if not swapped else 0])
        if reference is None or reference.reading is None:
            continue
        for change in _next_alone(first, second):
            if len(change.a) > 2 * GLANCES[-1] and identify(change.a[: GLANCES[-1]]) is None:
                continue
            moved = identify(change.a)
            if moved is None or moved.reading is None:
                continue
            pair = (reference, moved) if swapped else (moved, reference)
            found = _by_identity(Explanation(), *pair)
            if found.causes:
                found.causes.insert(0, Cause(change.cause, change.facts, None))
                return found
    return None


def _next_alone(table: Array, other: Array) -> Iterator[Rearranged]:
    """Moves of one table that hide what it is."""
    if table.ndim == 2 and min(table.shape) > 1:
        yield Rearranged("transpose", {}, np.ascontiguousarray(table.T), other)
    yield from sign(table, np.empty((0, table.shape[-1])))
