"""Every graph format, read and broken."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
import scipy.io
import scipy.sparse

from pe_cli import catalogue
from pe_cli.errors import PeError
from pe_cli.files import TensorSpec
from pe_cli.files.sinks import open_sink
from pe_cli.structures import read_graph

TRIANGLE = [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
TRIANGLE[2][2] = 0


def dense(path, **options):
    return read_graph(path, **options).adjacency.dense().tolist()


@pytest.mark.parametrize(
    "text",
    [
        "0 1\n1 2\n2 0\n",
        "0\t1\n1\t2\n2\t0",
        "0,1\r\n1,2\r\n2,0\r\n",
        "0,1\r1,2\r2,0\r",
        "0;1\n1;2\n2;0\n",
        "# a comment\n\n% another\n0  1\n1 2 # behind\n2 0\n",
        "source,target\n0,1\n1,2\n2,0\n",
        "id,target,source\n7,0,1\n8,1,2\n9,2,0\n",
        "\ufeff0 1\n1 2\n2 0\n",
        "0 1\n1 0\n1 2\n2 1\n0 2\n2 0\n",
        "0.0,1.0\n1.0,2.0\n2.0,0.0\n",
        "x y\n0 1\n1 2\n2 0\n",
        '"0","1"\n"1","2"\n"2","0"\n',
    ],
)
def test_edge_lists(write, text):
    assert dense(write(text), weights="none") == TRIANGLE


def test_weights(write):
    path = write("a,b,date,weight\n0,1,2020,2.5\n1,2,2021,0.5\n")
    assert dense(path) == [[0, 2.5, 0], [2.5, 0, 0.5], [0, 0.5, 0]]
    assert dense(path, weights="3") == [[0, 2020, 0], [2020, 0, 2021], [0, 2021, 0]]
    assert dense(path, weights="date") == dense(path, weights="3")
    assert dense(path, weights="none") == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]


def test_a_third_column_that_is_no_number_is_said(write):
    graph = read_graph(write("0 1 {}\n1 2 {}\n"))
    assert graph.weights is None
    assert "is not a number" in graph.notes[0]


@pytest.mark.parametrize(
    ("text", "options", "column"),
    [
        ("0 1\n1 2\n", {}, None),
        ("0 1 2.5\n1 2 1\n", {}, "3"),
        ("0 1 2.5\n1 2 1\n", {"weights": "none"}, None),
        ("0 1 9 2.5\n1 2 9 1\n", {"weights": "4"}, "4"),
        ("src,dst,Weight\n0,1,2.5\n", {}, "weight"),
        ("source,target,since,length\n0,1,1990,2.5\n", {"weights": "length"}, "length"),
        ("source,target,since\n0,1,1990\n", {}, "since"),
        ('{"nodes": [0, 1], "edges": [{"source": 0, "target": 1, "weight": 2}]}', {}, "weight"),
        ('{"nodes": [0, 1], "edges": [{"source": 0, "target": 1, "w": 2}]}', {"weights": "w"}, "w"),
        ('{"nodes": [0, 1], "edges": [{"source": 0, "target": 1, "w": 2}]}', {}, None),
    ],
)
def test_the_column_that_is_taken_as_weight_is_said(write, text, options, column):
    graph = read_graph(write(text), **options)
    assert graph.weighted_by == column
    assert catalogue.load("random-walk")(graph, steps=1).facts.get("weight_column") == column


GML = 'graph [\n  directed {}\n  node [ id 5 label "a" ]\n  node [ id 3 label "b" ]\n  edge [ source 5 target 3 weight 2.5 ]\n]\n'
PAJEK = '*Vertices 3\n1 "a"\n2 "b"\n3 "c"\n*{}\n1 2 1.5\n2 3 2\n'


def test_gml(write):
    graph = read_graph(write(GML.format(1)), directed=True)
    assert graph.node_ids == ("a", "b")
    assert graph.arcs.dense().tolist() == [[0, 2.5], [0, 0]]
    assert read_graph(write('# made by hand\nCreator "x"\n' + GML.format(0))).notes == ()
    # Without labels of their own the nodes are called by their numbers.
    assert read_graph(write(GML.format(0).replace('label "b"', 'label "a"'))).node_ids.tolist() == [3, 5]


def test_pajek(write):
    graph = read_graph(write(PAJEK.format("Edges")))
    assert graph.node_ids == ("a", "b", "c")
    assert graph.adjacency.dense().tolist() == [[0, 1.5, 0], [1.5, 0, 2], [0, 2, 0]]
    graph = read_graph(write("*Network x\n" + PAJEK.format("Arcs")), directed=True)
    assert graph.arcs.dense().tolist() == [[0, 1.5, 0], [0, 0, 2], [0, 0, 0]]
    matrix = '*Vertices 2\n1 "a"\n2 "b"\n*Matrix\n0 1\n1 0\n'
    assert read_graph(write(matrix)).adjacency.dense().tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PAJEK.format("Edges") + "*Arcs\n1 2\n", "has the sections"),
        (PAJEK.format("Edgeslist"), "has the sections"),
        (PAJEK.format("Edges").replace('"c"', '"a"'), "declares 3 vertices, and 2 different labels"),
        ("*Vertices 3\n*Edges\n1 2\n2 3\n", "Pajek"),
        ("*Vertices 900000000\n*Edges\n1 2\n", "Pajek"),
        (PAJEK.format("Edges") + "3 9\n", "declares 3 vertices, and 4 different labels"),
        ("*Vertices x\n", "Pajek"),
    ],
)
def test_pajek_that_networkx_would_misread(write, text, message):
    with pytest.raises(PeError, match=message):
        read_graph(write(text))


@pytest.mark.parametrize("kind", ["npz", "h5", "safetensors"])
def test_a_tensor_of_any_file_is_a_graph(tmp_path, kind):
    edges, matrix = np.array([[0, 1, 2], [1, 2, 3]]), np.array(TRIANGLE, dtype=np.float32)
    path = tmp_path / f"x.{kind}"
    tensors = {"edge_index": edges, "edge_weight": np.array([1.0, 2, 3]), "adj": matrix}
    specs = [TensorSpec(name, array.dtype.name, array.shape) for name, array in tensors.items()]
    with open_sink(path, specs, metadata={}) as sink:
        for spec in sink.specs:
            sink.write(spec.name, 0, tensors[spec.name])
    assert read_graph(str(path)).weights.tolist() == [1, 2, 3]
    assert read_graph(str(path)).weighted_by == "edge_weight"
    assert dense(f"{path}:adj") == TRIANGLE
    assert read_graph(f"{path}:edge_index").weights is None
    with pytest.raises(PeError, match="has no tensor 'adjacency'"):
        read_graph(f"{path}:adjacency")


OTHERS = {
    "g.dot": "graph G {\n  a -- b;\n}\n",
    "digraph": "strict digraph {\n a -> b\n}\n",
    "g.col": "c a comment\np edge 3 2\ne 1 2\ne 2 3\n",
    "g.gr": "p sp 3 2\na 1 2 5\na 2 3 7\n",
    "x.graph": "3 2\n2\n1 3\n2\n",
    "x.metis": "3 2\n2\n1 3\n2\n",
    "x.tgf": "1 first\n2 second\n#\n1 2\n",
    "x.adjlist": "0 1 2\n1 2\n",
    "x.gexf": '<?xml version="1.0"?><gexf><graph/></gexf>',
    "x.gdf": "nodedef>name VARCHAR\na\nb\nedgedef>node1 VARCHAR,node2 VARCHAR\na,b\n",
    "x.dl": "dl n=3\nformat = edgelist1\ndata:\n1 2\n",
    "x.heads": "2 0 2\n",
    "brackets": "(S (NP the cat) (VP sat))\n",
    "x.nt": "<http://a> <http://b> <http://c> .\n",
    "x.parquet": b"PAR1\x15\x04",
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_formats_are_named_and_refused(write, name):
    with pytest.raises(PeError, match=r"is not read as a graph|of XML formats only GraphML"):
        read_graph(write(OTHERS[name], name))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%%MatrixMarket matrix array real general\n20000 20000\n1\n2\n", "declares 400,000,000 entries"),
        ("%%MatrixMarket matrix array real symmetric\n20000 20000\n1\n2\n", "declares 200,010,000 entries"),
        ("%%MatrixMarket matrix coordinate real general\n5 5 4000000000\n1 1 1\n", "declares 4,000,000,000"),
        (
            "%%MatrixMarket matrix coordinate real general\n99999999 99999999 1\n1 2 1\n",
            "declares 99,999,999 nodes, and its edges name 2",
        ),
    ],
)
def test_a_declared_size_is_believed_as_far_as_the_file_can_hold_it(write, text, message):
    with pytest.raises(PeError, match=message):
        read_graph(write(text))


def test_more_declared_nodes_than_are_believed_can_be_asked_for(write):
    text = "%%MatrixMarket matrix coordinate pattern general\n99999999 99999999 1\n1 2\n"
    assert read_graph(write(text), num_nodes=10).num_nodes == 10


def test_text_ids_stand_as_they_appear(write):
    graph = read_graph(write("paul\tmary\nmary\tjohn smith\n"))
    assert graph.node_ids == ("paul", "mary", "john smith")
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert read_graph(write("5 3\n3 9\n"), ids="text").node_ids == ("5", "3", "9")


def test_relabelled_ids(write):
    graph = read_graph(write("30 10\n10 20\n"), ids="relabel")
    assert graph.node_ids.tolist() == [10, 20, 30]
    assert graph.edges.tolist() == [[2, 0], [0, 1]]


@pytest.mark.slow
def test_many_lines_take_the_same_way_as_few(write):
    edges = np.random.default_rng(0).integers(0, 3000, (200_000, 2))
    text = "\n".join(f"{u}\t{v}\t{u / 7}" for u, v in edges.tolist())
    graph = read_graph(write(text), num_nodes=3000)
    assert np.array_equal(graph.edges, edges.T)
    assert np.array_equal(graph.weights, edges[:, 0] / 7)
    with pytest.raises(PeError, match="line 200002: id 'x' is not an integer"):
        read_graph(write(text + "\n# a comment\nx 1 1\n"), num_nodes=3000)


def test_gzip_whatever_the_name(write):
    assert dense(write(gzip.compress(b"0 1\n1 2\n2 0\n"))) == TRIANGLE
    with pytest.raises(PeError, match=r"broken \.gz"):
        read_graph(write(gzip.compress(b"0 1\n1 2\n" * 1000)[:-20]))


def test_matrix_market(write, tmp_path):
    matrix = scipy.sparse.coo_array(np.array([[0, 2.0, 0], [2.0, 0, 0.5], [0, 0.5, 0]]))
    for symmetry in ("general", "symmetric"):
        scipy.io.mmwrite(tmp_path / "m.mtx", matrix, symmetry=symmetry)
        assert dense(str(tmp_path / "m.mtx")) == matrix.toarray().tolist()
        assert dense(str(tmp_path / "m.mtx"), directed=True) == matrix.toarray().tolist()
    scipy.io.mmwrite(tmp_path / "d.mtx", matrix.toarray())
    assert dense(str(tmp_path / "d.mtx")) == matrix.toarray().tolist()
    one_way = "%%MatrixMarket matrix coordinate pattern general\n% by hand\n4 4 2\n1 2\n2 3\n"
    assert read_graph(write(one_way), directed=True).edges.tolist() == [[0, 1], [1, 2]]
    assert read_graph(write(one_way)).num_nodes == 4


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_scipy_npz(tmp_path, kind):
    matrix = np.array([[0, 2.0, 0], [0, 0, 0.5], [0, 0, 0]])
    scipy.sparse.save_npz(tmp_path / "a.npz", getattr(scipy.sparse, f"{kind}_matrix")(matrix))
    assert dense(str(tmp_path / "a.npz"), directed=True) == matrix.tolist()


def test_edge_index(tmp_path):
    edges = np.array([[0, 1, 1, 2], [1, 0, 2, 1]])
    path = str(tmp_path / "e.npy")
    for array in (edges, edges.T, np.asfortranarray(edges), edges.astype(">i4")):
        np.save(path, array)
        graph = read_graph(path)
        assert graph.both_directions
        assert graph.adjacency.dense().tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    np.save(path, np.array(TRIANGLE, dtype=float) / 2)
    assert dense(path) == (np.array(TRIANGLE) / 2).tolist()
    path = str(tmp_path / "e.npz")
    np.savez_compressed(path, edge_index=edges, edge_weight=[1.0, 1, 3, 3], num_nodes=5)
    graph = read_graph(path)
    assert graph.num_nodes == 5
    assert graph.adjacency.dense()[1].tolist() == [1, 0, 3, 0, 0]


@pytest.mark.parametrize("directed", [False, True])
def test_graphml_and_node_link(tmp_path, directed):
    made = nx.DiGraph() if directed else nx.Graph()
    made.add_node("alone")
    made.add_edge("a", "b", weight=2.0)
    made.add_edge("b", "c", weight=0.5)
    wanted = nx.to_numpy_array(made).tolist()
    nx.write_graphml(made, tmp_path / "g.graphml")
    paths = [tmp_path / "g.graphml"]
    for key in ("edges", "links"):
        paths.append(tmp_path / f"{key}.json")
        paths[-1].write_text(json.dumps(nx.node_link_data(made, edges=key)))
    for path in paths:
        graph = read_graph(str(path), directed=directed)
        assert graph.node_ids == ("alone", "a", "b", "c")
        assert graph.adjacency.dense().tolist() == wanted
        assert bool(read_graph(str(path)).notes) == directed


def test_whole_numbers_as_names_give_their_rows(tmp_path):
    made = nx.path_graph(4)
    made = nx.relabel_nodes(made, {0: 3, 3: 0})
    nx.write_graphml(made, tmp_path / "g")
    graph = read_graph(str(tmp_path / "g"))
    assert graph.node_ids is None
    assert graph.adjacency.dense().tolist() == nx.to_numpy_array(made, nodelist=range(4)).tolist()


def test_an_undirected_file_has_no_direction_for_any_encoding(write):
    text = '{"directed": false, "nodes": [{"id": 0}, {"id": 1}], "links": [{"source": 0, "target": 1}]}'
    assert read_graph(write(text)).arcs.dense().tolist() == [[0, 1], [1, 0]]


SOME_TWICE = [(0, 1, 2), (1, 0, 3), (1, 2, 1)]
ALL_TWICE = [*SOME_TWICE, (2, 1, 1)]


@pytest.mark.parametrize(
    ("edges", "weights", "said"),
    [(SOME_TWICE, [5, 1], "1 of 2 edges is also"), (ALL_TWICE, [2.5, 1], "the mean of its two")],
)
def test_every_format_reads_two_directions_by_one_rule(write, tmp_path, edges, weights, said):
    """Also where a file that says its edges have no direction gives both."""
    ends, values = np.array(edges)[:, :2].T, np.array(edges)[:, 2].astype(float)
    np.savez(tmp_path / "e.npz", edge_index=ends, edge_weight=values)
    scipy.sparse.save_npz(tmp_path / "s.npz", scipy.sparse.coo_array((values, ends), shape=(3, 3)))
    entries = "".join(f"{u + 1} {v + 1} {w}\n" for u, v, w in edges)
    keys = ("source", "target", "weight")
    links = [dict(zip(keys, edge, strict=True)) for edge in edges]
    xml = "".join(f'<edge source="{u}" target="{v}"><data key="w">{w}</data></edge>' for u, v, w in edges)
    nodes = "".join(f'<node id="{u}"/>' for u in range(3))
    paths = [
        write("".join(f"{u} {v} {w}\n" for u, v, w in edges), "list"),
        str(tmp_path / "e.npz"),
        str(tmp_path / "s.npz"),
        write(f"%%MatrixMarket matrix coordinate real general\n3 3 {len(edges)}\n{entries}", "a.mtx"),
        write(f"%%MatrixMarket matrix coordinate real symmetric\n3 3 {len(edges)}\n{entries}", "b.mtx"),
        write(XML.format(nodes + xml), "g"),
        write(json.dumps({"directed": False, "nodes": [{"id": u} for u in range(3)], "links": links}), "j"),
    ]
    for path in paths:
        graph = read_graph(path)
        assert graph.adjacency.dense().tolist() == [[0, weights[0], 0], [weights[0], 0, 1], [0, 1, 0]], path
        assert said in graph.doubts[0], path


def test_standard_input(tmp_path):
    code = "from pe_cli.structures import read_graph; print(read_graph('-').num_edges)"
    packed = io.BytesIO()
    np.save(packed, np.array([[0, 1], [1, 2], [2, 3]]).T)
    for data in (b"0 1\n1 2\n2 0\n", packed.getvalue(), gzip.compress(b"0 1\n1 2\n2 3\n")):
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
        assert done.stdout == b"3\n"


XML = (
    '<graphml><key id="w" for="edge" attr.name="weight"/><graph edgedefault="undirected">{}</graph></graphml>'
)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("", {}, "is empty"),
        ("# nothing\n", {}, "has no edges; num_nodes"),
        ("0 1\n1 5\n", {}, "gaps: ids run to 5, but 3 below it do not occur, the first is 2; num_nodes 6"),
        ("1 2\n2 3\n", {}, "the first is 0"),
        ("0 1\n1 1000000000000\n", {}, "has gaps"),
        ("0 1\n1 2\n", {"num_nodes": 2}, "num_nodes 2: .* nodes up to 2"),
        ("0 1\n", {"num_nodes": 10**15}, "memory"),
        ("0 1\n", {"num_nodes": -1}, "num_nodes -1"),
        ("0 1\n1 -2\n", {}, "line 2: id -2 is negative"),
        ("0 1\n1 x\n", {}, "line 2: id 'x' is not an integer"),
        ("0 1.5\n1 2\n2 0\n", {}, "line 1: id '1.5' is not an integer"),
        ("1.5 0\n", {}, "line 1: id '1.5' is not an integer"),
        ("0,1e3\n1,2\n", {}, "line 1: id '1e3' is not an integer"),
        ("nan 1 2\n1 2 3\n", {}, "line 1: id 'nan' is not an integer"),
        ("0 x\n1 2\n", {}, "line 1: id 'x' is not an integer"),
        ("x 0\n1 2\n", {}, "line 1: id 'x' is not an integer"),
        ("-1 2.5\n1 2\n", {}, "line 1: id -1 is negative"),
        ("0 1\n1 99999999999999999999\n", {}, "line 2: .*too large"),
        ("0 1\n1\n", {}, "line 2: '1' lacks two ids"),
        ("0 1 2.0\n1 2 much\n", {}, "line 2: weight 'much' is not a finite number"),
        ("0 1 2.0\n1 2 nan\n", {}, "line 2: weight 'nan'"),
        ("0 1 2.0\n1 2\n", {}, "line 2: .*as on the lines before"),
        ("0 1\n", {"weights": "length"}, "weights length: .* 2 columns and no header"),
        ("u,v,w\n0,1,2\n", {"weights": "length"}, "columns u, v, w"),
        ("source,target\n0,1,0.5\n1,2,2\n", {}, "header names 2 columns and the line below it has 3"),
        ("source target\n1 0 1\n2 1 2\n", {"weights": "none"}, "header names 2 columns"),
        ("a b\nb a\n", {"num_nodes": 3}, "names 2 nodes"),
        ("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n", {"weights": "x"}, "weights x"),
        ("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n", {"ids": "text"}, "ids text"),
        ("just some words of a letter\n" * 3, {"weights": "9"}, "weights 9"),
        ("word\n", {}, "line 1: 'word' is not an edge"),
        (b"0 1\n\xff\xfe 2\n", {}, "line 2: this is not text"),
        (b"0 1\n\0\0\0", {}, "line 2: this is not text"),
        (b"0" * 10_000_000, {}, "line 1 is longer than"),
        (b"\x80\x04\x95", {}, "a pickle, which is never loaded"),
        ("graph [\n", {}, "is not read as GML: expected .]., found EOF"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 0\n", {}, "line 1: a graph is real"),
        ("%%MatrixMarket matrix coordinate real general\n2 3 0\n", {}, "line 2: the matrix is 2 x 3"),
        (
            "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 3 1.0\n",
            {},
            "Line 3: Column index out of bounds",
        ),
        (
            "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 1.0\n",
            {},
            "Expected another 1 lines",
        ),
        (
            "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2 x\n",
            {},
            "Line 3: Invalid floating-point value",
        ),
        (
            "%%MatrixMarket matrix coordinate real general\n2 2 1\n1 2\n",
            {},
            "Line 3: ",
        ),
        (
            "%%MatrixMarket matrix array real general\n9999999 9999999\n1\n",
            {},
            "declares 99,999,980,000,001 entries, and has room for 1",
        ),
        ("<html></html>", {}, "XML of <html>: of XML formats only GraphML"),
        ("<graphml><graph>", {}, "no element found: line 1, column 16"),
        (XML.format('<node id="a"/><edge source="a" target="b"/>'), {}, "edge 0: there is no node 'b'"),
        (XML.format('<node id="a"/><node id="a"/>'), {}, "node 'a' is there twice"),
        (
            XML.format('<node id="a"/><edge source="a" target="a"><data key="w">x</data></edge>'),
            {},
            "weight 'x'",
        ),
        ('<!DOCTYPE a [<!ENTITY b "cc">]><graphml><graph/></graphml>', {}, "declares entities"),
        ("{", {}, "line 1, column 2"),
        ('{"a": 1}', {}, "not node-link"),
        ('{"nodes": [], "links": [{"source": 1}]}', {}, r"links\[0\]: an edge has 'source' and 'target'"),
        (
            '{"nodes": [{"id": 1}], "edges": [{"source": 1, "target": 2}]}',
            {},
            r"edges\[0\]: there is no node '2'",
        ),
        ('{"a":' * 200_000, {}, "nested too deeply"),
    ],
    ids=lambda value: str(value)[:40] if not isinstance(value, dict) else "",
)
def test_what_cannot_be_read(write, content, options, message):
    with pytest.raises(PeError, match=message) as caught:
        read_graph(write(content), **options)
    assert "\n" not in str(caught.value)


def packed(**arrays):
    data = io.BytesIO()
    np.savez(data, **arrays)
    return data.getvalue()


def saved(array):
    data = io.BytesIO()
    np.save(data, array, allow_pickle=True)
    return data.getvalue()


HUGE = saved(np.zeros((2, 3), dtype=np.int64)).replace(b"(2, 3), }", b"(2, 99999999999999), }")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (saved(np.array([[0, -1], [1, 2], [3, 4]]).T), "negative id in edge 0"),
        (saved(np.zeros((3, 4))), "a graph is edge_index"),
        (saved(np.zeros((2, 3))), "ids in edge_index are integers"),
        (saved(np.array([[0, None]], dtype=object)), "Python objects"),
        (saved(np.zeros((2, 30), dtype=int))[:-50], "truncated"),
        (HUGE, "truncated"),
        (packed(edge_index=np.zeros((2, 3), int))[:-80], "damaged"),
        (packed(a=[1], b=[2]), "neither a matrix of scipy.sparse"),
        (packed(edge_index=np.array([[0, 1, 5], [1, 2, 0]]), num_nodes=3), "num_nodes 3"),
        (packed(format="csr", shape=[2, 3], data=[1.0]), "an adjacency matrix is square"),
        (packed(format="dia", shape=[2, 2], data=[1.0]), "stored as 'dia'"),
        (packed(format="csr", shape=[2, 2], data=[1.0], indptr=[0, 5, 1], indices=[0]), "indptr"),
        (packed(format="csr", shape=[2, 2], data=[1.0], indptr=[0, 0, 1], indices=[7]), "outside its shape"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_arrays_that_cannot_be_read(write, content, message):
    with pytest.raises(PeError, match=message):
        read_graph(write(content))


def test_no_such_file_and_folders(tmp_path):
    for path in (str(tmp_path / "none"), str(tmp_path)):
        with pytest.raises(PeError):
            read_graph(path)


def test_cut_and_garbled_files_give_errors_of_one_kind(write, tmp_path):
    """Every format cut at many places, and with bytes replaced: an answer or a PeError, nothing else."""
    rng = np.random.default_rng(0)
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_matrix(np.array(TRIANGLE, dtype=float)))
    texts = [
        (tmp_path / "a.npz").read_bytes(),
        saved(np.array([[0, 1, 2], [1, 2, 0]])),
        packed(edge_index=np.array([[0, 1, 2], [1, 2, 0]])),
        gzip.compress(b"0 1\n1 2\n2 0\n"),
        b"%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 1.0\n3 1 2\n",
        XML.format('<node id="a"/><edge source="a" target="a"><data key="w">1</data></edge>').encode(),
        b'{"nodes": [{"id": 1}, {"id": 2}], "edges": [{"source": 1, "target": 2}]}',
        b"source,target,weight\n0,1,2.5\n1,2,3\n",
    ]
    for text in texts:
        for _ in range(60):
            broken = bytearray(text[: rng.integers(1, len(text) + 1)])
            for _ in range(rng.integers(0, 3)):
                broken[rng.integers(len(broken))] = rng.integers(256)
            try:
                read_graph(write(bytes(broken)))
            except PeError:
                continue


def test_a_quote_after_a_carriage_return_is_part_of_an_id(tmp_path):
    """Python's csv reader raises an error of its own there."""
    path = tmp_path / "graph.csv"
    path.write_bytes(b'\r a;d": x, "b": 0\n')
    assert read_graph(str(path)).node_ids == ('a;d": x', '"b": 0')


@pytest.mark.parametrize(
    "text", ["0 1\n1 2 3\n2 3\n", "a,b\nb,c,d\n", "0 1\n2 3\n" * 3 + "1 2 3\n", "one two\nthree four five\n"]
)
def test_lists_of_neighbours_are_no_edge_lists(write, text):
    with pytest.raises(PeError, match="has 3 columns, other lines have 2"):
        read_graph(write(text))
    assert read_graph(write(text), weights="none").num_edges == text.count("\n")


@pytest.mark.parametrize(
    "text",
    [
        "0 1 \n1 2\n",
        "# a b c d\n0 1\n\n1 2\n",
        "0,1,\n1,2\n",
        "0\t1 # one\n1\t2\n",
        "0 1\r\n1 2\r\n",
        "0 1\r1 2\r",
    ],
)
def test_what_is_no_further_column(write, text):
    assert read_graph(write(text)).edges.tolist() == [[0, 1], [1, 2]]


ENHANCED = """# sent_id = a
1\tSue\t_\t_\t_\t_\t2\tnsubj\t2:nsubj\t_
2\tlikes\t_\t_\t_\t_\t0\troot\t0:root\t_
3-4\tto'em\t_\t_\t_\t_\t_\t_\t_\t_
3\ttea\t_\t_\t_\t_\t2\tobj\t2:obj|3.1:obj\t_
3.1\tlikes\t_\t_\t_\t_\t_\t_\t2:conj\t_
4\tBill\t_\t_\t_\t_\t2\tconj\t3.1:nsubj\t_

1\tGo\t_\t_\t_\t_\t0\troot\t_\t_
2\ton\t_\t_\t_\t_\t1\tcompound\t_\t_
"""


def test_enhanced_dependencies_are_a_graph_for_each_sentence(write):
    dataset = read_graph(write(ENHANCED), directed=True)
    assert dataset.sizes.tolist() == [5, 2]
    assert dataset.block(0, 1).edges.T.tolist() == [[1, 0], [1, 2], [3, 2], [1, 3], [3, 4]]
    assert dataset.block(1, 2).edges.T.tolist() == [[0, 1]]
    assert "2 words have no enhanced" in dataset.notes[0]
    for content, name in ((ENHANCED, "graph"), ("Bw\n", "some.g6")):
        with pytest.raises(PeError, match=r"weights w: .* has no weights with a name"):
            read_graph(write(content, name), weights="w")
    for old, new, message in (
        ("2:obj|", "7:obj|", "no word '7', which 3 depends on"),
        ("4\tBill", "5\tBill", "word id '5', expected 4"),
        ("\t2:nsubj\t_", "", "8 columns"),
    ):
        with pytest.raises(PeError, match=message):
            read_graph(write(ENHANCED.replace(old, new), "x.conllu"))


def test_a_matrix_of_one_way_edges_is_read_as_undirected_and_said(tmp_path):
    ring = np.array([[0, 1.0, 0], [0, 0, 1], [1, 0, 0]])
    for matrix, said in ((ring, True), (ring + ring.T, False), (np.triu(ring + ring.T), False)):
        np.save(tmp_path / "m.npy", matrix)
        scipy.sparse.save_npz(tmp_path / "m.npz", scipy.sparse.csr_array(matrix))
        for name in ("m.npy", "m.npz"):
            notes = read_graph(str(tmp_path / name)).notes
            assert any("A + A'; directed keeps its directions" in note for note in notes) == said
            assert any("not symmetric" in note for note in notes) == said
            assert not read_graph(str(tmp_path / name), directed=True).notes


@pytest.mark.parametrize(
    "text", [",source,target\n0,0,1\n1,1,2\n2,2,0\n", "id,source,target\n7,0,1\n8,1,2\n9,2,0\n"]
)
def test_the_number_of_a_line_is_no_weight(write, text):
    read = read_graph(write(text))
    assert read.weights is None
    assert read.adjacency.dense().tolist() == TRIANGLE
    assert read_graph(write(text), weights="1").weights is not None


def test_a_first_line_that_may_count_nodes_and_edges_is_told(write):
    read = read_graph(write("4 3\n0 1\n1 2\n2 3\n"))
    assert read.num_nodes == 5
    assert "read as the edge 4 - 3; if it says 4 nodes and 3 edges" in read.notes[0]
    for text in ("4 2\n0 1\n1 2\n2 3\n", "3 3\n0 1\n1 2\n2 3\n", "0 1\n", "source,target\n0,1\n1,2\n"):
        assert read_graph(write(text)).notes == ()
