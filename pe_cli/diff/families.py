"""Tables of one encoding with other parameters, and tables that were resampled: both are made again and compared."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.diff.operands import KEPT, Array, Operand, Replacement, StoredTable, Viewed
from pe_cli.diff.parameters import frequency_changes, replacing
from pe_cli.diff.readings import law_of
from pe_cli.diff.turning import ColumnPlan, Places, Turning, frequencies_of
from pe_cli.diff.verify import Pair, Reason, Room, Step, largest
from pe_cli.errors import PeError
from pe_cli.inspect import identify
from pe_cli.inspect.result import Identified

LARGEST = 1 << 22
MADE = 0.9  # of the entries, that a claim must make again
MEASURED = ("max_abs", "computed", "shape", "tensor", "layout", "dim", "rows", "tables", "channels")
PAIRS = ("t5", "deberta", "shaw", "swin", "alibi")
SIZED = {"swin": 3, "alibi": 1}  # the first axes, whose sizes parameters set: all sides of a window; heads
AXIS_ORDERS = ("mae", "canonical", "moco")
METHODS = ("linear", "cubic", "nearest", "repeat-last", "tile", "stretch", "hierarchical")
ANCHORS = ("ends", "half", "left")


def family_steps(
    a: StoredTable, b: StoredTable, arrays: tuple[NDArray[Any], NDArray[Any]]
) -> list[Step] | None:
    """Both tables are one encoding of pairs or of a grid: the parameters in which they differ."""
    if len(a.shape) != len(b.shape) or a.size > LARGEST:
        return None
    first = identify(arrays[0])
    if first.encoding is None:
        return None
    known = first, identify(arrays[1])
    if known[0].encoding != known[1].encoding:
        return None
    by_length = SIZED.get(known[0].encoding or "", 0)
    if a.shape[by_length:] != b.shape[by_length:]:
        return None
    if known[0].facts.get("layout") in VECTORS and known[0].facts["layout"] == known[1].facts.get("layout"):
        return _vector_steps(known, a, b)
    sides = [_parameters(one) for one in known]
    if known[0].encoding in PAIRS:
        made = [_fitting(one, table) for one, table in zip(known, (a, b), strict=True)]
        if made[0] is None or made[1] is None or sides[0] == sides[1]:
            return None
        different = {name for name in {*sides[0], *sides[1]} if sides[0].get(name) != sides[1].get(name)}
        if different == {"masked"}:
            return None
        facts: dict[str, Any] = {"encoding": known[0].encoding}
        if known[0].ambiguous or known[1].ambiguous:
            facts["ambiguous"] = [*known[0].ambiguous, *known[1].ambiguous]
        cause = Reason("parameters", sides[0], sides[1], facts)
        return [Step(cause, replacing(made[0], made[1]))]
    if known[0].facts.get("grid") and known[1].facts.get("grid"):
        return _grid_steps(known[0], known[1], a, b)
    return None


VECTORS: dict[str, Callable[[Array, Array], Array]] = {
    "inv-freq": lambda plain, w: w,
    "mlx-freqs": lambda plain, w: 1 / w,
    "ggml-factors": lambda plain, w: plain / w,
}
FLOAT32_POWERS = 1.5e-6  # relative error of frequencies that float32 code computes


def _vector_steps(known: tuple[Identified, Identified], a: StoredTable, b: StoredTable) -> list[Step] | None:
    """Two vectors of frequencies, their inverses or divisors."""
    count, kept = a.rows, VECTORS[known[0].facts["layout"]]
    nothing = ColumnPlan("", np.zeros(0, np.intp), np.zeros(0, np.intp), np.zeros(0))

    def held(law: Mapping[str, Any], frequencies: Sequence[Any]) -> Replacement:
        plain = frequencies_of({"base": law["base"], "scaling": "none"}, count)
        numbers = [np.array([float(w) for w in one]) for one in (plain, frequencies)]
        return Replacement(a, kept(*numbers))

    try:
        laws = [law_of(one.facts) for one in known]
        first, last = (
            Turning(nothing, frequencies_of(law, count), 1.0, Places(), count, table.precision, law=law)
            for law, table in zip(laws, (a, b), strict=True)
        )
        old = held(first.law, first.frequencies)
        steps = []
        for name, side_a, side_b, facts, parts in frequency_changes(first, last):
            new = held(parts["law"], parts["frequencies"])
            room = partial(_part_of, FLOAT32_POWERS * np.abs(new.values))
            steps.append(Step(Reason(name, side_a, side_b, facts), replacing(old, new), room))
            old = new
    except (PeError, KeyError, ValueError, TypeError):
        return None
    return steps or None


def _part_of(values: Array, start: int, stop: int) -> Array:
    return values[start:stop]


def _parameters(known: Identified) -> dict[str, Any]:
    return {name: value for name, value in known.facts.items() if name not in MEASURED and value is not None}


def _fitting(known: Identified, table: StoredTable) -> Replacement | None:
    """The table made again from what it is said to be."""
    whole = table.whole()
    room = Room(
        (table.precision, table.precision),
        4e-7 * largest(whole) * (not table.integer),
    )
    for made in _made(known, table.shape):
        if made.size != table.size:
            continue
        values = made.astype(np.float64).reshape(whole.shape)
        if known.facts.get("masked"):
            values = np.where(whole <= -1e4, whole, values)
        if (~room.outside(values, whole)[0]).mean() >= MADE:
            return Replacement(table, values)
    return None


def _made(known: Identified, shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    facts = known.facts
    try:
        if known.encoding == "alibi":
            yield from _alibi(facts, shape)
        elif known.encoding == "swin":
            from pe_cli.encodings.relative import swin

            options: dict[str, Any] = {
                "window": _sides(facts["window"]),
                "version": str(facts.get("version", 1)),
                "class_token": bool(facts.get("class_token")),
            }
            if facts.get("pretrained_window"):
                options["pretrained_window"] = _sides(facts["pretrained_window"])
            if options["version"] == "2":
                options["dtype"] = "float64"
            yield np.asarray(swin(**options)[facts["tensor"]])
        else:
            for distances in _distances(shape):
                yield from _by_distance(str(known.encoding), facts, distances)
    except (PeError, KeyError, ValueError, TypeError):
        return


def _sides(text: str) -> tuple[int, int]:
    height, width = (int(side) for side in str(text).split("x"))
    return height, width


def _distances(shape: tuple[int, ...]) -> Iterator[NDArray[np.int64]]:
    """Key minus query; queries at the beginning of the keys, or at their end."""
    if len(shape) == 2:
        for first in dict.fromkeys((0, shape[1] - shape[0])):
            yield np.arange(shape[1])[None] - np.arange(shape[0])[:, None] - first
    elif len(shape) == 1:
        for first in dict.fromkeys((shape[0] // 2, 0, shape[0] - 1)):
            yield np.arange(shape[0]) - first
            yield first - np.arange(shape[0])


def _by_distance(
    encoding: str, facts: dict[str, Any], distances: NDArray[np.int64]
) -> Iterator[NDArray[Any]]:
    if encoding == "t5":
        from pe_cli.encodings.distances import t5_buckets

        yield t5_buckets(
            distances, **{name: facts[name] for name in ("num_buckets", "max_distance", "bidirectional")}
        )
    elif encoding == "shaw":
        from pe_cli.encodings.relative import shaw

        yield np.asarray(
            shaw(
                distances=distances,
                max_distance=facts["max_distance"],
                max_right=facts.get("max_right"),
                numbering=facts["numbering"],
            )
        )
    elif encoding == "deberta":
        from pe_cli.encodings.mixed import deberta

        options = {name: facts[name] for name in ("position_buckets", "max_relative_positions")}
        for signed in (-distances, distances):
            yield np.asarray(deberta(distances=signed, **options)[facts["tensor"]])


def _alibi(facts: dict[str, Any], shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    from pe_cli.encodings.biases import alibi, alibi_slopes

    form = facts.get("form", "matrix")
    if form == "slopes":
        yield alibi_slopes(facts["heads"], bias_max=facts["bias_max"])
        return
    queries = np.arange(shape[-2]) if form == "matrix" else np.arange(shape[-1])
    options: dict[str, Any] = {
        "heads": facts["heads"],
        "form": form,
        "bias_max": facts["bias_max"],
        "dtype": "float64",
    }
    if form == "matrix":
        options["bidirectional"] = facts.get("bidirectional", True)
    yield np.asarray(alibi(queries, np.arange(shape[-1]), **options))


# -- grids --------------------------------------------------------------------------------------------------------


def _grid(known: dict[str, Any], encoding: str, rows: int) -> Array | None:
    """The table over a grid that these facts make."""
    sides = tuple(int(side) for side in str(known["grid"]).split("x"))
    cells = np.stack([axis.reshape(-1) for axis in np.indices(sides)], axis=1).astype(np.float64)
    try:
        if encoding == "sinusoidal":
            from pe_cli.encodings.sinusoidal import sinusoidal

            options: dict[str, Any] = {n: known[n] for n in ("base", "style") if n in known}
            if known.get("normalize"):
                options["normalize"] = True
            made = np.asarray(
                sinusoidal(np.arange(len(cells)), known["dim"], grid=sides, dtype="float64", **options)
            )
        else:
            from pe_cli.encodings.rope.rotary import rope

            coordinates = cells[:, ::-1] if known.get("axis_order") == "column first" else cells
            tables = rope(
                coordinates,
                known["dim"],
                base=known["base"],
                axes=known["axes"],
                layout=known["layout"],
                dtype="float64",
            )
            if len(tables) != 1:
                return None
            made = np.asarray(next(iter(tables.values())))
    except (PeError, KeyError, ValueError, TypeError):
        return None
    made = made * float(known.get("amplitude", 1.0))
    before = int(known.get("prefix_rows", 0))
    made = np.concatenate([np.zeros((before, made.shape[1])), made])
    return made if len(made) == rows else None


def _grid_steps(a: Identified, b: Identified, left: StoredTable, right: StoredTable) -> list[Step] | None:
    """One fact after the other is taken over from the other table."""
    facts, wanted = dict(a.facts), b.facts
    old = _grid(facts, str(a.encoding), left.rows)
    if old is None:
        return None
    steps = []
    for names in (
        ("style", "axis_order"),
        ("grid", "axes"),
        ("base",),
        ("normalize", "stride", "start"),
        ("amplitude",),
        ("prefix_rows",),
    ):
        side_a, side_b = ({n: each[n] for n in names if each.get(n) is not None} for each in (facts, wanted))
        if side_a == side_b:
            continue
        for name in names:
            facts.pop(name, None)
        facts |= side_b
        new = _grid(facts, str(b.encoding), left.rows)
        if new is None:
            return None
        told = _grid_cause(names[0], side_a, side_b)
        if {side_a.get("style"), side_b.get("style")} == {
            "detr",
            "tatp22",
        }:  # one order of columns, from 1 or from 0
            told = "parameters"
            side_a, side_b = ({"start": int(each["style"] == "detr")} for each in (side_a, side_b))
        cause = Reason(told, side_a, side_b, {"encoding": a.encoding})
        steps.append(Step(cause, replacing(Replacement(left, old), Replacement(left, new))))
        old = new
    if steps and left.precision.name != right.precision.name:
        cause = Reason("dtype-rounding", {"dtype": left.precision.name}, {"dtype": right.precision.name})
        steps.append(Step(cause, replacing(Replacement(left, old), Replacement(right, old))))
    return steps or None


def _grid_cause(name: str, a: dict[str, Any], b: dict[str, Any]) -> str:
    if name == "style":
        return "axes" if {a.get("style"), b.get("style")} <= {*AXIS_ORDERS, None} else "layout"
    return {"grid": "axes", "base": "base", "amplitude": "amplitude", "prefix_rows": "padding-row"}.get(
        name, "parameters"
    )


# -- resampling ---------------------------------------------------------------------------------------------------


class Resampled(Viewed):
    """Rows made of a few weighted rows of another table."""

    def __init__(self, of: Operand, index: NDArray[np.int64], weight: Array) -> None:
        super().__init__(of)
        self.index, self.weight, self.rows = index, weight, len(index)

    def take(self, start: int, stop: int) -> Array:
        index, weight = self.index[start:stop], self.weight[start:stop]
        made = np.zeros((stop - start, self.columns))
        for k in range(index.shape[1]):
            made += weight[:, k, None] * self.of.at(index[:, k])
        return made


def resampled(a: Operand, b: Operand) -> Iterator[list[Step]]:
    """One table is the other with another number of rows, by a method of `pe extend`; a kernel of two axes where the
    rows are the cells of square grids."""
    if a.columns != b.columns or a.rows == b.rows or max(a.size, b.size) > KEPT or min(a.rows, b.rows) < 2:
        return
    for prefix in (0, 1, 2):
        for swapped in (False, True):
            source, target = (b, a) if swapped else (a, b)
            old, new = source.rows - prefix, target.rows - prefix
            for name, facts, index, weight in _taps(old, new):
                if prefix:
                    kept = np.arange(prefix)
                    head = np.concatenate(
                        [kept[:, None], np.zeros((prefix, index.shape[1] - 1), int)], axis=1
                    )
                    ones = np.zeros(head.shape)
                    ones[:, 0] = 1
                    index, weight = np.concatenate([head, index + prefix]), np.concatenate([ones, weight])
                probe = np.unique(np.linspace(0, target.rows - 1, 24).astype(np.intp))
                few = Resampled(source, index[probe], weight[probe])
                if not _near(few.take(0, len(probe)), target.at(probe), source, target):
                    continue
                cause = _cause(
                    name, facts | ({"prefix_rows": prefix} if prefix else {}), a.rows, b.rows, swapped
                )
                yield [Step(cause, _resampling(index, weight, swapped), _room(source))]
                return


def _resampling(index: NDArray[np.int64], weight: Array, swapped: bool) -> Callable[[Operand, Operand], Pair]:
    def undo(p: Operand, q: Operand) -> Pair:
        return (p, Resampled(q, index, weight)) if swapped else (Resampled(p, index, weight), q)

    return undo


def _cause(method: str, facts: dict[str, Any], rows_a: int, rows_b: int, swapped: bool) -> Reason:
    facts = {"method": method, "direction": "b to a" if swapped else "a to b"} | facts
    return Reason("resampled", {"rows": rows_a}, {"rows": rows_b}, facts)


def _room(source: Operand) -> float:
    return 4e-6 * largest(source.whole())


def _near(made: Array, wanted: Array, source: Operand, target: Operand) -> bool:
    scale = largest(wanted)
    unit = max(source.precision.unit, target.precision.unit)
    return bool(scale > 0 and np.abs(made - wanted).max() <= (4 * unit + 2e-6) * scale)


def _taps(old: int, new: int) -> Iterator[tuple[str, dict[str, Any], NDArray[np.int64], Array]]:
    from pe_cli.extend.resample import Options, axis_taps

    if old < 2 or new < 1:
        return
    for method, anchor, antialias in itertools.product(METHODS, ANCHORS, (False, True)):
        plain = method not in ("linear", "cubic")
        if (antialias and plain) or (anchor != "ends" and method not in ("linear", "cubic", "nearest")):
            continue
        try:
            taps = axis_taps(method, old, new, Options(anchor=anchor, antialias=antialias))  # type: ignore[arg-type]
        except PeError:
            continue
        facts: dict[str, Any] = {"anchor": anchor} if method in ("linear", "cubic", "nearest") else {}
        yield method, facts | ({"antialias": True} if antialias else {}), taps.index, taps.weight
    sides = round(old**0.5), round(new**0.5)
    if sides[0] ** 2 != old or sides[1] ** 2 != new or sides[0] < 2:
        return
    for method, anchor, antialias in itertools.product(
        ("linear", "cubic", "nearest"), ANCHORS, (False, True)
    ):
        if antialias and method == "nearest":
            continue
        for offset in (0.0, 0.1):
            options = Options(anchor=anchor, antialias=antialias, scale_offset=offset)  # type: ignore[arg-type]
            try:
                taps = axis_taps(method, sides[0], sides[1], options)
            except PeError:
                continue
            index = (taps.index[:, None, :, None] * sides[0] + taps.index[None, :, None, :]).reshape(new, -1)
            weight = (taps.weight[:, None, :, None] * taps.weight[None, :, None, :]).reshape(new, -1)
            name = {"linear": "bilinear", "cubic": "bicubic"}.get(method, method)
            facts = {"anchor": anchor, "grid": f"{sides[0]}x{sides[0]} to {sides[1]}x{sides[1]}"}
            facts |= {"antialias": True} if antialias else {}
            yield name, facts | ({"scale_offset": offset} if offset else {}), index, weight
