"""The house in order: lint, format, types, and how its rooms hang together, read from the syntax of all modules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from house import House

ROOT = Path(__file__).parent.parent
HOUSE = House(ROOT / "pe_cli")
MOST_FILES, LONGEST, SMALL = 130, 500, 60


@pytest.mark.parametrize(
    "argv", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]], ids=" ".join
)
def test_checkers_find_nothing(argv: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *argv], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_rooms_import_each_other() -> None:
    assert HOUSE.cycles() == []


def test_a_class_name_means_one_thing() -> None:
    assert HOUSE.repeated_classes() == {}


def test_files_are_few_and_not_long() -> None:
    assert len(HOUSE.paths) <= MOST_FILES
    assert {module: lines for module, lines in HOUSE.lengths().items() if lines > LONGEST} == {}


def test_a_small_module_has_several_users() -> None:
    assert HOUSE.small_with_one_user(SMALL) == []


@pytest.mark.parametrize(
    ("room", "above"),
    [
        ("encodings", {"commands", "render", "files", "cli", "library"}),
        ("numerics", {"commands", "render", "files", "cli", "library", "encodings", "models", "structures"}),
        (
            "files",
            {"commands", "render", "cli", "library", "encodings", "models", "inspect", "extend", "diff"},
        ),
        ("library", {"commands", "render", "cli"}),
        ("extend", {"commands", "render", "cli", "library"}),
        ("inspect", {"commands", "render", "cli", "library"}),
        ("diff", {"commands", "render", "cli", "library"}),
        ("models", {"commands", "render", "cli", "library"}),
        ("render", {"commands", "cli", "library"}),
    ],
)
def test_no_room_imports_upward(room: str, above: set[str]) -> None:
    own = [module for module in HOUSE.paths if HOUSE.room(module) == f"pe_cli.{room}"]
    assert own
    used = {HOUSE.room(name) for module in own for name in HOUSE.imports(module)}
    assert used.isdisjoint(f"pe_cli.{one}" for one in above)


# Each check finds what it is for


@pytest.fixture
def broken(tmp_path: Path) -> House:
    """A package that breaks every rule once."""
    files = {
        "house/__init__.py": "",
        "house/cellar/__init__.py": "",
        "house/cellar/wine.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.roof import tiles\n\nclass Rack: ...\n",
        "house/cellar/long.py": "x = 1\n" * 30 + "class Shelf: ...\n",
        "house/roof/__init__.py": "",
        "house/roof/tiles.py": "def lay():\n    import house.garden\n",
        "house/garden.py": "from house.cellar import wine, long\n\nclass Rack: ...\n",
        "house/street.py": "from house.garden import Rack\nfrom house import cellar\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return House(tmp_path / "house")


def test_a_cycle_over_a_function_and_a_type_is_found(broken: House) -> None:
    assert broken.cycles() == [["house.cellar", "house.garden", "house.roof"]]


def test_a_repeated_class_is_found(broken: House) -> None:
    assert broken.repeated_classes() == {"Rack": ["house.cellar.wine", "house.garden"]}


def test_lengths_and_small_modules_are_found(broken: House) -> None:
    assert broken.lengths().most_common(1) == [("house.cellar.long", 31)]
    assert broken.small_with_one_user(20) == ["house.cellar.wine", "house.roof.tiles"]
    assert "house.cellar.long" in broken.small_with_one_user(32)


def test_imports_of_every_form_are_seen(broken: House) -> None:
    assert broken.imports("house.street") == {"house.garden", "house.cellar"}
    assert broken.imports("house.roof.tiles") == {"house.garden"}
