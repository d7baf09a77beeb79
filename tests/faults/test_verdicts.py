"""`pe diff` says "same" of what is the same, whatever the shapes and types: a wrong 0 would be believed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.diff.operands import KEPT

ROWS, WIDTH = KEPT // 64 + 3000, 64  # more than is kept in memory

SHAPES = [
    lambda table: table[:, None, :],
    *(
        pytest.param(shaped, marks=pytest.mark.slow)
        for shaped in (
            lambda table: table[None],
            lambda table: table[:, :, None],
            lambda table: table[None, :, None, :],
        )
    ),
]


@pytest.mark.parametrize("shaped", SHAPES)
def test_the_last_row_of_another_shape_is_looked_at(shaped, launch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    table = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
    np.save(tmp_path / "a.npy", table)
    np.save(tmp_path / "same.npy", shaped(table))
    table[-1, -1] += 1
    np.save(tmp_path / "other.npy", shaped(table))
    assert launch(["diff", "a.npy", "same.npy"], tmp_path).code == 0
    assert launch(["diff", "a.npy", "other.npy"], tmp_path).code == 1
    assert launch(["diff", "a.npy", "-"], tmp_path, stdin=str(tmp_path / "other.npy")).code == 1


@pytest.mark.parametrize("shape", [(), (1,), (0, 8), (3, 0), (4, 8)])
def test_real_against_complex(shape: tuple[int, ...], launch, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    real = np.ones(shape, np.float32)
    np.save(tmp_path / "real.npy", real)
    np.save(tmp_path / "complex.npy", real.astype(np.complex64))
    np.save(tmp_path / "turned.npy", real * np.complex64(1j))
    assert launch(["diff", "real.npy", "complex.npy"], tmp_path).code == 0
    assert launch(["diff", "real.npy", "turned.npy"], tmp_path).code == (1 if real.size else 0)
