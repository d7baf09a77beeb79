"""The change of one table: from its old values to the new ones and a report, without files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, counted, parameter
from pe_cli.extend.request import REGENERATE, Way, advice
from pe_cli.extend.resample import FRESH, METHODS, Taps, axis_taps, row_sources
from pe_cli.extend.rows import (
    Geometry,
    Outliers,
    PositionAxes,
    filler,
    geometry,
    largest_part,
    norms,
    outliers,
    resample,
    times,
)
from pe_cli.files import TensorSpec
from pe_cli.numerics.dtypes import round_to, rounding_of
from pe_cli.numerics.statistics import evenly, median
from pe_cli.position_names import Kind
from pe_cli.process import require_memory

PROBES = 64
LOOKED_AT = 4096  # rows of a line from which its formula is told; the others are only compared with it
# Largest difference from the formula that tables of a type show: their rounding, and float32 angles.
TOLERANCE = {"float64": 1e-6, "float32": 2e-4, "float16": 1e-3, "bfloat16": 5e-3}


@dataclass(frozen=True)
class Formula:
    """The sinusoidal encoding that gives the body of a table, as `pe inspect` finds it.

    Positions are start + stride j on a line, and stride j on each axis of a grid.
    """

    style: str
    width: int
    base: float
    start: float = 0.0
    stride: tuple[float, ...] = (1.0,)

    @property
    def name(self) -> str:
        """`t2t`, `t2t, from position 2`, `mae, base 1000`."""
        base = f", base {self.base:g}" if self.base != 10000 else ""
        start = f", from position {self.start:g}" if self.start else ""
        steps = (
            f", in steps of {' and '.join(f'{s:g}' for s in self.stride)}"
            if set(self.stride) != {1.0}
            else ""
        )
        return f"{self.style}{base}{start}{steps}"

    def make(
        self, sizes: tuple[int, ...], dtype: np.dtype[Any], rows: NDArray[np.int64] | None = None
    ) -> NDArray[Any]:
        """The rows of a body of `sizes`, or of these only the numbers `rows`: (rows, d) in `dtype`, rounded once."""
        from pe_cli.encodings.sinusoidal import sinusoidal

        wanted: NDArray[Any] = np.arange(prod(sizes)) if rows is None else rows
        more: dict[str, Any] = {}
        if len(sizes) > 1:
            more = {"grid": sizes}
            if set(self.stride) != {1.0}:
                steps = self.stride * len(sizes) if len(self.stride) == 1 else self.stride
                more["interpolation_scale"] = tuple(1 / step for step in steps)
        else:
            wanted = self.start + self.stride[0] * wanted
            if self.start.is_integer() and self.stride[0].is_integer():
                wanted = wanted.astype(np.int64)
        made = np.asarray(
            sinusoidal(wanted, dim=self.width, style=self.style, base=self.base, dtype="float64", **more)
        )
        return round_to(made.astype(np.float64), dtype)

    def spanning(self, old: tuple[int, ...], new: tuple[int, ...]) -> Formula:
        """The same span in more or fewer steps, as diffusers divides positions by the size of the table."""
        steps = self.stride * len(old) if len(self.stride) == 1 else self.stride
        return replace(self, stride=tuple(s * o / n for s, o, n in zip(steps, old, new, strict=True)))


def formula_of(rows: NDArray[Any], layout: PositionAxes) -> Formula | None:
    """The sinusoidal formula that the body of `rows` (n, d) follows, or None."""
    body = rows[layout.prefix : layout.prefix + layout.usable]
    limit = TOLERANCE.get(body.dtype.name, 0.0) * max(
        1.0, len(body) / 2048
    )  # float32 angles err with distance
    if not limit or len(body) < 4 or body.shape[1] < 4:
        return None
    chosen = evenly(len(body), PROBES)
    values = body[chosen].astype(np.float64)
    pairs = np.square(values).sum(axis=1) / (body.shape[1] // 2)  # sin² + cos² of each pair
    if np.abs(pairs - 1).max() > (0.01 if body.shape[1] % 2 == 0 else 0.5):
        return None
    found = told(body, layout)
    if found.get("encoding") != "sinusoidal" or found.get("amplitude", 1) != 1:
        return None
    formula = _as_formula(found, body.shape[1], layout)
    if formula is None:
        return None
    try:
        made = formula.make(layout.old, np.dtype(np.float64), chosen)
    except PeError:
        return None
    return formula if made.shape == values.shape and np.abs(made - values).max() < limit else None


def told(body: NDArray[Any], layout: PositionAxes) -> dict[str, Any]:
    """What `pe inspect` says of the rows of a table, as plain data; empty where it says nothing."""
    from pe_cli.inspect import identify

    seen = body if len(layout.old) > 1 else body[:LOOKED_AT]
    return identify(seen).to_dict()


def _as_formula(found: dict[str, Any], width: int, layout: PositionAxes) -> Formula | None:
    style, base, start, stride = (found.get(key) for key in ("style", "base", "start", "stride"))
    if not isinstance(style, str) or not isinstance(base, (int, float)) or found.get("runs"):
        return None
    steps = tuple(
        float(step) for step in (stride if isinstance(stride, list) else [1 if stride is None else stride])
    )
    if len(layout.old) > 1:
        if found.get("grid") != times(layout.old) or found.get("normalize"):
            return None
        return Formula(style, width, float(base), 0.0, steps)
    if "grid" in found or isinstance(start, list) or len(steps) != 1:
        return None
    style = "t2t" if style == "fairseq" else style
    return Formula(style, width, float(base), float(start or 0), steps)


SHORT_NORM = 0.9
SEAM = 0.2


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


def account(source: NDArray[np.int64], layout: PositionAxes) -> tuple[int, int, int, bool, int]:
    """(kept, dropped, new, in place, duplicates) from the old row that each new one copies, or FRESH."""
    copies = source[source != FRESH]
    own = np.count_nonzero(np.bincount(copies))
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


# Told the rows (n, d) of a table before and after its change.
Watch: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], None]


@dataclass(frozen=True)
class TableChange:
    """Tensor `old` becomes `new`: its body of `layout.old` becomes `sizes`, in the way `way`.

    `spans` says that a formula keeps its span (the sin-cos table of SD3). Once it has run, `applied` holds what was done
    to the rows, for what has to follow them.
    """

    old: TensorSpec
    new: TensorSpec
    kind: Kind
    layout: PositionAxes
    sizes: tuple[int, ...]
    way: Way
    seed: int
    known: bool = True
    notes: tuple[str, ...] = ()
    watch: Watch | None = None
    spans: bool = False
    applied: list[Callable[[NDArray[Any]], NDArray[Any]]] = field(default_factory=list, compare=False)

    def run(self, array: NDArray[Any]) -> tuple[NDArray[Any], Callable[[], TableReport]]:
        """The new tensor of shape `new.shape`, and a function that measures it and gives the report.

        Errors: values that are not finite, a method that cannot make these rows, regenerating what is no
        sinusoidal table.
        """
        layout = self.layout
        rows = layout.rows_of(array)
        lengths = norms(rows)
        if not np.isfinite(lengths).all():
            _require_finite(rows, self.old.called)
        end = layout.prefix + layout.usable
        body = rows[layout.prefix : end]
        total = layout.prefix + prod(self.sizes) + layout.suffix
        nbytes = 2 * total * rows.shape[1] * rows.dtype.itemsize  # it, and what it is made from
        require_memory(nbytes, f"a table of {total} rows", "ask for fewer")
        made = np.empty((total, rows.shape[1]), rows.dtype)
        made[: layout.prefix] = rows[: layout.prefix]
        made[total - layout.suffix :] = rows[end:]
        inner = made[layout.prefix : total - layout.suffix]
        way, notes = self.way, list(self.notes)
        formula = formula_of(rows, layout)
        warnings: list[str] = []
        if formula is None and way.method == REGENERATE:
            raise PeError(
                f"{self.old.called} is not a sinusoidal table that pe recognises, so it cannot be regenerated; choose another "
                f"{parameter('method')} (default: linear)"
            )
        if formula is not None and way.method != REGENERATE:
            if self.known and not way.chosen:
                notes.append(
                    f"a sinusoidal table ({formula.name}) stored as weights: regenerated, not resampled"
                )
            else:
                warnings.append(
                    f"this is a sinusoidal table ({formula.name}), and its rows follow a formula: {parameter('method')} regenerate computes them"
                )
                formula = None
        elif formula is None and not self.known:
            warnings += _about_rotary(body, layout)
        if formula is not None and self.spans:
            formula = formula.spanning(layout.old, self.sizes)
            notes.append(f"positions keep their span, as diffusers computes them: {formula.name}")
        sizes = lengths[layout.prefix : end]
        found = (
            outliers(sizes)
            if self.kind == "sequence" and way.method != REGENERATE and formula is None
            else None
        )
        if formula is not None:
            way = replace(way, method=REGENERATE)
            source = np.full(len(inner), FRESH)
            inner[:] = formula.make(self.sizes, rows.dtype)
            if len(layout.old) == 1:  # rows that were there stay as they are, to the bit
                shared = min(len(inner), len(body))
                inner[:shared], source[:shared] = body[:shared], np.arange(shared)
        else:
            source = self._resampled(body, inner, found, way, notes)
        settled = way
        if self.watch is not None:
            self.watch(rows, made)

        def report() -> TableReport:
            told_of = self._report(rows, sizes, made, source, settled, found, notes)
            told_of.warnings[:0] = warnings
            return told_of

        return layout.restore(made, self.new.shape, self.sizes), report

    def _resampled(
        self, body: NDArray[Any], inner: NDArray[Any], found: Outliers | None, way: Way, notes: list[str]
    ) -> NDArray[np.int64]:
        options = way.options
        if found is not None and way.outliers == "keep" and (found.head or found.tail):
            options = replace(options, head=found.head, tail=found.tail)
        taps = [
            axis_taps(way.method, old, new, options)
            for old, new in zip(self.layout.old, self.sizes, strict=True)
        ]
        notes += dict.fromkeys(note for axis in taps for note in axis.notes)
        resample(body.reshape(*self.layout.old, -1), taps, filler(way.method, body, self.seed), out=inner)
        self.applied.append(lambda other: self._alike(other, taps))
        return row_sources(taps)[0]

    def _alike(self, array: NDArray[Any], taps: Sequence[Taps]) -> NDArray[Any]:
        """A tensor of the shape of the table, its rows made from its own as those of the table were; new ones are zeros."""
        layout = self.layout
        rows = layout.rows_of(array)
        body = rows[layout.prefix : layout.prefix + layout.usable]
        made = resample(body.reshape(*layout.old, -1), taps).reshape(prod(self.sizes), -1)
        whole = np.concatenate([rows[: layout.prefix], made, rows[layout.prefix + layout.usable :]])
        return layout.restore(whole, self.new.shape, self.sizes)

    def _report(
        self,
        rows: NDArray[Any],
        sizes: NDArray[np.float64],
        made: NDArray[Any],
        source: NDArray[np.int64],
        way: Way,
        found: Outliers | None,
        notes: list[str],
    ) -> TableReport:
        layout = self.layout
        body = rows[layout.prefix : layout.prefix + layout.usable]
        inner = made[layout.prefix : len(made) - layout.suffix]
        kept, dropped, new, in_place, duplicates = account(source, layout)
        new_sizes = norms(inner)
        fresh = new_sizes[source == FRESH]
        if found is not None and (way.outliers == "ignore" or not METHODS[way.method].grows):
            found = replace(found, head=0, tail=0)
        report = TableReport(
            name=self.old.name,
            dtype=self.old.dtype,
            shape=(self.old.shape, self.new.shape),
            layout=layout,
            sizes=self.sizes,
            way=way.words,
            kept=kept,
            dropped=dropped,
            new=new,
            in_place=in_place or layout.usable == 0,
            duplicates=duplicates,
            rounding=rounding_of(largest_part(inner), inner.dtype) if fresh.any() else 0.0,
            before=geometry(body, sizes, layout.old[-1], layout.prefix),
            after=geometry(inner, new_sizes, self.sizes[-1], layout.prefix),
            made_norm=median(fresh) if len(fresh) else None,
            outliers=found,
            notes=notes,
        )
        if found is not None and found.flagged:
            report.notes.append(_about_outliers(found, layout, way))
        warn(report, fresh, growing=prod(self.sizes) > layout.usable and METHODS.get(way.method) is not None)
        favoured = advice(self.kind, way.method, layout.usable, prod(self.sizes))
        if favoured:
            report.notes.append(favoured)
        return report


def _about_rotary(body: NDArray[Any], layout: PositionAxes) -> list[str]:
    """A warning where a bare table is cosines and sines of rotary angles, which a formula gives at any length."""
    first = body[0].astype(np.complex128 if body.dtype.kind == "c" else np.float64)
    norm = np.abs(body[:: max(1, len(body) // PROBES)].astype(first.dtype)) ** 2
    constant = np.ptp(norm.sum(axis=1)) < 1e-2 * float(norm.sum(axis=1).max())
    if not constant and not (np.ptp(np.abs(first)) < 1e-6):
        return []
    found = told(body, layout)
    if found.get("encoding") != "rope":
        return []
    base = f" of base {found['base']:g}" if isinstance(found.get("base"), (int, float)) else ""
    return [
        f"this is a rotary table (RoPE){base}, and its rows follow a formula: `pe gen rope` makes it for any length; what was made "
        "here from its neighbours is position interpolation"
    ]


def _about_outliers(found: Outliers, layout: PositionAxes, way: Way) -> str:
    shown = ", ".join(
        f"{layout.prefix + row} ({norm:.2f})"
        for row, norm in list(zip(found.flagged, found.norms, strict=True))[:6]
    )
    more = f" and {len(found.flagged) - 6} more" if len(found.flagged) > 6 else ""
    one = len(found.flagged) == 1
    row, stand, their = ("row", "stands", "its") if one else ("rows", "stand", "their")
    they_are = "it is" if one else "they are"
    what = f"{row} {shown}{more} {stand} out by {their} norm (median {found.median:.2f})"
    method = METHODS[way.method]
    if not method.grows:
        return f"{what}; {way.method} makes no rows, and drops {'it' if one else 'these'} like the others"
    if way.outliers == "ignore":
        return f"{what}; {they_are} treated like the others"
    fixed = found.head + found.tail
    if not fixed:
        return f"{what}; {they_are} not at an end and treated like the others"
    if fixed == 1:
        stay, them = f"stays {'where it is' if method.in_place else 'at its end'}", "it"
    else:
        stay, them = f"stay {'where they are' if method.in_place else 'at their ends'}", "them"
    return f"{what}; {fixed} at the ends {stay} and no other row is made from {them} ({parameter('outliers')} ignore to change that)"


def _require_finite(rows: NDArray[Any], name: str) -> None:
    step = max(1, (1 << 16) // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        finite = np.isfinite(block if block.dtype.kind in "fc" else block.astype(np.float32))
        if not finite.all():
            row = start + int(np.argmin(finite.all(axis=1)))
            raise PeError(f"{name} has a value that is not finite in row {row}; mend the table first")
