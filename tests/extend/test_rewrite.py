"""The streaming rewrite: the same bytes by every way in and out, in bounded memory, whole or not at all."""

from __future__ import annotations

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

    monkeypatch.setattr(rewrite, "TWO_THREADS_FROM", 1)
    assert cli.run(["extend", str(large), "--len", "100", "-o", str(tmp_path / "out.safetensors"), "-q"]) == 0
    check(tmp_path / "out.safetensors", large)


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
