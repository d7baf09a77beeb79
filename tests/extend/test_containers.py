"""HDF5 files with a changed table: how it was stored, and under which names, stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from pe_cli.cli import run
from pe_cli.files.sources import open_source

TABLE = np.random.default_rng(0).normal(size=(40, 16))
NAMES = ("a", "group/position_embeddings", "m/position_embeddings", "m2/copy")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def known_by_several_names() -> None:
    with h5py.File("x.h5", "w") as file:
        file["m/position_embeddings"] = TABLE.astype("f4")
        file["m2/copy"] = file["m/position_embeddings"]
        file["a"] = file["m/position_embeddings"]
        file["group"] = file["m"]
        file["m/loop"] = file["/"]


@pytest.mark.parametrize("named", [*NAMES, "*position_embeddings"])
@pytest.mark.parametrize("suffix", ["h5", "safetensors"])
def test_a_table_changes_under_all_its_names(named: str, suffix: str) -> None:
    known_by_several_names()
    assert run(["extend", "x.h5", "--tensor", named, "--len", "100", "-q", "-o", f"o.{suffix}"]) == 0
    with open_source(f"o.{suffix}") as source:
        tables = [source.read(name) for name in NAMES]
        assert len(source.tensors) == len(NAMES)
    assert all(table.shape == (100, 16) and np.array_equal(table, tables[0]) for table in tables)
    if suffix == "h5":
        with h5py.File("o.h5") as file:
            assert all(file[name] == file["a"] for name in NAMES)


@pytest.mark.parametrize(
    "how",
    [
        {"chunks": (10, 16), "compression": "gzip", "shuffle": True, "maxshape": (None, 16)},
        {"chunks": (40, 4), "compression": "lzf", "fletcher32": True, "maxshape": (50, 16)},
        {"chunks": (40, 3)},
        {},
    ],
)
@pytest.mark.parametrize("rows", [20, 100])
def test_a_table_is_stored_as_it_was(how: dict[str, Any], rows: int) -> None:
    with h5py.File("x.h5", "w") as file:
        old = file.create_dataset("wpe", data=TABLE, dtype=">f4", fillvalue=7, **how)
        old.attrs["note"] = "mine"
    assert run(["extend", "x.h5", "--len", str(rows), "-q", "-o", "o.h5"]) == 0
    with h5py.File("o.h5") as file:
        new = file["wpe"]
        assert (new.shape, new.dtype, new.fillvalue) == ((rows, 16), np.dtype(">f4"), 7)
        assert dict(new.attrs) == {"note": "mine"}
        assert (new.compression, new.shuffle, new.fletcher32) == (
            how.get("compression"),
            how.get("shuffle", False),
            how.get("fletcher32", False),
        )
        if "chunks" in how:
            assert new.chunks == (min(how["chunks"][0], new.maxshape[0] or 40), how["chunks"][1])
        assert new.maxshape[0] in (None, rows, 50)
        assert np.isfinite(new[:]).all()
