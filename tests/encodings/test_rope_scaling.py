"""Frequencies of every scaling, against published numbers, closed forms and transformers."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from pe_cli.encodings.rope.scaling import SCALINGS, frequencies, rotary_width, scaling_options
from pe_cli.errors import PeError

QWEN = {"base": 1e6, "scaling": "yarn", "factor": 4.0, "original_len": 32768}
GPT_OSS = {"base": 150000.0, "scaling": "yarn", "factor": 32.0, "original_len": 4096}
LLAMA31 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_len": 8192}
DEEPSEEK = {"original_len": 4096, "mscale": 1.0, "mscale_all_dim": 1.0}

# inv_freq[1], inv_freq[d / 4], inv_freq[-1] and A of transformers 5.24 for the configurations of real models.
GOLDEN: dict[str, tuple[int, dict[str, Any], tuple[float, float, float, float]]] = {
    "qwen": (128, QWEN, (0.805842188, 6.02941176e-4, 3.1023444e-7, 1.138629)),
    "gpt-oss": (64, GPT_OSS | {"truncate": False}, (0.689044306, 4.56483919e-4, 3.02351143e-7, 1.346574)),
    "gpt-oss truncated": (64, GPT_OSS, (0.689044306, 5.80947502e-4, 3.02351143e-7, 1.346574)),
    "deepseek-v3": (
        64,
        {"base": 1e4, "scaling": "yarn", "factor": 40.0, **DEEPSEEK},
        (0.749894209, 5.5e-3, 3.33380358e-6, 1.0),
    ),
    "kimi-k2": (
        64,
        {"base": 5e4, "scaling": "yarn", "factor": 32.0, "beta_fast": 1.0, "beta_slow": 1.0, **DEEPSEEK},
        (0.713111085, 4.47213595e-3, 8.76441291e-7, 1.0),
    ),
    "llama-3.1": (
        128,
        {"base": 5e5, "scaling": "llama3", "factor": 8.0, **LLAMA31},
        (0.814617234, 5.24846161e-4, 3.06892599e-7, 1.0),
    ),
    "llama-3.2": (
        64,
        {"base": 5e5, "scaling": "llama3", "factor": 32.0, **LLAMA31},
        (0.663601238, 4.29556797e-4, 9.41830673e-8, 1.0),
    ),
    "dynamic": (
        128,
        {"base": 1e6, "scaling": "dynamic-ntk", "factor": 2.0, "original_len": 32768, "seq_len": 65536},
        (0.791911495, 5.72338151e-4, 4.1364592e-7, 1.0),
    ),
    "gemma-3": (
        256,
        {"base": 1e6, "scaling": "linear", "factor": 8.0},
        (0.112210892, 1.25e-4, 1.39246732e-7, 1.0),
    ),
    "gemma-4": (512, {"base": 1e6, "scaling": "proportional", "partial": 0.25}, (0.947463526, 0.0, 0.0, 1.0)),
}


def floats(dim: int, **options: Any) -> np.ndarray:
    return np.array([float(w) for w in frequencies(dim, **options).inv_freq])


@pytest.mark.parametrize("model", GOLDEN)
def test_golden_numbers(model: str) -> None:
    dim, options, (second, middle, last, magnitude) = GOLDEN[model]
    found = frequencies(dim, **options)
    w = [float(value) for value in found.inv_freq]
    assert len(w) == dim // 2
    np.testing.assert_allclose([w[1], w[dim // 4], w[-1]], [second, middle, last], rtol=1e-7 * 0.05)
    assert found.attention_factor == pytest.approx(magnitude, rel=5e-7)


def test_bands() -> None:
    found = {name: frequencies(dim, **options).facts for name, (dim, options, _) in GOLDEN.items()}
    assert found["gpt-oss"]["correction_range"] == pytest.approx([8.092779115, 17.398024502], abs=1e-9)
    assert found["gpt-oss truncated"]["correction_range"] == [8.0, 18.0]
    assert found["deepseek-v3"]["correction_range"] == [10.0, 23.0]
    assert found["kimi-k2"]["correction_range"] == [19.0, 20.0]
    assert found["llama-3.1"]["pairs"] == {"kept": 29, "mixed": 6, "divided": 29}
    assert found["llama-3.2"]["pairs"] == {"kept": 15, "mixed": 3, "divided": 14}


def test_yarn_magnitudes() -> None:
    """A of several factors, and the factor that DeepSeek moves to its softmax."""
    known = {4: 1.138629, 16: 1.277259, 32: 1.346574, 40: 1.368888, 64: 1.415888}
    for factor, magnitude in known.items():
        found = frequencies(64, scaling="yarn", factor=factor, original_len=4096)
        assert found.attention_factor == pytest.approx(magnitude, abs=5e-7)
    for mscale, softmax in {1.0: 1.873854, 0.707: 1.589626}.items():
        options = DEEPSEEK | {"mscale": mscale, "mscale_all_dim": mscale}
        found = frequencies(64, scaling="yarn", factor=40.0, **options)
        assert found.attention_factor == 1.0
        assert found.facts["softmax_scale_factor"] == pytest.approx(softmax, abs=5e-7)


def test_attention_factor_replaces_the_magnitude() -> None:
    options = {"factor": 40.0, **DEEPSEEK, "mscale": 0.5, "attention_factor": 1.25}
    assert frequencies(64, scaling="yarn", **options).attention_factor == 1.25


def test_one_mscale_alone_has_no_effect() -> None:
    """transformers takes the quotient only where both are given and not zero."""
    plain = frequencies(64, scaling="yarn", factor=40.0, original_len=4096).attention_factor
    for lonely in ({"mscale": 2.0}, {"mscale_all_dim": 2.0}, {"mscale": 2.0, "mscale_all_dim": 0.0}):
        found = frequencies(64, scaling="yarn", factor=40.0, original_len=4096, **lonely)
        assert found.attention_factor == plain


def test_decimals_are_exact() -> None:
    """Forty digits of the plain and the YaRN formula, in another library's arithmetic."""
    with mpmath.workdps(60):
        found = frequencies(64, **(GPT_OSS | {"truncate": False})).inv_freq
        base, low, high = (
            mpmath.mpf(150000),
            *(
                64 * mpmath.log(4096 / (turns * 2 * mpmath.pi)) / (2 * mpmath.log(150000))
                for turns in (32, 1)
            ),
        )
        for i, w in enumerate(found):
            ramp = min(max((i - low) / (high - low), 0), 1)
            plain = base ** (-mpmath.mpf(2 * i) / 64)
            want = plain * (1 - ramp) + plain / 32 * ramp
            assert abs(mpmath.mpf(str(w)) / want - 1) < mpmath.mpf(10) ** -45


def test_ntk_divides_the_last_frequency_and_keeps_the_first() -> None:
    plain, scaled = floats(128, scaling="none"), floats(128, scaling="ntk", factor=8.0)
    assert scaled[0] == 1.0
    assert scaled[-1] == pytest.approx(plain[-1] / 8, rel=1e-14)


def test_ntk_fixed_is_another_algebra() -> None:
    i = np.arange(64)
    want = (10000.0 * 4) ** (-i / 64) / 4 ** (2 / 128)
    np.testing.assert_allclose(floats(128, scaling="ntk-fixed", factor=4.0), want, rtol=1e-13)
    assert not np.allclose(floats(128, scaling="ntk", factor=4.0), want, rtol=1e-3)


def test_ntk_mixed() -> None:
    i = np.arange(64)
    steepness = math.log(12) / 64**0.75
    want = 10000.0 ** (-i / 64) * np.exp(-steepness * (i + 1) ** 0.75)
    np.testing.assert_allclose(floats(128, scaling="ntk-mixed", factor=12.0, mixed_b=0.75), want, rtol=1e-13)
    np.testing.assert_allclose(
        floats(128, scaling="ntk-mixed", factor=4.0, mixed_b=1.0),
        floats(128, scaling="ntk-fixed", factor=4.0),
        rtol=1e-14,
    )


def test_dynamic_ntk_below_its_length_is_plain() -> None:
    options = {"scaling": "dynamic-ntk", "factor": 2.0, "original_len": 4096}
    np.testing.assert_array_equal(floats(64, seq_len=1000, **options), floats(64))
    assert not frequencies(64, seq_len=4096, **options).warnings
    assert frequencies(64, seq_len=4097, **options).warnings


def test_ntk_by_parts_ends() -> None:
    plain = floats(128)
    scaled = floats(128, scaling="ntk-by-parts", factor=8.0, original_len=2048)
    assert scaled[0] == plain[0]
    assert scaled[-1] == pytest.approx(plain[-1] / 8, rel=1e-14)
    assert (np.diff(scaled) < 0).all()


def test_llama3_of_equal_factors_is_a_step() -> None:
    """Llama 4 Scout: pairs are kept or divided, none between."""
    options = {"original_len": 8192, "low_freq_factor": 1.0, "high_freq_factor": 1.0}
    found = frequencies(128, base=5e5, scaling="llama3", factor=16.0, **options)
    assert found.facts["pairs"]["mixed"] == 0
    assert {float(d) for d in found.divisors()} == {1.0, 16.0}


def test_longrope_chooses_by_length() -> None:
    short, long = np.full(16, 1.5), np.linspace(1, 30, 16)
    options = {"scaling": "longrope", "original_len": 4096, "factor": 32.0}
    options |= {"short_factor": short, "long_factor": long}
    np.testing.assert_allclose(floats(32, seq_len=4096, **options), floats(32) / short, rtol=1e-14)
    np.testing.assert_allclose(floats(32, seq_len=4097, **options), floats(32) / long, rtol=1e-14)
    found = frequencies(32, policy="long", **options)
    assert found.facts["factors"] == "long"
    assert found.attention_factor == pytest.approx(1.190238, abs=5e-7)
    assert found.warnings


def test_proportional_keeps_the_width_and_the_denominator() -> None:
    w = floats(256, base=1e6, scaling="proportional", partial=0.25, factor=2.0)
    assert len(w) == 128
    np.testing.assert_allclose(w[:32], 1e6 ** (-np.arange(32) / 128) / 2, rtol=1e-14)
    assert not w[32:].any()


def test_partial_shortens_the_width_and_its_denominator() -> None:
    np.testing.assert_array_equal(floats(80, partial=0.4), floats(32))
    assert [rotary_width(200, 0.29), rotary_width(360, 0.7)] == [57, 251]
    odd = frequencies(200, partial=0.29)
    assert len(odd.inv_freq) == 29
    assert float(odd.inv_freq[1]) == pytest.approx(10000 ** (-2 / 57), rel=1e-14)
    assert "odd" in odd.warnings[0]


def test_divisors_and_wavelengths() -> None:
    found = frequencies(8, scaling="proportional", partial=0.5, factor=4.0)
    assert [float(d) for d in found.divisors()] == [4, 4, math.inf, math.inf]
    assert found.wavelengths()[0] == pytest.approx(8 * math.pi)
    assert found.wavelengths()[2] == math.inf


NEEDED = {
    "linear": {"factor": 2.0},
    "ntk": {"factor": 2.0},
    "ntk-fixed": {"factor": 2.0},
    "ntk-mixed": {"factor": 2.0, "mixed_b": 0.75},
    "dynamic-ntk": {"factor": 2.0, "original_len": 64, "seq_len": 128},
    "ntk-by-parts": {"factor": 2.0, "original_len": 64},
    "yarn": {"factor": 2.0, "original_len": 64},
    "longrope": {"original_len": 64, "factor": 2.0, "short_factor": (1.0,) * 8, "policy": "short"},
    "llama3": {"factor": 2.0, "original_len": 64, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}


@pytest.mark.parametrize("scaling", SCALINGS)
def test_each_option_is_taken_needed_or_refused(scaling: str) -> None:
    needed = NEEDED.get(scaling, {})
    frequencies(16, scaling=scaling, **needed)
    for name, must in scaling_options(scaling).items():
        if must:
            without = {key: value for key, value in needed.items() if key != name}
            with pytest.raises(PeError, match=f"scaling {scaling} needs .*{name}"):
                frequencies(16, scaling=scaling, **without)
    every = {name for rule in SCALINGS for name in scaling_options(rule)} - {"partial", "policy"}
    for name in every - set(scaling_options(scaling)):
        with pytest.raises(PeError, match=f"{name} does not apply to scaling {scaling}"):
            frequencies(16, scaling=scaling, **needed, **{name: 1.0})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scaling": "yran"}, "did you mean 'yarn'"),
        ({"scaling": "linear", "factor": 0.0}, "factor 0 is not positive"),
        ({"scaling": "linear", "factor": math.nan}, "factor nan is not a finite number"),
        ({"scaling": "yarn", "factor": 2.0, "original_len": 0}, "original_len 0 is not positive"),
        ({"scaling": "yarn", "factor": 2.0, "original_len": 9, "base": 1.0}, "base 1 must be above 1"),
        (
            {"scaling": "yarn", "factor": 2.0, "original_len": 9, "attention_factor": 0.0},
            "attention_factor 0",
        ),
        ({"scaling": "llama3", **NEEDED["llama3"], "low_freq_factor": 8.0}, "swap them"),
        ({"scaling": "longrope", "original_len": 9, "factor": 2.0}, "give seq_len, or policy"),
        ({"scaling": "longrope", "original_len": 9, "factor": 2.0, "seq_len": 9}, "needs short_factor"),
        ({"scaling": "longrope", **NEEDED["longrope"], "short_factor": [1.0] * 7}, "has 7 entries"),
        ({"scaling": "longrope", **NEEDED["longrope"], "short_factor": [0.0] * 8}, "not positive"),
        ({"scaling": "longrope", **NEEDED["longrope"], "factor": None}, "needs factor"),
        ({"scaling": "longrope", **NEEDED["longrope"], "seq_len": 9}, "leave it out with policy short"),
        ({"partial": 0.0}, "partial 0 is not a fraction"),
        ({"partial": 0.01}, "leaves no rotary channel"),
        ({"base": -1.0}, "base -1 is not a positive number"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PeError, match=message):
        frequencies(16, **options)


@pytest.mark.interop
@pytest.mark.parametrize("model", [name for name in GOLDEN if name != "gemma-4"])
def test_against_transformers(model: str) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    dim, options, _ = GOLDEN[model]
    names = {"base": "rope_theta", "scaling": "rope_type", "original_len": "original_max_position_embeddings"}
    parameters = {names.get(key, key): value for key, value in options.items() if key != "seq_len"}
    parameters["rope_type"] = {"dynamic-ntk": "dynamic"}.get(parameters["rope_type"], parameters["rope_type"])
    config = transformers.LlamaConfig(
        head_dim=dim,
        max_position_embeddings=options.get("original_len", 4096),
        rope_parameters=parameters,
    )
    theirs, magnitude = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, seq_len=options.get("seq_len"))
    ours = frequencies(dim, **options)
    np.testing.assert_allclose(floats(dim, **options), theirs.double().numpy(), rtol=4e-7)
    assert ours.attention_factor == pytest.approx(magnitude, rel=1e-12)
