"""The examples in docstrings run and print what they say; every public function begins with one."""

from __future__ import annotations

import doctest
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

import pe_cli

ROOT = Path(__file__).parent.parent
WITH_EXAMPLES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "pe_cli").rglob("*.py")
    if re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_print_what_they_say(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = import_module(name)
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    found = [test for test in finder.find(module) if test.examples]
    for test in found:
        runner.run(test)
    assert found
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("name", sorted(name for name in pe_cli.__all__ if not name.startswith("__")))
def test_what_is_public_begins_with_an_example_and_says_what_it_returns_and_raises(name: str) -> None:
    public = getattr(pe_cli, name)
    text = inspect.getdoc(public) or ""
    assert text.split("\n\n")[1].startswith(">>> ") or inspect.isclass(public)
    if not inspect.isclass(public):
        headings = re.findall(r"^(\w+)\n-+$", text, re.MULTILINE)
        assert headings == ["Parameters", "Returns", "Raises"]
