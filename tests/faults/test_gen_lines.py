"""Command lines of `pe gen` put together at random: a table, or exit 2 and one line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

import pytest
from configurations import CONFIGURATION
from fuzzing import examples
from hypothesis import given
from hypothesis import strategies as st
from lines import BY_NAME, GRIDS, NUMBERS, REALS, SHARDS, SPECIFICATIONS, TARGETS, check, some_options

from pe_cli.catalogue import CATALOGUE
from pe_cli.commands import options
from pe_cli.commands.gen import Encoding
from pe_cli.signature import READ_FROM_FILE, Meaning

pytestmark = pytest.mark.slow

FILES = ["q.npy", "k.npy", "e.npy", "f.npy", "x.npy", "w.npy", "t5.npy", "table.npy", "inf.npy", "none.npy", "one.npy", "cube.npy",
         "edge_index.npy", "two.safetensors:a", "missing.npy"]  # fmt: skip
SHARED = {
    "len": NUMBERS, "q_len": NUMBERS, "k_len": NUMBERS, "prefix_rows": NUMBERS, "pad_to": NUMBERS, "positions": SPECIFICATIONS, "distances": SPECIFICATIONS,
    "shard": SHARDS, "dtype": ["float64", "float16", "bfloat16", "float8_e4m3fn", "int8"], "name": ["a", "a/b", ".", "é", "a" * 300],
}  # fmt: skip
OPERANDS = {
    "GRAPH": ["graph.tsv", "edge_index.npy", "weight-negative.tsv", "loop.tsv"],
    "FILE": ["parse.txt", "own.conllu", "cycle.json", "number.json"],
}


def values_of(parameter: options.Option) -> list[str]:
    if parameter.meaning is Meaning.ARRAY:
        return FILES
    if parameter.meaning is Meaning.GRID:
        return GRIDS
    if parameter.meaning is Meaning.NUMBERS:
        return ["1", "2,2", "4,4", "2,1,1", "8,8,8", "0,4", "-1,2", "1.5", "1e300,1", "", "x"]
    return (parameter.choices and parameter.choices()) or (REALS if parameter.type is float else NUMBERS)


@st.composite
def encodings(draw: Callable[..., Any]) -> list[str]:
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
        if parameter.meaning in READ_FROM_FILE:
            operands = [draw(st.sampled_from(OPERANDS[READ_FROM_FILE[parameter.meaning]]))]
        elif parameter.type is bool:
            settings.append(draw(st.sampled_from(parameter.flag.split("/"))))
        else:
            settings.append(f"{parameter.flag}={draw(st.sampled_from(values_of(parameter)))}")
    groups = [group for group in (encoding.rows, options.Naming) if group]
    for field in draw(
        st.lists(st.sampled_from([f.name for group in groups for f in fields(group)]), max_size=2)
    ):
        settings.append(f"--{field.replace('_', '-')}={draw(st.sampled_from(SHARED[field]))}")
    return ["gen", name, *operands, *settings]


@examples(300)
@given(encodings(), st.sampled_from(TARGETS))
def test_encodings(launch, folder: Path, argv: list[str], target: str) -> None:  # type: ignore[no-untyped-def]
    written(launch, folder, [*argv, "-o", target])


@examples(200)
@given(CONFIGURATION, st.integers(0, 2**32))
def test_models(launch, folder: Path, values: Any, seed: int) -> None:  # type: ignore[no-untyped-def]
    (folder / "any.json").write_text(json.dumps(values))
    more = some_options(Random(seed), BY_NAME["gen model"])
    written(launch, folder, ["gen", "model", "any.json", *more, "-o", TARGETS[seed % 4]], str(values))


def written(launch: Callable[..., Any], folder: Path, argv: list[str], *about: str) -> None:
    """A table is there after success, and only then."""
    done = launch(argv, folder)
    target = folder / argv[-1]
    there = target.exists()
    target.unlink(missing_ok=True)
    check(done, [*argv, *about])
    assert there == (done.code == 0), (argv, done)
