"""Interrupted, terminated and killed at any moment: nothing is left, and a target is absent, old or whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.formats.atomic import open_output
from pe_cli.process import INTERRUPTED, TERMINATED

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("trial", range(8))
def test_a_signal_leaves_nothing(number: signal.Signals, trial: int, tmp_path: Path) -> None:
    chance = random.Random(trial)
    target = f"x.{FORMATS[trial % len(FORMATS)]}"
    process = start(tmp_path, "-o", target)
    time.sleep(0.05 + chance.random() * LONGEST)
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    left = os.listdir(tmp_path)
    if process.returncode == 0:
        assert left == [target]
    elif process.returncode > 0:
        assert process.returncode == {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}[number]
        assert left in ([], [target])  # it may come when all is written
        assert said in ("", "pe: interrupted\n")
    else:  # before the first line of Python's own
        assert -process.returncode == number
        assert left == []


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


def test_a_picture_and_its_table_appear_together(launch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("matplotlib")
    np.save(tmp_path / "taken.npy", np.zeros(3))
    for bad in ("missing/x.png", "taken.npy", "x.jpg"):
        done = launch([*"gen rope --len 8 --dim 8 -o x.npy --plot".split(), bad], tmp_path)
        assert done.code == 2
        assert os.listdir(tmp_path) == ["taken.npy"]
