"""The streaming rewrite: the same bytes by every way in and out, in bounded memory, whole or not at all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pe_cli.extend import rewrite
from pe_cli.files.atomic import OpenOutput
from pe_cli.files.safetensors import TensorEntry, write_header

PE = [sys.executable, "-m", "pe_cli", "extend"]
MIB = 1 << 20
# Linux counts for a child what the process held that it was forked from: a small one stands between.
PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A table between two tensors that are larger than any buffer, and not a multiple of one."""
    random = np.random.default_rng(3)
    path = tmp_path / "model.safetensors"
    tensors = {
        "a.weight": random.standard_normal((1100, 257)).astype(np.float32),
        "wpe.weight": random.standard_normal((64, 24)).astype(np.float32),
        "z.weight": random.integers(0, 255, (3 * MIB + 12345,), dtype=np.uint8),
    }
    save_file(tensors, path)
    return path


def extend(*argv: str, cwd: Path, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*PE, *argv, "-q"], cwd=cwd, check=True, timeout=60, **options)  # type: ignore[call-overload]


def check(path: Path, source: Path) -> None:
    old, new = load_file(source), load_file(path)
    assert new["wpe.weight"].shape == (100, 24)
    assert all(new[name].tobytes() == old[name].tobytes() for name in ("a.weight", "z.weight"))


def test_file_to_file(large: Path, tmp_path: Path) -> None:
    extend(large.name, "--len", "100", "-o", "out.safetensors", cwd=tmp_path)
    check(tmp_path / "out.safetensors", large)


def test_file_to_file_by_two_threads(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pe_cli import cli

    monkeypatch.setattr(rewrite, "BLOCK", 5000)
    assert cli.run(["extend", str(large), "--len", "100", "-o", str(tmp_path / "out.safetensors"), "-q"]) == 0
    check(tmp_path / "out.safetensors", large)


@pytest.mark.parametrize("refusal", [errno.EXDEV, errno.ENOSYS, errno.EPERM, errno.EOPNOTSUPP])
def test_a_kernel_that_does_not_copy(
    refusal: int, large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two file systems, or where a sandbox forbids it: the bytes go through memory."""
    from pe_cli import cli

    def refuse(*_: object, **__: object) -> int:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    assert cli.run(["extend", str(large), "--len", "100", "-o", str(tmp_path / "out.safetensors"), "-q"]) == 0
    check(tmp_path / "out.safetensors", large)


def test_what_is_copied_keeps_its_place_in_a_page(large: Path, tmp_path: Path) -> None:
    """The kernel copies page by page, and shares blocks where the file system can, only from aligned places."""
    extend(large.name, "--len", "100", "-o", "out.safetensors", cwd=tmp_path)
    begin = [
        8 + int.from_bytes(path.read_bytes()[:8], "little") for path in (large, tmp_path / "out.safetensors")
    ]
    assert begin[0] % 8 == 0
    assert begin[0] % 4096 == begin[1] % 4096


@pytest.mark.parametrize("appended", [False, True])
def test_file_to_redirected_stdout(large: Path, tmp_path: Path, appended: bool) -> None:
    """`>` and `>>`: a file that is appended to refuses what pipes allow."""
    out = tmp_path / "out.safetensors"
    with open(out, "ab" if appended else "wb") as target:
        extend(large.name, "--len", "100", cwd=tmp_path, stdout=target)
    check(out, large)


def test_redirected_stdin(large: Path, tmp_path: Path) -> None:
    with open(large, "rb") as source:
        extend("-", "--len", "100", "-o", "out.safetensors", cwd=tmp_path, stdin=source)
    check(tmp_path / "out.safetensors", large)


def test_pipe_to_file_pipe_and_appended_file(large: Path, tmp_path: Path) -> None:
    data = large.read_bytes()
    extend("-", "--len", "100", "-o", "one.safetensors", cwd=tmp_path, input=data)
    (tmp_path / "two.safetensors").write_bytes(
        extend("-", "--len", "100", cwd=tmp_path, input=data, stdout=-1).stdout
    )
    with open(tmp_path / "three.safetensors", "ab") as target:
        extend("-", "--len", "100", cwd=tmp_path, input=data, stdout=target)
    for name in ("one", "two", "three"):
        check(tmp_path / f"{name}.safetensors", large)


@pytest.mark.parametrize("piped", [False, True])
def test_a_file_of_the_shell_goes_on_behind_the_checkpoint(large: Path, tmp_path: Path, piped: bool) -> None:
    """`{ pe extend …; echo end; } > FILE`: bytes are put where they belong, and the shell's come after them."""
    given = f"cat {large.name} | " if piped else ""
    line = f"{{ echo begin; {given}'{sys.executable}' -m pe_cli extend {'-' if piped else large.name} --len 100 -q; echo end; }} > all"
    subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True, timeout=60)
    data = (tmp_path / "all").read_bytes()
    assert (data[:6], data[-4:]) == (b"begin\n", b"end\n")
    (tmp_path / "out.safetensors").write_bytes(data[6:-4])
    check(tmp_path / "out.safetensors", large)


@pytest.mark.parametrize("place", ["-o out.safetensors", "", "> out.safetensors"])
def test_a_table_out_of_a_pipe_that_cannot_be_changed(place: str, tmp_path: Path) -> None:
    """The thread that makes it hands its error on, wherever the output goes; a named file does not appear."""
    tensors = {"a": np.ones(300_000, np.float32), "wpe.weight": np.full((64, 8), np.nan, np.float32)}
    save_file(tensors, tmp_path / "model.safetensors")
    line = f"cat model.safetensors | '{sys.executable}' -m pe_cli extend - --len 100 -q {place}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == b"pe: wpe.weight has a value that is not finite in row 0; mend the table first\n"
    assert not place.startswith("-o") or os.listdir(tmp_path) == ["model.safetensors"]


def test_two_tables_out_of_a_pipe(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    names = [f"{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    tensors = {name: random.standard_normal((64, 8)).astype(np.float32) for name in names}
    save_file({**tensors, "z": np.ones(400_000, np.float32)}, tmp_path / "model.safetensors")
    both = ("--tensor", "*positions.weight", "--len", "100", "-o")
    extend("model.safetensors", *both, "file.safetensors", cwd=tmp_path)
    with (
        open(tmp_path / "model.safetensors", "rb") as file,
        subprocess.Popen(["cat"], stdin=file, stdout=-1) as cat,
    ):
        extend("-", *both, "pipe.safetensors", cwd=tmp_path, stdin=cat.stdout)
    one, two = (load_file(tmp_path / f"{name}.safetensors") for name in ("file", "pipe"))
    assert {name: table.shape for name, table in one.items() if name in names} == dict.fromkeys(
        names, (100, 8)
    )
    assert {name: table.tobytes() for name, table in one.items()} == {
        name: table.tobytes() for name, table in two.items()
    }


def test_an_output_that_was_taken_back_is_not_written(tmp_path: Path) -> None:
    with open(tmp_path / "x", "wb") as file:
        output = OpenOutput(file.fileno(), "x", 0)
        lent = rewrite._Lent(output)
        lent.put(memoryview(b"early"), 0)
        lent.take_back()
        with pytest.raises(OSError, match="taken back"):
            lent.put(memoryview(b"late"), 5)
        with pytest.raises(OSError, match="taken back"):
            lent.draw(lambda *_, **__: 5, 0, 0, 5, 5)
    assert ((tmp_path / "x").read_bytes(), output.end) == (b"early", 5)


def test_the_header_is_as_it_was(large: Path, tmp_path: Path) -> None:
    """Names, order and types stay; only the table's shape, the offsets and the metadata change."""
    from pe_cli.files.safetensors import read_header

    extend(large.name, "--len", "100", "-o", "out.safetensors", cwd=tmp_path)
    with open(large, "rb") as one, open(tmp_path / "out.safetensors", "rb") as two:
        old, new = read_header(one), read_header(two)
    assert new.names == old.names
    assert list(new.tensors) == list(old.tensors)
    assert new.metadata is not None
    assert set(new.metadata) == {"format", "pe"}


@pytest.mark.slow
def test_an_interrupt_leaves_nothing(large: Path, tmp_path: Path) -> None:
    read, write = os.pipe()
    with subprocess.Popen(
        [*PE, "-", "--len", "100", "-o", "out.safetensors"],
        cwd=tmp_path,
        stdin=read,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(read)
        os.write(write, large.read_bytes()[: 64 << 10])
        time.sleep(1.0)  # it waits for the rest by then, or has not begun: both must leave nothing
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in (130, -signal.SIGINT)
    os.close(write)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_closed_pipe_ends_quietly(large: Path, tmp_path: Path) -> None:
    line = f"'{sys.executable}' -m pe_cli extend {large.name} --len 100 -q | head -c 100 > head; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == (b"0\n", b"")


@pytest.mark.slow
def test_memory_is_bounded_by_the_table(tmp_path: Path) -> None:
    """512 MiB that are a hole in the file pass through a pipe; the table is 1 MiB, then 2 MiB."""
    table = TensorEntry("wpe.weight", "F32", (1024, 256), 0, MIB)
    rest = TensorEntry("w", "F32", (128, MIB), MIB, 513 * MIB)
    path = tmp_path / "holes.safetensors"
    with open(path, "wb") as file:
        file.write(write_header([table, rest], {"format": "pt"}))
        file.write(np.random.default_rng(0).standard_normal(1024 * 256).astype(np.float32).tobytes())
        file.truncate(file.tell() + 512 * MIB)
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as cat:
        peak = [sys.executable, "-c", PEAK, *PE, "-", "--len", "2048", "-q"]
        told = subprocess.run(peak, stdin=cat.stdout, capture_output=True, check=True, timeout=60).stdout
    assert 8 * MIB < int(told) * 1024 < (160 + 2 * 2) * MIB
