"""Position settings of a configuration: read, harmless, or named."""

from __future__ import annotations

from typing import Any

import pytest

from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration
from pe_cli.models.resolve import resolve_configuration
from pe_cli.models.resolved import Resolved

LLAMA = {
    "model_type": "llama", "hidden_size": 512, "num_attention_heads": 4, "max_position_embeddings": 4096, "rope_theta": 5e5,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}


def resolved(config: dict[str, Any], **options: Any) -> Resolved:
    return resolve_configuration(
        Configuration("config.json", config, model_type=config.get("model_type", "")), **options
    )


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"rope_taper": 0.3}, ("rope_taper",)),
        ({"rope_scaling": YARN | {"yarn_gamma": 2.0}}, ("rope_scaling.yarn_gamma",)),
        ({"rope_scaling": YARN | {"attn_factor": 0.5}}, ("rope_scaling.attn_factor",)),
        ({"rope_scaling": YARN | {"attn_factor": 1.0, "extrapolation_factor": 1.0}}, ()),
        ({"attn_config": {"rotary_swirl": 2}}, ("attn_config.rotary_swirl",)),
        ({"rotary_dim": 64}, ("rotary_dim",)),
        ({"use_logn_attn": True}, ("use_logn_attn",)),
        ({"use_logn_attn": False, "rope_scaling": None, "temperature": 0.7, "property": 1}, ()),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rope_theta": 1e4}, ()),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "rope_theta": 1e6}, ("rope_theta",)),
        ({"original_max_position_embeddings": 2048}, ()),
        ({"vocab_size": 7, "sliding_window": 8, "quantization_config": {"rope_bits": 3}}, ()),
    ],
)  # fmt: skip
def test_settings_that_had_no_part_are_named(more: dict[str, Any], named: tuple[str, ...]) -> None:
    found = resolved(LLAMA | more)
    assert found.unread == named
    assert all(any(key in warning for warning in found.warnings) for key in named)


def test_what_is_harmless_in_one_model_type_is_named_in_another() -> None:
    more = {"position_embedding_type": "rope_gptj"}
    assert resolved(LLAMA | more).unread == ("position_embedding_type",)
    assert resolved({**LLAMA, "model_type": "cohere2", **more}).unread == ()


def test_a_composite_is_asked_too() -> None:
    part = {**LLAMA}
    same = resolved({"model_type": "llava", "text_config": part, "rope_theta": 5e5})
    assert same.unread == ()
    other = resolved({"model_type": "llava", "text_config": part, "rope_scaling": YARN})
    assert other.unread == ("rope_scaling",)


def test_only_what_is_understood_is_read_as_plain_rotation() -> None:
    plain = {**LLAMA, "model_type": "foo"}
    assert any("every position setting in it is understood" in w for w in resolved(plain).warnings)
    with pytest.raises(PeError, match="does not understand: rope_taper"):
        resolved(plain | {"rope_taper": 1})


def test_the_length_is_said_to_have_no_effect_only_if_that_is_known() -> None:
    assert any("does not depend on the length" in note for note in resolved(LLAMA, seq_len=9).notes)
    assert not resolved(LLAMA | {"rope_taper": 1}, seq_len=9).notes


@pytest.mark.parametrize(
    ("model_type", "meant"),
    [
        ("lama", "llama"),
        ("qwen_2", "qwen2"),
        ("mistrla", "mistral"),
        ("qwen9", ""),
        ("slava", ""),
        ("herbert", ""),
    ],
)
def test_did_you_mean_is_for_misspellings(model_type: str, meant: str) -> None:
    with pytest.raises(PeError) as caught:
        resolved({"model_type": model_type, "hidden_size": 64})
    assert (
        (f"did you mean {meant!r}" in str(caught.value)) if meant else "did you mean" not in str(caught.value)
    )


def test_a_model_that_does_not_rotate_names_them_too() -> None:
    with pytest.raises(PeError, match=r"learned table.*; rope_taper in the file had no part in this"):
        resolved({"model_type": "bert", "hidden_size": 64, "max_position_embeddings": 8, "rope_taper": 1})


@pytest.mark.parametrize(
    "switch", [{"mla_use_nope": True}, {"use_rope": False}, {"rope": False}], ids=lambda value: str(value)
)
def test_a_switch_that_turns_rotation_off(switch: dict[str, Any]) -> None:
    with pytest.raises(PeError, match="does not rotate"):
        resolved({**LLAMA, "model_type": "foo", **switch})
