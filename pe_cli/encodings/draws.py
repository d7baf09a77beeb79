"""Several random arrays from one seed: consecutive pieces of its stream."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pe_cli.randomness import uniform_rows

Draw = Callable[[NDArray[np.int64], int, int], NDArray[np.float64]]


def in_turn(draw: Draw, shapes: Sequence[tuple[int, ...]], seed: int) -> Iterator[NDArray[np.float64]]:
    """An array of each shape, by `uniform_rows` or `normal_rows` of `pe_cli.randomness`."""
    start = 0
    for shape in shapes:
        count = math.prod(shape)
        yield draw(np.arange(start, start + count), 1, seed).reshape(shape)
        start += count


def distinct_integers(count: int, below: int, seed: int) -> NDArray[np.int64]:
    """(count,) different integers from 0 to below - 1, sorted; every set of them is as likely."""
    if 2 * count > below:
        left_out = distinct_integers(below - count, below, seed)
        kept = np.ones(below, bool)
        kept[left_out] = False
        return np.flatnonzero(kept)
    draws = 2 * count + 64
    while True:
        drawn = (uniform_rows(np.arange(draws), 1, seed)[:, 0] * below).astype(np.int64)
        values, first = np.unique(drawn, return_index=True)
        if len(values) >= count:
            return np.sort(drawn[np.sort(first)[:count]])
        draws *= 2
