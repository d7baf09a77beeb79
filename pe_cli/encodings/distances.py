"""What the distance biases share: evaluating a rule once per distinct distance, heads and learned tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from pe_cli.errors import PeError, no_such, parameter
from pe_cli.memory import require_memory
from pe_cli.numerics.dtypes import round_to
from pe_cli.signature import Choice

WORKING = 2  # a table of pairs takes at most about twice its size while it is made


def over_distances(
    rule: Callable[[NDArray[np.int64]], NDArray[Any]], distances: NDArray[Any], dtype: str | None = None
) -> NDArray[Any]:
    """`rule`: (n,) distances -> (..., n), applied to `distances` of any shape -> (..., *shape).

    A (q, k) matrix holds at most q + k - 1 distinct distances: the rule sees each of them once, its
    values are rounded to `dtype`, and the matrix is gathered from them, so that nothing of the size of
    the output is built beside it.
    """
    distances = np.asarray(distances)
    if distances.dtype.kind not in "iu":
        raise PeError(f"distances are whole numbers, not {distances.dtype}")
    distances = distances.astype(np.int64, copy=False)  # rules change signs, which unsigned numbers have not
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
    queries: NDArray[Any] | None, keys: NDArray[Any] | None, distances: NDArray[Any] | None
) -> NDArray[Any]:
    """Key minus query, (q, k), or the distances given instead."""
    if queries is not None and keys is not None:
        require_room((len(queries), len(keys)), np.int64)
        pairs: NDArray[Any] = signed(keys)[None, :] - signed(queries)[:, None]
        return pairs
    if distances is None:
        raise PeError("which pairs? Give --len N, or --q-len and --k-len, or --distances A:B")
    return distances


def signed(positions: ArrayLike) -> NDArray[Any]:
    """Positions as an array of which differences can be taken."""
    where = np.asarray(positions)
    return where.astype(np.int64) if where.dtype.kind == "u" else where


def require_room(shape: tuple[int, ...], dtype: DTypeLike) -> None:
    """Refuse a table that cannot fit into memory, with what it is made from, before it is begun."""
    kind = np.dtype(dtype)
    require_memory(
        WORKING * math.prod(shape) * kind.itemsize,
        f"a table of {' x '.join(map(str, shape))} {kind.name}",
        "ask for fewer positions",
    )


def canonical(kind: str, name: str, choice: Choice) -> str:
    """The name that `name` is an alias of, or `name`; an error where it is neither."""
    found = (choice.aliases or {}).get(name, name)
    if found not in choice.names:
        raise no_such(kind, name, [*choice.names, *(choice.aliases or ())])
    return found


def check_heads(heads: int) -> int:
    if heads < 1:
        raise PeError(f"--heads {heads}: at least one head is needed")
    return heads


def refuse(why: str, **given: Any) -> None:
    """An error where an option was given that has nothing to act on: nothing is accepted and ignored."""
    named = [parameter(name) for name, value in given.items() if value is not None and value is not False]
    if named:
        raise PeError(f"{', '.join(named)}: {why}")


def head_table(
    table: NDArray[Any], rows: int, *, rows_are: str, heads_first: bool = False, option: str = "--table"
) -> NDArray[np.float64]:
    """A learned table as (heads, rows), whether it is stored as (rows, heads) or (heads, rows).

    Where both sides are equal it is read as (rows, heads), or as (heads, rows) with `heads_first`.
    """
    table = checked(table, option, dims=2)
    if rows not in (table.shape[1:] if heads_first else table.shape):
        raise PeError(f"{option} of shape {table.shape}: one side must be {rows}, {rows_are}")
    return table if heads_first or table.shape[0] != rows else table.T


def checked(array: NDArray[Any], option: str, *, dims: int | None = None) -> NDArray[np.float64]:
    """`array` in float64 after a look at its type, its number of axes and its values."""
    array = np.asarray(array)
    if array.dtype.kind in "OSUMmbc" or array.dtype.names or (dims is not None and array.ndim != dims):
        wanted = "numbers" if dims is None else f"numbers on {dims} axes"
        raise PeError(f"{option}: {array.dtype} of shape {array.shape}, expected {wanted}")
    values = array.astype(np.float64)
    if not np.isfinite(values).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise PeError(f"{option}: the value at {where} is {values[where]}")
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


def _rounded(values: NDArray[Any], dtype: str | None) -> NDArray[Any]:
    return values if dtype is None else round_to(values, dtype)
