"""`pe` in a process of its own for each command line, bounded in time and memory, and a folder of good and bad files."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

LAUNCHER = Path(__file__).with_name("launcher.py")
SECONDS, BYTES = 20, 3 << 30


@dataclass(frozen=True)
class Done:
    """What came of a command line."""

    code: int
    stdout: int
    output: str
    stderr: str
    kilobytes: int
    seconds: float


Launch = Callable[..., Done]


@pytest.fixture(scope="session")
def launch() -> Iterator[Launch]:
    """Run `pe ARGV` in a folder; `stdin` is a file."""
    with launcher() as run:
        yield run


@contextmanager
def launcher() -> Iterator[Launch]:
    """A function that runs `pe ARGV` in a folder, in a process of its own."""
    command = [sys.executable, str(LAUNCHER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:

        def run(argv: list[str], folder: Path, **more: Any) -> Done:
            assert started.stdin is not None
            assert started.stdout is not None
            words = [os.fsencode(word).decode("latin-1") for word in argv]
            job = {"argv": words, "cwd": str(folder), "seconds": SECONDS, "bytes": BYTES, **more}
            print(json.dumps(job), file=started.stdin, flush=True)
            return Done(**json.loads(started.stdout.readline()))

        yield run
        assert started.stdin is not None
        started.stdin.close()


def random(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def with_one(value: float, *shape: int) -> Any:
    array = random(*shape)
    array.reshape(-1)[5] = value
    return array


ARRAYS = {
    "q": random(2, 6, 8),
    "k": random(2, 6, 8),
    "e": random(4, 8),
    "f": -abs(random(2, 7)),
    "x": random(196, 4),
    "w": random(4, 1, 3, 3),
    "t5": random(32, 8),
    "table": random(16, 8),
    "nan": with_one(np.nan, 4, 8),
    "inf": with_one(np.inf, 4, 8),
    "none": np.zeros((0, 8)),
    "triples": np.arange(12).reshape(4, 3),
    "narrow": np.zeros((4, 0)),
    "one": np.array(1.0),
    "cube": random(2, 3, 4),
    "complex": np.ones((4, 8), complex),
    "bool": np.ones((4, 8), bool),
    "text": np.array(["a", "b"]),
    "date": np.array(["2020-01-01"], dtype="M8[D]"),
    "record": np.zeros(3, dtype=[("a", "i4"), ("b", "f8")]),
    "objects": np.array([1, "a", None], dtype=object),
    "edge_index": np.array([[0, 1, 2], [1, 2, 0]]),
    "edges_negative": np.array([[0, 1, -2], [1, 2, 0]]),
    "adjacency_nan": np.array([[0, np.nan], [np.nan, 0]]),
    "adjacency_wide": np.ones((2, 5)),
}
DEEP = 100_000
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
CONFIGS: dict[str, Any] = {
    "llama": {"model_type": "llama"},
    "empty": {},
    "list": [1, 2],
    "no-heads": {"model_type": "llama", "hidden_size": 64},
    "text-width": {**CONFIG, "hidden_size": "wide"},
    "huge-width": {**CONFIG, "hidden_size": 10**30},
    "huge-heads": {**CONFIG, "num_attention_heads": 10**30},
    "zero-heads": {**CONFIG, "num_attention_heads": 0},
    "negative-base": {**CONFIG, "rope_theta": -1},
    "text-base": {**CONFIG, "rope_theta": "many"},
    "negative-factor": {**CONFIG, "rope_scaling": {**YARN, "factor": -4}},
    "text-factor": {**CONFIG, "rope_scaling": {**YARN, "factor": "four"}},
    "no-factor": {**CONFIG, "rope_scaling": {"rope_type": "linear"}},
    "unknown-scaling": {**CONFIG, "rope_scaling": {"rope_type": "yarm", "factor": 2}},
    "list-scaling": {**CONFIG, "rope_scaling": [4]},
    "text-heads": {"model_type": "mpt", "n_heads": "8"},
}
SENTENCE = "1\tthe\t_\t_\t_\t_\t{0}\t_\t_\t_\n2\tcat\t_\t_\t_\t_\t{1}\t_\t_\t_\n"
GRAPHML = '<graphml><graph edgedefault="undirected"><node id="a"/><node id="b"/>{}</graph></graphml>'
BOMB = '<!DOCTYPE b [<!ENTITY a "aaaaaaaaaa">{}]><graphml><graph><node id="&z;"/></graph></graphml>'.format(
    "".join(
        f'<!ENTITY {b} "{f"&{a};" * 10}">'
        for a, b in zip("abcdefghijklmnopqrstuvwxy", "bcdefghijklmnopqrstuvwxyz", strict=True)
    )
)
MTX = "%%MatrixMarket matrix coordinate {}\n"
TEXTS = {
    "empty": "",
    "words": "hello\n",
    "graph.tsv": "0\t1\n1\t2\n2\t0\n",
    "gap.tsv": "0\t1\n1\t5\n",
    "far.tsv": "0\t1\n1\t1000000000\n",
    "beyond.tsv": "0\t1\n1\t99999999999999999999\n",
    "negative.tsv": "0\t1\n1\t-2\n",
    "fraction.tsv": "0\t1\n1\t2.5\n",
    "short.tsv": "0\t1\n1\n",
    "column.tsv": "0\n1\n2\n",
    "comments.tsv": "# nothing\n# here\n",
    "weight-text.tsv": "0\t1\t0.5\n1\t2\theavy\n",
    "weight-first-nan.tsv": "0\t1\tnan\n1\t2\t5\n",
    "weight-nan.tsv": "0\t1\t0.5\n1\t2\tnan\n",
    "weight-missing.tsv": "0\t1\t0.5\n1\t2\n",
    "weight-negative.tsv": "0\t1\t0.5\n1\t2\t-1\n",
    "loop.tsv": "0\t0\n",
    "parse.txt": "(S (NP (D the) (N cat)) (VP (V sat)))\n",
    "parse.conllu": SENTENCE.format(2, 0),
    "open.txt": "(S (NP (D the)\n",
    "closed.txt": "(S (NP the)))\n",
    "outside.txt": "(S a) b\n",
    "deep.txt": "(S " * DEEP,
    "deep.json": "[" * DEEP,
    "deep-object.json": '{"children":[' * DEEP,
    "half.json": '{"label": "S", "children": [',
    "number.json": "42",
    "children.json": '{"label": "S", "children": 3}',
    "child-outside.json": '[{"type": "a", "children": [7]}]',
    "child-twice.json": '[{"type": "a", "children": [1, 1]}, {"type": "b"}]',
    "cycle.json": '[{"type": "a", "children": [2]}, {"type": "b", "children": [3]}, {"type": "c"}, {"type": "d", "children": [1]}]',
    "cycle.conllu": SENTENCE.format(2, 1),
    "roots.conllu": SENTENCE.format(0, 0),
    "own.conllu": SENTENCE.format(1, 0),
    "outside.conllu": SENTENCE.format(9, 0),
    "head.conllu": SENTENCE.format("x", 0),
    "columns.conllu": "1\tthe\t_\n",
    "order.conllu": SENTENCE.format(2, 0).replace("2\tcat", "3\tcat"),
    "cycle.heads": "2 3 1\n",
    "negative.heads": "2 0 -1\n",
    "huge.heads": "2 0 99999999999999999999\n",
    "broken.py": "def f(:\n",
    "deep.py": "(" * DEEP,
    "entity.graphml": BOMB,
    "nothing.graphml": "<html><body/></html>",
    "open.graphml": "<graphml><graph>",
    "stranger.graphml": GRAPHML.format('<edge source="a"/>'),
    "mixed.graphml": GRAPHML.format('<edge source="a" target="b" directed="true"/>'),
    "hyper.graphml": GRAPHML.format("<hyperedge/>"),
    "deep.graphml": "<graphml>" + "<graph>" * DEEP,
    "links.json": '{"nodes": [{"id": 0}], "links": 3}',
    "edges.json": '{"nodes": [{"id": 0}], "edges": [{"source": 0}]}',
    "weight.json": '{"nodes": [0, 1], "edges": [{"source": 0, "target": 1, "weight": "heavy"}]}',
    "more.mtx": MTX.format("real general") + "2 2 5\n1 2 1.0\n",
    "outside.mtx": MTX.format("real general") + "2 2 1\n1 3 1.0\n",
    "zero.mtx": MTX.format("pattern general") + "2 2 1\n0 1\n",
    "wide.mtx": MTX.format("real general") + "2 3 1\n1 2 1.0\n",
    "lie.mtx": MTX.format("real general") + "999999999999 999999999999 1\n1 2 1.0\n",
    "complex.mtx": MTX.format("complex general") + "2 2 1\n1 2 1.0 0.0\n",
    "words.mtx": MTX.format("real general") + "2 2 1\none two 1.0\n",
    "sizeless.mtx": MTX.format("real general"),
    "cut.json": '{"model_type": "llama", "hidden_',
    "deep-config.json": '{"a":' * DEEP,
    "[red].tsv": "0\t1\n1\t5\n",
    "[/x].npy": "hello",
    "a:b.npy": "hello",
    "line\nbreak.tsv": "0\t1\n1\t5\n",
    "bell\x1b[31m.tsv": "0\t1\n1\t5\n",
    "\U0001f40d.npy": "hello",
    "\udcff\udcfe.tsv": "0\t1\n1\t5\n",
    **{f"{name}.config.json": json.dumps(config) for name, config in CONFIGS.items()},
}


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def expanding(name: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, npy(np.zeros(20_000_000)))
    return file.getvalue()


def safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def tensor(shape: list[int], *offsets: int, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


TWO = safetensors({"a": tensor([2], 0, 8), "b\n[red]": tensor([1], 8, 12)}, bytes(12))
BYTES_OF = {
    "cut.npy": npy(random(50, 50))[:500],
    "head.npy": npy(random(4, 4))[:20],
    "lie.npy": npy(random(4, 4)).replace(b"(4, 4), }      ", b"(4000000000, 4), }"),
    "binary.tsv": bytes(range(256)) * 40,
    "latin.tsv": "1\tcafé\n".encode("latin-1"),
    "broken.tsv.gz": gzip.compress(b"0\t1\n1\t2\n" * 100)[:20],
    "pickle.pkl": b"\x80\x04K\x01.",
    "bomb.npz": expanding("a.npy"),
    "bomb.tsv.gz": gzip.compress(bytes(50_000_000)),
    "broken.npz": b"PK\x03\x04" + bytes(100),
    "two.safetensors": TWO,
    "cut.safetensors": TWO[:-3],
    "long.safetensors": safetensors({"a": tensor([2], 0, 8)}, bytes(8), length=10**15),
    "huge.safetensors": safetensors({"a": tensor([10**12], 0, 4 * 10**12)}, bytes(8)),
    "overlap.safetensors": safetensors({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12)),
    "twice.safetensors": safetensors(
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        bytes(4),
    ),
    "deep.safetensors": safetensors(b"[" * DEEP),
    "cut.h5": b"\x89HDF\r\n\x1a\n" + bytes(40),
    "short.gguf": b"GGUF\x03\x00\x00\x00" + b"\xff" * 16,
    "broken.pt": b"PK\x03\x04" + bytes(20),
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the command lines of these tests name, good and bad."""
    return fill(tmp_path_factory.mktemp("files"))


def fill(path: Path) -> Path:
    """Write them into a folder."""
    for name, array in ARRAYS.items():
        (path / f"{name}.npy").write_bytes(npy(array))
    for name, text in TEXTS.items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text(text, encoding="utf-8", newline="")
    for name, data in BYTES_OF.items():
        (path / name).write_bytes(data)
    with h5py.File(path / "external.h5", "w") as file:
        file["a"] = h5py.ExternalLink("other.h5", "/a")
    (path / "folder").mkdir()
    os.mkfifo(path / "fifo")
    return path
