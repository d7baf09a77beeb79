"""Each graph of a dataset is encoded as if it were alone, whatever block, shard or process it falls into."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from pe_cli import dataset_tables
from pe_cli.cli import run
from pe_cli.encodings.graph.distances import resistance_distance, shortest_path
from pe_cli.encodings.graph.spectral import laplacian, magnetic
from pe_cli.encodings.graph.walks import heat_kernel, random_walk, rrwp
from pe_cli.structures import Graph

BENCHMARK = Path(__file__).parent.parent / "tools" / "benchmark_graphs.py"
ENCODINGS = {
    "laplacian": (lambda g: laplacian(g, 4), ["-k", "4"]),
    "laplacian none": (
        lambda g: laplacian(g, 3, norm="none", drop="none"),
        ["-k", "3", "--norm", "none", "--drop", "none"],
    ),
    "laplacian rw": (
        lambda g: laplacian(g, 3, norm="rw", isolated="one"),
        ["-k", "3", "--norm", "rw", "--isolated", "one"],
    ),
    "magnetic": (lambda g: magnetic(g, 3, parts="split"), ["-k", "3", "--parts", "split"]),
    "random-walk": (lambda g: random_walk(g, 9), ["--steps", "9"]),
    "heat-kernel": (lambda g: heat_kernel(g, (0.5, 2.0)), ["--times", "0.5,2"]),
    "shortest-path": (shortest_path, []),
    "resistance-distance": (resistance_distance, []),
    "rrwp": (lambda g: rrwp(g, 4, form="dense"), ["--steps", "4", "--form", "dense"]),
}


def dataset(seed=0, count=60):
    """Graphs of 1 to 80 nodes, some without edges, some in several pieces, with loops and weights."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 30, count)
    sizes[7] = 80
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    edges = [
        random.integers(0, n, (2, int(n * random.choice([0, 0.4, 1.5])))) + start
        for n, start in zip(sizes, ptr, strict=False)
    ]
    edges = np.concatenate(edges, axis=1)
    return ptr, edges, random.integers(1, 4, edges.shape[1]).astype(float)


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_graph_has_the_bits_that_it_has_alone(name):
    encode, _ = ENCODINGS[name]
    ptr, edges, weights = dataset()
    union = Graph(int(ptr[-1]), edges, weights, ptr=ptr)
    table = encode(union)
    for number in range(union.num_graphs):
        part = union.part(number)
        alone = encode(Graph(part.num_nodes, part.edges, part.weights, largest=union.largest))
        for key, array in alone.items():
            starts = table.get("pair_ptr", ptr)
            rows = (
                table[key][number]
                if len(table[key]) == union.num_graphs
                else table[key][starts[number] : starts[number + 1]]
            )
            if key == "eigenvalues":
                rows = np.nan_to_num(rows)  # absent columns are NaN in a dataset
            assert rows.tobytes() == np.ascontiguousarray(array).reshape(rows.shape).tobytes()


@pytest.fixture
def data(tmp_path, monkeypatch):
    ptr, edges, weights = dataset(1)
    np.savez(tmp_path / "d.npz", edge_index=edges, ptr=ptr, edge_weight=weights)
    monkeypatch.chdir(tmp_path)
    return "d.npz"


def make(name, data, *more, output="made.safetensors"):
    encoding = name.split()[0]
    assert run(["gen", encoding, data, *ENCODINGS[name][1], *more, "-q", "--force", "-o", output]) == 0
    return load_file(output) if output.endswith("safetensors") else None


@pytest.mark.parametrize("name", ENCODINGS)
def test_blocks_and_shards_have_the_bits_of_the_whole(name, data, monkeypatch):
    whole = make(name, data)
    monkeypatch.setattr(dataset_tables, "MOST_GRAPHS", 7)
    blocks = make(name, data)
    parts = [make(name, data, "--shard", f"{i}/4") for i in range(4)]
    for key, array in whole.items():
        assert blocks[key].tobytes() == array.tobytes()
        if key.endswith("ptr"):
            assert np.array_equal(np.concatenate([np.diff(part[key]) for part in parts]), np.diff(array))
        else:
            assert np.concatenate([part[key] for part in parts]).tobytes() == array.tobytes()
            assert {part[key].dtype for part in parts} == {array.dtype}


@pytest.mark.parametrize("output", ["a.npz", "a.h5"])
def test_other_formats_hold_the_same(data, output):
    whole = make("laplacian", data)
    make("laplacian", data, output=output)
    if output.endswith("npz"):
        stored = dict(np.load(output))
    else:
        import h5py

        with h5py.File(output) as file:
            stored = {key: np.asarray(file[key]) for key in file}
    for key, array in whole.items():
        np.testing.assert_array_equal(stored[key], array)


@pytest.mark.parametrize("name", ["laplacian", "shortest-path"])
def test_processes_give_the_same_bytes(name, data, monkeypatch):
    monkeypatch.setattr(dataset_tables, "MOST_GRAPHS", 7)
    make(name, data, output="one.safetensors")
    make(name, data, "--workers", "2", output="two.safetensors")
    with open("one.safetensors", "rb") as one, open("two.safetensors", "rb") as two:
        assert one.read() == two.read()


def test_rows_of_a_long_table_in_processes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--workers", "2"]):
        assert (
            run(["gen", "rope", "--len", "30000", "--dim", "32", "-q", "-o", f"r{len(more)}.npy", *more]) == 0
        )
    assert (tmp_path / "r0.npy").read_bytes() == (tmp_path / "r2.npy").read_bytes()


KILLED = """
import os, sys, time
from pe_cli.parallel import mapping

def slow(number):
    if number == 5 and not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").close()
        os.kill(os.getpid(), 9)
    return number * number

if __name__ == "__main__":
    with mapping(workers=2) as run:
        print(list(run(slow, range(20))))
"""


def test_a_killed_worker_costs_a_repetition(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "killed")],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert done.stdout.strip() == str([n * n for n in range(20)])
    assert (tmp_path / "killed").exists()


ORPHAN = """
import os, time
from pe_cli.parallel import mapping

def wait(number):
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    with mapping(workers=2) as run:
        list(run(wait, range(2)))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_end_with_their_parent(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(ORPHAN)
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    workers = [int(parent.stdout.readline()) for _ in range(2)]
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)


def test_errors_in_a_worker_are_those_of_pe(data, capsys):
    ptr, edges, weights = dataset(1)
    np.savez("bad.npz", edge_index=edges, ptr=ptr, edge_weight=-weights)
    assert run(["gen", "laplacian", "bad.npz", "-k", "2", "-o", "x.safetensors", "--workers", "2"]) == 2
    assert "weights must not be negative" in capsys.readouterr().err
    assert (
        run(["gen", "random-walk", data, "--steps", "2", "-o", "x.npy", "--workers", "2", "--dask", "a:1"])
        == 2
    )


def test_several_processes_are_refused_where_one_computes_all(data, capsys, tmp_path):
    (tmp_path / "one.tsv").write_text("0\t1\n")
    for words in (["degree", str(tmp_path / "one.tsv")], ["rrwp", data, "--steps", "2"]):
        assert run(["gen", *words, "-o", "x.npz", "--workers", "2"]) == 2
        assert "--workers 2: this table has no blocks" in capsys.readouterr().err


@pytest.mark.slow
def test_what_dask_lacks_is_said(data, capsys):
    pytest.importorskip("distributed")
    for address in ("127.0.0.1:9", "nonsense"):
        assert run(["gen", "laplacian", data, "-k", "2", "-o", "x.safetensors", "--dask", address]) == 2
        assert f"--dask {address}: no scheduler answers there" in capsys.readouterr().err


@pytest.mark.slow
def test_one_process_several_and_a_cluster_give_the_same_bytes():
    pytest.importorskip("distributed")
    count = os.environ.get("PE_GRAPHS", "20000")  # 370,000 is the size that is promised
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "same", count], capture_output=True, text=True, check=True
    )
    found = dict(line.split(": ") for line in done.stdout.splitlines())
    assert int(found.pop("MiB of one process")) <= 250
    assert found == dict.fromkeys(
        ["two processes", "a worker was killed", "a cluster", "four shards"], "True"
    )


@pytest.mark.parametrize("name", ENCODINGS)
def test_batches_are_filled_up_and_masked(name, data, monkeypatch, capsys):
    whole = make(name, data)
    monkeypatch.setattr(dataset_tables, "MOST_GRAPHS", 7)
    filled = make(name, data, "--pad-to", "81")
    sizes = np.diff(whole["ptr"])
    assert filled["mask"].sum(axis=1).tolist() == sizes.tolist()
    for key, array in whole.items():
        if key == "pair_ptr":
            continue
        if key in ("ptr", "eigenvalues"):
            assert filled[key].tobytes() == array.tobytes()
            continue
        assert filled[key].dtype == array.dtype
        inside = filled["mask"].astype(bool)
        if "pair_ptr" in whole:
            inside = inside[:, :, None] & inside[:, None, :]
        assert filled[key].shape[: inside.ndim] == inside.shape
        assert filled[key][inside].tobytes() == array.tobytes()
        assert not filled[key][~inside].any()
    assert run(["gen", "random-walk", data, "--steps", "2", "--pad-to", "79", "-o", "x.npz"]) == 2
    assert "--pad-to 79: the largest graph of d.npz has 80 nodes" in capsys.readouterr().err


def test_batches_with_a_node_in_front(data):
    filled = make("shortest-path", data, "--virtual-node", "77", "--pad-to", "80")["distance"]
    sizes = np.diff(dataset(1)[0])
    assert filled.shape == (60, 81, 81)
    assert [(np.count_nonzero(one[0] == 77), np.count_nonzero(one[:, 0] == 77)) for one in filled] == [
        (n + 1, n + 1) for n in sizes.tolist()
    ]


def test_one_graph_is_not_divided(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g.tsv").write_text("0\t1\n1\t2\n")
    assert run(["gen", "laplacian", "g.tsv", "-k", "1", "--shard", "0/2", "-o", "x.npz"]) == 2
    assert "--shard 0/2: this is one graph" in capsys.readouterr().err
