"""A file is absent, old or whole: whatever happens, and whoever else writes it."""

from __future__ import annotations

import os
import random
import resource
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli import process
from pe_cli.errors import PeError
from pe_cli.files import TensorSpec, atomic, open_input
from pe_cli.files.atomic import open_output
from pe_cli.files.sinks import open_sink

SPEC = [TensorSpec("x", "float32", (1000, 64))]


@pytest.fixture(params=["unnamed", "named"])
def temporary(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to hold an unfinished file: without a name (Linux), or hidden beside the target (elsewhere)."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return str(request.param)


def write(path: Path, value: float = 1.0, **options: Any) -> None:
    with open_sink(path, SPEC, metadata={}, **options) as sink:
        sink.write("x", 0, np.full((1000, 64), value, np.float32))


def overtaken(path: Path) -> None:
    """Write `path` while someone else makes it."""
    with open_sink(path, SPEC, metadata={}) as sink:
        sink.write("x", 0, np.zeros((1000, 64), np.float32))
        path.write_bytes(b"theirs")


@pytest.mark.usefixtures("temporary")
def test_nothing_is_there_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with open_sink(path, SPEC, metadata={}) as sink:
        sink.write("x", 0, np.zeros((1000, 64), np.float32))
        assert not path.exists()
    assert os.listdir(tmp_path) == ["x.npy"]
    assert np.load(path).shape == (1000, 64)


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_exception_leaves_what_was_there(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with open_sink(path, SPEC, metadata={}, force=True) as sink:
            sink.write("x", 0, np.zeros((500, 64), np.float32))
            raise error

    with pytest.raises(error):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.npy"]


@pytest.mark.usefixtures("temporary")
def test_an_existing_file_needs_force(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with pytest.raises(PeError, match=r"x\.npy exists and is not overwritten; add force"):
        write(path)
    assert path.read_bytes() == b"old"
    write(path, force=True)
    assert np.load(path).shape == (1000, 64)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.usefixtures("temporary")
def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "x.npy")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "x.npy").stat().st_mode) == 0o640


@pytest.mark.usefixtures("temporary")
def test_a_file_that_appeared_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with pytest.raises(PeError, match="exists and is not overwritten"):
        overtaken(path)
    assert path.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["x.npy"]


def test_without_hard_links_the_file_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE", raising=False)

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    path = tmp_path / "x.npy"
    write(path)
    assert os.listdir(tmp_path) == ["x.npy"]
    with pytest.raises(PeError, match="exists"):
        overtaken(tmp_path / "y.npy")
    assert (tmp_path / "y.npy").read_bytes() == b"theirs"


@pytest.mark.usefixtures("temporary")
def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "x.npy"
    link.symlink_to("real/y.npy")
    write(link)
    assert link.is_symlink()
    assert np.load(tmp_path / "real" / "y.npy").shape == (1000, 64)
    with pytest.raises(PeError, match="add force"):
        write(link)
    write(link, 2.0, force=True)
    assert link.is_symlink()
    assert np.load(link)[0, 0] == 2
    assert os.listdir(tmp_path / "real") == ["y.npy"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no/such/x.npy", "there is no folder .*no/such"),
        ("folder.npy", "is a folder"),
        ("file/x.npy", "cannot write"),
        ("n" * 300 + ".npy", "cannot write"),
        ("loop.npy", "cannot write"),
    ],
)
def test_places_that_cannot_be_written(path: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "loop.npy").symlink_to("loop.npy")
    with pytest.raises(PeError, match=message) as caught:
        write(tmp_path / path)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(PeError, match="Permission denied"):
        write(folder / "x.npy")


@contextmanager
def file_size_limit(nbytes: int) -> Iterator[None]:
    """Stands in for a full disk: EFBIG instead of ENOSPC, at the same places."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("fallocate", [True, False])
@pytest.mark.parametrize("format", ["npy", "npz", "h5", "safetensors"])
def test_a_full_disk(format: str, fallocate: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not fallocate:
        monkeypatch.delattr(os, "posix_fallocate")
    with file_size_limit(100_000), pytest.raises(PeError, match=r"cannot write .*nothing was written"):
        write(tmp_path / f"x.{format}")
    assert not os.listdir(tmp_path)


def test_a_file_system_without_fallocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    write(tmp_path / "x.npy")
    assert np.load(tmp_path / "x.npy").shape == (1000, 64)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_device() -> None:
    with pytest.raises(PeError, match="No space left on device; what was written is not complete"):
        write(Path("/dev/full"), format="npy")


def test_devices_and_named_pipes_are_written_straight(tmp_path: Path) -> None:
    write(Path(os.devnull), format="npz")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
    reader.start()
    write(fifo, format="safetensors")
    reader.join(timeout=10)
    write(tmp_path / "x.safetensors")
    assert got == [(tmp_path / "x.safetensors").read_bytes()]


def test_an_output_that_is_the_input(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(before := b"in")
    (tmp_path / "link").symlink_to(path)
    os.link(path, tmp_path / "hard")
    with open_input(path):
        for name in ("x.npy", "link", "hard"):
            with pytest.raises(PeError, match=f"{name} is also the input"):
                write(tmp_path / name, force=True, format="npy")
        write(tmp_path / "other.npy")
        write(Path(os.devnull), format="npy")
    assert path.read_bytes() == before
    write(path, 2.0, force=True)


def test_what_a_command_has_read_stays_its_input(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    write(path)
    with process.one_command():
        with open_input(path):
            pass
        with pytest.raises(PeError, match="also the input"):
            write(path, force=True)
    write(path, force=True)


def test_an_existing_file_is_synced_before_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: done.append("fsync"))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (done.append("replace"), replace(a, b)))
    write(tmp_path / "x.npy")
    assert done == []
    write(tmp_path / "x.npy", force=True)
    assert done == ["fsync", "replace"]


def test_owner_and_group_stay_as_far_as_that_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "x.npy")
    if os.geteuid() == 0:
        os.chown(tmp_path / "x.npy", 12345, 23456)
        os.chmod(tmp_path / "x.npy", 0o640)
        write(tmp_path / "x.npy", 2.0, force=True)
        status = os.stat(tmp_path / "x.npy")
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (12345, 23456, 0o640)
    asked: list[tuple[int, int]] = []

    def refuse(file: Any, owner: int, group: int) -> None:
        asked.append((owner, group))
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    real = os.stat(tmp_path / "x.npy")
    other = os.stat_result((real.st_mode, 1, 1, 1, real.st_uid + 1, real.st_gid + 1, 1, 0, 0, 0))
    atomic.take_over(tmp_path / "x.npy", other)
    atomic.take_over(tmp_path / "x.npy", real)
    assert asked == [(real.st_uid + 1, -1), (-1, real.st_gid + 1)]
    write(tmp_path / "x.npy", 3.0, force=True)


def test_the_handler_of_sigterm_is_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with open_output(tmp_path / "x") as output:
        os.write(output.fd, b"x")
    assert signal.getsignal(signal.SIGTERM) == before


SLOW_WRITER = """
import os, sys, time, numpy as np
if sys.argv[2] == "named":
    del os.O_TMPFILE
from pe_cli.errors import PeError
from pe_cli.files import TensorSpec
from pe_cli.files.sinks import open_sink
value = int(sys.argv[3])
block = np.full((500, 64), value, np.float32)
print("ready", flush=True)
try:
    with open_sink(sys.argv[1], [TensorSpec("x", "float32", (20000, 64))], metadata={}, force=sys.argv[4] == "force") as sink:
        for start in range(0, 20000, 500):
            sink.write("x", start, block)
except PeError as error:
    print(error, file=sys.stderr)
    sys.exit(2)
"""


def start_writer(path: Path, kind: str, value: int, *, force: bool = True) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", SLOW_WRITER, str(path), kind, str(value), "force" if force else "no"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["unnamed", "named"])
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_killed_at_any_moment(kind: str, sign: signal.Signals, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path_of_old = np.full((20000, 64), 7, np.float32)
    np.save(path, path_of_old)
    moment = random.Random(f"{kind}{sign}")
    for trial in range(5):
        with start_writer(path, kind, trial) as process:
            time.sleep(moment.uniform(0, 0.02))
            process.send_signal(sign)
        found = np.load(path)
        assert found.shape == (20000, 64)
        assert (found == found[0, 0]).all()
    left = [name for name in os.listdir(tmp_path) if name != "x.npy"]
    if sign != signal.SIGKILL:
        assert left == []
    if kind == "unnamed":  # at most between the two steps of a replacement
        assert len(left) <= 1


@pytest.mark.parametrize("force", [True, False])
def test_two_writers_of_one_file(force: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    first = start_writer(path, "unnamed", 1, force=force)
    second = start_writer(path, "unnamed", 2, force=force)
    codes = sorted([first.wait(60), second.wait(60)])
    for writer in (first, second):
        writer.communicate()
    assert codes == ([0, 0] if force else [0, 2])
    found = np.load(path)
    assert (found == found[0, 0]).all()
    assert os.listdir(tmp_path) == ["x.npy"]


def test_terminated_processes_end_with_their_own_code() -> None:
    with pytest.raises(SystemExit) as caught:
        atomic._terminate(signal.SIGTERM, None)
    assert caught.value.code == 143


WRITE = """
import sys
from pe_cli.files.atomic import open_output
with open_output(None) as output:
    output.reserve(1 << 20)
    output.put(memoryview(b"x" * 1000), 0)
    if "fail" in sys.argv:
        raise SystemExit(3)
"""


@pytest.mark.parametrize(
    ("redirection", "before", "want"),
    [
        (">", b"old" * 5000, b"x" * 1000),
        (">>", b"old", b"old" + b"x" * 1000),
        ("1<>", b"o" * 5000, b"x" * 1000 + b"o" * 4000),
    ],
)
@pytest.mark.parametrize("word", ["", "fail"])
def test_a_file_of_the_shell_keeps_no_room_that_was_not_written(
    redirection: str, before: bytes, want: bytes, word: str, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    target.write_bytes(before)
    line = f"'{sys.executable}' -c '{WRITE}' {word} {redirection} '{target}'"
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60, check=False)
    assert done.returncode == (3 if word else 0), done.stderr
    assert target.read_bytes() == want
