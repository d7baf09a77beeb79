"""Graphs as documents: node-link JSON as networkx and d3 write it; GraphML, GML and Pajek by networkx."""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from pe_cli.errors import PeError, needs, parameter
from pe_cli.files.text import Opened, parse_json, whole_bytes, whole_text
from pe_cli.process import require_memory
from pe_cli.structures.graph import RawGraph

BYTES_AN_ITEM = 400  # of a node or an edge while it is read
CHECKED_EVERY = 1 << 16
EDGE_KEYS = ("edges", "links")
_ROOT = re.compile(rb"<(?:[\w.-]+:)?([A-Za-z][\w.-]*)")


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
                f"{self.label} {where}: weight {str(value)[:30]!r} is not a finite number; {parameter('weights')} none"
            )
        self.weights[-1] = number

    def raw(self, directed: bool | None, weights: str) -> RawGraph:
        if weights not in ("auto", "none") and all(weight is None for weight in self.weights):
            raise PeError(f"{parameter('weights')} {weights}: no edge of {self.label} has it")
        for source, target, where in self.ends:
            for name in (source, target):
                if name not in self.names:
                    raise PeError(f"{self.label} {where}: there is no node {name[:40]!r}")
        pairs = [(self.names[source], self.names[target]) for source, target, _ in self.ends]
        edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        values, notes = None, []
        if any(weight is not None for weight in self.weights):
            values = np.array([1.0 if weight is None else weight for weight in self.weights])
            without = self.weights.count(None)
            if without:
                notes.append(f"{without} of {len(pairs)} edges have no weight: they count 1")
        by = {"auto": "weight"}.get(weights, weights) if values is not None else None
        return RawGraph(edges, values, names=list(self.names), directed=directed, notes=notes, weighted_by=by)

    def _check(self) -> None:
        count = len(self.names) + len(self.ends)
        if count % CHECKED_EVERY == 0:
            require_memory(
                count * BYTES_AN_ITEM, f"{self.label} with {count:,} items so far", "take a part of it"
            )


def read_graphml(file: Opened, weights: str) -> RawGraph:
    """GraphML by networkx, edge by edge in the order of the file."""
    nx = _networkx(file.label, "GraphML")
    content = whole_bytes(file)
    root = _ROOT.search(content)
    if root is None or root[1] != b"graphml":
        what = f"<{root[1].decode('utf-8', 'replace')[:20]}>" if root else "no element"
        raise PeError(f"{file.label} is XML of {what}: of XML formats only GraphML is read")
    if b"<!ENTITY" in content:
        raise PeError(f"{file.label} declares entities, which are not expanded: write it without them")
    found = Collected(file.label)
    attribute = {"auto": "weight", "none": None}.get(weights, weights)

    reader: Any = nx.readwrite.graphml.GraphMLReader

    class InOrder(reader):  # type: ignore[misc]
        """Gives nodes and edges as they come, of which networkx keeps neither the order nor what is there twice."""

        def add_node(self, graph: Any, node: Any, keys: Any, defaults: Any) -> None:
            found.node(str(node.get("id")), f"node {len(found.names)}")
            super().add_node(graph, node, keys, defaults)

        def add_edge(self, graph: Any, edge: Any, keys: Any) -> None:
            where = f"edge {len(found.ends)}"
            if None in (edge.get("source"), edge.get("target")):
                raise PeError(f"{file.label} {where}: an edge has 'source' and 'target'")
            super().add_edge(graph, edge, keys)
            found.edge(str(edge.get("source")), str(edge.get("target")), where)
            value = {**graph.graph["edge_default"], **self.decode_data_elements(keys, edge)}.get(attribute)
            if value is not None:
                found.weigh(value, where)

    if b"graphml.graphdrawing.org" not in content:
        InOrder.NS_GRAPHML = ""
    graphs = _tried(file.label, "GraphML", lambda: list(InOrder()(string=content)))
    if len(graphs) != 1:
        raise PeError(f"{file.label} holds {len(graphs)} graphs; give one graph a file")
    return found.raw(graphs[0].is_directed(), weights)


def read_gml(file: Opened, weights: str) -> RawGraph:
    """GML by networkx; nodes are called by their labels if all have one, else by their ids."""
    nx = _networkx(file.label, "GML")
    content = whole_bytes(file)
    graph = _tried(file.label, "GML", lambda: nx.read_gml(io.BytesIO(content), label="id"))
    labels = {node: data["label"] for node, data in graph.nodes(data=True) if "label" in data}
    if len(set(map(str, labels.values()))) == len(graph):
        graph = nx.relabel_nodes(graph, labels)
    return _collected(file.label, graph, weights)


def read_pajek(file: Opened, weights: str) -> RawGraph:
    """Pajek by networkx, where it has one list of vertices and one of arcs, edges, or a matrix."""
    nx = _networkx(file.label, "Pajek")
    text = whole_text(file)
    sections = [line.split()[0].lower() for line in text.splitlines() if line.startswith("*")]
    kinds = [word for word in sections if word not in ("*network", "*vertices")]
    if sections.count("*vertices") != 1 or len(kinds) > 1 or not set(kinds) <= {"*arcs", "*edges", "*matrix"}:
        raise PeError(
            f"{file.label} has the sections {', '.join(sections)[:100]}: of Pajek files those are read that have "
            "*Vertices and one of *Arcs, *Edges and *Matrix"
        )
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("%")]
    graph = _tried(file.label, "Pajek", lambda: nx.parse_pajek(lines))
    declared = next(line for line in lines if line.lower().startswith("*vertices")).split()[1]
    if graph.number_of_nodes() != int(declared):
        raise PeError(
            f"{file.label} declares {declared} vertices, and {graph.number_of_nodes()} different labels and numbers occur: "
            "each vertex needs a line of its own with a label of its own"
        )
    return _collected(file.label, graph, weights)


def _networkx(label: str, form: str) -> Any:
    try:
        import networkx
    except ImportError:
        raise needs(f"{label} is a {form} file, and reading it", "networkx", "graph") from None
    return networkx


def _tried(label: str, form: str, read: Callable[[], Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read()
    except PeError:
        raise
    except Exception as trouble:  # of many kinds, for whatever a file holds instead
        reason = " ".join(str(trouble).split())[:160] or type(trouble).__name__
        raise PeError(f"{label} is not read as {form}: {reason}") from None


def _collected(label: str, graph: Any, weights: str) -> RawGraph:
    """What networkx has read."""
    found = Collected(label)
    for name in graph:
        found.node(_name(name), f"node {len(found.names)}")
    attribute = "weight" if weights == "auto" else weights
    for source, target, data in graph.edges(data=True):
        where = f"edge {len(found.ends)}"
        found.edge(_name(source), _name(target), where)
        if weights != "none" and data.get(attribute) is not None:
            found.weigh(data[attribute], where)
    return found.raw(graph.is_directed(), weights)


def read_node_link(file: Opened, weights: str) -> RawGraph:
    """Node-link JSON; the edges are under `edges`, or under `links` as networkx wrote before 3.6."""
    document = parse_json(whole_text(file), file.label)
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
    directed = document.get("directed")
    return found.raw(directed if isinstance(directed, bool) else None, weights)


def _name(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
