"""What is free in an eigenvector, its scale and its sign, made definite."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.operators import Vectors
from pe_cli.randomness import uniform_rows

Sign: TypeAlias = Literal["max-abs", "first", "random"]
VectorNorm: TypeAlias = Literal["l2", "l1", "abs-max", "wavelength"]
NO_WAVE = 1e-8  # eigenvalues up to this have no wavelength


def scaled(vectors: Vectors, values: NDArray[np.float64], vec_norm: VectorNorm) -> Vectors:
    """The unit columns (n, k) of eigenvalues (k,) in the scale called `vec_norm`."""
    if vec_norm == "l2" or not vectors.size:
        return vectors
    if vec_norm == "l1":
        return np.asarray(vectors / np.abs(vectors).sum(axis=0))
    scale = 1 / np.abs(vectors).max(axis=0)
    if vec_norm == "wavelength":
        scale *= np.pi / (2 * np.sqrt(np.where(values > NO_WAVE, values, 1.0)))
    return np.asarray(vectors * scale)


def signed(vectors: Vectors, sign: Sign, seed: int) -> Vectors:
    """The columns (n, k), each positive at its largest or first entry, or with random signs."""
    if not vectors.size:
        return vectors
    size = np.abs(vectors)
    share = 1e-6 if sign == "first" else 1 - 1e-6
    decisive = np.argmax(size >= share * size.max(axis=0), axis=0)
    signs = np.sign(vectors[decisive, np.arange(vectors.shape[1])])
    if sign == "random":
        signs *= np.sign(uniform_rows(np.arange(vectors.shape[1]), 1, seed)[:, 0] - 0.5)
    return np.asarray(vectors * signs + 0.0)
