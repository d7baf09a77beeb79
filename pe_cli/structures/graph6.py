"""graph6 and sparse6, a graph on each line, by the description of the formats that comes with nauty."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files.text import Opened, whole_bytes
from pe_cli.process import require_memory
from pe_cli.structures.datasets import GraphDataset, Held, Integers, Options

BITS_AT_ONCE = 1 << 23
HEADERS = (b">>graph6<<", b">>sparse6<<")
LOW, HIGH = 63, 126  # the characters that stand for 6 bits


def looks_like_graph6(head: bytes, label: str) -> bool:
    """Whether the first bytes, or the name of the file, are those of graph6 or sparse6."""
    if head.startswith(HEADERS) or label.removesuffix(".gz").endswith((".g6", ".s6")):
        return True
    line = head.split(b"\n")[0].strip()
    body = line.removeprefix(b":")
    if not body or min(body) < LOW or max(body) > HIGH:
        return False
    if line != body:
        return True
    try:
        size, used = _order(body, label)
    except PeError:
        return False
    return len(body) - used == -(-_pairs(size) // 6)


def read_graph6(file: Opened, options: Options) -> GraphDataset:
    """Graphs in graph6 or sparse6, one on each line."""
    data = whole_bytes(file)
    for header in HEADERS:
        data = data.removeprefix(header)
    numbers = [(number, line.strip()) for number, line in enumerate(data.split(b"\n"), 1)]
    lines = [(number, line) for number, line in numbers if line]
    sizes, bodies, sparse = np.zeros(len(lines), dtype=np.int64), [], np.zeros(len(lines), dtype=bool)
    for place, (number, line) in enumerate(lines):
        where = f"{file.label} line {number}"
        sparse[place] = line[:1] == b":"
        if line[:1] in (b"&", b";"):
            what = "digraph6" if line[:1] == b"&" else "incremental sparse6"
            raise PeError(f"{where}: {what} is not read; write graph6 or sparse6")
        body = line[1:] if sparse[place] else line
        if not body or min(body) < LOW or max(body) > HIGH:
            raise PeError(f"{where}: {line[:30].decode('latin-1')!r} is neither graph6 nor sparse6")
        sizes[place], used = _order(body, where)
        bodies.append(body[used:])
        if not sparse[place] and len(body) - used != -(-_pairs(int(sizes[place])) // 6):
            raise PeError(
                f"{where}: {len(body) - used} characters for a graph of {sizes[place]} nodes, "
                f"expected {-(-_pairs(int(sizes[place])) // 6)}"
            )
    require_memory(
        200 * int(sizes.sum()), f"{file.label} with {int(sizes.sum()):,} nodes", "take a part of it"
    )
    parts = [np.zeros((3, 0), dtype=np.int64)]
    for size in np.unique(sizes[~sparse]).tolist():
        parts += _graph6(bodies, np.flatnonzero(~sparse & (sizes == size)), size)
    bits = np.array([int(max(size - 1, 0)).bit_length() for size in sizes.tolist()], dtype=np.int64)
    for width in np.unique(bits[sparse]).tolist():
        which = np.flatnonzero(sparse & (bits == width))
        at_once = max(1, BITS_AT_ONCE // (6 * max(len(bodies[place]) for place in which) + 1))
        for start in range(0, len(which), at_once):
            parts.append(_sparse6(bodies, which[start : start + at_once], sizes, width))
    graph, *ends = np.concatenate(parts, axis=1)
    order = np.argsort(graph, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(graph, minlength=len(lines)))]).astype(np.int64)
    edges = np.stack(ends)[:, order]
    return GraphDataset(file.label, sizes, Held(edges), options, edge_starts=starts, local=True)


def _pairs(size: int) -> int:
    return size * (size - 1) // 2


def _order(body: bytes, where: str) -> tuple[int, int]:
    """The number of nodes, and how many characters give it."""
    skipped, used = (0, 1) if body[0] != HIGH else (1, 4) if body[1:2] != b"~" else (2, 8)
    if len(body) < used:
        raise PeError(f"{where}: the number of nodes is cut off")
    size = 0
    for byte in body[skipped:used]:
        size = size * 64 + byte - LOW
    return size, used


def _bits(bodies: list[bytes], which: Integers) -> NDArray[np.uint8]:
    """(lines, bits) of the characters, 6 each; lines that are shorter than others are filled up with 1."""
    longest = max(len(bodies[place]) for place in which)
    text = b"".join(bodies[place].ljust(longest, b"~") for place in which)
    values = np.frombuffer(text, dtype=np.uint8).reshape(len(which), longest) - LOW
    return np.unpackbits(values[:, :, None], axis=2)[:, :, 2:].reshape(len(which), -1)


def _graph6(bodies: list[bytes], which: Integers, size: int) -> Iterator[Integers]:
    """(3, edges) graph and ends: bits are the pairs (0, 1), (0, 2), (1, 2), (0, 3), … of an upper triangle."""
    pairs = _pairs(size)
    if not pairs:
        return
    second = np.repeat(np.arange(size), np.arange(size))
    first = np.arange(pairs) - second * (second - 1) // 2
    at_once = max(1, BITS_AT_ONCE // pairs)
    for start in range(0, len(which), at_once):
        part = which[start : start + at_once]
        line, pair = np.nonzero(_bits(bodies, part)[:, :pairs])
        yield np.stack([part[line], first[pair], second[pair]])


def _sparse6(bodies: list[bytes], which: Integers, sizes: Integers, width: int) -> Integers:
    """(3, edges) graph and ends: each unit of 1 + `width` bits moves the node on, sets it, or joins it to another."""
    bits = _bits(bodies, which)
    units = np.array([6 * len(bodies[place]) // (width + 1) for place in which])
    node, size = np.zeros(len(which), dtype=np.int64), sizes[which]
    powers = 1 << np.arange(width)[::-1]
    going = np.ones(len(which), dtype=bool)
    found = [np.zeros((3, 0), dtype=np.int64)]
    for unit in range(int(units.max(initial=0))):
        begin = unit * (width + 1)
        going &= unit < units
        if not going.any():
            break
        node += bits[:, begin]
        other = bits[:, begin + 1 : begin + 1 + width] @ powers
        going &= (node < size) & (other < size)
        joined = np.flatnonzero(going & (other <= node))
        found.append(np.stack([which[joined], other[joined], node[joined]]))
        node = np.where(going & (other > node), other, node)
    return np.concatenate(found, axis=1)
