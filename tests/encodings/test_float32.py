"""torch's float32 functions: near correct rounding, and, marked interop, equal to torch's."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.encodings.float32 import LARGE_ANGLE, cos_sin, power


def steps_apart(a: np.ndarray, b: np.ndarray) -> int:
    """The largest distance in units of the last place of float32."""
    ordered = [
        np.where(x < 0, -(x & 0x7FFFFFFF), x)
        for x in (a.view(np.int32).astype(np.int64), b.view(np.int32).astype(np.int64))
    ]
    return int(np.abs(ordered[0] - ordered[1]).max())


def test_power_is_within_one_unit() -> None:
    exponents = np.arange(0, 128, 2, dtype=np.float32) / np.float32(128)
    for base in (100.0, 1e4, 5e5, 1e7):
        exact = np.power(base, exponents.astype(np.float64)).astype(np.float32)
        assert steps_apart(power(base, exponents), exact) <= 1


def test_cos_sin_is_within_one_unit_on_both_sides_of_the_large_angles() -> None:
    for low, high in ((-4, 4), (-9000, 9000), (LARGE_ANGLE - 1, LARGE_ANGLE + 1), (1e5, 2e5)):
        angles = np.random.default_rng(0).uniform(low, high, 20000).astype(np.float32)
        for ours, exact in zip(cos_sin(angles), (np.cos, np.sin), strict=True):
            rounded = exact(angles.astype(np.float64)).astype(np.float32)
            away = np.abs(rounded) > 1e-3  # nearer to a zero the units are finer than the polynomial
            assert steps_apart(ours[away], rounded[away]) <= 1


@pytest.mark.interop
def test_equal_to_torch() -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(3)
    for high, share in ((1.57, 0.9995), (9999.0, 0.9995), (2e5, 0.98)):
        angles = random.uniform(-high, high, 200_000).astype(np.float32)
        for ours, theirs in zip(cos_sin(angles), (torch.cos, torch.sin), strict=True):
            assert (ours == theirs(torch.from_numpy(angles)).numpy()).mean() > share
    # On another processor torch takes another exponential: 4 to 16 of these 2016 are its neighbours.
    same = count = 0
    for base in (100.0, 256.0, 1e4, 150000.0, 5e5, 1e6, 1e7):
        for dim in (32, 64, 96, 128, 256):
            exponents = torch.arange(0, dim, 2).float() / dim
            ours, its = power(base, exponents.numpy()), (base**exponents).numpy()
            assert steps_apart(ours, its) <= 1
            same += int((ours == its).sum())
            count += dim // 2
    assert same / count > 0.99
