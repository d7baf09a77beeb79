"""The benchmark runs, at a size at which its figures mean nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "benchmark.py"


def run(*argv: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, str(TOOL), *argv], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_ratios_are_printed_and_nothing_is_left(tmp_path: Path) -> None:
    printed = run("extend", "diff", "--size", "0.001", "--rounds", "1", "--folder", str(tmp_path))
    rows = [line for line in printed.splitlines() if line.startswith(("| cp ", "| cmp, ", "| pe "))]
    assert len(rows) >= 6
    assert all("(" in row for row in rows if row.startswith(("| cp ", "| cmp, ")))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("section", ["accuracy", "start", "kernel", "generate"])
def test_every_section_runs(section: str, tmp_path: Path) -> None:
    printed = run(section, "--size", "0.001", "--rounds", "1", "--folder", str(tmp_path))
    assert printed.startswith("\n### ")
    assert "| pe" in printed
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_section_is_refused() -> None:
    assert "no section 'speed'; there are accuracy, start" in run("speed", code=2)
