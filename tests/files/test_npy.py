"""Headers of `.npy`: numpy's own variants are read, and whatever else is refused with a reason."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.files import TensorSpec
from pe_cli.files.npy import header
from pe_cli.files.sources import load_array


def npy(text: str, data: bytes = b"", version: int = 1) -> bytes:
    body = text.encode("latin1" if version < 3 else "utf-8") + b"\n"
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + len(body).to_bytes(2 if version == 1 else 4, "little")
        + body
        + data
    )


def load(content: bytes, folder: Path) -> Any:
    path = folder / "x.npy"
    path.write_bytes(content)
    return load_array(str(path))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version(version: tuple[int, int], tmp_path: Path) -> None:
    file = io.BytesIO()
    array = np.arange(12.0).reshape(3, 4)
    np.lib.format.write_array(file, array, version=version)
    assert np.array_equal(load(file.getvalue(), tmp_path), array)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (1048576, 128), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "bool", "complex64"])
def test_the_header_is_numpys_own(shape: tuple[int, ...], dtype: str) -> None:
    file = io.BytesIO()
    data = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, data)
    ours = header(TensorSpec("x", dtype, shape))
    # numpy leaves room for the first axis to grow; both begin the data at a multiple of 64.
    assert ours.split(b"}")[0] == file.getvalue().split(b"}")[0].replace(file.getvalue()[8:10], ours[8:10], 1)
    assert len(ours) % 64 == 0
    found = np.lib.format.read_array_header_1_0(io.BytesIO(ours[8:]))
    assert found == (shape, False, np.dtype(dtype))


def test_raw_types_that_numpy_writes(tmp_path: Path) -> None:
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        file = io.BytesIO()
        array = np.arange(6).astype(getattr(ml_dtypes, name))
        np.save(file, array)
        got = load(file.getvalue(), tmp_path)
        assert got.dtype == array.dtype
        assert np.array_equal(got, array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", pickle.dumps([print])),
            "pickle.*never loaded",
        ),
        (
            npy("{'descr': '<U3', 'fortran_order': False, 'shape': (1,), }", bytes(12)),
            "holds <U3, whose values pe does not read",
        ),
        (npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", bytes(4)), "holds .*'a'"),
        (
            npy("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,), }", bytes(8)),
            "holds datetime64.*pe does not read",
        ),
        (npy("{'descr': '|V1', 'fortran_order': False, 'shape': (1,), }", bytes(1)), "which float8"),
        (npy("{'descr': '<f16', 'fortran_order': False, 'shape': (1,), }", bytes(16)), "holds float128"),
        (npy("{'descr': '', 'fortran_order': False, 'shape': (1,), }", bytes(16)), "broken|pe does not read"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), r"shape is \(-1,\)"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (True,), }"), "shape"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': 4, }", bytes(16)), "shape is not valid: 4"),
        (npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {(1,) * 65}, }}", bytes(4)), "shape"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }"), "no machine"),
        (npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }", bytes(4)), "fortran_order"),
        (npy("{'descr': '<f4', 'shape': (1,), }", bytes(4)), "broken .npy header"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}", bytes(4)), "broken"),
        (npy("__import__('os').abort()"), "broken"),
        (npy("(" * 9000), "broken"),
        (npy("{" + "[" * 200 + "]" * 200 + "}"), "broken"),
        (npy("\xff\xfe"), "broken"),
        (npy(" " * 10_001), "10002 bytes; more than 10000"),
        (npy("{}", version=4), "version 4.0"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "4294967295 bytes"),
        (b"\x93NUMPY\x01\x00\xff\x00{", "truncated"),
        (b"\x93NUMPY\x01\x00\xff", "truncated"),
    ],
)
def test_headers_that_lie(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(PeError, match=message) as caught:
        load(content, tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_too_many_axes_to_write() -> None:
    with pytest.raises(PeError, match="dimensions"):
        header(TensorSpec("x", "float32", (1,) * 30_000))
