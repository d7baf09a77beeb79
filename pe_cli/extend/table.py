"""The change of one table: from its old values to the new ones and a report, without files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.extend.find import PositionAxes
from pe_cli.extend.presets import REGENERATE, Way, advice
from pe_cli.extend.report import Outliers, TableReport, account, geometry, median, norms, outliers, warn
from pe_cli.extend.resample import METHODS, axis_taps
from pe_cli.extend.weights import FRESH, filler, resample, row_sources
from pe_cli.files import TensorSpec
from pe_cli.memory import require_memory
from pe_cli.numerics.dtypes import round_to
from pe_cli.position_names import Kind

STYLES_1D = ("t2t", "paper", "paper-cat", "t2t-cossin")  # fairseq is t2t behind a row of padding
STYLES_2D = ("mae", "canonical", "moco", "timm", "tatp22", "detr", "cogvideox")
PROBES = 64
# Largest difference from the formula that tables of a type show: their rounding, and float32 angles.
TOLERANCE = {"float64": 1e-6, "float32": 2e-4, "float16": 1e-3, "bfloat16": 5e-3}


@dataclass(frozen=True)
class Formula:
    """A formula that gives the body of a table: `name`, and how far the positions begin from 0."""

    name: str
    style: str
    width: int
    start: int = 0

    def make(self, sizes: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Rows for a body of `sizes`: (rows, d) in `dtype`, rounded once."""
        positions = np.arange(prod(sizes)) + self.start
        return round_to(_table(self.style, positions, self.width, sizes), dtype)


def recognise(rows: NDArray[Any], layout: PositionAxes) -> Formula | None:
    """The formula that the body of `rows` (n, d) follows, or None."""
    body = rows[layout.prefix : layout.prefix + layout.usable]
    limit = TOLERANCE.get(body.dtype.name, 0.0) * max(
        1.0, len(body) / 2048
    )  # float32 angles err with distance
    if not limit or len(body) < 4 or body.shape[1] < 4 or body.shape[1] % 2:
        return None
    chosen = np.unique(np.linspace(0, len(body) - 1, PROBES).astype(int))
    values = body[chosen].astype(np.float64)
    pairs = np.square(values).sum(axis=1) / (body.shape[1] / 2)  # sin² + cos² of each pair
    if np.abs(pairs - 1).max() > 0.01:
        return None
    for recipe in _recipes(body.shape[1], layout):
        try:
            made = _table(recipe.style, chosen + recipe.start, recipe.width, layout.old)
        except PeError:
            continue
        if made.shape == values.shape and np.abs(made - values).max() < limit:
            return recipe
    return None


def _recipes(width: int, layout: PositionAxes) -> Iterator[Formula]:
    if len(layout.old) == 2:
        yield from (Formula(style, style, width) for style in STYLES_2D)
        return
    for start in dict.fromkeys((layout.prefix, 0, 1, 2)):
        for style in STYLES_1D:
            yield Formula(f"{style}, from position {start}" if start else style, style, width, start)


def _table(
    style: str, positions: NDArray[np.int64], width: int, sizes: tuple[int, ...]
) -> NDArray[np.float64]:
    from pe_cli.encodings.sinusoidal import sinusoidal

    more: dict[str, Any] = {"grid": sizes} if style in STYLES_2D else {}
    made = np.asarray(sinusoidal(positions, dim=width, style=style, dtype="float64", **more))
    values: NDArray[np.float64] = made.astype(np.float64)
    return values


# Told the rows (n, d) of a table before and after its change.
Watch: TypeAlias = Callable[[NDArray[Any], NDArray[Any]], None]


@dataclass(frozen=True)
class TableChange:
    """Tensor `old` becomes `new`: its body of `layout.old` becomes `sizes`, in the way `way`."""

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

    def run(self, array: NDArray[Any]) -> tuple[NDArray[Any], Callable[[], TableReport]]:
        """The new tensor of shape `new.shape`, and a function that measures it and gives the report.

        Errors: values that are not finite, a method that cannot make these rows, regenerating what is no
        sinusoidal table.
        """
        layout = self.layout
        rows = layout.rows_of(array)
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
        recipe = recognise(rows, layout)
        if recipe is None and way.method == REGENERATE:
            raise PeError(
                f"{self.old.called} is no sinusoidal table that is known; use another --method than regenerate"
            )
        if recipe is not None and way.method != REGENERATE:
            if self.known and not way.chosen:
                notes.append(
                    f"a sinusoidal table ({recipe.name}) stored as weights: regenerated, not resampled"
                )
            else:
                notes.append(f"a sinusoidal table ({recipe.name}): --method regenerate computes it instead")
                recipe = None
        sizes = norms(body)
        found = (
            outliers(sizes)
            if self.kind == "sequence" and way.method != REGENERATE and recipe is None
            else None
        )
        if recipe is not None:
            way = replace(way, method=REGENERATE)
            source = np.full(len(inner), FRESH)
            inner[:] = recipe.make(self.sizes, rows.dtype)
            if len(layout.old) == 1:  # rows that were there stay as they are, to the bit
                shared = min(len(inner), len(body))
                inner[:shared], source[:shared] = body[:shared], np.arange(shared)
            worst: list[float] = []
        else:
            source, worst = self._resampled(body, inner, found, way, notes)
        settled = way
        if self.watch is not None:
            self.watch(rows, made)

        def report() -> TableReport:
            return self._report(rows, sizes, made, source, settled, found, worst, notes)

        return layout.restore(made, self.new.shape), report

    def _resampled(
        self, body: NDArray[Any], inner: NDArray[Any], found: Outliers | None, way: Way, notes: list[str]
    ) -> tuple[NDArray[np.int64], list[float]]:
        options = way.options
        if found is not None and way.outliers == "keep" and (found.head or found.tail):
            options = replace(options, head=found.head, tail=found.tail)
        taps = [
            axis_taps(way.method, old, new, options)
            for old, new in zip(self.layout.old, self.sizes, strict=True)
        ]
        notes += dict.fromkeys(note for axis in taps for note in axis.notes)
        worst: list[float] = []
        shaped = body.reshape(*self.layout.old, -1)
        resample(shaped, taps, filler(way.method, body, self.seed), out=inner, worst_rounding=worst.append)
        return row_sources(taps)[0], worst

    def _report(
        self,
        rows: NDArray[Any],
        sizes: NDArray[np.float64],
        made: NDArray[Any],
        source: NDArray[np.int64],
        way: Way,
        found: Outliers | None,
        worst: list[float],
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
            rounding=max(worst, default=0.0),
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
    return f"{what}; {fixed} at the ends {stay} and no other row is made from {them} (--outliers ignore to change that)"


def _require_finite(rows: NDArray[Any], name: str) -> None:
    step = max(1, (1 << 16) // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        block = rows[start : start + step]
        finite = np.isfinite(block if block.dtype.kind in "fc" else block.astype(np.float32))
        if not finite.all():
            row = start + int(np.argmin(finite.all(axis=1)))
            raise PeError(f"{name} has a value that is not finite in row {row}; mend the table first")
