"""What `pe inspect config.json` prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pe_cli import cli, sinusoidal


@pytest.mark.parametrize(
    ("pairs", "want"),
    [(32, "every 2nd of 32 pairs"), (48, "every 3rd of 48"), (64, "every 4th of 64"), (176, "every 11th of")],
)
def test_left_out_pairs_are_counted_as_one_says_them(
    pairs: int, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"model_type": "llama", "hidden_size": 2 * pairs, "num_attention_heads": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert cli.run(["inspect", str(tmp_path / "config.json")]) == 0
    assert want in capsys.readouterr().out


POSITIONS = np.asarray(sinusoidal(32, dim=16))
NOISE = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)


def shown(folder: Path, capsys: pytest.CaptureFixture[str], **tensors: np.ndarray) -> str:
    """What `pe inspect` prints of a file with these tensors."""
    np.savez(folder / "file.npz", **tensors)
    assert cli.run(["inspect", str(folder / "file.npz")]) == 0
    return capsys.readouterr().out


def test_only_tensors_that_carry_positions_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = shown(tmp_path, capsys, table=POSITIONS, head=NOISE)
    assert "encoding" in said
    assert "no positions are seen in head" in said
    assert "head  float32" not in said


def test_all_tensors_are_drawn_where_none_carries_positions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = shown(tmp_path, capsys, one=NOISE, other=NOISE[:4])
    assert "one  float32" in said
    assert "other  float32" in said
    assert "no positions" not in said


def test_a_long_list_names_what_the_numbers_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rest = {f"head{k}": NOISE for k in range(4)}
    said = shown(tmp_path, capsys, table=POSITIONS, **rest)
    assert "and 4 tensors that hold no positions" in said
    assert any(line.split()[:1] == ["table"] and "sinusoidal" in line for line in said.splitlines())
    assert "head0" not in said


def test_a_tensor_that_is_not_read_is_not_said_to_hold_no_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    header = {
        "table": {"dtype": "F32", "shape": list(POSITIONS.shape), "data_offsets": [0, POSITIONS.nbytes]},
        "odd": {"dtype": "F4", "shape": [8], "data_offsets": [POSITIONS.nbytes, POSITIONS.nbytes + 4]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "file.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + POSITIONS.tobytes() + bytes(4))
    monkeypatch.chdir(tmp_path)  # a long name would be folded
    assert cli.run(["inspect", path.name]) == 0
    said = capsys.readouterr().out
    assert "values not read: " in said
    assert "no positions" not in said
