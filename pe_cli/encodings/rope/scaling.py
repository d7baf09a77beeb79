"""How a rotary model is stretched beyond its training length: the frequencies of every scaling, exactly.

A scaling turns the plain frequencies w_i = base^(-2 i / d) into others, and some of them also ask for a
magnitude A that multiplies cosine and sine (so that q·k is multiplied by A²). An option that a scaling does
not take is an error, never ignored.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np

from pe_cli.errors import PeError, no_such, parameter
from pe_cli.numerics.kernels import PRECISE, TWO_PI, as_decimal, geometric

Decimals: TypeAlias = tuple[Decimal, ...]
Policy: TypeAlias = Literal["by-length", "short", "long"]


@dataclass(frozen=True)
class Spectrum:
    """What a scaling starts from."""

    base: Decimal
    dim: int
    plain: Decimals

    def with_base(self, base: Decimal) -> Decimals:
        return geometric(base, self.dim)


class Scaled:
    """What a scaling came to: frequencies, magnitude, explanation, and what the user should know."""

    def __init__(
        self,
        inv_freq: Decimals,
        magnitude: Decimal = Decimal(1),
        warnings: tuple[str, ...] = (),
        **facts: Any,
    ) -> None:
        self.inv_freq, self.magnitude, self.warnings, self.facts = inv_freq, magnitude, warnings, facts


def none(spectrum: Spectrum) -> Scaled:
    """w_i = base^(-2 i / d). Su et al. 2021, arXiv 2104.09864, section 3.2.2."""
    return Scaled(spectrum.plain)


def linear(spectrum: Spectrum, *, factor: Decimal) -> Scaled:
    """w_i / s, position interpolation. Chen et al. 2023, arXiv 2306.15595, equation 4."""
    _positive(factor=factor)
    return Scaled(_divided(spectrum.plain, factor))


def ntk(spectrum: Spectrum, *, factor: Decimal) -> Scaled:
    """base' = base s^(d / (d - 2)): the lowest frequency is divided by s, the highest kept. bloc97 2023."""
    _positive(factor=factor)
    base = _ntk_base(spectrum, factor)
    return Scaled(spectrum.with_base(base), effective_base=float(base))


def ntk_fixed(spectrum: Spectrum, *, factor: Decimal) -> Scaled:
    """w_i / s^(2 (i + 1) / d): base s, then all divided by s^(2 / d). Su Jianlin 2023, kexue.fm 9706, fixed."""
    return ntk_mixed(spectrum, factor=factor, mixed_b=Decimal(1))


def ntk_mixed(spectrum: Spectrum, *, factor: Decimal, mixed_b: Decimal) -> Scaled:
    """w_i exp(-a (i + 1)^b) with a = ln s / (d / 2)^b. Su Jianlin 2023, kexue.fm 9706, mixed; vLLM `mixed_b`."""
    _positive(factor=factor)
    _positive(mixed_b=mixed_b)
    steepness = factor.ln() / (Decimal(spectrum.dim) / 2) ** mixed_b
    return Scaled(tuple(w * (-steepness * (i + 1) ** mixed_b).exp() for i, w in enumerate(spectrum.plain)))


def dynamic_ntk(spectrum: Spectrum, *, factor: Decimal, original_len: Decimal, seq_len: Decimal) -> Scaled:
    """base' = base (s n / L0 - (s - 1))^(d / (d - 2)) with n = max(length, L0). emozilla 2023.

    The table depends on the length: keys that were cached at another length belong to another table.
    """
    _positive(factor=factor)
    _positive(original_len=original_len, seq_len=seq_len)
    length = max(seq_len, original_len)
    stretch = factor * length / original_len - (factor - 1)
    base = _ntk_base(spectrum, stretch)
    fixed = f"dynamic-ntk at {length:g} tokens: keys cached at another length do not belong to this table"
    return Scaled(
        spectrum.with_base(base),
        warnings=(fixed,) if length > original_len else (),
        effective_base=float(base),
        length=int(length),
    )


def ntk_by_parts(spectrum: Spectrum, *, factor: Decimal, original_len: Decimal) -> Scaled:
    """Slow pairs by w / s, fast pairs kept, those between by `ntk`: two ramps, at 1.25 to 0.75 turns (linear to
    NTK) and at 16 to 2 turns (to plain). jquesnelle/yarn 2023, `PartNTK`; the ancestor of YaRN."""
    _positive(factor=factor)
    by_ntk = spectrum.with_base(_ntk_base(spectrum, factor))
    slow = _turning_band(spectrum, Decimal("1.25"), Decimal("0.75"), original_len, truncate=True)
    fast = _turning_band(spectrum, Decimal(16), Decimal(2), original_len, truncate=True)
    mixed = _blend(by_ntk, _divided(spectrum.plain, factor), slow)
    return Scaled(
        _blend(spectrum.plain, mixed, fast), correction_range=_floats(fast), linear_range=_floats(slow)
    )


def yarn(
    spectrum: Spectrum,
    *,
    factor: Decimal,
    original_len: Decimal,
    beta_fast: Decimal = Decimal(32),
    beta_slow: Decimal = Decimal(1),
    truncate: bool = True,
    mscale: Decimal | None = None,
    mscale_all_dim: Decimal | None = None,
    attention_factor: Decimal | None = None,
) -> Scaled:
    """w_i (1 - r_i) + (w_i / s) r_i, r a ramp between the pairs that make beta_fast and beta_slow turns in L0.

    A is `attention_factor` where it is given; g(s, mscale) / g(s, mscale_all_dim) where both are given and not
    zero; else g(s, 1), with g(s, m) = 0.1 m ln s + 1. DeepSeek also multiplies its softmax scale by
    g(s, mscale_all_dim)²; that factor is reported, it cannot be part of a table.
    Peng et al. 2023, arXiv 2309.00071, sections 3.2 and 3.4; the precedence is transformers'.
    """
    _positive(factor=factor)
    band = _turning_band(spectrum, beta_fast, beta_slow, original_len, truncate=truncate)
    inv_freq = _blend(spectrum.plain, _divided(spectrum.plain, factor), band)
    facts: dict[str, Any] = {"correction_range": _floats(band), "truncate": truncate}
    if mscale_all_dim:
        gain = _yarn_magnitude(factor, mscale_all_dim)
        facts["softmax_scale_factor"] = float(gain * gain)
    if attention_factor is not None:
        return Scaled(inv_freq, attention_factor, **facts)
    if mscale and mscale_all_dim:
        magnitude = _yarn_magnitude(factor, mscale) / _yarn_magnitude(factor, mscale_all_dim)
        return Scaled(inv_freq, magnitude, **facts)
    return Scaled(inv_freq, _yarn_magnitude(factor, Decimal(1)), **facts)


def longrope(
    spectrum: Spectrum,
    *,
    original_len: Decimal,
    short_factor: Decimals | None = None,
    long_factor: Decimals | None = None,
    seq_len: Decimal | None = None,
    policy: Policy = "by-length",
    factor: Decimal | None = None,
    attention_factor: Decimal | None = None,
) -> Scaled:
    """w_i / f_i with a searched list f: the short one up to L0 tokens, the long one beyond.

    A = sqrt(1 + ln s / ln L0) with s = (longest length) / L0, or `attention_factor`.
    Ding et al. 2024, arXiv 2402.13753, and the configurations of Phi-3.
    """
    _positive(original_len=original_len)
    if policy == "by-length":
        if seq_len is None:
            raise PeError(
                f"scaling longrope changes from short to long factors: give {parameter('seq_len')}, or "
                f"{parameter('policy')} short or long"
            )
        chosen = "long" if seq_len > original_len else "short"
    else:
        if seq_len is not None:
            raise PeError(
                f"{parameter('seq_len')} chooses between short and long factors: leave it out with "
                f"{parameter('policy')} {policy}"
            )
        chosen = policy
    name = parameter(f"{chosen}_factor")
    divisors = {"short": short_factor, "long": long_factor}[chosen]
    if divisors is None:
        raise PeError(f"scaling longrope needs {name}, a list of {len(spectrum.plain)} divisors")
    if len(divisors) != len(spectrum.plain):
        raise PeError(
            f"{name} has {len(divisors)} entries, "
            f"but a rotary width of {spectrum.dim} has {len(spectrum.plain)} pairs"
        )
    if not all(divisor > 0 for divisor in divisors):
        raise PeError(f"{name} has entries that are not positive")
    if attention_factor is None:
        if factor is None:
            raise PeError(
                f"scaling longrope needs {parameter('factor')} (longest length / original length), "
                f"or {parameter('attention_factor')}, for its magnitude"
            )
        attention_factor = _longrope_magnitude(factor, original_len)
    inv_freq = tuple(w / f for w, f in zip(spectrum.plain, divisors, strict=True))
    side = "up to" if chosen == "short" else "beyond"
    note = (
        f"longrope {chosen} factors, for lengths {side} {original_len:g}; crossing that needs a new key cache"
    )
    return Scaled(inv_freq, attention_factor, (note,), factors=chosen)


def llama3(
    spectrum: Spectrum,
    *,
    factor: Decimal,
    original_len: Decimal,
    low_freq_factor: Decimal,
    high_freq_factor: Decimal,
) -> Scaled:
    """Keep wavelengths below L0 / high, divide those above L0 / low by s, between them blend linearly in 1 / λ.

    Equal factors make a step. Llama 3.1 (Meta 2024), `apply_scaling` of its reference code.
    """
    _positive(factor=factor)
    _positive(original_len=original_len, low_freq_factor=low_freq_factor, high_freq_factor=high_freq_factor)
    if high_freq_factor < low_freq_factor:
        raise PeError(
            f"{parameter('high_freq_factor')} {high_freq_factor:g} is below {parameter('low_freq_factor')} "
            f"{low_freq_factor:g}: swap them"
        )
    scaled = []
    for w in spectrum.plain:
        turns = original_len * w / TWO_PI
        if turns > high_freq_factor:
            scaled.append(w)
        elif turns < low_freq_factor:
            scaled.append(w / factor)
        else:
            share = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
            scaled.append(w / factor * (1 - share) + w * share)
    return Scaled(tuple(scaled))


def proportional(
    spectrum: Spectrum, *, partial: Decimal = Decimal(1), factor: Decimal = Decimal(1)
) -> Scaled:
    """w_i for i < int(partial d // 2) and 0 for the rest, all over the whole head width d; then divided by s.

    The pairs that do not turn stay in the table. Barbero et al. 2024, arXiv 2410.06205 (p-RoPE); Gemma 4.
    """
    _positive(factor=factor)
    fraction(partial=partial)
    live = int(float(partial) * spectrum.dim // 2)
    dead = len(spectrum.plain) - live
    return Scaled((*_divided(spectrum.plain[:live], factor), *(Decimal(0),) * dead), live_pairs=live)


Rule: TypeAlias = Callable[..., Scaled]

SCALINGS: dict[str, Rule] = {
    "none": none,
    "linear": linear,
    "ntk": ntk,
    "ntk-fixed": ntk_fixed,
    "ntk-mixed": ntk_mixed,
    "dynamic-ntk": dynamic_ntk,
    "ntk-by-parts": ntk_by_parts,
    "yarn": yarn,
    "longrope": longrope,
    "llama3": llama3,
    "proportional": proportional,
}
ALIASES = {
    "default": "none",
    "pi": "linear",
    "ntk-aware": "ntk",
    "ntk-alpha": "ntk",
    "dynamic": "dynamic-ntk",
    "part-ntk": "ntk-by-parts",
    "su": "longrope",
    "p-rope": "proportional",
}
IN_BANDS = frozenset({"ntk-by-parts", "yarn", "llama3"})  # fast pairs kept, slow ones divided by the factor


def _ntk_base(spectrum: Spectrum, stretch: Decimal) -> Decimal:
    if spectrum.dim <= 2:
        raise PeError(f"a change of base needs a rotary width above 2, not {spectrum.dim}")
    return spectrum.base * stretch ** (Decimal(spectrum.dim) / (spectrum.dim - 2))


def _turning_band(
    spectrum: Spectrum, fast: Decimal, slow: Decimal, original_len: Decimal, *, truncate: bool
) -> tuple[Decimal, Decimal]:
    """The pairs (lo, hi) that make `fast` and `slow` turns within the original length."""
    _positive(original_len=original_len, beta_fast=fast, beta_slow=slow)
    if spectrum.base <= 1:
        raise PeError(
            f"{parameter('base')} {spectrum.base:g} must be above 1, so that frequencies fall from pair to pair"
        )
    pairs_per_e = Decimal(spectrum.dim) / (2 * spectrum.base.ln())
    low, high = (pairs_per_e * (original_len / (turns * TWO_PI)).ln() for turns in (fast, slow))
    if truncate:
        low, high = low.to_integral_value(ROUND_FLOOR), high.to_integral_value(ROUND_CEILING)
    low, high = max(low, Decimal(0)), min(high, Decimal(spectrum.dim - 1))
    return low, high + Decimal("0.001") if low == high else high


def _blend(fast: Decimals, slow: Decimals, band: tuple[Decimal, Decimal]) -> Decimals:
    """`fast` before the band, `slow` after it, linear in the pair index between."""
    low, high = band
    shares = ((i - low) / (high - low) for i in range(len(fast)))
    ramp = (min(max(share, Decimal(0)), Decimal(1)) for share in shares)
    return tuple(f * (1 - r) + s * r for f, s, r in zip(fast, slow, ramp, strict=True))


def _divided(values: Decimals, factor: Decimal) -> Decimals:
    return tuple(value / factor for value in values)


def _yarn_magnitude(factor: Decimal, mscale: Decimal) -> Decimal:
    if factor <= 1:
        return Decimal(1)
    return Decimal("0.1") * mscale * factor.ln() + 1


def _longrope_magnitude(factor: Decimal, original_len: Decimal) -> Decimal:
    if factor <= 1:
        return Decimal(1)
    if original_len <= 1:
        raise PeError(
            f"{parameter('original_len')} {original_len:g} must be above 1 for the magnitude of longrope"
        )
    return (1 + factor.ln() / original_len.ln()).sqrt()


def _floats(band: tuple[Decimal, Decimal]) -> list[float]:
    return [float(edge) for edge in band]


def _positive(**values: Decimal) -> None:
    for name, value in values.items():
        if value <= 0:
            raise PeError(f"{parameter(name)} {value:g} is not positive")


def fraction(**values: Decimal) -> None:
    for name, value in values.items():
        if not 0 < value <= 1:
            raise PeError(f"{parameter(name)} {value:g} is not a fraction above 0 and up to 1")


DEFAULT_BASE = 10000.0


@dataclass(frozen=True)
class Frequencies:
    """The frequencies of one rotary table, before and after scaling.

    inv_freq : (m,) radians per position          plain : (m,) the same without scaling
    attention_factor : A, the factor of cosine and sine, rounded once to a float
    width : the rotary width, 2 m but for odd widths
    facts : what the scaling decided (the band it found, the base it came to, …)
    """

    inv_freq: Decimals
    plain: Decimals
    attention_factor: float
    width: int
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def divisors(self) -> Decimals:
        """(m,) plain / scaled: 1 where a pair is kept, the factor where it is interpolated, infinite where
        it does not turn. What ggml calls `freq_factors`."""
        pairs = zip(self.plain, self.inv_freq, strict=True)
        return tuple(PRECISE.divide(w, v) if v else Decimal("Infinity") for w, v in pairs)

    def wavelengths(self) -> list[float]:
        """(m,) positions per turn; infinite where a pair does not turn."""
        return [float(PRECISE.divide(TWO_PI, w)) if w else math.inf for w in self.inv_freq]

    def bands(self, factor: float) -> dict[str, int]:
        """How many pairs are kept, how many divided by `factor`, how many mixed between."""
        divisors = [float(divisor) for divisor in self.divisors()]
        kept = sum(divisor == 1 for divisor in divisors)
        divided = sum(divisor == factor != 1 for divisor in divisors)
        return {"kept": kept, "mixed": len(divisors) - kept - divided, "divided": divided}


def scaling_options(scaling: str) -> dict[str, bool]:
    """The options that a scaling takes, and whether each is needed."""
    signature = inspect.signature(SCALINGS[scaling])
    named = [p for p in signature.parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return {p.name: p.default is inspect.Parameter.empty for p in named}


def rotary_width(dim: int, partial: float | None) -> int:
    """int(dim * partial) in floating point, as configurations are read: 200 * 0.29 is 57, not 58."""
    if partial is None:
        return dim
    fraction(partial=as_decimal(partial))
    width = int(dim * partial)
    if width < 1:
        raise PeError(
            f"{parameter('partial')} {partial:g} of {parameter('dim')} {dim} leaves no rotary channel"
        )
    return width


@lru_cache(maxsize=64)
def _frequencies(dim: int, base: float, scaling: str, given: tuple[tuple[str, Any], ...]) -> Frequencies:
    options = dict(given)
    width = dim
    if scaling != "proportional":
        width = rotary_width(dim, options.pop("partial", None))
    _check_options(scaling, options)
    exact = as_decimal(base)
    spectrum = Spectrum(exact, width, geometric(exact, width))
    exact_options = {name: _exact(name, value) for name, value in options.items()}
    with localcontext(PRECISE):
        scaled = SCALINGS[scaling](spectrum, **exact_options)
    if not scaled.magnitude > 0:
        raise PeError(f"{parameter('attention_factor')} {scaled.magnitude:g} is not positive")
    odd = f"the rotary width {width} is odd: half of the last pair lies outside"
    result = Frequencies(
        scaled.inv_freq,
        spectrum.plain,
        float(scaled.magnitude),
        width,
        scaled.facts,
        (*scaled.warnings, odd) if width % 2 else scaled.warnings,
    )
    if scaling in IN_BANDS:
        result.facts["pairs"] = result.bands(float(options["factor"]))
    return result


def frequencies(
    dim: int, *, base: float = DEFAULT_BASE, scaling: str = "none", **options: Any
) -> Frequencies:
    """The frequencies of a rotary table of width `dim` under a scaling.

    Parameters
    ----------
    dim : rotary width; with `partial` the width of the head, of which int(dim partial) channels turn
    base : the wavelengths run from 2 pi to 2 pi base
    scaling : a name of SCALINGS or ALIASES
    options : what the scaling takes (`scaling_options`); None counts as not given

    Raises PeError for an option that the scaling does not take, one that it needs, and values out of range.
    """
    return _frequencies(dim, float(base), canonical(scaling), given_options(options))


def given_options(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The options that are not None, in order of name, arrays as tuples: a key for caches."""
    return tuple(
        sorted((name, _hashable(name, value)) for name, value in options.items() if value is not None)
    )


def canonical(scaling: str) -> str:
    """The name of SCALINGS that `scaling` stands for."""
    name = ALIASES.get(scaling, scaling)
    if name not in SCALINGS:
        raise no_such("scaling", scaling, SCALINGS, ALIASES)
    return name


def _check_options(scaling: str, options: Mapping[str, Any]) -> None:
    known = scaling_options(scaling)
    for name in options:
        if name not in known:
            if scaling == "none":
                takers = ", ".join(other for other in SCALINGS if name in scaling_options(other))
                raise PeError(
                    f"{parameter(name)} does not apply to scaling none: add {parameter('scaling')}, one of {takers}"
                )
            takes = ", ".join(map(parameter, known)) or "no options"
            raise PeError(f"{parameter(name)} does not apply to scaling {scaling}, which takes {takes}")
    missing = [name for name, needed in known.items() if needed and name not in options]
    if missing:
        raise PeError(f"scaling {scaling} needs {' and '.join(map(parameter, missing))}")


def _hashable(name: str, value: Any) -> Any:
    if isinstance(value, (list, tuple, np.ndarray)):
        flat = np.asarray(value, dtype=np.float64)
        if flat.ndim != 1:
            raise PeError(
                f"{parameter(name)} has shape {flat.shape}; a list of factors on one axis is needed"
            )
        return tuple(flat.tolist())
    return value


def _exact(name: str, value: Any) -> Any:
    if isinstance(value, (bool, str)):
        return value
    numbers = value if isinstance(value, tuple) else (value,)
    for number in numbers:
        if not math.isfinite(number):
            raise PeError(f"{parameter(name)} {number} is not a finite number")
    return tuple(map(as_decimal, value)) if isinstance(value, tuple) else as_decimal(value)
