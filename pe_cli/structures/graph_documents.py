"""Graphs as documents: GraphML, and node-link JSON as networkx and d3 write it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from xml.parsers import expat

import numpy as np

from pe_cli.errors import PeError
from pe_cli.files.text import Opened, whole_text
from pe_cli.memory import require_memory
from pe_cli.structures.graph import RawGraph

BYTES_AN_ITEM = 400  # of a node or an edge while it is read
CHECKED_EVERY = 1 << 16
LONGEST_VALUE = 64
EDGE_KEYS = ("edges", "links")
DEEP = "is nested too deeply to be a graph"


class Collected:
    """Nodes by name and edges between them, as a document gives them."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.names: dict[str, int] = {}
        self.ends: list[tuple[str, str, str]] = []  # source, target, where it stands
        self.weights: list[float | None] = []

    def node(self, name: str, where: str) -> None:
        if name in self.names:
            raise PeError(f"{self.label} {where}: node {name[:40]!r} is there twice")
        self.names[name] = len(self.names)
        self._check()

    def edge(self, source: str, target: str, where: str) -> None:
        self.ends.append((source, target, where))
        self.weights.append(None)
        self._check()

    def weigh(self, value: Any, where: str) -> None:
        """The weight of the last edge."""
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = float("nan")
        if not np.isfinite(number):
            raise PeError(
                f"{self.label} {where}: weight {str(value)[:30]!r} is not a finite number; --weights none"
            )
        self.weights[-1] = number

    def raw(self, directed: bool | None) -> RawGraph:
        for source, target, where in self.ends:
            for name in (source, target):
                if name not in self.names:
                    raise PeError(f"{self.label} {where}: there is no node {name[:40]!r}")
        pairs = [(self.names[source], self.names[target]) for source, target, _ in self.ends]
        edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        weights, notes = None, []
        if any(weight is not None for weight in self.weights):
            weights = np.array([1.0 if weight is None else weight for weight in self.weights])
            without = self.weights.count(None)
            if without:
                notes.append(f"{without} of {len(pairs)} edges have no weight: they count 1")
        return RawGraph(edges, weights, names=list(self.names), directed=directed, notes=notes)

    def _check(self) -> None:
        count = len(self.names) + len(self.ends)
        if count % CHECKED_EVERY == 0:
            require_memory(
                count * BYTES_AN_ITEM, f"{self.label} with {count:,} items so far", "take a part of it"
            )


def read_graphml(file: Opened, weights: str) -> RawGraph:
    """GraphML by the parser of the standard library, which is told to refuse entities."""
    reader = _GraphML(file.label, weights)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.EntityDeclHandler = reader.entity
    reader.line = lambda: int(parser.CurrentLineNumber)
    try:
        parser.ParseFile(file.stream)
    except expat.ExpatError as trouble:
        raise PeError(
            f"{file.label} line {trouble.lineno}, column {trouble.offset + 1}: {expat.errors.messages[trouble.code]}"
        ) from None
    if not reader.graphs:
        raise PeError(f"{file.label} is XML without a <graph>: of XML formats only GraphML is read")
    if weights not in ("auto", "none") and not reader.weight_keys:
        raise PeError(f"--weights {weights}: {file.label} has no edge attribute of that name")
    return reader.found.raw(reader.directed)


class _GraphML:
    def __init__(self, label: str, weights: str) -> None:
        self.found = Collected(label)
        self.graphs = 0
        self.directed: bool | None = None
        self.weight_keys: set[str] = set()
        self.line: Callable[[], int] = int
        self._wanted = {"auto": "weight", "none": ""}.get(weights, weights)
        self._within_edge = False
        self._value: str | None = None

    def where(self) -> str:
        return f"line {self.line()}"

    def start(self, name: str, given: dict[str, str]) -> None:
        name = name.rpartition(":")[2]
        if name == "graph":
            self.graphs += 1
            if self.graphs > 1:
                raise PeError(f"{self.found.label} {self.where()}: a second <graph>; give one graph a file")
            self.directed = given.get("edgedefault") == "directed"
        elif name == "key" and given.get("for", "edge") in ("edge", "all"):
            if self._wanted and given.get("attr.name", given.get("id")) == self._wanted:
                self.weight_keys.add(given.get("id", ""))
        elif name == "node":
            self.found.node(self._given(given, "id", name), self.where())
        elif name == "edge":
            ends = self._given(given, "source", name), self._given(given, "target", name)
            self.found.edge(*ends, self.where())
            self._within_edge = True
            own = given.get("directed")
            if own is not None and (own == "true") != self.directed:
                raise PeError(
                    f"{self.found.label} {self.where()}: edges are directed in part; make them all alike"
                )
        elif name == "hyperedge":
            raise PeError(f"{self.found.label} {self.where()}: hyperedges have no encoding here")
        elif name == "data" and self._within_edge and given.get("key") in self.weight_keys:
            self._value = ""

    def end(self, name: str) -> None:
        name = name.rpartition(":")[2]
        if name == "edge":
            self._within_edge = False
        elif name == "data" and self._value is not None:
            self.found.weigh(self._value.strip(), self.where())
            self._value = None

    def text(self, data: str) -> None:
        if self._value is not None and len(self._value) < LONGEST_VALUE:
            self._value += data[:LONGEST_VALUE]

    def entity(self, *_: Any) -> None:
        raise PeError(f"{self.found.label} {self.where()}: entities are not read in GraphML")

    def _given(self, given: dict[str, str], key: str, element: str) -> str:
        if key not in given:
            raise PeError(f"{self.found.label} {self.where()}: <{element}> without {key}")
        return given[key]


def read_node_link(file: Opened, weights: str) -> RawGraph:
    """Node-link JSON; the edges are under `edges`, or under `links` as networkx wrote before 3.6."""
    text = whole_text(file)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as trouble:
        raise PeError(f"{file.label} line {trouble.lineno}, column {trouble.colno}: {trouble.msg}") from None
    except (RecursionError, ValueError) as trouble:
        raise PeError(f"{file.label} {DEEP if isinstance(trouble, RecursionError) else trouble}") from None
    key = next((key for key in EDGE_KEYS if isinstance(document, dict) and key in document), None)
    nodes = document.get("nodes") if isinstance(document, dict) else None
    if key is None or not isinstance(nodes, list) or not isinstance(document[key], list):
        raise PeError(
            f"{file.label} is JSON, but not node-link: that has 'nodes' and 'edges' (or 'links'), both lists"
        )
    found = Collected(file.label)
    for place, node in enumerate(nodes):
        found.node(_name(node.get("id", place) if isinstance(node, dict) else node), f"node {place}")
    attribute = "weight" if weights == "auto" else weights
    for place, edge in enumerate(document[key]):
        where = f"{key}[{place}]"
        if isinstance(edge, list) and len(edge) >= 2:
            edge = dict(zip(("source", "target", attribute), edge, strict=False))
        if not isinstance(edge, dict) or not {"source", "target"} <= edge.keys():
            raise PeError(f"{file.label} {where}: an edge has 'source' and 'target'")
        found.edge(_name(edge["source"]), _name(edge["target"]), where)
        if weights != "none" and edge.get(attribute) is not None:
            found.weigh(edge[attribute], where)
    if weights not in ("auto", "none") and all(weight is None for weight in found.weights):
        raise PeError(f"--weights {weights}: no edge of {file.label} has it")
    directed = document.get("directed")
    return found.raw(directed if isinstance(directed, bool) else None)


def _name(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
