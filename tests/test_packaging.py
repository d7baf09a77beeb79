"""The wheel as a user installs it: what it brings besides modules, and what it says of itself."""

from __future__ import annotations

import subprocess
import sys
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
DATA = [path.relative_to(ROOT).as_posix() for path in ROOT.glob("pe_cli/**/*") if path.suffix == ".json"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run(command, check=True)
    return ZipFile(next(folder.glob("*.whl")))


@pytest.mark.slow
def test_the_wheel_holds_what_is_no_module(wheel: ZipFile) -> None:
    names = wheel.namelist()
    assert DATA
    assert set(DATA) <= set(names)
    assert "pe_cli/py.typed" in names
    for share in (
        "bash-completion/completions/pe",
        "zsh/site-functions/_pe",
        "fish/vendor_completions.d/pe.fish",
        "man/man1/pe-gen-rope.1",
    ):
        assert any(name.endswith(f"data/share/{share}") for name in names), share
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "tools/", "docs/"))]


@pytest.mark.slow
def test_the_wheel_says_what_it_is(wheel: ZipFile) -> None:
    name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
    about = message_from_bytes(wheel.read(name))
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Author"]
    extras = {"cluster", "graph", "plot", "torch"}
    assert extras <= set(about.get_all("Provides-Extra") or ())
    assert "Typing :: Typed" in (about.get_all("Classifier") or ())
