"""Whatever is typed or read: a result, or a PeError of one line; never another exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from configurations import CONFIGURATION, ODD_VALUES
from fuzzing import examples, mutated
from hypothesis import given
from hypothesis import strategies as st

from pe_cli import positions, structures
from pe_cli.errors import PeError, one_line
from pe_cli.files.sources import load_array
from pe_cli.models.describe import inspect_config
from pe_cli.models.resolve import resolve

pytestmark = pytest.mark.slow


def result_or_error(call: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """What the call gives, or None after an error that a user can read."""
    try:
        return call(*arguments, **more)
    except PeError as error:
        said = str(error)
        assert said.strip()
        assert one_line(said).isprintable()
        return None


SPECIFICATION = st.one_of(
    st.text("0123456789:,-+.eE@_ nai\u0663\uff12x/", max_size=24),
    st.lists(
        st.one_of(
            st.integers(-(2**70), 2**70).map(str),
            st.floats().map(str),
            st.lists(st.integers(-(2**64), 2**64).map(str), min_size=1, max_size=4).map(":".join),
            st.lists(st.floats().map(str), min_size=2, max_size=3).map(":".join),
        ),
        max_size=4,
    ).map(",".join),
)


@examples(600)
@given(SPECIFICATION)
def test_positions(text: str) -> None:
    where = result_or_error(positions.parse, text, load_array)
    if where is not None:
        count = len(where)
        assert 0 < count < 2**63
        for begin in {0, max(0, count - 3), count // 2}:
            block = where.block(begin, min(count, begin + 3))
            assert len(block) == min(count, begin + 3) - begin
            assert np.isfinite(block).all()
            assert (abs(block.astype(np.float64)) <= 2.0**64).all()


@examples(300)
@given(SPECIFICATION | st.text("0123456789x×X/-٣", max_size=30))
def test_grids_and_shards(text: str) -> None:
    sides = result_or_error(positions.parse_grid, text)
    assert sides is None or all(0 < side < 10**18 for side in sides)
    shard = result_or_error(positions.parse_shard, text)
    assert shard is None or 0 <= shard[0] < shard[1]


GRAPHS = [
    b"0\t1\n1\t2\n2\t0\n",
    b"# a\nsource,target,weight\n0,1,0.5\n1,2,2\n",
    b"a b\nb c\nc a\n",
    b"%%MatrixMarket matrix coordinate real symmetric\n% a\n3 3 2\n2 1 1.5\n3 1 2\n",
    b"%%MatrixMarket matrix array real general\n2 2\n0\n1\n1\n0\n",
    b'{"directed": false, "nodes": [{"id": 0}, {"id": "b"}], "edges": [{"source": 0, "target": "b", "weight": 2}]}',
    b'<?xml version="1.0"?><graphml><key id="w" for="edge" attr.name="weight"/><graph edgedefault="directed"><node id="a"/><node id="b"/>'
    b'<edge source="a" target="b"><data key="w">2.5</data></edge></graph></graphml>',
]
TREES = {
    "txt": b"(S (NP (D the) (N cat)) (VP (V sat)))\n(S a)\n",
    "conllu": b"# text\n1\tthe\t_\t_\t_\t_\t2\t_\t_\t_\n1-2\tx\t_\t_\t_\t_\t_\t_\t_\t_\n2\tcat\t_\t_\t_\t_\t0\t_\t_\t_\n\n",
    "json": b'{"label": "S", "children": [{"label": "a"}, ["b", "c", ["d"]], "e"]}',
    "flat.json": b'[{"type": "a", "children": [1, 2]}, {"type": "b"}, {"type": "c", "value": 3}, 0]',
    "heads": b"2 0 2\n0 1\n",
    "py": b"def f(a, *b):\n    return [a for a in b if a]\n",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("read")


@examples(400)
@given(
    st.sampled_from(GRAPHS),
    st.integers(0, 2**32),
    st.sampled_from(["auto", "relabel", "text"]),
    st.booleans(),
)
def test_graphs(place: Path, seed: bytes, number: int, ids: Any, directed: bool) -> None:
    file = place / "graph"
    file.write_bytes(mutated(seed, Random(number)))
    graph = result_or_error(structures.read_graph, str(file), ids=ids, directed=directed)
    if graph is not None and graph.num_nodes < 1000:
        assert not graph.edges.size or graph.edges.max() < graph.num_nodes
        assert np.isfinite(graph.adjacency.values).all()


@examples(400)
@given(st.sampled_from(sorted(TREES)), st.integers(0, 2**32))
def test_trees(place: Path, kind: str, number: int) -> None:
    file = place / f"tree.{kind}"
    file.write_bytes(mutated(TREES[kind], Random(number)))
    result_or_error(structures.read_forest, str(file))


@examples(400)
@given(CONFIGURATION | ODD_VALUES)
def test_configurations(place: Path, values: Any) -> None:
    file = place / "config.json"
    file.write_text(json.dumps(values))
    result_or_error(resolve, str(file))
    result_or_error(inspect_config, str(file))
