"""Formats of a single graph: matrices and edge_index in files of arrays, and documents with nodes and edges.

Matrix Market is read by scipy, GraphML, GML and Pajek by networkx; scipy's .npz, tensors and node-link JSON by pe itself.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, needs, parameter
from pe_cli.files.sources import Source, listing
from pe_cli.files.text import Opened, decoded, parse_json, whole_bytes, whole_text
from pe_cli.numerics.dtypes import NOT_IN_NUMPY
from pe_cli.process import require_memory
from pe_cli.structures.graph import BYTES_AN_EDGE, RawGraph

BANNER = "%%matrixmarket"
FIELDS = ("real", "integer", "pattern")
SYMMETRIES = ("general", "symmetric")
READABLE = "bifu"
EDGE_INDEX = "edge_index"
WEIGHTS = ("edge_weight", "edge_weights", "weights")
KNOWN = (EDGE_INDEX, "num_nodes", *WEIGHTS)
_OF_GRAPHS = re.compile(r"ptr|batch|slice|graph|num_")
LONGEST_WORD = 64
SMALLEST_ENTRY = {"array": 2, "coordinate": 4}  # bytes: `1\n` and `1 1\n`
BYTES_AN_ITEM = 400  # of a node or an edge while it is read
CHECKED_EVERY = 1 << 16
EDGE_KEYS = ("edges", "links")
_ROOT = re.compile(rb"<(?:[\w.-]+:)?([A-Za-z][\w.-]*)")


def read_matrix_market(file: Opened, weights: str) -> RawGraph:
    """A square matrix of the NIST format, read by scipy; of a symmetric one each stored entry is an edge.

    What the size line declares is believed only as far as the file can hold it.
    """
    require_unnamed(weights, file.label)
    content = whole_bytes(file)
    form, symmetric, size = _declared(file.label, content)
    if form == "coordinate" and symmetric:
        # Else scipy would give each entry in both directions.
        line = content[: content.index(b"\n")]
        words = [b"%%MatrixMarket", *line.lower().replace(b"symmetric", b"general").split()[1:]]
        content = b" ".join(words) + content[len(line) :]
    try:
        from scipy.io import mmread
    except ImportError:
        raise needs(f"{file.label} is a Matrix Market file, and reading it", "scipy", "graph") from None
    try:
        matrix = mmread(io.BytesIO(content))
    except Exception as trouble:  # of its own kinds, for whatever it does not like
        raise PeError(f"{file.label} is not read as Matrix Market: {str(trouble).strip()[:120]}") from None
    if form == "array":
        raw = _from_dense(np.tril(matrix) if symmetric else matrix, file.label, weights)
    else:
        edges = np.stack([matrix.row, matrix.col]).astype(np.int64)
        raw = from_entries(edges, matrix.data, size, file.label, weights)
    raw.directed = False if symmetric else None
    return raw


def _declared(label: str, content: bytes) -> tuple[str, bool, int]:
    """Form, symmetry and size of the matrix; an error for more entries than the file can hold."""
    at, number, form, symmetric = 0, 0, "", False
    while at < len(content):
        end = content.find(b"\n", at) + 1 or len(content)
        line = decoded(content[at:end], label, number + 1)
        at, number = end, number + 1
        if number == 1:
            form, _, symmetry = _banner(label, line)
            symmetric = symmetry == "symmetric"
        elif line.strip() and not line.startswith("%"):
            sizes = _sizes(f"{label} line {number}", line, form)
            side = sizes[0]
            count = sizes[2] if form == "coordinate" else side * (side + 1) // 2 if symmetric else side * side
            most = (len(content) - at + 1) // SMALLEST_ENTRY[form]
            if count > most:
                raise PeError(
                    f"{label} declares {count:,} entries, and has room for {most:,} at most: it is cut off or wrong"
                )
            if form == "array":
                require_memory(
                    32 * side * side, f"a dense matrix of {side:,} rows", "store it by coordinates"
                )
            return form, symmetric, side
    raise PeError(f"{label} ends before the line with the size of the matrix")


def _banner(label: str, line: str) -> tuple[str, str, str]:
    words = line.lower().split()
    if (
        len(words) != 5
        or words[0] != BANNER
        or words[1] != "matrix"
        or words[2] not in ("coordinate", "array")
    ):
        raise PeError(
            f"{label} line 1: expected '%%MatrixMarket matrix coordinate real symmetric' or the like"
        )
    if words[3] not in FIELDS or words[4] not in SYMMETRIES:
        raise PeError(
            f"{label} line 1: a graph is {', '.join(FIELDS)} and {' or '.join(SYMMETRIES)}, not {' '.join(words[3:])[:40]}"
        )
    return words[2], words[3], words[4]


def _sizes(where: str, line: str, form: str) -> list[int]:
    expected = 2 if form == "array" else 3
    try:
        sizes = [int(word) for word in line.split()]
    except ValueError:
        sizes = []
    if len(sizes) != expected or min(sizes) < 0:
        raise PeError(f"{where}: {line.strip()[:40]!r} is not the size of a matrix")
    if sizes[0] != sizes[1]:
        raise PeError(f"{where}: the matrix is {sizes[0]} x {sizes[1]}; an adjacency matrix is square")
    return sizes


def from_source(source: Source, weights: str) -> RawGraph:
    """scipy.sparse.save_npz, or edge_index with edge_weight and num_nodes, or the one array that there is or was named."""
    known, label = source.tensors, source.label
    if source.named is None and {"format", "shape"} <= known.keys():
        require_unnamed(weights, label)
        return _from_scipy(source, weights)
    if source.named is not None or EDGE_INDEX not in known:
        if source.named is None and len(known) > 1:
            raise PeError(
                f"{label} holds {listing(source.tensors)}: neither a matrix of scipy.sparse.save_npz nor {EDGE_INDEX}; "
                f"{label}:NAME says which tensor is the graph"
            )
        require_unnamed(weights, label)
        return _from_tensor(source, source.chosen.name, weights)
    raw = _from_tensor(source, EDGE_INDEX, weights)
    name = weights_name(source, weights)
    if name is not None:
        values = source.read(name).reshape(-1)
        if values.dtype.kind not in READABLE or len(values) != raw.edges.shape[1]:
            raise PeError(f"{label}:{name} is not one number for each of the {raw.edges.shape[1]} edges")
        raw.weights, raw.weighted_by = values.astype(np.float64), name
    if others := [n for n in known if n not in KNOWN and _OF_GRAPHS.search(n)]:
        raw.notes.append(
            f"not read: {', '.join(others)}; this is one graph, and ptr or batch says where the graphs of a dataset begin"
        )
    if "num_nodes" in known:
        raw.num_nodes = number_of_nodes(source)
        if raw.edges.size and raw.edges.max() >= raw.num_nodes:
            raise PeError(f"{label} says num_nodes {raw.num_nodes} and has a node {raw.edges.max()}")
    return raw


def weights_name(source: Source, weights: str) -> str | None:
    """The tensor with the weights of the edges, if there is one; an error for one that was asked for and is not there."""
    if weights == "auto":
        return next((name for name in WEIGHTS if name in source.tensors), None)
    if weights != "none" and weights not in source.tensors:
        raise PeError(f"{parameter('weights')} {weights}: {source.label} holds {', '.join(source.tensors)}")
    return None if weights == "none" else weights


def number_of_nodes(source: Source) -> int:
    """What the tensor num_nodes says."""
    found = source.read("num_nodes").reshape(-1)
    if found.size != 1 or found.dtype.kind not in "iu":
        raise PeError(
            f"{source.label}:num_nodes is {found.dtype} {list(source.tensors['num_nodes'].shape)}, where one whole number is "
            "expected; ptr or batch says where the graphs of a dataset begin"
        )
    return int(found[0])


def _from_tensor(source: Source, name: str, weights: str) -> RawGraph:
    spec = source.spec(name)
    label = f"{source.label}:{name}" if name else source.label
    source.require_readable(spec)
    if name != EDGE_INDEX:
        _require_graph(spec.shape, spec.dtype, label)
        return from_array(source.read(name), label, weights)
    return from_edge_index(source.read(name), label)


def require_unnamed(weights: str, label: str) -> None:
    """An error for weights by name, where a file has none or they have no names."""
    if weights not in ("auto", "none"):
        raise PeError(
            f"{parameter('weights')} {weights}: {label} has no weights with a name; give auto or none"
        )


def _word(source: Source, name: str) -> str:
    """A short text that numpy stores as an array without axes."""
    spec = source.tensors[name]
    if spec.shape or not 0 < spec.nbytes <= LONGEST_WORD:
        return f"{spec.dtype} {list(spec.shape)}"
    value = next(source.reader.pieces(name, 1)).item()
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _from_scipy(source: Source, weights: str) -> RawGraph:
    """The members of scipy.sparse.save_npz."""
    label, member = source.label, source.read
    kind = _word(source, "format")
    shape = [int(side) for side in member("shape").reshape(-1)]
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < 0:
        raise PeError(f"{label} has shape {shape}: an adjacency matrix is square")
    data = member("data")
    if data.dtype.kind not in READABLE or data.ndim != 1:
        raise PeError(f"{label} has values of type {data.dtype}: weights are real numbers")
    if kind == "coo":
        edges = np.stack([member("row"), member("col")]).astype(np.int64)
    elif kind in ("csr", "csc"):
        starts, indices = member("indptr").astype(np.int64), member("indices").astype(np.int64)
        counts = np.diff(starts)
        if len(counts) != shape[0] or (counts < 0).any() or counts.sum() != len(indices):
            raise PeError(f"{label} has an indptr that does not fit its indices")
        rows = np.repeat(np.arange(shape[0]), counts)
        edges = np.stack([rows, indices] if kind == "csr" else [indices, rows])
    else:
        raise PeError(f"{label} is stored as {kind!r}; save it as csr, csc or coo")
    if edges.shape[1] != len(data) or (edges.size and not (edges.min() >= 0 and edges.max() < shape[0])):
        raise PeError(f"{label} has indices outside its shape {shape}, or not one for each value")
    return from_entries(edges, data, shape[0], label, weights)


def _require_graph(shape: tuple[int, ...], dtype: str, label: str) -> bool:
    """Whether the array is square; an error for one that is no graph."""
    square = len(shape) == 2 and shape[0] == shape[1]
    if dtype.startswith("complex") or not (square or (len(shape) == 2 and 2 in shape)):
        raise PeError(
            f"{label} is {dtype} {list(shape)}: a graph is edge_index (2, m) of integers, or a square matrix of weights"
        )
    return square


def from_array(array: NDArray[Any], label: str, weights: str) -> RawGraph:
    """The edges of an edge_index (2, m) or (m, 2), or of a square matrix of weights; `label` is for messages."""
    if array.dtype.name in NOT_IN_NUMPY:
        array = array.astype(np.float32)
    if array.dtype.kind not in READABLE + "c":
        raise PeError(f"{label} holds {array.dtype}: a graph is of numbers")
    square = _require_graph(array.shape, array.dtype.name, label)
    if square and not (array.shape == (2, 2) and array.dtype.kind in "iu"):
        if not np.isfinite(array).all():
            raise PeError(f"{label} has values that are not finite")
        return _from_dense(array, label, weights)
    raw = from_edge_index(array, label)
    if square and array.max() <= 1 and array.tolist() != [[0, 1], [1, 0]]:  # there both are one graph
        raw.notes.append("the 2 x 2 integers are edge_index, two edges, and no matrix of weights")
    return raw


def from_edge_index(array: NDArray[Any], label: str) -> RawGraph:
    """The edges of an edge_index (2, m) or (m, 2)."""
    if array.dtype.kind not in "iu" and array.size:
        raise PeError(f"{label} is {array.dtype} {list(array.shape)}: ids in edge_index are integers")
    if array.ndim != 2 or 2 not in array.shape:
        raise PeError(f"{label} has shape {list(array.shape)}, expected [2, edges]")
    edges = (array if array.shape[0] == 2 else array.T).astype(np.int64)
    if edges.size and edges.min() < 0:
        column = int(np.argmin(edges.min(axis=0)))
        raise PeError(f"{label} has a negative id in edge {column}; ids count from 0")
    return RawGraph(np.ascontiguousarray(edges))


def from_entries(
    edges: NDArray[np.int64], values: NDArray[Any], size: int, label: str, weights: str
) -> RawGraph:
    values = values.astype(np.float64)
    if not np.isfinite(values).all():
        raise PeError(f"{label} has values that are not finite")
    ones = weights == "none" or bool((values == 1).all())
    source, target = edges
    triangle = not (source < target).any() or not (source > target).any()
    one_way = not triangle and not np.array_equal(
        np.unique(source * size + target), np.unique(target * size + source)
    )
    return RawGraph(edges, None if ones else values, num_nodes=size, one_way=one_way)


def _from_dense(matrix: NDArray[Any], label: str, weights: str) -> RawGraph:
    """A square matrix, in which 0 is no edge."""
    count = int(np.count_nonzero(matrix))
    require_memory(
        matrix.nbytes + count * BYTES_AN_EDGE, f"a matrix with {count:,} edges", "take a smaller one"
    )
    edges = np.stack(np.nonzero(matrix)).astype(np.int64)
    return from_entries(edges, matrix[edges[0], edges[1]], len(matrix), label, weights)


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
    return collected(file.label, graph, weights)


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
    return collected(file.label, graph, weights)


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


def collected(label: str, graph: Any, weights: str) -> RawGraph:
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
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value)
    except (TypeError, ValueError):  # an object of a library that is a node
        return str(value)
