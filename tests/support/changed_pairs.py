"""Pairs of tables with known differences, made by plain numpy: nothing of the package is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
TYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


@dataclass
class Pair:
    """Two tables and the causes that are right: one of each set, and nothing else."""

    a: Array
    b: Array
    wanted: list[set[str]]
    how: list[str] = field(default_factory=list)


@dataclass
class Wheel:
    """What a table of turning pairs is made of."""

    rows: int
    dim: int
    base: float = 10000.0
    scaling: tuple[str, float] = ("none", 1.0)
    start: int = 0
    layout: str = "cos|sin"
    rule: tuple[str, Any] | None = None
    angles: str = "float64"
    negative: str = ""
    amplitude: float = 1.0
    shift: int = 0

    def frequencies(self) -> Array:
        m = self.dim // 2
        kind, factor = self.scaling
        base = self.base * factor ** (self.dim / (self.dim - 2)) if kind == "ntk" else self.base
        w = base ** (-np.arange(m) / (m - self.shift))
        if kind == "linear":
            return w / factor
        if kind == "llama3":
            low, high, old = 1.0, 4.0, 8192
            wavelength = 2 * np.pi / w
            smooth = (old / wavelength - low) / (high - low)
            mixed = (1 - smooth) * w / factor + smooth * w
            return np.where(wavelength > old / low, w / factor, np.where(wavelength < old / high, w, mixed))
        if kind == "yarn":
            old = 4096

            def place(turns: float) -> float:
                return self.dim * np.log(old / (turns * 2 * np.pi)) / (2 * np.log(base))

            low, high = max(np.floor(place(32)), 0), min(np.ceil(place(1)), self.dim - 1)
            ramp = np.clip((np.arange(m) - low) / max(high - low, 0.001), 0, 1)
            return w / factor * ramp + w * (1 - ramp)
        return w

    def table(self) -> Array:
        p = self.start + np.arange(self.rows, dtype=np.float64)
        if self.rule:
            kind, value = self.rule
            if kind in TYPES:
                p = p.astype(TYPES[kind]).astype(np.float64)
            elif kind == "int8":
                p = p.astype(np.int64).astype(np.int8).astype(np.float64)
            elif kind == "clamp":
                p = np.minimum(p, self.start + value)
            elif kind == "restart":
                begun = np.array([0, *value])
                rows = np.arange(self.rows)
                p = self.start + (rows - begun[np.searchsorted(begun, rows, side="right") - 1]).astype(
                    np.float64
                )
        w = self.frequencies()
        if self.angles == "float32":
            angle = (p.astype(np.float32)[:, None] * w.astype(np.float32)).astype(np.float64)
        elif self.angles == "bfloat16":
            t = TYPES["bfloat16"]
            angle = (p.astype(t)[:, None] * w.astype(t)).astype(np.float64)
        else:
            angle = np.outer(p, w)
        scale = self.amplitude * (0.1 * np.log(self.scaling[1]) + 1 if self.scaling[0] == "yarn" else 1)
        cos, sin = scale * np.cos(angle), scale * np.sin(angle)
        if self.negative == "sines":
            sin = -sin
        if self.negative == "all":
            cos, sin = -cos, -sin
        made = {
            "cos|sin": lambda: np.concatenate([cos, sin], 1),
            "sin|cos": lambda: np.concatenate([sin, cos], 1),
            "cos,sin": lambda: np.stack([cos, sin], -1).reshape(self.rows, -1),
            "sin,cos": lambda: np.stack([sin, cos], -1).reshape(self.rows, -1),
        }[self.layout]()
        return made.astype(np.float32)


BASES = (10000.0, 500000.0, 1e6, 5000.0, 100000.0, 8e6, 20000.0, 150000.0)


def wheel(rng: np.random.Generator) -> Wheel:
    rows, dim = int(rng.choice([96, 128, 300, 512, 1000, 2048])), int(rng.choice([16, 32, 48, 64, 96, 128]))
    layout = str(rng.choice(["cos|sin", "sin|cos", "cos,sin", "sin,cos"]))
    return Wheel(
        rows, dim, float(rng.choice(BASES)), layout=layout, start=int(rng.choice([0, 0, 0, 1, 2, 17]))
    )


def turn_layout(w: Wheel, rng: np.random.Generator) -> str:
    w.layout = {"cos|sin": "cos,sin", "cos,sin": "cos|sin", "sin|cos": "sin,cos", "sin,cos": "sin|cos"}[
        w.layout
    ]
    return "layout"


def turn_order(w: Wheel, rng: np.random.Generator) -> str:
    w.layout = {"cos|sin": "sin|cos", "sin|cos": "cos|sin", "cos,sin": "sin,cos", "sin,cos": "cos,sin"}[
        w.layout
    ]
    return "swap-sin-cos"


def other_base(w: Wheel, rng: np.random.Generator) -> str:
    w.base = float(rng.choice([b for b in BASES if b != w.base]))
    if w.scaling[0] == "ntk":
        w.scaling = "linear", w.scaling[1]
    return "base"


def other_scaling(w: Wheel, rng: np.random.Generator) -> str:
    # the NTK rule is another base, so that of a base that nobody chose it could not be told
    kind = str(
        rng.choice(["linear", "llama3", "yarn", "ntk"] if w.base == 10000 else ["linear", "llama3", "yarn"])
    )
    w.scaling = kind, float(rng.choice([2, 4, 8]))
    return "scaling"


def other_start(w: Wheel, rng: np.random.Generator) -> str:
    w.start += int(rng.choice([1, 2, 7, 40]))
    return "offset"


def other_sign(w: Wheel, rng: np.random.Generator) -> str:
    w.negative = str(rng.choice(["sines", "all"]))
    return "sign"


def other_amplitude(w: Wheel, rng: np.random.Generator) -> str:
    w.amplitude = float(rng.choice([0.5, 2.0, 1.1386, 0.8, 3.0]))
    return "amplitude"


def other_positions(w: Wheel, rng: np.random.Generator) -> str:
    kind = str(rng.choice(["bfloat16", "clamp", "restart", "int8"]))
    if kind == "bfloat16":
        w.rows = max(w.rows, 300)
    if kind == "int8":
        w.rows = max(w.rows, 200)
    value: Any = None
    if kind == "clamp":
        value = int(rng.integers(w.rows // 4, w.rows - 4))
    if kind == "restart":
        value = sorted({int(r) for r in rng.integers(8, w.rows - 2, size=int(rng.integers(1, 4)))})
    w.rule = kind, value
    return "positions"


def other_angles(w: Wheel, rng: np.random.Generator) -> str:
    w.angles = str(rng.choice(["float32", "bfloat16"]))
    w.rows = max(w.rows, 1000)
    return f"{w.angles}-angles"


MODEL_CHANGES: tuple[Callable[[Wheel, np.random.Generator], str], ...] = (
    turn_layout, turn_order, other_base, other_scaling, other_start, other_sign, other_amplitude, other_positions,
)  # fmt: skip


def rounded(x: Array, rng: np.random.Generator) -> tuple[Array, str]:
    kind = TYPES[str(rng.choice(["bfloat16", "float16"]))]
    y = x.astype(kind)
    return (y.astype(np.float32) if rng.random() < 0.5 else y), "dtype-rounding"


def late_rows(x: Array, rng: np.random.Generator) -> tuple[Array, str]:
    y = x.copy()
    first = int(rng.integers(len(x) // 2, len(x) - 3))
    count = int(rng.integers(1, max(2, min(len(x) - first, len(x) // 4))))
    y[first : first + count] = rng.standard_normal((count, x.shape[1])).astype(x.dtype)
    return y, "rows"


def few_entries(x: Array, rng: np.random.Generator) -> tuple[Array, str]:
    y = x.copy()
    for _ in range(int(rng.integers(1, 4))):
        y[int(rng.integers(len(x))), int(rng.integers(x.shape[1]))] += 1
    return y, "entries"


def zero_rows(x: Array, rng: np.random.Generator) -> tuple[Array, str]:
    y = np.concatenate([np.zeros((int(rng.integers(1, 3)), x.shape[1]), x.dtype), x])
    return (y if rng.random() < 0.5 else y[: len(x)]), "padding-row"


def transposed(x: Array, rng: np.random.Generator) -> tuple[Array, str]:
    return np.ascontiguousarray(x.T), "transpose"


def reshaped(x: Array, rng: np.random.Generator) -> tuple[Array, str]:
    return x.reshape(len(x), 2, -1), "shape"


def shuffled(x: Array, rng: np.random.Generator) -> tuple[Array, str]:
    return x[rng.permutation(len(x))], "permutation"


def times(x: Array, rng: np.random.Generator) -> tuple[Array, str]:
    return (x * np.float32(rng.choice([0.5, 2, 1.25, 0.02]))).astype(x.dtype), "amplitude"


def negated(x: Array, rng: np.random.Generator) -> tuple[Array, str]:
    return -x, "sign"


def moved(x: Array, rng: np.random.Generator) -> tuple[Array, str]:
    return x[int(rng.integers(1, max(2, len(x) // 4))) :], "offset"


LEARNED_CHANGES = (
    late_rows,
    few_entries,
    zero_rows,
    transposed,
    reshaped,
    shuffled,
    times,
    negated,
    moved,
    rounded,
)
LAST_CHANGES = (late_rows, few_entries, rounded)


def of_wheels(rng: np.random.Generator) -> Pair:
    """Tables that turn, with none to three changes, of which the last may be late or a rounding."""
    first = wheel(rng)
    if rng.random() < 0.3:
        first.scaling = str(rng.choice(["linear", "yarn", "llama3"])), float(rng.choice([2, 4, 8]))
    second = Wheel(**vars(first))
    count = int(rng.choice([0, 1, 1, 1, 2, 2, 3]))
    changes = list(rng.permutation(len(MODEL_CHANGES)))[:count]
    if first.scaling[0] != "none":
        changes = [c for c in changes if MODEL_CHANGES[c] is not other_scaling]
    wanted, how = [], []
    for c in changes:
        name = MODEL_CHANGES[c](second, rng)
        wanted.append({name})
        how.append(name)
    first.rows = second.rows = max(first.rows, second.rows)
    if count == 1 and rng.random() < 0.25:
        second = Wheel(**vars(first))
        name = other_angles(second, rng)
        first.rows = second.rows
        wanted, how = [{name}], [name]
    a, b = first.table(), second.table()
    # rounding to a narrow type hides what float32 angles change
    if len(wanted) < 3 and rng.random() < 0.35 and how != ["float32-angles"]:
        # other rows at the end would hide positions that are wrong there
        choices = [one for one in LAST_CHANGES if one is not late_rows or "positions" not in how]
        change = choices[int(rng.integers(len(choices)))]
        b, name = change(b, rng)
        wanted.append({name})
        how.append(name)
    if rng.random() < 0.5:
        a, b = b, a
    return Pair(a, b, wanted, [f"{first}", *how])


def of_learned(rng: np.random.Generator) -> Pair:
    a = (
        rng.standard_normal((int(rng.choice([40, 197, 512, 1030])), int(rng.choice([12, 64, 96])))) * 0.02
    ).astype(np.float32)
    if rng.random() < 0.3:
        a = np.cumsum(a, axis=0).astype(np.float32)
    b, wanted = a, []
    for c in rng.permutation(len(LEARNED_CHANGES))[: int(rng.choice([0, 1, 1, 2]))]:
        change = LEARNED_CHANGES[c]
        names = {next(iter(w)) for w in wanted}
        if (
            b.ndim > 2
            or "dtype-rounding" in names
            or (change is transposed and names)
            or (change is moved and "permutation" in names)  # no row then tells where the table began
            or (change is shuffled and "offset" in names)
            or (names & {"transpose", "shape"})
        ):
            continue
        b, name = change(b, rng)
        wanted.append({name})
    if rng.random() < 0.5:
        a, b = b, a
    return Pair(a, b, wanted, ["learned", str(a.shape), *map(str, wanted)])


def of_buckets(rng: np.random.Generator) -> Pair:
    """T5's buckets, Shaw's clipped distances, ALiBi: other parameters, masks, transposed."""
    n = int(rng.choice([48, 96, 160]))
    d = np.arange(n)[None] - np.arange(n)[:, None]
    kind = str(rng.choice(["t5", "shaw", "alibi", "mask", "transpose"]))
    if kind == "t5":
        a, b = (_t5(d, 32, int(m)) for m in rng.choice([20, 32, 64, 128], 2, replace=False))
        return Pair(a, b, [{"parameters"}], [kind, str(n)])
    if kind == "shaw":
        a, b = (np.clip(d, -int(k), int(k)) + int(k) for k in rng.choice([4, 8, 16, 20], 2, replace=False))
        return Pair(a, b, [{"parameters"}], [kind, str(n)])
    slopes = 2.0 ** (-8 * np.arange(1, 9) / 8)
    bias = (-slopes[:, None, None] * np.abs(d)).astype(np.float32)
    if kind == "alibi":
        other = (-(2.0 ** (-4 * np.arange(1, 9) / 8))[:, None, None] * np.abs(d)).astype(np.float32)
        return Pair(bias, other, [{"parameters"}], [kind, str(n)])
    if kind == "mask":
        masked = np.where(d > 0, -np.inf, bias).astype(np.float32)
        return Pair(*((bias, masked) if rng.random() < 0.5 else (masked, bias)), [{"mask"}], [kind, str(n)])
    index = _t5(d, 32, 128)
    return Pair(index, np.ascontiguousarray(index.T), [{"transpose"}], [kind, str(n)])


def _t5(d: Array, buckets: int, farthest: int) -> Array:
    half = buckets // 2
    size = np.abs(d)
    exact = half // 2
    with np.errstate(divide="ignore"):
        far = exact + np.floor(
            np.log(np.maximum(size, 1) / exact) / np.log(farthest / exact) * (half - exact) + 1e-9
        )
    return ((d > 0) * half + np.where(size < exact, size, np.minimum(far, half - 1))).astype(np.int64)


def of_eigenvectors(rng: np.random.Generator) -> Pair:
    a = np.linalg.qr(rng.standard_normal((int(rng.choice([30, 64])), 6)))[0]
    sign = rng.choice([-1, 1], 6)
    if abs(sign.sum()) == 6:
        sign[0] *= -1
    return Pair(a, a * sign, [{"eigenvector-sign", "sign"}], ["eigenvectors"])


def unrelated(rng: np.random.Generator) -> Pair:
    shape = [(64, 32), (128, 64), (197, 48), (100, 16), (512, 96)][int(rng.integers(5))]
    a, b = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    kind = int(rng.integers(5))
    if kind == 1:
        a, b = np.cumsum(a, 0), np.cumsum(b, 0)
    if kind == 2:
        b = Wheel(*shape).table()
    if kind == 3:
        a = Wheel(*shape, base=5e5).table()
    if kind == 4:
        a = np.sin(
            np.outer(np.arange(shape[0]), rng.uniform(0, 1, shape[1])) + rng.uniform(0, 6, shape[1])
        ).astype(np.float32)
    return Pair(a, b, [], ["unrelated", str(kind)])


KINDS = ((of_wheels, 0.6), (of_learned, 0.2), (of_buckets, 0.08), (of_eigenvectors, 0.02), (unrelated, 0.1))


def pair(seed: int) -> Pair:
    """The pair of a seed."""
    rng = np.random.default_rng(seed)
    makers, shares = zip(*KINDS, strict=True)
    return makers[int(rng.choice(len(makers), p=np.array(shares)))](rng)
