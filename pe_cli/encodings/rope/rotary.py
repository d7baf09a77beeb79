"""Rotary encodings: a pair of channels turns by position times frequency (Su et al. 2021, arXiv 2104.09864).

The product of a turned query and a turned key depends on the distance of their positions alone. A table holds
the cosine and sine of each position and pair; the model applies it to queries and keys, never to values.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.rope import axes as rope_axes
from pe_cli.encodings.rope import forms as rope_layouts
from pe_cli.encodings.rope import scaling as rope_rules
from pe_cli.encodings.rope.forms import axial_form, shared_form
from pe_cli.encodings.rope.scaling import DEFAULT_BASE, Policy, given_options
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import ElementType, largest
from pe_cli.numerics.kernels import geometric, rotation_blocks
from pe_cli.signature import Array, Choice, Compute, DType, Floats, Grid, Ints, Positions, encoding
from pe_cli.tensors import Tensors

Layout = Annotated[str, Choice(rope_layouts.NAMES, rope_layouts.ALIASES)]
Scaling = Annotated[str, Choice(tuple(rope_rules.SCALINGS), rope_rules.ALIASES)]
AxisStyle = Annotated[str, Choice((*rope_axes.STYLES, *rope_layouts.SECTION_ORDERS), rope_axes.ALIASES)]


@encoding
def rope(
    positions: Positions,
    dim: int | None = None,
    *,
    base: float | None = None,
    layout: Layout = "interleaved",
    scaling: Scaling = "none",
    factor: float | None = None,
    original_len: int | None = None,
    seq_len: int | None = None,
    beta_fast: float | None = None,
    beta_slow: float | None = None,
    truncate: bool = True,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
    attention_factor: float | None = None,
    low_freq_factor: float | None = None,
    high_freq_factor: float | None = None,
    short_factor: Array | None = None,
    long_factor: Array | None = None,
    policy: Policy | None = None,
    mixed_b: float | None = None,
    partial: float | None = None,
    sections: Ints | None = None,
    interleave_sections: bool = False,
    axes: Ints | None = None,
    axis_style: AxisStyle | None = None,
    axis_factors: Floats | None = None,
    ref_grid: Grid | None = None,
    grid: Grid | None = None,
    compute: Compute = "exact",
    dtype: DType = "float32",
) -> Tensors:
    """Rotary cos/sin table: every scaling, layout and axis form.

    >>> rope(4096, dim=128, base=500000, layout="half")["cos"].shape
    (4096, 128)

    Pair i of a query or key at position p turns by p w_i, with w_i = base^(-2 i / dim). The table multiplies
    queries and keys, in every layer; values are left alone. Extrapolates: formally to any position, in
    practice not far beyond the training length, which is what the scalings are for.

    The magnitude A of a scaling is part of every table of cosines and sines, and not of inv-freq,
    ggml-factors and mlx-freqs; it is always reported as attention_factor with baked_in.

    Layouts: interleaved (n, d) has cos, sin, cos, sin… (also TensorRT-LLM's pair order, and a complex view);
    half has cos and sin (n, d), the second half repeats the first (transformers, NeoX); adjacent has each
    value twice in a row (GPT-J, diffusers); split has cos and sin (n, d/2) (ONNX, flash-attention); cos-sin
    (n, d) has all cosines, then all sines (vLLM, SGLang, FlashInfer), sin-cos the other way round;
    sin-cos-adjacent (n, 2 d) is timm's; complex (n, d/2) is Meta's freqs_cis.

    Scalings and what they take: linear, ntk, ntk-fixed: factor; ntk-mixed: factor, mixed-b; dynamic-ntk:
    factor, original-len, seq-len; ntk-by-parts: factor, original-len; yarn: factor, original-len, and
    beta-fast 32, beta-slow 1, no-truncate, mscale, mscale-all-dim, attention-factor; llama3: factor,
    original-len, low-freq-factor, high-freq-factor; longrope: original-len, factor, short-factor,
    long-factor, seq-len or policy, attention-factor; proportional: partial, factor.

    Source: Su et al. 2021, arXiv 2104.09864, section 3.2.2; linear: Chen et al. 2023, arXiv 2306.15595; ntk:
    bloc97 2023; dynamic-ntk: emozilla 2023; ntk-fixed, ntk-mixed: Su Jianlin 2023, kexue.fm 9706; ntk-by-parts,
    yarn: Peng et al. 2023, arXiv 2309.00071; longrope: Ding et al. 2024, arXiv 2402.13753; llama3: Meta 2024;
    proportional: Barbero et al. 2024, arXiv 2410.06205; sections and axis styles: the models' own code.

    Parameters
    ----------
    positions : (n,) positions, or (n, k) coordinates where there are k axes; an int n stands for 0..n-1
    dim : rotary width; with partial, the width of the head; axes add up to it
    base : rope_theta, the wavelengths run from 2 pi to 2 pi base (default 10000, or the axis style's own)
    layout : how cosines and sines are stored
    scaling : how the context is stretched
    factor : s, how many times longer the context gets
    original_len : length of the original training context
    seq_len : length that is served, for scalings that depend on it
    beta_fast : turns within original_len above which a pair is kept (yarn, default 32)
    beta_slow : turns within original_len below which a pair is interpolated (yarn, default 1)
    truncate : round the band of yarn to whole pairs, as all but gpt-oss do
    mscale : magnitude of DeepSeek's yarn
    mscale_all_dim : magnitude that DeepSeek moves to the softmax scale
    attention_factor : A itself; replaces what the scaling would find (yarn, longrope)
    low_freq_factor : turns within original_len below which a pair is divided (llama3)
    high_freq_factor : turns within original_len above which a pair is kept (llama3)
    short_factor : (pairs,) divisors up to original_len (longrope)
    long_factor : (pairs,) divisors beyond original_len (longrope)
    policy : which divisors of longrope, by-length of seq_len (default), short or long
    mixed_b : exponent of ntk-mixed, 1 is ntk-fixed
    partial : rotate only int(dim * partial) channels; for proportional the pairs that turn
    sections : pairs that turn with each axis, sharing one frequency vector (M-RoPE 16,24,24)
    interleave_sections : the axes of sections alternate (Qwen3-VL) instead of following one another
    axes : width of each axis, each with frequencies of its own (FLUX 16,56,56)
    axis_style : a published form of several axes; ernie-vl takes sections
    axis_factors : how many times longer each axis gets, by a change of its base (Cosmos 2,1,1)
    ref_grid : grid of pretraining that eva02 and pe-vision rescale positions to
    grid : rows are the cells of this grid
    compute : exact, or float32 as the frameworks compute, so that their tables are matched
    dtype : element type, rounded once

    Returns
    -------
    Tensors
        rope (n, d), or cos and sin as the layout has them, of type `dtype`; a layout of frequencies alone
        gives inv_freq, rope_freqs.weight or freqs (pairs,). `facts` say the magnitude and what the scaling
        came to.

    Raises
    ------
    PeError
        For a width that the layout or the axes cannot have, options that the scaling does not take or needs,
        values out of range, positions that are not finite numbers, or more memory than there is.
    """
    if dim is None:
        if axes is None:
            raise PeError(f"which width? Give {parameter('dim')}")
        dim = sum(axes)
    options = {
        "factor": factor,
        "original_len": original_len,
        "seq_len": seq_len,
        "beta_fast": beta_fast,
        "beta_slow": beta_slow,
        "truncate": None if truncate else False,
        "mscale": mscale,
        "mscale_all_dim": mscale_all_dim,
        "attention_factor": attention_factor,
        "low_freq_factor": low_freq_factor,
        "high_freq_factor": high_freq_factor,
        "short_factor": short_factor,
        "long_factor": long_factor,
        "policy": policy,
        "mixed_b": mixed_b,
        "partial": partial,
    }
    given = given_options(options)
    if axes is not None or (axis_style is not None and axis_style not in rope_layouts.SECTION_ORDERS):
        taken = [f"{parameter('scaling')} {scaling}"] if scaling != "none" else []
        _refuse_beside_axes(taken + [parameter(name) for name, _ in given])
        if sections is not None or interleave_sections:
            raise PeError(
                f"{parameter('sections')} divide one frequency vector, {parameter('axes')} have one each: give either"
            )
        factors = None if axis_factors is None else tuple(map(float, axis_factors))
        sizes = _tuple(axes), _tuple(grid), _tuple(ref_grid)
        form = axial_form(dim, base, axis_style, *sizes, factors, compute)
    else:
        if axis_factors is not None:
            raise PeError(f"{parameter('axis_factors')} belong to {parameter('axes')}")
        if ref_grid is not None:
            raise PeError(f"{parameter('ref_grid')} belongs to {parameter('axis_style')} eva02 and pe-vision")
        form = shared_form(
            dim, base, scaling, given, _tuple(sections), interleave_sections, axis_style, compute
        )
    if layout in rope_layouts.CONSTANTS:
        return form.constants(layout, dtype)
    form.check_layout(layout)
    where = form.coordinates(np.asarray(positions), _tuple(grid))
    tables = rope_layouts.empty_tables(layout, len(where), form.pairs, dtype)
    blocks = form.blocks(where, relative=dtype == "float64")
    if layout == "half" and form.columns is not None:
        tables = rope_layouts.empty_columns(len(where), len(form.columns), dtype)
        rope_layouts.fill_columns(tables, form.columns, blocks)
    else:
        rope_layouts.fill(layout, tables, blocks)
    return Tensors(tables, {**form.facts, "baked_in": True}, form.spectrum.warnings)


@encoding
def xpos(
    positions: Positions,
    dim: int,
    *,
    base: float = DEFAULT_BASE,
    scale_base: float = 512.0,
    gamma: float = 0.4,
    seq_len: int | None = None,
    layout: Layout = "interleaved",
    dtype: DType = "float32",
) -> Tensors:
    """Rotary tables with exponential decay, one for queries, one for keys.

    >>> list(xpos(4, dim=8, seq_len=4, layout="half").keys())
    ['q_cos', 'q_sin', 'k_cos', 'k_sin']

    The query table is the rotary table times ζ_i^((p - centre) / scale_base), the key table times its inverse,
    with ζ_i = (2 i / dim + gamma) / (1 + gamma): scores of far pairs fade. Names are those of rope with q_ and k_
    in front. Extrapolates: far better than rope; only scores matter, and they do not depend on the centre.

    Source: Sun et al. 2022, arXiv 2212.10554; torchscale `XPOS`.

    Parameters
    ----------
    positions : (n,) positions; an int n stands for 0..n-1
    dim : rotary width
    base : the wavelengths run from 2 pi to 2 pi base
    scale_base : distance over which a score fades by ζ
    gamma : the smaller, the faster the fast pairs fade
    seq_len : put the centre at ceil(seq_len / 2), as torchscale does; without it the centre is position 0
    layout : how cosines and sines are stored
    dtype : element type, rounded once

    Returns
    -------
    Tensors
        q_ and k_ before the names of the layout, (n, d) each; `facts` say the centre.

    Raises
    ------
    PeError
        For an odd width, a layout without decay, values that are not positive, positions that are not finite
        numbers, and a decay that the type cannot hold.
    """
    if layout not in rope_layouts.TABLES:
        raise PeError(
            f"{parameter('layout')} {layout} has no decay; xpos is stored as {', '.join(rope_layouts.TABLES)}"
        )
    if dim % 2 or dim < 2:
        raise PeError(f"{parameter('dim')} {dim}: a rotary width is an even number of channels")
    for name, value in {"scale_base": scale_base, "gamma": gamma, "seq_len": seq_len}.items():
        if value is not None and not value > 0:
            raise PeError(f"{parameter(name)} {value:g} is not positive")
    where = np.asarray(positions)
    if where.ndim != 1:
        raise PeError(f"{parameter('positions')} have shape {where.shape}; xpos has one axis")
    centre = 0 if seq_len is None else (seq_len + 1) // 2
    zeta = (np.arange(0, dim, 2) / dim + gamma) / (1 + gamma)
    distance = (where - centre) / scale_base
    _check_decay(where, distance * math.log(zeta[0]), dtype)
    sides = {side: rope_layouts.empty_tables(layout, len(where), dim // 2, dtype) for side in "qk"}
    for rows, z in rotation_blocks(where, geometric(base, dim), relative=dtype == "float64"):
        decay = np.exp(distance[rows, None] * np.log(zeta))
        rope_layouts.fill(layout, sides["q"], [(rows, z * decay)])
        rope_layouts.fill(layout, sides["k"], [(rows, z / decay)])
    named = {f"{side}_{name}": table for side, tables in sides.items() for name, table in tables.items()}
    hint = f"the centre is position 0; give {parameter('seq_len')} for the rows of torchscale (scores are the same)"
    return Tensors(named, {"centre": centre}, () if seq_len is not None else (hint,))


def _check_decay(positions: NDArray[Any], exponents: NDArray[np.float64], dtype: ElementType) -> None:
    if len(exponents) and np.abs(exponents).max() >= math.log(largest(dtype)):
        worst = positions[np.argmax(np.abs(exponents))]
        raise PeError(
            f"position {worst} decays beyond {dtype}: give {parameter('seq_len')} to centre it, a larger "
            f"{parameter('scale_base')} or {parameter('dtype')}"
        )


def _refuse_beside_axes(names: list[str]) -> None:
    if names:
        raise PeError(f"{names[0]} does not apply to axes: scalings are for one axis, or for sections")


def _tuple(numbers: Any) -> tuple[int, ...] | None:
    return None if numbers is None else tuple(int(number) for number in numbers)
