"""What all tests share: `pe` as a process, and the files it writes read back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forks import Forks

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]

# `pe` starts as it does for a user: with the colours of a terminal, and from compiled files, without which each process
# that a test starts takes twice as long.
sys.dont_write_bytecode = False
for name in ("PYTHONDONTWRITEBYTECODE", "NO_COLOR", "FORCE_COLOR", "PE_DEBUG"):
    os.environ.pop(name, None)

# A shell starts what runs in the background with these ignored, and `pe` leaves ignored what it finds ignored.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    started = Forks()
    yield started
    started.close()


@pytest.fixture
def pe(tmp_path: Path, forks: Forks) -> Run:
    """Run `pe` in an empty folder, without a terminal; with `env` in a process of its own."""

    def run(*argv: str, stdin: bytes = b"", env: dict[str, str] | None = None, code: int | None = 0):  # type: ignore[no-untyped-def]
        words = [str(word) for word in argv]
        if env is None:
            done = forks.run(words, tmp_path, stdin)
        else:
            done = subprocess.run(
                [sys.executable, "-m", "pe_cli", *words],
                input=stdin,
                capture_output=True,
                cwd=tmp_path,
                env={**os.environ, **env},
                timeout=120,
                check=False,
            )
        if code is not None:
            assert done.returncode == code, done.stderr.decode()
        return done

    return run
