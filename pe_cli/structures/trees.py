"""Trees as arrays of parents, one after the other, and their readers: brackets, CoNLL-U, heads, JSON, Python source."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.files.text import parse_json
from pe_cli.memory import require_memory
from pe_cli.structures.graph import fingerprint

BYTES_A_NODE = 200
CHECKED_EVERY = 1 << 16


@dataclass
class RawTree:
    """Parents (-1 for the root) and labels; `ranks` where children are not in the order of their numbers."""

    parents: list[int] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    ranks: list[int] | None = None

    def add(self, parent: int, label: str) -> int:
        """A new node; its number."""
        self.parents.append(parent)
        self.labels.append(label)
        if len(self.parents) % CHECKED_EVERY == 0:
            require_memory(
                len(self.parents) * BYTES_A_NODE,
                f"a tree of {len(self.parents):,} nodes so far",
                "take a smaller one",
            )
        return len(self.parents) - 1

    def without_empty_top(self) -> RawTree:
        """The tree without roots that have neither a label nor more than one child."""
        children = np.bincount(np.array(self.parents[1:], dtype=np.int64), minlength=len(self.parents))
        top = 0
        while top + 1 < len(self.parents) and not self.labels[top] and children[top] == 1:
            top += 1
        if not top:
            return self
        return RawTree([max(parent - top, -1) for parent in self.parents[top:]], self.labels[top:])


def forest_of(trees: Iterable[RawTree], label: str) -> Forest:
    """The trees one after the other."""
    parents: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    ranks: list[list[int] | None] = []
    labels: list[str] = []
    starts = [0]
    for tree in trees:
        own = np.array(tree.parents, dtype=np.int64)
        parents.append(np.where(own < 0, -1, own + starts[-1]))
        ranks.append(tree.ranks)
        labels.extend(tree.labels)
        starts.append(starts[-1] + len(own))
        require_memory(
            starts[-1] * BYTES_A_NODE, f"{label} with {starts[-1]:,} nodes so far", "take a part of it"
        )
    if not parents:
        raise PeError(f"{label} holds no tree")
    forest = Forest.of(np.concatenate(parents), np.array(starts, dtype=np.int64), tuple(labels))
    for start, own_ranks in zip(starts, ranks, strict=False):
        if own_ranks is not None:
            forest.ranks[start : start + len(own_ranks)] = own_ranks
    return forest


@dataclass(frozen=True, eq=False, repr=False)
class Forest:
    """Trees whose nodes are numbered one tree after the other, in the order of the file.

    `parents` (n,) are node numbers, -1 for a root. Tree t holds the nodes starts[t] to starts[t + 1] - 1.
    `ranks` (n,) count the children of a node from 0, left to right. `labels` are what the file calls the nodes.
    """

    parents: NDArray[np.int64]
    starts: NDArray[np.int64]
    ranks: NDArray[np.int64]
    labels: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, parents: NDArray[np.int64], starts: NDArray[np.int64], labels: tuple[str, ...] = ()
    ) -> Forest:
        """The forest in which the children of a node stand in the order of their numbers."""
        return cls(parents, starts, _ranks(parents), labels)

    def __post_init__(self) -> None:
        stuck = self.cyclic
        if stuck.size:
            raise PeError(f"node {stuck[0]} is its own ancestor: this is not a tree")

    def __repr__(self) -> str:
        return (
            f"Forest({self.num_trees} trees, {self.num_nodes} nodes, {fingerprint(self.parents, self.ranks)})"
        )

    @property
    def num_nodes(self) -> int:
        return len(self.parents)

    @property
    def num_trees(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def tree_of(self) -> NDArray[np.int64]:
        """(n,) the number of each node's tree."""
        return np.repeat(np.arange(self.num_trees), np.diff(self.starts))

    @cached_property
    def cyclic(self) -> NDArray[np.int64]:
        """The nodes from which no root is reached."""
        return cyclic_nodes(self.parents)

    @cached_property
    def depths(self) -> NDArray[np.int64]:
        """(n,) the number of steps from the root of each node's tree, by doubling steps."""
        above = np.where(self.parents < 0, np.arange(self.num_nodes), self.parents)
        depth = (self.parents >= 0).astype(np.int64)
        while (further := depth[above]).any():
            depth += further
            above = above[above]
        return depth

    @cached_property
    def child_counts(self) -> NDArray[np.int64]:
        """(n,) the number of children of each node."""
        return np.bincount(self.parents[self.parents >= 0], minlength=self.num_nodes)


def cyclic_nodes(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nodes of a parent vector from which no root is reached."""
    above = np.where(parents < 0, np.arange(len(parents)), parents)
    steps = 1
    while steps <= len(parents):
        above = above[above]
        steps *= 2
    return np.flatnonzero(parents[above] >= 0)


def _ranks(parents: NDArray[np.int64]) -> NDArray[np.int64]:
    order = np.argsort(parents, kind="stable")
    grouped = parents[order]
    first = np.searchsorted(grouped, grouped, side="left")
    ranks = np.empty(len(parents), dtype=np.int64)
    ranks[order] = np.arange(len(parents)) - first
    ranks[parents < 0] = 0
    return ranks


LABEL_KEYS = ("label", "type", "name", "tag", "value", "text", "token")
CHILDREN = "children"


def read_json(text: str, label: str) -> Iterator[RawTree]:
    """Every tree of a JSON document, or of each line where each line is one."""
    for where, document in _documents(text, label):
        yield from _trees(document, where)


def _documents(text: str, label: str) -> Iterator[tuple[str, Any]]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > 1 and _is_whole(lines[0][1]):
        for number, line in lines:
            yield f"{label} line {number}", parse_json(line, label, line=number)
    else:
        yield label, parse_json(text, label)


def _is_whole(line: str) -> bool:
    try:
        parse_json(line, "")
    except PeError:
        return False
    return True


def _trees(document: Any, where: str) -> Iterator[RawTree]:
    """One tree, or several where a list begins with an object or a list."""
    if isinstance(document, list) and document and not _is_flat(document):
        if all(isinstance(item, int) and not isinstance(item, bool) for item in document):
            yield from read_heads(" ".join(map(str, document)), where)
            return
        if isinstance(document[0], (dict, list)):
            for place, item in enumerate(document):
                yield _tree(item, f"{where}, tree {place}")
            return
    yield _tree(document, where)


def _tree(document: Any, where: str) -> RawTree:
    if not isinstance(document, (dict, list)) or not document:
        raise PeError(
            f"{where}: a tree is an object with 'children', a list [label, child, …], or a list of heads"
        )
    if isinstance(document, list) and _is_flat(document):
        return _flat(document, where)
    return _nested(document, where)


def _is_flat(document: list[Any]) -> bool:
    """Whether this is a list of nodes whose children are numbers, as in py150; it may end with a 0."""
    nodes = [item for item in document if isinstance(item, dict)]
    children = [node[CHILDREN] for node in nodes if isinstance(node.get(CHILDREN), list) and node[CHILDREN]]
    return bool(children) and all(isinstance(child, int) for child in children[0])


def _flat(document: list[Any], where: str) -> RawTree:
    nodes = [item for item in document if isinstance(item, dict)]
    parents, ranks = [-1] * len(nodes), [0] * len(nodes)
    for place, node in enumerate(nodes):
        children = node.get(CHILDREN, [])
        if not isinstance(children, list):
            raise PeError(f"{where}, node {place}: 'children' is not a list")
        for rank, child in enumerate(children):
            if not isinstance(child, int) or not 0 < child < len(nodes):
                raise PeError(
                    f"{where}, node {place}: child {child!r}, there are nodes 1 to {len(nodes) - 1}"
                )
            if parents[child] >= 0:
                raise PeError(f"{where}, node {place}: node {child} is a child of node {parents[child]} too")
            parents[child], ranks[child] = place, rank
    loose = [place for place in range(1, len(nodes)) if parents[place] < 0]
    if loose:
        raise PeError(f"{where}, node {loose[0]}: no node has it as a child; a tree has one root, node 0")
    stuck = cyclic_nodes(np.array(parents, dtype=np.int64))
    if stuck.size:
        raise PeError(f"{where}, node {stuck[0]}: it is its own descendant")
    return RawTree(parents, [_label(node) for node in nodes], ranks)


def _nested(document: Any, where: str) -> RawTree:
    """A tree of objects, lists, and leaves that are plain values, in preorder."""
    tree = RawTree()
    waiting: list[tuple[Any, int]] = [(document, -1)]
    while waiting:
        value, parent = waiting.pop()
        if isinstance(value, dict):
            children = value.get(CHILDREN) or []
            if not isinstance(children, list):
                raise PeError(f"{where}: 'children' of {_label(value)[:30]!r} is not a list")
            node = tree.add(parent, _label(value))
        elif isinstance(value, list):
            labelled = bool(value) and not isinstance(value[0], (list, dict))
            node = tree.add(parent, str(value[0]) if labelled else "")
            children = value[1:] if labelled else value
        else:
            node, children = tree.add(parent, str(value)), []
        waiting.extend((child, node) for child in reversed(children))
    return tree


def _label(node: dict[str, Any]) -> str:
    return next((str(node[key]) for key in LABEL_KEYS if isinstance(node.get(key), (str, int, float))), "")


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
