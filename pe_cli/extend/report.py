"""What a change did to a table's geometry: norms, similarity by distance, seams, rank, and what to be wary of."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import counted
from pe_cli.extend.find import PositionAxes, times
from pe_cli.extend.presets import REGENERATE, ResizeRequest
from pe_cli.extend.weights import FRESH
from pe_cli.files.base import shown
from pe_cli.files.sources import Source
from pe_cli.files.text import made_by

LAGS = (1, 2, 4)
BLOCK = 1 << 16  # elements
RANK_ROWS = 256
LAG_ROWS = 1024  # rows that stand for all at lags over 1
SHORT_NORM = 0.9
SEAM = 0.2


NORM_BLOCK = 1 << 15  # elements: two blocks stay in cache
MOST_AT_AN_END = 4


@dataclass(frozen=True)
class Outliers:
    """`flagged` row numbers with their norms, of which the first `head` and last `tail` rows of the body."""

    flagged: tuple[int, ...]
    norms: tuple[float, ...]
    median: float
    head: int
    tail: int


def norms(rows: NDArray[Any]) -> NDArray[np.float64]:
    """(n,) Euclidean norm of each row of (n, d), in float64 and in bounded memory."""
    wide = np.complex128 if rows.dtype.kind == "c" else np.float64
    squares = np.empty(len(rows))
    step = max(1, NORM_BLOCK // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = rows[start : start + step].astype(wide)
        squares[start : start + step] = np.einsum("ij,ij->i", block, block.conj()).real
    return np.sqrt(squares)


def median(values: NDArray[np.float64]) -> float:
    """The median of finite `values` (n,), at least one. `np.median` loads numpy.ma, a tenth of what starting takes."""
    middle = len(values) // 2
    chosen = np.partition(values, (middle - 1 + len(values) % 2, middle))
    return float((chosen[middle - 1 + len(values) % 2] + chosen[middle]) / 2)


def outliers(size: NDArray[np.float64]) -> Outliers:
    """Of rows with norms `size` (n,), those whose norm is over 1.5 times the median and far outside the spread of the others.

    The spread is the median absolute deviation, and "far" is six of what would be standard deviations: narrow
    random tables have long rows by chance, and those are not meant. Only runs at an end, of at most
    `MOST_AT_AN_END` rows, count as head and tail.
    """
    if len(size) < 16:
        return Outliers((), (), median(size) if len(size) else 0.0, 0, 0)
    middle = median(size)
    spread = 1.4826 * median(np.abs(size - middle))
    apart = (size > 1.5 * middle) & (size - middle > 6 * spread)
    flagged = np.flatnonzero(apart)
    head = _run(apart[: MOST_AT_AN_END + 1])
    tail = _run(apart[::-1][: MOST_AT_AN_END + 1])
    return Outliers(tuple(map(int, flagged)), tuple(map(float, size[flagged])), middle, head, tail)


def _run(flags: NDArray[np.bool_]) -> int:
    """How many of the first flags are set; none where all are, since that is no end but the table."""
    length = int(np.argmin(flags))
    return 0 if flags.all() else length


@dataclass(frozen=True)
class Geometry:
    """Numbers of one table (rows, d), special rows left out.

    norm    median, least and greatest Euclidean norm of a row
    cosine  median cosine between rows 1, 2 and 4 positions apart (along the last axis of a grid); beyond 1 of a sample
    seam    the least cosine of neighbours, and the row number of the first of the two
    rank    effective rank: how many directions the rows spread over, of at most 256 evenly spaced rows
    """

    norm: tuple[float, float, float]
    cosine: dict[int, float]
    seam: tuple[float, int] | None
    rank: float


@dataclass
class TableReport:
    """One changed table: what was kept, dropped and made, before and after."""

    name: str
    dtype: str
    shape: tuple[tuple[int, ...], tuple[int, ...]]
    layout: PositionAxes
    sizes: tuple[int, ...]
    way: str
    kept: int
    dropped: int
    new: int
    in_place: bool
    duplicates: int
    rounding: float
    before: Geometry
    after: Geometry
    made_norm: float | None
    outliers: Outliers | None
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        layout, found = self.layout, self.outliers
        return {
            "tensor": self.name,
            "dtype": self.dtype,
            "shape": {"old": list(self.shape[0]), "new": list(self.shape[1])},
            "rows": {"old": layout.rows, "new": layout.prefix + int(np.prod(self.sizes)) + layout.suffix},
            "usable": {"old": layout.usable, "new": int(np.prod(self.sizes))},
            "size": {"old": list(layout.old), "new": list(self.sizes)},
            "special_rows": {"prefix": layout.prefix, "suffix": layout.suffix},
            "outliers": []
            if found is None
            else [
                {"row": layout.prefix + row, "norm": norm}
                for row, norm in zip(found.flagged, found.norms, strict=True)
            ],
            "outliers_kept": 0 if found is None else found.head + found.tail,
            "method": self.way,
            "kept": self.kept,
            "kept_in_place": self.in_place,
            "dropped": self.dropped,
            "new": self.new,
            "duplicates": self.duplicates,
            "rounding_error": self.rounding,
            "norm": {"old": _norm(self.before), "new": _norm(self.after), "made": self.made_norm},
            "cosine": {"old": _cosine(self.before), "new": _cosine(self.after)},
            "seam": {"old": _seam(self.before), "new": _seam(self.after)},
            "effective_rank": {"old": self.before.rank, "new": self.after.rank},
            "warnings": self.warnings,
            "notes": self.notes,
        }


def _norm(of: Geometry) -> dict[str, float]:
    return dict(zip(("median", "min", "max"), of.norm, strict=True))


def _cosine(of: Geometry) -> dict[str, float]:
    return {str(lag): value for lag, value in of.cosine.items()}


def _seam(of: Geometry) -> dict[str, Any] | None:
    return None if of.seam is None else {"cosine": of.seam[0], "between": [of.seam[1], of.seam[1] + 1]}


def geometry(body: NDArray[Any], size: NDArray[np.float64], line: int, first: int = 0) -> Geometry:
    """Measure rows `body` (n, d) of norms `size` (n,), of which `line` in a row are neighbours (all of them in a sequence).

    `first` is the number of the first row in its table, for the place of the seam.
    """
    middle = (median(size), float(size.min()), float(size.max()))
    cosine, seam = {}, None
    for lag in LAGS:
        if line <= lag:
            continue
        parts = list(_cosines(body, size, lag, line))
        values = np.concatenate([part for _, part in parts])
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        cosine[lag] = median(values)
        if lag == 1:
            least = min(parts, key=lambda part: float(np.nanmin(part[1], initial=2)))
            place = int(np.nanargmin(np.where(np.isnan(least[1]), 2, least[1])))
            seam = (float(least[1][place]), first + int(least[0][place]))
    return Geometry(middle, cosine, seam, effective_rank(body))


def _cosines(
    body: NDArray[Any], size: NDArray[np.float64], lag: int, line: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Row numbers and cosine with the row `lag` further in the same line, in blocks; NaN beside zero rows."""
    wide = body.dtype if body.dtype.name in ("float32", "float64", "complex64") else np.dtype(np.float32)
    step = max(1, BLOCK // max(1, body.shape[1]))
    count = len(body) - lag
    stride = step if lag == 1 else step * max(1, count // LAG_ROWS)
    for start in range(0, count, stride):
        stop = min(start + step, count)
        rows = np.arange(start, stop)
        rows = rows[rows % line < line - lag]
        if not len(rows):
            continue
        block = body[start : stop + lag].astype(wide, copy=False)
        near, far = block[rows - start], block[rows - start + lag]
        dot = np.einsum("ij,ij->i", near, far.conj()).real.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            yield rows, dot / (size[rows] * size[rows + lag])


def effective_rank(body: NDArray[Any]) -> float:
    """Participation ratio (sum l)^2 / sum l^2 of the eigenvalues l of the Gram matrix of rows (n, d).

    Both sums are traces, so that nothing is decomposed. Evenly spaced rows, at most `RANK_ROWS`, stand for all.
    """
    chosen = np.unique(np.linspace(0, len(body) - 1, min(len(body), RANK_ROWS)).astype(int))
    sample = body[chosen].astype(np.complex128 if body.dtype.kind == "c" else np.float64)
    gram = sample @ sample.conj().T if len(sample) <= sample.shape[1] else sample.conj().T @ sample
    squares = float(np.square(np.abs(gram)).sum())
    return float(np.trace(gram).real) ** 2 / squares if squares else 0.0


def account(source: NDArray[np.int64], layout: PositionAxes) -> tuple[int, int, int, bool, int]:
    """(kept, dropped, new, in place, duplicates) from the old row that each new one copies, or FRESH."""
    copies = source[source != FRESH]
    own = len(np.unique(copies))
    special = layout.prefix + layout.suffix
    shared = min(len(source), layout.usable)
    in_place = len(layout.old) == 1 and bool(np.array_equal(source[:shared], np.arange(shared)))
    return own + special, layout.usable - own, len(source) - own, in_place, len(copies) - own


def warn(report: TableReport, made: NDArray[np.float64], growing: bool) -> None:
    """Add what the numbers of `report` give reason to warn of; `made` are the norms of rows that are no copies."""
    before, after = report.before, report.after
    if len(made) and before.norm[0] > 0:
        ratio = median(made) / before.norm[0]
        if ratio < SHORT_NORM:
            report.warnings.append(f"made rows are shorter than old ones: {ratio:.2f} of their median norm")
        ceiling = max(
            before.norm[2] if report.outliers is None else 1.5 * report.outliers.median, before.norm[0]
        )
        bled = int((made > 1.001 * ceiling).sum())
        if report.outliers is not None and bled:
            report.warnings.append(
                f"{counted(bled, 'made row is', 'made rows are')} as long as the outlier rows: those bleed into their neighbours"
            )
    if (
        after.seam
        and before.seam
        and before.cosine.get(1, 0) > 0.5
        and after.seam[0] < min(SEAM, before.seam[0])
    ):
        row = after.seam[1]
        report.warnings.append(f"a seam between rows {row} and {row + 1}: cosine {after.seam[0]:.2f}")
    if growing and report.duplicates:
        report.warnings.append(
            f"{counted(report.duplicates, 'row repeats', 'rows repeat')} an old one: the model cannot tell these positions apart"
        )


STARTING_VALUES = "learned"  # the one encoding of `pe gen` that is trained afterwards


def warn_of_formula(source: Source, request: ResizeRequest, reports: Sequence[TableReport]) -> None:
    """Add a warning to `reports` of rows made from their neighbours, where the file says that a formula gives them."""
    record = made_by(source.metadata) or {}
    command, encoding = record.get("command"), record.get("encoding")
    if not isinstance(command, str) or not command.startswith("pe gen ") or encoding == STARTING_VALUES:
        return
    for report in reports:
        if report.new and report.way != REGENERATE:
            size = "longer" if sum(report.shape[1]) > sum(report.shape[0]) else "smaller"
            report.warnings.append(
                f"this table was made by `{shown(command)}`, which makes the {size} one too: {_again(command, request)}"
            )


def _again(command: str, request: ResizeRequest) -> str:
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if request.length is not None and "--len" in words:
        return f"run it with --len {request.length}"
    if request.grid is not None and "--grid" in words:
        return f"run it with --grid {times(request.grid)}"
    return "run it for that size"
