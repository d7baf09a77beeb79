"""What a reader of a graph format found, and how it becomes a graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.memory import require_memory
from pe_cli.structures.graph import Graph, Parallel

Ids: TypeAlias = Literal["auto", "relabel", "text"]

BYTES_A_NODE = 64
SOME = 1024  # gaps are looked for in a table of flags if ids reach no further than this beyond the edges


@dataclass
class RawGraph:
    """Edges (2, m) as they stand in a file: between ids, or between places in `names` where there are names.

    `num_nodes` is set where the format says it, `directed` where the format has a word for it.
    """

    edges: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None
    names: list[str] | None = None
    num_nodes: int | None = None
    directed: bool | None = None
    notes: list[str] = field(default_factory=list)


def assembled(
    raw: RawGraph, label: str, *, directed: bool, num_nodes: int | None, ids: Ids, parallel: Parallel
) -> Graph:
    """The graph, with nodes numbered from 0; errors for gaps between ids and for ids beyond `num_nodes`."""
    if num_nodes is not None and num_nodes < 0:
        raise PeError(f"--num-nodes {num_nodes}: give 0 or more")
    edges, notes = raw.edges, list(raw.notes)
    if raw.directed and not directed:
        notes.append(
            "the file says that its edges are directed; they are read as undirected without --directed"
        )
    node_ids: NDArray[np.int64] | tuple[str, ...] | None = None
    if raw.names is not None:
        count = len(raw.names)
        edges, node_ids = _named(edges, raw.names, ids)
        if num_nodes is not None and num_nodes != count:
            raise PeError(f"--num-nodes {num_nodes}: {label} names {count} nodes")
    elif ids == "text" and edges.size:
        raise PeError(f"--ids text: {label} has no names, its rows are numbers; leave it out")
    elif ids == "relabel":
        known = np.unique(edges)
        edges = np.searchsorted(known, edges)
        count = len(known)
        node_ids = None if np.array_equal(known, np.arange(count)) else known
        if num_nodes is not None and num_nodes != count:
            raise PeError(
                f"--num-nodes {num_nodes}: with --ids relabel there are the {count} nodes that occur"
            )
    else:
        count = _counted(edges, raw.num_nodes, label, num_nodes)
    require_memory(
        count * BYTES_A_NODE, f"a graph of {count:,} nodes", "give a smaller --num-nodes or --ids relabel"
    )
    # an edge without direction goes both ways, also for an encoding that looks at directions
    mirrored = raw.directed is False
    return Graph(count, edges, raw.weights, directed, parallel, node_ids, tuple(notes), mirrored)


def _named(
    edges: NDArray[np.int64], names: list[str], ids: Ids
) -> tuple[NDArray[np.int64], NDArray[np.int64] | tuple[str, ...] | None]:
    """Rows in the order of the names, but in numeric order where all names are integers."""
    if ids == "text" or not names or not all(_plain(name) for name in names):
        return edges, tuple(names)
    numbers = np.array([int(name) for name in names], dtype=np.int64)
    order = np.argsort(numbers, kind="stable")
    row = np.empty(len(names), dtype=np.int64)
    row[order] = np.arange(len(names))
    sorted_numbers = numbers[order]
    same = np.array_equal(sorted_numbers, np.arange(len(names)))
    return row[edges], None if same else sorted_numbers


def _plain(name: str) -> bool:
    digits = name[1:] if name[:1] == "-" else name
    return digits.isascii() and digits.isdecimal() and len(digits) <= 18 and str(int(name)) == name


def _counted(edges: NDArray[np.int64], declared: int | None, label: str, num_nodes: int | None) -> int:
    reach = int(edges.max()) + 1 if edges.size else 0
    if num_nodes is not None:
        if num_nodes < max(reach, declared or 0):
            raise PeError(f"--num-nodes {num_nodes}: {label} has nodes up to {max(reach, declared or 0) - 1}")
        return num_nodes
    if declared is not None:
        return declared
    if not edges.size:
        raise PeError(f"{label} has no edges; --num-nodes N says how many nodes there are")
    if reach <= 8 * edges.size + SOME:
        seen = np.zeros(reach, dtype=bool)
        seen[edges] = True
        missing, first = reach - int(seen.sum()), int(np.argmin(seen))
    else:
        known = np.unique(edges)
        missing = reach - len(known)
        apart = np.flatnonzero(known != np.arange(len(known)))
        first = int(apart[0]) if apart.size else len(known)
    if missing:
        raise PeError(
            f"{label} has gaps: ids run to {reach - 1}, but {missing} below it do not occur, the first is {first}; "
            f"--num-nodes {reach} takes them as isolated nodes, --ids relabel numbers those that occur"
        )
    return reach
