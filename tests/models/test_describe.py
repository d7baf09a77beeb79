"""What a configuration means for longer contexts, against closed forms."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.models.describe import inspect_config, rotary_report, table_report
from pe_cli.models.layers import query_temperature, rotated_layers
from pe_cli.models.resolve import preset


def report_of(tmp_path: Path, values: dict[str, Any], **options: Any) -> dict[str, Any]:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    return inspect_config(str(path), **options)


def test_wavelengths_and_turns() -> None:
    report = rotary_report(preset("llama-2"))
    pairs = report["pairs"]
    assert pairs[0]["wavelength"] == pytest.approx(2 * math.pi)
    assert pairs[-1]["wavelength"] == pytest.approx(2 * math.pi * 10000 ** (126 / 128))
    assert pairs[0]["turns"] == pytest.approx(4096 / (2 * math.pi))
    assert report["complete_turns"] == sum(pair["wavelength"] <= 4096 for pair in pairs)
    assert (report["kept"], report["interpolated"]) == (64, 0)


def test_a_plain_model_leaves_its_range_at_the_trained_length() -> None:
    report = rotary_report(preset("llama-2"))
    assert report["leaves_trained_range"] == 4096
    assert report["critical_pair"] == report["complete_turns"]
    assert report["critical_frequency"] == pytest.approx(10000 ** (-2 * report["critical_pair"] / 128))


def test_interpolation_moves_the_end_by_the_factor() -> None:
    report = rotary_report(preset("llama-2-7b-32k"))
    assert (report["interpolated"], report["leaves_trained_range"]) == (64, 32768)


def test_llama3_keeps_mixes_and_divides() -> None:
    report = rotary_report(preset("llama-3.1"))
    divided = [pair["divided_by"] for pair in report["pairs"]]
    assert (report["kept"], sum(1 < d < 8 - 1e-9 for d in divided), sum(d > 8 - 1e-9 for d in divided)) == (
        29,
        6,
        29,
    )
    assert report["leaves_trained_range"] == 8192 * min(
        d for d, p in zip(divided, report["pairs"], strict=True) if p["turns"] < 1
    )


def test_pairs_that_do_not_turn_have_no_wavelength() -> None:
    report = rotary_report(preset("gemma-4:full_attention"))
    assert report["still"] == 192
    assert report["pairs"][-1]["wavelength"] is None
    assert report["pairs"][-1]["divided_by"] is None


def test_every_layer_type_has_its_report(tmp_path: Path) -> None:
    report = report_of(tmp_path, {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}})
    assert [table["layer_type"] for table in report["tables"]] == ["full_attention", "sliding_attention"]
    assert report["model_type"] == "gemma3_text"
    json.dumps(report, allow_nan=False)


def test_every_part_of_a_composite_has_its_report(tmp_path: Path) -> None:
    report = report_of(tmp_path, {"model_type": "dia"})
    assert {table["component"] for table in report["tables"]} == {"encoder_config", "decoder_config"}


def test_a_table_that_depends_on_the_length_is_shown_for_the_longest(tmp_path: Path) -> None:
    scaling = {"type": "dynamic", "factor": 2.0}
    config = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 4096, "rope_scaling": scaling}
    (table,) = report_of(tmp_path, config)["tables"]
    assert table["parameters"]["seq_len"] == 4096
    (table,) = report_of(tmp_path, config, seq_len=8192)["tables"]
    assert table["rotary"]["facts"]["effective_base"] > 10000


def test_one_trouble_is_raised_and_several_are_listed(tmp_path: Path) -> None:
    wrong = {"model_type": "llama", "rope_scaling": {"rope_type": "yern", "factor": 2.0}}
    with pytest.raises(PeError, match="yern"):
        report_of(tmp_path, wrong)
    several = {"model_type": "mine", "a_config": {"model_type": "llama"}, "b_config": wrong}
    tables = report_of(tmp_path, several)["tables"]
    assert [("error" in table) for table in tables] == [False, True]


def test_a_learned_table_is_said_to_lie_in_the_checkpoint(tmp_path: Path) -> None:
    (table,) = report_of(
        tmp_path, {"model_type": "bert", "hidden_size": 768, "max_position_embeddings": 512}
    )["tables"]
    assert (table["encoding"], table["tensor"]) == ("learned", "embeddings.position_embeddings.weight")
    assert table["shape"] == (512, 768)
    assert "pe extend" in table["note"]


def test_other_encodings_have_no_frequencies(tmp_path: Path) -> None:
    (table,) = report_of(tmp_path, {"model_type": "bloom", "n_head": 16})["tables"]
    assert (table["encoding"], table["rotary"]) == ("alibi", None)
    assert table_report(preset("llama-2"))["encoding"] == "rope"


def test_query_temperature_starts_one_position_early_with_a_shift() -> None:
    found = query_temperature(np.array([0, 8190, 8191, 16383]), strength=0.1, length=8192, shift=1)
    np.testing.assert_allclose(found, [1, 1, 1 + 0.1 * np.log(2), 1 + 0.1 * np.log(3)], rtol=1e-15)
    found = query_temperature(np.array([16383, 16384]), strength=0.2, length=16384)
    np.testing.assert_allclose(found, [1, 1 + 0.2 * np.log(2)], rtol=1e-15)


def test_query_temperature_by_its_formula() -> None:
    positions = np.array([0, 8190, 8191, 16383, 10**6])
    llama4 = [1 + 0.1 * math.log(1 + (int(p) + 1) // 8192) for p in positions]
    np.testing.assert_allclose(query_temperature(positions, strength=0.1, length=8192, shift=1), llama4)
    ministral = [1 + 0.1 * math.log(1 + int(p) // 8192) for p in positions]
    np.testing.assert_allclose(query_temperature(positions, strength=0.1, length=8192), ministral)


def test_rotated_layers_are_zero_and_one() -> None:
    assert rotated_layers(layers=(1, 0, 1)).tolist() == [1, 0, 1]


def test_a_tower_with_a_table_for_each_layer_type_shows_them_all(tmp_path: Path) -> None:
    tables = report_of(tmp_path, {"model_type": "edgetam_video"})["tables"]
    assert [(table["layer_type"], table["parameters"]["grid"]) for table in tables] == [
        ("query", (64, 64)),
        ("key", (16, 16)),
    ]


def test_options_that_a_file_has_no_use_for_are_refused(tmp_path: Path) -> None:
    flux = {"_class_name": "FluxTransformer2DModel"}
    assert report_of(tmp_path, flux)["tables"][0]["encoding"] == "rope"
    with pytest.raises(PeError, match="is not scaled"):
        report_of(tmp_path, flux, seq_len=64)
