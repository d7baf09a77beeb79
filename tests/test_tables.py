"""Tables of pairs in blocks of queries: the same numbers as computed at once, in memory that does not grow with them."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from pe_cli import alibi, deberta, fire, kerple, sandwich, shaw, t5, tables, tupe
from pe_cli.numerics.dtypes import numpy_dtype
from pe_cli.tables import PairTable

TABLE = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
VECTORS = np.random.default_rng(1).normal(size=(33, 5)).astype(np.float32)
MADE: dict[str, tuple[Any, dict[str, Any], bool]] = {
    "alibi": (alibi, {"heads": 3}, True),
    "alibi by key": (alibi, {"heads": 3, "form": "key"}, True),
    "t5 buckets": (t5, {}, True),
    "t5 bias": (t5, {"table": TABLE}, True),
    "shaw index": (shaw, {}, True),
    "shaw vectors": (shaw, {"table": VECTORS}, True),
    "kerple": (kerple, {"heads": 3}, True),
    "sandwich": (sandwich, {"heads": 2, "dim": 8}, True),
    "deberta": (deberta, {}, True),
    "fire": (fire, {"heads": 3}, False),
    "tupe": (tupe, {"relative_table": np.vstack([TABLE, TABLE[:1]])}, False),
}


def filled(table: PairTable) -> dict[str, np.ndarray]:
    """The tensors that the blocks of a table fill, in the order in which a pipe takes them."""
    made = {}
    for name, spec in table.specs.items():
        flat, done = np.full(spec.size, 99, numpy_dtype(spec.dtype)), 0
        for block in table.blocks((name,)):
            begin = block.start * int(np.prod(block.rows.shape[1:]))
            assert begin == done
            done = begin + block.rows.size
            flat[begin:done] = block.rows.reshape(-1)
        assert done == spec.size
        made[name] = flat.reshape(spec.shape)
    return made


@pytest.mark.parametrize(
    "queries", [np.arange(40), np.arange(31, 40), np.array([7, 0, 39, 7, 3]), np.array([5])]
)
@pytest.mark.parametrize("kind", MADE)
def test_blocks_are_the_table_at_once(kind: str, queries: np.ndarray, monkeypatch: Any) -> None:
    monkeypatch.setattr(tables, "BLOCK_BYTES", 1000)
    function, arguments, by_distance = MADE[kind]
    keys = np.arange(40)
    if kind == "alibi by key":
        queries = keys
    whole = function(queries, keys, **arguments).to_dict()
    got = filled(PairTable(function, arguments, queries, keys, by_distance, None))
    assert got.keys() == whole.keys()
    for name, array in got.items():
        want = whole[name]
        np.testing.assert_array_equal(array, want.astype(array.dtype))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
@pytest.mark.parametrize("kind", ["alibi", "kerple", "fire"])
def test_every_type_in_blocks(kind: str, dtype: str, monkeypatch: Any) -> None:
    """numpy neither makes views of runs of all types, nor gives all of them as buffers."""
    monkeypatch.setattr(tables, "BLOCK_BYTES", 1000)
    function, arguments, by_distance = MADE[kind]
    whole = function(40, 40, **arguments, dtype=dtype).to_dict()
    got = filled(
        PairTable(function, {**arguments, "dtype": dtype}, np.arange(40), np.arange(40), by_distance, dtype)
    )
    for name, array in got.items():
        assert array.dtype == dtype
        np.testing.assert_array_equal(array.astype(float), whole[name].astype(dtype).astype(float))


def test_positions_far_apart_are_computed_for_the_pairs_alone() -> None:
    table = PairTable(alibi, {"heads": 2}, np.array([5, 10**12]), np.arange(4), True, None)
    np.testing.assert_array_equal(filled(table)["alibi"], alibi([5, 10**12], 4, heads=2))


def test_memory_does_not_grow_with_the_table() -> None:
    table = PairTable(alibi, {"heads": 16}, np.arange(2048), np.arange(2048), True, None)  # 256 MiB
    tracemalloc.start()
    try:
        assert sum(block.rows.nbytes for block in table.blocks(("alibi",))) == table.nbytes
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
