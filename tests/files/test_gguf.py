"""GGUF as llama.cpp's own writer makes it, and as damage makes it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.files import ByteInput
from pe_cli.files import gguf as ours
from pe_cli.files.sources import load_array, open_source

TABLE = np.arange(64, dtype=np.float32).reshape(2, 32)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    axes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
    return text(name) + axes + struct.pack("<IQ", kind, offset)


def gguf_file(
    keys: list[bytes], tensors: list[bytes], data: bytes = b"", *, version: int = 3, alignment: int = 32
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys + tensors)
    return head.ljust(-(-len(head) // alignment) * alignment, b"\0") + data


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


SIMPLE = [
    key("general.architecture", 8, text("llama")),
    key("llama.rope.freq_base", 6, struct.pack("<f", 500000)),
    key("llama.context_length", 4, struct.pack("<I", 8192)),
    key("sections", 9, struct.pack("<IQ4i", 5, 4, 16, 24, 24, 0)),
    key("flag", 7, b"\1"),
    key("tokens", 9, struct.pack("<IQ", 8, 5000) + text("é") * 5000),
    key("tokenizer", 8, text("x" * (1 << 20) + "y")),
    key("scores", 9, struct.pack("<IQ", 6, 5000) + bytes(20000)),
]


def write(folder: Path, content: bytes) -> str:
    path = folder / "x.gguf"
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_and_tensors(version: int, tmp_path: Path) -> None:
    tensors = [tensor("b", (2, 32), 0, 64), tensor("a", (3,), 1, 0), tensor("q", (32,), 2, 320)]
    data = np.float16([1, 2, 3]).tobytes().ljust(64, b"\0") + TABLE.tobytes() + bytes(18)
    path = write(tmp_path, gguf_file(SIMPLE, tensors, data, version=version))
    with open_source(path) as source:
        assert source.format == "gguf"
        assert list(source.tensors) == ["a", "b", "q"]
        assert np.array_equal(source.read("b"), TABLE)
        assert source.read("a").tolist() == [1, 2, 3]
        assert source.metadata["general.architecture"] == "llama"
        assert source.metadata["llama.rope.freq_base"] == "500000.0"
        assert "tokens" not in source.metadata
        assert source.tensors["q"].nbytes == 18
        with pytest.raises(PeError, match="q holds Q4_0, whose values pe does not read"):
            source.read("q")
        header = ours.read_header(source.stream)
    assert header.metadata["sections"] == [16, 24, 24, 0]
    assert header.metadata["flag"] is True
    assert header.metadata["tokens"] is None
    assert header.metadata["tokenizer"] is None


def test_from_a_pipe(tmp_path: Path) -> None:
    import os

    reader, end = os.pipe()
    os.write(end, gguf_file([], [tensor("a", (3,), 0, 0)], np.float32([1, 2, 3]).tobytes()))
    os.close(end)
    assert load_array(f"/dev/fd/{reader}").tolist() == [1, 2, 3]
    os.close(reader)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gguf_file([], [], version=1), "version 1; versions 2 and 3"),
        (gguf_file([], [tensor("a", (3,), 0, 0)], bytes(8)), "truncated"),
        (gguf_file([], [tensor("a", (3,), 0, 1 << 62)], bytes(12)), "truncated"),
        (gguf_file([], [tensor("a", (3,), 77, 0)], bytes(12)), "unknown GGUF type 77"),
        (gguf_file([], [tensor("a", (33,), 2, 0)], bytes(36)), "cannot have the shape"),
        (gguf_file([], [tensor("a", (1 << 40, 1 << 40), 0, 0)], bytes(12)), "cannot have the shape"),
        (gguf_file([], [tensor("a", (1,) * 9, 0, 0)], bytes(12)), "9 axes"),
        (gguf_file([], [tensor("a", (1,), 0, 0)] * 2, bytes(12)), "two tensors 'a'"),
        (gguf_file([SIMPLE[0]] * 2, []), "'general.architecture' twice"),
        (gguf_file([key("a", 99, b"")], []), "unknown type 99"),
        (gguf_file([key("a", 9, struct.pack("<IQ", 9, 1 << 60))], []), "lists"),
        (gguf_file([key("a", 9, struct.pack("<IQIQIQ", 9, 1, 9, 1, 9, 1))], []), "unknown type"),
        (gguf_file([key("a", 9, struct.pack("<IQ", 6, 1 << 60))], []), "truncated"),
        (gguf_file([key("a", 8, struct.pack("<Q", 1 << 60))], []), "string of"),
        (gguf_file([key("general.alignment", 4, bytes(4))], []), "general.alignment of 0"),
        (gguf_file([key("general.alignment", 8, text("x"))], []), "general.alignment of 'x'"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60),
            "declares 1,152,921,504,606,846,976 tensors or keys",
        ),
        (
            gguf_file([key(f"k{n}", 9, struct.pack("<IQ", 0, 4096) + bytes(4096)) for n in range(257)], []),
            "more metadata than that of any model",
        ),
        (gguf_file([], [tensor("a" * 70_000, (1,), 0, 0)], bytes(12)), "name of 70000 bytes"),
    ],
)
def test_headers_that_lie(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(PeError, match=message):
        load_array(write(tmp_path, content))


def test_the_table_of_types_is_the_librarys() -> None:
    constants: Any = pytest.importorskip("gguf.constants")
    known = {kind.value: sizes for kind, sizes in constants.GGML_QUANT_SIZES.items()}
    assert {kind: row[1:] for kind, row in ours._TYPES.items() if kind in known} == {
        kind: tuple(known[kind]) for kind in ours._TYPES if kind in known
    }


@pytest.mark.parametrize("endian", ["LITTLE", "BIG"])
def test_the_librarys_files_are_read(endian: str, tmp_path: Path) -> None:
    gguf: Any = pytest.importorskip("gguf")
    path = tmp_path / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama", endianess=gguf.GGUFEndian[endian])
    writer.add_uint32("llama.context_length", 4096)
    writer.add_array("names", ["a", "b"])
    writer.add_tensor("t", TABLE.copy())
    writer.add_tensor("h", np.arange(4, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert np.array_equal(load_array(f"{path}:t"), TABLE)
    assert load_array(f"{path}:h").tolist() == [0, 1, 2, 3]
    with open(path, "rb") as file:
        header = ours.read_header(ByteInput(file.fileno(), "x"))
    assert header.metadata["llama.context_length"] == 4096
    assert header.metadata["names"] == ["a", "b"]
