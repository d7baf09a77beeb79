"""Datasets of molecule-like graphs: trees of 20 to 40 nodes with some rings.

    python tools/benchmark_graphs.py [GRAPHS]
    python tools/benchmark_graphs.py same [GRAPHS]

The first prints CPU seconds and memory of `pe`, whole process, against loops over PyTorch Geometric's own transforms, which
must be installed; ratios are of CPU time within this run. The second prints how much memory one process takes, and that two
processes, a Dask cluster of which a worker is killed on the way, and four shards one after the other give the same bytes.
20,000 graphs by default.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
LOOP = """
import sys, time
import numpy as np, torch
from torch_geometric.data import Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, AddRandomWalkPE
torch.set_num_threads(1)
stored = np.load(sys.argv[1])
ptr, edges, count = stored["ptr"], stored["edge_index"], int(sys.argv[3])
lows = np.searchsorted(edges[0], ptr)
transform = {"laplacian": AddLaplacianEigenvectorPE(8, is_undirected=True), "random-walk": AddRandomWalkPE(16)}[sys.argv[2]]
graphs = [
    Data(edge_index=torch.from_numpy(edges[:, a:b] - ptr[g]), num_nodes=int(ptr[g + 1] - ptr[g]))
    for g, (a, b) in enumerate(zip(lows[:count], lows[1 : count + 1]))
]
transform(graphs[0])
start = time.process_time()
for graph in graphs:
    transform(graph)
print((time.process_time() - start) * (len(ptr) - 1) / count)
"""


def molecules(count: int, path: Path) -> None:
    """A dataset as PyTorch Geometric batches it."""
    import numpy as np

    random = np.random.default_rng(0)
    sizes = random.integers(20, 41, count)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    edges: list[Any] = []
    for size, start in zip(sizes.tolist(), ptr.tolist(), strict=False):
        parents = np.maximum(np.arange(1, size) - random.integers(1, 4, size - 1), 0)
        rings = random.integers(0, size, (2, max(1, size // 10)))
        own = np.concatenate(
            [np.stack([parents, np.arange(1, size)]), rings[:, rings[0] != rings[1]]], axis=1
        )
        own = np.unique(np.sort(own, axis=0), axis=1)
        edges.append(np.concatenate([own, own[::-1]], axis=1) + start)
    np.savez(path, edge_index=np.concatenate(edges, axis=1), ptr=ptr)


def used(argv: list[str]) -> tuple[float, float]:
    """CPU seconds of a command, and its largest memory in MiB."""
    with subprocess.Popen(argv, env=ENVIRONMENT, stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, argv)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def gen(data: Path, out: Path, *options: str) -> list[str]:
    """The command that writes 8 eigenvectors of each graph."""
    start = [sys.executable, "-m", "pe_cli", "gen", "laplacian", str(data), "-k", "8", "-q", "--force"]
    return [*start, *options, "-o", str(out)]


def tensors(path: Path) -> dict[str, Any]:
    """The tensors of a safetensors file, where they lie in it."""
    import numpy as np

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    kinds = {"F32": "<f4", "I64": "<i8"}
    return {
        name: np.memmap(
            path, kinds[one["dtype"]], "r", 8 + length + one["data_offsets"][0], tuple(one["shape"])
        )
        for name, one in header.items()
    }


def same(data: Path, folder: Path) -> dict[str, Any]:
    """The largest memory of one process in MiB, and whether every other way gives the bytes that it gives."""
    import numpy as np

    one, other = folder / "one.safetensors", folder / "other.safetensors"
    found: dict[str, Any] = {"MiB of one process": round(used(gen(data, one))[1])}
    wanted = one.read_bytes()
    used(gen(data, other, "--workers", "2"))
    found["two processes"] = other.read_bytes() == wanted
    found |= on_a_cluster(data, other, wanted)
    shards = [folder / f"{index}.safetensors" for index in range(4)]
    for index, shard in enumerate(shards):
        used(gen(data, shard, "--shard", f"{index}/4"))
    whole, parts = tensors(one), [tensors(shard) for shard in shards]
    found["four shards"] = all(
        np.array_equal(np.concatenate([np.diff(part[name]) for part in parts]), np.diff(array))
        if name == "ptr"
        else b"".join(part[name].tobytes() for part in parts) == array.tobytes()
        for name, array in whole.items()
    )
    return found


def on_a_cluster(data: Path, out: Path, wanted: bytes) -> dict[str, bool]:
    """Whether a cluster gives the same bytes, one of whose two workers is killed as soon as it has computed."""
    os.environ |= ENVIRONMENT
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        victim = next(iter(cluster.workers.values()))
        killed = threading.Event()

        def kill() -> None:
            with cluster.get_client() as client:
                while not killed.is_set():
                    done = client.run_on_scheduler(
                        lambda dask_scheduler: sum("_call" in key for key in map(str, dask_scheduler.tasks))
                    )
                    if done:
                        os.kill(victim.pid, signal.SIGKILL)
                        killed.set()
                    killed.wait(0.05)

        watcher = threading.Thread(target=kill)
        watcher.start()
        used(gen(data, out, "--dask", cluster.scheduler_address))
        killed_on_the_way = killed.is_set()
        killed.set()
        watcher.join()
    return {"a worker was killed": killed_on_the_way, "a cluster": out.read_bytes() == wanted}


def main() -> None:
    words = sys.argv[1:]
    if words[:1] == ["same"]:
        count = words[1] if len(words) > 1 else "20000"
        with tempfile.TemporaryDirectory() as name:
            # Made in a process of its own: a child's largest memory counts that of its parent when it starts.
            code = "import sys; from pathlib import Path; import benchmark_graphs as b; b.molecules(int(sys.argv[1]), Path(sys.argv[2]))"
            data = str(Path(name) / "molecules.npz")
            tools = {
                **ENVIRONMENT,
                "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
            }
            subprocess.run([sys.executable, "-c", code, count, data], check=True, env=tools)
            for what, value in same(Path(data), Path(name)).items():
                print(f"{what}: {value}", flush=True)
        return
    compare(int(words[0]) if words else 20000)


def compare(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "molecules.npz", Path(folder) / "out.safetensors"
        molecules(count, data)
        pe = [sys.executable, "-m", "pe_cli", "gen"]
        cases = {"laplacian": ["-k", "8"], "random-walk": ["--steps", "16"]}
        ours = {
            n: used([*pe, n, str(data), *options, "-o", str(out), "--force", "-q"])
            for n, options in cases.items()
        }
        for name, (spent, memory) in ours.items():
            loop = [sys.executable, "-c", LOOP, str(data), name, str(min(count, 4000))]
            done = subprocess.run(loop, check=True, env=ENVIRONMENT, capture_output=True, text=True)
            theirs = float(done.stdout)
            print(
                f"{name} of {count:,} graphs: {spent:.2f} s of CPU, {memory:.0f} MiB; PyTorch Geometric's loop "
                f"{theirs:.2f} s; ratio {spent / theirs:.2f}"
            )


if __name__ == "__main__":
    main()
