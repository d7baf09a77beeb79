"""What is imported when: help, version and usage errors must not wait for numpy and its friends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pe_cli import sinusoidal

HEAVY = ("numpy", "h5py", "scipy", "rich", "matplotlib", "safetensors", "ml_dtypes", "networkx", "torch")
OWN = ("pe_cli.models", "pe_cli.structures", "pe_cli.render.summary")  # of no use to a plain table
PROBE = """
import sys
from pe_cli.cli import run
code = run(sys.argv[1:])
print(file=sys.stderr)
print("LOADED", code, *sys.modules, file=sys.stderr)
"""


def modules(*argv: str, stdin: Path | None = None) -> tuple[int, set[str]]:
    """The exit code of `pe ARGV` and all that it imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *argv],
        input=stdin.read_bytes() if stdin else b"",
        capture_output=True,
        check=True,
    )
    _, code, *names = done.stderr.decode().splitlines()[-1].split()
    return int(code), set(names)


def loaded(*argv: str) -> tuple[int, set[str]]:
    """The exit code of `pe ARGV` and which heavy packages and rooms of our own it imported."""
    code, names = modules(*argv)
    return code, names & {*HEAVY, *OWN}


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        ([], 0),
        (["gen", "--help"], 0),
        (["gne"], 2),
        (["--versoin"], 2),
        (["gen", "ropr"], 2),
    ],
    ids=lambda value: " ".join(value) or "nothing" if isinstance(value, list) else "",
)
def test_light_commands_import_nothing_heavy(argv: list[str], code: int) -> None:
    assert loaded(*argv) == (code, set())


@pytest.mark.parametrize("encoding", ["rope", "xpos", "sinusoidal"])
def test_a_small_table_needs_numpy_alone(encoding: str, tmp_path: object) -> None:
    code, names = loaded("gen", encoding, "--len", "16", "--dim", "8", "-o", f"{tmp_path}/x.safetensors")
    assert (code, names) == (0, {"numpy"})


@pytest.mark.parametrize(
    ("line", "most"),
    [
        ("gen rope --len 16 --dim 8 -o new.safetensors", 30),
        ("gen model config.json --len 16 -o new.safetensors", 41),
        ("extend - --len 32 --method linear", 30),
        ("inspect a.npy", 29),
        ("diff a.npy b.npy", 38),
    ],
)
def test_a_command_is_read_in_few_modules(
    line: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many rooms of our own one has to pass to follow a command, packages included."""
    monkeypatch.chdir(tmp_path)
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 10000.0}
    Path("config.json").write_text(json.dumps(config | {"max_position_embeddings": 64}), encoding="utf-8")
    for name, base in (("a.npy", 10000), ("b.npy", 500)):
        np.save(name, sinusoidal(64, dim=16, base=base).array)
    np.save("learned.npy", np.random.default_rng(1).normal(size=(16, 8)).astype(np.float32))
    code, names = modules(*line.split(), stdin=Path("learned.npy"))
    assert code == (1 if line.startswith("diff") else 0)
    own = sorted(name for name in names if name.partition(".")[0] == "pe_cli")
    assert len(own) <= most, own


def test_importing_the_package_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, pe_cli; print([n for n in {HEAVY!r} if n in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
