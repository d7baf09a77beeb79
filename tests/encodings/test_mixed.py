from __future__ import annotations

import numpy as np
import pytest

from pe_cli.encodings.distances import t5_buckets
from pe_cli.encodings.mixed import deberta, tupe
from pe_cli.errors import PeError

TOKENS = np.arange(12)


def test_deberta_distances_are_query_minus_key() -> None:
    small = {"position_buckets": 8, "max_relative_positions": 16}
    listed = deberta(distances=np.arange(-11, 12), **small)
    paired = deberta(TOKENS, TOKENS, **small)
    for name in ("relative_bucket", "relative_index"):
        assert listed[name].dtype == np.int64
        for i in TOKENS:
            for j in TOKENS:
                assert paired[name][i, j] == listed[name][i - j + 11]
    assert paired["relative_bucket"][11, 10] == 1


def test_deberta_index_stays_in_the_table() -> None:
    made = deberta(distances=np.array([-900, -3, 0, 3, 900]))
    assert made["relative_index"].tolist() == [0, 253, 256, 259, 511]


def test_deberta_conventions_differ_beyond_the_last_position_only() -> None:
    distances = np.arange(-600, 601)
    theirs, original = (
        deberta(distances=distances, convention=convention)["relative_index"]
        for convention in ("transformers", "original")
    )
    assert distances[theirs != original].tolist() == list(range(-600, -511))
    assert set(theirs[distances < -511]) == {0}
    assert set(original[distances < -511]) == {1}


def test_deberta_v1_has_a_row_per_distance() -> None:
    made = deberta(TOKENS, TOKENS, position_buckets=-1, max_relative_positions=8)
    want = np.clip(TOKENS[:, None] - TOKENS[None, :] + 8, 0, 15)
    np.testing.assert_array_equal(made["relative_index"], want)


def test_deberta_absolute_part_is_the_rows_of_the_queries() -> None:
    table = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    made = deberta(np.array([3, 19]), TOKENS, table=table)
    np.testing.assert_array_equal(made["absolute"], table[[3, 19]])
    with pytest.raises(PeError, match="none for 20"):
        deberta(np.array([20]), TOKENS, table=table)
    with pytest.raises(PeError, match="table needs positions"):
        deberta(distances=TOKENS, table=table)


def tupe_weights(dim: int, heads: int, rows: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    shapes = {
        "table": (rows, dim),
        "query_weight": (dim, dim),
        "key_weight": (dim, dim),
        "query_bias": (dim,),
        "key_bias": (dim,),
        "norm_weight": (dim,),
        "norm_bias": (dim,),
        "relative_table": (33, heads),
    }
    return {name: random.normal(size=shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("untie_cls", [True, False])
def test_tupe_formula(untie_cls: bool) -> None:
    dim, heads, w = 6, 2, tupe_weights(6, 2, 13)
    relative = w["relative_table"] if untie_cls else w["relative_table"][:32]
    made = tupe(
        TOKENS,
        TOKENS,
        heads=heads,
        untie_cls=untie_cls,
        dtype="float64",
        **{**w, "relative_table": relative},
    )
    x = w["table"]
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    x = x * w["norm_weight"] + w["norm_bias"]
    q = (x @ w["query_weight"].T + w["query_bias"]).reshape(-1, heads, dim // heads)
    k = (x @ w["key_weight"].T + w["key_bias"]).reshape(-1, heads, dim // heads)
    for head in range(heads):
        for i in TOKENS:
            for j in TOKENS:
                row, column, bucket = i, j, int(t5_buckets(np.array(j - i)))
                if untie_cls:
                    row, column = (0, 0) if i == 0 else (1, 1) if j == 0 else (i + 1, j + 1)
                    bucket = 16 if i == 0 else 32 if j == 0 else bucket
                want = q[row, head] @ k[column, head] / np.sqrt(2 * dim / heads)
                assert made["absolute_bias"][head, i, j] == pytest.approx(want, abs=1e-12)
                assert made["relative_index"][i, j] == bucket
                assert made["relative_bias"][head, i, j] == relative[bucket, head]


def test_tupe_alone_gives_the_index() -> None:
    assert list(tupe(TOKENS, TOKENS).keys()) == ["relative_index"]


@pytest.mark.parametrize(
    "options",
    [
        {"table": np.zeros((13, 6))},
        {"table": np.zeros((13, 6)), "query_weight": np.eye(6), "key_weight": np.eye(6)},
        {"heads": 4, "table": np.zeros((13, 6)), "query_weight": np.eye(6), "key_weight": np.eye(6)},
        {"heads": 2, "table": np.zeros((12, 6)), "query_weight": np.eye(6), "key_weight": np.eye(6)},
        {"heads": 2, "table": np.zeros((13, 6)), "query_weight": np.eye(5), "key_weight": np.eye(6)},
        {"norm_bias": np.zeros(6)},
        {"relative_table": np.zeros((32, 2))},
        {"num_buckets": 31},
        {"heads": 2},
        {"dtype": "float16"},
        {"relative_table": np.zeros((33, 2)), "heads": 2},
    ],
)
def test_tupe_refuses_what_does_not_fit(options: dict) -> None:
    with pytest.raises(PeError):
        tupe(TOKENS, TOKENS, **options)


@pytest.mark.interop
@pytest.mark.parametrize(("buckets", "farthest"), [(256, 512), (32, 128), (-1, -1)])
def test_deberta_equals_transformers(buckets: int, farthest: int) -> None:
    torch = pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    layer = torch.zeros(1, 700, 4)
    want = modeling.build_relative_position(layer, layer, bucket_size=buckets, max_position=farthest)[0]
    tokens = np.arange(700)
    made = deberta(
        tokens, tokens, position_buckets=buckets, max_relative_positions=512 if farthest < 0 else farthest
    )
    np.testing.assert_array_equal(made["relative_bucket"], want.numpy())
