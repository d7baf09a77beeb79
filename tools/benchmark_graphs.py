"""Datasets of graphs: CPU seconds and memory of `pe`, whole process, against loops over the libraries' own functions.

    python tools/benchmark_graphs.py [GRAPHS]

Prints ratios of CPU time within this run; PyTorch Geometric must be installed. A dataset of 20,000 molecule-like graphs by
default: trees of 20 to 40 nodes with some rings.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
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
    """CPU seconds of a command, and the largest memory of any child so far in MiB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, after.ru_maxrss / 1024


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "molecules.npz", Path(folder) / "out.safetensors"
        molecules(count, data)
        pe = [sys.executable, "-m", "pe_cli", "gen"]
        cases = {"laplacian": ["-k", "8"], "random-walk": ["--steps", "16"]}
        # Memory is the largest of all children so far, so these come before the loops.
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
