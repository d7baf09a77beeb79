"""How a rotary model is stretched beyond its training length: the frequencies of every scaling, exactly.

A scaling turns the plain frequencies w_i = base^(-2 i / d) into others, and some of them also ask for a
magnitude A that multiplies cosine and sine (so that q·k is multiplied by A²). An option that a scaling does
not take is an error, never ignored.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np

from pe_cli.encodings.rope.rules import ALIASES, IN_BANDS, SCALINGS, Decimals, Spectrum, fraction
from pe_cli.errors import PeError, no_such, parameter
from pe_cli.numerics.kernels import PRECISE, TWO_PI, as_decimal, geometric

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
        raise no_such("scaling", scaling, (*SCALINGS, *ALIASES))
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
