"""Each recipe of the documentation, pasted as it stands."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What is written: `-o NAME`, `--plot NAME`, `> NAME`, np.save("NAME", …), GGUFWriter("NAME", …).
WRITES = re.compile(r"(?: -o | --plot |(?<=[^-])> ?(?=\w)|np\.save\(|Writer\()([^\s,)]+)")
PAGES = ("recipes.md", "pictures/README.md")


class Block(NamedTuple):
    """A fenced block: what runs it, its text, the modules it needs, the exit code it ends with, what it prints."""

    language: str
    text: str
    needs: tuple[str, ...]
    exit: int
    prints: tuple[str, ...] = ()


def blocks(section: str) -> list[Block]:
    found: list[Block] = []
    for comment, language, text in BLOCK.findall(section):
        options = dict(part.split(": ") for part in comment.split("; ") if part)
        needs = tuple(options.get("needs", "").split())
        if language == "text":  # an excerpt of what the block before it prints
            found[-1] = found[-1]._replace(prints=tuple(text.splitlines()))
        elif language in ("bash", "python"):
            found.append(Block(language, text, needs, int(options.get("exit", 0))))
    return found


def recipes() -> dict[str, list[Block]]:
    """The recipes by page and heading."""
    found = {}
    for page in PAGES:
        for section in re.split(r"^## ", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
            heading = section.partition("\n")[0]
            if blocks(section):
                found[f"{page}: {heading}"] = blocks(section)
    return found


RECIPES = recipes()
PLAIN = [name for name, parts in RECIPES.items() if not all(block.needs for block in parts)]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`pe` and `python` on PATH as an installation has them, and no colour."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, argv in (("pe", "-m pe_cli"), ("python", ""), ("torchrun", "-m torch.distributed.run")):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {argv} "$@"\n')
        program.chmod(0o755)
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}


def follow(parts: list[Block], folder: Path, environment: dict[str, str]) -> None:
    for block in parts:
        shell = ["bash", "-euo", "pipefail", "-c"] if block.language == "bash" else [sys.executable, "-c"]
        done = subprocess.run(
            [*shell, block.text],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == block.exit, f"{block.text}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        words = " ".join((done.stdout + done.stderr).split())
        assert [line for line in block.prints if " ".join(line.split()) not in words] == [], done.stdout


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_works_as_it_stands(name: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """With the libraries that it names, where they are installed."""
    folder = tmp_path / "work"
    folder.mkdir()
    follow([block for block in RECIPES[name] if all(map(installed, block.needs))], folder, environment)


def installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def test_all_recipes_can_be_pasted_into_one_folder(tmp_path: Path, environment: dict[str, str]) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    page = [block for name in PLAIN if name.startswith("recipes.md") for block in RECIPES[name]]
    follow([block for block in page if not block.needs], folder, environment)


def written(parts: list[Block]) -> set[str]:
    """The names that the blocks of a recipe write."""
    text = "\n".join(block.text for block in parts)
    return {name.strip("'\"").removeprefix("./") for name in WRITES.findall(text)}


def test_no_two_recipes_write_the_same_name() -> None:
    """Also those that need a library."""
    owners: dict[str, list[str]] = {}
    for recipe in (name for name in RECIPES if name.startswith("recipes.md")):
        for name in written(RECIPES[recipe]):
            owners.setdefault(name, []).append(recipe)
    assert {"onnx.safetensors", "bert-1024/config.json", "factors.gguf", "yarn.png", "q.npy"} <= set(owners)
    assert {name: recipes for name, recipes in owners.items() if len(recipes) > 1} == {}


def test_every_heading_is_reached_from_the_contents() -> None:
    text = (DOCS / "recipes.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert anchors == set(re.findall(r"\]\(#([^)]+)\)", text))


def test_pictures_of_the_documentation_are_there_and_small() -> None:
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    for page in pages:
        for target in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            picture = page.parent / target
            assert picture.read_bytes().startswith(b"\x89PNG"), target
            assert picture.stat().st_size < 200_000, target
