"""Archives: what numpy writes is read in blocks, and what expands without measure is not."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.files import npy as npz
from pe_cli.files import sinks
from pe_cli.files.sources import load_array, open_source


def npy(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> str:
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return str(path)


def test_other_members_are_passed_over(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", {"readme.txt": b"hello", "a.npy": npy(np.ones(3, np.float32))})
    assert load_array(path).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("members", "compression", "message"),
    [
        ({"readme.txt": b"hello"}, zipfile.ZIP_STORED, "zip without .npy members"),
        ({}, zipfile.ZIP_STORED, "zip without .npy members"),
        ({"a.npy": b"hello"}, zipfile.ZIP_STORED, ":a is not a .npy file"),
        ({"a.npy": npy(np.ones(3, np.float32))[:-4]}, zipfile.ZIP_DEFLATED, ":a is truncated"),
        ({"a.npy": npy(np.ones(3, np.float32))}, zipfile.ZIP_LZMA, "not stored or deflated"),
    ],
)
def test_members_that_numpy_would_not_write(
    members: dict[str, bytes], compression: int, message: str, tmp_path: Path
) -> None:
    path = archive(tmp_path / "x.npz", members, compression)
    with pytest.raises(PeError, match=message):
        load_array(path)


def test_two_members_of_one_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as file:
        file.writestr("a.npy", npy(np.ones(3, np.float32)))
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("a.npy", npy(np.zeros(3, np.float32)))
    with pytest.raises(PeError, match=r"two members 'a\.npy'"):
        load_array(str(tmp_path / "x.npz"))


def test_an_encrypted_member(tmp_path: Path) -> None:
    path = Path(archive(tmp_path / "x.npz", {"a.npy": npy(np.ones(3, np.float32))}))
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(PeError, match="encrypted"):
        load_array(str(path))


def test_a_checksum_that_is_wrong(tmp_path: Path) -> None:
    path = Path(archive(tmp_path / "x.npz", {"a.npy": npy(np.ones(3, np.float32))}, zipfile.ZIP_STORED))
    content = bytearray(path.read_bytes())
    content[content.index(b"\x80\x3f")] ^= 1
    path.write_bytes(content)
    with pytest.raises(PeError, match="Bad CRC"):
        load_array(str(path))


def test_what_expands_without_measure_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "_RATIO_FROM", 1 << 20)
    bomb = npy(np.zeros(1 << 19, np.float32))
    path = archive(tmp_path / "x.npz", {"a.npy": bomb, "b.npy": npy(np.ones(3, np.float32))})
    assert Path(path).stat().st_size < len(bomb) / 200
    with open_source(path) as source:
        assert source.read("b").tolist() == [1, 1, 1]
        with pytest.raises(PeError, match=r"would expand from .* to 2 MiB, more than 200 times"):
            source.read("a")


def test_members_that_lie_about_their_size(tmp_path: Path) -> None:
    path = Path(archive(tmp_path / "x.npz", {"a.npy": npy(np.ones(300, np.float32))}))
    content = bytearray(path.read_bytes())
    directory = content.rindex(b"PK\x01\x02")
    content[directory + 24 : directory + 28] = (400).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(PeError, match="Bad CRC"):
        load_array(str(path))


def test_numpy_reads_what_is_written_beyond_four_gigabytes_of_zip64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pe_cli.files import TensorSpec
    from pe_cli.files.sinks import open_sink

    monkeypatch.setattr(sinks, "_ZIP64_FROM", 1)
    with open_sink(tmp_path / "x.npz", [TensorSpec("a", "float32", (3,))], metadata={}) as sink:
        sink.write("a", 0, np.ones(3, np.float32))
    with np.load(tmp_path / "x.npz") as file:
        assert file["a"].tolist() == [1, 1, 1]
    assert load_array(str(tmp_path / "x.npz")).tolist() == [1, 1, 1]


def test_millions_of_members_are_refused_before_they_are_listed(tmp_path: Path) -> None:
    """A list of members takes some fifty bytes for each in the file, and ten times as much once zipfile has read it."""
    count, name = 300_000, b"a.npy"
    entry = (
        struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 33, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0) + name
    )
    listed = entry * count
    longer = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(listed), 4)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, 4 + len(listed), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    (tmp_path / "many.npz").write_bytes(b"PK\x03\x04" + listed + longer + locator + end)
    tracemalloc.start()
    try:
        with (
            pytest.raises(PeError, match="more than 262,144 members"),
            open_source(str(tmp_path / "many.npz")),
        ):
            pass
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
