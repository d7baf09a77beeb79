"""Two files compared tensor by tensor: which belong together, how far apart they are, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.diff.explain import Cause, Explanation, explain
from pe_cli.diff.metrics import Comparison, Metrics, Spare, Tolerance, compare, squeezed
from pe_cli.diff.parameters import spectral_causes
from pe_cli.errors import PeError
from pe_cli.files import TensorSpec, check_memory
from pe_cli.files.sources import Source
from pe_cli.inspect import Identified, identify

SCHEMA = "pe.diff/1"
SAMPLE = 1 << 18  # numbers of a long table that are looked at to explain it
WHOLE = 1 << 22  # numbers of a table that is looked at whole
COLUMN_BINS = 64


@dataclass
class Difference:
    """Two tensors. `metrics` is None where the shapes share no rows that could be compared."""

    a: TensorSpec | None
    b: TensorSpec | None
    metrics: Metrics | None = None
    explanation: Explanation = field(default_factory=Explanation)
    sample: tuple[NDArray[Any], NDArray[Any]] | None = field(default=None, repr=False)

    @property
    def same_shape(self) -> bool:
        return self.a is not None and self.b is not None and squeezed(self.a.shape) == squeezed(self.b.shape)

    @property
    def equal(self) -> bool:
        return self.same_shape and self.metrics is not None and self.metrics.same

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"a": _spec(self.a), "b": _spec(self.b), "equal": self.equal}
        if self.metrics is not None:
            found |= _numbers(self.metrics)
        found["causes"] = [cause.as_dict() for cause in self.explanation.causes]
        found["notes"] = self.explanation.notes
        found["angles_part"] = self.explanation.parting
        known = self.explanation.identified
        if any(known):
            found["identified"] = {
                side: one.as_dict() if one else None for side, one in zip("ab", known, strict=True)
            }
        if self.explanation.shared_rows:
            first_a, first_b, rows = self.explanation.shared_rows
            found["shared_rows"] = {"first_a": first_a, "first_b": first_b, "rows": rows}
        return found


@dataclass
class Report:
    """All pairs of tensors, and those that only one of the files has."""

    labels: tuple[str, str]
    tolerance: Tolerance
    pairs: list[Difference]
    only_a: list[str] = field(default_factory=list)
    only_b: list[str] = field(default_factory=list)
    joint: Explanation | None = None  # of the files as a whole, where no two tensors go together

    @property
    def equal(self) -> bool:
        return all(pair.equal for pair in self.pairs) and not (self.only_a or self.only_b)

    @property
    def causes(self) -> list[Cause]:
        """Of all pairs, each kind once."""
        explanations = [pair.explanation for pair in self.pairs] + ([self.joint] if self.joint else [])
        found: dict[str, Cause] = {}
        for explanation in explanations:
            for cause in explanation.causes:
                found.setdefault(cause.cause, cause)
        return list(found.values())

    def as_dict(self) -> dict[str, Any]:
        measured = [pair.metrics for pair in self.pairs if pair.metrics is not None]
        found: dict[str, Any] = {
            "schema": SCHEMA,
            "a": self.labels[0],
            "b": self.labels[1],
            "equal": self.equal,
            "rule": self.tolerance.rule,
            "max_abs": max((m.max_abs for m in measured), default=None),
            "max_ulp": max((m.max_ulp for m in measured), default=None),
            "max_rel": max((m.max_rel for m in measured), default=None),
            "causes": [cause.as_dict() for cause in self.causes],
            "tensors": [pair.as_dict() for pair in self.pairs],
        }
        if len(self.pairs) == 1:
            found |= {k: v for k, v in found["tensors"][0].items() if k not in found}
        if self.only_a or self.only_b:
            found |= {"only_a": self.only_a, "only_b": self.only_b}
        return found


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


def compare_sources(a: Source, b: Source, named: tuple[bool, bool], tolerance: Tolerance) -> Report:
    """Compare what was named, or the only tensors, or all tensors with a name in common.

    `named` says for which side the user chose a tensor.
    """
    a.require_tensors()
    b.require_tensors()
    pairs, only_a, only_b = _pairing(a, b, named)
    report = Report((a.label, b.label), tolerance, [], only_a, only_b)
    for name_a, name_b in pairs:
        report.pairs.append(_compare_pair(a, name_a, b, name_b, tolerance))
    if not pairs:
        report.joint = _joint(a, b)
        report.pairs.append(Difference(None, None, explanation=report.joint))
    else:
        _crosswise(report)
    return report


def _pairing(
    a: Source, b: Source, named: tuple[bool, bool]
) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    alone = (named[0] or len(a.tensors) == 1, named[1] or len(b.tensors) == 1)
    if all(alone):
        return [(a.chosen.name, b.chosen.name)], [], []
    if alone[0] or alone[1]:
        single, several = (a, b) if alone[0] else (b, a)
        name = single.chosen.name
        if name in several.tensors:
            return [(name, name)], [], []
        if named[0] or named[1]:
            several.chosen  # noqa: B018 (raises the error that lists the tensors)
        return [], list(a.tensors), list(b.tensors)
    common = [name for name in a.tensors if name in b.tensors]
    only = [name for name in a.tensors if name not in b.tensors], [n for n in b.tensors if n not in a.tensors]
    return [(name, name) for name in common], *only


def _compare_pair(a: Source, name_a: str, b: Source, name_b: str, tolerance: Tolerance) -> Difference:
    pair = Difference(a.spec(name_a), b.spec(name_b))
    assert pair.a is not None
    assert pair.b is not None
    if pair.same_shape:
        pair.metrics = compare(a, name_a, b, name_b, tolerance)
        if pair.metrics.same:
            return pair
    left, right = _sample(a, pair.a), _sample(b, pair.b)
    if left is None or right is None:
        pair.explanation.notes.append("a pipe is read once: give a file to have the difference explained")
        return pair
    pair.sample = left, right
    companions = _companions(a, name_a), _companions(b, name_b)
    if left.size and right.size:
        pair.explanation = explain(left, right, names=(name_a, name_b), companions=companions)
    for cause in pair.explanation.causes:
        if "rows_a" in cause.facts and cause.facts.get("rows") == 0:
            _tell_of_beginning(pair, cause, (left, right))
    if left.size < pair.a.size:
        pair.explanation.notes.append(f"causes: from the first {len(left)} rows")
    if pair.metrics is None:
        pair.metrics = _on_shared_rows(pair, left, right, tolerance)
    return pair


def _tell_of_beginning(pair: Difference, cause: Cause, samples: tuple[NDArray[Any], NDArray[Any]]) -> None:
    """One table is the beginning of the other: how many rows each has, of which the samples may be a part."""
    assert pair.a is not None
    assert pair.b is not None
    whole = (pair.a.size, pair.b.size)
    a, b = (len(sample) * size // sample.size for sample, size in zip(samples, whole, strict=True))
    cause.facts.update(rows_a=a, rows_b=b)
    short, long = ("a", "b") if a < b else ("b", "a")
    pair.explanation.notes.append(
        f"{long} begins with all {min(a, b)} rows of {short}, and has {abs(a - b)} more"
    )


def _sample(source: Source, spec: TensorSpec) -> NDArray[Any] | None:
    """The table, or the first rows of a long one, without axes of length 1 in front; None where a pipe has been read."""
    shape = spec.shape
    while len(shape) > 2 and shape[0] == 1:
        shape = shape[1:]
    if source.span(spec.name) is None and not source.stream.seekable:
        try:
            return source.read(spec.name).reshape(shape)
        except PeError:
            return None
    if spec.size <= WHOLE or len(shape) < 2:
        return source.read(spec.name).reshape(shape)
    row = spec.size // shape[0]
    rows = min(shape[0], max(2, SAMPLE // row))
    check_memory(rows * (spec.nbytes // shape[0]), f"{rows} rows of {source.label}")
    return next(source.flat(spec.name, items=rows * row)).reshape(rows, *shape[1:])


def _companions(source: Source, name: str) -> Mapping[str, NDArray[Any]] | None:
    """The other half of a pair of cosines and sines, and eigenvalues, where they lie in the same file."""
    if len(source.tensors) < 2 or not source.stream.seekable:
        return None
    found = {}
    for part, other in (("cos", "sin"), ("sin", "cos")):
        at = name.lower().rfind(part)
        wanted = name[:at] + other + name[at + 3 :] if at >= 0 else None
        if wanted in source.tensors and source.tensors[wanted].shape == source.tensors[name].shape:
            sample = _sample(source, source.tensors[wanted])
            if sample is not None:
                found[wanted] = sample
    return found or None


def _measure(a: NDArray[Any], b: NDArray[Any], tolerance: Tolerance) -> Metrics:
    """The metrics of two arrays of one shape in memory."""
    comparison = Comparison(a.shape, _name(a), _name(b), tolerance)
    found = comparison.empty()
    if a.size:
        rows = comparison.rows
        comparison.block(
            found,
            0,
            np.ascontiguousarray(a).reshape(rows, -1),
            np.ascontiguousarray(b).reshape(rows, -1),
            Spare(),
        )
    return found


def _name(array: NDArray[Any]) -> str:
    return str(array.dtype.name)


def _on_shared_rows(
    pair: Difference, left: NDArray[Any], right: NDArray[Any], tolerance: Tolerance
) -> Metrics | None:
    """Metrics of the rows that both have, aligned as the explanation says."""
    if left.ndim != right.ndim or left.ndim < 1 or left.shape[1:] != right.shape[1:]:
        return None
    first_a, first_b, rows = pair.explanation.shared_rows or (0, 0, min(len(left), len(right)))
    rows = min(rows, len(left) - first_a, len(right) - first_b)
    if rows < 1:
        return None
    return _measure(left[first_a : first_a + rows], right[first_b : first_b + rows], tolerance)


def _joint(a: Source, b: Source) -> Explanation:
    """Files that hold the same encoding in different tensors, such as one table against cosines and sines."""
    known: list[Identified | None] = []
    for source in (a, b):
        if not source.stream.seekable or len(source.tensors) > 4:
            return Explanation(notes=["the two files have no tensor name in common"])
        arrays = {name: _sample(source, spec) for name, spec in source.tensors.items()}
        held = {name: array for name, array in arrays.items() if array is not None}
        known.append(next((one for name in held if (one := identify(held[name], name, held))), None))
    explanation = Explanation(identified=(known[0], known[1]))
    explanation.notes.append("the two files have no tensor name in common: compared as encodings")
    if known[0] is not None and known[1] is not None:
        found = spectral_causes(known[0], known[1])
        explanation.causes = [Cause(name, facts, left) for name, facts, left in found.causes]
        explanation.parting = found.parting
    return explanation


def _crosswise(report: Report) -> None:
    """Cosines that are the other file's sines: exchanged names, not two differences."""
    held = {pair.a.name: pair for pair in report.pairs if pair.a and pair.sample and not pair.equal}
    for name, pair in held.items():
        at = name.lower().rfind("cos")
        other = held.get(name[:at] + "sin" + name[at + 3 :]) if at >= 0 else None
        if other is None or pair.sample is None or other.sample is None:
            continue
        if np.array_equal(pair.sample[0], other.sample[1]) and np.array_equal(
            pair.sample[1], other.sample[0]
        ):
            for one in (pair, other):
                one.explanation.causes = [
                    Cause("swap-sin-cos", {"tensors": [name, other.a.name if other.a else ""]}, 0.0)
                ]
