"""What is this table: its encoding, convention and parameters, from its values alone.

Each identifier makes a hypothesis from a few numbers, regenerates the whole table from it with the project's
own functions, and is believed only where that reproduces every entry to the stored precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from pe_cli.inspect.checkpoints import PositionTensor, describe_checkpoint
from pe_cli.inspect.frequencies import identify_divisors, identify_frequencies
from pe_cli.inspect.learned import could_be, named_learned, structure
from pe_cli.inspect.relative import identify_bias, identify_coordinates, identify_integers, identify_slopes
from pe_cli.inspect.result import Identified
from pe_cli.inspect.tables import flat_width, identify_pair, identify_table

__all__ = ["Identified", "PositionTensor", "describe_checkpoint", "identify"]

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
WHOLE_NUMBERS_UP_TO = 2.0**24


@np.errstate(all="ignore")  # what is no encoding gives logarithms of 0 and quotients of nothing
def identify(
    array: NDArray[Any], name: str | None = None, companions: Mapping[str, NDArray[Any]] | None = None
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

    Returns
    -------
    `encoding` is None where no formula makes the table again within the precision that it is stored in; `maybe` then
    lists what it could be.
    """
    table = np.asarray(array)
    found = _by_formula(table, name, companions) if _numbers(table) else None
    if found is not None and found.encoding is not None:
        return found
    named = named_learned(table, name) if name else None
    if named is not None:
        return named
    unnamed = found or Identified()
    if not unnamed.maybe:
        unnamed.maybe = could_be(table)
        shown = structure(table) if "learned" in unnamed.maybe and table.ndim == 2 else None
        unnamed.facts |= shown.facts if shown else {}
    return unnamed


def _numbers(array: NDArray[Any]) -> bool:
    return array.size >= 2 and array.ndim > 0 and (array.dtype.kind in "fiuc" or array.dtype.kind == "V")


def _by_formula(
    array: NDArray[Any], name: str | None, companions: Mapping[str, NDArray[Any]] | None
) -> Identified | None:
    values = _squeezed(array)
    if values.dtype.kind in "iu":
        return identify_integers(values)
    hint = _hint(name)
    if values.dtype.kind == "c":
        return identify_table(values.reshape(-1, values.shape[-1]), hint) if values.ndim > 1 else None
    other = _other_half(name, companions)
    if other is not None and other[1].shape == array.shape:
        pair = (values, _squeezed(other[1])) if other[0] == "sin" else (_squeezed(other[1]), values)
        found = _as_pair(*pair)
        if found is not None:
            return found
    if values.ndim == 1:
        return _vector(values, hint)
    if values.ndim == 2:
        return _matrix(values, hint)
    return _by_grid(values, hint)


def _vector(values: NDArray[Any], hint: str | None) -> Identified | None:
    width = flat_width(values)
    if width:
        found = identify_table(values.reshape(-1, width), "rope")
        if _is_named(found):
            found.facts["shape"] = f"{len(values) // width} rows of {width} one after the other"
            return found
    return (
        identify_divisors(values)
        or identify_slopes(values)
        or identify_frequencies(values, named_so=hint == "rope")
        or _whole(values)
    )


def _matrix(values: NDArray[Any], hint: str | None) -> Identified | None:
    found = identify_table(values, hint)
    if _is_named(found):
        return found
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


def _as_pair(cos: NDArray[Any], sin: NDArray[Any]) -> Identified | None:
    if cos.ndim == 3:  # one table for each axis of positions, or for each item of a batch
        found = [_as_pair(c, s) for c, s in zip(cos, sin, strict=True)]
        first = found[0]
        if first is None or any(f is None or f.facts.get("base") != first.facts.get("base") for f in found):
            return None
        first.facts["tables"] = len(found)
        return first
    return identify_pair(cos, sin, None) if cos.ndim == 2 and cos.dtype.kind != "c" else None


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
    return identify_integers(numbers)


def _by_grid(values: NDArray[Any], hint: str | None) -> Identified | None:
    """Three axes and more: a bias by head, or a table over a grid, channels last or first."""
    if values.dtype.kind == "c" or values.ndim > 4:
        return (
            identify_table(values.reshape(-1, values.shape[-1]), hint) if values.dtype.kind == "c" else None
        )
    if values.ndim == 3:
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
