"""Trees from files (brackets, CoNLL-U, heads, JSON, Python source), and from lists of heads."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.files.text import opened, parse_json, whole_text
from pe_cli.signature import Meaning
from pe_cli.structures.forest import Forest, RawTree, cyclic_nodes, forest_of

LABEL_KEYS = ("label", "type", "name", "tag", "value", "text", "token")
CHILDREN = "children"


def read_json(text: str, label: str, values: bool) -> Iterator[RawTree | PeError]:
    """Every tree of a JSON document, or of each line where each line is one."""
    for where, document in _documents(text, label):
        yield from _trees(document, where, values)


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


def _trees(document: Any, where: str, values: bool) -> Iterator[RawTree | PeError]:
    """One tree, or several where a list begins with an object or a list."""
    if isinstance(document, list) and document and not _is_flat(document):
        lists = document if isinstance(document[0], list) else [document]
        if all(map(_is_heads, lists)):
            for heads in lists:
                yield from read_heads(" ".join(map(str, heads)), where, values)
            return
        if isinstance(document[0], (dict, list)):
            if len(document) > 1 and all(
                isinstance(item, dict) and CHILDREN not in item for item in document
            ):
                raise PeError(
                    f"{where}: none of these {len(document)} objects has {CHILDREN!r}, a list of objects or of their numbers"
                )
            for place, item in enumerate(document):
                yield _tree(item, f"{where}, tree {place}", values)
            return
    yield _tree(document, where, values)


def _is_heads(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def _tree(document: Any, where: str, values: bool) -> RawTree:
    if not isinstance(document, (dict, list)) or not document:
        raise PeError(
            f"{where}: a tree is an object with 'children', a list [label, child, …], or a list of heads"
        )
    if isinstance(document, list) and _is_flat(document):
        return _flat(document, where)
    if isinstance(document, dict) and not {CHILDREN, *LABEL_KEYS} & document.keys():
        raise PeError(f"{where}: the object has neither {CHILDREN!r} nor a label ({', '.join(LABEL_KEYS)})")
    if isinstance(document, dict) and CHILDREN not in document:
        _refuse_other_keys(document, where, whole=True)
    return _nested(document, where, values)


def _refuse_other_keys(node: dict[str, Any], where: str, *, whole: bool = False) -> None:
    """An error for nodes that hang on a node by another key than `children`.

    Other objects are attributes, except where the `whole` tree is without children: then they must be nodes.
    """
    for key, value in node.items():
        inner = value if isinstance(value, list) else [value]
        objects = [item for item in inner if isinstance(item, dict)]
        if key != CHILDREN and objects and (whole or any(CHILDREN in item for item in objects)):
            raise PeError(
                f"{where}: {_label(node)[:30]!r} has an object under {key[:30]!r}, and nodes are read from {CHILDREN!r} only"
            )


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


def _nested(document: Any, where: str, values: bool) -> RawTree:
    """A tree of objects, lists, and leaves that are plain values, in preorder."""
    tree = RawTree()
    waiting: list[tuple[Any, int]] = [(document, -1)]
    while waiting:
        value, parent = waiting.pop()
        if isinstance(value, dict):
            children = value.get(CHILDREN) or []
            if not isinstance(children, list):
                raise PeError(f"{where}: 'children' of {_label(value)[:30]!r} is not a list")
            _refuse_other_keys(value, where)
            if values and not children and isinstance(value.get("value"), (str, int, float)):
                children = [str(value["value"])]
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
DEPS_COLUMN = 8
CONLLU_COLUMNS = 10
_TOKEN = re.compile(r"[()]|[^()\s]+")
_WORD_ID = re.compile(r"[1-9]\d*$")
_SENTENCE_ID = re.compile(r"#\s*sent_id\s*=(.*)")
_FROM_ZERO = "; are these heads counted from 0? Heads count from 1, and 0 is the root"
_COMMENTS = ("type_comment", "kind")
_SKIPPED_ID = re.compile(r"\d+-\d+$|\d+\.\d+$")


def read_brackets(text: str, label: str, values: bool) -> Iterator[RawTree | PeError]:
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


def read_conllu(text: str, label: str, values: bool) -> Iterator[RawTree | PeError]:
    """Sentences of CoNLL-U: one node a word; ranges as 1-2 and empty nodes as 8.1 are passed over."""
    for which, lines in sentences(text, label):
        words: list[tuple[int, str, int]] = []  # line, form, head
        trouble: PeError | None = None
        for number, columns in lines:
            found = _word(columns, len(words) + 1, f"{which}, line {number}")
            if isinstance(found, PeError):
                trouble = found
                break
            if found is not None:
                words.append((number, *found))
        if words or trouble:
            yield trouble or sentence(words, which)


def sentences(text: str, label: str) -> Iterator[tuple[str, list[tuple[int, list[str]]]]]:
    """The sentences of CoNLL-U with a name for messages: the numbers of their lines, and the columns of each."""
    lines: list[tuple[int, list[str]]] = []
    count, name = 1, ""
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if not line.strip():
            if lines:
                yield f"{label}, sentence {count}{name}", lines
                count += 1
            lines, name = [], ""
        elif line.startswith("#"):
            if (given := _SENTENCE_ID.match(line)) is not None:
                name = f" ({given[1].strip()[:40]})"
        else:
            lines.append((number, line.split("\t") if "\t" in line else line.split()))


def enhanced_graphs(text: str, label: str) -> Iterator[tuple[int, list[tuple[int, int]], int]]:
    """(nodes, edges from head to word, words without) of each sentence by its enhanced dependencies, the column DEPS.

    Nodes are the words and the empty nodes (8.1) in the order of the file. A word without enhanced dependencies has its
    head; the root is no edge.
    """
    for which, lines in sentences(text, label):
        place: dict[str, int] = {}
        words = 0
        for number, columns in lines:
            where = f"{which}, line {number}"
            found = _word(columns, words + 1, where)
            if isinstance(found, PeError):
                raise found
            words += found is not None
            if found is not None or "." in columns[0]:
                if len(columns) < CONLLU_COLUMNS:
                    raise PeError(f"{where}: {len(columns)} columns, CoNLL-U has {CONLLU_COLUMNS}")
                place[columns[0]] = len(place)
        edges, without = [], 0
        for number, columns in lines:
            if columns[0] not in place:
                continue
            given = columns[DEPS_COLUMN]
            without += given == "_"
            for one in given.split("|") if given != "_" else [columns[HEAD_COLUMN]]:
                head = one.partition(":")[0]
                if head not in place and head not in ("0", "_"):
                    raise PeError(
                        f"{which}, line {number}: the sentence has no word {head[:20]!r}, which {columns[0]} depends on"
                    )
                if head in place:
                    edges.append((place[head], place[columns[0]]))
        yield len(place), edges, without


def _word(columns: list[str], expected: int, where: str) -> tuple[str, int] | PeError | None:
    """The form and head of a word; None for a range or an empty node."""
    if len(columns) <= HEAD_COLUMN:
        return PeError(f"{where}: {len(columns)} columns, CoNLL-U has {CONLLU_COLUMNS}")
    if _SKIPPED_ID.match(columns[0]):
        return None
    if not _WORD_ID.match(columns[0]) or int(columns[0][:9]) != expected:
        return PeError(f"{where}: word id {columns[0][:20]!r}, expected {expected}")
    head = columns[HEAD_COLUMN]
    if not head.isdecimal() or len(head) > 9:
        return PeError(
            f"{where}: head {head[:20]!r} of word {columns[0]} is not a number{_FROM_ZERO if head == '-1' else ''}"
        )
    return columns[1], int(head)


def read_heads(text: str, label: str, values: bool) -> Iterator[RawTree | PeError]:
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
            wrong = next(((at, word) for at, word in tree if not word.isdecimal() or len(word) > 9), None)
            if wrong is not None:
                at, word = wrong
                yield PeError(
                    f"{label} line {at}: head {word[:20]!r} is not a number from 0 (the root) on"
                    f"{_FROM_ZERO if word == '-1' else ''}"
                )
            else:
                yield sentence([(at, "", int(word)) for at, word in tree], label)


def read_python(text: str, label: str, values: bool) -> Iterator[RawTree | PeError]:
    """The syntax tree of Python source, in preorder, without the contexts Load, Store and Del.

    With `values` names and constants are leaves of their own.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on escapes and the like in the source that is read
            root = ast.parse(text)
    except SyntaxError as trouble:
        raise PeError(f"{label} line {trouble.lineno}, column {trouble.offset}: {trouble.msg}") from None
    except (RecursionError, MemoryError, ValueError) as trouble:
        raise PeError(f"{label} cannot be parsed as Python: {trouble or 'it is nested too deeply'}") from None
    tree = RawTree()
    waiting: list[tuple[Any, int]] = [(root, -1)]
    while waiting:
        node, parent = waiting.pop()
        if not isinstance(node, ast.AST):
            tree.add(parent, str(node))
            continue
        place = tree.add(parent, type(node).__name__)
        inner = _fields(node) if values else ast.iter_child_nodes(node)
        waiting.extend(
            (child, place) for child in reversed([*inner]) if not isinstance(child, ast.expr_context)
        )
    yield tree


def _fields(node: ast.AST) -> Iterator[Any]:
    """The nodes below, and the names and constants that stand in this one."""
    for field_name, value in ast.iter_fields(node):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, ast.AST) or (isinstance(item, str) and field_name not in _COMMENTS):
                yield item if isinstance(item, ast.AST) or not isinstance(node, ast.Constant) else repr(item)
            elif isinstance(node, ast.Constant) and field_name == "value":
                yield repr(item)


def sentence(words: list[tuple[int, str, int]], label: str) -> RawTree | PeError:
    """The tree of (line, form, head from 1), or the error for heads that make none."""
    heads = [head for _, _, head in words]
    roots = [(line, place) for place, (line, _, head) in enumerate(words, 1) if head == 0]
    hint = "" if len(roots) == 1 and max(heads) <= len(words) else _counted_from_zero(heads)
    for place, (line, _, head) in enumerate(words, 1):
        if head > len(words):
            return PeError(
                f"{label} line {line}: head {head} of word {place}, the tree has {len(words)} words{hint}"
            )
        if head == place:
            return PeError(
                f"{label} line {line}: word {place} is its own head{hint or _counted_from_zero(heads)}"
            )
    if len(roots) > 1:
        line, place = roots[1]
        return PeError(
            f"{label} line {line}: word {place} is a second root beside word {roots[0][1]}; a tree has one{hint}"
        )
    parents = np.array([head - 1 for head in heads], dtype=np.int64)
    stuck = cyclic_nodes(parents)
    if stuck.size:
        place = int(stuck[0])
        return PeError(
            f"{label} line {words[place][0]}: the heads of word {place + 1} run in a circle, no root is reached"
            f"{_counted_from_zero(heads)}"
        )
    return RawTree(parents.tolist(), [form for _, form, _ in words])


def _counted_from_zero(heads: list[int]) -> str:
    """A hint where the heads are a tree if they are counted from 0, the root being its own head."""
    parents = np.array(heads, dtype=np.int64)
    own = np.flatnonzero(parents == np.arange(len(heads)))
    if len(own) != 1 or parents.max(initial=0) >= len(heads):
        return ""
    parents[own] = -1
    return "" if cyclic_nodes(parents).size else _FROM_ZERO


def _place(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}, column {at - text.rfind(chr(10), 0, at)}"


TreeFormat: TypeAlias = Literal["auto", "brackets", "conllu", "json", "heads", "python"]
TREE_READERS = {
    "brackets": read_brackets,
    "conllu": read_conllu,
    "json": read_json,
    "heads": read_heads,
    "python": read_python,
}
OPENING = {"(": "brackets", "{": "json", "[": "json"}
Traces: TypeAlias = Literal["keep", "drop"]


def read_forest(
    source: str,
    *,
    tree_format: TreeFormat = "auto",
    skip_bad: bool = False,
    traces: Traces = "keep",
    values: bool = False,
) -> Forest:
    """Read trees from a file, or from standard input for `-`.

    >>> with open("words.heads", "w") as file:
    ...     _ = file.write("2 0 2\\n")
    >>> read_forest("words.heads").parents.tolist()
    [1, -1, 1]

    Formats: Penn brackets, CoNLL-U, JSON (nested objects or lists, py150's flat list), heads (one number a node, from 1,
    0 = root), and, where the name ends in .py, Python source.

    Parameters
    ----------
    source : path, or - for standard input.
    tree_format : how the file is written; auto: Python by its name, others by content.
    skip_bad : leave out sentences that are no tree, and say how many; else they are an error.
    traces : keep or drop the leaves below -NONE-, and constituents that then hold no word.
    values : names and constants of Python source, and the `value` of JSON leaves, are leaves of their own.

    Returns
    -------
    Forest : the trees in the order of the file.

    Raises
    ------
    PeError
        For a file that cannot be read or understood: with line and column, and what would work.
    """
    with opened(source) as file:
        text = whole_text(file)
        label = file.label
    name = _recognised(text, label) if tree_format == "auto" else tree_format
    found = TREE_READERS[name](text, label, values)
    return forest_of(found, label, skip_bad=skip_bad, drop_traces=traces == "drop")


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
        f"{label} begins with {line.strip()[:30]!r}: none of {', '.join(TREE_READERS)} by its looks; {parameter('tree_format')} says which"
    )


ForestLike: TypeAlias = Annotated[Forest | NDArray[Any] | list[Any], Meaning.FOREST]


def as_forest(given: ForestLike) -> Forest:
    """The tree of a list of heads, counted from 1 and 0 for the root, or the trees of a list of such lists.

    As the lines of a .heads file; a Forest is returned as it is.
    """
    if isinstance(given, Forest):
        return given
    trees = list(given)
    if not trees:
        raise PeError("heads are empty: give the head of each node, counted from 1, and 0 for the root")
    if np.ndim(trees[0]) == 0:
        trees = [trees]
    return forest_of(
        (sentence(_heads(tree, number), "heads") for number, tree in enumerate(trees, 1)), "heads"
    )


def _heads(tree: Any, number: int) -> list[tuple[int, str, int]]:
    heads = np.asarray(tree)
    if heads.ndim != 1 or heads.dtype.kind not in "iu" or (heads < 0).any():
        raise PeError(
            f"heads of tree {number} are {heads.dtype} {list(heads.shape)}: whole numbers from 1 are needed, 0 for the root"
        )
    return [(number, "", int(head)) for head in heads]
