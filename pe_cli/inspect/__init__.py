"""What is in a file, and what a table is: its encoding, convention and parameters, from its values alone.

Each identifier makes a hypothesis from a few numbers, regenerates the whole table from it with the project's
own functions, and is believed only where that reproduces every entry to the stored precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files import READABLE, TensorSpec
from pe_cli.files.text import made_by
from pe_cli.inspect.result import Identified, plain
from pe_cli.process import require_memory

if TYPE_CHECKING:
    from pe_cli.files.sources import Source
    from pe_cli.inspect.learned import PositionTensor
    from pe_cli.numerics.statistics import Statistics

# Parts of tensor names that speak for one of two families whose tables can be the same numbers.
HINTS = {
    "rope": ("rope", "rotary", "cos_sin", "cos_cache", "sin_cache", "freq"),
    "sinusoidal": (
        "sinusoid",
        "timestep",
        "embed_positions",
        "pos_embed",
        "position_embedding",
        "positional",
    ),
}
MOST_NAN, SHOWN_NAN = 1 / 4, 16  # of the rows
WHOLE_NUMBERS_UP_TO = 2.0**24


@np.errstate(all="ignore")  # what is no encoding gives logarithms of 0 and quotients of nothing
def identify(
    array: NDArray[Any],
    name: str | None = None,
    companions: Mapping[str, NDArray[Any]] | None = None,
    numbers: NDArray[np.intp] | None = None,
) -> Identified:
    """Say which encoding `array` is.

    >>> from pe_cli import sinusoidal
    >>> identify(sinusoidal(64, dim=16)).facts["style"]
    'paper'

    Parameters
    ----------
    array : the table, any shape; axes of length 1 are ignored
    name : its name in the file, which speaks only where the values leave two readings, and for learned tables
    companions : the other tensors of the file: cosines are read together with their sines
    numbers : (rows,) which rows of a larger table these are, where it is not the whole

    Returns
    -------
    `encoding` is None where no formula makes the table again within the precision that it is stored in; `maybe` then
    lists what it could be.
    """
    table = np.asarray(array)
    if table.size == 0:
        return Identified()
    found = None
    if _numbers(table):  # a row of NaN would be in every mean
        found = _but_for_nan(table, name, companions, numbers) or _by_formula(
            table, name, companions, numbers
        )
    if found is not None and found.encoding is not None:
        return found
    from pe_cli.inspect.learned import could_be, named_learned, structure

    named = named_learned(table, name) if name else None
    if named is not None:
        return named
    unnamed = found or Identified()
    if not unnamed.maybe:
        unnamed.maybe = could_be(table)
        shown = structure(table) if "learned" in unnamed.maybe and table.ndim == 2 else None
        unnamed.facts |= shown.facts if shown else {}
    return unnamed


def _but_for_nan(
    table: NDArray[Any],
    name: str | None,
    companions: Mapping[str, NDArray[Any]] | None,
    numbers: NDArray[np.intp] | None,
) -> Identified | None:
    """What a table would be if some of its rows did not hold NaN."""
    if table.ndim != 2 or table.dtype.kind not in "fV":
        return None
    wrong: NDArray[np.bool_] = np.asarray(np.isnan(table.astype(np.float32)).any(axis=1))
    rows = np.flatnonzero(wrong)
    if not len(rows) or len(rows) > MOST_NAN * len(table):
        return None
    found = _by_formula(np.where(wrong[:, None], np.ones_like(table[:1]), table), name, companions, numbers)
    if found is None or not found.nearly:
        return None
    shown = rows if numbers is None else numbers[rows]
    return replace(found, facts=found.facts | {"nan_rows": [int(row) for row in shown[:SHOWN_NAN]]})


def _numbers(array: NDArray[Any]) -> bool:
    return array.size >= 2 and array.ndim > 0 and (array.dtype.kind in "fiuc" or array.dtype.kind == "V")


def _by_formula(
    array: NDArray[Any],
    name: str | None,
    companions: Mapping[str, NDArray[Any]] | None,
    numbers: NDArray[np.intp] | None,
) -> Identified | None:
    values = _squeezed(array)
    if values.dtype.kind in "iu":
        from pe_cli.inspect.profiles import identify_integers

        return identify_integers(values)
    from pe_cli.inspect.tables import identify_table

    hint = _hint(name)
    if values.dtype.kind == "c":
        return (
            identify_table(values.reshape(-1, values.shape[-1]), hint, numbers) if values.ndim > 1 else None
        )
    other = _other_half(name, companions)
    if other is not None and other[1].shape == array.shape:
        pair = (values, _squeezed(other[1])) if other[0] == "sin" else (_squeezed(other[1]), values)
        found = _as_pair(*pair, numbers)
        if found is not None:
            return found
        unlike = _unlike_parts(*pair) if values.ndim == 2 else None
        if unlike is not None:
            return unlike
    if values.ndim == 1:
        return _vector(values, hint, name)
    if values.ndim == 2:
        return _matrix(values, hint, numbers)
    return _by_grid(values, hint)


def _vector(values: NDArray[Any], hint: str | None, name: str | None) -> Identified | None:
    from pe_cli.inspect.profiles import identify_frequencies, identify_slopes
    from pe_cli.inspect.ramps import identify_divisors
    from pe_cli.inspect.tables import flat_width, identify_table

    width = flat_width(values)
    if width:
        found = identify_table(values.reshape(-1, width), "rope")
        if _is_named(found):
            found.facts["shape"] = f"{len(values) // width} rows of {width} one after the other"
            return found
    return (
        identify_divisors(values, name)
        or identify_slopes(values)
        or identify_frequencies(values, named_so=hint == "rope")
        or _whole(values)
    )


def _matrix(values: NDArray[Any], hint: str | None, numbers: NDArray[np.intp] | None) -> Identified | None:
    from pe_cli.inspect.tables import identify_table

    found = identify_table(values, hint, numbers)
    if _is_named(found) or (found is not None and found.nearly):
        return found
    from pe_cli.inspect.profiles import identify_bias

    other = identify_bias(values) or _whole(values)
    if other is not None:
        return other
    across = identify_table(values.T, hint)
    if _is_named(across):
        across.facts["transposed"] = True
        across.reading = None
        return across
    return found


def _is_named(found: Identified | None) -> TypeGuard[Identified]:
    return found is not None and found.encoding is not None


def _squeezed(array: NDArray[Any]) -> NDArray[Any]:
    """Without axes of length 1, but for a column."""
    flat = array.ndim == 2 and len(array) == 1
    return array.reshape([n for n in array.shape if n != 1] or [1]) if array.ndim > 2 or flat else array


def _hint(name: str | None) -> str | None:
    lowered = (name or "").lower()
    return next((family for family, words in HINTS.items() if any(word in lowered for word in words)), None)


def _other_half(
    name: str | None, companions: Mapping[str, NDArray[Any]] | None
) -> tuple[str, NDArray[Any]] | None:
    """The sines of cosines, or the cosines of sines, by name."""
    if not name or not companions:
        return None
    for part, other in (("cos", "sin"), ("sin", "cos")):
        at = name.lower().rfind(part)
        wanted = name[:at] + other + name[at + 3 :]
        if at >= 0 and wanted in companions:
            return other, companions[wanted]
    return None


def _as_pair(cos: NDArray[Any], sin: NDArray[Any], numbers: NDArray[np.intp] | None) -> Identified | None:
    from pe_cli.inspect.tables import identify_pair

    if cos.ndim == 3:  # one table for each axis of positions, or for each item of a batch
        found = [_as_pair(c, s, None) for c, s in zip(cos, sin, strict=True)]
        first = found[0]
        if first is None or any(f is None or f.facts.get("base") != first.facts.get("base") for f in found):
            return None
        first.facts["tables"] = len(found)
        return first
    return identify_pair(cos, sin, None, numbers) if cos.ndim == 2 and cos.dtype.kind != "c" else None


def _unlike_parts(cos: NDArray[Any], sin: NDArray[Any]) -> Identified | None:
    """Cosines and sines that make no table together, though each of them may be a part of one."""
    from pe_cli.inspect.tables import identify_component

    told = []
    for part in (cos, sin):
        one = identify_component(part)
        if not _is_named(one):
            return None
        names = ("base", "scaling", "factor", "start", "stride")
        told.append(
            ", ".join(f"{name} {plain(one.facts[name])}" for name in names if one.facts.get(name) is not None)
        )
    if told[0] == told[1]:
        return None
    return Identified(None, maybe=[f"cosines of {told[0]}, with sines of {told[1]}"])


def _whole(values: NDArray[Any]) -> Identified | None:
    """Indices that are kept as floating-point numbers."""
    if not np.isfinite(values.astype(np.float64)).all():
        return None
    numbers = values.astype(np.float64)
    if (
        np.abs(numbers).max() > WHOLE_NUMBERS_UP_TO
        or np.any(numbers != np.rint(numbers))
        or np.ptp(numbers) < 3
    ):
        return None
    from pe_cli.inspect.profiles import identify_integers

    return identify_integers(numbers)


def _by_grid(values: NDArray[Any], hint: str | None) -> Identified | None:
    """Three axes and more: a bias by head, or a table over a grid, channels last or first."""
    from pe_cli.inspect.tables import identify_table

    if values.dtype.kind == "c" or values.ndim > 4:
        return (
            identify_table(values.reshape(-1, values.shape[-1]), hint) if values.dtype.kind == "c" else None
        )
    if values.ndim == 3:
        from pe_cli.inspect.grids import identify_coordinates
        from pe_cli.inspect.profiles import identify_bias

        found = identify_coordinates(values) or identify_bias(values)
        if found is not None:
            return found
    if values.ndim == 3 and values.shape[-1] == 2:  # pairs of cosine and sine
        found = identify_table(values.reshape(len(values), -1), "rope")
        if _is_named(found):
            found.facts["shape"] = "cosine and sine on an axis of their own"
            return found
    found = identify_table(values.reshape(-1, values.shape[-1]), hint)
    if not _is_named(found):
        across = identify_table(values.reshape(len(values), -1).T, hint)
        if _is_named(across):
            across.facts["channels"] = "first"
            return across
    return found


# -- files --------------------------------------------------------------------------------------------------------

SCHEMA = "pe.inspect/1"
MANY = 16
WHOLE = 1 << 22  # numbers: a tensor of no more is looked at whole
LEAD = 1 << 18  # numbers of the first rows of a larger one,
PLACES, TOGETHER = 192, 2  # and so many places over the rest, with so many rows each
BLOCK_ITEMS = 1 << 17  # which stay in the cache of a core while they are looked at


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

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": self.spec.name,
            "shape": list(self.spec.shape),
            "dtype": self.spec.dtype,
            "bytes": self.spec.nbytes,
        }
        if self.role:
            found["identified"] = {**self.role.to_dict(), "from": "header"}
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

    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "source": self.label,
            "format": self.format,
            "metadata": self.metadata,
            "made_by": self.made_by,
            "tensors": [tensor.to_dict() for tensor in self.tensors],
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
    if any(source.tensors):  # the one table of an .npy file has no name
        from pe_cli.inspect.learned import describe_checkpoint

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
                from pe_cli.numerics.statistics import describe

                report.statistics = describe(report.values)
            others = {name: array for name, array in read.items() if name != report.spec.name}
            report.identified = identify(report.values, report.spec.name, others, report.numbers)
            if report.numbers is not None:
                strange = report.statistics["nan"] + report.statistics["infinite"]
                seen = int((~np.isfinite(report.values.astype(np.float32))).sum()) if strange else 0
                report.identified = over_length(report.identified, report.numbers, hidden=strange > seen)
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
    from pe_cli.numerics.statistics import RowStatistics, evenly, similarity

    places = evenly(rows - TOGETHER + 1, PLACES)
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


def over_length(found: Identified, numbers: NDArray[np.intp], *, hidden: bool = False) -> Identified:
    """What chosen rows are, by their `numbers` in the whole table: which row first leaves the line is known to a block.

    `hidden` where the other rows hold NaN or infinities, which no formula has seen.
    """
    facts = found.facts
    if facts.get("rule") is not None:
        left = int(numbers[min(facts.get("leaves_line_at", 0), len(numbers) - 1)])
        facts = {name: value for name, value in facts.items() if name not in ("runs", "number_of_runs")}
        facts |= {"leaves_line_at": f"row {left} or before it"}
    if found.encoding is None or not hidden:
        return replace(found, facts=facts)
    told = {"rows_that_differ": "those with NaN or infinities, which are none of the rows that were read"}
    maybe = [f"{found.encoding}, but for rows with NaN or infinities"]
    return replace(found, encoding=None, facts=facts | told, residual=None, maybe=maybe)
