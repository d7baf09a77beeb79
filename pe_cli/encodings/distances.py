"""What the distance biases share: evaluating a rule once per distinct distance, heads and learned tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.memory import require_memory
from pe_cli.numerics.dtypes import ElementType, round_to
from pe_cli.signature import Array, Distances, Keys, Queries

WORKING = 2  # a table of pairs takes at most about twice its size while it is made


def over_distances(
    rule: Callable[[NDArray[np.int64]], NDArray[Any]],
    distances: NDArray[np.int64],
    dtype: ElementType | None = None,
) -> NDArray[Any]:
    """`rule`: (n,) distances -> (..., n), applied to `distances` of any shape -> (..., *shape).

    A (q, k) matrix holds at most q + k - 1 distinct distances: the rule sees each of them once, its
    values are rounded to `dtype`, and the matrix is gathered from them, so that nothing of the size of
    the output is built beside it.
    """
    if distances.size:
        low, high = int(distances.min()), int(distances.max())
        period = high - low + 1
        if period < distances.size:
            values = _rounded(rule(np.arange(low, high + 1)), dtype)
            require_room((*values.shape[:-1], *distances.shape), values.dtype)
            # Rolled so that distance d sits at d modulo the period, where "wrap" looks: no shifted copy is made.
            cycle = np.roll(values, low % period, axis=-1)
            gathered: NDArray[Any] = np.take(cycle, _near_zero(distances, period), axis=-1, mode="wrap")
            return gathered
    values = _rounded(rule(distances.reshape(-1)), dtype)
    return values.reshape((*values.shape[:-1], *distances.shape))


def differences(
    queries: Queries | None, keys: Keys | None, distances: Distances | None = None
) -> NDArray[np.int64]:
    """Key minus query, (q, k), or the distances given instead; without keys, those of the queries among themselves."""
    if distances is not None:
        if queries is not None or keys is not None:
            raise PeError(
                f"{parameter('distances')} say which pairs: leave {parameter('queries')} and {parameter('keys')} out"
            )
        return np.asarray(distances)
    where, others = queries_and_keys(queries, keys)
    require_room((len(where), len(others)), np.int64)
    pairs: NDArray[np.int64] = others[None, :] - where[:, None]
    return pairs


def queries_and_keys(
    queries: Queries | None, keys: Keys | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The positions of queries and keys; without keys they are those of the queries."""
    if queries is None:
        instead = f", or {parameter('distances')}" if keys is None else ""
        raise PeError(
            f"which pairs? Give {parameter('queries')}, with {parameter('keys')} if they differ{instead}"
        )
    where = np.asarray(queries)
    return where, where if keys is None else np.asarray(keys)


def require_room(shape: tuple[int, ...], dtype: DTypeLike) -> None:
    """Refuse a table that cannot fit into memory, with what it is made from, before it is begun."""
    kind = np.dtype(dtype)
    require_memory(
        WORKING * math.prod(shape) * kind.itemsize,
        f"a table of {' x '.join(map(str, shape))} {kind.name}",
        "ask for fewer positions",
    )


def check_heads(heads: int) -> int:
    if heads < 1:
        raise PeError(f"{parameter('heads')} {heads}: at least one head is needed")
    return heads


def refuse(why: str, **given: Any) -> None:
    """An error where an option was given that has nothing to act on: nothing is accepted and ignored."""
    named = [parameter(name) for name, value in given.items() if value is not None and value is not False]
    if named:
        raise PeError(f"{', '.join(named)}: {why}")


def head_table(
    table: Array, rows: int, *, rows_are: str, heads_first: bool = False, name: str = "table"
) -> NDArray[np.float64]:
    """A learned table as (heads, rows), whether it is stored as (rows, heads) or (heads, rows).

    Where both sides are equal it is read as (rows, heads), or as (heads, rows) with `heads_first`.
    """
    learned = checked(table, name, dims=2)
    if rows not in (learned.shape[1:] if heads_first else learned.shape):
        raise PeError(
            f"{parameter(name)} has shape {learned.shape}: one of its axes must be {rows}, {rows_are}"
        )
    return learned if heads_first or learned.shape[0] != rows else learned.T


def checked(array: Array, name: str, *, dims: int | None = None) -> NDArray[np.float64]:
    """The values of parameter `name` in float64, after a look at their number of axes and at infinities."""
    values = np.asarray(array).astype(np.float64)
    if dims is not None and values.ndim != dims:
        raise PeError(f"{parameter(name)} has shape {values.shape}; numbers on {dims} axes are needed")
    if not np.isfinite(values).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise PeError(f"{parameter(name)}: the value at {where} is {values[where]}")
    return values


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)), without overflow where x is very negative."""
    small = np.exp(-np.abs(x))
    result: NDArray[np.float64] = np.where(x >= 0, 1.0, small) / (1 + small)
    return result


def _near_zero(distances: NDArray[Any], period: int) -> NDArray[Any]:
    """Distances within a few periods of 0: numpy's "wrap" counts the periods one by one."""
    far = max(abs(int(distances.min())), abs(int(distances.max()))) > 4 * period
    shifted: NDArray[Any] = distances % period if far else distances
    return shifted


def _rounded(values: NDArray[Any], dtype: ElementType | None) -> NDArray[Any]:
    return values if dtype is None else round_to(values, dtype)
