"""What a sink writes is what was given, in every format, in any block size, the same each time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files import TensorSpec
from pe_cli.files import sinks as writer
from pe_cli.files.sinks import open_sink
from pe_cli.files.sources import open_source

FORMATS = ("npy", "npz", "h5", "safetensors")


def read_back(path: Path, name: str) -> NDArray[Any]:
    with open_source(str(path), tensor=None if path.suffix == ".npy" else name) as source:
        return source.read()


def same(got: NDArray[Any], want: NDArray[Any]) -> bool:
    return got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()


@pytest.mark.parametrize("format", FORMATS)
def test_every_type_comes_back_bit_for_bit(format: str, write: Any, array: NDArray[Any]) -> None:
    if format == "safetensors" and array.dtype == np.complex128:
        with pytest.raises(PeError, match="no complex128"):
            write("x.safetensors", {"x": array})
        return
    assert same(read_back(write(f"x.{format}", {"x": array}), "x"), array)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", [(), (0,), (0, 4), (3, 0), (1,), (2, 3, 4)])
def test_every_shape_comes_back(format: str, shape: tuple[int, ...], write: Any) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    assert same(read_back(write(f"x.{format}", {"x": array}), "x"), array)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "view",
    [np.s_[::2], np.s_[::-1], np.s_[:, ::3]],
    ids=["every second row", "backwards", "every third column"],
)
def test_rows_need_not_be_contiguous(format: str, view: Any, write: Any) -> None:
    array = np.arange(120, dtype=np.float32).reshape(10, 12)[view]
    assert same(read_back(write(f"x.{format}", {"x": array}, rows=4), "x"), np.ascontiguousarray(array))
    turned = np.arange(120, dtype=np.float32).reshape(10, 12).T
    assert same(read_back(write(f"y.{format}", {"x": turned}), "x"), np.ascontiguousarray(turned))
    broad = np.broadcast_to(np.float32(3), (4, 5))
    assert same(read_back(write(f"z.{format}", {"x": broad}), "x"), np.full((4, 5), 3, np.float32))


@pytest.mark.parametrize("format", FORMATS)
def test_the_caller_may_reuse_its_buffer(format: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{format}"
    rows, width = 4096, 64
    buffer = np.empty((rows, width), np.float32)
    with open_sink(path, [TensorSpec("x", "float32", (4 * rows, width))], metadata={}) as sink:
        for block in range(4):
            buffer[:] = block
            sink.write("x", block * rows, buffer)
            buffer[:] = -1
    assert np.array_equal(read_back(path, "x")[:, 0], np.repeat(np.arange(4), rows))


@pytest.mark.parametrize("format", ["h5", "safetensors"])
def test_seekable_formats_take_rows_in_any_order(format: str, tmp_path: Path) -> None:
    a, b = np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(6, dtype=np.int64)
    specs = [TensorSpec("a", "float32", (6, 2)), TensorSpec("b", "int64", (6,))]
    with open_sink(tmp_path / f"x.{format}", specs, metadata={}) as sink:
        assert not sink.sequential
        for start in (4, 0, 2):
            sink.write("b", start, b[start : start + 2])
            sink.write("a", start, a[start : start + 2])
    assert same(read_back(tmp_path / f"x.{format}", "a"), a)
    assert same(read_back(tmp_path / f"x.{format}", "b"), b)


@pytest.mark.parametrize(
    ("rows", "start", "message"),
    [
        (np.zeros((2, 3), np.float64), 0, "announced as float32"),
        (np.zeros((2, 4), np.float32), 0, "do not fit"),
        (np.zeros((2, 1, 3), np.float32), 0, "do not fit"),
        (np.zeros((2, 3), np.float32), 3, "lie outside"),
        (np.zeros((2, 3), np.float32), -1, "lie outside"),
        (np.zeros((2, 3), ">f4"), 0, "announced as float32"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    rows: NDArray[Any], start: int, message: str, tmp_path: Path
) -> None:
    spec = TensorSpec("x", "float32", (4, 3))
    with (
        pytest.raises((TypeError, ValueError), match=message),
        open_sink(tmp_path / "x.safetensors", [spec], metadata={}) as sink,
    ):
        sink.write("x", start, rows)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("format", FORMATS)
def test_rows_of_leading_axes_together(format: str, tmp_path: Path) -> None:
    bias = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    with open_sink(tmp_path / f"x.{format}", [TensorSpec("x", "float32", bias.shape)], metadata={}) as sink:
        for start in (0, 3, 6):
            sink.write("x", start, bias.reshape(8, 3)[start : start + 3])
    assert same(read_back(tmp_path / f"x.{format}", "x"), bias)


@pytest.mark.parametrize("format", FORMATS)
def test_an_incomplete_sink_is_an_error_and_leaves_nothing(format: str, tmp_path: Path) -> None:
    spec = TensorSpec("x", "float32", (4, 3))
    with (
        pytest.raises(RuntimeError, match="not written whole"),
        open_sink(tmp_path / f"x.{format}", [spec], metadata={}) as sink,
    ):
        sink.write("x", 0, np.zeros((3, 3), np.float32))
    assert not os.listdir(tmp_path)


def test_rows_are_written_once(tmp_path: Path) -> None:
    spec = TensorSpec("x", "float32", (4, 3))
    with open_sink(tmp_path / "x.npy", [spec], metadata={}) as sink:
        sink.write("x", 0, np.zeros((3, 3), np.float32))
        with pytest.raises(ValueError, match="overlap"):
            sink.write("x", 2, np.zeros((2, 3), np.float32))
        sink.write("x", 3, np.zeros((1, 3), np.float32))


def test_npz_takes_tensors_in_order(tmp_path: Path) -> None:
    specs = [TensorSpec("a", "float32", (2,)), TensorSpec("b", "float32", (2,))]
    with open_sink(tmp_path / "x.npz", specs, metadata={}) as sink:
        assert sink.sequential
        with pytest.raises(ValueError, match="'a' element 0 is next"):
            sink.write("b", 0, np.zeros(2, np.float32))
        sink.write("a", 0, np.zeros(2, np.float32))
        sink.write("b", 0, np.zeros(2, np.float32))


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_tensors_give_the_same_bytes(format: str, write: Any) -> None:
    tensors = {"x": np.arange(24, dtype=np.float32).reshape(8, 3), "y": np.arange(3)}
    if format == "npy":
        tensors.pop("y")
    first = write(f"one.{format}", tensors, rows=1, metadata={"pe": "1", "a": "2"}).read_bytes()
    second = write(f"two.{format}", tensors, rows=5, metadata={"a": "2", "pe": "1"}).read_bytes()
    assert first == second


def test_metadata_is_kept(write: Any) -> None:
    text = '{"schema":"é 漢"}' + "x" * 100_000  # longer than an HDF5 attribute in the object's header may be
    tensors = {"x": np.zeros(2, np.float32)}
    path = write("x.safetensors", tensors, metadata={"pe": text})
    with safetensors.safe_open(path, "numpy") as file:
        assert file.metadata() == {"format": "pt", "pe": text}
    path = write("x.h5", tensors, metadata={"pe": text})
    with h5py.File(path) as file:
        assert dict(file.attrs) == {"pe": text}
    with open_source(str(path)) as source:
        assert source.metadata == {"pe": text}


def test_wide_types_lie_first_so_that_all_are_aligned(write: Any) -> None:
    tensors = {"c": np.zeros(3, np.uint8), "b": np.zeros(3, np.float32), "a": np.zeros(3, np.float64)}
    path = write("x.safetensors", tensors)
    with open_source(str(path)) as source:
        assert list(source.tensors) == ["a", "b", "c"]
    assert safetensors.numpy.load_file(path).keys() == tensors.keys()


@pytest.mark.parametrize("format", ["npz", "h5", "safetensors"])
def test_names_with_slashes(format: str, write: Any) -> None:
    tensors = {"a/b/x": np.zeros(2, np.float32), "a/y": np.ones(2, np.float32)}
    path = write(f"x.{format}", tensors)
    assert same(read_back(path, "a/y"), tensors["a/y"])


@pytest.mark.parametrize(
    ("path", "names", "message"),
    [
        ("x.npy", ("a", "b"), "one array.*a, b"),
        ("x.txt", ("a",), r"extension.*\.npy"),
        ("x", ("a",), "extension"),
        ("x.npz", ("a", "a"), "two tensors are called 'a'"),
        ("x.safetensors", ("__metadata__",), "__metadata__"),
        ("x.h5", ("/",), "cannot be called"),
        ("x.h5", ("a", "a/b"), "cannot hold"),
    ],
)
def test_what_a_format_cannot_hold(path: str, names: tuple[str, ...], message: str, tmp_path: Path) -> None:
    specs = [TensorSpec(name, "float32", (2,)) for name in names]
    with pytest.raises(PeError, match=message), open_sink(tmp_path / path, specs, metadata={}):
        pass
    assert not os.listdir(tmp_path)


def test_unknown_format_names_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(PeError, match="did you mean 'safetensors'"):
        open_sink(tmp_path / "x", [], metadata={}, format="safetensor").__enter__()


def test_numpy_opens_bfloat16_and_float8(write: Any) -> None:
    values = np.arange(8).astype(ml_dtypes.bfloat16)
    assert np.array_equal(np.load(write("x.npy", {"x": values})).view(ml_dtypes.bfloat16), values)
    for name in ("float8_e4m3fn", "float8_e5m2"):
        small = np.arange(8).astype(getattr(ml_dtypes, name))
        assert np.array_equal(np.load(write(f"{name}.npy", {"x": small})).view(small.dtype), small)
        with np.load(write(f"{name}.npz", {"x": small})) as archive:
            assert np.array_equal(archive["x"].view(small.dtype), small)


def test_h5py_reads_bfloat16_and_e5m2_as_numbers(write: Any) -> None:
    every = np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16)
    with h5py.File(write("x.h5", {"x": every}, rows=65536)) as file:
        assert file["x"].attrs["dtype"] == "bfloat16"
        np.testing.assert_array_equal(file["x"][:], every.astype(np.float32))
    small = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2)
    with h5py.File(write("y.h5", {"x": small}, rows=256)) as file:
        np.testing.assert_array_equal(file["x"][:].astype(np.float32), small.astype(np.float32))
    other = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    with h5py.File(write("z.h5", {"x": other}, rows=256)) as file:
        assert file["x"].dtype == np.uint8
        assert file["x"].attrs["dtype"] == "float8_e4m3fn"


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64", "float16", "uint16"])
def test_safetensors_for_numpy_reads_what_it_knows(dtype: str, write: Any) -> None:
    """It has no float8; torch's side of the library reads that (see test_loaders)."""
    if dtype == "complex64":
        pytest.importorskip("safetensors", minversion="0.7")
    target = np.dtype(getattr(ml_dtypes, dtype, dtype))
    array = np.arange(12).reshape(3, 4).astype(target)
    got = safetensors.numpy.load_file(write("x.safetensors", {"x": array}))["x"]
    assert same(got, array)


WRITE_TO_STDOUT = """
import sys, numpy as np
from pe_cli.files import TensorSpec
from pe_cli.files.sinks import open_sink
rows = int(sys.argv[2])
specs = [TensorSpec("x", "float32", (rows, 64)), TensorSpec("y", "int64", (3,))]
specs = specs[: 1 if sys.argv[1] == "npy" else 2]
try:
    with open_sink("-", specs, metadata={"pe": "{}"}, format=sys.argv[1]) as sink:
        for spec in sink.specs:
            if spec.name == "y":
                sink.write("y", 0, np.arange(3))
                continue
            for start in range(0, rows, 1000):
                block = np.full((min(1000, rows - start), 64), start, np.float32)
                sink.write("x", start, block)
                block[:] = -1
except BrokenPipeError:
    sys.exit(99)
"""


def run_writer(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITE_TO_STDOUT, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, **options)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_gets_the_bytes_of_a_file(format: str, unbuffered: str, write: Any) -> None:
    tensors = {"x": np.repeat(np.float32([0, 1000, 2000]), 64000).reshape(-1, 64)[:2500], "y": np.arange(3)}
    if format == "npy":
        tensors.pop("y")
    process = run_writer(format, "2500", env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert output == write(f"x.{format}", tensors, rows=1000).read_bytes()


@pytest.mark.parametrize("format", ["npy", "npz", "safetensors"])
def test_a_long_pipe_goes_by_way_of_the_thread(format: str, tmp_path: Path) -> None:
    rows = writer.THREAD_FROM // 256 + 500
    with run_writer(format, str(rows)) as process, open(tmp_path / "x", "wb") as file:
        assert process.stdout is not None
        while chunk := process.stdout.read(1 << 20):
            file.write(chunk)
    assert process.returncode == 0
    with open_source(str(tmp_path / "x"), tensor=None if format == "npy" else "x") as source:
        first = 0
        for block in source.blocks():
            assert np.array_equal(block[:, 0], (first + np.arange(len(block))) // 1000 * 1000)
            first += len(block)
        assert first == rows


@pytest.mark.parametrize("rows", ["100000", str(writer.THREAD_FROM // 128)])
@pytest.mark.parametrize("format", FORMATS)
def test_a_closed_pipe_is_a_broken_pipe(format: str, rows: str) -> None:
    with run_writer(format, rows, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(100)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 99


def test_an_error_in_the_thread_reaches_the_caller() -> None:
    from pe_cli.files.atomic import OpenOutput

    reader, end = os.pipe()
    os.close(reader)
    out = writer.Writer(OpenOutput(end, "a pipe", None), writer.THREAD_FROM)
    block = memoryview(bytearray(writer.BLOCK))

    def fill() -> None:
        for start in range(0, writer.THREAD_FROM, writer.BLOCK):
            out.write(start, block)

    with pytest.raises(BrokenPipeError):
        fill()
    out.abandon()
    os.close(end)
    for thread in threading.enumerate():
        if thread.name == "pe-writer":
            thread.join(timeout=10)
            assert not thread.is_alive()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "bool"])
def test_a_csv_reads_back_what_was_stored(dtype: str, tmp_path: Path) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    table = (np.random.default_rng(1).normal(size=(9000, 3)) * 3).astype(kind)
    with open_sink(tmp_path / "x.csv", [TensorSpec("x", dtype, table.shape)], metadata={}) as sink:
        sink.write("x", 0, table[:4000])
        sink.write("x", 4000, table[4000:])
    read = np.loadtxt(tmp_path / "x.csv", delimiter=",", dtype=np.float64)
    np.testing.assert_array_equal(read.astype(kind), table)


def test_a_csv_holds_one_table_of_two_axes(tmp_path: Path) -> None:
    for specs in (
        [TensorSpec("cos", "float32", (2, 2)), TensorSpec("sin", "float32", (2, 2))],
        [TensorSpec("x", "float32", (2, 2, 2))],
        [TensorSpec("x", "complex64", (2, 2))],
    ):
        with pytest.raises(PeError, match="csv holds"), open_sink(tmp_path / "x.csv", specs, metadata={}):
            pass
    assert list(tmp_path.iterdir()) == []
