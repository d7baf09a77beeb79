"""What `pe gen` says of a table that it cannot write, and what it shows at a terminal."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from pe_cli.cli import run


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "graph.tsv"
    path.write_text("0\t1\n1\t2\n")
    return str(path)


def test_a_format_without_complex128_leaves_two_ways_out(graph, tmp_path, capsys):
    argv = ["gen", "magnetic", graph, "-k", "2", "--dtype", "float64", "-o", str(tmp_path / "x.safetensors")]
    assert run(argv) == 2
    said = capsys.readouterr().err
    assert "use .npy, .npz or .h5, or --dtype float32 (complex64), or --parts split" in said
    assert run([*argv, "--parts", "split"]) == 0
    rope = ["gen", "rope", "--len", "4", "--dim", "8", "--layout", "complex", "--dtype", "float64"]
    assert run([*rope, "-o", str(tmp_path / "y.safetensors")]) == 2
    assert "--parts" not in capsys.readouterr().err


def test_a_note_says_how_numpy_reads_bfloat16(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = ["gen", "rope", "--len", "4", "--dim", "8", "--dtype", "bf16", "-o"]
    assert run([*line, "x.npy"]) == 0
    assert "array.view(ml_dtypes.bfloat16)" in capsys.readouterr().err
    assert np.load("x.npy").view(ml_dtypes.bfloat16)[0, 0] == 1
    assert run([*line, "x.safetensors"]) == 0
    assert "note" not in capsys.readouterr().err
