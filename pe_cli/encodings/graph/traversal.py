"""The number of edges between nodes, by breadth-first search from many nodes at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.graph.members import Members, PairTable
from pe_cli.process import step
from pe_cli.structures.graph import SparseRows

WORD = 64
WORDS = 16  # of a component whose nodes are all searched from at once
WORDS_AT_ONCE = 4  # of larger ones: blocks of 256 nodes
DEEP = 250  # levels from which lists of the nodes just reached are faster than bits
BLOCK = 1 << 20  # pairs in a block of the search by lists


def hops(members: Members, links: SparseRows, limit: int | None, table: PairTable) -> None:
    """Write the number of edges on a shortest path into `table` where there is one of at most `limit` edges.

    Each node has the set of those that it reaches, a bit for each: it grows by the sets of its neighbours, all in one
    sweep over the edges. How often a bit was not there yet is the distance, counted bit by bit as well.
    """
    single = members.order[members.starts[:-1][members.sizes == 1]]
    table.put_where(single[:, None], single[:, None], np.zeros((len(single), 1, 1), dtype=np.int64))
    classes = -(-members.sizes // WORD)
    done = len(single)
    for words in np.unique(classes[(members.sizes > 1) & (classes <= WORDS)]).tolist():
        own = np.flatnonzero((classes == words) & (members.sizes > 1))
        at_once = max(1, BLOCK // (words * WORD) ** 2)
        for start in range(0, len(own), at_once):
            part = own[start : start + at_once]
            _small(members, links, part, words, limit, table)
            done += int(members.sizes[part].sum())
            step("breadth-first search", done, len(members.labels))
    for component in np.flatnonzero(classes > WORDS).tolist():
        nodes = members.nodes(component)
        inner = members.block(links, nodes)
        search = _by_lists if _depth(inner) > DEEP else _by_bits
        for rows, columns, distance in search(inner, limit):
            table.put_where(nodes[rows], nodes[columns], distance)
            done += distance.size // len(nodes)
            step("breadth-first search", done, len(members.labels))


def _small(
    members: Members,
    links: SparseRows,
    components: NDArray[np.int64],
    words: int,
    limit: int | None,
    table: PairTable,
) -> None:
    """All pairs of components of at most `words` x 64 nodes."""
    lengths = members.sizes[components]
    begin = np.cumsum(lengths) - lengths
    nodes = members.order[
        np.repeat(members.starts[components] - begin, lengths) + np.arange(int(lengths.sum()))
    ]
    inner = links.block(nodes, members.place)
    columns = inner.columns + np.repeat(np.repeat(begin, lengths), np.diff(inner.starts))
    targets = members.place[nodes]
    counts, reached = _counts(
        SparseRows(inner.starts, columns, inner.values), np.arange(len(nodes)), targets, words, limit
    )
    for size in np.unique(lengths).tolist():
        which = np.flatnonzero(lengths == size)
        rows = begin[which][:, None] + np.arange(size)
        table.put_where(nodes[rows], nodes[rows], counts[rows][:, :, :size], reached[rows][:, :, :size])


def _by_bits(
    links: SparseRows, limit: int | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]]:
    """Blocks of distances from all nodes to 256 of them; -1 where there is no path."""
    everyone = np.arange(links.size)
    at_once = WORDS_AT_ONCE * WORD
    for start in range(0, links.size, at_once):
        targets = np.arange(start, min(start + at_once, links.size))
        counts, reached = _counts(links, targets, targets - start, WORDS_AT_ONCE, limit)
        distance = np.where(reached, counts, -1)[:, : len(targets)]
        yield everyone, targets, distance


def _counts(
    links: SparseRows,
    targets: NDArray[np.int64],
    bits: NDArray[np.int64],
    words: int,
    limit: int | None,
) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """(n, words x 64) the distance of each node to the target of each bit, and whether there is a path.

    `bits` are the numbers of the `targets`; several may share a bit if no path joins them.
    """
    reach = np.zeros((links.size, words), dtype=np.uint64)
    reach[targets, bits // WORD] = np.uint64(1) << (bits % WORD).astype(np.uint64)
    going = np.flatnonzero(np.diff(links.starts) > 0)
    starts = links.starts[going]
    planes: list[NDArray[np.uint64]] = []
    level = 0
    while limit is None or level < limit:
        if not going.size:
            break
        onwards = reach.copy()
        onwards[going] |= np.bitwise_or.reduceat(reach[links.columns], starts, axis=0)
        if np.array_equal(onwards, reach):
            break
        carry = ~reach
        for plane in planes:
            carry, plane[...] = plane & carry, plane ^ carry
        if carry.any():
            planes.append(carry)
        reach = onwards
        level += 1
    counts = np.zeros((links.size, words * WORD), dtype=np.int16)
    for power, plane in enumerate(planes):
        counts += _unpacked(plane).astype(np.int16) << power
    return counts, _unpacked(reach).astype(bool)


def _unpacked(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return np.unpackbits(words.astype("<u8", copy=False).view(np.uint8), axis=1, bitorder="little")


def _depth(links: SparseRows) -> int:
    """The largest distance from the first node, a lower bound of that between any two."""
    distance = np.full((1, links.size), -1, dtype=np.int32)
    _search(links, distance, 0, links.size)
    return int(distance.max())


def _by_lists(
    links: SparseRows, limit: int | None
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any]]]:
    """Blocks of distances from some nodes to all, by lists of the nodes just reached; -1 where there is no path."""
    n = links.size
    at_once = max(1, BLOCK // n)
    for start in range(0, n, at_once):
        rows = np.arange(start, min(start + at_once, n))
        distance = np.full((len(rows), n), -1, dtype=np.int32)
        _search(links, distance, start, n if limit is None else limit)
        yield rows, np.arange(n), distance


def _search(links: SparseRows, distance: NDArray[np.int32], first: int, limit: int) -> None:
    """Fill `distance` (b, n), -1 so far, from the nodes first, first + 1, …"""
    n = links.size
    flat, mark = distance.reshape(-1), np.empty(distance.size, dtype=np.int32)
    degree = np.diff(links.starts)
    origin = np.arange(len(distance)) * n
    node = np.arange(first, first + len(distance))
    flat[origin + node] = 0
    for level in range(1, limit + 1):
        count = degree[node]
        edge = np.repeat(links.starts[node] - np.cumsum(count) + count, count) + np.arange(count.sum())
        origin, node = np.repeat(origin, count), links.columns[edge]
        place = origin + node
        new = np.flatnonzero(flat[place] < 0)
        if not new.size:
            return
        origin, node, place = origin[new], node[new], place[new]
        flat[place] = level
        # a node reached along several edges goes on once: the edge that wrote last
        mark[place] = np.arange(len(place))
        once = mark[place] == np.arange(len(place))
        origin, node = origin[once], node[once]
