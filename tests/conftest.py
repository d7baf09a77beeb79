"""What all tests share: `pe` as a process, and the files it writes read back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def pe(tmp_path: Path) -> Run:
    """Run `pe` in an empty folder, without a terminal; `text=True` for output as text."""

    def run(*argv: str, stdin: bytes | None = None, env: dict[str, str] | None = None, code: int | None = 0):  # type: ignore[no-untyped-def]
        done = subprocess.run(
            [sys.executable, "-m", "pe_cli", *map(str, argv)],
            input=stdin if stdin is not None else b"",
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            timeout=120,
            check=False,
        )
        if code is not None:
            assert done.returncode == code, done.stderr.decode()
        return done

    return run
