"""Two files compared tensor by tensor: which belong together, how far apart they are, and why."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.diff.explain import Explanation, Side, explain
from pe_cli.diff.metrics import Comparison, Metrics, Spare, Tolerance, compare, squeezed
from pe_cli.diff.operands import KEPT, StoredTable, other_half, part_of, renamed_part, same_table
from pe_cli.diff.readings import once
from pe_cli.diff.verify import Reason, Room
from pe_cli.errors import PeError
from pe_cli.files import TensorSpec
from pe_cli.files.sources import Source

SCHEMA = "pe.diff/1"
COLUMN_BINS = 64
MOST_TRIED = 16  # tensors of a file that one table is compared with,
MOST_LIKELY = 4  # and those of them for which reasons are looked for
MOST_SEARCHED = 16  # pairs of tensors for which reasons are looked for
ROLES = ("cos", "sin", "inv_freq", "freqs", "position", "bias", "slopes", "table")
Progress = Callable[[int], None]


@dataclass
class Difference:
    """Two tensors. `metrics` is None where the shapes share no rows that could be compared."""

    a: TensorSpec | None
    b: TensorSpec | None
    metrics: Metrics | None = None
    explanation: Explanation = field(default_factory=Explanation)
    sides: tuple[StoredTable, StoredTable] | None = field(default=None, repr=False)

    @property
    def same_shape(self) -> bool:
        return self.a is not None and self.b is not None and squeezed(self.a.shape) == squeezed(self.b.shape)

    @property
    def equal(self) -> bool:
        return self.same_shape and self.metrics is not None and self.metrics.same

    @property
    def explained(self) -> bool:
        return self.equal or self.explanation.explained

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        found: dict[str, Any] = {"a": _spec(self.a), "b": _spec(self.b), "equal": self.equal}
        if self.metrics is not None:
            found |= _numbers(self.metrics)
        found["explained"] = self.explained
        found["causes"] = [cause.to_dict() for cause in self.explanation.causes]
        found["notes"] = self.explanation.notes
        found["angles_part"] = self.explanation.parting
        if self.explanation.shared_rows:
            found["shared_rows"] = self.explanation.shared_rows
        return found


@dataclass
class Report:
    """All pairs of tensors, and those that only one of the files has. `names` are pairs that have other names."""

    labels: tuple[str, str]
    tolerance: Tolerance
    pairs: list[Difference]
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    names: list[Reason] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return all(pair.equal for pair in self.pairs) and not (self.only_a or self.only_b or self.names)

    @property
    def explained(self) -> bool:
        return (
            bool(self.pairs)
            and all(pair.explained for pair in self.pairs)
            and not (self.only_a or self.only_b)
        )

    @property
    def causes(self) -> list[Reason]:
        """Of all pairs: other names first, then each cause once, with the largest difference that it leaves."""
        found: dict[str, Reason] = {}
        for cause in self.names + [cause for pair in self.pairs for cause in pair.explanation.causes]:
            told = cause.to_dict()
            left = told.pop("residual_after")
            known = found.setdefault(_key_of(told), cause)
            if left is not None and known is not cause:
                known.residual_after = max(known.residual_after or 0.0, cause.residual_after or 0.0)
        return list(found.values())

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        measured = [pair.metrics for pair in self.pairs if pair.metrics is not None]
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "a": self.labels[0],
            "b": self.labels[1],
            "equal": self.equal,
            "explained": self.equal or self.explained,
            "rule": self.tolerance.rule,
            "max_abs": max((m.max_abs for m in measured), default=None),
            "max_ulp": max((m.max_ulp for m in measured), default=None),
            "max_rel": max((m.max_rel for m in measured), default=None),
            "causes": [cause.to_dict() for cause in self.causes],
            "tensors": [pair.to_dict() for pair in self.pairs],
        }
        if len(self.pairs) == 1:
            found |= {k: v for k, v in found["tensors"][0].items() if k not in found}
        if self.only_a or self.only_b:
            found |= {"only_a": self.only_a, "only_b": self.only_b}
        return found


def _key_of(told: dict[str, Any]) -> str:
    """The same for causes that say the same, but for the last digits of numbers that were measured."""
    if told["cause"] == "amplitude":
        return f"amplitude {told['ratio']:.6g}"
    return repr(told)


def _spec(spec: TensorSpec | None) -> dict[str, Any] | None:
    return None if spec is None else {"name": spec.name, "shape": list(spec.shape), "dtype": spec.dtype}


def _numbers(m: Metrics) -> dict[str, Any]:
    bins = m.by_column
    if len(bins) > COLUMN_BINS:
        bins = np.array([part.max() for part in np.array_split(bins, COLUMN_BINS)])
    return {
        "same_bytes": m.equal_bytes,
        "elements": m.rows * m.columns,
        "outside": m.outside,
        "differing": m.differing,
        "first_outside": m.first_outside,
        "max_abs": m.max_abs,
        "max_abs_at": m.max_abs_at,
        "mean_abs": m.mean_abs,
        "max_rel": m.max_rel,
        "max_rel_at": m.max_rel_at,
        "max_ulp": m.max_ulp,
        "max_ulp_at": m.max_ulp_at,
        "ulp_of": m.dtype,
        "max_cosine_distance": m.max_cosine_distance,
        "max_cosine_at": m.max_cosine_at,
        "smallest_atol": m.needed_atol if not m.nan_unmatched else None,
        "nan": {"a": m.nan_a, "b": m.nan_b, "unmatched": m.nan_unmatched},
        "by_position": [float(f"{v:.6g}") for v in m.by_position],
        "by_column": [float(f"{v:.6g}") for v in bins],
    }


def compare_sources(
    a: Source,
    b: Source,
    named: tuple[bool, bool],
    tolerance: Tolerance,
    *,
    explained: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Compare what was named, or the only tensors, or all tensors with a name in common.

    Parameters
    ----------
    a, b : two files of tensors; b is the reference
    named : for each of them whether the user chose a tensor of it
    tolerance : what counts as the same
    explained : whether the reasons are looked for
    progress : is told the bytes of one side that were compared

    Raises
    ------
    PeError
        For a file without tensors, a tensor that is not there, and types that are not read.
    """
    return _Comparing(a, b, tolerance, explained, progress).run(named)


@dataclass
class _Comparing:
    a: Source
    b: Source
    tolerance: Tolerance
    explained: bool
    progress: Progress | None
    searched: int = 0  # pairs of tensors

    def run(self, named: tuple[bool, bool]) -> Report:
        a, b = self.a, self.b
        a.require_tensors()
        b.require_tensors()
        report = Report((a.label, b.label), self.tolerance, [])
        alone = (named[0] or len(a.tensors) == 1, named[1] or len(b.tensors) == 1)
        if all(alone):
            report.pairs.append(self.pair(a.chosen.name, b.chosen.name))
            return report
        if any(alone):
            self.one_against_several(report, alone[0])
            return report
        common = [name for name in a.tensors if name in b.tensors]
        report.pairs = [self.pair(name, name) for name in common]
        left = [name for name in a.tensors if name not in b.tensors]
        right = [name for name in b.tensors if name not in a.tensors]
        for name_a, name_b in self.renamed(left, right):
            left.remove(name_a)
            right.remove(name_b)
            self.add_renamed(report, self.pair(name_a, name_b))
        report.only_a, report.only_b = left, right
        self.together(report)
        self.crosswise(report)
        return report

    def pair(self, name_a: str, name_b: str) -> Difference:
        """The numbers of one pair of tensors, and where they differ the reasons."""
        pair = Difference(self.a.spec(name_a), self.b.spec(name_b))
        assert pair.a is not None
        assert pair.b is not None
        if pair.same_shape:
            pair.metrics = compare(self.a, name_a, self.b, name_b, self.tolerance, self.progress)
            if pair.metrics.same or not self.explained:
                return pair
        if not pair.a.size or not pair.b.size:
            pair.explanation.notes.append("a table without elements has nothing to compare")
            return pair
        left, right = StoredTable.open(self.a, pair.a), StoredTable.open(self.b, pair.b)
        if left is None or right is None:
            pair.explanation.notes.append("a pipe is read once: give a file to have the difference explained")
            return pair
        pair.sides = left, right
        if self.explained:
            pair.explanation = self.reasons(self.side(self.a, name_a, left), self.side(self.b, name_b, right))
        if pair.metrics is None:
            pair.metrics = self.on_shared_rows(pair)
        if not pair.equal and pair.same_shape and pair.explanation.explained and not pair.explanation.causes:
            coarse = max((left.precision, right.precision), key=lambda precision: precision.unit)
            alike = left.precision.name == right.precision.name
            pair.explanation.notes.append(
                "only the last bits differ: by no more than rounding once more"
                if alike
                else f"the tables differ by no more than the step of {coarse.name}, the type one of them was rounded to"
            )
        return pair

    def reasons(self, a: Side, b: Side) -> Explanation:
        """The search, as long as there have not been too many."""
        self.searched += 1
        if self.searched <= MOST_SEARCHED:
            return explain(a, b)
        note = f"reasons are looked for in {MOST_SEARCHED} tensors that differ: name this one to have it explained"
        return Explanation(notes=[note])

    def side(self, source: Source, name: str, table: StoredTable) -> Side:
        array = partial(source.read, name)
        other = other_half(source, name)
        if other is None or not source.stream.seekable:
            return Side(table, array)
        return Side(table, array, StoredTable.open(source, source.spec(other)), part_of(name) == "sin")

    def on_shared_rows(self, pair: Difference) -> Metrics | None:
        """The numbers of the rows that both have, aligned as the explanation says."""
        assert pair.sides is not None
        left, right = pair.sides
        if left.columns != right.columns or left.complex != right.complex:
            return None
        shared = pair.explanation.shared_rows or {
            "first_a": 0,
            "first_b": 0,
            "rows": min(left.rows, right.rows),
        }
        rows = shared["rows"]
        if rows < 1:
            return None
        comparison = Comparison((rows, left.items), left.dtype, right.dtype, self.tolerance)
        found, spare = comparison.empty(), Spare()
        for start in range(0, rows, left.step):
            stop = min(rows, start + left.step)
            x = left.raw(shared["first_a"] + start, shared["first_a"] + stop)
            y = right.raw(shared["first_b"] + start, shared["first_b"] + stop)
            comparison.block(found, start, x, y, spare)
        return found

    # -- tensors of other names -----------------------------------------------------------------------------------

    def renamed(self, left: Sequence[str], right: Sequence[str]) -> list[tuple[str, str]]:
        """Tensors that only one file has by name: equal ones, then those that play one part, then the only two."""
        if not (self.a.stream.seekable and self.b.stream.seekable):
            return []
        pairs: list[tuple[str, str]] = []
        free_a, free_b = list(left), list(right)
        sizes = {_key(self.b.spec(name)) for name in free_b} & {_key(self.a.spec(name)) for name in free_a}
        digests: dict[bytes, str] = {}
        for name in free_b:
            if _key(self.b.spec(name)) in sizes:
                digests.setdefault(_digest(self.b, name), name)
        for name in list(free_a):
            other = digests.pop(_digest(self.a, name), None) if _key(self.a.spec(name)) in sizes else None
            if other is not None:
                pairs.append((name, other))
                free_a.remove(name)
                free_b.remove(other)
        for role in ROLES:
            ours, theirs = ([n for n in names if role in n.lower()] for names in (free_a, free_b))
            if len(ours) == len(theirs) == 1:
                pairs.append((ours[0], theirs[0]))
                free_a.remove(ours[0])
                free_b.remove(theirs[0])
        if len(free_a) == len(free_b) == 1 and not pairs:
            pairs.append((free_a[0], free_b[0]))
        return pairs

    def add_renamed(self, report: Report, pair: Difference) -> None:
        """The pair, and that its names differ, if the tables agree but for causes that are told."""
        assert pair.a is not None
        assert pair.b is not None
        report.pairs.append(pair)
        if pair.explained:
            left = pair.metrics.max_abs if pair.metrics is not None and pair.same_shape else None
            report.names.append(Reason("names", {"name": pair.a.name}, {"name": pair.b.name}, {}, left))

    def one_against_several(self, report: Report, a_alone: bool) -> None:
        """The tensor of the same name; else the one that fits, which is named."""
        single, several = (self.a, self.b) if a_alone else (self.b, self.a)
        name = single.chosen.name
        if name in several.tensors:
            report.pairs.append(self.pair(name, name))
            return
        if not (self.explained and several.stream.seekable and single.stream.seekable):
            report.only_a, report.only_b = list(self.a.tensors), list(self.b.tensors)
            return
        tried = list(several.tensors)[:MOST_TRIED]
        best: Difference | None = None
        explained, self.explained = self.explained, False
        for other in tried:
            pair = self.pair(*((name, other) if a_alone else (other, name)))
            if pair.equal:
                best = pair
                break
        self.explained = explained
        if best is None:
            best = self.joined(a_alone)
            if best is not None:
                report.pairs.append(best)
                return
            spec = single.chosen
            tried.sort(key=lambda other: several.spec(other).shape != spec.shape)
            tried.sort(key=lambda other: several.spec(other).size != spec.size)
            for other in tried[:MOST_LIKELY]:
                pair = self.pair(*((name, other) if a_alone else (other, name)))
                if pair.explanation.explained and (
                    best is None or pair.explanation.cost < best.explanation.cost
                ):
                    best = pair
        if best is None:
            report.pairs.append(Difference(None, None))
            report.only_a, report.only_b = list(self.a.tensors), list(self.b.tensors)
            return
        self.add_renamed(report, best)

    def joined(self, a_alone: bool) -> Difference | None:
        """One table against cosines and sines in two tensors."""
        single, several = (self.a, self.b) if a_alone else (self.b, self.a)
        cos = next((n for n in several.tensors if part_of(n) == "cos" and other_half(several, n)), None)
        spec = single.chosen
        if cos is None or len(spec.shape) < 2:
            return None
        sin = other_half(several, cos)
        assert sin is not None
        if spec.size > KEPT or several.spec(cos).size > KEPT:
            return None
        whole, way = _cosines_and_sines(several, cos, sin)
        table = StoredTable.open(single, spec)
        if table is None:
            return None
        both = StoredTable.of(whole)
        sides = [Side(table, partial(single.read, spec.name)), Side(both, lambda: whole)]
        found = self.reasons(*(sides if a_alone else sides[::-1]))
        equal = (
            table.rows == both.rows
            and table.columns == both.columns
            and not Room((table.precision, both.precision)).outside(table.whole(), both.whole())[0].any()
        )
        if not (found.explained or equal):
            return None
        layouts = [cause for cause in found.causes if cause.cause == "layout"]
        if layouts:  # one change of layout leads from the one table to the two
            layouts[-1].a = layouts[0].a
            (layouts[-1].b if a_alone else layouts[-1].a)["layout"] = way
            found.causes = [cause for cause in found.causes if cause not in layouts[:-1]]
        else:
            words = {"layout": "complex" if table.complex else "cos-sin"}, {"layout": way}
            left = found.causes[0].residual_after if found.causes else 0.0
            found.causes.insert(
                0, Reason("layout", *(words if a_alone else words[::-1]), {}, None if found.causes else left)
            )
        found.explained = True
        return Difference(None, None, explanation=found)

    def together(self, report: Report) -> None:
        """Causes that hold of cosines and sines as one table, where they are told apart otherwise."""
        held = {pair.a.name: pair for pair in report.pairs if pair.a and pair.sides and not pair.equal}
        for name, pair in held.items():
            sin = renamed_part(name) if part_of(name) == "cos" else None
            other = held.get(sin or "")
            if sin is None or other is None or not (pair.same_shape and other.same_shape):
                continue
            told = [
                [_key_of({**c.to_dict(), "residual_after": 0}) for c in one.explanation.causes]
                for one in (pair, other)
            ]
            if told[0] == told[1] and pair.explained and other.explained:
                continue
            if self.a.spec(name).size > KEPT or len(self.a.spec(name).shape) < 2:
                continue
            wholes = [_cosines_and_sines(source, name, sin) for source in (self.a, self.b)]
            if wholes[0][1] != wholes[1][1]:
                continue
            sides = [Side(StoredTable.of(whole), lambda whole=whole: whole) for whole, _ in wholes]  # type: ignore[misc]
            found = self.reasons(*sides)
            facts = [cause.facts for cause in found.causes]  # columns of the one table are none of the file
            by_column = any("columns" in fact or fact.get("of") == "columns" for fact in facts)
            if found.explained and not by_column:
                pair.explanation, other.explanation = found, replace(found, notes=[*found.notes])

    def crosswise(self, report: Report) -> None:
        """Cosines that are the other file's sines: exchanged names, not two differences."""
        held = {pair.a.name: pair for pair in report.pairs if pair.a and pair.sides and not pair.equal}
        for name, pair in held.items():
            other = held.get(renamed_part(name) or "") if part_of(name) == "cos" else None
            if (
                other is None
                or pair.sides is None
                or other.sides is None
                or pair.a is None
                or other.a is None
            ):
                continue
            if same_table(pair.sides[0], other.sides[1]) and same_table(other.sides[0], pair.sides[1]):
                for one in (pair, other):
                    cause = Reason(
                        "swap-sin-cos",
                        {"tensors": [name, other.a.name]},
                        {"tensors": [other.a.name, name]},
                        {},
                        0.0,
                    )
                    one.explanation.causes, one.explanation.explained = [cause], True


def _cosines_and_sines(source: Source, cos: str, sin: str) -> tuple[NDArray[np.float32], str]:
    """One table [cosines | sines] with a column of each for a pair, and how the file repeats its columns."""
    parts = [source.read(name).astype(np.float64) for name in (cos, sin)]
    parts = [part.reshape(-1, part.shape[-1]) for part in parts]
    way, pair_of = once(parts[0])
    first = [int(np.argmax(pair_of == i)) for i in range(int(pair_of.max()) + 1)]
    return np.concatenate([part[:, first] for part in parts], axis=1).astype(np.float32), way


def _key(spec: TensorSpec) -> tuple[str, int]:
    return spec.dtype, spec.size


def _digest(source: Source, name: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(str(squeezed(source.spec(name).shape)).encode())
    try:
        for piece in source.flat(name, items=1 << 18):
            digest.update(np.ascontiguousarray(piece).view(np.uint8).data)
    except PeError:
        return name.encode()
    return digest.digest()
