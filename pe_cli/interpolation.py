"""Where a new row falls on the old axis, and the kernels that weigh the old rows around it.

Coordinates of new row j, with s = new / old (`anchor`):

    ends    x = j (old - 1) / (new - 1)     first and last row stay (align_corners=True)
    half    x = (j + 1/2) / s - 1/2         rows are cells, and their outer edges stay (align_corners=False)
    left    x = j / s                       the first row stays, row s k is old row k

They are computed as whole part and remainder in integers, so that a new row that falls on an old one is that
row, bit for bit.

Sources: Keys, "Cubic convolution interpolation", IEEE TASSP 29 (1981); with a = -3/4 and clamped borders, and,
where antialiased, a = -1/2 and weights that sum to one inside the borders, it is both of torch's kernels.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Anchor: TypeAlias = Literal["ends", "half", "left"]
ANCHORS: tuple[Anchor, ...] = ("ends", "half", "left")


def coordinates(old: int, new: int, anchor: Anchor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Whole part (new,) and fraction (new,) in [0, 1) of each new row's place on the old axis."""
    j = np.arange(new, dtype=np.int64)
    if anchor == "ends":
        top, below = j * (old - 1), max(new - 1, 1)
    elif anchor == "half":
        top, below = (2 * j + 1) * old - new, 2 * new
    else:
        top, below = j * old, new
    whole = top // below
    return whole, (top - whole * below) / below


def keys_cubic(distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """Keys' cubic convolution kernel at `distance` (any shape), zero from 2 on."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    kernel: NDArray[np.float64] = np.where(d <= 1, near, np.where(d < 2, far, 0.0))
    return kernel


def triangle(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """The kernel of linear interpolation at `distance` (any shape)."""
    kernel: NDArray[np.float64] = np.maximum(0.0, 1 - np.abs(distance))
    return kernel


def spline_matrix(knots: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """(points, knots) weights of the cubic spline with not-a-knot ends through values at `knots`."""
    n, h = len(knots), np.diff(knots)
    system, right = np.zeros((n, n)), np.zeros((n, n))  # second derivatives: system @ m = right @ values
    for i in range(1, n - 1):
        system[i, i - 1 : i + 2] = h[i - 1], 2 * (h[i - 1] + h[i]), h[i]
        right[i, i - 1 : i + 2] = 6 / h[i - 1], -6 / h[i - 1] - 6 / h[i], 6 / h[i]
    system[0, :3] = h[1], -(h[0] + h[1]), h[0]
    system[-1, -3:] = h[-1], -(h[-1] + h[-2]), h[-2]
    curvature = np.linalg.solve(system, right)
    k = np.clip(np.searchsorted(knots, points, side="right") - 1, 0, n - 2)
    b = (points - knots[k]) / h[k]
    a = 1 - b
    identity = np.eye(n)
    bend = (h[k] ** 2 / 6)[:, None]
    spline: NDArray[np.float64] = a[:, None] * identity[k] + b[:, None] * identity[k + 1]
    spline += bend * ((a**3 - a)[:, None] * curvature[k] + (b**3 - b)[:, None] * curvature[k + 1])
    return spline
