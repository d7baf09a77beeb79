"""The reference is what the commands say now."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import make_reference as maker
import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(("folder", "pattern", "make"), maker.MADE, ids=["reference", "manual"])
def test_what_is_made_is_current(folder: Path, pattern: str, make: Callable[[], dict[str, str]]) -> None:
    wanted = make()
    stored = {path.name: path.read_text(encoding="utf-8") for path in folder.glob(pattern)}
    stale = sorted(name for name in wanted.keys() | stored.keys() if wanted.get(name) != stored.get(name))
    assert stale == [], "run python tools/make_reference.py"


def test_the_manual_is_read_without_a_warning() -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    for page in sorted(maker.MANUAL.glob("*.1")):
        done = subprocess.run(
            [groff, "-man", "-ww", "-Tutf8", "-K", "utf8", "-Z", str(page)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == "", page.name


def test_every_page_is_reached_from_the_contents() -> None:
    pages = maker.pages()
    assert [name for name in pages if name != "README.md" and f"({name})" not in pages["README.md"]] == []


def test_links_of_the_documentation_lead_to_files() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"
