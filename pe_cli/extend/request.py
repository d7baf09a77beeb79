"""What to do where the user did not say: defaults by kind of table, presets by name, and what evidence favours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from pe_cli.errors import PeError, no_such, parameter
from pe_cli.extend.resample import ANCHORS, METHODS, Anchor, Options, method_named
from pe_cli.position_names import Kind

OutlierPolicy: TypeAlias = Literal["keep", "ignore"]
REGENERATE = "regenerate"
SPECIAL_ROWS = ("prefix_rows", "suffix_rows", "offset")
# The last words where a configuration and a table do not fit each other, for a folder as for a file beside it.
WITHOUT_IT = f"or give the file of weights alone with {parameter('config')} none"
RESAMPLING = ("method", "preset", "anchor", "antialias", "keep", "alpha", "seed")


@dataclass(frozen=True)
class Recipe:
    """Settings of an original implementation, where they come from, and its method for each kind of table it resizes."""

    source: str
    methods: Mapping[Kind, str]
    anchor: Anchor = "half"
    antialias: bool = False
    keep: int = 20
    scale_offset: float = 0.0


PRESETS = {
    "timm": Recipe(
        "timm resample_abs_pos_embed and resize_rel_pos_bias_table, open_clip",
        {"grid": "cubic", "bias": "cubic", "window": "linear-knots"},
        antialias=True,
    ),
    "torch": Recipe(
        "torch F.interpolate as in transformers, MAE, DeiT, DINO, open_clip's text, ViTDet",
        {"grid": "cubic", "window": "cubic", "sequence": "linear", "relative": "linear"},
    ),
    "dinov2": Recipe("DINO and DINOv2 (scale of new size + 0.1)", {"grid": "cubic"}, scale_offset=0.1),
    "jax": Recipe("ViT-JAX and big_vision (scipy zoom, order 1)", {"grid": "linear"}, anchor="ends"),
    "torchvision": Recipe("torchvision interpolate_embeddings", {"grid": "cubic"}, anchor="ends"),
    "swin": Recipe("Swin's bias and position tables", {"window": "cubic", "grid": "cubic"}),
    "beit": Recipe("BEiT's geometric knots", {"window": "knots", "grid": "cubic"}),
    "long-clip": Recipe("Long-CLIP (77 -> 248: 20 rows kept)", {"sequence": "stretch"}, anchor="left"),
    "longformer": Recipe("Longformer's copies", {"sequence": "tile"}),
}
DEFAULTS: dict[Kind, Recipe] = {
    "sequence": Recipe("", {"sequence": "linear"}, anchor="ends"),
    "grid": Recipe("", {"grid": "cubic"}, antialias=True),
    "window": Recipe("", {"window": "cubic"}),
    "bias": Recipe("", {"bias": "cubic"}, antialias=True),
    "relative": Recipe("", {"relative": "linear"}),
    "axial": Recipe("", {"axial": "linear"}, anchor="ends"),
}
SIZES: dict[Kind, str] = {
    "sequence": parameter("length"),
    "grid": parameter("grid"),
    "window": parameter("window"),
    "bias": parameter("grid"),
    "relative": parameter("length"),
    "axial": parameter("grid"),
}
# Method names of the command line that are not in `resample`.
NAMES = (*METHODS, "bilinear", "bicubic", REGENERATE)


@dataclass(frozen=True)
class ResizeRequest:
    """What the user asked for; None where nothing was said. Sizes: one of `length`, `grid`, `window`."""

    length: int | None = None
    grid: tuple[int, ...] | None = None
    from_grid: tuple[int, ...] | None = None
    window: tuple[int, ...] | None = None
    from_window: tuple[int, ...] | None = None
    method: str | None = None
    anchor: str | None = None
    antialias: bool | None = None
    keep: int | None = None
    alpha: float | None = None
    prefix_rows: int | None = None
    suffix_rows: int | None = None
    offset: int | None = None
    outliers: str | None = None
    seed: int | None = None
    preset: str | None = None
    tensor: tuple[str, ...] = ()

    @classmethod
    def of(cls, *, tensor: str | Sequence[str] | None = None, **given: Any) -> ResizeRequest:
        """The request in the words of `pe_cli.extend` and of the command line: grids as `24x32`, 24 or (24, 32)."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise no_such("option of extend", name, known)
        names = (tensor,) if isinstance(tensor, str) else tuple(tensor or ())
        given |= {name: _sides(name, given.get(name)) for name in _SIDES}
        return cls(**given, tensor=names)

    def __post_init__(self) -> None:
        sizes = {"length": self.length, "grid": self.grid, "window": self.window}
        given = [parameter(name) for name, value in sizes.items() if value is not None]
        if len(given) != 1:
            said = f"{' and '.join(given)} are given" if given else "nothing says how long"
            raise PeError(f"{said}; give one of {', '.join(map(parameter, sizes))}")
        with_size = (
            ("from_grid", ("grid",)),
            ("from_window", ("window",)),
            ("outliers", ("length",)),  # only tables of tokens are searched for outlier rows
            *((name, ("length", "grid")) for name in SPECIAL_ROWS),
        )
        for name, owners in with_size:
            if getattr(self, name) not in (None, ()) and all(sizes[owner] is None for owner in owners):
                raise PeError(f"{parameter(name)} goes with {' and '.join(map(parameter, owners))}")
        for name, value in sizes.items():
            for size in value if isinstance(value, tuple) else (value,):
                if size is not None and size < 1:
                    raise PeError(f"{parameter(name)} {size}: at least 1 is needed")
        for name in ("keep", "prefix_rows", "suffix_rows", "offset", "seed"):
            count = getattr(self, name)
            if count is not None and count < 0:
                raise PeError(f"{parameter(name)} {count} is negative")
        if self.method is not None and self.method != REGENERATE:
            method_named(self.method)
        for name, kind, known in (
            ("anchor", "anchor", ANCHORS),
            ("preset", "preset", tuple(PRESETS)),
            ("outliers", "way with outliers", ("keep", "ignore")),
        ):
            if getattr(self, name) not in (None, *known):
                raise no_such(kind, str(getattr(self, name)), known)

    def refuse(self, names: Sequence[str], what: str) -> None:
        """Raise where one of these parameters was given: `what` would not read it."""
        given = [parameter(name) for name in names if getattr(self, name) not in (None, False)]
        if given:
            raise PeError(f"{', '.join(given)}: not for {what}")

    def said(self) -> dict[str, Any]:
        """What was said, by name."""
        return {name: value for name, value in vars(self).items() if value not in (None, ())}

    @property
    def front(self) -> int | None:
        """Rows before the first position, whatever they are; None where nothing was said."""
        return (
            None
            if self.prefix_rows is None and self.offset is None
            else (self.prefix_rows or 0) + (self.offset or 0)
        )

    @property
    def kind(self) -> Kind:
        """The kind of table that the size asked for belongs to."""
        return "sequence" if self.length is not None else "grid" if self.grid is not None else "window"


_SIDES = ("grid", "from_grid", "window", "from_window")


def _sides(name: str, given: str | int | Sequence[int] | None) -> tuple[int, ...] | None:
    """Sides of a grid; one number is both."""
    if given is None:
        return None
    if isinstance(given, str):
        from pe_cli.positions import parse_grid

        sides = parse_grid(given, name)
    else:
        sides = (given,) if isinstance(given, int) else tuple(int(side) for side in given)
    return sides * 2 if len(sides) == 1 else sides


@dataclass(frozen=True)
class Way:
    """How one table is changed: settled from request, preset and defaults."""

    method: str
    options: Options
    outliers: OutlierPolicy
    chosen: bool  # whether the user chose the method

    @property
    def words(self) -> str:
        """`linear (ends)`, `cubic (half, antialias)`: the convention, without which a report cannot be repeated."""
        method = METHODS.get(self.method)
        if method is None or method.in_place:
            alpha = f" (alpha {self.options.alpha:g})" if self.method == "hierarchical" else ""
            return self.method + alpha
        if self.method in ("crop", "knots", "linear-knots"):
            return self.method
        details: list[str] = [self.options.anchor]
        if self.method == "stretch":
            details.append(f"keep {self.options.keep}")
        if self.options.antialias:
            details.append("antialias, a = -0.5" if self.method == "cubic" else "antialias")
        elif self.method == "cubic":
            details.append("a = -0.75")
        if self.options.scale_offset:
            details.append(f"scale offset {self.options.scale_offset:g}")
        return f"{self.method} ({', '.join(details)})"


def settle(request: ResizeRequest, kind: Kind, axes: int, *, known: bool) -> Way:
    """The way for a table of `kind` with `axes` axes; `known` is whether its name says what it is."""
    base = PRESETS[request.preset] if request.preset else DEFAULTS[kind]
    told = (request.method, request.preset, request.anchor, request.antialias)
    chosen = any(value is not None for value in told)
    along = kind in ("relative", "window") and request.kind == "grid"
    if along and (
        kind == "relative" or kind not in base.methods
    ):  # in the way of ViTDet, or in that of its kind
        base, request = DEFAULTS[kind], ResizeRequest(grid=request.grid, window=request.window)
    if kind not in base.methods:
        raise _not_for(str(request.preset), kind)
    name = request.method or base.methods[kind]
    name = {"bilinear": "linear", "bicubic": "cubic"}.get(name, name)
    rule = METHODS.get(name)
    anchor = base.anchor
    if rule is not None and rule.anchor is not None and not request.preset:
        anchor = rule.anchor
    if rule is not None and rule.one_axis and axes > 1:
        raise PeError(
            f"{name} works along one axis, and this table has {axes}; use bicubic, bilinear or nearest"
        )
    antialias = base.antialias if request.antialias is None else request.antialias
    _refuse_what_is_not_read(request, name, () if rule is None else rule.reads)
    scale_offset = base.scale_offset if name == "cubic" else 0.0
    if scale_offset and request.anchor not in (None, base.anchor):
        raise PeError(
            f"{parameter('preset')} {request.preset} fixes its own coordinates (new size + {scale_offset:g}); leave out {parameter('anchor')}"
        )
    options = Options(
        anchor=ANCHORS[ANCHORS.index(request.anchor)] if request.anchor in ANCHORS else anchor,
        antialias=antialias and rule is not None and "antialias" in rule.reads,
        keep=base.keep if request.keep is None else request.keep,
        alpha=0.4 if request.alpha is None else request.alpha,
        scale_offset=scale_offset,
    )
    if request.outliers == "keep" and (rule is None or not rule.grows):
        raise PeError(
            f"{parameter('outliers')} keep belongs to methods that mix or repeat rows, not to {name}"
        )
    policy: OutlierPolicy = "keep" if known and not request.preset else "ignore"
    if request.outliers in ("keep", "ignore"):
        policy = "keep" if request.outliers == "keep" else "ignore"
    return Way(name, options, policy, chosen)


def _not_for(preset: str, kind: Kind) -> PeError:
    resized = " and ".join(dict.fromkeys(SIZES[own] for own in PRESETS[preset].methods))
    others = [name for name, other in PRESETS.items() if kind in other.methods]
    there = f"there are {', '.join(others)}" if others else f"of this kind ({kind}) there is none"
    return PeError(f"{parameter('preset')} {preset} is for {resized}; for {SIZES[kind]} {there}")


def _refuse_what_is_not_read(request: ResizeRequest, name: str, reads: Sequence[str]) -> None:
    """An option that method `name` does not read would be accepted and ignored."""
    for option in ("anchor", "antialias", "keep", "alpha", "seed"):
        value = getattr(request, option)
        if value is not None and value is not False and option not in reads:
            owners = [method for method, rule in METHODS.items() if option in rule.reads]
            listed = " and ".join(filter(None, (", ".join(owners[:-1]), owners[-1])))
            raise PeError(f"{parameter(option)} belongs to {listed}, not to {name}")


def advice(kind: Kind, method: str, old: int, new: int) -> str | None:
    """What published and measured evidence favours, where it is not what was used."""
    if kind == "sequence" and new < old and method not in ("truncate", REGENERATE):
        return f"for a shorter table evidence favours {parameter('method')} truncate: kept positions keep their rows"
    if kind == "sequence" and new > old and method not in ("tile", "stretch", REGENERATE):
        return (
            f"for use without fine-tuning evidence favours {parameter('method')} tile (Longformer, table 5); before fine-tuning, "
            f"{parameter('method')} stretch {parameter('keep')} 20 (Long-CLIP) or linear (LongEmbed). For causal models no figures are known"
        )
    if kind == "grid" and method not in ("cubic", REGENERATE):
        return f"for image grids evidence favours {parameter('method')} bicubic, which roughly keeps the norm of rows (DeiT)"
    if kind == "window" and new > old:
        return "resized window tables lose accuracy without fine-tuning (Swin v2, table 1: 81.7 to 79.4 for 8 to 12)"
    return None


CLIP_ROWS, WHISPER_ROWS = 77, 1500


def known_limits(name: str, rows: int, request: ResizeRequest) -> Iterator[str]:
    """What code around a model is known to take for granted about its length."""
    if rows == CLIP_ROWS and ("text" in name or name == "positional_embedding"):
        yield "many programs fix CLIP's text at 77 tokens in their own code: check the one that loads this"
    if rows == WHISPER_ROWS and "encoder" in name and (request.length or rows) < rows:
        yield (
            "a shorter Whisper encoder needs fine-tuning: without it the word errors of tiny.en rose from 4.7 to "
            "226 % (whisper-acft)"
        )
