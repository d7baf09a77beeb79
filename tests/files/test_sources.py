"""Where arrays come from: names, pipes, formats by content, and errors that help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files import sources
from pe_cli.files.sources import load_array, open_source, split_spec

TABLE = np.arange(24, dtype=np.float32).reshape(8, 3)
OTHER = np.arange(5)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same table in every format, written by the libraries that people use."""
    np.save(tmp_path / "x.npy", TABLE)
    np.savez(tmp_path / "x.npz", table=TABLE, other=OTHER)
    np.savez_compressed(tmp_path / "packed.npz", table=TABLE, other=OTHER)
    safetensors.numpy.save_file({"table": TABLE, "other": OTHER}, tmp_path / "x.safetensors")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["table"] = TABLE
        file["deep/other"] = OTHER
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def piped(content: bytes) -> Iterator[str]:
    """A path like that of `<(...)`: it cannot seek, and gives few bytes at a time."""
    reader, end = os.pipe()

    def feed() -> None:
        with open(end, "wb", buffering=0) as file:
            for start in range(0, len(content), 1000):
                try:
                    file.write(content[start : start + 1000])
                except BrokenPipeError:
                    return

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield f"/dev/fd/{reader}"
    finally:
        os.close(reader)
        thread.join(timeout=10)


@pytest.mark.parametrize(
    "spec", ["x.npy", "x.npz:table", "packed.npz:table", "x.h5:table", "x.safetensors:table"]
)
@pytest.mark.usefixtures("files")
def test_a_table_from_a_file_and_from_a_pipe(spec: str) -> None:
    assert np.array_equal(load_array(spec), TABLE)
    name, _, tensor = spec.partition(":")
    with piped(Path(name).read_bytes()) as path:
        got = load_array(f"{path}:{tensor}" if tensor else path)
    assert got.dtype == TABLE.dtype
    assert np.array_equal(got, TABLE)


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.h5", "x.safetensors"])
@pytest.mark.parametrize("how", ["pipe", "file", "file that was read from already"])
def test_standard_input(name: str, how: str, files: Path) -> None:
    code = "import sys; from pe_cli.files.sources import load_array; print(load_array(sys.argv[1]).sum())"
    spec = "-" if name == "x.npy" else "-:table"
    content = (files / name).read_bytes()
    with tempfile.TemporaryFile() as file:
        if how == "file that was read from already":
            file.write(b"line\n")
        file.write(content)
        file.flush()
        file.seek(5 if how == "file that was read from already" else 0)
        source: dict[str, Any] = {"input": content} if how == "pipe" else {"stdin": file}
        done = subprocess.run([sys.executable, "-c", code, spec], capture_output=True, check=True, **source)
    assert float(done.stdout) == TABLE.sum()


LOAD_STDIN = """
from pe_cli.errors import PeError
from pe_cli.files.sources import load_array
try:
    load_array("-")
except PeError as error:
    print(error)
"""


def test_standard_input_that_is_closed() -> None:
    command = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", LOAD_STDIN]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "standard input is closed; pipe a file into it, or name one\n"


def test_standard_input_that_is_a_terminal() -> None:
    ours, theirs = os.openpty()
    command = [sys.executable, "-c", LOAD_STDIN]
    done = subprocess.run(command, stdin=theirs, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    os.close(ours)
    os.close(theirs)
    assert done.stdout == "standard input is a terminal; pipe a file into it, or name one\n"


@pytest.mark.usefixtures("files")
def test_the_name_does_not_matter() -> None:
    os.rename("x.h5", "table.npy")
    assert np.array_equal(load_array("table.npy:table"), TABLE)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("max_bytes", [1, 12, 13, 30, 1 << 20])
@pytest.mark.parametrize("spec", ["x.npy", "packed.npz:table", "x.h5:table", "x.safetensors:table"])
def test_blocks_are_consecutive_rows(spec: str, max_bytes: int) -> None:
    with open_source(spec) as source:
        blocks = list(source.blocks(max_bytes=max_bytes))
        flat = list(source.flat(items=7))
    assert all(block.shape[1:] == (3,) for block in blocks)
    assert all(block.nbytes <= max(12, max_bytes) for block in blocks)
    assert np.array_equal(np.concatenate(blocks), TABLE)
    assert [piece.size for piece in flat] == [7, 7, 7, 3]
    assert np.array_equal(np.concatenate(flat), TABLE.reshape(-1))


@pytest.mark.parametrize("shape", [[0, 1 << 62], [1 << 61, 0, 8], [1] * 33])
def test_shapes_that_no_array_has(shape: list[int], tmp_path: Path) -> None:
    """Found by fuzzing: without elements they take no memory, and numpy refuses them all the same."""
    nbytes = int(all(shape))
    header = json.dumps({"x": {"dtype": "U8", "shape": shape, "data_offsets": [0, nbytes]}}).encode()
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + bytes(nbytes))
    with pytest.raises(PeError, match=r"no array can have the shape (\(.{,59}\)|\(.{59}…) of x$"):
        load_array(str(tmp_path / "x"))


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("spec", ["x.npy", "x.h5:table", "x.safetensors:table"])
def test_where_a_table_lies_in_its_file(spec: str) -> None:
    with open_source(spec) as source:
        found = source.span(source.chosen.name)
        assert found is not None
        descriptor, offset, stored = found
        assert np.array_equal(
            np.frombuffer(os.pread(descriptor, TABLE.nbytes, offset), stored), TABLE.reshape(-1)
        )
    name, _, tensor = spec.partition(":")
    with piped(Path(name).read_bytes()) as path, open_source(path, tensor=tensor or None) as source:
        assert source.format == "hdf5" or source.span(source.chosen.name) is None


@pytest.mark.usefixtures("files")
def test_what_must_be_unpacked_lies_nowhere() -> None:
    np.save("fortran.npy", np.asfortranarray(TABLE))
    with h5py.File("chunked.h5", "w") as file:
        file.create_dataset("x", data=TABLE, chunks=(2, 3))
    for spec in ("packed.npz:table", "x.npz:table", "fortran.npy", "chunked.h5"):
        with open_source(spec) as source:
            assert source.span(source.chosen.name) is None


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (3, 0)])
def test_blocks_of_odd_shapes(shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.ones(shape, np.float32)
    np.save(tmp_path / "x.npy", array)
    with open_source(str(tmp_path / "x.npy")) as source:
        assert source.chosen.shape == shape
        assert source.read().shape == shape
        assert [block.shape for block in source.blocks()] == ([shape] if array.size else [])


@pytest.mark.parametrize(
    "array",
    [
        TABLE.astype(">f4"),
        TABLE.astype(">i8"),
        np.asfortranarray(TABLE),
        np.asfortranarray(TABLE.reshape(2, 4, 3)),
        TABLE > 5,
        TABLE.astype(np.complex128),
    ],
    ids=["big-endian float", "big-endian integer", "Fortran", "Fortran 3-D", "bool", "complex128"],
)
@pytest.mark.parametrize("write", ["npy", "npz", "h5"])
def test_other_orders_come_in_native_c_order(array: NDArray[Any], write: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    with open(path, "wb") as file:
        if write == "npy":
            np.save(file, array)
        elif write == "npz":
            np.savez(file, x=array)
    if write == "h5":
        with h5py.File(path, "w") as h5:
            h5["x"] = array
    got = load_array(str(path))
    assert got.dtype == array.dtype.newbyteorder("=")
    assert np.array_equal(got, array)
    with open_source(str(path)) as source:
        assert np.array_equal(np.concatenate(list(source.blocks(max_bytes=24))), array)


@pytest.mark.usefixtures("files")
def test_a_colon_in_names() -> None:
    os.rename("x.npy", "a:b.npy")
    with h5py.File("keras.h5", "w") as file:
        file["layer/embeddings:0"] = TABLE
    assert np.array_equal(load_array("a:b.npy"), TABLE)
    assert np.array_equal(load_array("keras.h5:layer/embeddings:0"), TABLE)
    assert split_spec("keras.h5:layer/embeddings:0") == ("keras.h5", "layer/embeddings:0")
    assert split_spec("no/file:x") == ("no/file:x", None)
    assert split_spec("-:x") == ("-", "x")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("spec", "tensor", "message"),
    [
        ("y.npy", None, r"no file 'y\.npy'; did you mean 'x\.np[yz]'"),
        ("nothing-like-it", None, "no file 'nothing-like-it'$"),
        (".", None, "folder"),
        ("x.safetensors", None, r"2 tensors; name one as x\.safetensors:.*table \[8, 3\]"),
        ("x.safetensors:tabel", None, "no tensor 'tabel'; did you mean 'table'"),
        ("x.npz:qqqqqqq", None, r"it holds table \[8, 3\], other \[5\]"),
        ("x.h5:other", None, "did you mean 'deep/other'"),
        ("x.npy:table", None, r"one array without a name"),
        ("x.h5:table", "deep/other", "give one of them"),
        ("\0", None, "cannot read"),
    ],
)
def test_errors_that_help(spec: str, tensor: str | None, message: str) -> None:
    with pytest.raises(PeError, match=message) as caught:
        load_array(spec, tensor=tensor)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("files")
def test_a_tensor_can_be_named_apart() -> None:
    assert np.array_equal(load_array("x.h5", tensor="deep/other"), OTHER)
    assert np.array_equal(load_array("x.h5:table", tensor="table"), TABLE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"hello, world, this is text\n", "none of npy, npz, HDF5"),
        (b"\x93NUM", "none of"),
        (b"PK\x03\x04 and so on", "cannot be read as .npz"),
        (b"\x89HDF\r\n\x1a\n and so on", "cannot be read as HDF5"),
        (b"GGUF\x03\0\0\0", "truncated"),
    ],
)
def test_what_is_no_file_of_tensors(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(PeError, match=message):
        load_array(str(path))


def read_all(path: str) -> None:
    with open_source(path) as source:
        for tensor in source.tensors:
            source.read(tensor)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.npy", "x.npz", "packed.npz", "x.h5", "x.safetensors"])
def test_cut_off_anywhere_is_one_error(name: str, files: Path) -> None:
    content = (files / name).read_bytes()
    for length in range(1, len(content), 97):
        Path("cut").write_bytes(content[:length])
        with pytest.raises(PeError) as caught:
            read_all("cut")
        assert "\n" not in str(caught.value)


def test_a_pipe_goes_forward_only(files: Path) -> None:
    content = (files / "x.safetensors").read_bytes()
    with piped(content) as path, open_source(path) as source:
        first, second = source.tensors
        source.read(second)
        with pytest.raises(PeError, match="can be read once, from front to back"):
            source.read(first)


def test_a_pipe_that_ends_early(files: Path) -> None:
    with (
        piped((files / "x.npy").read_bytes()[:-20]) as path,
        pytest.raises(PeError, match="truncated: at least 20 bytes are missing"),
    ):
        load_array(path)


def test_a_pipe_that_needs_room_on_disk(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        return open("/dev/full", "r+b", buffering=0)

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with (
        piped((files / "x.npz").read_bytes()) as path,
        pytest.raises(PeError, match=r"TMPDIR names another place.*No space left on device"),
    ):
        load_array(path + ":table")


def test_more_than_the_machine_has_is_refused_first(tmp_path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1048576, 1048576, 8), }"
    content = b"\x93NUMPY\x01\0" + (len(header) + 1).to_bytes(2, "little") + header + b"\n"
    with piped(content) as path, pytest.raises(PeError, match=r"32 TiB of memory, this machine has"):
        load_array(path)
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(PeError, match="truncated"):
        load_array(str(tmp_path / "x.npy"))


@pytest.mark.parametrize("spec", ["x.npy", "x.npz:table", "x.h5:table", "x.safetensors:table"])
def test_a_file_cut_off_while_it_is_read(spec: str, files: Path) -> None:
    with open_source(spec) as source:
        os.truncate(files / spec.partition(":")[0], 40)
        with pytest.raises(PeError, match=r"truncated|cannot be read"):
            source.read()


@pytest.mark.usefixtures("files")
def test_a_file_removed_while_it_is_read_is_still_there() -> None:
    with open_source("x.safetensors:table") as source:
        os.unlink("x.safetensors")
        assert np.array_equal(source.read(), TABLE)


def test_a_directory_entry_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(PeError, match="cannot read"):
        load_array(str(tmp_path / "loop"))


def test_listing_is_cut() -> None:
    from pe_cli.files import TensorSpec

    tensors = {str(n): TensorSpec(str(n), "float32", (n,)) for n in range(20)}
    assert sources.listing(tensors).endswith("and 12 more")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"model_type": "llama"}', "it is JSON"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "git lfs pull"),
        ("\n<!DOCTYPE html><html></html>", "a web page"),
        ("1.0 2.0 3.0", "begins with b'1.0 2.0 '"),
    ],
)
def test_what_is_given_instead_of_tensors(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text(text)
    with pytest.raises(PeError, match=words), open_source(str(path)):
        pass


def test_a_folder_of_tensors_is_answered_with_a_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "readme.md").touch()
    with pytest.raises(PeError, match=r"is a folder, not a file$"):
        load_array(str(tmp_path))
    np.save(tmp_path / "table.npy", TABLE)
    with pytest.raises(PeError, match=r"name a file in it, such as .*table\.npy$"):
        load_array(str(tmp_path))
