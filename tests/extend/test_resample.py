"""Methods against closed forms, and against torch and the original implementations where they are installed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pe_cli.errors import PeError
from pe_cli.extend.resample import FRESH, METHODS, Options, axis_taps, coordinates, spline_matrix
from pe_cli.extend.rows import filler, resample

RNG = np.random.default_rng(20)
TABLE = RNG.standard_normal((12, 5)).astype(np.float32)
GROWING = [name for name, method in METHODS.items() if method.grows and "knots" not in name]


def made(method: str, table: np.ndarray, new: int, **options: object) -> np.ndarray:
    return resample(table, [axis_taps(method, len(table), new, Options(**options))])


def test_linear_through_the_ends_is_numpy_interp() -> None:
    x = np.linspace(0, 11, 40)
    want = np.stack([np.interp(x, np.arange(12), column) for column in TABLE.T.astype(np.float64)], axis=1)
    assert np.abs(made("linear", TABLE.astype(np.float64), 40) - want).max() < 1e-14


def test_a_new_row_on_an_old_one_is_that_row_bit_for_bit() -> None:
    table = TABLE.copy()
    table[3] = -0.0  # arithmetic would lose the sign
    grown = made("linear", table, 34)  # 34 - 1 = 3 (12 - 1)
    assert grown[::3].tobytes() == table.tobytes()
    assert made("cubic", table, 36, anchor="left")[::3].tobytes() == table.tobytes()


@pytest.mark.parametrize("method", [name for name, rule in METHODS.items() if rule.in_place and rule.grows])
def test_methods_in_place_leave_old_rows_alone(method: str) -> None:
    assert made(method, TABLE, 30)[:12].tobytes() == TABLE.tobytes()
    assert made(method, TABLE, 30, head=1, tail=2)[:12].tobytes() == TABLE.tobytes()


def test_outlier_rows_are_no_sources() -> None:
    table = np.ones((12, 2))
    table[0], table[-1] = 100, 200
    for method in GROWING:
        if method != "random":
            grown = made(method, table, 30, head=1, tail=1, keep=2)
            assert sorted(np.unique(np.round(grown, 9))) in ([1, 100, 200], [0, 1, 100, 200])
    assert made("linear", table, 30, head=1, tail=1)[[0, -1], 0].tolist() == [100, 200]


def test_tile_repeat_and_crop() -> None:
    assert np.array_equal(made("tile", TABLE, 30), TABLE[np.arange(30) % 12])
    assert np.array_equal(made("repeat-last", TABLE, 14)[12:], TABLE[[11, 11]])
    assert np.array_equal(made("truncate", TABLE, 7), TABLE[:7])
    assert np.array_equal(made("crop", TABLE, 6), TABLE[3:9])
    assert not made("zeros", TABLE, 14)[12:].any()


def test_nearest_by_anchor() -> None:
    taps = {
        anchor: axis_taps("nearest", 4, 8, Options(anchor=anchor)).index[:, 0].tolist()
        for anchor in ("ends", "left")
    }
    assert taps == {"ends": [0, 0, 1, 1, 2, 2, 3, 3], "left": [0, 0, 1, 1, 2, 2, 3, 3]}
    assert axis_taps("nearest", 5, 3, Options(anchor="half")).index[:, 0].tolist() == [0, 2, 4]
    assert axis_taps("nearest", 5, 3, Options(anchor="left")).index[:, 0].tolist() == [0, 1, 3]


def test_stretch_is_long_clip() -> None:
    """The published loop: 20 rows kept, then four rows for each old one, the last four along the last line."""
    table = RNG.standard_normal((77, 6))
    keep, times = 20, 4
    want = np.zeros((times * 77 - (times - 1) * keep, 6))
    want[:keep] = table[:keep]
    for i in range(77 - keep - 1):
        for m in range(times):
            want[keep + times * i + m] = ((times - m) * table[keep + i] + m * table[keep + i + 1]) / times
    for m in range(times):
        want[-times + m] = table[76] + m * (table[76] - table[75]) / times
    assert want.shape == (248, 6)
    assert np.abs(made("stretch", table, 248, anchor="left") - want).max() < 1e-14


def test_hierarchical_is_su() -> None:
    table = RNG.standard_normal((7, 3))
    a = 0.4
    u = (table - a * table[0]) / (1 - a)
    want = np.concatenate([a * u[i] + (1 - a) * u for i in range(7)])
    assert np.abs(made("hierarchical", table, 49) - want).max() < 1e-14


def test_random_is_repeatable_and_matched() -> None:
    table = (RNG.standard_normal((4000, 3)) * [1, 2, 3] + [0, 5, -5]).astype(np.float32)
    taps = [axis_taps("random", 4000, 12000)]
    one, two, other = (resample(table, taps, filler("random", table, seed)) for seed in (1, 1, 2))
    assert one.tobytes() == two.tobytes()
    assert not np.array_equal(one, other)
    assert np.abs(one[4000:].mean(axis=0) - [0, 5, -5]).max() < 0.15
    assert np.abs(one[4000:].std(axis=0) - [1, 2, 3]).max() < 0.1


def test_bfloat16_is_rounded_once() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    low = TABLE.astype(ml_dtypes.bfloat16)
    exact = made("linear", low.astype(np.float64), 31)
    got = made("linear", low, 31).astype(np.float64)
    up, down = (
        np.nextafter(got.astype(ml_dtypes.bfloat16), ml_dtypes.bfloat16(s)).astype(float) for s in (9, -9)
    )
    assert (np.abs(got - exact) <= np.minimum(np.abs(up - exact), np.abs(down - exact))).all()


def test_complex_tables_keep_their_imaginary_part() -> None:
    table = (TABLE + 1j * TABLE[::-1]).astype(np.complex64)
    grown = made("linear", table, 23)
    assert grown.dtype == np.complex64
    assert np.allclose(grown[1], (table[0] + table[1]) / 2)


@given(st.integers(2, 40), st.integers(1, 90), st.sampled_from(["ends", "half", "left"]), st.booleans())
def test_weights_sum_to_one(old: int, new: int, anchor: str, antialias: bool) -> None:
    for method in ("linear", "cubic", "nearest"):
        taps = axis_taps(method, old, new, Options(anchor=anchor, antialias=antialias))
        assert np.abs(taps.matrix().sum(axis=1) - 1).max() < 1e-12
        assert taps.index.min() >= 0


@given(st.integers(2, 200), st.integers(2, 400))
def test_coordinates_are_exact(old: int, new: int) -> None:
    whole, fraction = coordinates(old, new, "ends")
    assert (whole[0], fraction[0], whole[-1], fraction[-1]) == (0, 0, old - 1, 0)
    assert ((fraction >= 0) & (fraction < 1)).all()


def test_spline_is_exact_on_cubics() -> None:
    knots = np.array([-3.0, -1.2, 0, 0.7, 2, 4])
    points = np.linspace(-3, 4, 50)
    values = np.polyval([0.3, -1, 2, 5], knots)
    assert np.abs(spline_matrix(knots, points) @ values - np.polyval([0.3, -1, 2, 5], points)).max() < 1e-12


def test_separable_copies_and_fresh_cells() -> None:
    grid = RNG.standard_normal((3, 4, 2)).astype(np.float32)
    taps = [axis_taps("linear", 3, 5), axis_taps("linear", 4, 7)]
    assert resample(grid, taps)[::2, ::2].tobytes() == grid.tobytes()
    zeros = resample(grid, [axis_taps("zeros", 3, 4), axis_taps("zeros", 4, 6)])
    assert zeros[:3, :4].tobytes() == grid.tobytes()
    assert not zeros[3].any()
    assert not zeros[:, 4:].any()
    assert (axis_taps("zeros", 3, 4).copied_from == [0, 1, 2, FRESH]).all()


@pytest.mark.parametrize(
    ("method", "old", "new", "options", "words"),
    [
        ("linear", 1, 5, {}, "nothing to interpolate"),
        ("stretch", 12, 20, {}, "smaller keep"),
        ("hierarchical", 3, 10, {}, "3 x 3 = 9"),
        ("hierarchical", 3, 9, {"alpha": 0.5}, "alpha 0.5"),
        ("tile", 5, 3, {}, "truncate"),
        ("truncate", 5, 9, {}, "only shrinks"),
        ("linaer", 5, 9, {}, "did you mean 'linear'"),
        ("linear", 5, 0, {}, "at least 1"),
        ("knots", 14, 27, {}, "2 w - 1 rows"),
        ("knots", 13, 24, {}, "2 w - 1 rows"),
        ("tile", 3, 9, {"head": 2, "tail": 1}, "stand apart"),
    ],
)
def test_troubles(method: str, old: int, new: int, options: dict[str, object], words: str) -> None:
    with pytest.raises(PeError, match=words):
        axis_taps(method, old, new, Options(**options))


@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_an_axis_of_one_row_stays(method: str) -> None:
    """One band of a spectrogram: only the other axis grows."""
    table = RNG.standard_normal((1, 5, 3))
    band = resample(table, [axis_taps(method, 1, 1), axis_taps(method, 5, 9)])
    alone = resample(table[0], [axis_taps(method, 5, 9)])
    assert np.abs(band[0] - alone).max() < 1e-15
    with pytest.raises(PeError, match="nothing to interpolate between"):
        axis_taps(method, 1, 2)


def test_knots_leave_a_window_of_the_same_size() -> None:
    taps = axis_taps("knots", 13, 13)
    assert np.array_equal(taps.matrix(), np.eye(13))
    assert not taps.notes


@pytest.mark.parametrize(("old", "new"), [(13, 27), (13, 9), (27, 47), (13, 63)])
def test_knots_are_beits(old: int, new: int) -> None:
    """The published search for q; the spline is FITPACK's, as `interp2d(kind="cubic")` used it."""
    interpolate = pytest.importorskip("scipy.interpolate")
    left, right = 1.01, 1.5
    while right - left > 1e-6:
        q = (left + right) / 2.0
        if (1 - q ** (old // 2)) / (1 - q) > new // 2:
            right = q
        else:
            left = q
    distances, cur = [], 1.0
    for i in range(old // 2):
        distances.append(cur)
        cur += q ** (i + 1)
    knots = [-d for d in reversed(distances)] + [0] + distances
    table = RNG.standard_normal((old, old))
    taps = axis_taps("knots", old, new)
    if taps.notes:
        assert (old, new) in ((13, 9), (13, 63))
        return
    points = np.arange(-(new // 2), new // 2 + 0.1)
    want = interpolate.RectBivariateSpline(knots, knots, table, s=0)(points, points)
    assert np.abs(resample(table, [taps, taps]) - want).max() < 1e-8


@pytest.mark.interop
class TestTorch:
    """Equality with torch.nn.functional.interpolate in float64."""

    @pytest.fixture(autouse=True)
    def _torch(self) -> None:
        self.torch = pytest.importorskip("torch")

    def interpolated(self, table: np.ndarray, size: tuple[int, ...], **options: object) -> np.ndarray:
        wide = self.torch.from_numpy(np.moveaxis(table, -1, 0)[None].copy())
        made = self.torch.nn.functional.interpolate(wide, size=size, **options)
        return np.moveaxis(made[0].numpy(), 0, -1)

    @pytest.mark.parametrize("anchor", ["ends", "half"])
    @pytest.mark.parametrize("new", [2, 7, 12, 13, 40, 101])
    def test_linear(self, anchor: str, new: int) -> None:
        table = TABLE.astype(np.float64)
        want = self.interpolated(table, (new,), mode="linear", align_corners=anchor == "ends")
        assert np.abs(made("linear", table, new, anchor=anchor) - want).max() < 1e-12

    @pytest.mark.parametrize(("mode", "anchor"), [("nearest", "left"), ("nearest-exact", "half")])
    @pytest.mark.parametrize("new", [5, 12, 31])
    def test_nearest(self, mode: str, anchor: str, new: int) -> None:
        want = self.interpolated(TABLE, (new,), mode=mode)
        assert np.array_equal(made("nearest", TABLE, new, anchor=anchor), want)

    @pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
    @pytest.mark.parametrize("antialias", [False, True])
    @pytest.mark.parametrize("size", [(24, 24), (9, 9), (7, 31), (14, 11), (40, 5)])
    def test_grids(self, mode: str, antialias: bool, size: tuple[int, int]) -> None:
        grid = np.random.default_rng(3).standard_normal((14, 11, 3))
        want = self.interpolated(grid, size, mode=mode, antialias=antialias, align_corners=False)
        options = Options(anchor="half", antialias=antialias)
        taps = [axis_taps(mode, old, new, options) for old, new in zip((14, 11), size, strict=True)]
        assert np.abs(resample(grid, taps) - want).max() < 1e-12

    @pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
    def test_grids_through_the_corners(self, mode: str) -> None:
        grid = np.random.default_rng(4).standard_normal((6, 7, 3))
        want = self.interpolated(grid, (13, 5), mode=mode, align_corners=True)
        taps = [axis_taps(mode, 6, 13), axis_taps(mode, 7, 5)]
        assert np.abs(resample(grid, taps) - want).max() < 1e-12

    @pytest.mark.parametrize("new", [16, 32, 74])
    def test_dinov2_scale(self, new: int) -> None:
        """Its own code passes scale_factor = (new + 0.1) / old instead of a size."""
        grid = np.random.default_rng(5).standard_normal((37, 37, 2))
        wide = self.torch.from_numpy(np.moveaxis(grid, -1, 0)[None].copy())
        factor = float(new + 0.1) / 37
        want = self.torch.nn.functional.interpolate(wide, scale_factor=(factor, factor), mode="bicubic")
        taps = axis_taps("cubic", 37, new, Options(anchor="half", scale_offset=0.1))
        assert np.abs(resample(grid, [taps, taps]) - np.moveaxis(want[0].numpy(), 0, -1)).max() < 1e-12


def test_linear_knots_are_those_of_timm() -> None:
    """timm/layers/pos_embed_rel.py: rows of a window of 7 at 0, ±1, ±(1 + q), …, so that the last reaches offset 11."""
    table = np.random.default_rng(0).normal(size=(13, 2))
    low, high = 1.01, 1.5
    while high - low > 1e-6:
        q = (low + high) / 2
        low, high = (low, q) if (1 - q**6) / (1 - q) > 11 else (q, high)
    places = np.cumsum(q ** np.arange(6))
    knots = np.concatenate([-places[::-1], [0], places])
    want = np.stack([np.interp(np.arange(-11, 12), knots, column) for column in table.T], axis=1)
    taps = METHODS["linear-knots"].taps(13, 23, Options())
    dense = np.zeros((23, 13))
    np.put_along_axis(dense, taps.index, taps.weight, axis=1)
    np.testing.assert_allclose(dense @ table, want, atol=1e-12)
