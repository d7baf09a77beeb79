"""The reference is what the commands say now."""

from __future__ import annotations

import re
from pathlib import Path

import make_reference as maker

ROOT = Path(__file__).parent.parent


def test_the_reference_is_current() -> None:
    wanted = maker.pages()
    stored = {path.name: path.read_text(encoding="utf-8") for path in maker.FOLDER.glob("*.md")}
    stale = sorted(name for name in wanted.keys() | stored.keys() if wanted.get(name) != stored.get(name))
    assert stale == [], "run python tools/make_reference.py"


def test_every_page_is_reached_from_the_contents() -> None:
    pages = maker.pages()
    assert [name for name in pages if name != "README.md" and f"({name})" not in pages["README.md"]] == []


def test_links_of_the_documentation_lead_to_files() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
