"""The page on adding an encoding, followed step by step in a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "adding-an-encoding.md").read_text(encoding="utf-8")
STEP = re.compile(r"^<!-- (.+?) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEPS: list[tuple[str, str]] = STEP.findall(PAGE)


def steps(kind: str) -> list[str]:
    return [text for name, text in STEPS if name == kind]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the function and the catalogue line of the page."""
    folder = tmp_path_factory.mktemp("copy")
    for part in ("pe_cli", "tools", "completions"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("*cache*"))
    for name, text in STEPS:
        if name.startswith("file: "):
            path = folder / name.removeprefix("file: ")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    catalogue = folder / "pe_cli" / "catalogue.py"
    (line,) = steps("catalogue")
    head, end, tail = catalogue.read_text(encoding="utf-8").partition("\n}\n\n\ndef load")
    catalogue.write_text(f"{head}\n{line.rstrip()}{end}{tail}", encoding="utf-8")
    return folder


def run(argv: list[str], folder: Path) -> str:
    programs = folder / "bin"
    if not programs.exists():
        programs.mkdir()
        (programs / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (programs / "python").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        argv,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_commands_of_the_page_run(copy: Path) -> None:
    output = "".join(run(["bash", "-euo", "pipefail", "-c", text], copy) for text in steps("run"))
    assert "--amplitudes X,X,…" in output
    assert "Source: Wennberg and Henter 2021" in output
    assert np.load(copy / "tisa.npy").shape == (64, 64)
    assert "tisa" in (copy / "completions" / "pe.bash").read_text(encoding="utf-8")
    assert "tisa" in (copy / "docs" / "reference" / "README.md").read_text(encoding="utf-8")


def test_the_tests_of_the_page_pass(copy: Path) -> None:
    output = run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/encodings/test_tisa.py"], copy
    )
    assert "3 passed" in output


@pytest.mark.slow
def test_what_holds_for_every_encoding_holds_for_the_new_one(copy: Path) -> None:
    tests = copy / "tests"
    shutil.copytree(ROOT / "tests" / "support", tests / "support", ignore=shutil.ignore_patterns("*cache*"))
    for name in ("conftest.py", "encodings/test_all.py"):
        shutil.copy(ROOT / "tests" / name, tests / name)
    options = ["-o", "pythonpath=tests/support", "-p", "no:cacheprovider", "-W", "ignore", "-k", "tisa"]
    output = run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *options,
            "--import-mode=importlib",
            "tests/encodings/test_all.py",
        ],
        copy,
    )
    assert re.search(r"\b[1-9][0-9]* passed", output)


@pytest.mark.slow
def test_the_page_keeps_the_style_of_the_house(copy: Path) -> None:
    files = ["pe_cli/encodings/tisa.py", "pe_cli/catalogue.py"]
    settings = ["--config", str(ROOT / "pyproject.toml")]
    run([sys.executable, "-m", "ruff", "check", *settings, *files], copy)
    run([sys.executable, "-m", "ruff", "format", "--check", *settings, *files], copy)
    run([sys.executable, "-m", "mypy", "--strict", "pe_cli/encodings/tisa.py"], copy)


def test_the_golden_case_of_the_page_is_one(copy: Path) -> None:
    (text,) = steps("golden")
    case = json.loads(text)
    others = json.loads((ROOT / "tests" / "golden" / "cases.json").read_text(encoding="utf-8"))
    assert case.keys() <= set().union(*others)
    argv = [word.replace("{out}", "golden") for word in case["argv"]]
    run([sys.executable, "-m", "pe_cli", *argv], copy)
    assert (copy / "golden.safetensors").stat().st_size > 0


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_what_a_page_names_is_there(page: Path) -> None:
    """Files and folders of the repository, but for those that the page has its reader write."""
    text = page.read_text(encoding="utf-8")
    written = set(re.findall(r"<!-- file: (\S+) -->", text))
    named = set(re.findall(r"\b(?:pe_cli|tests|tools|completions|docs)/[\w./-]*\w", text)) - written
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
