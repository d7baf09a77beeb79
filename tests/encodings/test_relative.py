from __future__ import annotations

import mpmath
import numpy as np
import pytest

from pe_cli.encodings.distances import t5_buckets
from pe_cli.encodings.relative import shaw, t5, transformer_xl
from pe_cli.errors import PeError

PAIRS = np.arange(9)[None, :] - np.arange(7)[:, None]


@pytest.mark.parametrize("transposed", [False, True])
def test_t5_expands_a_table_whichever_way_it_lies(transposed: bool) -> None:
    table = np.random.default_rng(0).normal(size=(32, 3))
    bias = t5(distances=PAIRS, table=table.T if transposed else table, dtype="float64")
    assert bias.shape == (3, 7, 9)
    np.testing.assert_array_equal(bias, table[t5_buckets(PAIRS)].transpose(2, 0, 1))


def test_t5_reads_a_square_table_as_buckets_by_heads_unless_told() -> None:
    table = np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)
    np.testing.assert_array_equal(t5(distances=PAIRS, table=table)[:, 0, 0], table[0])
    np.testing.assert_array_equal(t5(distances=PAIRS, table=table, heads_first=True)[:, 0, 0], table[:, 0])


def test_t5_buckets_of_pairs_are_those_of_their_distances() -> None:
    for pairs in (PAIRS, PAIRS + 1_000_000, PAIRS - 10**12):
        np.testing.assert_array_equal(t5(distances=pairs, num_buckets=8), t5_buckets(pairs, num_buckets=8))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (np.zeros((31, 4)), "one of its axes must be 32"),
        (np.zeros(32), "2 axes"),
        (np.full((32, 2), np.nan), "NaN at"),
        (np.zeros((32, 2), bool), "bool"),
    ],
)
def test_t5_refuses_a_table_that_does_not_fit(table: np.ndarray, message: str) -> None:
    with pytest.raises(PeError, match=message):
        t5(distances=PAIRS, table=table)


def test_transformer_xl_rows_are_correctly_rounded_sines_of_the_distance() -> None:
    rows = transformer_xl(np.array([3, -2, 0, 123_456_789]), dim=8)
    conformer = transformer_xl(np.array([3, -2, 0, 123_456_789]), dim=8, style="conformer")
    with mpmath.workdps(50):
        for i, distance in enumerate([3, -2, 0, 123_456_789]):
            for pair in range(4):
                angle = mpmath.mpf(distance) * mpmath.mpf(10000) ** (-mpmath.mpf(2 * pair) / 8)
                sine, cosine = np.float32(float(mpmath.sin(angle))), np.float32(float(mpmath.cos(angle)))
                assert rows[i, pair] == conformer[i, 2 * pair] == sine
                assert rows[i, 4 + pair] == conformer[i, 2 * pair + 1] == cosine


def test_transformer_xl_counts_distances_down() -> None:
    rule = transformer_xl.default_positions
    assert rule(4).tolist() == [3, 2, 1, 0]
    assert rule(3, bidirectional=True, dim=8).tolist() == [2, 1, 0, -1, -2]


def test_transformer_xl_holds_distances_at_clamp_len() -> None:
    rows = transformer_xl(np.array([-9, -3, 2, 3, 700]), dim=4, clamp_len=3)
    np.testing.assert_array_equal(rows[[0, 4]], rows[[1, 3]])
    assert (rows[2] != rows[3]).any()


def test_transformer_xl_rows_do_not_depend_on_their_neighbours() -> None:
    whole = transformer_xl(np.arange(1000, -1000, -1), dim=6)
    np.testing.assert_array_equal(transformer_xl(np.array([17]), dim=6)[0], whole[1000 - 17])
    assert transformer_xl(np.zeros(0, np.int64), dim=6).shape == (0, 6)


def test_shaw_clips() -> None:
    np.testing.assert_array_equal(
        shaw(distances=np.arange(-4, 5), max_distance=2), [0, 0, 0, 1, 2, 3, 4, 4, 4]
    )
    np.testing.assert_array_equal(
        shaw(distances=np.arange(-70, 11), max_distance=64, max_right=8),
        np.clip(np.arange(-70, 11), -64, 8) + 64,
    )


def test_shaw_numberings() -> None:
    distances = np.arange(-4, 5)
    assert shaw(distances=distances, max_distance=3, numbering="speecht5").tolist() == [
        5,
        5,
        5,
        4,
        3,
        2,
        1,
        0,
        0,
    ]
    assert shaw(distances=distances, max_distance=4, numbering="bert").tolist() == list(range(8, -1, -1))
    # Row 2 of ETC's ids for six tokens and M = 3.
    assert shaw(distances=np.arange(6) - 2, max_distance=3, numbering="etc").tolist() == [5, 4, 0, 1, 2, 3]


def test_shaw_expands_vectors() -> None:
    table = np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32)
    vectors = shaw(distances=PAIRS, max_distance=2, table=table)
    assert vectors.shape == (7, 9, 4)
    np.testing.assert_array_equal(vectors[6, 0], table[0])
    np.testing.assert_array_equal(vectors[3, 4], table[3])


@pytest.mark.parametrize(
    "call",
    [
        lambda: shaw(distances=PAIRS, max_distance=0),
        lambda: shaw(distances=PAIRS, max_distance=2, table=np.zeros((4, 3))),
        lambda: shaw(distances=PAIRS, max_distance=2, max_right=1, numbering="etc"),
        lambda: shaw(distances=PAIRS, numbering="shaws"),
        lambda: shaw(distances=np.array([0.5])),
        lambda: shaw(distances=PAIRS, dtype="float16"),
        lambda: t5(distances=PAIRS, dtype="float16"),
        lambda: t5(distances=PAIRS, heads_first=True),
        lambda: transformer_xl(np.arange(3), dim=7),
        lambda: transformer_xl(np.arange(3), dim=8, clamp_len=0),
        lambda: transformer_xl(np.zeros((3, 2)), dim=8),
    ],
)
def test_what_makes_no_sense_is_refused(call) -> None:
    with pytest.raises(PeError):
        call()


@pytest.mark.interop
def test_t5_equals_transformers() -> None:
    torch = pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.t5.modeling_t5")
    from transformers import T5Config

    for decoder in (False, True):
        config = T5Config(num_heads=3, d_model=12, d_kv=4, is_decoder=decoder)
        attention = modeling.T5Attention(config, has_relative_attention_bias=True)
        with torch.no_grad():
            want = attention.compute_bias(150, 150)[0].numpy()
        pairs = np.arange(150)[None, :] - np.arange(150)[:, None]
        table = attention.relative_attention_bias.weight.detach().numpy()
        np.testing.assert_array_equal(t5(distances=pairs, table=table, bidirectional=not decoder), want)


@pytest.mark.interop
def test_conformer_rows_equal_transformers() -> None:
    torch = pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer")
    from transformers import Wav2Vec2ConformerConfig

    config = Wav2Vec2ConformerConfig(hidden_size=16, num_attention_heads=2, max_source_positions=50)
    want = modeling.Wav2Vec2ConformerRelPositionalEmbedding(config)(torch.zeros(1, 20, 16))[0].numpy()
    got = transformer_xl(transformer_xl.default_positions(20, bidirectional=True), dim=16, style="conformer")
    np.testing.assert_allclose(got, want, atol=3e-6)


@pytest.mark.interop
@pytest.mark.parametrize("attn_type", ["bi", "uni"])
def test_xlnet_rows_equal_transformers(attn_type: str) -> None:
    pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    from transformers import XLNetConfig

    config = XLNetConfig(
        vocab_size=8, d_model=16, n_layer=1, n_head=2, d_inner=8, attn_type=attn_type, clamp_len=7
    )
    want = modeling.XLNetModel(config).relative_positional_encoding(12, 12)[:, 0].numpy()
    options = {"style": "xlnet", "bidirectional": attn_type == "bi", "dim": 16, "clamp_len": 7}
    got = transformer_xl(transformer_xl.default_positions(12, **options), **options)
    np.testing.assert_allclose(got, want, atol=3e-6)


@pytest.mark.interop
def test_speecht5_vectors_equal_transformers() -> None:
    torch = pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.speecht5.modeling_speecht5")
    layer = modeling.SpeechT5RelativePositionalEncoding(6, max_length=3)
    want = layer(torch.zeros(1, 9, 6)).detach().numpy()
    pairs = np.arange(9)[None, :] - np.arange(9)[:, None]
    table = layer.pe_k.weight.detach().numpy()
    np.testing.assert_array_equal(
        shaw(distances=pairs, max_distance=3, numbering="speecht5", table=table), want
    )
