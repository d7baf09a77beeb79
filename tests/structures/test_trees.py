"""Every tree format, read and broken."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.structures import Forest, read_forest

CAT = [-1, 0, 1, 1, 0, 4]
CAT_LABELS = ("S", "NP", "the", "cat", "VP", "sat")


@pytest.mark.parametrize(
    "text",
    [
        "(S (NP the cat) (VP sat))",
        "( (S (NP the cat)\n  (VP sat)) )",
        '["S", ["NP", "the", "cat"], ["VP", "sat"]]',
        '{"label": "S", "children": [{"type": "NP", "children": ["the", {"name": "cat"}]}, {"tag": "VP", "children": ["sat"]}]}',
        '[{"type": "S", "children": [1, 4]}, {"type": "NP", "children": [2, 3]}, {"value": "the"}, {"value": "cat"},'
        ' {"type": "VP", "children": [5]}, {"value": "sat"}, 0]',
    ],
)
def test_one_tree_in_every_form(write, text):
    for content in (text, gzip.compress(text.encode())):
        forest = read_forest(write(content))
        assert forest.parents.tolist() == CAT
        assert forest.labels == CAT_LABELS
        assert forest.ranks.tolist() == [0, 0, 0, 1, 1, 0]
        assert forest.depths.tolist() == [0, 1, 2, 2, 1, 2]
        assert forest.child_counts.tolist() == [2, 2, 0, 0, 1, 0]


def test_brackets_in_words_and_an_outer_bracket_that_branches(write):
    assert read_forest(write("(X -LRB- a -RRB-)")).labels == ("X", "(", "a", ")")
    assert read_forest(write("((A b) (C d))")).labels == ("", "A", "b", "C", "d")


@pytest.mark.parametrize(
    "text", ["(A b)\n(C (D e))", '["A", "b"]\n["C", ["D", "e"]]\n', '[["A", "b"], ["C", ["D", "e"]]]']
)
def test_several_trees(write, text):
    forest = read_forest(write(text))
    assert forest.starts.tolist() == [0, 2, 5]
    assert forest.parents.tolist() == [-1, 0, -1, 2, 3]
    assert forest.tree_of.tolist() == [0, 0, 1, 1, 1]


def word(number, form, head):
    return f"{number}\t{form}\t_\t_\t_\t_\t{head}\t_\t_\t_\n"


SENTENCE = (
    "# sent_id = 1\n" + word("1-2", "vámonos", "_") + word(1, "vamos", 0) + word(2, "nos", 1) + word("2.1", "x", "_")
    + word(3, "al", 1)
)  # fmt: skip


def test_conllu_without_ranges_and_empty_nodes(write):
    forest = read_forest(write(SENTENCE + "\n" + word(1, "ya", 0)))
    assert forest.parents.tolist() == [-1, 0, 0, -1]
    assert forest.labels == ("vamos", "nos", "al", "ya")
    assert forest.starts.tolist() == [0, 3, 4]


@pytest.mark.parametrize(
    "text", ["0 1 1 2 2\n", "0\n1\n1\n2\n2\n", "0,1,1,2,2", "[0, 1, 1, 2, 2]", "# heads\n0 1 1 2 2"]
)
def test_heads(write, text):
    forest = read_forest(write(text))
    assert forest.parents.tolist() == [-1, 0, 0, 1, 1]
    assert forest.ranks.tolist() == [0, 0, 1, 0, 1]


def test_heads_of_several_trees(write):
    assert read_forest(write("0 1\n0\n2 0\n")).parents.tolist() == [-1, 0, -1, 4, -1]
    assert read_forest(write("0\n1\n\n0\n")).starts.tolist() == [0, 2, 3]


def test_python_source(write):
    forest = read_forest(write("x = f(1)\n", "a.py"))
    assert forest.labels == ("Module", "Assign", "Name", "Call", "Name", "Constant")
    assert forest.parents.tolist() == [-1, 0, 1, 1, 3, 3]
    assert read_forest(write("pass", "source"), tree_format="python").num_nodes == 2


def test_children_in_another_order_than_the_nodes(write):
    nodes = [{"type": "a", "children": [2, 1]}, {"type": "b"}, {"type": "c"}]
    assert read_forest(write(json.dumps(nodes))).ranks.tolist() == [0, 1, 0]


DEEP = 50_000


@pytest.mark.parametrize(
    "text",
    [
        "(a " * DEEP + ")" * DEEP,
        '["a",' * 998 + '"b"' + "]" * 998,
        '{"type":"a","children":[' * 500 + "]}" * 500,
    ],
)
def test_deep_nesting(write, text):
    forest = read_forest(write(text))
    depth = text.count("a")
    assert forest.num_nodes == depth + text.count("b")
    assert forest.depths.tolist() == list(range(forest.num_nodes))


def test_json_is_read_to_a_thousand_levels(write):
    assert read_forest(write('["a",' * 1000 + '"b"' + "]" * 1000)).num_nodes == 1001
    with pytest.raises(PeError, match="nested too deeply"):
        read_forest(write('["a",' * 1001 + '"b"' + "]" * 1001))


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "t", "is empty"),
        ("\n\n", "t", "is empty"),
        ("(S (NP a)\n  (VP b)", "t", "line 1, column 1: this '\\(' is never closed, 1 are missing"),
        ("(S\n (A b", "t", "line 2, column 2: this '\\(' is never closed, 2 are missing"),
        ("(S a)\n (B c))", "t", "line 2, column 7: a '\\)' that closes nothing"),
        ("(S a) b", "t", "line 1, column 7: 'b' outside of brackets"),
        (word(1, "a", 0) + word(3, "b", 1), "t", "line 2: word id '3', expected 2"),
        (word(1, "a", 0) + word(2, "b", 0), "t", "line 2: word 2 is a second root beside word 1"),
        (word(1, "a", 2) + word(2, "b", 1), "t", "line 1: the heads of word 1 run in a circle"),
        (word(1, "a", 0) + word(2, "b", 9), "t", "line 2: head 9 of word 2, the tree has 2 words"),
        (word(1, "a", 0) + word(2, "b", 2), "t", "line 2: word 2 is its own head"),
        (word(1, "a", "_"), "t", "line 1: head '_' of word 1 is not a number"),
        (word(1, "a", 0) + "2\tb\n", "t", "line 2: 2 columns, CoNLL-U has 10"),
        ("0 0\n", "t", "line 1: word 2 is a second root"),
        ("0 3\n", "t", "line 1: head 3 of word 2"),
        ("0 1\n2 1\n", "t", "line 2: the heads of word 1 run in a circle"),
        ("0 1\n0 -1\n", "t", "line 2: head '-1' is not a number"),
        ("hello world\n", "t", "begins with 'hello world': none of brackets"),
        ("def f(:\n", "a.py", "line 1, column"),
        ("(" * 100_000, "a.py", "a.py"),
        ("-" * 200_000 + "1", "a.py", "cannot be parsed as Python"),
        ("{", "t", "line 1, column 2"),
        ('{"name": 1}\n{"b": }\n', "t", "line 2, column 7"),
        ("[]", "t", "a tree is an object with 'children'"),
        ('{"type": "a", "children": 3}', "t", "'children' of 'a' is not a list"),
        ('[{"children": [1]}, {"children": [7]}]', "t", "node 1: child 7, there are nodes 1 to 1"),
        ('[{"children": [1]}, {"children": [1]}]', "t", "node 1: node 1 is a child of node 0 too"),
        ('[{"children": [1]}, {}, {}]', "t", "node 2: no node has it as a child"),
        ('[{"children": [1]}, {}, {"children": [3]}, {"children": [2]}]', "t", "node 2: it is its own descendant"),
        ("[" * 200_000, "t", "nested too deeply"),
        (b"(a \xff)", "t", "line 1: this is not text"),
    ],
)  # fmt: skip
def test_what_cannot_be_read(write, text, name, message):
    with pytest.raises(PeError, match=message) as caught:
        read_forest(write(text, name))
    assert "\n" not in str(caught.value)


def test_garbled_files_give_errors_of_one_kind(write):
    rng = np.random.default_rng(0)
    texts = [
        "(S (NP the cat) (VP sat))",
        SENTENCE,
        '["S", ["NP", "the"], 1]',
        "0 1 1 2",
        "x = f(1)\nif x: pass",
    ]
    for text in texts:
        for name in ("t", "t.py"):
            for _ in range(80):
                broken = bytearray(text.encode())
                for _ in range(rng.integers(1, 4)):
                    broken[rng.integers(len(broken))] = rng.choice(list(b'()[]{}",:0123\t\n \\\x00\xff-'))
                try:
                    read_forest(write(bytes(broken), name))
                except PeError:
                    continue


def test_a_forest_has_no_cycles():
    with pytest.raises(PeError, match="node 1 is its own ancestor"):
        Forest.of(np.array([-1, 2, 1]), np.array([0, 3]))


def test_lists_of_heads_in_json(write):
    assert read_forest(write("[[2, 0], [0, 1, 1]]", "t.json")).parents.tolist() == [1, -1, -1, 2, 2]
    assert read_forest(write("[2, 0]", "t.json")).parents.tolist() == [1, -1]
    assert read_forest(write('["a", [1, 2]]', "t.json")).labels == ("a", "1", "2")
    with pytest.raises(PeError, match="neither 'children' nor a label"):
        read_forest(write('{"a": 1}', "t.json"))
