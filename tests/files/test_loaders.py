"""The libraries that users load tables with open what is written, and the other way round."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.files.sources import load_array, open_source

NAMES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "complex64",
    "int64",
    "uint8",
    "bool",
]


def values(name: str) -> Any:
    return np.arange(12).reshape(3, 4).astype(np.dtype(getattr(ml_dtypes, name, name)))


def bits(tensor: Any) -> bytes:
    import torch

    return bytes(tensor.contiguous().view(torch.uint8).numpy().tobytes())


@pytest.mark.interop
@pytest.mark.parametrize("name", NAMES)
def test_torch_opens_safetensors(name: str, write: Any) -> None:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    array = values(name)
    path = write("x.safetensors", {"x": array, "odd": np.zeros(3, np.uint8)})
    tensor = library.load_file(path)["x"]
    assert tensor.dtype == getattr(torch, name)
    assert tuple(tensor.shape) == array.shape
    assert bits(tensor) == array.tobytes()
    with library.safe_open(path, "pt") as file:
        assert bits(file.get_slice("x")[1:]) == array[1:].tobytes()
        assert file.metadata()["format"] == "pt"


@pytest.mark.interop
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_torch_opens_npy(name: str, write: Any) -> None:
    torch = pytest.importorskip("torch")
    array = values(name)
    raw = np.load(write("x.npy", {"x": array}))
    if name == "bfloat16":
        tensor = torch.from_numpy(raw.view(np.int16)).view(torch.bfloat16)
        assert tensor.float().flatten().tolist() == list(range(12))
    else:
        assert torch.from_numpy(raw).flatten().tolist() == list(range(12))


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_flax_opens_safetensors(name: str, write: Any) -> None:
    pytest.importorskip("jax")
    library = pytest.importorskip("safetensors.flax")
    array = library.load_file(write("x.safetensors", {"x": values(name)}))["x"]
    assert str(array.dtype) == name
    assert np.array_equal(np.asarray(array).astype(np.float32), values(name).astype(np.float32))


@pytest.mark.interop
@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_torch_checkpoints_are_read(name: str, legacy: bool, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if legacy and name.startswith("float8"):
        pytest.skip("torch itself cannot load float8 from its old format")
    tensor = torch.arange(12).reshape(3, 4).to(getattr(torch, name))
    state = {"model": {"table": tensor, "turned": tensor.T}, "step": 3, "other": torch.zeros(2)}
    torch.save(state, tmp_path / "x.bin", _use_new_zipfile_serialization=not legacy)
    with open_source(str(tmp_path / "x.bin")) as source:
        assert source.format == "torch"
        assert set(source.tensors) == {"model.table", "model.turned", "other"}
        got = source.read("model.table")
        assert got.dtype.name == name
        assert got.tobytes() == bits(tensor)
        assert source.read("model.turned").tobytes() == bits(tensor.T)


@pytest.mark.interop
def test_a_bare_torch_tensor(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.arange(3), tmp_path / "x.pt")
    assert load_array(str(tmp_path / "x.pt")).tolist() == [0, 1, 2]


class Evil:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return (exec, ("raise SystemExit('ran')",))


@pytest.mark.interop
def test_pickles_with_code_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"x": Evil()}, tmp_path / "x.pt")
    (tmp_path / "y.pt").write_bytes(pickle.dumps(Evil(), protocol=2))
    for name in ("x.pt", "y.pt"):
        with pytest.raises(PeError, match="not a torch checkpoint of plain weights") as caught:
            load_array(str(tmp_path / name))
        assert "\n" not in str(caught.value)


def test_without_torch_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "x.pt").write_bytes(pickle.dumps({"x": 1}, protocol=2))
    with pytest.raises(PeError, match=r"pip install 'pe-cli.torch.'"):
        load_array(str(tmp_path / "x.pt"))
