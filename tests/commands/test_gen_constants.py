"""Tensors that are the same for every position need no rows to be asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("layout", ["inv-freq", "ggml-factors", "mlx-freqs"])
def test_frequencies_need_no_length(layout: str, pe: Any, tmp_path: Path) -> None:
    words = ["gen", "rope", "--dim", "16", "--base", "500000", "--layout", layout, "-q", "-o"]
    pe(*words, "without.npy")
    pe(*words, "with.npy", "--len", "4")
    assert (tmp_path / "without.npy").read_bytes() == (tmp_path / "with.npy").read_bytes()


def test_tables_do(pe: Any) -> None:
    done = pe("gen", "rope", "--dim", "16", "--layout", "half", "-o", "x.npz", code=2)
    assert b"which rows? Give --len N" in done.stderr
