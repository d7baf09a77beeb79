"""Interrupted, terminated and killed at any moment: nothing is left, and a target is absent, old or whole."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pe_cli import process
from pe_cli.errors import PeError
from pe_cli.extend import folder, new_folder
from pe_cli.extend.request import ResizeRequest
from pe_cli.files.atomic import open_output
from pe_cli.process import INTERRUPTED, SIGNALS

pytestmark = pytest.mark.slow

FORMATS = ("npy", "npz", "h5", "safetensors")
WORDS = ("gen", "rope", "--len", "60000", "--dim", "64", "-q", "--force")
LONGEST = 0.8  # seconds; a run takes about so long


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pe_cli", *WORDS, *more],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


HEARD = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


@pytest.fixture(autouse=True)
def nothing_is_ignored() -> Iterator[None]:
    """What starts these tests in the background or by nohup has them ignore signals, as then does all that they start."""
    before = {number: signal.getsignal(number) for number in HEARD}
    for number in HEARD:
        if before[number] is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", HEARD)
@pytest.mark.parametrize("trial", range(4))
def test_a_signal_leaves_nothing(number: signal.Signals, trial: int, tmp_path: Path) -> None:
    struck(number, 0.05 + random.Random(trial).random() * LONGEST, FORMATS[trial], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [*HEARD, signal.SIGKILL])
def test_sixty_strikes_over_the_whole_run(number: signal.Signals, tmp_path: Path) -> None:
    """From the start of Python to the end; every third time there is an older file in the place of the target."""
    begun = time.monotonic()
    start(tmp_path, "-o", "x.npy").communicate(timeout=60)
    longest = time.monotonic() - begun
    (tmp_path / "x.npy").unlink()
    codes = [
        struck(number, longest * trial / 60, FORMATS[trial % 4], tmp_path, old=trial % 3 == 0)
        for trial in range(60)
    ]
    known = {0, 128 + number}
    if number == signal.SIGINT:
        known.add(1)  # how Python's own start ends; `struck` sees that none of our code ran
    assert known >= {code for code in codes if code >= 0}
    assert any(codes)


def struck(number: int, delay: float, kind: str, folder: Path, *, old: bool = False) -> int:
    """Send a signal to a run that writes a file, and check what it leaves; its exit code."""
    target = folder / f"x.{kind}"
    whole = bytes_of(folder.parent, kind, 10000)
    if old:
        target.write_bytes(b"old")
    process = start(folder, "-o", target.name, "--base", "10000")
    time.sleep(delay)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    left = {name: (folder / name).read_bytes() for name in os.listdir(folder)}
    found = left.pop(target.name, None)
    assert found == whole if process.returncode == 0 else found in (whole, b"old" if old else None)
    if process.returncode in (0, 128 + number):
        assert said in ("", "pe: interrupted\n")
    else:  # it was killed, or was still in Python's own start, which ends as Python likes
        assert process.returncode in (-number, 1)
        assert "pe_cli" not in said
    assert not left or number == signal.SIGKILL
    for name in (*left, target.name):
        (folder / name).unlink(missing_ok=True)
    return process.returncode


def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As nohup asks for, and as shells do for what they start in the background."""
    words = " ".join(WORDS)
    line = f'trap "" HUP INT QUIT; "{sys.executable}" -m pe_cli {words} --base 10000 -o x.npy & for i in $(seq 40); do kill -HUP $!; kill -INT $!; kill -QUIT $!; sleep 0.05; done; wait $!'
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert (tmp_path / "x.npy").read_bytes() == bytes_of(tmp_path.parent, "npy", 10000)


def test_a_signal_while_an_object_is_thrown_away_is_not_lost(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, time; sys.argv = ['pe']\n"
        "from pe_cli import process\n"
        "process.prepare(); process.tidy_up_first()\n"
        "class Thrown:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT); [None for _ in range(10)]\n"
        "try:\n"
        "    Thrown(); time.sleep(5)\n"
        "except KeyboardInterrupt:\n"
        "    process.leave(process.ended())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (INTERRUPTED, "")


@pytest.mark.parametrize("trial", range(20))
def test_killed_writers_of_one_file(trial: int, tmp_path: Path) -> None:
    """Two processes write the same file, and one or both are killed."""
    chance = random.Random(100 + trial)
    kind = FORMATS[trial % len(FORMATS)]
    target = tmp_path / f"x.{kind}"
    whole = {base: bytes_of(tmp_path.parent, kind, base) for base in (10000, 20000, 30000)}
    old = chance.random() < 0.5
    if old:
        target.write_bytes(whole[10000])
    writers = [start(tmp_path, "-o", target.name, "--base", str(base)) for base in (20000, 30000)]
    time.sleep(0.2 + chance.random() * LONGEST)
    writers[0].kill()
    if chance.random() < 0.6:
        time.sleep(chance.random() * 0.2)
        writers[1].kill()
    said = [writer.communicate(timeout=60)[1] for writer in writers]
    assert all(writer.returncode in (0, -signal.SIGKILL) for writer in writers), said
    if target.exists():
        allowed = [base for base in whole if old or base != 10000]
        assert target.read_bytes() in [whole[base] for base in allowed]
    else:
        assert not old
        assert all(writer.returncode for writer in writers)


def bytes_of(folder: Path, kind: str, base: int) -> bytes:
    """What an undisturbed process writes; kept for the next trial."""
    kept = folder / f"whole-{base}.{kind}"
    if not kept.exists():
        process = start(folder, "-o", f"{base}.{kind}", "--base", str(base))
        process.communicate(timeout=60)
        (folder / f"{base}.{kind}").rename(kept)
    return kept.read_bytes()


@pytest.mark.parametrize("force", [False, True])
def test_a_target_that_appears_meanwhile(force: bool, tmp_path: Path) -> None:
    """With --force the last writer wins; without, the first."""
    target = tmp_path / "x"

    def write() -> None:
        with open_output(target, force=force) as output:
            os.write(output.fd, b"mine")
            target.write_bytes(b"theirs")

    if force:
        write()
        assert target.read_bytes() == b"mine"
    else:
        with pytest.raises(PeError, match="exists and is not overwritten"):
            write()
        assert target.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["x"]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """As far as a limit on the size of files is like a full disk."""
    for kind in FORMATS:
        limit = f'ulimit -f 100; exec "{sys.executable}" -m pe_cli {" ".join(WORDS)} -o x.{kind}'
        done = subprocess.run(
            ["bash", "-c", limit], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert done.stderr.startswith(f"pe: cannot write x.{kind}: ")
        assert done.stderr.count("\n") == 1
        assert os.listdir(tmp_path) == []


def test_values_that_the_type_cannot_hold_are_told(launch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    words = "gen alibi --heads 4 --len 2000 --dtype float8_e4m3fn -o x.safetensors".split()
    done = launch(words, tmp_path)
    assert done.code == 0
    assert "of the values of alibi are NaN or infinite: too large for float8_e4m3fn" in done.stderr


EACH_LINE = (new_folder.__file__,)
EACH_CALL = (new_folder.__file__, shutil.__file__)
READING = ("names_in", "_links", "_same_as_any", "flush", "_fsync")  # many lines, and nothing changes in them
OLD, NEW = 40, 50  # rows


@pytest.mark.parametrize(
    ("number", "way"),
    [
        (signal.SIGINT, "one exchange"),
        (signal.SIGTERM, "two renames"),
        (signal.SIGKILL, "one exchange"),
        (signal.SIGKILL, "two renames"),
    ],
)
def test_a_signal_at_each_line_that_replaces_a_folder(
    number: signal.Signals, way: str, tmp_path: Path
) -> None:
    (tmp_path / "model" / "sub").mkdir(parents=True)
    (tmp_path / "model" / "sub" / "notes.txt").write_text("notes")
    (tmp_path / "model" / "config.json").write_text(json.dumps({"max_position_embeddings": 32}))
    table = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    save_file({"embeddings.position_embeddings.weight": table}, tmp_path / "model" / "model.safetensors")
    told = subprocess.run(
        [sys.executable, __file__, str(int(number)), way],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    moments = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(moments) > 50
    assert {moment["target"] for moment in moments} >= {"old", "new"}
    for moment in moments:
        if number == signal.SIGKILL and way == "two renames" and moment["target"] == "absent":
            assert "old" in moment["left"].values()
        else:
            assert moment["target"] in ("old", "new")
        if number == signal.SIGKILL:
            assert all(name.startswith(".pe-") for name in moment["left"])
        else:
            assert moment["left"] == {}
            assert moment["code"] in (0, *SIGNALS.values())


def at_each_line(number: int, way: str) -> Iterator[dict[str, Any]]:
    """What a signal at the n-th line of the code that replaces a folder leaves, for each n."""
    model, target = Path("model"), Path("target")
    if way == "two renames":
        new_folder.renamed = lambda *_: False  # type: ignore[assignment]
    states = {}
    for state, length in (("new", NEW), ("old", OLD)):
        folder.extend_folder(model, target, ResizeRequest(length=length), metadata={}, force=True)
        states[state] = contents(target)
    before = Path(shutil.copytree(target, "before"))
    moment = 0
    code = -1
    while code:
        shutil.copytree(before, target, dirs_exist_ok=True)
        child = os.fork()
        if not child:
            disturbed(model, target, number, moment)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        found = {
            path.name: next((state for state, files in states.items() if files == contents(path)), "other")
            for path in Path().iterdir()
        }
        moment += 1
        rest = {name: state for name, state in found.items() if name not in ("model", "before", "target")}
        yield {"code": code, "target": found.get("target", "absent"), "left": rest}
        for name in (*rest, "target"):
            shutil.rmtree(name, ignore_errors=True)


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def disturbed(model: Path, target: Path, number: int, moment: int) -> None:
    """Replace `target`, and send the signal to this process at a line; it ends here."""
    left = moment

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        code = frame.f_code
        lines = code.co_filename in EACH_LINE and code.co_name not in READING
        if event in ("call", "line") and (lines or code.co_filename in EACH_CALL):
            left -= 1
            if left == -1:
                os.kill(os.getpid(), number)
        return trace if lines else None

    process.tidy_up_first()
    code = 0
    sys.settrace(trace)
    try:
        folder.extend_folder(model, target, ResizeRequest(length=NEW), metadata={}, force=True)
    except BaseException:
        code = 70
    finally:
        sys.settrace(None)
        # The signal's code, as `pe` does, whatever its exception has become; 0 if there was no such line.
        os._exit(process.ended() or code)


def test_a_picture_and_its_table_appear_together(launch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("matplotlib")
    np.save(tmp_path / "taken.npy", np.zeros(3))
    for bad in ("missing/x.png", "taken.npy", "x.jpg"):
        done = launch([*"gen rope --len 8 --dim 8 -o x.npy --plot".split(), bad], tmp_path)
        assert done.code == 2
        assert os.listdir(tmp_path) == ["taken.npy"]


if __name__ == "__main__":
    for each in at_each_line(int(sys.argv[1]), sys.argv[2]):
        print(json.dumps(each))
