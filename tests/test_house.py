"""The house in order: lint, format, types, and the rule that modules stay small and import one way."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted((ROOT / "pe_cli").rglob("*.py"))


@pytest.mark.parametrize(
    "argv",
    [
        ["ruff", "check", "."],
        ["ruff", "format", "--check", "."],
        ["mypy"],
    ],
    ids=lambda argv: " ".join(argv),
)
def test_checkers_find_nothing(argv: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *argv], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def imported(path: Path) -> set[str]:
    """The modules of this project that a file imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith("pe_cli")}


@pytest.mark.parametrize("path", [p for p in MODULES if "encodings" in p.parts], ids=lambda p: p.name)
def test_encodings_know_neither_files_nor_the_command_line(path: Path) -> None:
    upward = ("pe_cli.commands", "pe_cli.render", "pe_cli.files", "pe_cli.files.sources", "pe_cli.cli")
    assert not {name for name in imported(path) if name.startswith(upward)}


@pytest.mark.parametrize(
    "path", [p for p in MODULES if not {"commands", "render"} & set(p.parts)], ids=lambda p: p.name
)
def test_only_commands_print_and_draw(path: Path) -> None:
    assert not {name for name in imported(path) if name.startswith("pe_cli.render")}


@pytest.mark.parametrize("path", [p for p in MODULES if "commands" not in p.parts], ids=lambda p: p.name)
def test_nothing_but_the_entry_point_imports_commands(path: Path) -> None:
    if path.name == "cli.py":
        return
    tree = ast.parse(path.read_text())
    at_top = {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module}
    assert not {name for name in at_top if name.startswith("pe_cli.commands")}
