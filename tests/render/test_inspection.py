"""What `pe inspect config.json` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pe_cli import cli


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
