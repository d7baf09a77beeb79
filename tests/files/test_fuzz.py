"""Whatever the bytes: a result or a PeError of one line, in every reader."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from fuzzing import examples
from hypothesis import given
from hypothesis import strategies as st

from pe_cli.errors import PeError
from pe_cli.files import TensorSpec
from pe_cli.files.sinks import open_sink
from pe_cli.files.sources import open_source

pytestmark = pytest.mark.slow

TENSORS = {
    "a": np.arange(12, dtype=np.float32).reshape(4, 3),
    "b/c": np.arange(5),
    "d": np.arange(3).astype(ml_dtypes.bfloat16),
    "e": np.array(3.0),
    "f": np.arange(4) > 2,
}


def written(folder: Path, extension: str, names: list[str]) -> bytes:
    path = folder / f"seed.{extension}"
    specs = [TensorSpec(name, TENSORS[name].dtype.name, TENSORS[name].shape) for name in names]
    with open_sink(path, specs, metadata={"pe": '{"a":1}'}, force=True) as sink:
        for spec in sink.specs:
            sink.write(spec.name, 0, TENSORS[spec.name])
    return path.read_bytes()


def numpys(save: Callable[..., None], **options: Any) -> bytes:
    file = io.BytesIO()
    save(file, **options)
    return file.getvalue()


def chunked(folder: Path) -> bytes:
    with h5py.File(folder / "seed.h5", "w") as file:
        options = {"chunks": (3, 4), "compression": "gzip", "shuffle": True, "fletcher32": True}
        file.create_dataset("a", data=np.arange(200.0).reshape(20, 10), **options)
        file.create_dataset("g/b", data=[b"x"], dtype="S3")
        file["v"] = h5py.SoftLink("/a")
        file["x"] = h5py.ExternalLink("o.h5", "/a")
        file.create_dataset("s", data="hello")
        file["a"].attrs["k"] = "v"
    return (folder / "seed.h5").read_bytes()


def gguf() -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 3)
    head += text("llama.context_length") + struct.pack("<II", 4, 4096)
    head += text("tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    head += text("scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3)
    head += text("t") + struct.pack("<IQQIQ", 2, 3, 4, 0, 0)
    return head.ljust(-(-len(head) // 32) * 32, b"\0") + TENSORS["a"].tobytes()


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[bytes]]:
    folder = tmp_path_factory.mktemp("seeds")
    every = list(TENSORS)
    arrays = {name.replace("/", "_"): array for name, array in TENSORS.items()}
    return {
        "npy": [
            written(folder, "npy", ["a"]),
            written(folder, "npy", ["d"]),
            numpys(np.save, arr=np.asfortranarray(TENSORS["a"])),
            numpys(np.save, arr=TENSORS["a"].astype(">f8")),
        ],
        "npz": [written(folder, "npz", every), numpys(np.savez_compressed, **arrays)],
        "h5": [written(folder, "h5", every), chunked(folder)],
        "safetensors": [written(folder, "safetensors", every)],
        "gguf": [gguf()],
    }


def read_everything(path: Path) -> None:
    """All that a command may ask of a source."""
    with open_source(str(path)) as source:
        for name in source.tensors:
            try:
                whole = source.read(name)
                assert whole.shape == source.tensors[name].shape
                assert sum(block.size for block in source.blocks(name, max_bytes=64)) == whole.size
            except PeError as error:
                check(error)


def check(error: PeError) -> None:
    assert str(error).isprintable()
    assert len(str(error)) < 1000


def result_or_error(content: bytes, folder: Path) -> None:
    path = folder / "x"
    path.write_bytes(content)
    try:
        read_everything(path)
    except PeError as error:
        check(error)


NUMBERS = st.sampled_from(
    [
        b"\0" * 8,
        b"\xff" * 8,
        b"\xff" * 4,
        b"\0" * 4,
        b"\0" * 7 + b"\x80",
        b"\0\0\0\x80",
        b"\1\0\0\0",
        b"\0\0\0\0\1\0\0\0",
    ]
)
PLACES = st.one_of(st.integers(0, 250), st.integers(0, 1 << 16))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), PLACES, st.one_of(NUMBERS, st.binary(min_size=1, max_size=3))),
        st.tuples(
            st.just("insert"),
            PLACES,
            st.one_of(NUMBERS, st.sampled_from([b"9", b"[", b"{", b'"', b",", b"0"])),
        ),
        st.tuples(st.just("delete"), PLACES, st.binary(min_size=1, max_size=40)),
        st.tuples(st.just("cut"), PLACES, st.just(b"")),
        st.tuples(st.just("flip"), PLACES, st.sampled_from([bytes([1 << bit]) for bit in range(8)])),
    ),
    min_size=1,
    max_size=6,
)


def mutate(content: bytes, steps: list[tuple[str, int, bytes]]) -> bytes:
    data = bytearray(content)
    for kind, place, value in steps:
        at = place % (len(data) + 1)
        if kind == "set":
            data[at : at + len(value)] = value
        elif kind == "insert":
            data[at:at] = value
        elif kind == "delete":
            del data[at : at + len(value)]
        elif kind == "cut":
            del data[at:]
        elif at < len(data):
            data[at] ^= value[0]
    return bytes(data)


@pytest.mark.parametrize("kind", ["npy", "npz", "safetensors", "gguf"])
@given(which=st.integers(0, 3), steps=STEPS)
@examples(100)
def test_damaged_files(
    kind: str, which: int, steps: list[tuple[str, int, bytes]], seeds: dict[str, list[bytes]], tmp_path: Path
) -> None:
    seed = seeds[kind][which % len(seeds[kind])]
    result_or_error(mutate(seed, steps), tmp_path)


@given(which=st.integers(0, 1), steps=STEPS)
@examples(50)
def test_damaged_hdf5(
    which: int, steps: list[tuple[str, int, bytes]], seeds: dict[str, list[bytes]], tmp_path: Path
) -> None:
    result_or_error(mutate(seeds["h5"][which], steps), tmp_path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 1 << 65) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
ENTRY = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "BOOL", "F4", "X"]) | JSON,
        "shape": st.lists(st.integers(-1, 5), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(0, 64), min_size=2, max_size=2) | JSON,
    }
)


@given(
    header=st.dictionaries(
        st.sampled_from(["a", "b", "__metadata__"]) | st.text(max_size=3), ENTRY | JSON, max_size=3
    ),
    data=st.binary(max_size=64),
)
@examples(50)
def test_safetensors_headers_of_any_json(header: Any, data: bytes, tmp_path: Path) -> None:
    import json

    text = json.dumps(header).encode()
    result_or_error(len(text).to_bytes(8, "little") + text + data, tmp_path)


@given(
    descr=st.sampled_from(
        ["<f4", ">f2", "|b1", "<V2", "<V1", "|O", "<c8", "f", "=i8", "<f1", "3<f4", "f4,f4", "<", ""]
    )
    | st.text(max_size=6)
    | JSON,
    fortran=st.booleans() | JSON,
    shape=st.lists(st.integers(-1, 5), max_size=4).map(tuple) | JSON,
    data=st.binary(max_size=200),
)
@examples(50)
def test_npy_headers_of_any_literal(
    descr: Any, fortran: Any, shape: Any, data: bytes, tmp_path: Path
) -> None:
    text = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode() + b"\n"
    result_or_error(b"\x93NUMPY\x03\x00" + len(text).to_bytes(4, "little") + text + data, tmp_path)


MAGICS = [b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"PK\x05\x06", b"GGUF\x03\0\0\0", b"\x10\0\0\0\0\0\0\0{", b""]


@given(magic=st.sampled_from(MAGICS), rest=st.binary(max_size=200))
@examples(100)
def test_noise_after_a_magic_number(magic: bytes, rest: bytes, tmp_path: Path) -> None:
    result_or_error(magic + rest, tmp_path)
