"""Tables that are added to the input: sines and cosines in every style, timesteps, and what a learned table starts from."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.float32 import Recipe
from pe_cli.encodings.waves import (
    GRID_IMPLEMENTATIONS,
    GRID_STYLES,
    Columns,
    Order,
    frequencies,
    grid_table,
    write_waves,
)
from pe_cli.errors import PeError, parameter
from pe_cli.numerics import randomness
from pe_cli.numerics.dtypes import ElementType, numpy_dtype
from pe_cli.signature import Choice, Compute, DType, Floats, Grid, Positions, encoding
from pe_cli.tensors import Tensors


@dataclass(frozen=True)
class Style:
    """One convention for a line of positions.

    `shift` is subtracted from dim / 2 in the exponent of the frequencies. `pads` tells what odd widths do:
    a zero column in the end, else one cosine (or the last of the second half) less.
    """

    order: Order
    shift: int
    recipe: Recipe
    pads: bool
    padding_idx: int | None = None


STYLES = {
    "paper": Style("interleaved", 0, "exp", pads=False),
    "paper-cat": Style("sin-cos", 0, "power", pads=False),
    "t2t": Style("sin-cos", 1, "exp", pads=True),
    "t2t-cossin": Style("cos-sin", 1, "exp", pads=True),
    "diffusion": Style("cos-sin", 0, "exp-divide", pads=True),
    "fairseq": Style("sin-cos", 1, "exp", pads=True, padding_idx=1),
}

IMPLEMENTATIONS = {
    "paper": "vaswani xlm distilbert flaubert opennmt espnet videomae florence2 speecht5",
    "paper-cat": "marian ctrl gptj codegen pegasus roformer informer autoformer time-series-transformer xlnet",
    "t2t": "tensor2tensor whisper pegasus-x timesfm ddpm",
    "t2t-cossin": "musicgen musicgen-melody",
    "fairseq": "m2m100 nllb-moe xglm fsmt speech2text",
    **GRID_IMPLEMENTATIONS,
}
ALIASES = {alias: style for style, users in IMPLEMENTATIONS.items() for alias in users.split()}
NAMES = (*STYLES, *GRID_STYLES)
_LEARNED = "its positions are a learned table, not sines and cosines; `pe gen learned` makes an initial one"
_ROTARY = (
    "it turns queries and keys; `pe gen rope` makes its table, and `pe gen model` that of a configuration"
)
ELSEWHERE = {
    **dict.fromkeys(
        "albert bart bert beit clip deit electra gpt gpt2 gpt-2 gpt3 opt roberta siglip vit".split(), _LEARNED
    ),
    **dict.fromkeys("gemma gpt-neox gpt-oss llama mistral phi qwen rope rotary".split(), _ROTARY),
    "alibi": "it is a bias of the logits; `pe gen alibi` makes it",
    "bloom": "it is a bias of the logits; `pe gen alibi` makes it",
    "t5": "it is a learned bias by distance; `pe gen t5` makes its buckets",
}


@encoding
def sinusoidal(
    positions: Positions,
    dim: int,
    *,
    style: Annotated[str, Choice(NAMES, ALIASES, ELSEWHERE)] = "paper",
    base: float = 10000.0,
    padding_idx: int | None = None,
    grid: Grid | None = None,
    normalize: bool = False,
    base_size: int | None = None,
    interpolation_scale: Floats | None = None,
    compute: Compute = "exact",
    dtype: DType = "float32",
) -> NDArray[Any] | Tensors:
    """Sine and cosine of each position at geometric frequencies.

    >>> sinusoidal(4, dim=8).shape
    (4, 8)

    Shape (positions, dim). Column pair i holds sin(p w_i) and cos(p w_i), w_i = base^(-2i/dim): each pair is
    a clock hand, the first turning once in 2 pi positions, the last in nearly 2 pi base. The table is added
    to the token embeddings. It needs no training and has rows for every position, also for fractional and
    negative ones, but models seldom work beyond the lengths they were trained on.

    Styles of a line: paper (sin and cos alternate), paper-cat (all sines, then all cosines), t2t (as
    paper-cat, but the last frequency is exactly 1/base), t2t-cossin (the same with cosines first), diffusion
    (cosines, then sines, frequencies of the paper), fairseq (as t2t; the row of the padding index is zero
    and the first token has row padding_idx + 1). Odd widths: paper and paper-cat have one cosine less, the
    others a zero column in the end.

    Styles of a grid, in row-major order: mae (column, then row), dit (mae with 16 steps a side), canonical
    (row, then column), moco (column, then row; column by column), timm (sin row, sin column, cos row, cos
    column), detr (row, then column, counted from 1, interleaved), deformable-detr (detr, but normalized from
    the centres of cells), tatp22 (interleaved, any number of axes), cogvideox (a quarter for time, the rest for
    column and row).

    Names of implementations: vaswani, xlm, distilbert, flaubert, opennmt, espnet, videomae, florence2, speecht5
    (paper); marian, ctrl, gptj, codegen, pegasus, roformer, informer, autoformer, time-series-transformer, xlnet
    (paper-cat); tensor2tensor, whisper, pegasus-x, timesfm, ddpm (t2t); musicgen, musicgen-melody (t2t-cossin);
    m2m100, nllb-moe, xglm, fsmt, speech2text (fairseq); sd3, pixart (dit); rt-detr, d-fine, deim (canonical);
    moco-v3, omdet-turbo (moco); conditional-detr, maskformer, mask2former, table-transformer (detr);
    positional-encodings (tatp22).

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.5.

    Parameters
    ----------
    positions : (n,) positions, or row numbers of the grid; an int n stands for 0..n-1
    dim : width of a row
    style : convention of the table, or the name of an implementation
    base : the wavelengths run from 2 pi to 2 pi base
    padding_idx : the row that is zero (fairseq: 1 if not given)
    grid : sides of the grid, for the styles of a grid
    normalize : divide coordinates by the side of the grid and scale them to 2 pi (detr, deformable-detr)
    base_size : steps a side, whatever the size of the grid (mae, dit, canonical)
    interpolation_scale : divide coordinates by this; one number, or one for each axis
    compute : float32 follows the float32 arithmetic of the style's authors, errors included
    dtype : type of the table

    Returns
    -------
    Tensors
        sinusoidal (n, dim), of type `dtype`.

    Raises
    ------
    PeError
        For a width or base that is not positive, options of another style, positions of another number of
        axes than the style has, positions that are not finite numbers, or more memory than there is.
    """
    where = np.asarray(positions)
    if dim < 1:
        raise PeError(f"{parameter('dim')} {dim} is not a positive width")
    if not base > 0:
        raise PeError(f"{parameter('base')} {base:g} is not a positive number")
    if style in GRID_STYLES:
        if padding_idx is not None:
            raise PeError(
                f"{parameter('style')} {style} has no padding row: leave {parameter('padding_idx')} out"
            )
        return grid_table(
            where,
            dim,
            style,
            base,
            grid,
            normalize=normalize,
            base_size=base_size,
            interpolation_scale=interpolation_scale,
            float32=compute == "float32",
            dtype=dtype,
        )
    for option, value in (
        ("grid", grid),
        ("normalize", normalize or None),
        ("base_size", base_size),
        ("interpolation_scale", interpolation_scale),
    ):
        if value is not None:
            raise PeError(
                f"{parameter(option)} is for the styles of a grid ({', '.join(GRID_STYLES)}), not for {style}"
            )
    return _line(where, dim, STYLES[style], base, padding_idx, compute, dtype)


def _line(
    positions: NDArray[Any],
    dim: int,
    style: Style,
    base: float,
    padding_idx: int | None,
    compute: Compute,
    dtype: ElementType,
) -> NDArray[Any]:
    if padding_idx is not None and padding_idx < 0:
        raise PeError(f"{parameter('padding_idx')} {padding_idx} is not a row of the table")
    table = np.empty((len(positions), dim), numpy_dtype(dtype))
    _halves(table, positions, style, base, style.shift, compute, 1.0)
    zero_row = style.padding_idx if padding_idx is None else padding_idx
    if zero_row is not None:
        table[positions == zero_row] = 0
    return table


def _halves(
    table: NDArray[Any],
    positions: NDArray[Any],
    style: Style,
    base: float,
    shift: float,
    compute: Compute,
    scale: float,
) -> None:
    """Fill the whole width of `table`."""
    dim = table.shape[1]
    width = dim - dim % 2 if style.pads else dim
    if not width:
        raise PeError(f"{parameter('dim')} {dim} leaves no room for a pair of sine and cosine")
    recipe = style.recipe if compute == "float32" else None
    waves = frequencies(base, width, shift, recipe, scale)
    write_waves(table, Columns.within(0, width, style.order), positions, waves)
    table[:, width:] = 0


@encoding
def timestep(
    positions: Positions,
    dim: int,
    *,
    flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1.0,
    scale: float = 1.0,
    max_period: float = 10000.0,
    compute: Compute = "exact",
    dtype: DType = "float32",
) -> NDArray[Any]:
    """Embedding of diffusion timesteps, as diffusion models feed it to their time MLP.

    >>> timestep([0, 500, 999], dim=320).shape
    (3, 320)

    Shape (timesteps, dim): all sines, then all cosines of scale * t * w_i, with
    w_i = max_period^(-i / (dim/2 - downscale_freq_shift)). Timesteps may be fractional (--positions 0,0.5,999).
    An odd width ends in a zero column. It is not added to anything: it is the input of a small network.

    Source: Ho et al. 2020, "Denoising Diffusion Probabilistic Models", appendix B; diffusers
    `get_timestep_embedding`.

    Parameters
    ----------
    positions : timesteps (n,); an int n stands for 0..n-1
    dim : width of a row
    flip_sin_to_cos : cosines first, as in Stable Diffusion's UNet
    downscale_freq_shift : 1 as in DDPM, 0 as in Stable Diffusion
    scale : factor of the timesteps; 1000 where they run from 0 to 1
    max_period : the longest wavelength is about 2 pi times this
    compute : float32 follows the float32 arithmetic of diffusers, errors included
    dtype : type of the table

    Returns
    -------
    Tensors
        timestep (n, dim), of type `dtype`.

    Raises
    ------
    PeError
        For a width below 2, a period that is not positive, positions that are not finite numbers, or more
        memory than there is.
    """
    if dim < 2:
        raise PeError(f"{parameter('dim')} {dim} leaves no room for a pair of sine and cosine")
    if not max_period > 0:
        raise PeError(f"{parameter('max_period')} {max_period:g} is not a positive number")
    where = np.asarray(positions)
    table = np.empty((len(where), dim), numpy_dtype(dtype))
    style = Style("cos-sin" if flip_sin_to_cos else "sin-cos", 0, "exp-divide", pads=True)
    _halves(table, where, style, max_period, downscale_freq_shift, compute, scale)
    return table


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

    >>> learned(512, dim=384, std=0.02, seed=1).shape
    (512, 384)

    Shape (positions, dim). The table is added to the token embeddings and trained with the model, so it ends
    where it was trained to: it does not extrapolate. The values depend on the seed and on the position alone:
    the same in every run, on every machine and with every version of numpy.

    Source: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning"; Devlin et al. 2018, "BERT".

    Parameters
    ----------
    positions : (n,) whole numbers from 0; an int n stands for 0..n-1
    dim : width of a row
    init : normal, truncated-normal, uniform (as wide as --std says), zeros, or sinusoidal (style paper)
    std : standard deviation (0.02 if not given, as in BERT, GPT-2 and ViT); of a truncated normal, before the cut
    cut : where a truncated normal ends, in standard deviations (2 if not given)
    seed : key of the random numbers (0 if not given)

    Returns
    -------
    Tensors
        learned (n, dim), float64; the command rounds it to its --dtype.

    Raises
    ------
    PeError
        For a width that is not positive, positions that are not whole numbers from 0, options that `init`
        does not have, and a deviation or cut out of range.
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
