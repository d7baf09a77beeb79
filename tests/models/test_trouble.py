"""Numbers that no table can have, and names that are no file: one line that says which and where."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration
from pe_cli.models.describe import inspect_config
from pe_cli.models.resolve import resolve, resolve_configuration

LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "max_position_embeddings": 4096,
}
DYNAMIC = {"type": "dynamic", "factor": 1e308}


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("rope_theta", math.inf, r'rope_theta is inf, .*write "rope_theta": 10000\.0'),
        ("rope_theta", -math.inf, r'write "rope_theta": 10000\.0'),
        ("rope_theta", 10**400, r"rope_theta is 1000\d*…, a positive number"),
        ("rope_theta", 10**10000, r"rope_theta is a number of thousands of digits, a positive number"),
        ("rope_scaling", {"type": "linear", "factor": 10**400}, r"rope_scaling\.factor is 1000"),
        ("hidden_size", 10**18, r"a rotary width of 1\.25e\+17 \(hidden_size 1000000000000000000 / "),
        ("partial_rotary_factor", 1e300, r"a rotary width of 1\.28e\+302 \("),
        ("qk_rope_head_dim", 10**308, r"a rotary width of 1e\+308 \("),
        ("rope_scaling", DYNAMIC, r"rope_scaling\.factor is 1e\+308, at most 1e\+09 is needed"),
    ],
    ids=range(9),
)
def test_numbers_that_no_table_can_have(key: str, value: Any, message: str) -> None:
    config = Configuration("config.json", LLAMA | {key: value}, model_type="llama")
    with pytest.raises(PeError, match=message) as caught:
        resolve_configuration(config, seq_len=4096)
    assert str(caught.value).startswith("config.json: ")


def test_inspect_names_file_and_key_of_a_hopeless_factor(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"rope_theta": 1e4, "rope_scaling": DYNAMIC}))
    with pytest.raises(PeError, match=r"config\.json: rope_scaling\.factor is 1e\+308"):
        inspect_config(str(path))


def test_a_number_of_thousands_of_digits_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "llama", "rope_theta": ' + "1" * 10000 + "}")
    with pytest.raises(PeError, match=r"config\.json has a number of thousands of digits"):
        resolve(str(path))


def test_names_that_are_no_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.mkdir()
    with pytest.raises(PeError, match=r"config\.json: this is a folder"):
        resolve(str(tmp_path))
    path.rmdir()
    path.symlink_to(path)
    with pytest.raises(PeError, match=r"config\.json: this is a link that leads nowhere"):
        resolve(str(tmp_path))
    with pytest.raises(PeError, match=r"cannot read .*config\.json.: Too many levels of symbolic links"):
        resolve(str(path))
