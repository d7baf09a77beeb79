"""Headers of safetensors: written as the library writes them, and believed only when all of it agrees."""

from __future__ import annotations

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy

from pe_cli.errors import PeError
from pe_cli.files.safetensors import TensorEntry, read_header, write_header
from pe_cli.files.sources import open_source


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensor(begin: int, end: int, shape: Any = (2,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


LIES: list[tuple[bytes, str]] = [
    (b"\x00" * 7, "truncated"),
    ((200_000_000).to_bytes(8, "little") + b"{", "header of 191 MiB; the format allows 100000000 bytes"),
    ((1 << 39).to_bytes(8, "little") + b"{", "header of 512 GiB"),
    ((500).to_bytes(8, "little") + b"{}", "truncated"),
    (file_of(b"{'a': 1}"), "not JSON"),
    (file_of(b'{"a": '), "not JSON"),
    (file_of(b'{"a\xff": 1}'), "not UTF-8"),
    (file_of({"a\ud800": tensor(0, 8)}, bytes(8)), r"half of a character in 'a\\ud800'"),
    (file_of({"__metadata__": {"k": "\udfff"}}), r"half of a character in '\\udfff'"),
    (file_of({"__metadata__": {"\udfff": "v"}}), r"half of a character in '\\udfff'"),
    (file_of(b'{"a":' + b"[" * 100_000), "nested too deeply"),
    (file_of(b'{"a":' + b'{"a":' * 100_000), "nested too deeply"),
    (file_of(b'{"a":{},' * 330_000 + b'"b":{}}'), "more than 262,144 tensors"),
    (file_of(b'{"a":[' + b"[]," * 600_000 + b"[]]}"), "more than 262,144 tensors"),
    (file_of(b'{"a": ' + b"9" * 5000 + b"}"), "thousands of digits"),
    (file_of({"a": 1}), "'a' needs exactly dtype, shape and data_offsets"),
    (file_of({"a": tensor(0, 8) | {"more": 1}}, bytes(8)), "needs exactly"),
    (file_of({"a": tensor(0, 8, dtype="F33")}, bytes(8)), "unknown type 'F33'"),
    (file_of({"a": tensor(0, 8, dtype=["F32"])}, bytes(8)), "unknown type"),
    (file_of({"a": tensor(0, 8, shape=[2.0])}, bytes(8)), "not whole numbers"),
    (file_of({"a": tensor(0, 8, shape=[True, 2])}, bytes(8)), "not whole numbers"),
    (file_of({"a": tensor(0, 8, shape=[-2])}, bytes(8)), "not whole numbers"),
    (file_of({"a": tensor(0, 8, shape=[1 << 64])}, bytes(8)), "not whole numbers"),
    (
        file_of({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]}}, bytes(8)),
        "not whole numbers",
    ),
    (file_of({"a": {"dtype": "F32", "shape": [2], "data_offsets": "08"}}, bytes(8)), "not whole numbers"),
    (file_of({"a": tensor(8, 0)}, bytes(8)), "takes 8 bytes, and its data_offsets give -8"),
    (file_of({"a": tensor(0, 12)}, bytes(12)), "takes 8 bytes, and its data_offsets give 12"),
    (file_of({"a": tensor(0, 8, shape=[1 << 40, 1 << 40])}, bytes(8)), "takes"),
    (file_of({"a": tensor(0, 8, shape=[1 << 62] * 64)}, bytes(8)), "takes more than any machine has"),
    (file_of({"a": tensor(0, 4, shape=[1] * 65)}, bytes(4)), "65 axes"),
    (file_of({"a": tensor(0, 4, shape=[1 << 62] * 500_000)}, bytes(4)), "500000 axes"),
    (file_of({"a": tensor(0, 8), "b": tensor(4, 12)}, bytes(12)), "'b' overlaps"),
    (file_of({"a": tensor(0, 8), "b": tensor(0, 8)}, bytes(8)), "overlaps"),
    (file_of({"a": tensor(0, 8), "b": tensor(12, 20)}, bytes(20)), "'b' leaves a hole"),
    (file_of({"a": tensor(4, 12)}, bytes(12)), "leaves a hole"),
    (file_of({"a": tensor(0, 8)}, bytes(7)), "truncated"),
    (file_of({"a": tensor(0, 8)}, bytes(9)), "1 bytes after its last tensor"),
    (file_of({"a": tensor(1 << 40, (1 << 40) + 8)}), "hole"),
    (
        file_of(
            b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
            b"1",
        ),
        "names 'a' twice",
    ),
    (file_of(b'{"__metadata__":{"k":"1","k":"2"}}'), "names 'k' twice"),
    (file_of({"__metadata__": {"k": 1}}), "strings to strings"),
    (file_of({"__metadata__": ["k"]}), "strings to strings"),
    (file_of({"a": tensor(0, 8) | {"dtype": None}}, bytes(8)), "unknown type None"),
]


# The library lets the last of two equal keys win, drops fields that it does not know, and counts no axes.
WHERE_THE_LIBRARY_TAKES_IT = ("twice", "needs exactly", "65 axes")


@pytest.mark.parametrize(("content", "message"), LIES, ids=range(len(LIES)))
def test_headers_that_lie(content: bytes, message: str) -> None:
    with pytest.raises(PeError, match=message) as caught:
        read_header(io.BytesIO(content), label="x", size=len(content))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    if not any(word in message for word in WHERE_THE_LIBRARY_TAKES_IT):
        with pytest.raises(safetensors.SafetensorError):
            safetensors.deserialize(content)


@pytest.mark.parametrize("text", [b"[]", b"1", b'"{"'])
def test_json_that_is_no_object(text: bytes) -> None:
    with pytest.raises(PeError, match="not a JSON object"):
        read_header(io.BytesIO(file_of(text)))


def test_a_header_that_declares_much_is_not_allocated(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes((99_000_000).to_bytes(8, "little") + b'{"a":1}')
    tracemalloc.start()
    with pytest.raises(PeError, match="truncated"), open_source(str(path)):
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 << 20


@pytest.fixture
def library_file() -> bytes:
    tensors = {
        "z.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "é漢": np.arange(3, dtype=np.int8),
        "empty": np.zeros((0, 4), np.float16),
        "scalar": np.array(5),
        "position_ids": np.arange(10).reshape(1, 10),
    }
    return safetensors.numpy.save(tensors, metadata={"format": "pt", "note": '"\\ \n é'})


def test_a_header_read_and_written_again_is_the_same_bytes(library_file: bytes) -> None:
    header = read_header(io.BytesIO(library_file), size=len(library_file))
    again = write_header([header.tensors[name] for name in header.names], header.metadata)
    assert again == library_file[: header.data_start]
    assert header.data_start % 8 == 0


@pytest.mark.parametrize("metadata", [None, {}, {"b": "2", "a": "1"}])
def test_metadata_keeps_its_order_and_its_absence(metadata: dict[str, str] | None) -> None:
    entries = [TensorEntry("x", "F32", (2,), 0, 8)]
    content = write_header(entries, metadata) + bytes(8)
    found = read_header(io.BytesIO(content), size=len(content))
    assert found.metadata == metadata
    assert list(found.metadata or {}) == list(metadata or {})
    assert list(found.tensors.values()) == entries
    assert safetensors.numpy.load(content)["x"].tolist() == [0, 0]


def test_tensors_come_in_the_order_of_their_bytes() -> None:
    content = file_of({"b": tensor(8, 16), "e": tensor(8, 8, shape=[0]), "a": tensor(0, 8)}, bytes(16))
    header = read_header(io.BytesIO(content), size=len(content))
    assert list(header.tensors) == ["a", "e", "b"]
    assert header.names == ("b", "e", "a")
    assert header.data_bytes == 16


def test_types_that_pe_does_not_read_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    codes = {"a": tensor(0, 3, shape=[6], dtype="F4"), "b": tensor(3, 7, shape=[4], dtype="F8_E8M0")}
    path.write_bytes(file_of(codes, bytes(7)))
    with open_source(str(path)) as source:
        assert [(spec.dtype, spec.nbytes) for spec in source.tensors.values()] == [("F4", 3), ("F8_E8M0", 4)]
        with pytest.raises(PeError, match="a holds F4, whose values pe does not read"):
            source.read("a")


def test_a_name_that_json_must_escape() -> None:
    entries = [TensorEntry('a"\\\n\u2028\x01', "U8", (1,), 0, 1)]
    content = write_header(entries, {'k"': "\t"}) + b"x"
    assert list(safetensors.numpy.load(content)) == ['a"\\\n\u2028\x01']
