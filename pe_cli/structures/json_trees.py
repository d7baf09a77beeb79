"""Trees in JSON: nested objects or lists, the flat list of py150, a list of heads; one document or one a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from pe_cli.errors import PeError
from pe_cli.structures.raw_trees import RawTree
from pe_cli.structures.syntax_files import read_heads
from pe_cli.structures.tree import cyclic_nodes

LABEL_KEYS = ("label", "type", "name", "tag", "value", "text", "token")
CHILDREN = "children"
_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|true|false|null')


def read_json(text: str, label: str) -> Iterator[RawTree]:
    """Every tree of a JSON document, or of each line where each line is one."""
    for where, document in _documents(text, label):
        yield from _trees(document, where)


def _documents(text: str, label: str) -> Iterator[tuple[str, Any]]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > 1 and _is_whole(lines[0][1]):
        for number, line in lines:
            yield f"{label} line {number}", _decoded(line, label, number)
    else:
        yield label, _decoded(text, label, 1)


def _is_whole(line: str) -> bool:
    try:
        json.loads(line)
    except RecursionError:
        return line.count("[") == line.count("]") and line.count("{") == line.count("}")
    except ValueError:
        return False
    return True


def _decoded(text: str, label: str, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as trouble:
        line, column = trouble.lineno + first_line - 1, trouble.colno
        raise PeError(f"{label} line {line}, column {column}: {trouble.msg}") from None
    except RecursionError:
        return _decoded_deep(text, label, first_line)
    except ValueError as trouble:
        raise PeError(f"{label} line {first_line}: {trouble}") from None


def _decoded_deep(text: str, label: str, first_line: int) -> Any:
    """What json.loads gives, for text that is nested deeper than Python's stack."""
    open_values: list[Any] = []
    keys: list[str | None] = []
    key: str | None = None
    at = _SPACE.match(text, 0).end()  # type: ignore[union-attr]
    while at < len(text):
        mark = text[at]
        value: Any
        if mark in "[{":
            value = [] if mark == "[" else {}
            _put(open_values, key, value)
            open_values.append(value)
            keys.append(key)
            key = None
            at += 1
        elif mark in "]}" and open_values and isinstance(open_values[-1], list) == (mark == "]"):
            value = open_values.pop()
            keys.pop()
            key = None
            at += 1
            if not open_values:
                if text[at:].strip():
                    break
                return value
        elif mark == "," and open_values:
            at += 1
        else:
            match = _SCALAR.match(text, at)
            if not match or not open_values:
                break
            value = json.loads(match[0])
            at = _SPACE.match(text, match.end()).end()  # type: ignore[union-attr]
            if isinstance(open_values[-1], dict) and key is None and text[at : at + 1] == ":":
                key = str(value)
                at += 1
            elif isinstance(open_values[-1], dict) and key is None:
                break
            else:
                _put(open_values, key, value)
                key = None
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
    line = first_line + text.count("\n", 0, at)
    raise PeError(f"{label} line {line}, column {at - text.rfind(chr(10), 0, at)}: this is not JSON")


def _put(open_values: list[Any], key: str | None, value: Any) -> None:
    if open_values:
        if isinstance(open_values[-1], list):
            open_values[-1].append(value)
        elif key is not None:
            open_values[-1][key] = value


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
