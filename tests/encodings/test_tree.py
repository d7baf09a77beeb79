"""Tree encodings against their definitions, node by node, and networkx."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from pe_cli.encodings.tree import dependency, tree
from pe_cli.errors import PeError
from pe_cli.structures import Forest


def forest(*trees):
    """Trees given by parent numbers, -1 for the root."""
    starts = np.cumsum([0, *map(len, trees)])
    parents = [
        np.where(np.array(t) < 0, -1, np.array(t) + start) for t, start in zip(trees, starts, strict=False)
    ]
    return Forest.of(np.concatenate(parents), starts)


FIVE = forest([-1, 0, 0, 1, 1])


def random_tree(n, seed):
    rng = np.random.default_rng(seed)
    return [-1, *(int(rng.integers(0, node)) for node in range(1, n))]


def path_up(parents, node):
    steps = [node]
    while parents[steps[-1]] >= 0:
        steps.append(parents[steps[-1]])
    return steps


def test_stack_code_of_a_small_tree():
    code = tree(FIVE, max_depth=3, max_width=2)["tree"]
    assert code.tolist() == [
        [0, 0, 0, 0, 0, 0],
        [1, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0],
        [1, 0, 1, 0, 0, 0],
        [0, 1, 1, 0, 0, 0],
    ]
    assert tree(FIVE)["tree"].shape == (5, 4)


@pytest.mark.parametrize("seed", range(3))
def test_stack_code_by_its_recursion(seed):
    parents = random_tree(60, seed)
    given = forest(parents)
    levels, width = 4, int(given.child_counts.max())
    code = np.zeros((60, levels * width))
    for node in range(1, 60):
        step = np.zeros(width)
        step[given.ranks[node]] = 1
        code[node] = np.concatenate([step, code[parents[node]]])[: levels * width]
    table = tree(given, max_depth=levels)
    assert np.array_equal(table["tree"], code)
    deep = sum(len(path_up(parents, node)) - 1 > levels for node in range(60))
    assert table.facts["nodes_beyond_depth"] == deep > 0
    assert f"{deep} nodes lie deeper" in table.warnings[0]
    distinct = {row.tobytes() for row in code}
    alone = sum(sum(row.tobytes() == other.tobytes() for other in code) == 1 for row in code)
    assert table.facts["nodes_colliding"] == 60 - alone > 0
    assert len(distinct) < 60


def test_parameters_of_the_stack_code():
    p, dim = (0.5, 0.9), 8
    plain = tree(FIVE, max_depth=3, max_width=2)["tree"].reshape(5, 3, 2)
    code = tree(FIVE, max_depth=3, max_width=2, p=p, model_dim=dim)["tree"].reshape(5, 3, 2, 2)
    for q, value in enumerate(p):
        for level in range(3):
            scale = value**level * np.sqrt((1 - value**2) * dim / 2)
            np.testing.assert_allclose(code[:, level, :, q], plain[:, level] * scale)
    np.testing.assert_allclose(tree(FIVE, p=(0.5,))["tree"].max(), np.sqrt(0.75))


WIDE = forest([-1, 0, 0, 0, 0, 4])


def test_children_beyond_the_width():
    clipped = tree(WIDE, max_width=2)
    assert clipped["tree"][:, :2].tolist() == [[0, 0], [1, 0], [0, 1], [0, 1], [0, 1], [1, 0]]
    assert clipped.facts["nodes_beyond_width"] == 2
    assert clipped.facts["nodes_colliding"] == 3
    assert "2 nodes are children beyond max_width 2" in clipped.warnings[0]
    dropped = tree(WIDE, max_width=2, wide="drop")
    assert dropped["tree"][3:5, :2].tolist() == [[0, 0], [0, 0]]
    with pytest.raises(PeError, match="node 3 is child 2"):
        tree(WIDE, max_width=2, wide="error")


def test_made_binary_no_code_collides():
    table = tree(WIDE, wide="binary")
    assert table.facts["max_width"] == 2
    assert table.facts["max_depth"] == 5
    assert table.facts["nodes_colliding"] == 0
    assert table["tree"][4].tolist() == [0, 1, 0, 1, 0, 1, 1, 0, 0, 0]


def test_depth_and_sibling():
    assert tree(FIVE, scheme="depth")["tree"].tolist() == [0, 1, 1, 2, 2]
    clipped = tree(FIVE, scheme="depth", max_depth=1)
    assert clipped["tree"].tolist() == [0, 1, 1, 1, 1]
    assert clipped.facts["nodes_beyond_depth"] == 2
    assert tree(FIVE, scheme="sibling")["tree"].tolist() == [0, 0, 1, 0, 1]
    assert tree(WIDE, scheme="sibling", max_width=2)["tree"].tolist() == [0, 0, 1, 1, 1, 0]


def test_what_stands_for_no_relation_may_be_a_distance_too():
    far = tree(FIVE, scheme="ancestor", max_distance=1, unrelated=2)["tree"]
    assert far[0].tolist() == [0, 1, 1, 1, 1]
    assert far[1, 2] == 2


@pytest.mark.parametrize("seed", range(3))
def test_pairs_by_walking_up(seed):
    parents = random_tree(40, seed)
    given = forest(parents)
    ups = [path_up(parents, node) for node in range(40)]
    got = {s: tree(given, scheme=s)["tree"] for s in ("ancestor", "sibling-pairs", "distance", "up-down")}
    lengths = dict(
        nx.all_pairs_shortest_path_length(nx.Graph([(a, b) for b, a in enumerate(parents) if a >= 0]))
    )
    for i in range(40):
        for j in range(40):
            related = i in ups[j] or j in ups[i]
            assert got["ancestor"][i, j] == (len(ups[j]) - len(ups[i]) if related else 10000)
            same = parents[i] == parents[j]
            assert got["sibling-pairs"][i, j] == (given.ranks[j] - given.ranks[i] if same else 10000)
            assert got["distance"][i, j] == lengths[i][j]
            meet = next(node for node in ups[i] if node in ups[j])
            assert got["up-down"][i, j].tolist() == [ups[i].index(meet), ups[j].index(meet)]


def test_clipped_pairs_keep_their_sentinel():
    chain = forest([-1, 0, 1, 2, 0])
    table = tree(chain, scheme="ancestor", max_distance=2, unrelated=99)["tree"]
    assert table[0].tolist() == [0, 1, 2, 2, 1]
    assert table[3].tolist() == [-2, -2, -1, 0, 99]


def test_several_trees_one_after_the_other_and_padded():
    two = forest([-1, 0], [-1, 0, 0])
    flat = tree(two, scheme="distance", unrelated=-1)
    assert flat["pair_ptr"].tolist() == [0, 4, 13]
    assert flat["tree"].tolist() == [0, 1, 1, 0, 0, 1, 1, 1, 0, 2, 1, 2, 0]
    table = tree(two, scheme="distance", unrelated=-1, pad=True)
    assert table["tree_ptr"].tolist() == [0, 2, 5]
    assert table["tree"].tolist() == [
        [[0, 1, -1], [1, 0, -1], [-1, -1, -1]],
        [[0, 1, 1], [1, 0, 2], [1, 2, 0]],
    ]
    assert tree(two).facts["nodes_colliding"] == 0


def test_leaves_alone():
    table = tree(FIVE, scheme="depth", nodes="leaves")
    assert table["tree"].tolist() == [1, 2, 2]
    assert tree(FIVE, scheme="distance", nodes="leaves")["tree"].tolist() == [[0, 3, 3], [3, 0, 2], [3, 2, 0]]
    assert tree(FIVE, scheme="depth", nodes="internal")["tree"].tolist() == [0, 1]


def test_one_node():
    one = forest([-1])
    assert tree(one)["tree"].tolist() == [[0]]
    assert tree(one, scheme="up-down")["tree"].tolist() == [[[0, 0]]]
    assert dependency(one)["relative"].tolist() == [[0]]


def test_a_chain_deeper_than_the_stack():
    chain = forest([-1, *range(20_000)])
    assert tree(chain, scheme="depth")["tree"][-1] == 20_000
    with pytest.raises(PeError, match="memory"):
        tree(forest([-1, *range(300_000)]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": (1.0,)}, "p 1.0: .* between 0 and 1"),
        ({"p": ()}, "between 0 and 1"),
        ({"max_depth": 0}, "max_depth 0: give at least 1"),
        ({"model_dim": 8}, "give p too"),
        (
            {"scheme": "depth", "max_width": 2},
            "max_width goes with scheme stack or sibling, not with depth",
        ),
        ({"scheme": "ancestor", "p": (0.5,)}, "p goes with scheme stack"),
        ({"max_distance": 3}, "max_distance goes with scheme ancestor or"),
        ({"scheme": "depths"}, "did you mean 'depth'"),
        ({"wide": "clips"}, "did you mean 'clip'"),
        ({"nodes": "leaf"}, "leaves"),
        ({"wide": "drop"}, "wide drop is about children beyond max_width"),
        ({"wide": "binary", "max_width": 3}, "made binary has width 2"),
    ],
)
def test_wrong_use(options, message):
    with pytest.raises(PeError, match=message):
        tree(FIVE, **options)


SENTENCE = forest([1, 3, 1, -1, 5, 3])


@pytest.mark.parametrize("same", ["edge", "path"])
def test_dependency_by_its_definition(same):
    table = dependency(SENTENCE, same=same)
    absolute = table["absolute"]
    assert absolute.tolist() == [2, 1, 2, 0, 2, 1]
    parents = SENTENCE.parents
    for i in range(6):
        for j in range(6):
            if same == "edge":
                joined = parents[i] == j or parents[j] == i
            else:
                joined = i in path_up(parents, j) or j in path_up(parents, i)
            apart = np.sign(i - j) * (absolute[i] + absolute[j])
            assert table["relative"][i, j] == (absolute[i] - absolute[j] if joined else apart)


def test_dependency_of_several_sentences():
    flat = dependency(forest([-1, 0], [-1]))
    assert flat["relative"].tolist() == [0, -1, 1, 0, 0]
    assert flat["pair_ptr"].tolist() == [0, 4, 5]
    table = dependency(forest([-1, 0], [-1]), pad=True)
    assert table["absolute"].tolist() == [0, 1, 0]
    assert table["relative"].tolist() == [[[0, -1], [1, 0]], [[0, 0], [0, 0]]]
    assert list(dependency(forest([-1, 0], [-1]), relative=False)) == ["absolute", "tree_ptr"]
    for options in ({"pad": True}, {"same": "path"}):
        with pytest.raises(PeError, match=f"{next(iter(options))} is about relative"):
            dependency(forest([-1, 0], [-1]), relative=False, **options)


def test_one_is_no_plural():
    warnings = tree([2, 0, 2, 2], max_width=2).warnings
    assert warnings[0] == "1 node is a child beyond max_width 2: counted as the last branch"
    assert tree([2, 0, 2, 1], scheme="depth", max_depth=1).warnings[0].startswith("1 node lies deeper")
