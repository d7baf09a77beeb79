"""How far apart two tables are, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import pe_cli
from pe_cli.diff.explain import Explanation, Side, explain
from pe_cli.diff.metrics import Metrics, Tolerance, compare
from pe_cli.diff.operands import StoredTable
from pe_cli.encodings.biases import alibi
from pe_cli.encodings.rope.rotary import rope
from pe_cli.encodings.sinusoidal import sinusoidal
from pe_cli.files.sources import open_source
from pe_cli.numerics.dtypes import round_to
from pe_cli.render.difference import sentence

LLAMA3 = {"original_len": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def measured(folder: Path, a: NDArray[Any], b: NDArray[Any], **tolerance: Any) -> Metrics:
    np.save(folder / "a.npy", a)
    np.save(folder / "b.npy", b)
    with open_source(str(folder / "a.npy")) as left, open_source(str(folder / "b.npy")) as right:
        return compare(left, "", right, "", Tolerance(**tolerance))


def table(**options: Any) -> NDArray[np.float32]:
    made: Any = rope(**{"positions": np.arange(512), "dim": 64} | options)
    return np.asarray(next(iter(made.values())), dtype=np.float32)


def explained(a: NDArray[Any], b: NDArray[Any]) -> Explanation:
    return explain(Side(StoredTable.of(a), lambda: a), Side(StoredTable.of(b), lambda: b))


def causes(a: NDArray[Any], b: NDArray[Any]) -> list[str]:
    return [cause.cause for cause in explained(a, b).causes]


def paired(tensors: dict[str, NDArray[Any]]) -> Side:
    """Cosines, with their sines beside them."""
    return Side(StoredTable.of(tensors["cos"]), lambda: tensors["cos"], StoredTable.of(tensors["sin"]))


# -- metrics ------------------------------------------------------------------------------------------------------


def test_metrics_against_plain_numpy(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((5000, 96)).astype(np.float32)
    b = a * (1 + 1e-3 * rng.standard_normal(a.shape).astype(np.float32))
    m = measured(tmp_path, a, b, atol=1e-3, rtol=1e-4)
    x, y = a.astype(float), b.astype(float)
    error = np.abs(x - y)
    cosine = 1 - (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
    assert m.max_abs == pytest.approx(error.max(), rel=1e-6)
    assert m.max_abs_at == tuple(np.unravel_index(error.argmax(), error.shape))
    assert m.mean_abs == pytest.approx(error.mean(), rel=1e-4)
    assert m.max_rel == pytest.approx((error / np.abs(y)).max(), rel=1e-4)
    assert m.outside == np.count_nonzero(error > 1e-3 + 1e-4 * np.abs(y))
    assert m.needed_atol == pytest.approx((error - 1e-4 * np.abs(y)).max(), rel=1e-4)
    assert m.max_cosine_distance == pytest.approx(cosine.max(), rel=1e-3)
    assert m.max_cosine_at == cosine.argmax()
    assert m.by_column == pytest.approx(error.max(axis=0), rel=1e-6)
    assert max(m.by_position) == pytest.approx(error.max(), rel=1e-6)
    assert not m.equal_bytes


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("far", [3999, 17])
def test_steps_that_blocks_are_searched_for_are_the_most_of_all(tmp_path: Path, dtype: str, far: int) -> None:
    rng = np.random.default_rng(far)
    a, b = (rng.standard_normal((40_000, 16)).astype(dtype) for _ in range(2))
    a[far], b[far] = 3.0, -3.0
    a[far, 5], b[far, 5] = 9.0, -9.0
    words = {"float32": np.int32, "float16": np.int16}[dtype]

    def counted(x: NDArray[Any]) -> NDArray[Any]:
        bits = x.view(words).astype(np.int64)
        return np.where(bits < 0, np.iinfo(words).min - bits, bits)

    apart = np.abs(counted(a) - counted(b))
    m = measured(tmp_path, a, b)
    assert (m.max_ulp, m.max_ulp_at) == (apart.max(), (far, 5))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_ulps(tmp_path: Path, dtype: str, steps: int) -> None:
    a = np.asarray(round_to(np.linspace(0.1, 2, 64).reshape(8, 8), dtype))
    b = (a.view(f"i{a.itemsize}") + steps).view(a.dtype)
    import ml_dtypes  # noqa: F401 (numpy reads bfloat16 by its name)

    from pe_cli.diff.metrics import Comparison, Spare

    comparison = Comparison(a.shape, dtype, dtype, Tolerance())
    found = comparison.empty()
    comparison.block(found, 0, a, b, Spare())
    assert found.max_ulp == steps
    assert found.same is (steps == 0)


def test_zero_signs_and_ulps_across_zero(tmp_path: Path) -> None:
    a = np.array([[0.0, 1e-45, 1.0]], np.float32)
    b = np.array([[-0.0, -1e-45, 1.0]], np.float32)
    m = measured(tmp_path, a, b)
    assert m.max_ulp == 2
    assert measured(tmp_path, a, b, ulp=2).same
    assert not measured(tmp_path, a, b, ulp=1).same


def test_nan_and_infinity(tmp_path: Path) -> None:
    a = np.array([[np.nan, np.inf, 1.0, -np.inf]], np.float32)
    assert measured(tmp_path, a, a.copy()).same
    b = a.copy()
    b[0, 2] = np.nan
    m = measured(tmp_path, a, b, atol=1e9)
    assert (m.same, m.nan_unmatched, m.nan_a, m.nan_b) == (False, 1, 1, 2)
    b[0, 2], b[0, 1] = 1.0, -np.inf
    assert not measured(tmp_path, a, b, atol=1e9).same


def test_large_integers_are_compared_exactly(tmp_path: Path) -> None:
    a = np.array([[2**60, 5]], np.int64)
    b = np.array([[2**60 + 1, 5]], np.int64)
    assert not measured(tmp_path, a, b).same
    assert measured(tmp_path, a, a.copy()).same


@pytest.mark.parametrize("shape", [(0, 4), (7,), (3, 1), (2, 3, 5), (1, 400000)])
def test_shapes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).standard_normal(shape)
    assert measured(tmp_path, a, a.copy()).same
    if a.size:
        b = a.copy()
        b.flat[-1] += 1
        m = measured(tmp_path, a, b)
        assert (m.outside, m.max_abs) == (1, pytest.approx(1))


def test_halves_of_large_files_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pe_cli.diff import metrics as stream

    a = np.random.default_rng(0).standard_normal((3000, 64)).astype(np.float32)
    b = a.copy()
    b[10, 3] += 2
    b[2990, 5] += 3
    one = measured(tmp_path, a, b)
    monkeypatch.setattr(stream, "THREADS_FROM", 0)
    two = measured(tmp_path, a, b)
    assert (two.max_abs, two.max_abs_at, two.outside) == (one.max_abs, one.max_abs_at, one.outside)
    assert two.first_outside == one.first_outside == (10, 3)
    assert np.array_equal(two.by_position, one.by_position)


# -- causes -------------------------------------------------------------------------------------------------------

BASE = table()


def changed_table() -> dict[str, tuple[NDArray[Any], list[str]]]:
    rng = np.random.default_rng(0)
    gather = np.arange(64).reshape(-1, 2).T.reshape(-1)
    flipped = BASE.copy()
    flipped[:, 1::2] *= -1
    padded = np.concatenate([np.zeros((1, 64), np.float32), BASE])
    return {
        "layout": (BASE[:, gather], ["layout"]),
        "transpose": (np.ascontiguousarray(BASE.T), ["transpose"]),
        "swap": (BASE[:, np.arange(64) ^ 1], ["swap-sin-cos"]),
        "sign": (flipped, ["sign"]),
        "amplitude": (BASE * np.float32(1.1386), ["amplitude"]),
        "offset": (table(positions=np.arange(5, 517)), ["offset"]),
        "padding": (padded, ["padding-row"]),
        "rounding": (np.asarray(round_to(BASE.astype(float), "bfloat16")), ["dtype-rounding"]),
        "permutation": (BASE[rng.permutation(512)], ["permutation"]),
        "base": (table(base=500000.0), ["base"]),
        "linear": (table(scaling="linear", factor=4.0), ["scaling"]),
        "llama3": (table(scaling="llama3", factor=8.0, **LLAMA3), ["scaling"]),
        "yarn": (table(scaling="yarn", factor=4.0, original_len=4096), ["scaling"]),
        "layout and base": (table(base=500000.0)[:, gather], ["layout", "base"]),
        "rounding and offset": (
            np.asarray(round_to(table(positions=np.arange(3, 515)).astype(float), "float16")),
            ["offset", "dtype-rounding"],
        ),
        "transpose and base": (np.ascontiguousarray(table(base=1e6).T), ["transpose", "base"]),
        "sign and amplitude": (-2 * BASE, ["sign", "amplitude"]),
        "amplitude and permutation": (0.1 * BASE[rng.permutation(512)], ["amplitude", "permutation"]),
        "base and sign of sines": (table(base=1e6) * np.where(np.arange(64) % 2, -1, 1).astype(np.float32), ["base", "sign"]),
    }  # fmt: skip


@pytest.mark.parametrize("name", changed_table())
def test_one_or_two_changes_are_named(name: str) -> None:
    other, expected = changed_table()[name]
    explanation = explained(BASE, other)
    assert sorted(cause.cause for cause in explanation.causes) == sorted(expected)
    assert explanation.explained
    assert explanation.causes[-1].residual_after is not None
    assert explanation.causes[-1].residual_after < 1e-3  # a step of float16, where that was rounded to twice


def test_what_holds_of_each_side_is_said() -> None:
    base = explained(BASE, table(base=500000.0)).causes[0]
    assert (base.a, base.b) == ({"base": 10000}, {"base": 500000})
    offset = explained(BASE, table(positions=np.arange(5, 517))).causes[0]
    assert offset.facts["rows"] == -5 or (offset.a["start"], offset.b["start"]) == (0, 5)
    scaled = table(scaling="yarn", factor=4.0, original_len=4096)
    for a, b in ((BASE, scaled), (scaled, BASE)):
        cause = explained(a, b).causes[0]
        with_yarn, without = (cause.b, cause.a) if a is BASE else (cause.a, cause.b)
        assert (with_yarn["scaling"], with_yarn["factor"], without) == (
            "yarn",
            4,
            {"scaling": "none", "attention_factor": 1.0},
        )
    factor = explained(
        table(scaling="llama3", factor=8.0, **LLAMA3), table(scaling="llama3", factor=32.0, **LLAMA3)
    ).causes[0]
    assert (factor.cause, factor.a, factor.b) == ("factor", {"factor": 8}, {"factor": 32})
    layout = explained(BASE, np.concatenate([BASE[:, ::2], BASE[:, 1::2]], axis=1)).causes[0]
    assert (layout.a, layout.b) == ({"layout": "interleaved"}, {"layout": "cos-sin"})
    assert explained(BASE, BASE * np.float32(0.5)).causes[0].facts == {"ratio": 0.5}


def test_float32_angles_and_where_angles_part() -> None:
    exact = table(positions=np.arange(8192), base=1e6)
    naive = table(positions=np.arange(8192), base=1e6, compute="float32")
    assert causes(exact, naive) == ["float32-angles"]
    parting = explained(BASE, table(base=11000.0)).parting
    assert parting is not None
    assert parting["position"] == 27  # the first p with p |10000^(-i/32) - 11000^(-i/32)| > 0.1


def test_noise_of_the_last_bit_is_no_cause() -> None:
    rng = np.random.default_rng(0)
    exact = table(positions=np.arange(4096))
    steps = rng.integers(-1, 2, exact.shape, dtype=np.int32) * (exact != 0)
    noisy = (exact.view(np.int32) + steps).view(np.float32)
    found = explained(exact, noisy)
    assert (found.explained, found.causes) == (True, [])


def test_frequency_shift() -> None:
    marian, fairseq = (np.asarray(sinusoidal(np.arange(512), 64, style=s)) for s in ("paper-cat", "t2t"))
    assert causes(marian, fairseq) == ["frequency-shift"]
    angles = [np.outer(np.arange(300), 10000.0 ** (-np.arange(32) / (32 - shift))) for shift in (0, 1)]
    cosines_first = [np.stack([np.cos(x), np.sin(x)], -1).reshape(300, 64).astype(np.float32) for x in angles]
    found = explained(*cosines_first).causes
    assert [(c.cause, c.a, c.b) for c in found] == [("frequency-shift", {"shift": 0}, {"shift": 1})]


def test_a_scaling_is_seen_though_sines_and_cosines_are_exchanged() -> None:
    scaled = table(scaling="yarn", factor=4.0, original_len=4096)
    longer = table(scaling="yarn", factor=8.0, original_len=4096)
    assert sorted(causes(longer, scaled[:, np.arange(64) ^ 1])) == ["factor", "swap-sin-cos"]
    assert sorted(causes(BASE[:, np.arange(64) ^ 1], table(scaling="linear", factor=8.0))) == [
        "scaling",
        "swap-sin-cos",
    ]


def test_a_part_of_the_rows_is_aligned() -> None:
    explanation = explained(BASE, BASE[100:200])
    assert [cause.cause for cause in explanation.causes] == ["offset"]
    assert explanation.shared_rows == {"first_a": 100, "first_b": 0, "rows": 100}
    assert causes(BASE, BASE[:200]) == ["rows"]


def test_cosines_and_sines_are_read_together() -> None:
    def pair(**options: Any) -> dict[str, NDArray[Any]]:
        made = rope(np.arange(300), 64, **options)
        return {name: np.asarray(value, dtype=np.float32) for name, value in made.items()}

    found = explain(paired(pair(layout="half")), paired(pair(layout="adjacent", base=5e5)))
    assert [cause.cause for cause in found.causes] == ["layout", "base"]


@pytest.mark.parametrize("interleaved", [False, True])
def test_sections(interleaved: bool) -> None:
    positions = np.stack([np.arange(40)] * 3, axis=1).astype(float)
    image = np.arange(20)
    positions[20:] = np.stack([np.full(20, 20), 20 + image // 5, 20 + image % 5], axis=1)

    def table(**options: Any) -> Side:
        made = rope(positions, 128, layout="half", **options)
        return paired({name: np.asarray(value, dtype=np.float32) for name, value in made.items()})

    a, b = table(sections=(16, 24, 24)), table(sections=(24, 20, 20), interleave_sections=interleaved)
    found = explain(a, b)
    assert [cause.cause for cause in found.causes] == ["sections"]
    assert found.causes[0].a == {"sections": [16, 24, 24]}
    assert found.causes[0].b["sections"] == [24, 20, 20]
    assert found.causes[0].b.get("interleave_sections", False) is interleaved
    assert found.explained


def test_eigenvectors_up_to_sign_and_within_eigenspaces() -> None:
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((40, 6)))[0]
    signs = vectors * [1, -1, 1, 1, -1, 1]
    found = explained(vectors, signs).causes
    assert (found[0].cause, found[0].facts["columns"]) == ("eigenvector-sign", [1, 4])
    turned = vectors.copy()
    c, s = np.cos(0.7), np.sin(0.7)
    turned[:, 2:4] = vectors[:, 2:4] @ np.array([[c, s], [-s, c]])
    found = explained(vectors, turned).causes
    assert (found[0].cause, found[0].facts["eigenspaces"]) == ("eigenvector-sign", [[2, 3]])


def unrelated() -> list[tuple[NDArray[Any], NDArray[Any]]]:
    rng = np.random.default_rng(4)
    pairs = []
    for k in range(12):
        shape = [(64, 32), (128, 64), (197, 48), (100, 16)][k % 4]
        a, b = rng.standard_normal((2, *shape)).astype(np.float32)
        pairs.append((np.cumsum(a, 0) if k % 3 == 0 else a, np.cumsum(b, 0) if k % 2 == 0 else b))
    pairs.append((BASE, rng.standard_normal(BASE.shape).astype(np.float32)))
    return pairs


@pytest.mark.parametrize("k", range(len(unrelated())))
def test_no_cause_is_invented(k: int) -> None:
    found = explained(*unrelated()[k])
    assert (found.causes, found.explained) == ([], False)


def halves(positions: np.ndarray) -> np.ndarray:
    angles = np.outer(positions, 1e4 ** (-np.arange(32) / 32))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_rows_that_go_another_way_are_told_as_rows() -> None:
    """A table that goes another way from row 1500 on: no change of the whole table explains that."""
    exact = halves(np.arange(2048))
    later = exact.copy()
    later[1500:] = halves(np.arange(2048) * 1.3)[1500:]
    (cause,) = explained(exact, later).causes
    assert (cause.cause, cause.facts) == ("rows", {"first": 1500, "last": 2047, "count": 548})


@pytest.mark.parametrize(
    ("rule", "positions"),
    [
        ("bfloat16", round_to(np.arange(512.0), "bfloat16").astype(np.float64)),
        ("int8", np.arange(512).astype(np.int8).astype(np.float64)),
        ("clamp", np.minimum(np.arange(512.0), 299)),
        ("restart", np.concatenate([np.arange(100.0), np.arange(57.0), np.arange(355.0)])),
    ],
)
def test_positions_that_do_not_count_up(rule: str, positions: np.ndarray) -> None:
    exact, broken = halves(np.arange(512.0)), halves(positions)
    away = np.flatnonzero(positions != np.arange(512))
    for a, b in ((exact, broken), (broken, exact)):
        (cause,) = explained(a, b).causes
        assert (cause.cause, cause.facts["rule"], cause.facts["first"]) == ("positions", rule, away[0])
        side = cause.b if b is broken else cause.a
        assert side == {"positions": rule}
        assert cause.residual_after is not None
        assert cause.residual_after < 1e-6
    if rule == "restart":
        assert cause.facts["restarts"] == [100, 157]
    if rule == "clamp":
        assert cause.facts["last"] == 299


def test_rows_that_are_all_alike_are_not_moved() -> None:
    ones = np.ones((4, 4), np.float32)
    other = ones.copy()
    other[1, 2] = 3
    (cause,) = explained(ones, other).causes
    assert (cause.cause, cause.facts["at"]) == ("entries", [[1, 2]])


def test_frequencies_rounded_to_bfloat16_are_told() -> None:
    w = 1e4 ** (-np.arange(32) / 32)
    rounded = np.outer(np.arange(512), round_to(w, "bfloat16").astype(np.float64))
    other = np.concatenate([np.cos(rounded), np.sin(rounded)], axis=1).astype(np.float32)
    (cause,) = explained(halves(np.arange(512)), other).causes
    assert cause.cause == "dtype-rounding"
    assert cause.residual_after is not None
    assert cause.residual_after < 1e-6


@pytest.mark.parametrize("method", ["linear", "cubic", "nearest", "repeat-last"])
def test_a_table_that_was_resampled(method: str) -> None:
    from pe_cli.extend.resample import axis_taps

    rng = np.random.default_rng(0)
    old = np.cumsum(rng.standard_normal((48, 16)), axis=0).astype(np.float32)
    taps = axis_taps(method, 48, 100)
    new = sum(taps.weight[:, k, None] * old[taps.index[:, k]] for k in range(taps.index.shape[1]))
    (cause,) = explained(old, np.asarray(new, np.float32)).causes
    if method == "repeat-last":
        assert cause.cause in ("resampled", "positions", "rows")
    else:
        assert (cause.cause, cause.facts["method"]) == ("resampled", method)


def test_masks_and_entries_that_are_no_numbers() -> None:
    distance = np.arange(12)[None] - np.arange(12)[:, None]
    bias = (-np.array([0.5, 0.25])[:, None, None] * np.abs(distance)).astype(np.float32)
    masked = np.where(distance > 0, -np.inf, bias).astype(np.float32)
    (cause,) = explained(bias, masked).causes
    assert (cause.cause, cause.a["masked"], cause.b) == (
        "mask",
        "none",
        {"masked": "-inf", "pattern": "causal"},
    )
    assert cause.residual_after == 0


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("rows", "cause"), [(slice(0, 10), "rows"), (slice(2, 12), "offset")])
def test_rows_of_another_shape_are_told_beside_rows_that_are_left_out(
    rows: slice, cause: str, swapped: bool
) -> None:
    cubes = np.random.default_rng(0).standard_normal((12, 3, 4)).astype(np.float32)
    pair = [cubes, cubes[rows].reshape(10, 12)]
    found = explained(*(pair[::-1] if swapped else pair))
    assert [one.cause for one in found.causes] == ["shape", cause]
    assert found.explained
    assert "the rows have another shape" in sentence(found.causes[0])


def test_a_remedy_names_options_as_they_are_typed() -> None:
    found = explained(table(base=10000.0), table(base=20000.0))
    assert "make a with --base 20000" in sentence(found.causes[0])


def test_a_transposed_table_is_not_searched_for_in_another_shape_first() -> None:
    a = table(positions=np.arange(4096), dim=128, layout="cos-sin")
    assert causes(a, np.ascontiguousarray(a.T)) == ["transpose"]


def test_rows_beyond_what_float16_counts_are_compared() -> None:
    a = table(positions=np.arange(70_000), dim=16, layout="cos-sin")
    b = a.copy()
    b[66_000:66_800] = np.random.default_rng(0).standard_normal((800, 16))
    assert causes(a, b) == ["rows"]


@pytest.mark.slow
def test_large_tables_are_verified_on_all_their_rows() -> None:
    w = [base ** (-np.arange(32) / 32) for base in (10000.0, 500000.0)]
    angles = [np.outer(np.arange(140_000), one) for one in w]
    a, b = (np.concatenate([np.cos(one), np.sin(one)], axis=1).astype(np.float32) for one in angles)
    b[139_000:139_400] = 0.5
    found = explained(a, b)
    assert [cause.cause for cause in found.causes] == ["base", "rows"]
    assert found.causes[1].facts == {"first": 139_000, "last": 139_399, "count": 400}


def test_wrong_rows_and_wrong_entries_elsewhere_are_two_causes() -> None:
    a = np.random.default_rng(0).standard_normal((40, 64)).astype(np.float32)
    b = a.copy()
    b[21:27] = 0.5
    b[4, 56] += 1
    b[30, 10] += 1
    rows, entries = explained(a, b).causes
    assert (rows.cause, rows.facts) == ("rows", {"first": 21, "last": 26, "count": 6})
    assert (entries.cause, entries.facts["at"]) == ("entries", [[4, 56], [30, 10]])


@pytest.mark.parametrize("swapped", [False, True])
def test_numbers_rounded_before_or_after_they_were_multiplied(swapped: bool) -> None:
    a = np.random.default_rng(1).standard_normal((300, 48)).astype(np.float32)
    b = np.asarray(round_to(a * np.float32(0.8), "bfloat16")).astype(np.float32)
    assert causes(*((b, a) if swapped else (a, b))) == ["amplitude", "dtype-rounding"]


def test_angles_in_bfloat16_are_no_other_scaling() -> None:
    w = 150000.0 ** (-np.arange(48) / 48)
    p = np.arange(1000, dtype=np.float64)
    angles = np.outer(p, w), np.outer(*(round_to(one, "bfloat16").astype(np.float64) for one in (p, w)))
    exact, coarse = (
        np.asarray(round_to(one, "bfloat16")).astype(np.float64) if k else one for k, one in enumerate(angles)
    )
    a, b = (np.concatenate([np.cos(one), np.sin(one)], axis=1).astype(np.float32) for one in (exact, coarse))
    assert causes(a, b) == ["bfloat16-angles"]


@pytest.mark.slow
@pytest.mark.parametrize("length", [4096, 16384])
def test_long_tables_that_begin_again_or_lie_in_another_order(length: int) -> None:
    """Positions that come back from further than half a turn of the slowest pair, in tables that are read in blocks."""
    whole = np.asarray(rope(32768, dim=128, layout="cos-sin"))
    again = explained(whole, whole[np.arange(32768) % length])
    assert [cause.cause for cause in again.causes] == ["positions"]
    assert again.causes[0].facts["restarts"] == list(range(length, 32768, length))
    shuffled = explained(whole, whole[np.random.default_rng(length).permutation(32768)])
    assert [cause.cause for cause in shuffled.causes] == ["permutation"]


def test_tables_of_another_number_of_heads_have_other_parameters() -> None:
    (cause,) = explained(np.asarray(alibi(32, heads=12)), np.asarray(alibi(32, heads=16))).causes
    assert (cause.cause, cause.a["heads"], cause.b["heads"]) == ("parameters", 12, 16)
    assert "a with heads 12, b with heads 16 (" in sentence(cause)


def test_a_frequency_shift_is_told_without_an_option_that_no_command_has() -> None:
    found = explained(np.asarray(sinusoidal(128, dim=32)), np.asarray(sinusoidal(128, dim=32, style="t2t")))
    shift = next(cause for cause in found.causes if cause.cause == "frequency-shift")
    assert "a has frequency shift 0, b has 1" in sentence(shift)
    assert "--shift" not in sentence(shift)


@pytest.mark.parametrize("rtol", [1e30, 1e39, 1e300])
def test_a_relative_tolerance_beyond_float32_allows_nothing_around_zero(tmp_path: Path, rtol: float) -> None:
    a, b = np.array([[0.5, 1, 2, 1]], np.float32), np.array([[0, 1.5, 2, np.nan]], np.float32)
    assert measured(tmp_path, a, b, atol=0.25, rtol=rtol).outside == 2
    m = measured(tmp_path, a, b, atol=1.0, rtol=rtol)
    assert (m.outside, m.needed_atol) == (1, 0.5)


def test_a_column_more_is_no_error() -> None:
    """Pairs of one width against pairs and a column of zeros."""
    angles = np.outer(np.arange(200), 1e4 ** (-np.arange(32) / 32))
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    assert not pe_cli.compare(table, np.pad(table, ((0, 0), (0, 1)))).explained


def test_what_covers_a_minority_of_the_rows_explains_nothing() -> None:
    rng = np.random.default_rng(0)
    a, other = rng.normal(size=(2, 512, 64)).astype(np.float32)
    b = np.concatenate([other[:312], a[:200]])
    assert not pe_cli.compare(a, b).explained
    b = np.concatenate([other[:200], a[:312]])
    assert [cause.cause for cause in pe_cli.compare(a, b).causes] == ["offset"]


def test_zeros_behind_lone_sines_are_no_documents() -> None:
    places = np.arange(512)
    a, b = (np.sin(np.outer(places, base ** (-np.arange(32) / 32))).astype(np.float32) for base in (1e4, 2e4))
    b[460:] = 0
    found = pe_cli.compare(a, b)
    assert found.causes[0].cause == "base"
    assert all(cause.b.get("positions") != "restart" for cause in found.causes)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_complex_table_is_told_against_the_layout_of_the_other(swapped: bool) -> None:
    angles = np.outer(np.arange(100), 1e4 ** (-np.arange(32) / 32))
    real = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    pair = (np.exp(1j * angles).astype(np.complex64), real)
    (cause,) = pe_cli.compare(*(pair if swapped else pair[::-1])).causes
    told = (cause.a["layout"], cause.b["layout"])
    assert (cause.cause, told if swapped else told[::-1]) == ("layout", ("complex", "cos-sin"))
