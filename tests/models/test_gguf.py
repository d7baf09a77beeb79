"""GGUF metadata → the encoding that llama.cpp computes; the files are written by the gguf package."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.models.configuration import data
from pe_cli.models.resolve import resolve

gguf = pytest.importorskip("gguf")
BASE = {"context_length": 8192, "embedding_length": 4096, "attention.head_count": 32}
Make = Callable[..., str]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a file of an architecture with these keys and tensors, and give its path."""

    def write(arch: str, keys: dict[str, Any], **tensors: Any) -> str:
        path = str(tmp_path / f"{arch}.gguf")
        writer = gguf.GGUFWriter(path, arch)
        kinds = {
            bool: writer.add_bool,
            int: writer.add_uint32,
            float: writer.add_float32,
            str: writer.add_string,
        }
        for key, value in (BASE | keys).items():
            kinds.get(type(value), writer.add_array)(f"{arch}.{key}", value)
        for name, values in ({"token_embd": np.zeros((2, 4))} | tensors).items():
            writer.add_tensor(f"{name}.weight", np.asarray(values, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def test_plain_rotation_in_the_order_of_the_architecture(make: Make) -> None:
    assert resolve(make("llama", {"rope.freq_base": 5e5})).parameters == {
        "dim": 128,
        "base": 5e5,
        "layout": "adjacent",
    }
    qwen = resolve(make("qwen2", {"rope.freq_base": 1e6, "attention.key_length": 64}))
    assert qwen.parameters == {"dim": 64, "base": 1e6, "layout": "half"}
    assert qwen.origins["dim"] == "qwen2.attention.key_length"


def test_a_missing_base_is_a_loud_default(make: Make) -> None:
    found = resolve(make("llama", {"rope.dimension_count": 64}))
    assert (found.parameters["dim"], found.parameters["base"]) == (64, 10000.0)
    assert "llama.rope.freq_base is not in" in found.warnings[0]


def test_divisors_in_the_file_replace_the_scaling(make: Make) -> None:
    divisors = np.linspace(1, 8, 64).astype(np.float32)
    found = resolve(make("llama", {"rope.freq_base": 5e5}, rope_freqs=divisors))
    assert found.parameters["long_factor"] == tuple(map(float, divisors))
    assert (found.parameters["policy"], found.parameters["attention_factor"]) == ("long", 1.0)
    assert found.trained_length is None


def test_longrope_factors_go_by_length(make: Make) -> None:
    keys = {
        "rope.freq_base": 1e4,
        "rope.scaling.original_context_length": 4096,
        "rope.scaling.attn_factor": 1.1875,
    }
    path = make("phi3", keys, rope_factors_short=np.ones(64), rope_factors_long=np.full(64, 2.0))
    found = resolve(path, seq_len=5000).parameters
    assert (found["scaling"], found["seq_len"], found["attention_factor"]) == ("longrope", 5000, 1.1875)
    with pytest.raises(PeError, match="seq_len"):
        resolve(path)


def test_yarn_and_its_magnitude(make: Make) -> None:
    yarn = {
        "rope.freq_base": 1e4, "rope.scaling.type": "yarn", "rope.scaling.factor": 40.0,
        "rope.scaling.original_context_length": 4096, "rope.dimension_count": 64,
    }  # fmt: skip
    plain = resolve(make("qwen3", yarn)).parameters
    assert (plain["scaling"], plain["factor"], plain["original_len"]) == ("yarn", 40.0, 4096)
    assert "attention_factor" not in plain
    deepseek = resolve(make("deepseek2", yarn | {"rope.scaling.yarn_log_multiplier": 0.125}))
    assert deepseek.parameters["attention_factor"] == 1.0
    assert any("softmax" in note for note in deepseek.notes)


def test_layers_with_a_window_have_their_own_base(make: Make) -> None:
    keys = {
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4,
        "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0,
    }
    path = make("gemma3", keys)
    full = resolve(path, layer_type="full_attention")
    assert (full.parameters["factor"], full.trained_length) == (8.0, 1024)
    assert resolve(path, layer_type="sliding_attention").parameters == {
        "dim": 128,
        "base": 1e4,
        "layout": "half",
    }
    with pytest.raises(PeError, match="layer_type: full_attention, sliding_attention"):
        resolve(path)


def test_sections_and_their_order(make: Make) -> None:
    keys = {"rope.freq_base": 5e6, "rope.dimension_sections": [24, 20, 20, 0]}
    found = resolve(make("qwen3vl", keys)).parameters
    assert (found["sections"], found["interleave_sections"]) == ((24, 20, 20), True)


def test_models_that_do_not_rotate(make: Make) -> None:
    bloom = resolve(make("bloom", {"attention.max_alibi_bias": 8.0}))
    assert (bloom.encoding, bloom.parameters) == ("alibi", {"heads": 32, "bias_max": 8.0})
    t5 = resolve(make("t5", {"attention.relative_buckets_count": 32}))
    assert (t5.encoding, t5.parameters) == ("t5", {"num_buckets": 32, "max_distance": 128})
    with pytest.raises(PeError, match=r"position_embd\.weight"):
        resolve(make("gpt2", {}, position_embd=np.zeros((4, 8))))


def test_options_that_have_no_place_are_refused(make: Make) -> None:
    path = make("llama", {"rope.freq_base": 1e4})
    with pytest.raises(PeError, match="holds one model"):
        resolve(path, component="text_config")
    with pytest.raises(PeError, match="always rounds"):
        resolve(path, truncate=False)


TABLE = data("llama_cpp")
PAIRS = {"NORM": "adjacent", "NEOX": "half", "MROPE": "half", "IMROPE": "half"}


@pytest.mark.parametrize("arch", [a for a, kind in TABLE["architectures"].items() if kind in PAIRS])
def test_pairing_of_every_architecture(make: Make, arch: str) -> None:
    if arch in TABLE["learned"]:
        with pytest.raises(PeError, match="learned table"):
            resolve(make(arch, {}))
        return
    found = resolve(make(arch, {"rope.freq_base": 1e4, "rope.dimension_count": 64}))
    kind = TABLE["conditional"].get(arch, {}).get("otherwise", TABLE["architectures"][arch])
    assert (found.pairing, found.warnings, found.unread) == (PAIRS[kind], (), ())


@pytest.mark.parametrize("arch", TABLE["conditional"])
def test_sections_change_how_an_architecture_turns(make: Make, arch: str) -> None:
    keys = {"rope.freq_base": 1e4, "rope.dimension_count": 64, "rope.dimension_sections": [8, 12, 12, 0]}
    found = resolve(make(arch, keys))
    assert (found.pairing, found.parameters["sections"]) == ("half", (8, 12, 12))


@pytest.mark.parametrize("arch", [a for a, kind in TABLE["architectures"].items() if kind == "NONE"])
def test_architectures_without_rotation_have_no_rotary_table(make: Make, arch: str) -> None:
    buckets = 32 if "t5" in arch else 0
    path = make(arch, {"rope.dimension_count": 64, "attention.relative_buckets_count": buckets})
    if buckets or TABLE["alibi"].get(arch):
        assert resolve(path).encoding == ("t5" if buckets else "alibi")
        return
    with pytest.raises(PeError, match=r"recurrent|learned table|does not rotate"):
        resolve(path)


def test_an_architecture_that_is_not_listed_is_a_guess(make: Make) -> None:
    assert "is a guess" in resolve(make("newer", {"rope.freq_base": 1e4})).warnings[0]
    with pytest.raises(PeError, match="nothing in the metadata of architecture 'other' speaks of positions"):
        resolve(make("other", {}))


@pytest.mark.parametrize(
    ("arch", "keys", "sliding"),
    [
        ("gemma3", {"attention.sliding_window": 512}, {"base": 1e4}),
        ("gemma3n", {"attention.sliding_window": 512}, {"base": 1e4}),
        ("olmo2", {"attention.sliding_window": 512}, {"base": 1e6}),
        ("modern-bert", {"attention.sliding_window": 128, "rope.freq_base_swa": 2e4}, {"base": 2e4}),
    ],
)
def test_sliding_layers_are_not_scaled(
    make: Make, arch: str, keys: dict[str, Any], sliding: dict[str, Any]
) -> None:
    path = make(
        arch, {"rope.freq_base": 1e6, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0, **keys}
    )
    found = resolve(path, layer_type="sliding_attention")
    assert found.parameters == {"dim": 128, "layout": "half", **sliding}
    assert found.unread == ()
    assert resolve(path, layer_type="full_attention").parameters["factor"] == 8.0


def test_a_ramp_in_part_is_refused(make: Make) -> None:
    yarn = {
        "rope.freq_base": 1e4,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 1024,
    }
    assert (
        resolve(make("llama", yarn | {"rope.scaling.yarn_ext_factor": 1.0})).parameters["scaling"] == "yarn"
    )
    assert (
        resolve(make("llama", yarn | {"rope.scaling.yarn_ext_factor": 0.0})).parameters["scaling"] == "linear"
    )
    with pytest.raises(PeError, match=r"yarn_ext_factor is 0\.5: a ramp in part is not computed"):
        resolve(make("llama", yarn | {"rope.scaling.yarn_ext_factor": 0.5}))


def test_scaling_that_is_switched_off_or_silent(make: Make) -> None:
    none = {"rope.freq_base": 1e4, "rope.scaling.type": "none", "rope.scaling.factor": 4.0}
    assert "scaling" not in resolve(make("hunyuan-dense", none)).parameters
    yarn = {"rope.freq_base": 1e4, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0}
    found = resolve(make("qwen3", yarn))
    assert found.parameters["original_len"] == 8192
    assert any("original_context_length is not in" in warning for warning in found.warnings)
    with pytest.raises(PeError, match="does not rotate granite"):
        resolve(make("granite", {"rope.scaling.finetuned": False}))
    assert resolve(make("llama", {"rope.freq_base": 1e4, "rope.scaling.finetuned": False})).encoding == "rope"
    odd = resolve(make("llama", {"rope.freq_base": 1e4, "rope.twist": 2.0}))
    assert odd.unread == ("llama.rope.twist",)


@pytest.mark.parametrize(
    ("arch", "keys", "layers"),
    [
        ("smollm3", {}, (1, 1, 1, 0, 1, 1)),
        ("llama4", {}, (1, 1, 1, 0, 1, 1)),
        ("smallthinker", {"attention.sliding_window": 8}, (0, 1, 1, 1, 0, 1)),
        ("cohere2", {"attention.sliding_window": 8}, (1, 1, 1, 0, 1, 1)),
        (
            "exaone4",
            {"attention.sliding_window": 8, "attention.sliding_window_pattern": 3},
            (1, 1, 0, 1, 1, 0),
        ),
    ],
)
def test_layers_that_do_not_rotate(
    make: Make, arch: str, keys: dict[str, Any], layers: tuple[int, ...]
) -> None:
    found = resolve(make(arch, {"rope.freq_base": 1e4, "block_count": 6, **keys}))
    assert [t.parameters["layers"] for t in found.extra_tables if t.name == "rotated-layers"] == [layers]


def test_layers_of_each_type_are_numbered(make: Make) -> None:
    keys = {"rope.freq_base": 1e6, "block_count": 7, "attention.sliding_window": 512}
    path = make("gemma3", keys)
    assert resolve(path, layer_type="full_attention").layers == (5,)
    assert resolve(path, layer_type="sliding_attention").layers == (0, 1, 2, 3, 4, 6)
    listed = make("gemma4", keys | {"attention.sliding_window_pattern": [True, False] * 3 + [False]})
    assert resolve(listed, layer_type="full_attention").layers == (1, 3, 5, 6)


def test_a_magnitude_without_a_scaling_that_takes_it_is_named(make: Make) -> None:
    found = resolve(make("llama", {"rope.freq_base": 1e4, "rope.scaling.attn_factor": 1.2}))
    assert found.unread == ("llama.rope.scaling.attn_factor",)


def test_temperatures_are_keys_or_fixed(make: Make) -> None:
    keys = {"rope.freq_base": 1e4, "attention.temperature_length": 4096, "attention.temperature_scale": 0.25}
    (said,) = resolve(make("mistral3", keys)).extra_tables
    assert said.parameters == {"strength": 0.25, "length": 4096}
    (unknown,) = resolve(make("grok", {"rope.freq_base": 1e4, "attention.temperature_length": 1024})).warnings
    assert "temperature_length is 1024" in unknown
    (fixed, _) = resolve(make("llama4", {"rope.freq_base": 1e4, "block_count": 4})).extra_tables
    assert fixed.parameters == {"strength": 0.1, "length": 8192, "shift": 1}


def test_the_header_is_read_once_for_all_layer_types_and_anew_when_the_file_changes(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pe_cli.models import gguf as models
    from pe_cli.models.resolve import resolve_every

    opened: list[Any] = []
    read = models.read_header
    monkeypatch.setattr(models, "read_header", lambda stream: opened.append(stream) or read(stream))
    path = make("gemma3", {"rope.freq_base": 1e6, "attention.sliding_window": 512})
    assert set(resolve_every(path, layer_type="all")) == {"full_attention", "sliding_attention"}
    assert len(opened) == 1
    make("gemma3", {"rope.freq_base": 5e5, "attention.sliding_window": 512, "block_count": 6})
    assert resolve(path, layer_type="full_attention").parameters["base"] == 5e5
