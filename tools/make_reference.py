"""Write the reference and the manual, a page for each command, from the commands themselves.

`python tools/make_reference.py` writes `docs/reference/` and `man/`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

sys.path.insert(0, str(Path(__file__).parent.parent))  # this repository and not a package that is installed

from pe_cli.catalogue import CATALOGUE, FAMILIES
from pe_cli.cli import app
from pe_cli.first import __version__

ROOT = Path(__file__).parent.parent
FOLDER, MANUAL = ROOT / "docs" / "reference", ROOT / "man"
WIDTH = 100


def pages() -> dict[str, str]:
    """Each page by file name, with its text."""
    texts = {
        f"{'-'.join(words)}.md": page(words, command.get_help(context)) for words, command, context in walk()
    }
    return {"README.md": contents(texts), **texts}


def walk(command: Any = None, words: tuple[str, ...] = ("pe",)) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Every command by its words, with the context in which it prints its help."""
    command = command or typer.main.get_command(app)
    context = command.context_class(
        command, info_name=" ".join(words), terminal_width=WIDTH, max_content_width=WIDTH
    )
    yield words, command, context
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


def manual() -> dict[str, str]:
    """Each page of the manual by file name, as `man` reads it."""
    return {f"{'-'.join(words)}.1": man_page(words, command, context) for words, command, context in walk()}


def man_page(words: tuple[str, ...], command: Any, context: Any) -> str:
    """One page: name, synopsis, description, example, and the options under their headings."""
    name = "-".join(words)
    first, *more = (part.strip("\n") for part in inspect.cleandoc(command.help or "").split("\n\n"))
    examples = [part for part in more if part.startswith("\b")]
    lines = [f'.TH {_roff(name.upper())} 1 "" "pe {__version__}" "Positional encodings"', ".SH NAME"]
    lines += [f"{_roff(name)} \\- {_roff(' '.join(first.split()).rstrip('.'))}", ".SH SYNOPSIS"]
    lines += [_roff(" ".join([" ".join(words), *command.collect_usage_pieces(context)]))]
    described = [part for part in more if part not in examples]
    if described:
        lines += [
            ".SH DESCRIPTION",
            *(line for part in described for line in (".PP", _roff(" ".join(part.split())))),
        ]
    for part in examples:
        lines += [".SH EXAMPLES", ".nf", *(_roff(line.strip()) for line in part.splitlines()[2:]), ".fi"]
    sections: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record:
            sections.setdefault(getattr(parameter, "rich_help_panel", None) or "Help", []).append(record)
    for below, lazy in getattr(command, "lazy", {}).items():
        sections.setdefault(lazy.heading, []).append((below, f"{lazy.summary}; see {name}-{below}(1)"))
    for heading, records in sections.items():
        lines.append(f'.SH "{_roff(heading.upper())}"')
        lines += [
            line
            for typed, text in records
            for line in (".TP", f".B {_roff(typed)}", _roff(" ".join(text.split())))
        ]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    """Text in which nothing is a request or an escape of roff."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


MADE = ((FOLDER, "*.md", pages), (MANUAL, "*.1", manual))


def main() -> None:
    """Write the pages of the reference and of the manual."""
    for folder, pattern, make in MADE:
        wanted = make()
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob(pattern):
            if path.name not in wanted:
                path.unlink()
        for name, text in wanted.items():
            (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
