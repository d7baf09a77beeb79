"""HDF5: every way to store numbers is read, and nothing outside the file is touched."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest

from pe_cli import process
from pe_cli.errors import PeError
from pe_cli.files import hdf5
from pe_cli.files.child import Verdict, from_child, tried
from pe_cli.files.sources import load_array, open_source

TABLE = np.arange(600, dtype=np.float32).reshape(30, 20)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunks": (4, 20)},
        {"chunks": (7, 3), "compression": "gzip", "shuffle": True, "fletcher32": True},
        {"chunks": (1, 1)},
        {"chunks": (30, 20), "compression": "lzf"},
        {"maxshape": (None, 20), "chunks": True},
    ],
)
@pytest.mark.parametrize("max_bytes", [80, 1000, 1 << 20])
def test_contiguous_chunked_and_compressed(options: dict[str, Any], max_bytes: int, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=TABLE, **options)
    with open_source(str(tmp_path / "x.h5")) as source:
        blocks = list(source.blocks(max_bytes=max_bytes))
        assert all(block.nbytes <= max_bytes for block in blocks)
        assert np.array_equal(np.concatenate(blocks), TABLE)
        assert np.array_equal(source.read(), TABLE)


def test_a_dataset_never_written_is_its_fill_value(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", (4, 3), "f4", fillvalue=7)
    assert np.array_equal(load_array(str(tmp_path / "x.h5")), np.full((4, 3), 7, np.float32))


def test_a_compact_dataset(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        h5py.Dataset(h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_INT32, space, creation))[:] = [1, 2, 3]
    assert load_array(str(tmp_path / "x.h5")).tolist() == [1, 2, 3]


def test_links_out_of_the_file_stay_closed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = TABLE
    (tmp_path / "raw").write_bytes(TABLE.tobytes())
    virtual = h5py.VirtualLayout((30, 20), "f4")
    virtual[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "x", (30, 20))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["link"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
        file.create_virtual_dataset("virtual", virtual)
        file.create_dataset("raw", (30, 20), "f4", external=[(str(tmp_path / "raw"), 0, TABLE.nbytes)])
        file["here"] = TABLE
        file["loop"] = h5py.SoftLink("/loop")
        file["again"] = file["/"]
    with open_source(str(tmp_path / "x.h5")) as source:
        assert set(source.tensors) == {"virtual", "raw", "here"}
        for name in ("virtual", "raw"):
            with pytest.raises(PeError, match=f"dataset '{name}' lies in other files"):
                source.read(name)
        assert np.array_equal(source.read("here"), TABLE)
        for name, where in (("link", r"other\.h5:/x"), ("loop", "/loop")):
            with pytest.raises(PeError, match=f"'{name}' is a link to .*{where}, and links are not followed"):
                source.read(name)


def test_every_name_of_a_dataset_can_be_given(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["m/table"] = TABLE
        file["a"] = file["m/table"]
        file["n"] = file["m"]
        file["m/up"] = file["/"]
        file["m/self"] = file["m"]
    with open_source(str(tmp_path / "x.h5")) as source:
        assert list(source.tensors) == ["a", "m/table", "n/table"]
        assert source.links == {"m/table": "/a", "n/table": "/a"}
        for name in source.tensors:
            assert np.array_equal(source.read(name), TABLE)


def test_names_that_double_with_every_group_come_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5, "_MAX_AGAIN", 100)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        group = file["/"]
        for _ in range(40):
            inner = group.create_group("a")
            group["b"] = inner
            group = inner
        group["x"] = TABLE
    with open_source(str(tmp_path / "x.h5")) as source:
        assert "a/" * 40 + "x" in source.tensors
        assert len(source.tensors) <= 100


def test_what_is_not_numbers_is_listed_and_not_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["text"] = "hello"
        file["pairs"] = np.zeros(3, [("a", "i4"), ("b", "f4")])
        file["nothing"] = h5py.Empty("f4")
        file["fixed"] = np.array([b"abc"])
    with open_source(str(tmp_path / "x.h5")) as source:
        assert set(source.tensors) == {"text", "pairs", "fixed"}
        for name in source.tensors:
            with pytest.raises(PeError, match="whose values pe does not read"):
                source.read(name)


def test_bfloat16_as_h5py_stores_it_itself(tmp_path: Path) -> None:
    values = np.arange(6).astype(ml_dtypes.bfloat16)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = values
    assert np.array_equal(load_array(str(tmp_path / "x.h5")), values)


def test_chunks_are_refused_beyond_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=np.eye(1 << 10), chunks=(1 << 9, 1 << 10), compression="gzip")
        file.create_dataset("y", (4, 4), "f8", chunks=(1 << 10, 1 << 10), maxshape=(None, None))
    monkeypatch.setattr(process, "machine_memory", lambda: 12 << 20)
    with open_source(str(tmp_path / "x.h5")) as source:
        assert next(source.blocks("x")).shape == (128, 1024)
    monkeypatch.setattr(process, "machine_memory", lambda: 11 << 20)
    with open_source(str(tmp_path / "x.h5")) as source:
        for name, needs in (("x", "12 MiB"), ("y", "24 MiB")):
            with pytest.raises(PeError, match=f"one chunk of .* needs {needs} of memory"):
                next(source.blocks(name))


@pytest.mark.parametrize(
    ("shape", "how", "declared"),
    [
        ((1 << 25, 1 << 25), {"chunks": (1 << 10, 1 << 10)}, "4 PiB"),
        ((1 << 25, 1 << 10), {}, "128 GiB"),
        ((10, 10), {"chunks": (1 << 14, 1 << 14), "maxshape": (None, None)}, "1 GiB"),
    ],
)
def test_what_no_file_of_its_size_can_hold_is_refused(
    shape: tuple[int, ...], how: dict[str, Any], declared: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", shape, "f4", **how)
    assert path.stat().st_size < 4096
    with open_source(str(path)) as source:
        for read in (source.read, lambda: next(source.blocks())):
            with pytest.raises(PeError, match=f"'x' declares {declared} in a file of .* KiB"):
                read()


def test_zeros_that_are_packed_well_are_read(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=np.zeros((1 << 23,), "f4"), chunks=(1 << 21,), compression=9)
    assert not load_array(str(tmp_path / "x.h5")).any()


def test_a_filter_that_is_missing_is_named(tmp_path: Path) -> None:
    """Filter 32015 is Zstandard; the chunk is put in as it is, so that none is needed to write it."""
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_chunk((4, 4))
    creation.set_filter(h5py.h5z.FILTER_DEFLATE, 0, (1,))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        space = h5py.h5s.create_simple((4, 4))
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_FLOAT, space, creation)
        made.write_direct_chunk((0, 0), bytes(64), 0)
    content = (tmp_path / "x.h5").read_bytes()
    there = content.index(b"\x01\x00\x08\x00")  # deflate, with a name of 8 bytes
    (tmp_path / "x.h5").write_bytes(content[:there] + (32015).to_bytes(2, "little") + content[there + 2 :])
    with pytest.raises(PeError, match=r"'x' is packed by the HDF5 filter 32015, .*; pip install hdf5plugin$"):
        load_array(str(tmp_path / "x.h5"))


def test_endless_parsing_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = TABLE
    parent = os.getpid()
    parse = hdf5._texts

    def crash_in_the_child(attributes: Any) -> dict[str, str]:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGSEGV)
        return parse(attributes)

    monkeypatch.setattr(hdf5, "_texts", crash_in_the_child)
    with pytest.raises(PeError, match="takes the HDF5 library down"):
        load_array(str(tmp_path / "x.h5"))


@pytest.mark.slow
def test_a_string_without_length_would_be_read_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by fuzzing: HDF5 2.0 goes round and round in a heap whose object has no size."""
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.attrs["k"] = "hello"
    content = bytearray(path.read_bytes())
    size = content.index(b"GCOL") + 24
    content[size : size + 8] = bytes(8)
    path.write_bytes(content)
    monkeypatch.setattr(hdf5, "_PROBE_SECONDS", 1)
    with pytest.raises(PeError):
        load_array(str(path))


def spin() -> None:
    while True:
        pass


@pytest.mark.slow
def test_a_child_may_fail_but_not_run_on() -> None:
    def verdict(work: Callable[[], object], seconds: int = 5) -> Verdict:
        return tried(work, cpu_seconds=seconds, more_bytes=1 << 28)

    assert verdict(lambda: time.sleep(0.01)) is Verdict.DONE
    assert verdict(lambda: 1 / 0) is Verdict.DONE
    assert verdict(lambda: os.kill(os.getpid(), signal.SIGSEGV)) is Verdict.DIED
    assert verdict(spin, 1) is Verdict.OUT_OF_TIME
    if os.path.exists("/proc/self/statm"):
        assert verdict(lambda: bytearray(1 << 29)) is Verdict.OUT_OF_MEMORY


@pytest.mark.slow
def test_what_is_unpacked_comes_from_a_child_that_may_die() -> None:
    def numbers(last: Callable[[], object]) -> Iterator[Any]:
        yield np.arange(3.0)
        yield np.arange(100_000.0)
        last()

    def arrays(last: Callable[[], object]) -> Iterator[Any]:
        return from_child(
            lambda: numbers(last), np.dtype(float), cpu_seconds=1, more_bytes=1 << 30, died="it died"
        )

    whole = np.concatenate(list(arrays(lambda: None)))
    assert np.array_equal(whole, np.concatenate(list(numbers(lambda: None))))
    for last, said in (
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "it died"),
        (spin, "it died"),
        (lambda: open_source("missing.npy").__enter__(), "missing.npy"),
    ):
        got = arrays(last)
        assert next(got).tolist() == [0, 1, 2]
        with pytest.raises(PeError, match=said):
            list(got)
    for failing, kind, said in (
        (lambda: np.empty(1 << 58), MemoryError, "Unable to allocate"),
        (lambda: 1 / 0, ZeroDivisionError, "division by zero"),
        (lambda: b"\xff".decode(), RuntimeError, "UnicodeDecodeError: .*invalid start byte"),
        (lambda: next(iter(())), RuntimeError, "StopIteration"),
    ):
        with pytest.raises(kind, match=said):
            list(arrays(failing))
    got = arrays(spin)
    next(got)
    got.close()


@pytest.mark.parametrize("damage", [{384: 0, 389: 165}, {424: 1, 1103: 98}, {144: 0, 732: 34}])
def test_damage_that_takes_the_library_down_when_it_unpacks(damage: dict[int, int], tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        how = {"chunks": (3, 4), "compression": "gzip", "shuffle": True, "fletcher32": True}
        file.create_dataset("a", data=np.arange(200.0).reshape(20, 10), **how)
    content = bytearray(path.read_bytes())
    index = content.rindex(b"TREE")
    for place, value in damage.items():
        content[index + place] = value
    path.write_bytes(content)
    with pytest.raises(PeError):
        load_array(str(path))


def test_long_names_in_groups_within_groups_are_not_all_held(tmp_path: Path) -> None:
    """Thousands of groups in one another: the paths together are as long as the square of the file."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        group = file
        for _ in range(300):
            group = group.create_group("n" * 2000)
            group["a"] = 1.0
    with pytest.raises(PeError, match="names of more than 33,554,432 characters"):
        load_array(str(tmp_path / "x.h5"))
