"""What is imported when: help, version and usage errors must not wait for numpy and its friends."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "h5py", "scipy", "rich", "matplotlib", "safetensors", "ml_dtypes", "networkx", "torch")
OWN = ("pe_cli.models", "pe_cli.structures", "pe_cli.render.summary")  # of no use to a plain table
PROBE = """
import sys
from pe_cli.cli import run
code = run(sys.argv[1:])
print()
print("HEAVY", code, *[name for name in {heavy!r} if name in sys.modules])
"""


def loaded(*argv: str) -> tuple[int, set[str]]:
    """The exit code of `pe ARGV` and which heavy packages and rooms of our own it imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(heavy=HEAVY + OWN), *argv],
        capture_output=True,
        text=True,
        check=True,
    )
    _, code, *names = done.stdout.splitlines()[-1].split()
    return int(code), set(names)


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


def test_importing_the_package_imports_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, pe_cli; print([n for n in {HEAVY!r} if n in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
