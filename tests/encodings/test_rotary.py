"""Rotary tables: the values, every layout, block independence, xPos, and what is refused."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_cli import rope, xpos
from pe_cli.encodings.rope.forms import ALIASES, CONSTANTS, TABLES
from pe_cli.errors import PeError

YARN = {"scaling": "yarn", "factor": 4.0, "original_len": 4096}


def angles(positions: np.ndarray, dim: int, base: float = 10000.0) -> np.ndarray:
    return positions[:, None] * base ** (-np.arange(0, dim, 2) / dim)


def rotate(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """transformers' application: halves paired."""
    first, second = np.split(x, 2, axis=-1)
    return x * cos + np.concatenate([-second, first], axis=-1) * sin


def test_values_are_correctly_rounded_anywhere() -> None:
    """Against 50-digit arithmetic, at small, large, negative and fractional positions."""
    positions = np.array([0, 1, 77, 4095, 131071, 10_000_000, -12345, 2**40])
    table = np.asarray(rope(positions, 64, base=500000.0))
    with mpmath.workdps(50):
        for row in range(len(positions)):
            for pair in (0, 1, 5, 16, 31):
                angle = int(positions[row]) * mpmath.mpf(500000) ** (-mpmath.mpf(2 * pair) / 64)
                want = (np.float32(float(mpmath.cos(angle))), np.float32(float(mpmath.sin(angle))))
                assert tuple(table[row, 2 * pair : 2 * pair + 2]) == want


def test_float64_has_small_relative_error() -> None:
    table = np.asarray(rope(np.array([3, 1_000_003]), 32, dtype="float64"))
    with mpmath.workdps(50):
        for row, position in enumerate((3, 1_000_003)):
            for pair in range(16):
                angle = position * mpmath.mpf(10000) ** (-mpmath.mpf(2 * pair) / 32)
                for value, want in zip(
                    table[row, 2 * pair :], (mpmath.cos(angle), mpmath.sin(angle)), strict=False
                ):
                    assert abs(mpmath.mpf(float(value)) / want - 1) < 2.0**-52


def test_layouts_hold_the_same_numbers() -> None:
    positions, dim = np.arange(700), 16
    cos, sin = np.cos(angles(positions, dim)), np.sin(angles(positions, dim))
    pairs = np.stack([cos, sin], axis=-1)
    repeated = {"cos": np.repeat(cos, 2, axis=1), "sin": np.repeat(sin, 2, axis=1)}
    want: dict[str, dict[str, np.ndarray]] = {
        "interleaved": {"rope": pairs.reshape(700, dim)},
        "half": {"cos": np.tile(cos, 2), "sin": np.tile(sin, 2)},
        "adjacent": repeated,
        "split": {"cos": cos, "sin": sin},
        "cos-sin": {"cos_sin_cache": np.hstack([cos, sin])},
        "sin-cos": {"sin_cos_cache": np.hstack([sin, cos])},
        "sin-cos-adjacent": {"sin_cos_cache": np.hstack([repeated["sin"], repeated["cos"]])},
        "complex": {"freqs_cis": cos + 1j * sin},
    }
    assert want.keys() == TABLES.keys()
    for layout, tensors in want.items():
        found = rope(positions, dim, layout=layout)
        assert list(found.keys()) == list(tensors)
        for name, table in tensors.items():
            assert found[name].dtype == (np.complex64 if layout == "complex" else np.float32)
            np.testing.assert_allclose(found[name], table, atol=1e-7, err_msg=layout)


def test_interleaved_is_a_complex_view() -> None:
    table = np.asarray(rope(np.arange(9), 8))
    np.testing.assert_array_equal(
        table.view(np.complex64), rope(np.arange(9), 8, layout="complex")["freqs_cis"]
    )


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases(alias: str) -> None:
    one, other = rope(np.arange(3), 8, layout=alias), rope(np.arange(3), 8, layout=ALIASES[alias])
    assert one.keys() == other.keys()


def test_constants() -> None:
    options: dict[str, Any] = {"base": 5e5, "scaling": "llama3", "factor": 8.0, "original_len": 8192}
    options |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "dtype": "float64"}
    w = rope(np.arange(0), 128, layout="inv-freq", **options)["inv_freq"]
    divisors = rope(np.arange(5), 128, layout="ggml-factors", **options)["rope_freqs.weight"]
    freqs = rope(np.arange(5), 128, layout="mlx-freqs", **options)["freqs"]
    plain = 5e5 ** (-np.arange(64) / 64)
    np.testing.assert_allclose(w * divisors, plain, rtol=1e-14)
    np.testing.assert_allclose(w * freqs, 1, rtol=1e-15)
    assert (divisors[0], divisors[-1]) == (1, 8)


def test_pairs_that_do_not_turn() -> None:
    options: dict[str, Any] = {"scaling": "proportional", "partial": 0.5}
    half = rope(np.arange(4), 16, layout="half", **options)
    assert (half["cos"][:, 4:8] == 1).all()
    assert (half["sin"][:, 12:] == 0).all()
    assert np.isinf(rope(np.arange(0), 16, layout="mlx-freqs", **options)["freqs"][4:]).all()
    assert np.isinf(rope(np.arange(0), 16, layout="ggml-factors", **options)["rope_freqs.weight"][4:]).all()


def test_ggml_names_of_longrope() -> None:
    lists = {"short_factor": [1.5] * 4, "long_factor": [9.0] * 4, "original_len": 64, "factor": 4.0}
    for policy, name in {"short": "rope_factors_short.weight", "long": "rope_factors_long.weight"}.items():
        found = rope(np.arange(0), 8, layout="ggml", scaling="longrope", policy=policy, **lists)
        np.testing.assert_array_equal(found[name], np.float32(lists[f"{policy}_factor"]))


@pytest.mark.parametrize("layout", TABLES)
def test_magnitude_is_baked_into_tables(layout: str) -> None:
    found, plain = rope(np.arange(5), 16, layout=layout, **YARN), rope(np.arange(5), 16, layout=layout)
    assert found.facts["baked_in"] is True
    assert found.facts["attention_factor"] == pytest.approx(1.138629, abs=5e-7)
    for name, table in found.items():
        np.testing.assert_allclose(table[0], plain[name][0] * np.float32(1.1386294), rtol=1e-6)


@pytest.mark.parametrize("layout", CONSTANTS)
def test_magnitude_is_reported_where_it_is_not_baked_in(layout: str) -> None:
    found = rope(np.arange(5), 16, layout=layout, **YARN)
    assert found.facts["baked_in"] is False
    assert "1.13862944" in found.warnings[0]
    assert not rope(np.arange(5), 16, layout=layout).warnings


def test_deepseek_softmax_factor_is_a_fact() -> None:
    found = rope(np.arange(2), 64, mscale=1.0, mscale_all_dim=1.0, **(YARN | {"factor": 40.0}))
    assert found.facts["attention_factor"] == 1.0
    assert found.facts["softmax_scale_factor"] == pytest.approx(1.873854, abs=5e-7)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(-(2**20), 2**24), min_size=1, max_size=40),
    st.sampled_from(["float32", "float64", "bfloat16", "float16", "float8_e4m3fn"]),
    st.sampled_from(["exact", "float32"]),
    st.sampled_from(["interleaved", "half", "adjacent", "split", "cos-sin"]),
)
def test_a_row_does_not_depend_on_the_others(
    positions: list[int], dtype: str, compute: str, layout: str
) -> None:
    options: dict[str, Any] = {"layout": layout, "dtype": dtype, "compute": compute, **YARN}
    whole = rope(np.array(positions), 48, **options)
    for row, position in enumerate(positions):
        for name, table in rope(np.array([position]), 48, **options).items():
            assert table[0].tobytes() == whole[name][row].tobytes()


def test_blocks_and_scattered_rows_are_rows_of_the_table() -> None:
    whole = np.asarray(rope(np.arange(5000), 24))
    np.testing.assert_array_equal(np.asarray(rope(np.arange(1234, 4321), 24)), whole[1234:4321])
    chosen = np.array([4999, 0, 17, 2048, 2047])
    np.testing.assert_array_equal(np.asarray(rope(chosen, 24)), whole[chosen])
    np.testing.assert_array_equal(np.asarray(rope(chosen.astype(float), 24)), whole[chosen])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2"])
def test_narrow_types_are_rounded_once(dtype: str) -> None:
    from pe_cli.numerics.dtypes import round_to

    positions = np.arange(2000)
    exact = rope(positions, 32, layout="split", dtype="float64")
    narrow = rope(positions, 32, layout="split", dtype=dtype)
    for name in ("cos", "sin"):
        same = narrow[name] == round_to(exact[name], dtype)
        assert same.mean() > 0.9999


def test_scores_depend_on_distance_alone() -> None:
    random = np.random.default_rng(0)
    q, k = random.normal(size=(2, 32))
    table = rope(np.array([5, 9, 1005, 1009]), 32, layout="half", dtype="float64")
    turned = [(rotate(q, c, s), rotate(k, c, s)) for c, s in zip(table["cos"], table["sin"], strict=True)]
    assert turned[0][0] @ turned[1][1] == pytest.approx(turned[2][0] @ turned[3][1], rel=1e-12)
    assert np.linalg.norm(turned[3][0]) == pytest.approx(np.linalg.norm(q))


def test_no_positions_give_empty_tensors() -> None:
    for layout, form in TABLES.items():
        for name, table in rope(np.arange(0), 12, layout=layout).items():
            assert table.shape == (0, form.width * 6), name


def test_partial_width() -> None:
    np.testing.assert_array_equal(
        np.asarray(rope(np.arange(5), 80, partial=0.4)), np.asarray(rope(np.arange(5), 32))
    )
    odd = rope(np.arange(5), 200, partial=0.29)
    assert odd["rope"].shape == (5, 58)
    assert odd.warnings


@pytest.mark.parametrize(
    ("dim", "options", "message"),
    [
        (7, {}, "dim 7"),
        (0, {}, "dim 0"),
        (8, {"layout": "hlaf"}, "did you mean 'half'"),
        (8, {"layout": "complex", "dtype": "float16"}, "no complex form"),
        (8, {"seq_len": 9}, "seq_len does not apply to scaling none"),
        (
            8,
            {"truncate": False, "scaling": "linear", "factor": 2.0},
            "truncate does not apply to scaling linear",
        ),
        (8, {"interleave_sections": True}, "interleave_sections needs sections"),
        (8, {"grid": (2, 2)}, "grid needs sections"),
        (8, {"ref_grid": (2, 2)}, "ref_grid belongs to axis_style eva02"),
        (8, {"axis_factors": (2.0,)}, "axis_factors belong to axes"),
        (8, {"compute": "float32", "scaling": "ntk-mixed", "factor": 2.0, "mixed_b": 1.0}, "no framework"),
        (8, {"compute": "float32", "layout": "mlx"}, "no float32 recipe"),
        (8, {"compute": "float16"}, "no compute"),
        (8, {"short_factor": np.ones((2, 2))}, "one axis is needed"),
    ],
)
def test_what_is_refused(dim: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PeError, match=message):
        rope(np.arange(4), dim, **options)


def test_coordinates_without_axes_are_refused() -> None:
    with pytest.raises(PeError, match="need sections, axes or axis_style"):
        rope(np.zeros((4, 2), int), 8)


def torchscale_xpos(length: int, dim: int, downscale: bool) -> tuple[np.ndarray, np.ndarray]:
    """What torchscale multiplies with: cosines and sines times scale, each value twice in a row."""
    zeta = (np.arange(0, dim, 2) + 0.4 * dim) / (1.4 * dim)
    power = np.arange(-length // 2, length + -length // 2) / 512
    scale = zeta ** power[:, None]
    scale = 1 / scale if downscale else scale
    turned = angles(np.arange(length), dim)
    return np.repeat(np.cos(turned) * scale, 2, axis=1), np.repeat(np.sin(turned) * scale, 2, axis=1)


@pytest.mark.parametrize("length", [7, 64])
def test_xpos_as_in_torchscale(length: int) -> None:
    found = xpos(np.arange(length), 16, seq_len=length, layout="adjacent", dtype="float64")
    assert not found.warnings
    for side, downscale in (("q", False), ("k", True)):
        cos, sin = torchscale_xpos(length, 16, downscale)
        np.testing.assert_allclose(found[f"{side}_cos"], cos, atol=1e-12)
        np.testing.assert_allclose(found[f"{side}_sin"], sin, atol=1e-12)


def test_xpos_scores_do_not_depend_on_the_centre() -> None:
    random = np.random.default_rng(1)
    q, k = random.normal(size=(2, 16))
    scores = []
    for length in (None, 100, 4000):
        found = xpos(np.array([40, 90]), 16, seq_len=length, layout="half", dtype="float64")
        turned_q = rotate(q, found["q_cos"][1], found["q_sin"][1])
        scores.append(turned_q @ rotate(k, found["k_cos"][0], found["k_sin"][0]))
    assert scores[1:] == pytest.approx([scores[0]] * 2, rel=1e-11)
    assert xpos(np.arange(3), 16).warnings


def test_xpos_in_float64_is_as_exact_near_zeros_as_rope() -> None:
    where = np.array([573204])  # nearly an odd number of quarter turns
    centred = xpos(where, 16, seq_len=2 * where[0], layout="split", dtype="float64")
    plain = rope(where, 16, layout="split", dtype="float64")
    np.testing.assert_array_equal(centred["q_cos"], plain["cos"])
    np.testing.assert_array_equal(centred["k_sin"], plain["sin"])


def test_xpos_refuses_what_overflows() -> None:
    with pytest.raises(PeError, match="position 40000 decays beyond float32"):
        xpos(np.array([0, 40000]), 16)
    xpos(np.array([0, 40000]), 16, seq_len=40000)
    with pytest.raises(PeError, match="layout inv-freq has no decay"):
        xpos(np.arange(3), 16, layout="inv-freq")
    with pytest.raises(PeError, match="scale_base 0"):
        xpos(np.arange(3), 16, scale_base=0.0)


@pytest.mark.interop
def test_onnx_operator_takes_the_split_table() -> None:
    """The RotaryEmbedding operator of ONNX opset 23 with our caches equals a float64 rotation."""
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    random = np.random.default_rng(2)
    x = random.normal(size=(1, 2, 6, 16)).astype(np.float32)
    caches = rope(np.arange(6), 16, layout="split", base=500.0)
    node = onnx.helper.make_node("RotaryEmbedding", ["x", "cos", "sin", "ids"], ["y"])
    values = [("x", x.shape), ("cos", (6, 8)), ("sin", (6, 8))]
    inputs = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in values]
    inputs.append(onnx.helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, (1, 6)))
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, x.shape)
    graph = onnx.helper.make_graph([node], "g", inputs, [output])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)])
    feed = {"x": x, "cos": caches["cos"], "sin": caches["sin"], "ids": np.arange(6)[None]}
    (y,) = reference.ReferenceEvaluator(model).run(None, feed)
    turned = np.tile(angles(np.arange(6), 16, 500.0), 2)
    want = rotate(x.astype(np.float64), np.cos(turned), np.sin(turned))
    np.testing.assert_allclose(y, want, atol=1e-6)


@pytest.mark.interop
def test_complex_is_metas_freqs_cis() -> None:
    torch = pytest.importorskip("torch")
    w = 1.0 / (500000.0 ** (torch.arange(0, 128, 2)[:64].double() / 128))
    turned = torch.outer(torch.arange(50).double(), w)
    theirs = torch.polar(torch.ones_like(turned), turned).to(torch.complex64).numpy()
    np.testing.assert_allclose(
        rope(np.arange(50), 128, base=5e5, layout="complex")["freqs_cis"], theirs, atol=1e-7
    )
