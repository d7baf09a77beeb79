"""`read_forest`: trees from a file of any format."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pe_cli.errors import PeError
from pe_cli.structures.json_trees import read_json
from pe_cli.structures.opening import opened, whole_text
from pe_cli.structures.raw_trees import forest_of
from pe_cli.structures.syntax_files import HEAD_COLUMN, read_brackets, read_conllu, read_heads, read_python
from pe_cli.structures.tree import Forest

TreeFormat: TypeAlias = Literal["auto", "brackets", "conllu", "json", "heads", "python"]

READERS = {
    "brackets": read_brackets,
    "conllu": read_conllu,
    "json": read_json,
    "heads": read_heads,
    "python": read_python,
}
OPENING = {"(": "brackets", "{": "json", "[": "json"}


def read_forest(source: str, *, tree_format: TreeFormat = "auto") -> Forest:
    """Read trees from a file, or from standard input for `-`.

    Formats: Penn brackets, CoNLL-U, JSON (nested objects or lists, py150's flat list), heads (one number a node, from 1,
    0 = root), and, where the name ends in .py, Python source.

    Parameters
    ----------
    source : path, or - for standard input.
    tree_format : how the file is written; auto: Python by its name, others by content.

    Raises
    ------
    PeError
        For a file that cannot be read or understood: with line and column, and what would work.
    """
    with opened(source) as file:
        text = whole_text(file)
        label = file.label
    name = _recognised(text, label) if tree_format == "auto" else tree_format
    return forest_of(READERS[name](text, label), label)


def _recognised(text: str, label: str) -> str:
    if label.endswith((".py", ".py.gz")):
        return "python"
    start = text.lstrip()
    if not start:
        raise PeError(f"{label} is empty")
    if start[0] in OPENING:
        return OPENING[start[0]]
    line = next((line for line in start.split("\n") if line.strip() and not line.startswith("#")), "")
    if all(word.isdecimal() for word in line.replace(",", " ").split()):
        return "heads"
    if len(line.split()) > HEAD_COLUMN and line.split()[0][0].isdecimal():
        return "conllu"
    raise PeError(
        f"{label} begins with {line.strip()[:30]!r}: none of {', '.join(READERS)} by its looks; --tree-format says which"
    )
