"""Tables with known answers, for the examination of `identify`: a generator that shares no code with the package.

Every maker takes a random generator and gives a `Question`: the array, its name, the companions in its file, and what
holds of it. `mistake` judges an answer: it says what is wrong with it, or None. An answer may be silent (encoding
None); `named` says whether it names the table, or lists it among what it could be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Random = np.random.Generator
BASES = (10000.0, 10000.0, 500000.0, 1e6, 100000.0, 160000.0, 5000.0, 1000.0, 2500.0, 8e6, 150000.0, 1e7)
WIDTHS = (8, 16, 32, 48, 64, 80, 96, 128, 256)


@dataclass
class Question:
    """`encodings` that are right (empty where none is), `facts` that must hold where they are told."""

    kind: str
    array: Array
    encodings: tuple[str, ...]
    facts: dict[str, Any] = field(default_factory=dict)
    name: str | None = None
    companions: dict[str, Array] = field(default_factory=dict)
    told: str = ""  # what was made, for the message of a failure


def mistake(question: Question, answer: dict[str, Any]) -> str | None:
    """What the answer claims that does not hold."""
    encoding = answer.get("encoding")
    if encoding is None:
        return None
    if encoding not in question.encodings:
        return f"called {encoding}"
    if answer.get("scaling") == "unknown":
        return None
    also = " ".join(answer.get("ambiguous", []))
    for fact, right in question.facts.items():
        claimed = answer.get(fact, DEFAULTS.get(fact))
        if fact == "amplitude" and encoding == "rope":
            claimed = answer.get("attention_factor")
        if fact == "scaling" and encoding == "sinusoidal":
            continue
        if not _same(claimed, right) and not (fact in SPOKEN and _spoken(fact, right, also)):
            return f"{fact} is {claimed}, not {right}"
    return None


DEFAULTS: dict[str, Any] = {"stride": 1, "rule": None, "transposed": False, "start": 0}
SPOKEN = ("base", "style", "scaling", "factor", "original_len", "beta_fast", "beta_slow")


def _spoken(fact: str, right: Any, also: str) -> bool:
    """Whether the list of what fits equally well holds the right value."""
    if fact in ("original_len", "beta_fast", "beta_slow"):
        return fact in also
    return f"{right:.6g}" in also if isinstance(right, float) else str(right) in also


def _same(claimed: Any, right: Any) -> bool:
    if isinstance(right, (tuple, set, frozenset)):
        return claimed in right
    if isinstance(right, float) and isinstance(claimed, (int, float)):
        return abs(claimed - right) <= 2e-3 * abs(right)
    return bool(claimed == right)


def named(question: Question, answer: dict[str, Any]) -> bool:
    """Whether a table that is an encoding is named, or listed; whether one that is none is left without a name."""
    encoding = answer.get("encoding")
    if not question.encodings:
        return encoding is None
    listed = " ".join([*answer.get("ambiguous", []), *answer.get("maybe", [])])
    return encoding in question.encodings or any(one in listed for one in question.encodings)


# -- arithmetic ---------------------------------------------------------------------------------------------------


def frequencies(base: float, pairs: int, arithmetic: str, denominator: float | None = None) -> Array:
    """base^(-i / denominator) in float64, or as float32 code computes it."""
    i = np.arange(pairs)
    over = denominator or pairs
    if arithmetic == "float64":
        return base ** (-i / over)
    if arithmetic == "float32 pow":
        return (np.float32(1.0) / np.float32(base) ** (i.astype(np.float32) / np.float32(over))).astype(
            np.float32
        )
    return np.exp(i.astype(np.float32) * np.float32(-np.log(base) / over)).astype(np.float32)


def angles(positions: Array, w: Array) -> Array:
    if w.dtype == np.float32:
        return (positions.astype(np.float32)[:, None] * w[None]).astype(np.float32).astype(np.float64)
    return positions.astype(np.float64)[:, None] * w[None]


def stored(values: Array, dtype: str) -> Array:
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def _dtype(r: Random) -> str:
    return str(r.choice(["float32", "float32", "float32", "float64", "float16", "bfloat16"]))


def _arithmetic(r: Random) -> str:
    return str(r.choice(["float64", "float64", "float32 pow", "float32 exp"]))


def _line(r: Random, rows: int) -> tuple[Array, int, int]:
    start = int(r.choice([0, 0, 0, 0, 1, 2, 5, 100, 777, 2048, 32512]))
    stride = int(r.choice([1, 1, 1, 1, 1, 2, 4]))
    return start + stride * np.arange(rows), start, stride


# -- sinusoids ----------------------------------------------------------------------------------------------------

STYLES = {
    "paper": (lambda c, s: _alternate(s, c), 0),
    "paper-cat": (lambda c, s: np.concatenate([s, c], 1), 0),
    "t2t": (lambda c, s: np.concatenate([s, c], 1), 1),
    "t2t-cossin": (lambda c, s: np.concatenate([c, s], 1), 1),
    "diffusion": (lambda c, s: np.concatenate([c, s], 1), 0),
}


def _alternate(a: Array, b: Array) -> Array:
    return np.stack([a, b], -1).reshape(len(a), -1)


def sinusoid(r: Random) -> Question:
    style = str(r.choice(list(STYLES)))
    arrange, shift = STYLES[style]
    dim, rows = int(r.choice(WIDTHS)), int(r.integers(24, 700))
    base = float(r.choice([10000.0, 10000.0, 10000.0, 1000.0, 500.0, 100000.0]))
    p, start, stride = _line(r, rows)
    arithmetic, dtype = _arithmetic(r), _dtype(r)
    a = angles(p, frequencies(base, dim // 2, arithmetic, dim / 2 - shift))
    array = stored(arrange(np.cos(a), np.sin(a)), dtype)
    facts = {"base": base, "start": start, "stride": stride}
    facts["style"] = style
    told = f"{style} {array.shape} base {base} start {start} stride {stride} {dtype} {arithmetic}"
    rotary = ("rope",) if shift == 0 and style != "paper" else ()
    if rotary:
        del facts["style"]
    return Question("sinusoid", array, ("sinusoidal", *rotary), facts, told=told)


def fairseq(r: Random) -> Question:
    dim, rows = int(r.choice(WIDTHS)), int(r.integers(24, 400))
    a = angles(np.arange(rows), frequencies(10000.0, dim // 2, _arithmetic(r), dim / 2 - 1))
    array = np.concatenate([np.sin(a), np.cos(a)], 1)
    array[1] = 0
    return Question(
        "fairseq", stored(array, "float32"), ("sinusoidal",), {"style": "fairseq", "padding_idx": 1}
    )


def amplified(r: Random) -> Question:
    question = sinusoid(r)
    while question.array.dtype != np.float32:
        question = sinusoid(r)
    factor = float(r.choice([0.5, 2.0, 0.02, 8.0, 22.627417]))
    question.array = (question.array.astype(np.float32) * np.float32(factor)).astype(np.float32)
    question.kind = "amplified"
    question.facts["amplitude"] = factor
    question.told += f" times {factor}"
    return question


def behind_rows(r: Random) -> Question:
    """Special rows in front: zeros, or a trained row."""
    question = sinusoid(r)
    while question.facts["start"] or question.facts["stride"] != 1:
        question = sinusoid(r)
    many, zero = int(r.integers(1, 4)), bool(r.integers(2))
    front = (
        np.zeros((many, question.array.shape[1]))
        if zero
        else 0.02 * r.standard_normal((many, question.array.shape[1]))
    )
    question.array = np.concatenate([front.astype(question.array.dtype), question.array])
    question.kind = "behind rows"
    question.facts["offset_rows"] = many
    question.told += f" behind {many} {'zero' if zero else 'trained'} rows"
    return question


# -- rotary -------------------------------------------------------------------------------------------------------


def yarn(w: Array, base: float, factor: float, length: float, fast: float = 32.0, slow: float = 1.0) -> Array:
    pairs = len(w)
    low, high = (pairs * np.log(length / (n * 2 * np.pi)) / np.log(base) for n in (fast, slow))
    low, high = max(np.floor(low), 0), min(np.ceil(high), 2 * pairs - 1)
    ramp = np.clip((np.arange(pairs) - low) / max(high - low, 0.001), 0, 1)
    return (w / factor * ramp + w * (1 - ramp)).astype(w.dtype)


def llama3(w: Array, factor: float, length: float, low: float = 1.0, high: float = 4.0) -> Array:
    turns = length * w / (2 * np.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return ((1 - smooth) * w / factor + smooth * w).astype(w.dtype)


def scaled(r: Random, base: float, pairs: int, arithmetic: str) -> tuple[Array, dict[str, Any], float]:
    """Frequencies, what holds of them, and the magnitude."""
    w = frequencies(base, pairs, arithmetic)
    kind = str(r.choice(["none", "none", "linear", "ntk", "yarn", "llama3", "longrope"]))
    facts: dict[str, Any] = {"scaling": kind, "base": base}
    if kind in ("yarn", "llama3") and pairs < 16:
        kind = facts["scaling"] = "none"
    factor = float(r.choice([2.0, 4.0, 8.0, 16.0, 32.0]))
    length = float(r.choice([2048, 4096, 8192, 32768]))
    if kind == "linear":
        return w / w.dtype.type(factor), facts | {"factor": factor}, 1.0
    if kind == "ntk":
        base = base * factor ** (pairs / (pairs - 1)) if pairs > 1 else base
        return frequencies(base, pairs, arithmetic), {"scaling": ("none", "ntk")}, 1.0
    changed = yarn(w, base, factor, length) if kind == "yarn" else llama3(w, factor, length)
    if kind in ("yarn", "llama3") and np.mean(changed != w) < 0.2:
        return w, {"scaling": "none", "base": base}, 1.0  # the slowest pair turns too fast for it
    if kind == "yarn":
        magnitude = 1.0 + 0.1 * np.log(factor)
        return yarn(w, base, factor, length), facts | {"factor": factor, "original_len": length}, magnitude
    if kind == "llama3":
        scaled_by = {"factor": factor, "original_len": length}
        return llama3(w, factor, length), facts | scaled_by, 1.0
    if kind == "longrope":
        factors = np.round(1 + float(r.uniform(5, 60)) * (np.arange(pairs) / max(1, pairs - 1)) ** 2, 3)
        magnitude = float(np.sqrt(1 + np.log(factor) / np.log(length)))
        return (w / factors).astype(w.dtype), {"scaling": "longrope"}, magnitude
    return w, facts, 1.0


LAYOUTS = {
    "interleaved": lambda c, s: _alternate(c, s),
    "cos-sin": lambda c, s: np.concatenate([c, s], 1),
    "sin-cos": lambda c, s: np.concatenate([s, c], 1),
    "half": lambda c, s: (np.concatenate([c, c], 1), np.concatenate([s, s], 1)),
    "adjacent": lambda c, s: (np.repeat(c, 2, 1), np.repeat(s, 2, 1)),
    "split": lambda c, s: (c, s),
}


def rotary(r: Random) -> Question:
    dim, rows, base = int(r.choice(WIDTHS)), int(r.integers(32, 900)), float(r.choice(BASES))
    arithmetic, dtype = _arithmetic(r), _dtype(r)
    w, facts, magnitude = scaled(r, base, dim // 2, arithmetic)
    p, start, stride = _line(r, rows)
    if facts.get("scaling") != "none":
        p, start, stride = p - start, 0, 1
        p = np.arange(rows)
    a = angles(p, w)
    layout = str(r.choice(list(LAYOUTS)))
    made = LAYOUTS[layout](magnitude * np.cos(a), magnitude * np.sin(a))
    facts |= {"start": start, "stride": stride}
    told = f"rope {layout} dim {dim} rows {rows} {facts} {dtype} {arithmetic}"
    sinusoidal = ("sinusoidal",) if layout in ("cos-sin", "sin-cos") and facts["scaling"] != "linear" else ()
    if layout in ("half", "adjacent", "split"):
        cos, sin = (stored(part, dtype) for part in made)
        first = bool(r.integers(2))
        return Question(
            "rotary",
            cos if first else sin,
            ("rope",),
            facts | {"layout": layout},
            "x.cos" if first else "x.sin",
            {"x.cos": cos, "x.sin": sin},
            told,
        )
    if not sinusoidal:
        facts["layout"] = layout
    return Question("rotary", stored(made, dtype), ("rope", *sinusoidal), facts, told=told)


def lone(r: Random) -> Question:
    """Cosines or sines alone, and no word of which."""
    dim, rows, base = int(r.choice([16, 32, 64, 128])), int(r.integers(64, 900)), float(r.choice(BASES))
    dtype = str(r.choice(["float32", "float32", "float64", "float16", "bfloat16"]))
    a = angles(np.arange(rows), frequencies(base, dim // 2, _arithmetic(r)))
    part, layout = str(r.choice(["cos", "sin"])), str(r.choice(["half", "adjacent", "split"]))
    made = LAYOUTS[layout](np.cos(a), np.sin(a))[part == "sin"]
    facts = {"base": base, "part": part, "layout": layout, "start": 0, "scaling": "none"}
    return Question("lone", stored(made, dtype), ("rope",), facts, told=f"{facts} {made.shape} {dtype}")


def meta(r: Random) -> Question:
    dim, rows, base = int(r.choice([32, 64, 128])), int(r.integers(32, 500)), float(r.choice(BASES))
    a = angles(np.arange(rows), frequencies(base, dim // 2, _arithmetic(r)))
    made = np.cos(a) + 1j * np.sin(a)
    how = int(r.integers(3))
    array: Array = made.astype(np.complex64)
    if how == 1:
        array = np.stack([made.real, made.imag], -1).astype(np.float32)
    if how == 2:  # TensorRT-LLM: pairs of cosine and sine of all positions, one after the other
        array = np.stack([made.real, made.imag], -1).astype(np.float32).reshape(1, -1)
    facts = {"base": base, "start": 0, "scaling": "none", "dim": dim}
    return Question(
        "meta",
        array,
        ("rope",),
        facts,
        told=f"{('complex', 'view as real', 'flat')[how]} {array.shape} {facts}",
    )


def padded(r: Random) -> Question:
    """Pairs that never turn behind those that do: cosine 1, sine 0."""
    _dim, rows = 64, int(r.integers(64, 300))
    live, base = int(r.choice([8, 16, 24])), float(r.choice([10000.0, 500000.0]))
    w = np.concatenate([base ** (-np.arange(live) / live), np.zeros(32 - live)])
    a = angles(np.arange(rows), w)
    made = stored(np.concatenate([np.cos(a), np.sin(a)], 1), "float32")
    return Question(
        "padded", made, ("rope",), {"base": base, "start": 0}, told=f"{live} of 32 pairs turn, base {base}"
    )


def transposed(r: Random) -> Question:
    question = sinusoid(r) if r.integers(2) else rotary(r)
    while question.companions or len(question.array) == question.array.shape[1]:
        question = sinusoid(r) if r.integers(2) else rotary(r)
    question.array = np.ascontiguousarray(question.array.T)
    question.kind = "transposed"
    question.facts["transposed"] = True
    return question


def broken(r: Random) -> Question:
    """Positions that do not simply count up."""
    dim, base = int(r.choice([16, 32, 64, 128])), float(r.choice([10000.0, 500000.0]))
    rule = str(r.choice(["bfloat16", "float16", "int8", "restart", "clamp", "int16"]))
    rows = {"float16": 2600, "int16": 33000}.get(rule, int(r.integers(300, 700)))
    p = np.arange(rows)
    if rule == "bfloat16":
        p = p.astype(ml_dtypes.bfloat16).astype(np.int64)
    elif rule == "float16":
        p = p.astype(np.float16).astype(np.int64)
    elif rule in ("int8", "int16"):
        p = p.astype(rule).astype(np.int64)
    elif rule == "clamp":
        p = np.minimum(p, int(r.integers(50, rows - 20)))
    else:
        cuts = np.sort(r.choice(np.arange(30, rows - 5), int(r.integers(1, 5)), replace=False))
        p = np.concatenate([np.arange(n) for n in np.diff([0, *cuts, rows])])
    if rule == "int16":
        dim = 16
    a = angles(p, frequencies(base, dim // 2, _arithmetic(r)))
    shape = str(r.choice(["cos-sin", "interleaved"]))
    array = stored(LAYOUTS[shape](np.cos(a), np.sin(a)), "float32")
    return Question(
        "broken",
        array,
        ("rope", "sinusoidal"),
        {"base": base, "rule": rule},
        told=f"{rule} {array.shape} {base} {shape}",
    )


# -- grids --------------------------------------------------------------------------------------------------------


def grid(r: Random) -> Question:
    height, width, dim = int(r.integers(4, 20)), int(r.integers(4, 20)), int(r.choice([32, 64, 128]))
    y, x = (axis.ravel() for axis in np.mgrid[:height, :width])
    half = dim // 2
    w = frequencies(10000.0, half // 2, _arithmetic(r))
    style = str(r.choice(["mae", "canonical", "timm", "tatp22"]))
    ay, ax = angles(y, w), angles(x, w)
    parts = {
        "mae": [np.sin(ax), np.cos(ax), np.sin(ay), np.cos(ay)],
        "canonical": [np.sin(ay), np.cos(ay), np.sin(ax), np.cos(ax)],
        "timm": [np.sin(ay), np.sin(ax), np.cos(ay), np.cos(ax)],
        "tatp22": [_alternate(np.sin(ay), np.cos(ay)), _alternate(np.sin(ax), np.cos(ax))],
    }[style]
    array = stored(np.concatenate(parts, 1), _dtype(r))
    facts = {
        "grid": f"{height}x{width}",
        "base": 10000.0,
        "style": {"canonical": ("canonical", "moco")}.get(style, style),
    }
    return Question("grid", array, ("sinusoidal",), facts, told=f"{style} {facts} {array.dtype}")


# -- vectors ------------------------------------------------------------------------------------------------------


def vector(r: Random) -> Question:
    pairs, base = int(r.choice([16, 32, 48, 64])), float(r.choice(BASES))
    w, facts, _ = scaled(r, base, pairs, _arithmetic(r))
    if facts["scaling"] == "longrope":
        return Question(
            "vector", w.astype(np.float32), ("rope",), facts, "rotary_emb.inv_freq", told="longrope inv_freq"
        )
    return Question("vector", w.astype(np.float32), ("rope",), facts, told=f"inv_freq {pairs} {facts}")


def divisors(r: Random) -> Question:
    pairs, base, factor = int(r.choice([32, 64])), 500000.0, float(r.choice([8.0, 32.0]))
    w = frequencies(base, pairs, "float64")
    made = (w / llama3(w, factor, 8192.0)).astype(np.float32)
    name = str(r.choice(["rope_freqs.weight", "freq_factors", "x"]))
    return Question(
        "divisors", made, ("rope",), {"layout": "ggml-factors", "scaling": "llama3", "factor": factor}, name
    )


def slopes(r: Random) -> Question:
    heads = int(r.choice([4, 8, 12, 16, 20, 32]))
    closest = 2 ** int(np.floor(np.log2(heads)))
    first = 2.0 ** (-8 * np.arange(1, closest + 1) / closest)
    rest = 2.0 ** (-4 * np.arange(1, 2 * (heads - closest) + 1, 2) / closest)
    m = np.concatenate([first, rest])
    how = int(r.integers(3))
    if how == 0:
        return Question("slopes", m.astype(np.float32), ("alibi",), {"heads": heads})
    n = int(r.integers(16, 100))
    if how == 1:
        i = np.arange(n)
        return Question(
            "slopes",
            (-m[:, None, None] * np.abs(i[:, None] - i)).astype(np.float32),
            ("alibi",),
            {"heads": heads},
        )
    return Question("slopes", (m[:, None] * np.arange(n)).astype(np.float32), ("alibi",), {"heads": heads})


# -- integers -----------------------------------------------------------------------------------------------------


def t5(r: Random) -> Question:
    n, buckets, far = int(r.integers(40, 200)), int(r.choice([32, 64])), int(r.choice([128, 256]))
    d = np.arange(n)[None] - np.arange(n)[:, None]
    both = bool(r.integers(2))
    half = buckets // 2 if both else buckets
    away = np.abs(d) if both else np.maximum(-d, 0)
    exact = half // 2
    with np.errstate(divide="ignore"):
        late = exact + np.floor(np.log(away / exact) / np.log(far / exact) * (half - exact) + 1e-9)
    made = np.where(away < exact, away, np.minimum(late, half - 1)) + (half * (d > 0) if both else 0)
    facts = {"num_buckets": buckets, "bidirectional": both}
    if n > far:
        facts["max_distance"] = far
    return Question("t5", made.astype(np.int32), ("t5",), facts, told=f"{facts} n {n} far {far}")


def shaw(r: Random) -> Question:
    n, far = int(r.integers(20, 100)), int(r.integers(4, 16))
    d = np.arange(n)[None] - np.arange(n)[:, None]
    return Question("shaw", (np.clip(d, -far, far) + far).astype(np.int64), ("shaw",), {"max_distance": far})


def swin(r: Random) -> Question:
    h, w = int(r.integers(2, 9)), int(r.integers(2, 9))
    y, x = (axis.ravel() for axis in np.mgrid[:h, :w])
    made = (y[:, None] - y + h - 1) * (2 * w - 1) + (x[:, None] - x + w - 1)
    return Question("swin", made, ("swin",), {"window": f"{h}x{w}"})


# -- none of all these --------------------------------------------------------------------------------------------


def nothing(r: Random) -> Question:
    n, d = int(r.integers(24, 400)), int(r.choice([8, 16, 32, 64, 128]))
    i, j = np.arange(n)[:, None], np.arange(d)[None]
    t = i / n
    choices: dict[str, Callable[[], Array]] = {
        "normal": lambda: r.standard_normal((n, d)),
        "uniform": lambda: r.uniform(-1, 1, (n, d)),
        "dct": lambda: np.cos(np.pi * (i + 0.5) * j / n),
        "random phases": lambda: np.cos(i * 10000.0 ** (-(j // 2) / (d // 2)) + r.uniform(0, 6, d)),
        "phases by pair": lambda: _with_phases(r, n, d // 2, False),
        "phases by pair, halves": lambda: _with_phases(r, n, d // 2, True),
        "random frequencies": lambda: np.cos(i * r.uniform(0, 3, d)),
        "chirp": lambda: np.concatenate(
            [np.cos(i**2 * 0.001 * 2.0 ** -j[:, : d // 2]), np.sin(i**2 * 0.001 * 2.0 ** -j[:, : d // 2])], 1
        ),
        "ramp": lambda: t * (j + 1.0),
        "one-hot": lambda: np.eye(max(n, d))[:n, :d],
        "binary": lambda: ((i >> (j % 10)) & 1).astype(float),
        "polynomials": lambda: np.polynomial.chebyshev.chebvander(np.linspace(-1, 1, n), d - 1),
        "walk": lambda: np.cumsum(r.standard_normal((n, d)), 0) * 0.1,
        "smooth": lambda: np.sin(2 * np.pi * (t + r.uniform(0, 1, d)) * r.integers(1, 4, d)),
        "circle noise": lambda: _on_circles(r, n, d // 2),
        "ones": lambda: np.ones((n, d)),
        "orthogonal": lambda: np.linalg.qr(r.standard_normal((max(n, d), d)))[0][:n],
        "exponentials": lambda: np.exp(-i * 10000.0 ** (-j / d)),
        "squares of sines": lambda: np.sin(i * 10000.0 ** (-j / d)) ** 2,
        "triangle": lambda: 2 / np.pi * np.arcsin(np.sin(i * 10000.0 ** (-j / d))),
        "gaussian features": lambda: _features(r, n, d // 2),
        "bessel-like": lambda: np.cos(i * 10000.0 ** (-j / d)) / np.sqrt(1 + i),
        "noisy sinusoid": lambda: _noisy(r, n, d // 2),
        "hadamard-like": lambda: np.where((np.bitwise_count(i & j) & 1) == 1, -1.0, 1.0),
    }
    what = str(r.choice(list(choices)))
    array = choices[what]().astype(str(r.choice(["float32", "float64"])))
    return Question("nothing", array, (), told=f"{what} {array.shape}")


def _with_phases(r: Random, n: int, m: int, halves: bool) -> Array:
    a = np.arange(n)[:, None] * 10000.0 ** (-np.arange(m) / m) + r.uniform(0, 2 * np.pi, m)
    return np.concatenate([np.cos(a), np.sin(a)], 1) if halves else _alternate(np.cos(a), np.sin(a))


def _on_circles(r: Random, n: int, m: int) -> Array:
    a = r.uniform(0, 2 * np.pi, (n, m))
    return np.concatenate([np.cos(a), np.sin(a)], 1)


def _features(r: Random, n: int, m: int) -> Array:
    a = np.outer(np.arange(n) / n, r.standard_normal(m) * 10 * 2 * np.pi)
    return np.concatenate([np.cos(a), np.sin(a)], 1)


def _noisy(r: Random, n: int, m: int) -> Array:
    a = np.arange(n)[:, None] * 10000.0 ** (-np.arange(m) / m)
    return np.concatenate([np.sin(a), np.cos(a)], 1) + 0.01 * r.standard_normal((n, 2 * m))


def changed(r: Random) -> Question:
    """A table with one entry, one row or one column changed: no formula gives it, but it is clear what it was."""
    question = sinusoid(r)
    question.array = question.array.copy()
    n, d = question.array.shape
    how = int(r.integers(3))
    if how == 0:
        question.array[int(r.integers(1, n)), int(r.integers(d))] += 0.5
    elif how == 1:
        question.array[int(r.integers(2, n))] = 0.3 * r.standard_normal(d)
    else:
        question.array[:, int(r.integers(d))] *= -0.7
    question.encodings = ()
    question.kind = "changed"
    question.told += f" with one {('entry', 'row', 'column')[how]} changed"
    return question


def no_vector(r: Random) -> Question:
    n = int(r.integers(8, 70))
    choices: dict[str, Callable[[], Array]] = {
        "random": lambda: r.uniform(0, 1, n),
        "sorted": lambda: np.sort(r.uniform(0, 1, n))[::-1],
        "linear": lambda: np.linspace(1, 0.01, n),
        "harmonic": lambda: 1 / np.arange(1, n + 1),
        "norm weights": lambda: 1 + 0.1 * r.standard_normal(n),
        "biases": lambda: 0.01 * r.standard_normal(n),
        "squares": lambda: np.arange(1, n + 1) ** -2.0,
        "schedule": lambda: 0.5 + 0.5 * np.cos(np.linspace(0, np.pi, n)),
    }
    what = str(r.choice(list(choices)))
    return Question("no vector", choices[what]().astype(np.float32), (), told=f"{what} {n}")


def no_integers(r: Random) -> Question:
    n = int(r.integers(10, 60))
    i = np.arange(n)
    choices: dict[str, Callable[[], Array]] = {
        "random": lambda: r.integers(0, 30, (n, n)),
        "products": lambda: i[:, None] * i,
        "distance with a hole": lambda: np.where(np.abs(i[:, None] - i) == 7, 3, np.abs(i[:, None] - i)),
        "buckets, another rule": lambda: np.floor(np.sqrt(np.abs(i[:, None] - i))).astype(int),
        "clipped otherwise": lambda: (
            np.where(i[None] - i[:, None] > 5, 11, np.clip(i[None] - i[:, None], -5, 5) + 5) % 12
            + (i[None] - i[:, None] == 2)
        ),
        "ids": lambda: r.permutation(n),
        "logarithms": lambda: np.floor(np.log2(1 + np.abs(i[:, None] - i))).astype(int),
    }
    what = str(r.choice(list(choices)))
    return Question("no integers", choices[what](), (), told=f"{what} {n}")


MAKERS: tuple[tuple[Callable[[Random], Question], int], ...] = (
    (sinusoid, 14),
    (fairseq, 2),
    (amplified, 4),
    (behind_rows, 4),
    (rotary, 26),
    (lone, 8),
    (meta, 4),
    (padded, 2),
    (transposed, 6),
    (broken, 8),
    (grid, 6),
    (vector, 7),
    (divisors, 2),
    (slopes, 3),
    (t5, 3),
    (shaw, 2),
    (swin, 2),
    (nothing, 26),
    (changed, 6),
    (no_vector, 5),
    (no_integers, 4),
)


def questions(seed: int, count: int) -> list[Question]:
    """`count` tables of all kinds, by their shares."""
    r = np.random.default_rng(seed)
    shares = np.array([share for _, share in MAKERS], float)
    return [MAKERS[k][0](r) for k in r.choice(len(MAKERS), count, p=shares / shares.sum())]
