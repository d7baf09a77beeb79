"""What is in a file: its tensors, the numbers of those that are looked into, and which encoding they are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files.base import READABLE, TensorSpec
from pe_cli.files.sources import Source
from pe_cli.files.text import made_by
from pe_cli.inspect import Identified, PositionTensor, describe_checkpoint, identify
from pe_cli.inspect.sinusoids import ROWS_OF_WHOLE
from pe_cli.numerics.statistics import RowStatistics, Statistics, describe, similarity
from pe_cli.process import require_memory

SCHEMA = "pe.inspect/1"
MANY = 16
WHOLE = 1 << 22  # numbers: a tensor of no more is looked at whole
LEAD = 1 << 18  # numbers of the first rows of a larger one,
PLACES, TOGETHER = 192, 2  # and so many places over the rest, with so many rows each
BLOCK_ITEMS = 1 << 18


@dataclass
class TensorReport:
    """One tensor: what its header says, and, where its values were read, the rest; or why they could not be."""

    spec: TensorSpec
    role: PositionTensor | None = None
    statistics: Statistics | None = None
    identified: Identified | None = None
    rows_read: int | None = None
    not_read: str | None = None
    values: NDArray[Any] | None = field(default=None, repr=False)
    numbers: NDArray[np.intp] | None = field(default=None, repr=False)  # of the rows, where they are a choice

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": self.spec.name,
            "shape": list(self.spec.shape),
            "dtype": self.spec.dtype,
            "bytes": self.spec.nbytes,
        }
        if self.role:
            found["identified"] = {**self.role.as_dict(), "from": "header"}
        if self.values is not None:
            found["statistics"] = self.statistics
            found["identified"] = self.identified.to_dict() if self.identified else None
        if self.rows_read is not None:
            found["rows_read"] = self.rows_read
        if self.not_read is not None:
            found["not_read"] = self.not_read
        return found


@dataclass
class FileReport:
    """A file and its tensors.

    `made_by` is what `pe` wrote about how it made them, `links` what the file leaves elsewhere, `same_as` the tensors that
    are others by a further name.
    """

    label: str
    format: str
    metadata: dict[str, str]
    made_by: dict[str, Any] | None
    tensors: list[TensorReport]
    links: dict[str, str]
    same_as: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "source": self.label,
            "format": self.format,
            "metadata": self.metadata,
            "made_by": self.made_by,
            "tensors": [tensor.as_dict() for tensor in self.tensors],
            "links": self.links,
            "same_as": self.same_as,
        }


def look_at(source: Source, named: bool, *, values: bool) -> FileReport:
    """Look into `source`: the named tensor, or all where they are few; a checkpoint's headers alone.

    With `values`, the position tensors of a checkpoint are read as well.
    """
    wanted = [source.chosen.name] if named else list(source.tensors)
    reports = [TensorReport(source.tensors[name]) for name in wanted]
    checkpoint = not named and len(wanted) > MANY
    roles = describe_checkpoint(source.tensors)
    for report in reports:
        report.role = roles.get(report.spec.name)
    for report in reports:
        if not checkpoint or (values and report.role):
            _read_if_possible(source, report, required=named)
    read = {r.spec.name: r.values for r in reports if r.values is not None}
    for report in reports:
        if report.values is not None:
            if report.statistics is None:
                report.statistics = describe(report.values)
            others = {name: array for name, array in read.items() if name != report.spec.name}
            token = ROWS_OF_WHOLE.set(report.numbers)
            report.identified = identify(report.values, report.spec.name, others)
            ROWS_OF_WHOLE.reset(token)
            if report.numbers is not None:
                report.identified = over_length(report.identified, report.numbers)
    record = made_by(source.metadata)
    same_as = {name: where for name, where in source.links.items() if name in source.tensors}
    links = {name: where for name, where in source.links.items() if name not in source.tensors}
    return FileReport(source.label, source.format, source.metadata, record, reports, links, same_as)


def _read_if_possible(source: Source, report: TensorReport, *, required: bool) -> None:
    """Read the values, or note why not: one tensor that cannot be read hides none of the others.

    It stays an error where the tensor was named, where there is no other, and in a pipe, whose end hides what follows.
    """
    no_other = len(source.tensors) == 1 or not source.stream.seekable
    try:
        _read(source, report)
    except PeError as error:
        if required or (no_other and report.spec.dtype in READABLE):
            raise
        report.not_read = str(error)


def _read(source: Source, report: TensorReport) -> None:
    """Read a tensor whole, or, where it is large, gather its statistics in one pass and keep rows over its length."""
    spec = report.spec
    if spec.size <= WHOLE or len(spec.shape) < 2:
        require_memory(3 * spec.nbytes, f"looking into {spec.called}", "name a smaller tensor")
        report.values = source.read(spec.name)
        return
    width = spec.shape[-1]
    rows = spec.size // width
    lead = np.arange(min(rows, max(512, LEAD // width)))
    places = np.linspace(0, rows - TOGETHER, PLACES).astype(np.intp)
    wanted = np.unique(np.concatenate([lead, *(places + k for k in range(TOGETHER))]))
    gathered, kept, start = RowStatistics(single=True), [], 0
    for piece in source.flat(spec.name, items=max(1, BLOCK_ITEMS // width) * width):
        block = piece.reshape(-1, width)
        gathered.add(block)
        first, last = np.searchsorted(wanted, [start, start + len(block)])
        kept.append(block[wanted[first:last] - start])
        start += len(block)
    report.values, report.numbers, report.rows_read = np.concatenate(kept), wanted, len(wanted)
    report.statistics = gathered.found(norms=True)
    if "row_norm" in report.statistics:
        report.statistics["similarity"] = similarity(report.values[: len(lead)])


def over_length(found: Identified, numbers: NDArray[np.intp]) -> Identified:
    """What chosen rows are, by their `numbers` in the whole table: which row first leaves the line is known to a block."""
    if found.facts.get("rule") is None:
        return found
    left = int(numbers[min(found.facts.get("leaves_line_at", 0), len(numbers) - 1)])
    facts = {name: value for name, value in found.facts.items() if name not in ("runs", "number_of_runs")}
    return replace(found, facts=facts | {"leaves_line_at": f"row {left} or before it"})
