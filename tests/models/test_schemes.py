"""Models that do not rotate: their tables against numbers of transformers 5.24.0, made by its own classes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.encodings.relative import transformer_xl
from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration
from pe_cli.models.describe import inspect_config
from pe_cli.models.resolve import from_config, resolve_configuration
from pe_cli.models.resolved import Resolved

DEBERTA = {"relative_attention": True, "max_relative_positions": -1}


def resolved(config: dict[str, Any], **options: Any) -> Resolved:
    model_type = str(config["model_type"])
    return resolve_configuration(Configuration("config.json", config, model_type=model_type), **options)


def rows_of_three(found: Resolved) -> Any:
    """The rows of `pe gen model --len 3`."""
    chosen = transformer_xl.default_positions(3, **found.parameters)  # type: ignore[attr-defined]
    return transformer_xl(chosen, **found.parameters)


def refusal(config: dict[str, Any], **options: Any) -> str:
    with pytest.raises(PeError) as caught:
        resolved(config, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "column", "row"),
    [
        ({"model_type": "deberta", "max_position_embeddings": 5}, [5, 6, 7, 8, 9, 9, 9, 9], [5, 4, 3, 2, 1, 0, 0, 0]),
        ({"model_type": "deberta-v2", "max_position_embeddings": 16, "position_buckets": 4}, [4, 5, 6, 7, 7, 7, 7, 7], [4, 3, 2, 1, 1, 1, 1, 1]),
    ],
)  # fmt: skip
def test_deberta_without_a_maximum_goes_by_its_positions(
    config: dict[str, Any], column: list[int], row: list[int]
) -> None:
    for values in (config | DEBERTA, config | {"relative_attention": True}):
        index = from_config(values, np.arange(8))["relative_index"]
        assert index[:, 0].tolist() == column
        assert index[0].tolist() == row


def test_deberta_says_which_length_it_took() -> None:
    found = from_config({"model_type": "deberta", **DEBERTA}, [0, 1])
    assert found.facts["parameters"]["max_relative_positions"] == 512
    assert "since max_relative_positions is -1" in found.facts["origins"]["max_relative_positions"]


def test_the_rows_of_roberta_count_those_in_front() -> None:
    """nn.Embedding(max_position_embeddings, hidden_size) there, and rows more than that in BART and OPT."""
    sizes = {"max_position_embeddings": 514, "hidden_size": 768, "d_model": 768}
    assert "(514, 768), with 2 rows in front" in refusal({"model_type": "roberta", **sizes})
    assert "(516, 768), with 2 rows in front" in refusal({"model_type": "bart", **sizes})


# sin and cos of 1, 2 and 3 radians, at the frequencies 1 and 1/100 of a row of 4
SLOW = {p: (np.sin(p / 100), np.cos(p / 100)) for p in (-2, -1, 0, 1, 2, 3)}
CONFORMER = [[np.sin(p), np.cos(p), *SLOW[p]] for p in (2, 1, 0, -1, -2)]
CONFORMERS = [
    {"model_type": "wav2vec2-conformer"},
    {"model_type": "wav2vec2-conformer", "position_embeddings_type": "relative"},
    {"model_type": "wav2vec2-bert", "position_embeddings_type": "relative"},
    {"model_type": "seamless_m4t"},
    {"model_type": "parakeet_encoder"},
    {"model_type": "fastspeech2_conformer"},
]


@pytest.mark.parametrize("config", CONFORMERS)
def test_conformers_have_a_row_for_each_distance(config: dict[str, Any]) -> None:
    found = resolved(config | {"hidden_size": 4})
    assert found.encoding == "transformer-xl"
    table = rows_of_three(found)
    np.testing.assert_allclose(table, CONFORMER, atol=2e-7)


@pytest.mark.parametrize("model_type", ["wav2vec2-bert", "seamless_m4t_v2"])
def test_relative_key_of_speech_clips_unequally(model_type: str) -> None:
    for config in ({}, {"position_embeddings_type": "relative_key"}):
        index = from_config({"model_type": model_type, **config}, np.arange(100))["shaw"]
        assert index[0, [0, 1, 8, 9, 99]].tolist() == [64, 65, 72, 72, 72]
        assert index[99, [99, 98, 35, 34, 0]].tolist() == [64, 63, 0, 0, 0]


@pytest.mark.parametrize("model_type", ["wav2vec2-conformer", "wav2vec2-bert", "seamless_m4t"])
def test_a_conformer_rotates_if_told(model_type: str) -> None:
    config = {
        "model_type": model_type,
        "position_embeddings_type": "rotary",
        "hidden_size": 64,
        "num_attention_heads": 16,
        "speech_encoder_attention_heads": 16,
        "rotary_embedding_base": 100,
    }
    found = resolved(config)
    assert (found.encoding, found.parameters["dim"], found.parameters["base"]) == ("rope", 4, 100.0)


def test_null_is_no_encoding_and_an_unknown_one_an_error() -> None:
    null = {"model_type": "wav2vec2-conformer", "position_embeddings_type": None}
    assert "no encoding of positions" in refusal(null)
    message = refusal(null | {"position_embeddings_type": "alibi"})
    assert "position_embeddings_type is 'alibi', one of relative, rotary is needed" in message


def test_seamless_has_a_table_of_fairseq_for_text() -> None:
    table = from_config({"model_type": "seamless_m4t", "hidden_size": 6}, [0, 1, 2], layer_type="text")
    assert table.facts["parameters"] == {"dim": 6, "padding_idx": 0, "style": "fairseq"}


def test_xlnet_starts_one_distance_earlier() -> None:
    rows = [[np.sin(p), SLOW[p][0], np.cos(p), SLOW[p][1]] for p in (3, 2, 1, 0, -1, -2)]
    config = {"model_type": "xlnet", "d_model": 4}
    cases: list[tuple[dict[str, Any], Any]] = [
        ({}, rows),
        ({"attn_type": "bi", "clamp_len": -1}, rows),
        ({"attn_type": "uni"}, rows[:4]),
        ({"clamp_len": 2}, [rows[1], *rows[1:]]),
    ]
    for values, expected in cases:
        found = resolved(config | values)
        np.testing.assert_allclose(rows_of_three(found), expected, atol=2e-7)
    assert "attn_type is 'tri', one of bi, uni" in refusal(config | {"attn_type": "tri"})
    assert not any("clamp_len" in warning for warning in resolved(config).warnings)


def test_transformer_xl_holds_far_distances() -> None:
    assert resolved({"model_type": "transfo-xl", "d_model": 4}).parameters == {"dim": 4, "clamp_len": 1000}
    assert "clamp_len" not in resolved({"model_type": "transfo-xl", "clamp_len": -1}).parameters


# Rows 1 and 2 of a table of width 6, as the classes of transformers make them.
PAPER = [[0.841471, 0.540302, 0.046399, 0.998923, 0.002154, 0.999998], [0.909297, -0.416147, 0.092698, 0.995694, 0.004309, 0.999991]]  # fmt: skip
T2T = [[0.841471, 0.01, 0.0001, 0.540302, 0.99995, 1.0], [0.909297, 0.019999, 0.0002, -0.416147, 0.9998, 1.0]]
SINES = [row[0::2] + row[1::2] for row in PAPER]
COSINES = [row[3:] + row[:3] for row in T2T]


@pytest.mark.parametrize(
    ("config", "layer_type", "rows"),
    [
        ({"model_type": "videomae"}, None, PAPER),
        ({"model_type": "videomae", "decoder_hidden_size": 6}, "decoder", PAPER),
        ({"model_type": "time_series_transformer"}, None, SINES),
        ({"model_type": "flaubert", "sinusoidal_embeddings": True}, None, PAPER),
        ({"model_type": "xlm", "sinusoidal_embeddings": True}, None, PAPER),
        ({"model_type": "musicgen_melody_decoder"}, None, COSINES),
        ({"model_type": "tipsv2_text_model"}, None, T2T),
        ({"model_type": "timesfm", "use_positional_embedding": True}, None, T2T),
        ({"model_type": "speecht5"}, None, PAPER),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else None,
)
def test_sinusoidal_tables_of_more_models(
    config: dict[str, Any], layer_type: str | None, rows: list[list[float]]
) -> None:
    sizes = {"hidden_size": 6, "d_model": 6, "emb_dim": 6}
    table = from_config({**sizes, **config}, [1, 2], layer_type=layer_type)["sinusoidal"]
    np.testing.assert_allclose(table, rows, atol=2e-6)


@pytest.mark.parametrize(
    ("model_type", "layer_type"),
    [("fsmt", None), ("speecht5", "prenet"), ("kosmos_2_text_model", None), ("kosmos_2_5_text_model", None)],
)
def test_tables_of_fairseq_of_more_models(model_type: str, layer_type: str | None) -> None:
    """The row of the padding index 1 is zero, and the first token reads row 2."""
    sizes = {"hidden_size": 6, "d_model": 6, "embed_dim": 6}
    config = {"model_type": model_type, "pad_token_id": 1, **sizes}
    found = resolved(config, layer_type=layer_type)
    assert found.parameters == {"style": "fairseq", "dim": 6, "padding_idx": 1}
    rows = from_config(config, [1, 2], layer_type=layer_type)["sinusoidal"]
    np.testing.assert_allclose(rows, [[0.0] * 6, T2T[1]], atol=2e-6)


# Rows for a query at 20 and keys 0..40, with 8 buckets and a maximal distance of 16.
BOTH_SIDES = [3] * 15 + [2] * 4 + [1, 0, 5] + [6] * 4 + [7] * 15
LEFT = [7] * 9 + [6] * 4 + [5] * 2 + [4] * 2 + [3, 2, 1] + [0] * 21


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "wavlm", "num_buckets": 8, "max_bucket_distance": 16}, BOTH_SIDES),
        ({"model_type": "layoutlmv3", "rel_pos_bins": 8, "max_rel_pos": 16}, BOTH_SIDES),
        ({"model_type": "pix2struct_text_model", "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16}, LEFT),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else None,
)  # fmt: skip
def test_buckets_of_more_models(config: dict[str, Any], expected: list[int]) -> None:
    assert from_config(config, np.arange(41))["t5"][20].tolist() == expected


def test_speecht5_has_a_learned_table_by_distance() -> None:
    config = {"model_type": "speecht5", "encoder_max_relative_position": 2}
    index = from_config(config, np.arange(5), layer_type="encoder")["shaw"]
    assert index[0].tolist() == [2, 1, 0, 0, 0]
    assert index[4].tolist() == [3, 3, 3, 3, 2]


def test_the_table_of_vit_mae_is_fixed_column_first() -> None:
    config = {"model_type": "vit_mae", "hidden_size": 8, "image_size": [48, 48], "patch_size": 16}
    found = resolved(config)
    assert found.parameters == {"style": "mae", "dim": 8, "grid": (3, 3)}
    assert "--prefix-rows 1" in found.notes[0]
    zero, one = [0.0, 0.0, 1.0, 1.0], [0.841471, 0.01, 0.540302, 0.99995]
    two = [0.909297, 0.019999, -0.416147, 0.9998]
    expected = [column + row for row in (zero, one, two) for column in (zero, one, two)]
    np.testing.assert_allclose(from_config(config, None)["sinusoidal"], expected, atol=1e-6)
    assert resolved(config, layer_type="decoder").parameters["dim"] == 512


class TestSwitchedOff:
    def test_esm_with_absolute_positions_is_learned(self) -> None:
        esm = {
            "model_type": "esm",
            "hidden_size": 320,
            "num_attention_heads": 20,
            "max_position_embeddings": 1026,
        }
        message = refusal(esm | {"position_embedding_type": "absolute"})
        assert "(1026, 320), with 2 rows in front" in message
        assert "embeddings.position_embeddings.weight" in message
        told = resolved(esm | {"position_embedding_type": "rotary"})
        assert (told.encoding, told.parameters["dim"]) == ("rope", 16)
        assert not any("position_embedding_type" in warning for warning in told.warnings)
        silent = resolved(esm)
        assert silent.parameters == told.parameters
        assert any("EsmConfig's own default is 'absolute'" in warning for warning in silent.warnings)

    def test_granite_without_positions(self) -> None:
        granite = {"model_type": "granitemoehybrid", "hidden_size": 64, "num_attention_heads": 4}
        assert "no encoding of positions" in refusal(granite | {"position_embedding_type": "nope"})
        assert "'none', one of nope, rope" in refusal(granite | {"position_embedding_type": "none"})
        for values, said in [({}, "is not in"), ({"position_embedding_type": None}, "is null in")]:
            found = resolved(granite | values)
            assert (found.encoding, found.parameters["dim"]) == ("rope", 16)
            assert any(f"position_embedding_type {said}" in warning for warning in found.warnings)
        told = resolved(granite | {"position_embedding_type": "rope"})
        assert not any("position_embedding_type" in warning for warning in told.warnings)

    def test_zamba_without_rotation(self) -> None:
        off = resolved({"model_type": "zamba2", "use_mem_rope": False})
        assert any("use_mem_rope is false in config.json" in warning for warning in off.warnings)
        on = resolved({"model_type": "zamba2", "use_mem_rope": True})
        assert on.parameters == off.parameters
        assert not any("use_mem_rope" in warning for warning in on.warnings)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "swin", "window_size": 12}, "pe gen swin --window 12x12` "),
        ({"model_type": "swinv2"}, "pe gen swin --window 7x7 --version 2`"),
        ({"model_type": "beit", "use_relative_position_bias": True}, "--window 14x14 --class-token"),
        ({"model_type": "beit", "use_absolute_position_embeddings": True}, "ends in embeddings.position_embeddings ("),
        ({"model_type": "beit"}, "has no positions"),
        ({"model_type": "reformer", "axial_pos_shape": [128, 512]}, "pe gen axial --shape 128,512 --dims 64,192"),
        ({"model_type": "perceiver"}, "input_preprocessor.position_embeddings.weight"),
        ({"model_type": "jamba"}, "no encoding of positions"),
        ({"model_type": "nemotron_h"}, "no encoding of positions"),
        ({"model_type": "timesfm"}, "unless use_positional_embedding is true"),
        ({"model_type": "led", "max_encoder_position_embeddings": 64, "d_model": 8}, "of shape (64, 8)"),
    ],
    ids=lambda value: value.get("model_type") if isinstance(value, dict) else None,
)  # fmt: skip
def test_what_has_no_table_here_is_told(config: dict[str, Any], message: str) -> None:
    assert message in refusal(config)


def test_jina_bert_and_the_larger_baichuan_use_alibi() -> None:
    jina = resolved({"model_type": "bert", "position_embedding_type": "alibi", "num_attention_heads": 8})
    assert jina.parameters == {"form": "matrix", "bidirectional": True, "heads": 8}
    large = resolved({"model_type": "baichuan", "hidden_size": 5120, "num_attention_heads": 40})
    assert (large.encoding, large.parameters["heads"]) == ("alibi", 40)
    small = resolved({"model_type": "baichuan", "hidden_size": 4096, "num_attention_heads": 32})
    assert small.parameters == {"dim": 128, "base": 1e4, "layout": "half"}


def test_falcon_under_its_first_name() -> None:
    config = {"model_type": "RefinedWebModel", "hidden_size": 4544, "n_head": 71}
    assert resolved(config | {"alibi": False}).parameters == {"dim": 64, "base": 1e4, "layout": "half"}
    assert resolved(config | {"alibi": True}).parameters == {"form": "key", "heads": 71}


def test_the_parts_of_seamless_are_named_once(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for kind, encoding in (("relative", "transformer-xl"), ("rotary", "rope")):
        path.write_text(json.dumps({"model_type": "seamless_m4t", "position_embeddings_type": kind}))
        tables = inspect_config(str(path))["tables"]
        assert [table["encoding"] for table in tables] == [encoding, "sinusoidal"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "patchtst"}, "less its mean"),
        ({"model_type": "patchtst", "positional_encoding_type": "random"}, "has a learned table"),
        ({"model_type": "patchtsmixer", "use_positional_encoding": True}, "less its mean"),
        ({"model_type": "patchtsmixer"}, "unless use_positional_encoding is true"),
        (
            {"model_type": "gpt2", "position_embedding_type": "alibi"},
            "position_embedding_type in the file had no part",
        ),
        ({"model_type": "bert", "position_embedding_type": "rotary"}, "of type 'bert' do not rotate"),
        ({"model_type": "t5", "position_embedding_type": "rope"}, "of type 't5' do not rotate"),
    ],
)
def test_what_a_file_asks_for_and_the_code_does_not_do_is_told(config: dict[str, Any], said: str) -> None:
    assert said in refusal(config)


def test_a_scheme_that_a_model_has_is_no_word_of_its_own() -> None:
    assert "had no part" not in refusal({"model_type": "roberta", "position_embedding_type": "absolute"})
