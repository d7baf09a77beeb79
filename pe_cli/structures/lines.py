"""Graphs as lines of text: edge lists, graph6 and sparse6 with a graph on each line, enhanced dependencies.

An edge list has two ids on a line, perhaps a weight, with tabs, commas, semicolons or spaces between. graph6 and sparse6
are read by the description that comes with nauty.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, counted, parameter
from pe_cli.files.text import Opened, blocks, decoded, numbers_of, whole_bytes, whole_text
from pe_cli.process import require_memory
from pe_cli.structures.datasets import ColumnsInMemory, EdgeOptions, GraphDataset, Integers
from pe_cli.structures.formats import require_unnamed
from pe_cli.structures.graph import BYTES_AN_EDGE, RawGraph
from pe_cli.structures.trees import enhanced_graphs

COMMENTS = ("#", "%")
ENDS = (
    ("source", "target"),
    ("src", "dst"),
    ("src", "dest"),
    ("from", "to"),
    ("fromnodeid", "tonodeid"),
    ("node1", "node2"),
    ("node_1", "node_2"),
    ("u", "v"),
    ("i", "j"),
    ("head", "tail"),
)
WEIGHT_NAMES = ("weight", "weights", "w", "edge_weight")
LARGEST_ID = 2**62
BITS_AT_ONCE = 1 << 23
HEADERS = (b">>graph6<<", b">>sparse6<<")
LOW, HIGH = 63, 126  # the characters that stand for 6 bits


@dataclass(frozen=True)
class EdgeColumns:
    """Which columns hold what; `weight` is None where there is none.

    `width` is the number of columns that every line has; None where the user said which columns count.
    """

    delimiter: str | None
    source: int
    target: int
    weight: int | None
    text: bool
    header: bool
    weighted_by: str | None
    width: int | None

    @property
    def columns(self) -> list[int]:
        return [self.source, self.target, *([] if self.weight is None else [self.weight])]


def read_edge_list(file: Opened, weights: str, text_ids: bool) -> RawGraph:
    """The edges of a list. Ids are integers if those of its first line are, else text, in order of appearance."""
    notes: list[str] = []
    layout: EdgeColumns | None = None
    names: dict[str, int] = {}
    parts: list[tuple[NDArray[np.int64], NDArray[np.float64] | None]] = []
    held = 0
    for number, block in blocks(file):
        rows = _Lines(file.label, number, block)
        if layout is None:
            layout = _layout(rows, weights, text_ids, notes)
            if layout is None:
                continue
            rows.skip_header = layout.header
        part = None if layout.text else _fast(rows, layout)
        part = part or _careful(rows, layout, names)
        held += part[0].shape[1]
        require_memory(held * BYTES_AN_EDGE, f"{file.label} with {held:,} edges so far", "take a part of it")
        parts.append(part)
    if layout is None or not parts:
        return RawGraph(np.zeros((2, 0), dtype=np.int64), notes=notes)
    edges = np.concatenate([ends for ends, _ in parts], axis=1)
    if edges.shape[1] > 1 and not layout.text:
        nodes, count = edges[:, 0].tolist()
        if count == edges.shape[1] - 1 and nodes > edges[:, 1:].max():
            notes.append(
                f"the first line is read as the edge {nodes} - {count}; if it says {nodes} nodes and {count} edges, leave it out"
            )
    values = [values for _, values in parts if values is not None]
    return RawGraph(
        edges,
        np.concatenate(values) if values else None,
        names=list(names) if layout.text else None,
        notes=notes,
        weighted_by=layout.weighted_by,
    )


class _Lines:
    """A block of lines with the number of its first; data lines are those that are neither empty nor comments."""

    def __init__(self, label: str, first: int, block: bytes) -> None:
        self.label = label
        self.first = first
        self.text = decoded(block, label, first)
        self.skip_header = False

    def data(self) -> Iterator[tuple[int, str]]:
        skip = self.skip_header
        for number, line in enumerate(self.text.split("\n"), self.first):
            if not line.strip() or line.lstrip().startswith(COMMENTS):
                continue
            if skip:
                skip = False
                continue
            yield number, line


def _layout(rows: _Lines, weights: str, text_ids: bool, notes: list[str]) -> EdgeColumns | None:
    lines = [line for _, (_, line) in zip(range(2), rows.data(), strict=False)]
    if not lines:
        return None
    delimiter = _delimiter(lines[0])
    first, second = (_fields(line, delimiter) for line in (lines[0], lines[-1]))
    if len(first) < 2:
        number = next(rows.data())[0]
        raise PeError(
            f"{rows.label} line {number}: {lines[0].strip()[:60]!r} is not an edge; an edge list has two ids on a line "
            "(other formats: Matrix Market, .npz, .npy, .h5, .safetensors, GraphML, GML, Pajek, node-link JSON)"
        )
    lower = [field.lower() for field in first]
    named = next(((a, b) for a, b in ENDS if a in lower and b in lower), None)
    # A line with a number for an id is an edge, whatever else is wrong with it.
    words = not any(map(_is_number, first[:2]))
    header = named is not None or (words and _both_integers(second) and len(lines) > 1)
    source, target = (lower.index(named[0]), lower.index(named[1])) if header and named else (0, 1)
    sample = second if header and len(lines) > 1 else first
    if header and _width(sample) > len(first):
        raise PeError(
            f"{rows.label}: the header names {counted(len(first), 'column', 'columns')} and the line below it has "
            f"{_width(sample)}: which column is which is not known; name them all (R leaves out the name of its first column)"
        )
    if len(sample) <= max(source, target):
        sample = first
    weight = _weight_column(rows.label, weights, lower if header else [], sample, (source, target), notes)
    ends = [sample[source], sample[target]]
    numbers = all(map(_is_number, ends)) or (any(map(_is_number, ends)) and _both_integers(second))
    weighted_by = None if weight is None else lower[weight] if header else str(weight + 1)
    width = _width(sample) if weights == "auto" else None
    return EdgeColumns(delimiter, source, target, weight, text_ids or not numbers, header, weighted_by, width)


def _weight_column(
    label: str, weights: str, header: list[str], sample: list[str], ends: tuple[int, int], notes: list[str]
) -> int | None:
    if weights == "none":
        return None
    if weights != "auto":
        column = (
            int(weights) - 1
            if weights.isdecimal()
            else next((i for i, n in enumerate(header) if n == weights.lower()), -1)
        )
        if column in ends or not 0 <= column < len(sample):
            known = f"columns {', '.join(header)}" if header else f"{len(sample)} columns and no header"
            raise PeError(
                f"{parameter('weights')} {weights}: {label} has {known}; give one beside the ids, or none"
            )
        return column
    for name in WEIGHT_NAMES:
        if name in header:
            return header.index(name)
    others = range(max(ends) + 1, len(sample))  # what stands before the ids is a number of the line
    if not others:
        return None
    if not _is_number(sample[others[0]]):
        notes.append(
            f"the third column ({sample[others[0]][:20]!r}) is not a number: it is not taken as a weight"
        )
        return None
    return others[0]


def _fast(rows: _Lines, layout: EdgeColumns) -> tuple[NDArray[np.int64], NDArray[np.float64] | None] | None:
    """The block by numpy's own reader; None where something in it wants a closer look."""
    if "%" in rows.text or '"' in rows.text:
        return None
    kinds: list[tuple[str, Any]] = [("u", np.int64), ("v", np.int64), ("w", np.float64)]
    lines = rows.text.split("\n")
    if rows.skip_header:
        header = next(i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
        lines = lines[header + 1 :]
    if layout.width is not None and not _even(lines, layout.delimiter, layout.width):
        return None
    try:
        table = numbers_of(
            lines,
            dtype=kinds[: len(layout.columns)],
            comments="#",
            delimiter=layout.delimiter,
            usecols=layout.columns,
            ndmin=1,
        )
    except (ValueError, OverflowError):
        return None
    edges = np.stack([table["u"], table["v"]])
    values = None if layout.weight is None else np.ascontiguousarray(table["w"])
    if edges.size and (edges.min() < 0 or edges.max() > LARGEST_ID):
        return None
    if values is not None and not np.isfinite(values).all():
        return None
    return edges, values


def _even(lines: list[str], delimiter: str | None, width: int) -> bool:
    """Whether every line that is not empty has as many columns as `width` says; comments in front aside."""
    first = next((i for i, line in enumerate(lines) if not line.lstrip().startswith("#")), len(lines))
    data = np.frombuffer(("\n".join(lines[first:]) + "\n").encode(), dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    if delimiter is None:
        space = data <= ord(" ")
        marks = np.flatnonzero(~space & np.concatenate([[True], space[:-1]]))
    else:
        marks = np.flatnonzero(data == ord(delimiter))
        width -= 1
    counts = np.diff(np.searchsorted(marks, ends), prepend=0)
    return bool(((counts == width) | (counts == 0)).all())


def _width(fields: list[str]) -> int:
    """The number of columns, without empty ones at the end."""
    return max((place for place, field in enumerate(fields, 1) if field), default=0)


def _careful(
    rows: _Lines, layout: EdgeColumns, names: dict[str, int]
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:
    """The block line by line, with an error that names the line."""
    ends: list[tuple[int, int]] = []
    values: list[float] = []
    for number, line in rows.data():
        if not layout.text:
            line = line.partition("#")[0]
        fields = _fields(line, layout.delimiter)
        where = f"{rows.label} line {number}"
        if layout.width is not None and _width(fields) > layout.width:
            raise PeError(
                f"{where}: {line.strip()[:60]!r} has {_width(fields)} columns, other lines have {layout.width}: an edge list has "
                f"one edge on a line, and lists of neighbours are not read; {parameter('weights')} none looks at two columns only"
            )
        if len(fields) <= max(layout.columns):
            needs = "two ids" if layout.weight is None else "two ids and a weight, as on the lines before"
            raise PeError(f"{where}: {line.strip()[:60]!r} lacks {needs}")
        pair = fields[layout.source], fields[layout.target]
        if layout.text:
            if not all(pair):
                raise PeError(f"{where}: an id is empty")
            ends.append((names.setdefault(pair[0], len(names)), names.setdefault(pair[1], len(names))))
        else:
            ends.append((_integer(pair[0], where), _integer(pair[1], where)))
        if layout.weight is not None:
            value = _number(fields[layout.weight])
            if value is None:
                raise PeError(
                    f"{where}: weight {fields[layout.weight][:30]!r} is not a finite number; {parameter('weights')} none"
                )
            values.append(value)
    edges = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    return edges, None if layout.weight is None else np.array(values, dtype=np.float64)


def _delimiter(line: str) -> str | None:
    for mark in "\t,;":
        if mark in line:
            fields = [field.strip() for field in line.split(mark)]
            plain = (
                mark == "\t"
                and _both_integers(fields)
                and all(field and " " not in field for field in fields)
            )
            return None if plain else mark
    return None


def _fields(line: str, delimiter: str | None) -> list[str]:
    if delimiter is None:
        return line.split()
    fields = line.split(delimiter)
    if '"' in line:
        with suppress(
            csv.Error
        ):  # a carriage return outside of quotes: whoever wants a number says what is wrong
            fields = next(csv.reader([line], delimiter=delimiter), [])
    return [field.strip() for field in fields]


def _both_integers(fields: list[str]) -> bool:
    return all(_as_integer(field) is not None for field in fields[:2])


def _as_integer(field: str) -> int | None:
    try:
        return int(field)
    except ValueError:
        number = _number(field)
        return int(number) if number is not None and number == int(number) and "." in field else None


def _integer(field: str, where: str) -> int:
    value = _as_integer(field)
    if value is None:
        raise PeError(
            f"{where}: id {field[:30]!r} is not an integer, as ids of other lines are; {parameter('ids')} text takes ids as text"
        )
    if value < 0:
        raise PeError(
            f"{where}: id {value} is negative; ids count from 0 ({parameter('ids')} text takes any)"
        )
    if value > LARGEST_ID:
        raise PeError(f"{where}: id {field[:40]} is too large; {parameter('ids')} text takes ids as text")
    return value


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _number(field: str) -> float | None:
    """The finite number that is written there, if one is."""
    return float(field) if _is_number(field) and np.isfinite(float(field)) else None


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


def read_graph6(file: Opened, options: EdgeOptions) -> GraphDataset:
    """Graphs in graph6 or sparse6, one on each line."""
    require_unnamed(options.weights, file.label)
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
    return GraphDataset(
        file.label, sizes, ColumnsInMemory(edges), options, edge_starts=starts, local=True, mirrored=True
    )


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


def looks_like_conllu(head: bytes, label: str) -> bool:
    """Whether the name of the file, or its first line that is no comment, is that of CoNLL-U."""
    if label.removesuffix(".gz").endswith(".conllu"):
        return True
    return re.match(rb"(\s*(#[^\n]*)?\n)*1(-\d+)?(\t[^\t\n]+){9}\r?(\n|$)", head) is not None


def read_enhanced(file: Opened, options: EdgeOptions) -> GraphDataset:
    """The enhanced dependencies of CoNLL-U, a graph for each sentence."""
    require_unnamed(options.weights, file.label)
    found = list(enhanced_graphs(whole_text(file), file.label))
    sizes, edges = (
        [size for size, _, _ in found],
        [np.array(own, np.int64).reshape(-1, 2) for _, own, _ in found],
    )
    starts = np.concatenate([[0], np.cumsum([len(own) for own in edges])])
    without = sum(count for _, _, count in found)
    notes = (f"{without} words have no enhanced dependencies: their heads are taken",) if without else ()
    columns = ColumnsInMemory(np.concatenate(edges).T)
    return GraphDataset(
        file.label, np.array(sizes), columns, options, edge_starts=starts, local=True, notes=notes
    )
