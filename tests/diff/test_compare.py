"""How far apart two tables are, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pe_cli.diff.arrangement import MOVES
from pe_cli.diff.explain import explain
from pe_cli.diff.metrics import Metrics, Tolerance, compare
from pe_cli.encodings.rope.rotary import rope
from pe_cli.encodings.sinusoidal import sinusoidal
from pe_cli.files.sources import open_source
from pe_cli.numerics.dtypes import round_to

LLAMA3 = {"original_len": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def measured(folder: Path, a: NDArray[Any], b: NDArray[Any], **tolerance: Any) -> Metrics:
    np.save(folder / "a.npy", a)
    np.save(folder / "b.npy", b)
    with open_source(str(folder / "a.npy")) as left, open_source(str(folder / "b.npy")) as right:
        return compare(left, "", right, "", Tolerance(**tolerance))


def table(**options: Any) -> NDArray[np.float32]:
    made: Any = rope(**{"positions": np.arange(512), "dim": 64} | options)
    return np.asarray(made[next(iter(made))], dtype=np.float32)


def causes(a: NDArray[Any], b: NDArray[Any]) -> list[str]:
    return [cause.cause for cause in explain(a, b).causes]


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


NAMES = set(
    "layout transpose swap-sin-cos sign amplitude base frequency-shift scaling factor offset dtype-rounding "
    "float32-angles padding-row permutation eigenvector-sign".split()
)

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
    explanation = explain(BASE, other)
    assert sorted(cause.cause for cause in explanation.causes) == sorted(expected)
    last = explanation.causes[-1].residual_after
    assert last is None or last < 0.005


def test_parameters_of_causes() -> None:
    base = explain(BASE, table(base=500000.0)).causes[0]
    assert (base.facts["a"], base.facts["b"]) == (10000, 500000)
    offset = explain(BASE, table(positions=np.arange(5, 517))).causes[0]
    assert offset.facts["rows"] == 5
    scaling = explain(BASE, table(scaling="yarn", factor=4.0, original_len=4096)).causes[0]
    assert (scaling.facts["b"], scaling.facts["factor"]) == ("yarn", 4)
    factor = explain(
        table(scaling="llama3", factor=8.0, **LLAMA3), table(scaling="llama3", factor=32.0, **LLAMA3)
    ).causes[0]
    assert (factor.cause, factor.facts) == ("factor", {"a": 8, "b": 32})
    layout = explain(BASE, np.concatenate([BASE[:, ::2], BASE[:, 1::2]], axis=1)).causes[0]
    assert layout.facts == {"a": "interleaved", "b": "halves"}
    ratio = explain(BASE, BASE * np.float32(0.5)).causes[0]
    assert ratio.facts["ratio"] == 0.5


def test_float32_angles_and_where_angles_part() -> None:
    exact = table(positions=np.arange(8192), base=1e6)
    naive = table(positions=np.arange(8192), base=1e6, compute="float32")
    assert causes(exact, naive) == ["float32-angles"]
    parting = explain(BASE, table(base=11000.0)).parting
    assert parting is not None
    assert parting["position"] == 27  # the first p with p |10000^(-i/32) - 11000^(-i/32)| > 0.1


def test_frequency_shift() -> None:
    marian, fairseq = (np.asarray(sinusoidal(np.arange(512), 64, style=s)) for s in ("paper-cat", "t2t"))
    assert causes(marian, fairseq) == ["frequency-shift"]
    angles = [np.outer(np.arange(300), 10000.0 ** (-np.arange(32) / (32 - shift))) for shift in (0, 1)]
    cosines_first = [np.stack([np.cos(x), np.sin(x)], -1).reshape(300, 64).astype(np.float32) for x in angles]
    found = explain(*cosines_first).causes
    assert [(c.cause, c.facts) for c in found] == [("frequency-shift", {"a": 0, "b": 1})]


def test_a_scaling_is_seen_though_sines_and_cosines_are_exchanged() -> None:
    scaled = table(scaling="yarn", factor=4.0, original_len=4096)
    longer = table(scaling="yarn", factor=8.0, original_len=4096)
    assert sorted(causes(longer, scaled[:, np.arange(64) ^ 1])) == ["factor", "swap-sin-cos"]
    assert sorted(causes(BASE[:, np.arange(64) ^ 1], table(scaling="linear", factor=8.0))) == [
        "scaling",
        "swap-sin-cos",
    ]


def test_names_of_causes_are_those_of_the_contract() -> None:
    assert set(MOVES.values()) <= NAMES
    for name, (other, _) in changed_table().items():
        assert {cause.cause for cause in explain(BASE, other).causes} <= NAMES, name


def test_a_part_of_the_rows_is_aligned() -> None:
    explanation = explain(BASE, BASE[100:200])
    assert [cause.cause for cause in explanation.causes] == ["offset"]
    assert explanation.shared_rows == (100, 0, 100)
    assert causes(BASE, BASE[:200]) == ["offset"]


def test_cosines_and_sines_are_read_together() -> None:
    def pair(**options: Any) -> dict[str, NDArray[Any]]:
        made = rope(np.arange(300), 64, **options)
        return {name: np.asarray(value, dtype=np.float32) for name, value in made.items()}

    a, b = pair(layout="half"), pair(layout="adjacent", base=5e5)
    explanation = explain(a["cos"], b["cos"], names=("cos", "cos"), companions=(a, b))
    assert [cause.cause for cause in explanation.causes] == ["layout", "base"]


def test_sections_that_text_hides() -> None:
    positions = np.stack([np.arange(40)] * 3, axis=1).astype(float)
    image = np.arange(20)
    positions[20:] = np.stack([np.full(20, 20), 20 + image // 5, 20 + image % 5], axis=1)

    def table(**options: Any) -> dict[str, NDArray[Any]]:
        made = rope(positions, 128, layout="half", **options)
        return {name: np.asarray(value, dtype=np.float32) for name, value in made.items()}

    a = table(sections=(16, 24, 24))
    b = table(sections=(24, 20, 20), interleave_sections=True)
    explanation = explain(a["cos"], b["cos"], names=("cos", "cos"), companions=(a, b))
    assert [(c.cause, c.facts["of"]) for c in explanation.causes] == [("layout", "sections")]
    assert explanation.causes[0].facts["equal_rows"] == 21
    assert "M-RoPE" in explanation.notes[0]


def test_eigenvectors_up_to_sign_and_within_eigenspaces() -> None:
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((40, 6)))[0]
    signs = vectors * [1, -1, 1, 1, -1, 1]
    found = explain(vectors, signs).causes
    assert (found[0].cause, found[0].facts["columns"]) == ("eigenvector-sign", [1, 4])
    turned = vectors.copy()
    c, s = np.cos(0.7), np.sin(0.7)
    turned[:, 2:4] = vectors[:, 2:4] @ np.array([[c, s], [-s, c]])
    found = explain(vectors, turned).causes
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
    assert causes(*unrelated()[k]) == []


def halves(positions: np.ndarray) -> np.ndarray:
    angles = np.outer(positions, 1e4 ** (-np.arange(32) / 32))
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_a_cause_that_leaves_the_difference_is_not_told() -> None:
    """Positions rounded to bfloat16, and a table that goes another way from row 1500 on."""
    whole = np.arange(2048)
    exact = halves(whole)
    rounded = halves(round_to(whole.astype(np.float64), "bfloat16").astype(np.float64))
    later = exact.copy()
    later[1500:] = halves(whole * 1.3)[1500:]
    for other in (rounded, later):
        assert causes(exact, other) == []
        assert causes(other, exact) == []


def test_rows_that_are_all_alike_are_not_moved() -> None:
    ones = np.ones((4, 4), np.float32)
    other = ones.copy()
    other[1, 2] = 3
    assert causes(ones, other) == []


def test_frequencies_rounded_to_bfloat16_are_told() -> None:
    w = 1e4 ** (-np.arange(32) / 32)
    rounded = np.outer(np.arange(512), round_to(w, "bfloat16").astype(np.float64))
    other = np.concatenate([np.cos(rounded), np.sin(rounded)], axis=1).astype(np.float32)
    (cause,) = explain(halves(np.arange(512)), other).causes
    assert cause.as_dict()["cause"] == "dtype-rounding"
    assert cause.facts == {"of": "frequencies", "a": "not rounded", "b": "bfloat16"}
    assert cause.residual_after is not None
    assert cause.residual_after < 1e-6
