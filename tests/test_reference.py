"""The reference is what the commands say now."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "tools" / "make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_current(maker: ModuleType) -> None:
    wanted = maker.pages()
    stored = {path.name: path.read_text(encoding="utf-8") for path in maker.FOLDER.glob("*.md")}
    stale = sorted(name for name in wanted.keys() | stored.keys() if wanted.get(name) != stored.get(name))
    assert stale == [], "run python tools/make_reference.py"


def test_every_page_is_reached_from_the_contents(maker: ModuleType) -> None:
    pages = maker.pages()
    assert [name for name in pages if name != "README.md" and f"({name})" not in pages["README.md"]] == []


def test_links_of_the_documentation_lead_to_files() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
