"""Datasets of graphs: every reader gives the same graphs, and what is no dataset is refused."""

from __future__ import annotations

import gzip

import h5py
import networkx as nx
import numpy as np
import pytest
from safetensors.numpy import save_file

from pe_cli import dag, magnetic
from pe_cli.errors import PeError
from pe_cli.files import npy
from pe_cli.structures import Graph, GraphDataset, datasets, read_graph

GRAPHS = [
    nx.path_graph(4),
    nx.empty_graph(1),
    nx.cycle_graph(5),
    nx.star_graph(70),
    nx.empty_graph(2),
    nx.complete_graph(6),
]
SIZES = np.array([g.number_of_nodes() for g in GRAPHS])
PTR = np.concatenate([[0], np.cumsum(SIZES)])


def local_edges():
    return [np.array(g.edges, dtype=np.int64).reshape(-1, 2).T for g in GRAPHS]


def edge_index():
    edges = [
        np.concatenate([e, e[::-1]], axis=1) + start for e, start in zip(local_edges(), PTR, strict=False)
    ]
    return np.concatenate(edges, axis=1)


def same_graphs(dataset, weights=None):
    assert isinstance(dataset, GraphDataset)
    assert dataset.sizes.tolist() == SIZES.tolist()
    whole = dataset.whole()
    assert whole.ptr.tolist() == PTR.tolist()
    for number, made in enumerate(GRAPHS):
        for graph in (whole.part(number), dataset.block(number, number + 1)):
            wanted = nx.to_numpy_array(made, nodelist=range(len(made)))
            assert (graph.adjacency.dense() > 0).tolist() == (wanted > 0).tolist()
    return whole


@pytest.mark.parametrize(
    ("begins", "order", "in_memory"),
    [
        ("ptr", "C", 1 << 26),
        ("ptr", "F", 0),
        ("batch", "F", 1 << 26),
        ("batch", "C", 0),
        ("both", "F", 1 << 26),
        ("both", "C", 0),
    ],
)
@pytest.mark.parametrize("kind", ["npz", "packed.npz", "h5", "packed.h5", "safetensors"])
def test_batches_of_tensors(tmp_path, monkeypatch, kind, begins, order, in_memory):
    monkeypatch.setattr(datasets, "IN_MEMORY", in_memory)
    if not in_memory:
        # turning an array into C order would hold it whole
        monkeypatch.delattr(npy, "reordered")
    edges = np.asarray(edge_index(), order=order)
    tensors = {"edge_index": edges, "edge_weight": np.arange(1.0, edges.shape[1] + 1)}
    tensors |= {"ptr": PTR} if begins != "batch" else {}
    tensors |= {"batch": np.repeat(np.arange(len(SIZES)), SIZES)} if begins != "ptr" else {}
    path = tmp_path / f"d.{kind}"
    if kind.endswith("npz"):
        (np.savez_compressed if "packed" in kind else np.savez)(path, **tensors)
    elif kind.endswith("h5"):
        with h5py.File(path, "w") as file:
            for name, array in tensors.items():
                file.create_dataset(name, data=array, compression="gzip" if "packed" in kind else None)
    else:
        save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, path)
    whole = same_graphs(read_graph(str(path)))
    assert whole.weights.tolist() == tensors["edge_weight"].tolist()
    assert "edge_weight" in whole.notes[0]
    assert read_graph(str(path), weights="none").whole().weights is None


def test_edges_in_any_order_are_put_together(tmp_path):
    edges = edge_index()
    order = np.random.default_rng(0).permutation(edges.shape[1])
    np.savez(
        tmp_path / "d.npz", edge_index=edges[:, order], ptr=PTR, edge_weight=np.arange(edges.shape[1])[order]
    )
    whole = same_graphs(read_graph(str(tmp_path / "d.npz")))
    assert np.array_equal(edges[:, whole.weights.astype(int)], whole.edges)


def test_folders(tmp_path, monkeypatch):
    tu, ogb = tmp_path / "tu", tmp_path / "ogb" / "raw"
    tu.mkdir()
    ogb.mkdir(parents=True)
    (tu / "M_A.txt").write_text("".join(f"{a + 1}, {b + 1}\n" for a, b in edge_index().T))
    (tu / "M_graph_indicator.txt").write_text(
        "".join(f"{g + 1}\n" for g in np.repeat(np.arange(len(SIZES)), SIZES))
    )
    lists = {
        "edge": "".join(f"{a},{b}\n" for edges in local_edges() for a, b in edges.T),
        "num-node-list": "".join(f"{size}\n" for size in SIZES),
        "num-edge-list": "".join(f"{edges.shape[1]}\n" for edges in local_edges()),
    }
    for name, text in lists.items():
        (ogb / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    for limit in (1 << 26, 0):
        monkeypatch.setattr(datasets, "IN_MEMORY", limit)
        for path in (tu, tu / "M_A.txt", ogb, ogb.parent):
            same_graphs(read_graph(str(path)))


@pytest.mark.parametrize("header", [True, False])
def test_graph6_and_sparse6(tmp_path, header):
    for name, write in (("d.g6", nx.to_graph6_bytes), ("d.s6", nx.to_sparse6_bytes)):
        lines = [
            write(nx.convert_node_labels_to_integers(g), header=header and not number)
            for number, g in enumerate(GRAPHS)
        ]
        (tmp_path / name).write_bytes(b"".join(lines))
        same_graphs(read_graph(str(tmp_path / name)))


def test_edges_of_graph6_have_no_direction(tmp_path):
    path = tmp_path / "d.g6"
    path.write_bytes(nx.to_graph6_bytes(nx.cycle_graph(5), header=False))
    for directed in (False, True):
        dataset = read_graph(str(path), directed=directed)
        assert "every edge goes both ways" in magnetic(dataset, 2).warnings[0]
        with pytest.raises(PeError, match="cycle"):
            dag(dataset)


def test_graph6_of_random_graphs_and_sparse6_with_loops(tmp_path):
    made = [nx.gnp_random_graph(n, 0.3, seed=n) for n in (2, 3, 16, 17, 33, 63, 64, 65, 100)]
    for graph in made[3:]:
        graph.add_edge(1, 1)
    (tmp_path / "d.s6").write_bytes(b"".join(nx.to_sparse6_bytes(g, header=False) for g in made))
    whole = read_graph(str(tmp_path / "d.s6")).whole()
    for number, graph in enumerate(made):
        assert np.array_equal(whole.part(number).adjacency.dense() > 0, nx.to_numpy_array(graph) > 0)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"edge_index": [[0, 1], [1, 3]], "ptr": [0, 2, 4]}, "edge 1 joins node 1 of graph 0 and node 3"),
        ({"edge_index": [[0], [9]], "ptr": [0, 2, 4]}, "edge 0 joins nodes 0 and 9; .* 0 to 3"),
        ({"edge_index": [[0], [-1]], "ptr": [0, 2, 4]}, "edge 0 joins nodes 0 and -1"),
        ({"edge_index": [[0], [1]], "ptr": [0, 3, 2]}, "ptr must rise"),
        ({"edge_index": [[0], [1]], "batch": [0, 1, 0]}, "batch does not ascend"),
        ({"edge_index": [[0], [1]], "ptr": [0, 2, 3], "batch": [0, 1, 1]}, "ptr and batch do not say the same"),
        ({"edge_index": [[0], [1]], "num_nodes_list": [2]}, "num_nodes_list but no num_edges_list"),
        ({"edge_index": [[0], [1]], "num_edges_list": [1]}, "num_edges_list but no num_nodes_list"),
        ({"edge_index": [[0], [1]], "ptr": [0, 2], "num_nodes": [3]}, "says num_nodes 3; by ptr or batch there are 2"),
        ({"edge_index": [[0], [1]], "num_nodes": [2, 2]}, r"num_nodes is int64 \[2\], where one whole number"),
        ({"edge_index": [[0.0, 1.0], [1.0, 0.0]]}, r"float64 \[2, 2\]: ids in edge_index are integers"),
        ({"edge_index": [[0, 1, 1], [1, 0, 0], [1, 0, 0]]}, r"shape \[3, 3\], expected \[2, edges\]"),
        ({"edge_index": [[0], [1]], "num_nodes_list": [2], "num_edges_list": [2]}, "edges together; there are 1"),
        ({"edge_index": [[0], [2]], "num_nodes_list": [2], "num_edges_list": [1]}, "graph 0 of .* has the nodes 0 to 1"),
        ({"edge_index": [[0], [1]], "ptr": [0, 2], "edge_weight": [1.0, 2.0]}, "2 weights for 1 edges"),
    ],
)  # fmt: skip
def test_what_is_no_dataset(tmp_path, tensors, message):
    np.savez(tmp_path / "d.npz", **{name: np.array(array) for name, array in tensors.items()})
    with pytest.raises(PeError, match=message):
        read_graph(str(tmp_path / "d.npz"))


def test_options_that_do_not_fit(tmp_path):
    np.savez(tmp_path / "d.npz", edge_index=edge_index(), ptr=PTR)
    path = str(tmp_path / "d.npz")
    for options, message in [
        ({"num_nodes": 3}, "num_nodes 3: .* nodes together"),
        ({"ids": "relabel"}, "ids relabel"),
        ({"weights": "w"}, "weights w"),
    ]:
        with pytest.raises(PeError, match=message):
            read_graph(path, **options)
    with pytest.raises(PeError, match=r"neither NAME_A\.txt"):
        read_graph(str(tmp_path))
    for name, text in [("M_A.txt", "1, 2\n3 x\n"), ("M_graph_indicator.txt", "1\n1\n1\n")]:
        (tmp_path / name).write_text(text)
    with pytest.raises(PeError, match=r"M_A\.txt line 2: '3 x' is not 2 whole numbers"):
        read_graph(str(tmp_path))
    for name, text in [("M_A.txt", "1, 2\n2, 1\n"), ("M_w.txt", "0.5\nx\n")]:
        (tmp_path / name).write_text(text)
    with pytest.raises(PeError, match=r"M_w\.txt line 2: 'x' is not a number"):
        read_graph(str(tmp_path), weights="w")
    for name, text, weights, message in [
        ("M_w.txt", "0.5,1\n2,1\n", "w", r"M_w\.txt line 1: '0.5,1' is not a number"),
        ("M_A.txt", "1, 2, 5\n2, 1, 5\n", "auto", r"M_A\.txt line 1: '1, 2, 5' is not 2 whole numbers"),
    ]:
        (tmp_path / name).write_text(text)
        with pytest.raises(PeError, match=message):
            read_graph(str(tmp_path), weights=weights)
    for text, message in [
        ("C~~~\n", "line 1: 3 characters for a graph of 4 nodes, expected 1"),
        ("&B\n", "digraph6"),
        ("B a\n", "neither graph6"),
    ]:
        (tmp_path / "d.g6").write_text(text)
        with pytest.raises(PeError, match=message):
            read_graph(str(tmp_path / "d.g6"))


def test_several_graphs_in_python():
    graph = Graph(4, [[0, 2], [1, 3]], ptr=[0, 2, 4])
    assert graph.num_graphs == 2
    assert graph.part(1).edges.tolist() == [[0], [1]]
    with pytest.raises(PeError, match="edge 0 joins node 1 of graph 0 and node 2 of graph 1"):
        Graph(4, [[1], [2]], ptr=[0, 2, 4])
    with pytest.raises(PeError, match="ptr must rise from 0 to the number of nodes, 4"):
        Graph(4, [[], []], ptr=[0, 2])


def test_what_may_be_meant_otherwise_is_said(tmp_path):
    np.savez(tmp_path / "d.npz", edge_index=[[1], [0]], batch=[1, 1, 3], edge_weights=[2.0])
    read = read_graph(str(tmp_path / "d.npz"))
    assert read.sizes.tolist() == [0, 2, 0, 1]
    assert any("2 graphs of 4 without a node, the first is 0" in note for note in read.notes)
    assert any("edge_weights holds the weights" in note for note in read.notes)
    assert read.whole().weights.tolist() == [2.0]
    np.savez(tmp_path / "s.npz", edge_index=[[0, 1], [1, 2]], batch_ptr=[0, 2, 3], x=np.ones(3))
    assert read_graph(str(tmp_path / "s.npz")).remarks[0].startswith("not read: batch_ptr; this is one graph")
    np.savez(tmp_path / "m.npz", a=[[1, 1], [1, 0]])
    assert "are edge_index, two edges" in read_graph(str(tmp_path / "m.npz")).remarks[0]
    np.savez(tmp_path / "m.npz", a=[[0, 1], [1, 0]])
    assert read_graph(str(tmp_path / "m.npz")).remarks == ()
