from __future__ import annotations

import numpy as np
import pytest

from pe_cli.encodings.sparse import axial, sparse_transformer
from pe_cli.errors import PeError


def test_axial_writes_factors_and_never_their_product() -> None:
    factors = axial(shape=(512, 1024), dims=(64, 192))
    assert {name: table.shape for name, table in factors.items()} == {
        "factor_0": (512, 64),
        "factor_1": (1024, 192),
    }
    assert np.abs(factors["factor_0"]).std() > 0.1


@pytest.mark.parametrize("combine", ["concat", "sum"])
def test_axial_rows_are_those_of_the_factors(combine: str) -> None:
    options = {"shape": (2, 3, 4), "dims": (6, 6, 6), "combine": combine, "dtype": "float64", "seed": 3}
    a, b, c = axial(**options).values()
    rows = axial(**options, expand=True)["axial"]
    for p in range(24):
        parts = a[p // 12], b[p // 4 % 3], c[p % 4]
        want = np.concatenate(parts) if combine == "concat" else sum(parts)
        np.testing.assert_array_equal(rows[p], want)
    some = axial(np.array([23, 0, 7]), **options, expand=True)["axial"]
    np.testing.assert_array_equal(some, rows[[23, 0, 7]])
    none = axial(np.zeros(0, np.int64), **options, expand=True)["axial"]
    assert none.shape == (0, rows.shape[1])


def test_axial_indices_say_which_row_of_each_factor_a_position_reads() -> None:
    made = axial(np.array([0, 5, 23]), shape=(2, 3, 4), dims=(2, 2, 2))
    assert made["indices"].tolist() == [[0, 0, 0], [0, 1, 1], [1, 2, 3]]
    assert made["factor_2"].shape == (4, 2)
    assert axial(np.zeros(0, np.int64), shape=(2, 3), dims=(2, 2))["indices"].shape == (0, 2)


def test_axial_sinusoidal_factors() -> None:
    factor = axial(shape=(5, 3), dims=(4, 2), init="sinusoidal", dtype="float64")["factor_0"]
    angles = np.arange(5)[:, None] * np.array([1.0, 0.01])
    np.testing.assert_allclose(factor[:, 0::2], np.sin(angles), atol=1e-15)
    np.testing.assert_allclose(factor[:, 1::2], np.cos(angles), atol=1e-15)


@pytest.mark.parametrize("length", [1, 11, 16])
@pytest.mark.parametrize("variant", ["paper", "code"])
def test_strided_pattern_by_its_formula(length: int, variant: str) -> None:
    made = sparse_transformer(length, stride=4, variant=variant)
    window = 5 if variant == "paper" else 4
    for i in range(length):
        assert np.flatnonzero(made["pattern"][0, i]).tolist() == list(range(max(0, i - window + 1), i + 1))
        assert np.flatnonzero(made["pattern"][1, i]).tolist() == list(range(i % 4, i + 1, 4))


def test_the_paper_sees_one_key_more_than_the_code() -> None:
    paper, code = (
        sparse_transformer(300, stride=128, variant=v)["pattern"][0, 299].sum() for v in ("paper", "code")
    )
    assert (paper, code) == (129, 128)


@pytest.mark.parametrize(("length", "summary"), [(16, 1), (14, 2), (3, 4)])
def test_fixed_pattern_by_its_formula(length: int, summary: int) -> None:
    made = sparse_transformer(length, stride=4, pattern="fixed", summary=summary)
    for i in range(length):
        for j in range(length):
            assert made["pattern"][0, i, j] == (j <= i and j // 4 == i // 4)
            assert made["pattern"][1, i, j] == (j <= i and j % 4 >= 4 - summary)


def test_row_and_column_tables() -> None:
    made = sparse_transformer(11, stride=4, dim=512, seed=1)
    assert made["row_table"].shape == (3, 512)
    assert made["column_table"].shape == (4, 512)
    assert made["row_index"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert made["column_index"].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert np.std(made["column_table"]) == pytest.approx(0.125 / np.sqrt(1024), rel=0.1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: axial(shape=(4, 4), dims=(2,)),
        lambda: axial(shape=(4, 0), dims=(2, 2)),
        lambda: axial(shape=(4, 4), dims=(2, 4), combine="sum"),
        lambda: axial(shape=(4, 4), dims=(2, 3), init="sinusoidal"),
        lambda: axial(shape=(4, 4), dims=(2, 4), init="sinusoidal", std=0.5),
        lambda: axial(np.array([-1]), shape=(4, 4), dims=(2, 4)),
        lambda: axial(np.array([16]), shape=(4, 4), dims=(2, 4), expand=True),
        lambda: axial(np.array([0.5]), shape=(4, 4), dims=(2, 4), expand=True),
        lambda: sparse_transformer(8, stride=0),
        lambda: sparse_transformer(0, stride=2),
        lambda: sparse_transformer(8, stride=2, summary=1),
        lambda: sparse_transformer(8, stride=2, pattern="fixed", summary=3),
        lambda: sparse_transformer(8, stride=2, pattern="fixed", variant="code"),
        lambda: sparse_transformer(8, stride=2, dim=0),
        lambda: sparse_transformer(8, stride=2, seed=0),
        lambda: sparse_transformer(8, stride=2, dtype="float16"),
    ],
)
def test_what_makes_no_sense_is_refused(call) -> None:
    with pytest.raises(PeError):
        call()


@pytest.mark.interop
def test_axial_equals_reformer() -> None:
    torch = pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.reformer.modeling_reformer")
    from transformers import ReformerConfig

    config = ReformerConfig(axial_pos_shape=(4, 8), axial_pos_embds_dim=(6, 10), hidden_size=16)
    layer = modeling.AxialPositionEmbeddings(config).eval()
    factors = axial(shape=(4, 8), dims=(6, 10))
    for weight, factor in zip(layer.weights, factors.values(), strict=True):
        weight.data = torch.from_numpy(factor).reshape(weight.shape)
    with torch.no_grad():
        want = layer(torch.arange(32)[None])[0].numpy()
    np.testing.assert_array_equal(axial(shape=(4, 8), dims=(6, 10), expand=True)["axial"], want)
