"""`pe gen rope --preset`: the values of a model, and the options that win over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from pe_cli import rope
from pe_cli.cli import run

LLAMA3 = {
    "base": 500000.0,
    "scaling": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_len": 8192,
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def make(*options: str) -> np.ndarray:
    assert run(["gen", "rope", "--len", "5000", "-q", "--force", "-o", "t.safetensors", *options]) == 0
    return load_file("t.safetensors")["rope"]


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ([], LLAMA3),
        (["--base", "10000"], {**LLAMA3, "base": 10000.0}),
        (["--factor", "4"], {**LLAMA3, "factor": 4.0}),
        (["--scaling", "none"], {"base": 500000.0}),
        (["--scaling", "linear", "--factor", "2"], {"base": 500000.0, "scaling": "linear", "factor": 2.0}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_win_over_the_preset(options: list[str], want: dict[str, Any]) -> None:
    got = make("--preset", "llama-3.1", *options)
    assert got.tobytes() == np.asarray(rope(np.arange(5000), 128, **want)).tobytes()


def test_the_command_in_the_file_makes_it_again() -> None:
    first = make("--preset", "llama-3.1", "--base", "10000")
    with safe_open("t.safetensors", "np") as stored:
        words = json.loads(stored.metadata()["pe"])["command"].split()
    assert run([*words[1:], "-q", "-o", "again.safetensors"]) == 0
    assert load_file("again.safetensors")["rope"].tobytes() == first.tobytes()


def test_origins_are_told(capfd: Any) -> None:
    assert run(["gen", "rope", "--preset", "gemma-3-4b:full_attention", "--len", "4", "--json", "-q"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["parameters"]["factor"] == 8.0
    assert "preset gemma-3-4b:full_attention" in report["origins"]["factor"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--preset", "lama-3.1"], "did you mean 'llama-3.1'"),
        ([], "--dim N, or --preset NAME"),
    ],
    ids=["unknown", "nothing"],
)
def test_trouble(options: list[str], sentence: str, capfd: Any) -> None:
    assert run(["gen", "rope", "--len", "4", "-q", "-o", "t.npy", *options]) == 2
    assert sentence in capfd.readouterr().err
    assert not list(Path().iterdir())
