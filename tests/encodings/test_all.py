"""What holds for every encoding of the catalogue, taken through the command line as its own example says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from pe_cli.catalogue import CATALOGUE
from pe_cli.cli import run
from pe_cli.commands.gen import Encoding
from pe_cli.commands.options import DistanceChoice, PairChoice, RowChoice

ROWWISE = [name for name in CATALOGUE if name not in ("tree", "dependency")]


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every file that the examples read."""
    random = np.random.default_rng(0)
    arrays = {
        "q": random.normal(size=(2, 6, 8)),
        "k": random.normal(size=(2, 6, 8)),
        "e": random.normal(size=(4, 8)),
        "f": -random.random((2, 7)),
        "x": random.normal(size=(196, 4)),
        "w": random.normal(size=(4, 1, 3, 3)),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array.astype(np.float32))
    ring = [(i, (i + 1) % 12) for i in range(12)] + [(0, 5), (2, 9)]
    (tmp_path / "graph.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in ring))
    (tmp_path / "dag.tsv").write_text("0\t1\n0\t2\n1\t2\n2\t3\n")
    (tmp_path / "parse.txt").write_text("(S (NP (D the) (N cat)) (VP (V sat)))\n")
    rows = [("the", 2), ("cat", 3), ("sat", 0)]
    (tmp_path / "parse.conllu").write_text(
        "".join(f"{i}\t{w}\t_\t_\t_\t_\t{head}\t_\t_\t_\n" for i, (w, head) in enumerate(rows, 1)) + "\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def example(name: str, *more: str, without: tuple[str, ...] = (), output: str) -> list[str]:
    """The words of the example, with other output and options."""
    words = shlex.split(CATALOGUE[name].arguments)
    for option in ("-o", *without):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    words = [
        word for word in words if not word.startswith(tuple(f"{option}=" for option in without or ("\0",)))
    ]
    if "--len" in without:
        words = [word for word in words if word != "--bidirectional"]  # it says which rows --len means
    return ["gen", name, *words, *more, "-q", "--force", "-o", output]


def make(
    name: str, *more: str, without: tuple[str, ...] = (), output: str = "made.safetensors"
) -> dict[str, np.ndarray]:
    assert run(example(name, *more, without=without, output=output)) == 0
    return load_file(output) if output.endswith("safetensors") else {}


@pytest.mark.parametrize("name", CATALOGUE)
def test_the_example_runs(name: str, inputs: Path) -> None:
    words = shlex.split(CATALOGUE[name].example(name))
    assert run(words[1:]) == 0
    assert (inputs / words[-1]).stat().st_size > 0


@pytest.mark.parametrize("name", CATALOGUE)
def test_safetensors_and_hdf5_hold_the_same_finite_values(name: str, inputs: Path) -> None:
    tensors = make(name)
    make(name, output="made.h5")
    with h5py.File("made.h5") as stored:
        assert set(stored) == set(tensors)
        for key, array in tensors.items():
            assert array.size
            assert np.isfinite(array).all()
            np.testing.assert_array_equal(np.asarray(stored[key]), array)


@pytest.mark.slow
@pytest.mark.parametrize("name", CATALOGUE)
def test_the_same_command_gives_the_same_bytes_in_another_process(name: str, inputs: Path) -> None:
    for output in ("a.safetensors", "a.h5", "a.npz"):
        make(name, output=output)
        done = [sys.executable, "-m", "pe_cli", *example(name, output=f"b{output[1:]}")]
        where = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        subprocess.run(done, check=True, env={"PYTHONHASHSEED": "7", "PATH": "", **where})
        assert (inputs / output).read_bytes() == (inputs / f"b{output[1:]}").read_bytes()


ROWS = [name for name in CATALOGUE if Encoding(name).rows is RowChoice]
PAIRS = [name for name in CATALOGUE if Encoding(name).rows in (PairChoice, DistanceChoice)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("name", ROWS)
def test_a_row_alone_has_the_bits_of_the_row_in_the_whole(name: str, dtype: str, inputs: Path) -> None:
    wanted = [0, 5, 511, 512, 3, 1000]
    rows = ("--len", "--positions")
    whole = make(name, "--positions", "0:1001", "--dtype", dtype, without=(*rows, "--dtype"))
    some = make(name, "--positions", ",".join(map(str, wanted)), "--dtype", dtype, without=(*rows, "--dtype"))
    for key, array in some.items():
        if len(array) == len(wanted):
            assert array.tobytes() == whole[key][wanted].tobytes()


@pytest.mark.parametrize("name", ROWS)
def test_shards_joined_are_the_whole(name: str, inputs: Path) -> None:
    rotary = CATALOGUE[name].family == "rotary"
    where = ("--positions", "0:1005") if rotary else ("--positions", "0:1003", "--prefix-rows", "2")
    whole = make(name, *where, without=("--len", "--positions"))
    parts = [make(name, *where, "--shard", f"{i}/3", without=("--len", "--positions")) for i in range(3)]
    for key, array in whole.items():
        joined = np.concatenate([part[key] for part in parts]) if len(array) == 1005 else parts[0][key]
        assert joined.tobytes() == array.tobytes()


@pytest.mark.parametrize("name", PAIRS)
def test_a_query_alone_has_the_bits_of_its_row_in_the_whole(name: str, inputs: Path) -> None:
    whole = make(name)
    words = shlex.split(CATALOGUE[name].arguments)
    some = make(name, "--positions", "7,3", "--k-len", words[words.index("--len") + 1], without=("--len",))
    for key, array in some.items():
        if array.shape != whole[key].shape:
            axis = next(i for i, size in enumerate(array.shape) if size == 2)
            assert array.tobytes() == np.ascontiguousarray(whole[key].take([7, 3], axis=axis)).tobytes()


@pytest.mark.parametrize("name", [*ROWS, *PAIRS])
def test_a_shard_may_be_empty(name: str, inputs: Path) -> None:
    """Two processes of three find nothing to do where there is one row."""
    one = ("--positions", "0", *(("--k-len", "16") if name in PAIRS else ()))
    whole = make(name, *one, without=("--len", "--positions"))
    parts = [make(name, *one, "--shard", f"{i}/3", without=("--len", "--positions")) for i in range(3)]
    for key, array in whole.items():
        shapes = [part[key].shape for part in parts]
        axis = next(
            (i for i in range(array.ndim) if any(shape[i] != array.shape[i] for shape in shapes)), None
        )
        if axis is not None:
            assert np.concatenate([part[key] for part in parts], axis=axis).tobytes() == array.tobytes()


@pytest.mark.parametrize("name", PAIRS)
def test_shards_of_queries_joined_are_the_whole(name: str, inputs: Path) -> None:
    whole = make(name)
    parts = [make(name, "--shard", f"{i}/3") for i in range(3)]
    for key, array in whole.items():
        shapes = [part[key].shape for part in parts]
        axis = next((i for i, size in enumerate(array.shape) if shapes[0][i] != size), None)
        if axis is not None:
            assert np.concatenate([part[key] for part in parts], axis=axis).tobytes() == array.tobytes()
        else:
            assert parts[0][key].tobytes() == array.tobytes()
