"""Whatever is typed or read: a result, or a PeError of one line; never another exception.

The examples are the same in every run. `PE_FUZZ=20000` looks at so many others.
"""

from __future__ import annotations

import json
import os
import random
import shlex
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pe_cli import positions, structures
from pe_cli.catalogue import CATALOGUE
from pe_cli.commands import derive, options
from pe_cli.commands.gen import Encoding
from pe_cli.errors import PeError, one_line
from pe_cli.models import resolve
from pe_cli.models.report import inspect_config
from pe_cli.sources import load_array

MANY = int(os.environ.get("PE_FUZZ", "0"))


def examples(count: int) -> Callable[..., Any]:
    return settings(
        max_examples=MANY or count,
        derandomize=not MANY,
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )


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


def mutated(seed: bytes, chance: random.Random) -> bytes:
    """`seed` after some of: bytes changed, cut out, doubled, put in, and pieces of the format put where they should not be."""
    data = bytearray(seed)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(data) + 1)
        length = chance.randint(0, 12)
        what = chance.randrange(6)
        if what == 0 and data:
            data[at % len(data)] = chance.randrange(256)
        elif what == 1:
            del data[at : at + length]
        elif what == 2:
            data[at:at] = data[at : at + length] * chance.randint(1, 3)
        elif what == 3:
            data[at:at] = chance.choice(PIECES)
        elif what == 4:
            data[at : at + length] = chance.choice(PIECES)
        else:
            del data[at:]
    return bytes(data)


PIECES = [
    b"\n", b"\t", b",", b" ", b"-1", b"0", b"nan", b"1e999", b"99999999999999999999", b"4611686018427387904", b"\xff", b"\0", b"\r\n",
    b"(", b")", b"[", b"]", b"{", b"}", b'"', b"<", b">", b"/>", b"&a;", b"#", b"%", b"_", b"null", b"true", b"1.5", b"\xef\xbb\xbf", b"\xe2\x80\xa8",
    b'"children":', b'"nodes":', b"<node id='a'/>", b"<edge source='a' target='a'/>", b"\x1f\x8b", b"PK\x03\x04", b"def f():", b"1-2", b"8.1",
]  # fmt: skip
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
    file.write_bytes(mutated(seed, random.Random(number)))
    graph = result_or_error(structures.read_graph, str(file), ids=ids, directed=directed)
    if graph is not None and graph.num_nodes < 1000:
        assert not graph.edges.size or graph.edges.max() < graph.num_nodes
        assert np.isfinite(graph.adjacency.values).all()


@examples(400)
@given(st.sampled_from(sorted(TREES)), st.integers(0, 2**32))
def test_trees(place: Path, kind: str, number: int) -> None:
    file = place / f"tree.{kind}"
    file.write_bytes(mutated(TREES[kind], random.Random(number)))
    result_or_error(structures.read_forest, str(file))


ODD_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=6),
    st.sampled_from([0, 1, 2, 64, 1.0, 0.25, [], {}, [1, 2], [[]], {"factor": 2}, "yarn", "linear", "llama3", "longrope", "default", "dynamic", "full_attention", 10**30, 1e300]),
    st.lists(st.integers(1, 64), max_size=8),
)  # fmt: skip
PARAMETERS = ("rope_type", "type", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
              "attention_factor", "low_freq_factor", "high_freq_factor", "short_factor", "long_factor", "mrope_section", "rope_theta",
              "partial_rotary_factor", "truncate")  # fmt: skip
KEYS = ("hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings", "rope_theta", "partial_rotary_factor", "rotary_dim",
        "layer_types", "text_config", "vision_config", "sliding_window", "qk_rope_head_dim", "position_embedding_type", "n_embd",
        "n_head", "relative_attention_num_buckets", "window_size", "num_heads", "architectures", "alibi", "rotary_emb_base", "torch_dtype")  # fmt: skip
TYPES = ("llama", "gemma3", "qwen2_vl", "phi3", "deepseek_v3", "t5", "bert", "gpt2", "mpt", "bloom", "whisper", "gpt_neox", "falcon", "swin", "deberta-v2",
         "modernbert", "gpt_oss", "llama4", "mistral", "esm", "chatglm", "unheard-of")  # fmt: skip
CONFIGURATION = st.builds(
    lambda base, kind, odd, rope, name: {**base, "model_type": kind, **odd, **({name: rope} if name else {})},
    st.sampled_from(
        [{}, {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128, "rope_theta": 1e4}]
    ),
    st.sampled_from(TYPES) | ODD_VALUES,
    st.dictionaries(st.sampled_from(KEYS), ODD_VALUES, max_size=4),
    st.dictionaries(st.sampled_from(PARAMETERS), ODD_VALUES, max_size=6) | ODD_VALUES,
    st.sampled_from(["", "rope_scaling", "rope_parameters"]),
)


@examples(400)
@given(CONFIGURATION | ODD_VALUES)
def test_configurations(place: Path, values: Any) -> None:
    file = place / "config.json"
    file.write_text(json.dumps(values))
    result_or_error(resolve, str(file))
    result_or_error(inspect_config, str(file))


NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "4",
    "7",
    "8",
    "12",
    "16",
    "64",
    "-1",
    "-8",
    "1000",
    "1000000000000",
    "9223372036854775807",
    "1e3",
    "x",
    "",
]
REALS = [
    "0",
    "1",
    "2",
    "0.5",
    "-1",
    "1e-5",
    "10000",
    "1e30",
    "1e300",
    "-1e300",
    "1e-300",
    "nan",
    "inf",
    "x",
    "",
]
FILES = ["q.npy", "k.npy", "e.npy", "f.npy", "x.npy", "w.npy", "t5.npy", "table.npy", "inf.npy", "none.npy", "one.npy", "cube.npy",
         "edge_index.npy", "two.safetensors:a", "missing.npy"]  # fmt: skip
SPECIFICATIONS = [
    "0",
    "0:8",
    "5:1",
    "0:64:7",
    "8:-9:-1",
    "0.5,1.25",
    "@edge_index.npy",
    "@e.npy",
    "@one.npy",
    "-3",
    "1000000",
    "9007199254740993",
]
SHARED = {
    "len": NUMBERS, "q_len": NUMBERS, "k_len": NUMBERS, "prefix_rows": NUMBERS, "positions": SPECIFICATIONS, "distances": SPECIFICATIONS,
    "shard": ["0/1", "1/3", "9/10", "3/2"], "dtype": ["float64", "float16", "bfloat16", "float8_e4m3fn", "int8"], "name": ["a", "a/b", ".", "é", "a" * 300],
}  # fmt: skip
OPERANDS = {
    "GRAPH": ["graph.tsv", "edge_index.npy", "weight-negative.tsv", "loop.tsv"],
    "FILE": ["parse.txt", "own.conllu", "cycle.json", "number.json"],
}


def values_of(parameter: derive.Parameter) -> list[str]:
    if parameter.source is derive.Source.ARRAY:
        return FILES
    if parameter.source is derive.Source.GRID:
        return ["2x2", "3x5", "2x3x4", "7", "1x1", "0x1", "14x14", "1000x1000000"]
    if parameter.source is derive.Source.NUMBERS:
        return ["1", "2,2", "4,4", "2,1,1", "8,8,8", "0,4", "-1,2", "1.5", "1e300,1", "", "x"]
    return derive.choices(parameter) or (REALS if parameter.type is float else NUMBERS)


@st.composite
def command_lines(draw: Callable[..., Any]) -> list[str]:
    """The example of an encoding with options taken away and others put in."""
    name = draw(st.sampled_from(sorted(CATALOGUE)))
    encoding = Encoding(name)
    known = {**encoding.own, **encoding.reader}
    words = shlex.split(CATALOGUE[name].arguments)
    words = words[: words.index("-o")]
    operands = [word for word in words[:1] if not word.startswith("-")]
    settings = words[len(operands) :]
    if draw(st.booleans()) and settings:
        at = draw(st.integers(0, len(settings) - 1))
        settings = settings[: at - at % 2]
    for parameter in draw(st.lists(st.sampled_from(list(known.values())), max_size=4, unique=True)):
        if parameter.source in derive.READ_FROM_FILE:
            operands = [draw(st.sampled_from(OPERANDS[derive.READ_FROM_FILE[parameter.source]]))]
        elif parameter.type is bool:
            settings.append(draw(st.sampled_from(parameter.declarations()[0].split("/"))))
        else:
            settings.append(f"{parameter.option}={draw(st.sampled_from(values_of(parameter)))}")
    groups = [group for group in (encoding.rows, options.Naming) if group]
    for field in draw(
        st.lists(st.sampled_from([f.name for group in groups for f in fields(group)]), max_size=2)
    ):
        settings.append(f"--{field.replace('_', '-')}={draw(st.sampled_from(SHARED[field]))}")
    return ["gen", name, *operands, *settings]


@examples(300)
@given(command_lines(), st.sampled_from(["new.npy", "new.npz", "new.h5", "new.safetensors"]))
def test_command_lines(launch, folder: Path, argv: list[str], target: str) -> None:  # type: ignore[no-untyped-def]
    done = launch([*argv, "-o", target, "--force"], folder)
    left = folder / target
    assert done.code in (0, 2), (argv, done)
    assert left.exists() == (done.code == 0), (argv, done)
    left.unlink(missing_ok=True)
    assert "PE_DEBUG" not in done.stderr, (argv, done)
    assert "Traceback" not in done.stderr, (argv, done)
    if done.code == 2:
        assert done.stderr.startswith("pe: "), (argv, done)
        assert done.stderr.count("\n") == 1, (argv, done)
