"""No input is ever written over: not by an output, a picture or `>>`, for any command and any kind of input."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pe_cli.catalogue import CATALOGUE
from pe_cli.commands.gen import Encoding
from pe_cli.signature import Meaning

SHAPES = {
    "matrix": (1, 4), "t5": (32, 2), "t5r": (33, 2), "shaw": (5, 4), "heads": (2,), "heads2": (2,), "h": (4, 1), "hb": (4,), "o": (2, 4), "swin": (9, 2), "m1": (4, 2),
    "factor": (4,), "factor2": (4,), "table": (16, 8), "tupe": (9, 8), "sq": (8, 8), "sq2": (8, 8), "v": (8,), "v2": (8,), "v3": (8,),
    "v4": (8,), "q": (2, 6, 8), "k": (2, 6, 8), "e": (4, 8), "logits": (2, 6, 6), "f": (2, 7), "x": (196, 4), "w": (4, 1, 3, 3), "pegb": (4,),
}  # fmt: skip
MLP = "--mlp-hidden-weight m1.npy --mlp-hidden-bias hb.npy --mlp-output-weight o.npy"
TUPE = (
    "--table tupe.npy --query-weight sq.npy --key-weight sq2.npy --query-bias v.npy --key-bias v2.npy --norm-weight v3.npy "
    "--norm-bias v4.npy --relative-table t5r.npy"
)
# A line that works for every option that reads a file; the files in it are those that must stay.
GEN = [
    "sinusoidal --positions @v.npy --dim 8",
    "fourier --style gaussian --positions 0,1,2 --matrix matrix.npy",
    "t5 --len 8 --table t5.npy",
    "t5 --len 8 --table checkpoint.safetensors:bias",
    "t5 --distances @ids.npy",
    "shaw --len 8 --max-distance 2 --table shaw.npy",
    "shaw --len 8 --positions @ids.npy",
    "kerple --heads 2 --len 8 --bias-p heads.npy --bias-a heads2.npy",
    "fire --heads 2 --len 8 --hidden-weight h.npy --hidden-bias hb.npy --output-weight o.npy --output-bias heads.npy",
    "swin --window 2x2 --table swin.npy",
    f"swin --window 2x2 --version 2 {MLP}",
    "rope --len 8 --dim 8 --scaling longrope --original-len 8 --factor 2 --seq-len 16 --short-factor factor.npy --long-factor factor2.npy",
    "deberta --len 8 --position-buckets 4 --max-relative-positions 8 --table table.npy",
    f"tupe --len 8 --heads 2 {TUPE}",
    "cope --query q.npy --key k.npy --table e.npy",
    "cope --query q.npy --logits logits.npy --table e.npy",
    "fox --log-gates f.npy",
    "peg --hidden x.npy --weight w.npy --grid 14x14 --bias pegb.npy",
    "global-tokens --scheme longt5 --len 16 --block 4 --table t5.npy",
    "tree parse.txt --scheme depth",
    "tree tree.json --scheme depth",
    "tree a.py --scheme depth",
    "dependency parse.conllu",
    *(f"laplacian {name} -k 1" for name in ("g.tsv", "edge_index.npy", "g.npz", "g.h5", "g.mtx", "g.graphml", "g.json", "g.gz")),
    "laplacian TU -k 1",
    "random-walk g.tsv --steps 2",
    "rrwp g.tsv --steps 2",
    "heat-kernel g.tsv --times 1,2",
    "shortest-path g.tsv",
    "resistance-distance g.tsv",
    "magnetic g.tsv -k 1 --directed",
    "eigenspaces g.tsv -k 1",
    "electrostatic g.tsv",
    "svd g.tsv -k 1 --directed",
    "cycles g.tsv",
    "dag dag.tsv",
    "degree g.tsv",
    "model config.json --len 8",
    "model model --len 8",
    "model config.json --positions @ids.npy",
]  # fmt: skip
OTHERS = [
    "extend table.npy --len 32",
    "extend checkpoint.safetensors:wpe.weight --len 32",
    "extend table.npy --len 32 --config config.json",
    "inspect table.npy",
    "inspect checkpoint.safetensors",
    "inspect config.json",
    "inspect model",
    "diff table.npy other.npy",
]
WRITES = [*(f"gen {line}" for line in GEN), *OTHERS[:3]]
INSIDE = {"model": "model/config.json", "TU": "TU/TU_A.txt"}  # of the folders that are read


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inputs")
    chance = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        sign = -1 if name == "f" else 1
        np.save(path / f"{name}.npy", sign * (1 + abs(chance.normal(size=shape))).astype(np.float32))
    np.save(path / "other.npy", np.zeros((16, 8), np.float32))
    np.save(path / "ids.npy", np.arange(4))
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    np.save(path / "edge_index.npy", edges)
    np.savez(path / "g.npz", edge_index=edges)
    with pytest.importorskip("h5py").File(path / "g.h5", "w") as file:
        file["edge_index"] = edges
    tables = {"bias": (32, 2), "wpe.weight": (16, 8)}
    save_file(
        {n: chance.normal(size=s).astype(np.float32) for n, s in tables.items()},
        path / "checkpoint.safetensors",
    )
    texts = {
        "g.tsv": "0\t1\n1\t2\n2\t0\n",
        "dag.tsv": "0\t1\n1\t2\n",
        "g.mtx": "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 1.0\n2 3 2.0\n",
        "g.graphml": '<graphml><graph edgedefault="undirected"><node id="a"/><node id="b"/><edge source="a" target="b"/></graph></graphml>',
        "g.json": '{"nodes": [0, 1], "edges": [{"source": 0, "target": 1}]}',
        "parse.txt": "(S (NP (D the) (N cat)) (VP (V sat)))\n",
        "tree.json": '{"label": "S", "children": [{"label": "a"}, {"label": "b"}]}',
        "a.py": "def f(a):\n    return a\n",
        "parse.conllu": "1\tthe\t_\t_\t_\t_\t2\t_\t_\t_\n2\tcat\t_\t_\t_\t_\t0\t_\t_\t_\n",
        "config.json": json.dumps({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 1e4, "max_position_embeddings": 16}),
        "TU/TU_A.txt": "1, 2\n2, 1\n3, 4\n4, 3\n",
        "TU/TU_graph_indicator.txt": "1\n1\n2\n2\n",
    }  # fmt: skip
    (path / "TU").mkdir()
    (path / "model").mkdir()
    for name, text in texts.items():
        (path / name).write_text(text)
    (path / "g.gz").write_bytes(__import__("gzip").compress(b"0 1\n1 2\n2 0\n"))
    shutil.copy(path / "config.json", path / "model")
    return path


def inputs(line: str) -> Iterator[str]:
    """The files that a line reads."""
    for word in shlex.split(line)[2 if line.startswith("gen") else 1 :]:
        name = INSIDE.get(word, word.lstrip("@").split(":")[0])
        if re.search(r"\.(npy|npz|h5|safetensors|tsv|mtx|graphml|json|gz|txt|py|conllu)$", name):
            yield name


def ways(place: Path, name: str) -> Iterator[str]:
    """The names of a file: its own, a roundabout one, a link, a hard link."""
    link, hard = place / f"link-{Path(name).name}", place / f"hard-{Path(name).name}"
    for made in (link, hard):
        made.unlink(missing_ok=True)
    link.symlink_to(name)
    os.link(place / name, hard)
    yield from (name, f"./{name}", link.name, hard.name)
    for made in (link, hard):
        made.unlink()


def check(done: object, place: Path, name: str, before: bytes, said: str) -> None:
    assert (place / name).read_bytes() == before, (name, done)
    assert done.code == 2, (name, done)  # type: ignore[attr-defined]
    assert re.search(said, done.stderr), (name, done)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("line", [*WRITES, *OTHERS[3:]])
def test_no_command_writes_over_what_it_reads(line: str, launch, place: Path) -> None:  # type: ignore[no-untyped-def]
    argv = [*shlex.split(line), "-q"] if "inspect" not in line else shlex.split(line)
    names = list(inputs(line))
    assert names
    if line in WRITES:
        assert launch([*argv, "-o", "new", "--format", "safetensors"], place).code == 0
        (place / "new").unlink()
    for name in names:
        before = (place / name).read_bytes()
        for way in ways(place, name):
            if line in WRITES:
                done = launch([*argv, "-o", way, "--force", "--format", "safetensors"], place)
                check(done, place, name, before, f"{re.escape(way)} is also the input")
            if way.startswith(("link", "hard")):
                picture = place / f"{way}.png"
                os.link(place / way, picture, follow_symlinks=False)
                done = launch(
                    [*argv, "-o", "new.npz", "--plot", picture.name, "--force"]
                    if line in WRITES
                    else [*argv, "--plot", picture.name, "--force"],
                    place,
                )
                picture.unlink()
                check(done, place, name, before, "is also the input")
                assert not (place / "new.npz").exists()
        for more in ([], ["--json"]):
            done = launch([*argv, *more], place, onto=str(place / name))
            check(done, place, name, before, "standard output.* is also the input")
        done = launch(
            [*argv, "-o", "/dev/stdout", "--force", "--format", "npz"] if line in WRITES else argv,
            place,
            onto=str(place / name),
        )
        check(done, place, name, before, "is also the input")


@pytest.mark.parametrize("line", ["gen shortest-path -", "extend - --len 32", "inspect -"])
def test_standard_input_is_an_input_too(line: str, launch, place: Path) -> None:  # type: ignore[no-untyped-def]
    name = "edge_index.npy" if "gen" in line else "table.npy"
    before = (place / name).read_bytes()
    argv = shlex.split(line)
    done = launch(argv, place, stdin=str(place / name), onto=str(place / name))
    check(done, place, name, before, "is also the input")
    if "inspect" not in line:
        done = launch([*argv, "-o", name, "--force"], place, stdin=str(place / name))
        check(done, place, name, before, f"{name} is also the input")


def test_messages_are_not_appended_to_an_input(launch, place: Path) -> None:  # type: ignore[no-untyped-def]
    before = (place / "g.tsv").read_bytes()
    done = launch(["gen", "shortest-path", "g.tsv", "-o", "new.npy"], place, complain=str(place / "g.tsv"))
    assert (place / "g.tsv").read_bytes() == before
    assert done.code == 2
    assert not (place / "new.npy").exists()


def test_every_option_that_reads_a_file_is_here() -> None:
    for name in CATALOGUE:
        lines = " ".join(line for line in GEN if line.split()[0] == name)
        for parameter in Encoding(name).own.values():
            if parameter.meaning is Meaning.ARRAY:
                assert parameter.flag in lines, (name, parameter.flag)
            elif parameter.meaning in (Meaning.GRAPH, Meaning.FOREST):
                assert lines, name
