"""Tensors that are the same for every position need no rows to be asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.cli import run


@pytest.mark.parametrize("layout", ["inv-freq", "ggml-factors", "mlx-freqs"])
def test_frequencies_need_no_length(layout: str, pe: Any, tmp_path: Path) -> None:
    words = ["gen", "rope", "--dim", "16", "--base", "500000", "--layout", layout, "-q", "-o"]
    pe(*words, "without.npy")
    pe(*words, "with.npy", "--len", "4")
    assert (tmp_path / "without.npy").read_bytes() == (tmp_path / "with.npy").read_bytes()


def test_tables_do(pe: Any) -> None:
    done = pe("gen", "rope", "--dim", "16", "--layout", "half", "-o", "x.npz", code=2)
    assert b"which rows? Give --len N" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "gen timestep --dim 8 --compute float32 --positions @ids.npy",
        "gen sinusoidal --dim 8 --compute float32 --positions @ids.npy",
        "gen sinusoidal --dim 8 --positions @ids.npy",
        "gen alibi --heads 3 --len 4 --bias-max=-5000",
    ],
)
def test_what_cannot_be_computed_is_one_line(line: str, tmp_path: Path, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("ids.npy", np.arange(12).reshape(2, 6))
    assert run([*line.split(), "-o", "t.npy"]) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "unexpected" not in error
