"""Models that do not rotate: their tables against numbers of transformers 5.24.0, made by its own classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.encodings.relative import transformer_xl
from pe_cli.errors import PeError
from pe_cli.models import Resolved
from pe_cli.models.read import Configuration
from pe_cli.models.resolve import resolve_configuration
from pe_cli.models.table import from_config

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
    assert "position_embeddings_type is 'alibi', one of relative is needed" in message


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
