"""`pe` against right answers that were made without it: transformers, timm, diffusers, PyG, forward passes, definitions.

Each folder under `golden/` holds cases of one kind; `support/golden.py` says what a case is.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import golden
import numpy as np
import pytest

from pe_cli.cli import run

FOLDER = Path(__file__).parent / "golden"
HERE = Path(".")  # short, so that lines are broken where they are for a user
CASES = [
    pytest.param(path.parent, case, id=f"{path.parent.name}-{case['id']}")
    for path in sorted(FOLDER.rglob("cases.json"))
    for case in json.loads(path.read_text(encoding="utf-8"))
]


@cache
def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "arrays.npz") as stored:
        return dict(stored)


@pytest.mark.parametrize(("folder", "case"), CASES)
def test_golden(
    folder: Path,
    case: golden.Case,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrays = arrays_of(folder)
    golden.lay_out(case, arrays, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # the workers of pytest-xdist have one, which breaks lines
    if "shell" in case:
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", golden.filled(case["shell"], HERE)],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PATH": programs},
            timeout=120,
            check=False,
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    else:
        code = run([golden.filled(word, HERE) for word in case["argv"]])
        out, err = capfd.readouterr()
    golden.check(case, arrays, tmp_path, code, out, err)
