"""Rotary tables of several axes (M-RoPE): equal where the axes agree, as in text, different where they part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.identify import identify
from pe_cli.identify.arrangements import repeated
from pe_cli.identify.fixed import Reading

Complex = NDArray[np.complex128]
FEWEST_ROWS = 4
ROWS_TRIED = 8
FARTHEST = 8192
MOST_AXES = 4
TOLERANCE = 2e-3


def other_sections(
    a: NDArray[Any],
    b: NDArray[Any],
    names: tuple[str | None, str | None],
    companions: tuple[Mapping[str, NDArray[Any]] | None, Mapping[str, NDArray[Any]] | None],
) -> dict[str, Any] | None:
    """The pairs that each axis has in either table, where the first rows are one plain table in both and the
    others show the same positions in other pairs; None where this is not so."""
    if a.ndim != 2 or a.shape != b.shape:
        return None
    different = np.flatnonzero((a != b).any(axis=1))
    if not len(different) or different[0] < FEWEST_ROWS:
        return None
    head = int(different[0])
    sides = []
    for table, name, others in zip((a, b), names, companions, strict=True):
        plain = _plain_rows(table, name, others, head)
        if plain is None:
            return None
        sides.append(plain)
    rows = different[:: max(1, len(different) // ROWS_TRIED)][:ROWS_TRIED]
    for row in rows[::-1]:
        found = [_pairs_by_position(z[row], reading) for z, reading in sides]
        if found[0] is None or found[1] is None or len(found[0]) < 2 or set(found[0]) != set(found[1]):
            continue
        return {"row": int(row), "equal_rows": head} | {
            f"sections_{side}": {str(position): pairs for position, pairs in sorted(one.items())}
            for side, one in zip("ab", found, strict=True)
            if one is not None
        }
    return None


def _plain_rows(
    table: NDArray[Any], name: str | None, others: Mapping[str, NDArray[Any]] | None, head: int
) -> tuple[Complex, Reading] | None:
    """The whole table as rotations, and what its first rows are: as many of them as one axis explains."""
    for rows in (head, head // 2):
        if rows < FEWEST_ROWS:
            return None
        cut = {key: value[:rows] for key, value in others.items()} if others else None
        known = identify(table[:rows], name, cut)
        if known is not None and known.reading is not None:
            z = _rotations(table, name, others, known.reading)
            return None if z is None else (z, known.reading)
    return None


def _rotations(
    table: NDArray[Any], name: str | None, others: Mapping[str, NDArray[Any]] | None, reading: Reading
) -> Complex | None:
    values = table.astype(np.float64)
    if reading.columns == "interleaved":
        first, second = values[:, ::2], values[:, 1::2]
    elif reading.columns == "halves":
        first, second = np.split(values, 2, axis=1)
    elif others and name and any(key != name for key in others):
        other = next(value for key, value in others.items() if key != name).astype(np.float64)
        first, second = repeated(values)[1], repeated(other)[1]
        if "sin" in name.lower():
            first, second = second, first
        return np.asarray(first + 1j * second)
    else:
        return None
    return np.asarray(second + 1j * first if reading.order == "sin-first" else first + 1j * second)


def _pairs_by_position(row: Complex, reading: Reading) -> dict[int, list[int]] | None:
    """Which pairs of a row are at which position: the fewest positions that explain all."""
    w = np.array([float(f) for f in reading.solved.frequencies])
    positions = np.arange(FARTHEST)
    expected = reading.solved.amplitude * np.exp(1j * positions[:, None] * w)
    fits = np.abs(expected - row) < TOLERANCE * reading.solved.amplitude
    left = np.ones(len(w), dtype=bool)
    found: dict[int, list[int]] = {}
    while left.any() and len(found) < MOST_AXES:
        best = int(fits[:, left].sum(axis=1).argmax())
        taken = np.flatnonzero(fits[best] & left)
        if not len(taken):
            return None
        found[best] = [int(i) for i in taken]
        left[taken] = False
    return None if left.any() else found
