"""Systems without some of Linux' calls (macOS, older kernels and file systems): the same files, by other ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import save_file

WITHOUT = """
import builtins, ctypes, errno, fcntl, os, resource, sys
for name in "posix_fallocate O_TMPFILE splice copy_file_range sched_getaffinity posix_fadvise memfd_create sendfile".split():
    if hasattr(os, name):
        delattr(os, name)
if hasattr(fcntl, "F_SETPIPE_SZ"):
    del fcntl.F_SETPIPE_SZ

def hidden(call):
    def without_proc(path, *more, **named):
        if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith("/proc"):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return call(path, *more, **named)
    return without_proc

for place, name in ((os, "open"), (os, "stat"), (os, "lstat"), (os, "readlink"), (os, "link"), (os, "listdir"), (builtins, "open")):
    setattr(place, name, hidden(getattr(place, name)))
import io
io.open = builtins.open
real = ctypes.CDLL

class Without:
    def __init__(self, *given, **named):
        self._library = real(*given, **named)
    def __getattr__(self, name):
        if name.startswith("renameat"):
            raise AttributeError(name)
        return getattr(self._library, name)

ctypes.CDLL = Without
if "KERNEL" in os.environ:
    sys.platform = os.environ["KERNEL"]
from pe_cli.cli import main
main()
"""
MODEL = {"model_type": "bert", "max_position_embeddings": 16}
LINES = [
    *(f"gen rope --len 300 --dim 8 -q -o out.{kind}" for kind in ("npy", "npz", "h5", "safetensors")),
    *(f"gen rope --len 300 --dim 8 -q -o old.{kind} --force" for kind in ("npy", "safetensors")),
    "extend x.safetensors --len 32 -q -o out.safetensors",
    "extend x.safetensors --len 32 -q -o old.safetensors --force",
    "extend x.h5 --len 32 -q -o out.h5",
    "extend model --len 32 -q -o out",
    "extend model --len 32 -q -o old --force",
    "gen laplacian g.tsv -k 2 -q -o out.npz",
    "inspect x.h5 --json",
    "inspect packed.h5 --json",
    "diff x.h5 x.npz",
]
PIPES = [
    "cat x.h5 | {pe} inspect - --json",
    "cat x.npz | {pe} inspect - --json",
    "cat x.safetensors | {pe} extend - --len 32 -q | cat > out.safetensors",
    "{pe} gen rope --len 300 --dim 8 -q > out.npy",
    "{pe} gen rope --len 300 --dim 8 -q >> old.npy",
]


def fill(place: Path) -> Path:
    (place / "model").mkdir(parents=True)
    table = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
    tensors = {"embeddings.position_embeddings.weight": table}
    for name in ("x.safetensors", "model/model.safetensors"):
        save_file(tensors, place / name)
    np.savez(place / "x.npz", **tensors)
    for name in ("x.h5", "packed.h5"):
        with h5py.File(place / name, "w") as file:
            more = {"chunks": (4, 8), "compression": "gzip"} if name == "packed.h5" else {}
            file.create_dataset(
                "embeddings.position_embeddings.weight", data=table, track_times=False, **more
            )
    (place / "model" / "config.json").write_text(json.dumps(MODEL))
    (place / "g.tsv").write_text("0\t1\n1\t2\n2\t0\n0\t3\n")
    for name in ("old.npy", "old.safetensors"):
        (place / name).write_bytes(b"old")
    (place / "old").mkdir()
    (place / "old" / "config.json").write_text("{}")
    return place


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


FEW = (
    "gen rope --len 300 --dim 8 -q -o old.npy --force",
    "extend model --len 32 -q -o old --force",
    PIPES[0],
)


@pytest.mark.slow
@pytest.mark.parametrize("line", FEW)
def test_the_same_without(line: str, tmp_path: Path) -> None:
    compare(line, "linux", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["linux", "darwin"])
@pytest.mark.parametrize("line", [*LINES, *PIPES])
def test_every_line_the_same_without(line: str, kernel: str, tmp_path: Path) -> None:
    compare(line, kernel, tmp_path)


def compare(line: str, kernel: str, tmp_path: Path) -> None:
    """What a line writes, says and leaves, with the calls and without them."""
    (tmp_path / "without.py").write_text(WITHOUT)
    found = {}
    for name, program in (("with", "-m pe_cli"), ("without", str(tmp_path / "without.py"))):
        place = fill(tmp_path / name)
        pe = f"{sys.executable} {program}"
        command = line.format(pe=pe) if "{pe}" in line else f"{pe} {line}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=place,
            env={**os.environ, **({"KERNEL": kernel} if name == "without" else {})},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stderr
        found[name] = (done.returncode, done.stdout, contents(place))
    assert found["with"][2] == found["without"][2]
    assert found["with"] == found["without"]
