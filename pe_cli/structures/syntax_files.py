"""Readers of trees in text: Penn brackets, CoNLL-U, heads, and Python source."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

import numpy as np

from pe_cli.errors import PeError
from pe_cli.structures.raw_trees import RawTree
from pe_cli.structures.tree import cyclic_nodes

BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
HEAD_COLUMN = 6
CONLLU_COLUMNS = 10
_TOKEN = re.compile(r"[()]|[^()\s]+")
_WORD_ID = re.compile(r"[1-9]\d*$")
_SKIPPED_ID = re.compile(r"\d+-\d+$|\d+\.\d+$")


def read_brackets(text: str, label: str) -> Iterator[RawTree]:
    """Trees as `(S (NP the cat) (VP sat))`: nodes in preorder, words are nodes too.

    An outer bracket without a label is left out unless it branches.
    """
    tree = RawTree()
    open_nodes: list[int] = []
    opened_at: list[int] = []
    fresh = False  # just behind an opening bracket, where a label may stand
    for match in _TOKEN.finditer(text):
        token, at = match[0], match.start()
        if token == "(":
            node = tree.add(open_nodes[-1] if open_nodes else -1, "")
            open_nodes.append(node)
            opened_at.append(at)
            fresh = True
            continue
        if not open_nodes:
            what = "a ')' that closes nothing" if token == ")" else f"{token[:30]!r} outside of brackets"
            raise PeError(f"{label} {_place(text, at)}: {what}")
        if token == ")":
            open_nodes.pop()
            opened_at.pop()
            if not open_nodes:
                yield tree.without_empty_top()
                tree = RawTree()
        elif fresh:
            tree.labels[open_nodes[-1]] = BRACKETS.get(token, token)
        else:
            tree.add(open_nodes[-1], BRACKETS.get(token, token))
        fresh = False
    if open_nodes:
        raise PeError(
            f"{label} {_place(text, opened_at[-1])}: this '(' is never closed, {len(open_nodes)} are missing ')'"
        )


def read_conllu(text: str, label: str) -> Iterator[RawTree]:
    """Sentences of CoNLL-U: one node a word; ranges as 1-2 and empty nodes as 8.1 are passed over."""
    words: list[tuple[int, str, int]] = []  # line, form, head
    for number, line in enumerate([*text.split("\n"), ""], 1):
        line = line.rstrip("\r")
        if not line.strip():
            if words:
                yield sentence(words, label)
            words = []
            continue
        if line.startswith("#"):
            continue
        where = f"{label} line {number}"
        columns = line.split("\t") if "\t" in line else line.split()
        if len(columns) <= HEAD_COLUMN:
            raise PeError(f"{where}: {len(columns)} columns, CoNLL-U has {CONLLU_COLUMNS}")
        if _SKIPPED_ID.match(columns[0]):
            continue
        if not _WORD_ID.match(columns[0]) or int(columns[0][:9]) != len(words) + 1:
            raise PeError(f"{where}: word id {columns[0][:20]!r}, expected {len(words) + 1}")
        head = columns[HEAD_COLUMN]
        if not head.isdecimal() or len(head) > 9:
            raise PeError(f"{where}: head {head[:20]!r} of word {columns[0]} is not a number")
        words.append((number, columns[1], int(head)))


def read_heads(text: str, label: str) -> Iterator[RawTree]:
    """Heads counted from 1, 0 for the root: a tree on each line, or one number a line and empty lines between trees."""
    lines = [(number, line.replace(",", " ").split()) for number, line in enumerate(text.split("\n"), 1)]
    lines = [(number, words) for number, words in lines if not (words and words[0].startswith("#"))]
    down = all(len(words) <= 1 for _, words in lines)
    group: list[tuple[int, str]] = []
    for number, words in [*lines, (0, [])]:
        if words and down:
            group.append((number, words[0]))
            continue
        tree = group if down else [(number, word) for word in words]
        group = []
        if tree:
            yield sentence([(at, "", _head(word, f"{label} line {at}")) for at, word in tree], label)


def read_python(text: str, label: str) -> Iterator[RawTree]:
    """The syntax tree of Python source, in preorder, without the contexts Load, Store and Del."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on escapes and the like in the source that is read
            root = ast.parse(text)
    except SyntaxError as trouble:
        raise PeError(f"{label} line {trouble.lineno}, column {trouble.offset}: {trouble.msg}") from None
    except (RecursionError, MemoryError, ValueError) as trouble:
        raise PeError(f"{label} cannot be parsed as Python: {trouble or 'it is nested too deeply'}") from None
    tree = RawTree()
    waiting: list[tuple[ast.AST, int]] = [(root, -1)]
    while waiting:
        node, parent = waiting.pop()
        place = tree.add(parent, type(node).__name__)
        inner = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)]
        waiting.extend((child, place) for child in reversed(inner))
    yield tree


def sentence(words: list[tuple[int, str, int]], label: str) -> RawTree:
    """The tree of (line, form, head from 1); errors for heads that make none."""
    roots = [(line, place) for place, (line, _, head) in enumerate(words, 1) if head == 0]
    for place, (line, _, head) in enumerate(words, 1):
        if head > len(words):
            raise PeError(
                f"{label} line {line}: head {head} of word {place}, the tree has {len(words)} words"
            )
        if head == place:
            raise PeError(f"{label} line {line}: word {place} is its own head")
    if len(roots) > 1:
        line, place = roots[1]
        raise PeError(
            f"{label} line {line}: word {place} is a second root beside word {roots[0][1]}; a tree has one"
        )
    parents = np.array([head - 1 for _, _, head in words], dtype=np.int64)
    stuck = cyclic_nodes(parents)
    if stuck.size:
        place = int(stuck[0])
        raise PeError(
            f"{label} line {words[place][0]}: the heads of word {place + 1} run in a circle, no root is reached"
        )
    return RawTree(parents.tolist(), [form for _, form, _ in words])


def _head(word: str, where: str) -> int:
    if not word.isdecimal() or len(word) > 9:
        raise PeError(f"{where}: head {word[:20]!r} is not a number from 0 (the root) on")
    return int(word)


def _place(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"
