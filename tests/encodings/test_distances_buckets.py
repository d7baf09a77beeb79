"""Bucket edges against the published logarithms in 60 digits, where no rounding can move them."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pe_cli.encodings.distances import deberta_buckets, integer_root, t5_buckets
from pe_cli.errors import PeError

mpmath.mp.dps = 60
# A distance on an edge makes the logarithm's ratio a whole number; what 60 digits cannot tell apart is one.
NEARLY = mpmath.mpf(10) ** -50


def t5_by_logarithm(distance: int, num_buckets: int, max_distance: int, bidirectional: bool) -> int:
    size, first = abs(distance), 0
    if bidirectional:
        num_buckets //= 2
        first = num_buckets if distance > 0 else 0
    elif distance > 0:
        size = 0
    exact = num_buckets // 2
    if size < exact:
        return first + size
    ratio = mpmath.log(mpmath.mpf(size) / exact) / mpmath.log(mpmath.mpf(max_distance) / exact)
    steps = int(mpmath.floor(ratio * (num_buckets - exact) + NEARLY))
    return first + min(exact + steps, num_buckets - 1)


def deberta_by_logarithm(distance: int, position_buckets: int, max_position: int) -> int:
    middle, size = position_buckets // 2, abs(distance)
    if size <= middle:
        return distance
    ratio = mpmath.log(mpmath.mpf(size) / middle) / mpmath.log(mpmath.mpf(max_position - 1) / middle)
    steps = int(mpmath.ceil(ratio * (middle - 1) - NEARLY))
    return (middle + steps) * (1 if distance > 0 else -1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("num_buckets", "max_distance"), [(32, 128), (320, 800), (64, 256), (32, 20), (6, 1000), (33, 129)]
)
def test_t5_equals_its_logarithms(num_buckets: int, max_distance: int, bidirectional: bool) -> None:
    distances = np.concatenate([np.arange(-300, 301), [-100_000, -12_345, 12_345, 100_000]])
    want = [t5_by_logarithm(int(d), num_buckets, max_distance, bidirectional) for d in distances]
    got = t5_buckets(
        distances, num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional
    )
    np.testing.assert_array_equal(got, want)
    assert got.dtype == np.int64


def test_t5_edges_are_those_of_the_reference() -> None:
    first = {9: 12, 10: 16, 11: 23, 12: 32, 13: 46, 14: 64, 15: 91}
    for bucket, distance in first.items():
        assert t5_buckets(np.array([-distance, 1 - distance])).tolist() == [bucket, bucket - 1]
    assert 16 not in t5_buckets(np.arange(-1000, 1001))


@pytest.mark.parametrize(("position_buckets", "max_position"), [(256, 512), (128, 512), (32, 128), (8, 300)])
def test_deberta_equals_its_logarithms(position_buckets: int, max_position: int) -> None:
    distances = np.concatenate([np.arange(-700, 701, 7), [-511, 511, -100_000, 100_000]])
    want = [deberta_by_logarithm(int(d), position_buckets, max_position) for d in distances]
    got = deberta_buckets(distances, position_buckets=position_buckets, max_position=max_position)
    np.testing.assert_array_equal(got, want)


@given(st.integers(0, 2**300), st.integers(1, 40))
def test_integer_root_is_the_floor(value: int, degree: int) -> None:
    root = integer_root(value, degree)
    assert root**degree <= value < (root + 1) ** degree


@pytest.mark.parametrize("distance", [2**40, 2**62])
def test_far_distances_stay_in_the_last_bucket(distance: int) -> None:
    assert t5_buckets(np.array([-distance, distance])).tolist() == [15, 31]
    assert deberta_buckets(np.array([-distance]))[0] == -deberta_buckets(np.array([distance]))[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda d: t5_buckets(d, num_buckets=3),
        lambda d: t5_buckets(d, num_buckets=1, bidirectional=False),
        lambda d: t5_buckets(d, max_distance=8),
        lambda d: deberta_buckets(d, position_buckets=2),
        lambda d: deberta_buckets(d, max_position=129),
    ],
)
def test_settings_without_room_are_refused(call) -> None:
    with pytest.raises(PeError, match=r"^(num|max|position)_"):
        call(np.array([1, 2]))


def test_deberta_where_its_two_lengths_are_next_to_each_other() -> None:
    """A step is then a tiny factor: 32,000 buckets up to twice the last exact distance."""
    got = deberta_buckets(np.array([500, 501, 1000]), position_buckets=1000, max_position=502)
    assert got.tolist() == [500, 999, deberta_by_logarithm(1000, 1000, 502)]
    edge = 4 * 3**5  # after five exact steps of a factor of 3
    assert deberta_buckets(np.array([edge, edge + 1]), position_buckets=8, max_position=109).tolist() == [
        9,
        10,
    ]
