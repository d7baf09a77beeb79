"""Write the reference, one page per command, from the commands themselves: `python tools/make_reference.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

sys.path.insert(0, str(Path(__file__).parent.parent))  # this repository and not a package that is installed

from pe_cli.catalogue import CATALOGUE, FAMILIES
from pe_cli.cli import app

FOLDER = Path(__file__).parent.parent / "docs" / "reference"
WIDTH = 100


def pages() -> dict[str, str]:
    """Each page by file name, with its text."""
    texts = {
        f"{'-'.join(words)}.md": page(words, text)
        for words, text in walk(typer.main.get_command(app), ("pe",))
    }
    return {"README.md": contents(texts), **texts}


def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every command with the text of its help."""
    context = command.context_class(
        command, info_name=" ".join(words), terminal_width=WIDTH, max_content_width=WIDTH
    )
    yield words, command.get_help(context)
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        yield from walk(command.get_command(context, name), (*words, name))


def page(words: tuple[str, ...], text: str) -> str:
    return f"# {' '.join(words)}\n\n```text\n{text.rstrip()}\n```\n"


def contents(texts: dict[str, str]) -> str:
    lines = ["# Reference", "", "One page per command, as `--help` prints it.", ""]
    lines += [
        f"- [{name}]({name.replace(' ', '-')}.md)"
        for name in ("pe", "pe inspect", "pe extend", "pe diff", "pe gen")
    ]
    for family, heading in FAMILIES.items():
        lines += ["", f"## {heading}", ""]
        lines += [
            f"- [{name}](pe-gen-{name}.md): {entry.summary}"
            for name, entry in CATALOGUE.items()
            if entry.family == family
        ]
    lines += [
        "",
        "## Any model",
        "",
        "- [model](pe-gen-model.md): the encoding of a model, from its config.json or .gguf",
    ]
    assert all(f"]({name})" in "\n".join(lines) for name in texts), "a page is missing from the contents"
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the pages, or with --check only say whether they are current."""
    wanted = pages()
    current = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    if "--check" in sys.argv:
        stale = sorted(
            name for name in wanted.keys() | current.keys() if wanted.get(name) != current.get(name)
        )
        sys.exit(f"not current: {', '.join(stale)}; run python tools/make_reference.py" if stale else 0)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in current.keys() - wanted.keys():
        (FOLDER / name).unlink()
    for name, text in wanted.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
