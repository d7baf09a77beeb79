"""What a learned position table starts from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.sinusoidal import sinusoidal
from pe_cli.errors import PeError, parameter
from pe_cli.numerics import randomness
from pe_cli.signature import Choice, Positions, encoding

DEFAULT_STD = 0.02
DEFAULT_CUT = 2.0

Rows: TypeAlias = NDArray[np.int64]
Draw: TypeAlias = Callable[[Rows, int, int, float], NDArray[np.float64]]


def _normal(rows: Rows, dim: int, seed: int, cut: float) -> NDArray[np.float64]:
    return randomness.normal_rows(rows, dim, seed)


def _uniform(rows: Rows, dim: int, seed: int, cut: float) -> NDArray[np.float64]:
    return (randomness.uniform_rows(rows, dim, seed) - 0.5) * math.sqrt(12)


DRAWS: dict[str, Draw] = {
    "normal": _normal,
    "truncated-normal": randomness.truncated_normal_rows,
    "uniform": _uniform,
}
FIXED: dict[str, Callable[[Rows, int], NDArray[Any]]] = {
    "zeros": lambda rows, dim: np.zeros((len(rows), dim)),
    "sinusoidal": lambda rows, dim: np.asarray(sinusoidal(rows, dim, dtype="float64")),
}


@encoding
def learned(
    positions: Positions,
    dim: int,
    *,
    init: Annotated[str, Choice((*DRAWS, *FIXED))] = "normal",
    std: float | None = None,
    cut: float | None = None,
    seed: int | None = None,
) -> NDArray[np.float64]:
    """Initial values of a learned position table.

    Shape (positions, dim). The table is added to the token embeddings and trained with the model, so it ends
    where it was trained to: it does not extrapolate. The values depend on the seed and on the position alone:
    the same in every run, on every machine and with every version of numpy.

    Parameters
    ----------
    positions : (n,) whole numbers from 0; an int n stands for 0..n-1
    dim : width of a row
    init : normal, truncated-normal, uniform (as wide as --std says), zeros, or sinusoidal (style paper)
    std : standard deviation (0.02 if not given, as in BERT, GPT-2 and ViT); of a truncated normal, before the cut
    cut : where a truncated normal ends, in standard deviations (2 if not given)
    seed : key of the random numbers (0 if not given)

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning"; Devlin et al. 2018, "BERT".
    """
    if dim < 1:
        raise PeError(f"{parameter('dim')} {dim} is not a positive width")
    rows = np.asarray(positions)
    if rows.dtype.kind not in "iu":
        raise PeError(f"{parameter('positions')}: a learned table has whole positions only")
    if rows.ndim != 1:
        raise PeError(
            f"{parameter('positions')}: a learned table has positions of one axis, not of {rows.shape[-1]}"
        )
    if len(rows) and int(rows.min()) < 0:
        raise PeError(
            f"{parameter('positions')}: a learned table has no position {int(rows.min())}, it starts at 0"
        )
    _refuse(init, "cut", cut, ("truncated-normal",))
    _refuse(init, "std", std, DRAWS)
    _refuse(init, "seed", seed, DRAWS)
    if init in FIXED:
        return FIXED[init](rows, dim)
    width = DEFAULT_STD if std is None else std
    if not 0 <= width <= randomness.LARGEST_STD:
        raise PeError(f"{parameter('std')} {width:g} is not a standard deviation")
    end = DEFAULT_CUT if cut is None else cut
    if not end > 0:
        raise PeError(f"{parameter('cut')} {end:g} is not a positive number of standard deviations")
    return DRAWS[init](rows.astype(np.int64), dim, seed or 0, end) * width


def _refuse(init: str, option: str, value: float | None, users: Any) -> None:
    if value is not None and init not in users:
        raise PeError(f"{parameter(option)} is for {parameter('init')} {', '.join(users)}, not for {init}")
