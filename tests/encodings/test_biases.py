from __future__ import annotations

import numpy as np
import pytest

from pe_cli.encodings.biases import alibi, alibi_slopes, fire, kerple, sandwich
from pe_cli.errors import PeError

TOKENS = np.arange(11)
PAIRS = TOKENS[None, :] - TOKENS[:, None]


def test_alibi_slopes_of_twelve_heads() -> None:
    eight = [2.0**-h for h in range(1, 9)]
    np.testing.assert_allclose(alibi_slopes(12), [*eight, *(2.0 ** -(h + 0.5) for h in range(4))])
    assert alibi_slopes(1).tolist() == [2.0**-8]


@pytest.mark.parametrize("heads", [1, 3, 8, 12])
def test_alibi_is_slope_times_distance(heads: int) -> None:
    slopes = alibi_slopes(heads)[:, None, None]
    symmetric = alibi(TOKENS, TOKENS, heads=heads, dtype="float64")
    causal = alibi(TOKENS, TOKENS, heads=heads, bidirectional=False, dtype="float64")
    np.testing.assert_array_equal(symmetric, -slopes * abs(PAIRS))
    np.testing.assert_array_equal(causal, np.tril(symmetric))
    np.testing.assert_array_equal(alibi(distances=PAIRS, heads=heads), symmetric.astype(np.float32))


def test_alibi_forms_agree_after_the_softmax() -> None:
    def attention(bias: np.ndarray) -> np.ndarray:
        weights = np.exp(np.where(PAIRS <= 0, bias, -np.inf))
        return weights / weights.sum(-1, keepdims=True)

    want = attention(alibi(TOKENS, TOKENS, heads=3, dtype="float64"))
    for form in ("key", "mpt"):
        bias = alibi(TOKENS, TOKENS, heads=3, form=form, dtype="float64")
        assert bias.shape == (3, 11)
        np.testing.assert_allclose(attention(bias[:, None, :]), want, rtol=1e-12)
    np.testing.assert_array_equal(alibi(heads=3, form="slopes", dtype="float64"), alibi_slopes(3))


@pytest.mark.parametrize("kernel", ["log", "power"])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_kerple_formula(kernel: str, bidirectional: bool) -> None:
    p, a = np.array([0.5, 2.5, 0.0]), np.array([0.3, 0.0, 1.5])
    got = kerple(
        distances=PAIRS,
        heads=3,
        kernel=kernel,
        bias_p=p.reshape(3, 1, 1),
        bias_a=a,
        bidirectional=bidirectional,
        dtype="float64",
    )["bias"]
    for head in range(3):
        used_p, used_a = max(p[head], 0.01), max(a[head], 0.01)
        for i in TOKENS:
            for j in TOKENS:
                r = abs(i - j) if bidirectional or j <= i else 0
                want = (
                    -used_p * np.log(1 + used_a * r) if kernel == "log" else -used_a * r ** min(used_p, 2.0)
                )
                assert got[head, i, j] == pytest.approx(want, rel=1e-14)


def test_kerple_draws_are_repeatable_and_written() -> None:
    first, again, other = (kerple(distances=PAIRS, heads=4, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first["bias"], again["bias"])
    assert (first["bias_p"] != other["bias_p"]).any()
    given = kerple(distances=PAIRS, heads=4, bias_p=first["bias_p"], bias_a=first["bias_a"])
    np.testing.assert_array_equal(given["bias"], first["bias"])


@pytest.mark.parametrize("first_index", [0, 1])
@pytest.mark.parametrize("dim", [2, 16])
def test_sandwich_is_the_product_of_two_codes(first_index: int, dim: int) -> None:
    frequencies = 10000.0 ** (-2 * (np.arange(dim // 2) + first_index) / dim)
    angles = TOKENS[:, None] * frequencies
    codes = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    want = codes @ codes.T / (8 * np.arange(1, 4) / 3)[:, None, None]
    got = sandwich(distances=PAIRS, heads=3, dim=dim, first_index=first_index, dtype="float64")
    np.testing.assert_allclose(got, want, atol=1e-12)
    centred = sandwich(
        distances=PAIRS, heads=3, dim=dim, first_index=first_index, center=True, dtype="float64"
    )
    np.testing.assert_allclose(np.diagonal(centred, axis1=1, axis2=2), 0, atol=1e-12)


@pytest.mark.parametrize("bidirectional", [True, False])
def test_fire_formula(bidirectional: bool) -> None:
    random = np.random.default_rng(5)
    w1, b1, w2, b2 = (random.normal(size=s) for s in ((6, 1), (6,), (2, 6), (2,)))
    queries, keys = np.array([0, 3, 9, 700]), np.arange(12)
    got = fire(
        queries,
        keys,
        heads=2,
        hidden_weight=w1,
        hidden_bias=b1,
        output_weight=w2,
        output_bias=b2,
        c=0.3,
        threshold=5.0,
        bidirectional=bidirectional,
        dtype="float64",
    )["bias"]
    for row, i in enumerate(queries):
        for j in keys:
            ratio = np.log(1 + 0.3 * abs(i - j)) / (np.log(1 + 0.3 * max(i, 5.0)) + 1e-6)
            want = w2 @ np.maximum(w1[:, 0] * ratio + b1, 0) + b2
            np.testing.assert_allclose(got[:, row, j], want if bidirectional or j <= i else 0, atol=1e-12)


def test_fire_network_is_written_and_gives_the_same_bias() -> None:
    drawn = fire(TOKENS, TOKENS, heads=3, seed=7)
    network = {name: drawn[name] for name in drawn if name != "bias"}
    assert network["hidden_weight"].shape == (32, 1)
    np.testing.assert_array_equal(fire(TOKENS, TOKENS, heads=3, **network)["bias"], drawn["bias"])


@pytest.mark.parametrize("function", [alibi, fire])
def test_one_query_is_its_row(function) -> None:
    whole, row = (function(queries, TOKENS, heads=3) for queries in (TOKENS, TOKENS[4:5]))
    whole, row = (np.asarray(t.get("bias", t)) for t in (whole, row))
    np.testing.assert_array_equal(row[:, 0], whole[:, 4])


@pytest.mark.parametrize(
    "call",
    [
        lambda: alibi(TOKENS, TOKENS, heads=0),
        lambda: alibi(heads=2),
        lambda: alibi(distances=PAIRS, heads=2, form="key"),
        lambda: alibi(TOKENS, TOKENS, heads=2, form="key", bidirectional=False),
        lambda: alibi(TOKENS[-1:], TOKENS, heads=2, form="key"),
        lambda: alibi(TOKENS + 1, TOKENS, heads=2, form="mpt"),
        lambda: kerple(distances=PAIRS, heads=2, bias_p=np.ones(2)),
        lambda: kerple(distances=PAIRS, heads=2, bias_p=np.ones(3), bias_a=np.ones(3)),
        lambda: kerple(distances=PAIRS, heads=0),
        lambda: kerple(distances=PAIRS, heads=2, bias_p=np.ones(2), bias_a=np.ones(2), seed=0),
        lambda: fire(TOKENS, TOKENS, heads=2, hidden_weight=np.ones((4, 1)), seed=0),
        lambda: sandwich(distances=PAIRS, heads=2, dim=7),
        lambda: sandwich(distances=PAIRS, heads=2, first_index=2),
        lambda: fire(TOKENS, TOKENS, heads=2, hidden_weight=np.ones((4, 1))),
        lambda: fire(TOKENS, TOKENS, heads=2, threshold=0.0),
        lambda: fire(TOKENS, TOKENS, heads=2, width=0),
        lambda: fire(
            TOKENS,
            TOKENS,
            heads=2,
            hidden_weight=np.ones((4, 1)),
            hidden_bias=np.ones(4),
            output_weight=np.ones((3, 4)),
            output_bias=np.ones(3),
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call) -> None:
    with pytest.raises(PeError):
        call()


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.parametrize("heads", [1, 2, 3, 7, 12, 16, 40])
def test_alibi_equals_bloom_and_mpt(heads: int) -> None:
    torch = pytest.importorskip("torch")
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    mpt = pytest.importorskip("transformers.models.mpt.modeling_mpt")
    want = bloom.build_alibi_tensor(torch.ones(1, 20), heads, torch.float32)[:, 0].numpy()
    tokens = np.arange(20)
    np.testing.assert_allclose(alibi(tokens, tokens, heads=heads, form="key"), want, rtol=2e-6)
    want = mpt.build_mpt_alibi_tensor(heads, 20).numpy().reshape(heads, 20)
    np.testing.assert_allclose(alibi(tokens, tokens, heads=heads, form="mpt"), want, rtol=2e-6)
