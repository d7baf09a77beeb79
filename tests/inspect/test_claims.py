"""What `identify` tells of tables that leave room for something else: the simplest answer that makes them, or a doubt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import pe_cli
from pe_cli.errors import PeError
from pe_cli.files.sources import open_source
from pe_cli.inspect import identify, look_at, regenerate
from pe_cli.inspect.result import stored_precision
from pe_cli.numerics.dtypes import numpy_dtype

Array = NDArray[Any]


def frequencies(dim: int, base: float = 1e4) -> Array:
    return np.asarray(base ** (-np.arange(0, dim, 2) / dim))


def cos_sin(positions: Any, w: Array) -> Array:
    angles = np.outer(positions, w)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=-1).astype(np.float32)


def interleaved(positions: Any, w: Array) -> Array:
    angles = np.outer(positions, w)
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1).reshape(len(angles), -1).astype(np.float32)


def told(table: Array, name: str | None = None) -> dict[str, Any]:
    return identify(table, name).to_dict()


@pytest.mark.parametrize("start", [10**6, 10**7, -(10**6), 4321])
@pytest.mark.parametrize("dim", [8, 10])
def test_a_far_start_of_a_narrow_table_is_the_whole_number_that_makes_it(start: int, dim: int) -> None:
    found = told(cos_sin(np.arange(start, start + 64), frequencies(dim)))
    assert (found["start"], found["computed"]) == (start, "exact")
    assert found["residual"] <= 0.51


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "base"),
    [
        (interleaved(np.arange(10**6, 10**6 + 128), frequencies(8)).astype(ml_dtypes.bfloat16), 10000),
        (cos_sin(np.arange(10**5, 10**5 + 10), frequencies(4)), 10000),
        (cos_sin(np.arange(10**5, 10**5 + 128), frequencies(4, 100.0)), 100),
    ],
)
def test_a_start_that_other_positions_give_as_well_is_not_told(table: Array, base: int) -> None:
    """Frequencies that are multiples of one another: all angles come again."""
    found = told(table)
    assert found["base"] == base
    assert "start" not in found
    assert "float32" not in found.get("computed", "")
    assert any(note.startswith("start ") for note in found["ambiguous"])


@pytest.mark.parametrize(
    ("rows", "dim", "base"), [(32, 4, 1e3), (4, 4, 1e4), (32, 8, 1e3), (16, 4, 1e4), (48, 6, 500.0)]
)
def test_small_tables_in_bfloat16_are_the_plain_ones(rows: int, dim: int, base: float) -> None:
    """Sines of a start that was searched for look like cosines from 0 on."""
    found = told(cos_sin(np.arange(rows), frequencies(dim, base)).astype(ml_dtypes.bfloat16))
    assert (found["layout"], found["base"], found["start"]) == ("cos-sin", base, 0)
    assert found.get("stride", 1) == 1


@pytest.mark.parametrize("start", [0.5, 3.5, -0.25, 17.125])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_start_of_few_digits_is_told_as_such(start: float, dtype: Any) -> None:
    found = told(cos_sin(np.arange(64) + start, frequencies(64)).astype(dtype))
    assert (found["base"], found["start"], found["computed"]) == (10000, start, "exact")
    assert found["residual"] <= 0.51


@pytest.mark.parametrize("seed", [0, 3, 11])
@pytest.mark.parametrize("base", [1e4, 5e5])
def test_scattered_whole_positions_are_whole(seed: int, base: float) -> None:
    positions = np.sort(np.random.default_rng(seed).choice(2048, 512, replace=False))
    found = identify(cos_sin(positions, frequencies(64, base)))
    assert found.facts["computed"] == "exact"
    assert found.reading is not None
    assert np.array_equal(found.reading.solved.positions, positions)


@pytest.mark.parametrize(("base", "pairs"), [(2.0**16, 16), (2.0**8, 8), (4.0**12, 12)])
def test_powers_of_two_are_not_frequencies_that_were_rounded(base: float, pairs: int) -> None:
    found = told(cos_sin(np.arange(64), frequencies(2 * pairs, base)))
    assert (found["base"], found["start"], found["computed"]) == (base, 0, "exact")
    assert "frequency_dtype" not in found


@pytest.mark.parametrize("base", [1e4, 5e5])
def test_float32_frequencies_in_exact_products(base: float) -> None:
    single = frequencies(64, base).astype(np.float32)
    found = told(cos_sin(np.arange(512), single.astype(np.float64)))
    assert (found["base"], found["frequency_dtype"], found["computed"]) == (base, "float32", "exact")
    assert found["residual"] <= 0.51
    rounded = np.outer(np.arange(512, dtype=np.float32), single)
    products = told(np.concatenate([np.cos(rounded), np.sin(rounded)], axis=1))
    assert (products["computed"], products.get("frequency_dtype")) == ("float32", None)


@pytest.mark.parametrize(
    ("name", "scaling"),
    [
        ("rope_freqs.weight", None),
        ("rope_factors_long.weight", "longrope"),
        ("rope_factors_short.weight", "longrope"),
    ],
)
@pytest.mark.parametrize(
    "values",
    [
        np.ones(64),
        np.sort(1 + 63 * np.random.default_rng(0).random(48)),
        np.r_[np.ones(64), np.full(64, 1e30)],
    ],
)
def test_what_ggml_names_divisors_are_divisors(name: str, scaling: str | None, values: Array) -> None:
    found = told(values.astype(np.float32), name)
    assert (found["encoding"], found["layout"], found.get("scaling")) == ("rope", "ggml-factors", scaling)
    assert "base" not in found
    assert found["factors"] == pytest.approx(values.tolist(), rel=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        np.ones(32),
        np.sort(np.random.default_rng(0).random(32))[::-1],
        np.linspace(1, 0.1, 32),
        np.array([1.0, 0.178 / 1.7778, 0.0316 / 8, 0.0056 / 8]),
    ],
)
def test_frequencies_of_no_rule_are_no_longrope(values: Array) -> None:
    found = told(values.astype(np.float32), "model.rotary_emb.inv_freq")
    assert (found["encoding"], found["scaling"]) == ("rope", "unknown")
    assert "base" not in found
    assert found["frequencies"] == pytest.approx(values.tolist(), rel=1e-6)


def test_a_table_of_unknown_frequencies_has_no_base_and_no_arithmetic() -> None:
    w = np.linspace(1, 0.01, 32) ** 1.3
    found = told(cos_sin(np.arange(300), w), "cos_sin")
    assert (found["scaling"], found["start"]) == ("unknown", 0)
    assert found["frequencies"] == pytest.approx(w.tolist(), rel=1e-7)
    assert "base" not in found
    assert "computed" not in found
    assert found["residual"] < 2


@pytest.mark.parametrize(
    "values",
    [2.0 ** np.arange(10), 1e-3 * 0.9 ** np.arange(64), 0.97 ** np.arange(100), 3.0 ** np.arange(12)],
)
def test_a_geometric_row_without_a_name_is_no_encoding(values: Array) -> None:
    found = told(values)
    assert found["encoding"] is None
    assert "any geometric row" in found["maybe"]


@pytest.mark.parametrize("name", [None, "inv_freq"])
def test_timescales_with_a_frequency_shift_are_listed(name: str | None) -> None:
    """inv_timescales of tensor2tensor, Whisper and fairseq: base 10000 over one pair less."""
    found = told(np.exp(-np.log(1e4) * np.arange(32) / 31), name)
    listed = [*found.get("ambiguous", []), *found.get("maybe", [])]
    assert any(note.startswith("base 10000 with a frequency shift of 1") for note in listed)
    assert found["encoding"] == (None if name is None else "rope")
    if name:
        assert found["base"] == pytest.approx(1e4 ** (32 / 31), rel=1e-13)


def test_a_base_of_a_float64_vector_makes_it_again() -> None:
    found = told(np.asarray(31415.926535 ** (-np.arange(64) / 64)), "inv_freq")
    assert found["base"] == pytest.approx(31415.926535, rel=1e-12)
    assert found["residual"] < 64


def test_t5_of_distances_that_share_no_bucket_leaves_larger_numbers_open() -> None:
    found = told(np.clip(np.arange(16)[:, None] - np.arange(16), 0, 15))
    assert found["encoding"] == "t5"
    notes = " ".join(found["ambiguous"])
    assert "32 and 128 or 64 and 256" in notes
    assert "cut off at" not in notes


def test_a_linear_scaling_says_which_steps_are_the_same() -> None:
    found = told(cos_sin(np.arange(512) / 8, frequencies(64)))
    assert (found["scaling"], found["factor"]) == ("linear", 8)
    assert "scaling none with positions 0.125 apart" in found["ambiguous"]


def test_a_wide_step_is_not_read_as_a_scaling() -> None:
    found = told(cos_sin(np.linspace(0, 1, 50) * 1000, frequencies(256)))
    assert found["scaling"] == "none"
    assert found["stride"] == pytest.approx(1000 / 49, rel=1e-8)


LONG = 32768  # more rows than half a turn of the slowest pair


def test_one_nan_is_one_row_that_differs() -> None:
    table = cos_sin(np.arange(LONG), frequencies(64))
    table[20001, 3] = np.nan
    found = told(table)
    assert (found["encoding"], found["base"]) == (None, 10000)
    assert (found["rows_that_differ"], found["nan_rows"]) == ("20001", [20001])
    assert "sinusoidal, but for 1 of 32768 rows" in found["maybe"]


def test_a_row_left_out_beyond_half_a_turn_of_the_slowest_pair() -> None:
    positions = np.r_[np.arange(20001), np.arange(20002, LONG + 1)]
    found = told(cos_sin(positions, frequencies(64)))
    assert found["runs"] == [[0, 20000, 20001], [20002, LONG, LONG - 20001]]
    assert found["leaves_line_at"] == 20001


@pytest.mark.parametrize("what", ["jump", "NaN"])
def test_rows_of_a_large_table_are_told_by_their_numbers(what: str, tmp_path: Path) -> None:
    """Of which some are read only: where a row leaves the line is known to a block, and NaN by counting."""
    rows, at = 131072, 70001
    positions = np.arange(rows) + (np.arange(rows) >= at) * (what == "jump")
    table = cos_sin(positions, frequencies(64))
    if what == "NaN":
        table[at, 3] = np.nan
    np.save(tmp_path / "table.npy", table)
    with open_source(str(tmp_path / "table.npy")) as source:
        report = look_at(source, named=False, values=True).tensors[0]
    assert report.numbers is not None
    assert at not in report.numbers
    found = report.to_dict()["identified"]
    if what == "jump":
        assert found["encoding"] == "sinusoidal"
        assert at < int(found["leaves_line_at"].split()[1]) < at + rows // 100
    else:
        assert found["encoding"] is None
        assert found["maybe"] == ["sinusoidal, but for rows with NaN or infinities"]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("start", [0, 1])
def test_interleaved_grids_are_named_with_the_rows_first_only(start: int, axis: int) -> None:
    """tatp22 and DETR have the pairs that turn from row to row before those that turn along a row."""
    height, width = 20, 30
    w = frequencies(32)

    def one(places: int) -> Array:
        angles = np.outer(start + np.arange(places), w)
        return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(places, 32)

    down = np.broadcast_to(one(height)[:, None], (height, width, 32))
    along = np.broadcast_to(one(width)[None], (height, width, 32))
    table = np.concatenate([down, along][:: 1 if axis == 0 else -1], axis=-1).astype(np.float32)
    found = told(table.reshape(height * width, 64))
    assert found["grid"] == "20x30"
    if axis == 0:
        assert (found["encoding"], found["style"]) == ("sinusoidal", ("tatp22", "detr")[start])
    else:
        assert (found["encoding"], found["axis_order"]) == (None, "column first")
        assert "style" not in found


@pytest.mark.parametrize("columns", ["signs", "turned at random"])
def test_rows_that_are_no_positions_are_refused_by_a_few(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signs have one amplitude in every pair, and are no table: of 32768 x 128 the search was 16 s."""
    random = np.random.default_rng(0)
    table = np.sign(random.normal(size=(4096, 64)))
    if columns != "signs":
        angles = random.uniform(-9, 9, (4096, 32))
        table = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    counted = 0
    vernier = regenerate._vernier

    def counting(angles: Array, *rest: Any) -> Any:
        nonlocal counted
        counted += angles.size
        return vernier(angles, *rest)

    monkeypatch.setattr(regenerate, "_vernier", counting)
    found = told(table.astype(np.float32))
    assert found["encoding"] is None
    assert counted < 1 << 21


@pytest.mark.parametrize("how", ["offset angles", "exponents by column", "sines of an unknown table"])
def test_no_layout_and_no_part_without_a_formula(how: str) -> None:
    angles = np.outer(np.arange(100), frequencies(64))
    if how == "offset angles":
        table = np.concatenate([np.cos(angles + 0.3), np.sin(angles + 0.3)], axis=1)
    elif how == "exponents by column":
        each = np.outer(np.arange(100), 1e4 ** (-np.arange(64) / 64))
        table = np.where(np.arange(64) % 2, np.cos(each), np.sin(each))
    else:
        angles = np.outer(np.arange(100), np.random.default_rng(3).uniform(0.01, 1, 32))
        table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    found = told(table.astype(np.float32))
    assert found["encoding"] is None
    assert "layout" not in found
    assert "part" not in found


@pytest.mark.slow
@pytest.mark.parametrize("base", [1e4, 5e5])
@pytest.mark.parametrize("width", [16, 320])
def test_few_scattered_positions_of_a_wide_table_are_told_in_their_order(base: float, width: int) -> None:
    positions = [999, 981, 500, 20, 1]
    angles = np.outer(positions, frequencies(width, base))
    sines_first = told(np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32))
    assert sines_first.get("layout") in (None, "sin-cos")
    cosines_first = told(np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))
    assert cosines_first.get("layout") in (None, "cos-sin")
    if width == 320:
        assert (sines_first["start"], cosines_first["start"]) == (999, 999)


@pytest.mark.parametrize(("base", "start"), [(5e5, 0), (1e4, 7)])
def test_cosines_with_the_sines_of_another_table_are_no_table(base: float, start: int) -> None:
    cos = np.cos(np.outer(np.arange(100), frequencies(64))).astype(np.float32)
    sin = np.sin(np.outer(start + np.arange(100), frequencies(64, base))).astype(np.float32)
    found = identify(cos, "cos", {"sin": sin}).to_dict()
    assert found["encoding"] is None
    assert found["maybe"] == [
        f"cosines of base 10000, scaling none, start 0, with sines of base {base:.0f}, scaling none, start {start}"
    ]
    assert pe_cli.identify({"cos": cos, "sin": sin}).encoding is None


def test_tables_of_one_encoding_with_other_parameters_are_not_one_answer() -> None:
    tables = {name: cos_sin(np.arange(64), frequencies(32, base)) for name, base in (("a", 2e4), ("b", 5e5))}
    with pytest.raises(PeError, match="not of one encoding with the same parameters"):
        pe_cli.identify(tables)


@pytest.mark.parametrize(
    ("kind", "code"), [("float16", 0x7D01), ("bfloat16", 0x7F81), ("float32", 0x7FA00001)]
)
@pytest.mark.parametrize("rows", [0, 8])
@pytest.mark.filterwarnings("error")
def test_nothing_but_nan_is_no_cause_for_a_warning(kind: str, code: int, rows: int) -> None:
    """Signalling NaN, which a cast complains of, in every entry."""
    dtype = numpy_dtype(kind)
    table = np.full((rows, 8), code, f"u{dtype.itemsize}").view(dtype)
    assert stored_precision(table).name in (kind, "float64", "float32")
    found = pe_cli.identify(table) if rows else identify(table)
    assert (found.encoding, found.maybe) == (None, [])


@pytest.mark.parametrize("dim", [16, 32])
def test_a_step_beside_a_whole_number_is_no_scaling(dim: int) -> None:
    """Far from 0 the steps of few rows in float16 leave room for a factor of 1.0000077."""
    found = told(interleaved(np.arange(10**6, 10**6 + 32), frequencies(dim, 65536.0)).astype(np.float16))
    assert (found["encoding"], found.get("scaling")) in (("rope", "none"), (None, None))
    assert found.get("start", 10**6) == 10**6
    assert found.get("stride", 1) == 1


def test_a_start_of_float32_angles_in_three_pairs_is_not_one_of_chance() -> None:
    positions = np.arange(99999, 100031, dtype=np.float32)
    angles = np.outer(positions, frequencies(6, 100.0).astype(np.float32))
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(32, 6)
    assert told(table).get("start", 99999) == 99999


def test_a_base_that_is_a_power_of_two_is_listed_beside_its_root() -> None:
    found = told(cos_sin(np.arange(64), frequencies(4, 65536.0)))
    assert found["base"] == 65536 or any(
        "base 65536 with a frequency shift of 0" in note for note in found["ambiguous"]
    )
