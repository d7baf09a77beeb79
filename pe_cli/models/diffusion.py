"""The transformers of diffusers: their `config.json` names a class, and the class fixes the form of its rotation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration
from pe_cli.models.resolved import KeyLedger, Resolved, RowOrder, Setting

CLASS_KEY = "_class_name"
SOURCE = "diffusers 0.42"


@dataclass(frozen=True)
class Denoiser:
    """One class that rotates: where its axes, width and base are, with the class's defaults.

    axes : key of the widths of its axes, side by side; None where `style` divides the width
    style : the published form (`--axis-style`), where it is more than axes side by side
    width : keys whose product is the rotary width, where there are no axes to add up
    rotates : key that must be true
    layout_by : key whose values name the layout, with the class's default
    stretched : key of the sides of the table whose rows the cells of any grid read
    note : what else to know
    """

    layout: str
    axes: tuple[str, tuple[int, ...]] | None = None
    theta: tuple[str, float] = ("", 10000.0)
    style: str | None = None
    width: tuple[tuple[str, int], ...] = ()
    rotates: str | None = None
    count: int = 3
    layout_by: tuple[str, str, dict[str, str]] | None = None
    stretched: tuple[str, tuple[int, ...]] | None = None
    note: str = ""


@dataclass(frozen=True)
class SinCos:
    """One class that adds the sines and cosines of `PatchEmbed`: its defaults of heads, head width, sample and patch.

    whole : key of the sides of the table of which the middle is cut out for an image, with the class's default
    scaled : whether `interpolation_scale` is, where the file has none, the sample side over 64
    """

    heads: int
    head: int
    sample: int
    whole: tuple[str, int] | None = None
    scaled: bool = False


def _axes(
    key: str = "axes_dims_rope", widths: tuple[int, ...] = (16, 56, 56), theta: Any = ("", 10000.0)
) -> Denoiser:
    return Denoiser("adjacent", (key, widths), theta)


_HEAD = (("attention_head_dim", 128),)
_WAN = Denoiser("adjacent", style="wan", width=_HEAD)
_HUNYUAN = _axes("rope_axes_dim", theta=("rope_theta", 256.0))
_FRACTIONS = "its coordinates are the middles of the patches as fractions of the longest video: give them by --positions @FILE"

DENOISERS = {
    "FluxTransformer2DModel": _axes(),
    "Flux2Transformer2DModel": _axes(widths=(32, 32, 32, 32), theta=("rope_theta", 2000.0)),
    "Flux3Transformer2DModel": _axes(widths=(32, 32, 32, 32), theta=("rope_theta", 10000.0)),
    "ChromaTransformer2DModel": _axes(),
    "OvisImageTransformer2DModel": _axes(),
    "LongCatImageTransformer2DModel": _axes(),
    "BriaTransformer2DModel": _axes(theta=("rope_theta", 10000.0)),
    "BriaFiboTransformer2DModel": _axes(theta=("rope_theta", 10000.0)),
    "Lumina2Transformer2DModel": Denoiser("complex", ("axes_dim_rope", (32, 32, 32))),
    "ZImageTransformer2DModel": Denoiser("complex", ("axes_dims", (32, 48, 48)), ("rope_theta", 256.0)),
    "HunyuanVideoTransformer3DModel": _HUNYUAN,
    "HunyuanVideo15Transformer3DModel": _HUNYUAN,
    "HunyuanVideoFramepackTransformer3DModel": _HUNYUAN,
    "HunyuanVideoTransformer3DModelPacked": _HUNYUAN,
    "QwenImageTransformer2DModel": Denoiser(
        "complex",
        ("axes_dims_rope", (16, 56, 56)),
        style="qwen-image",
        note="the rows of text are plain positions behind the image, from max(rows, columns) / 2 on: --positions A:B",
    ),
    "WanTransformer3DModel": _WAN,
    "WanVACETransformer3DModel": _WAN,
    "WanAnimateTransformer3DModel": _WAN,
    "SkyReelsV2Transformer3DModel": _WAN,
    "CogVideoXTransformer3DModel": Denoiser(
        "adjacent",
        style="cogvideox",
        width=(("attention_head_dim", 64),),
        rotates="use_rotary_positional_embeddings",
    ),
    "CogView4Transformer2DModel": Denoiser(
        "half",
        style="qwen-vision",
        width=(("attention_head_dim", 40),),
        count=2,
        stretched=("rope_axes_dim", (256, 256)),
    ),
    "LTXVideoTransformer3DModel": Denoiser(
        "adjacent", style="ltx", width=(("num_attention_heads", 32), ("attention_head_dim", 64))
    ),
    "LTX2VideoTransformer3DModel": Denoiser(
        "adjacent",
        style="ltx",
        theta=("rope_theta", 10000.0),
        width=(("num_attention_heads", 32), ("attention_head_dim", 128)),
        layout_by=("rope_type", "interleaved", {"interleaved": "adjacent", "split": "split"}),
        note=_FRACTIONS,
    ),
}
SINCOS = {
    "DiTTransformer2DModel": SinCos(16, 72, 32),
    "PixArtTransformer2DModel": SinCos(16, 72, 128, scaled=True),
    "SD3Transformer2DModel": SinCos(18, 64, 128, whole=("pos_embed_max_size", 96)),
}
# Classes whose tables pe has no form for, and what they do.
OTHERS = {
    "CosmosTransformer3DModel": "rotates frames, rows and columns by bases of their own, 10000 s^(d / (d - 2)) with s of rope_scale "
    "and d the width of the axis (a third of the head each, rounded to pairs, the rest for frames), and times by 24 / fps: "
    "make each axis with `pe gen rope --base`, and put the three side by side, twice",
    "SanaTransformer2DModel": "has no encoding of positions unless its file has interpolation_scale",
    "MochiTransformer3DModel": "turns by learned frequencies for each head, the tensor pos_frequencies in the checkpoint",
    "AuraFlowTransformer2DModel": "adds a learned table, the tensor that ends in pos_embed.pos_embed in the checkpoint",
}


def resolve_denoiser(config: Configuration) -> Resolved:
    """The rotary encoding of a diffusion transformer. Its rows are cells of a grid, or places of an array."""
    name = str(config.values.get(CLASS_KEY))
    if name in SINCOS:
        return _sincos(KeyLedger(config), name, SINCOS[name])
    if name in OTHERS:
        raise PeError(f"{config.file}: {name} {OTHERS[name]}")
    if name not in DENOISERS:
        raise PeError(
            f"{config.file}: {CLASS_KEY} {name!r} is not among the diffusion transformers known here: "
            f"{', '.join([*DENOISERS, *SINCOS])}"
        )
    form, ledger = DENOISERS[name], KeyLedger(config)
    source = f"{name}, {SOURCE}"
    if form.rotates and not config.values.get(form.rotates):
        raise PeError(
            f"{config.file}: {form.rotates} is not true: this model adds a table instead, `pe gen sinusoidal --style cogvideox`"
        )
    parameters: dict[str, Any] = {"dim": 0, "base": _base(ledger, form, source)}
    if form.style is not None:
        parameters["axis_style"] = form.style
        ledger.origins["axis_style"] = source
    count = form.count
    if form.axes is not None:
        found = _found(ledger, *form.axes, source)
        axes = tuple(
            int(size) for size in ledger.numbers(Setting(list(found.value), found.origin, found.assumed))
        )
        parameters |= {
            "axes": ledger.record("axes", Setting(axes, found.origin, found.assumed), form.axes[0])
        }
        parameters["dim"], count = sum(axes), len(axes)
        ledger.origins["dim"] = f"sum of {form.axes[0]}"
    else:
        parameters["dim"] = 1
        for key, default in form.width:
            found = _found(ledger, key, default, source)
            parameters["dim"] *= ledger.whole(found)
            ledger.record("dim", found, key)
        ledger.origins["dim"] = " * ".join(key for key, _ in form.width)
    parameters["layout"] = form.layout
    ledger.origins["layout"] = source
    if form.layout_by:
        name_of, usual, layouts = form.layout_by
        stored = _found(ledger, name_of, usual, source)
        if stored.value not in layouts:
            raise ledger.wrong(stored, f"one of {', '.join(layouts)}", f'"{usual}"')
        parameters["layout"] = layouts[ledger.record("layout", stored, name_of)]
    order = None
    if form.stretched:
        sides = ledger.numbers(_found(ledger, *form.stretched, source))
        order = RowOrder(stretched=(int(sides[0]), int(sides[1])))
    if form.note:
        ledger.note(form.note)
    return Resolved(
        file=config.file,
        encoding="rope",
        parameters=parameters,
        origins=ledger.origins,
        model_type=name,
        warnings=tuple(ledger.warnings),
        notes=tuple(ledger.notes),
        axes=count,
        row_order=order,
    )


def _sincos(ledger: KeyLedger, name: str, form: SinCos) -> Resolved:
    """The table that is added to the patches of an image."""
    source = f"{name}, PatchEmbed of {SOURCE}"
    heads, head, sample, patch = (
        ledger.whole(_found(ledger, key, default, source))
        for key, default in (
            ("num_attention_heads", form.heads),
            ("attention_head_dim", form.head),
            ("sample_size", form.sample),
            ("patch_size", 2),
        )
    )
    side = sample // patch
    parameters: dict[str, Any] = {
        "dim": heads * head,
        "style": "dit",
        "base_size": side,
        "grid": (side, side),
    }
    ledger.origins |= {
        "dim": "num_attention_heads * attention_head_dim",
        "style": source,
        "base_size": "sample_size / patch_size",
        "grid": "sample_size / patch_size",
    }
    if form.scaled:
        said = ledger.in_file("interpolation_scale")
        scale = ledger.number(said) if said else max(sample // 64, 1)
        parameters["interpolation_scale"] = (float(scale),)
        ledger.origins["interpolation_scale"] = said.origin if said else f"{source}: sample_size / 64"
    order = None
    if form.whole:
        whole = ledger.whole(_found(ledger, *form.whole, source))
        order = RowOrder(whole=(whole, whole))
        ledger.note(
            f"the rows are the middle of a table of {whole} x {whole}, which the checkpoint holds as pos_embed.pos_embed"
        )
    return Resolved(
        file=ledger.config.file,
        encoding="sinusoidal",
        parameters=parameters,
        origins=ledger.origins,
        model_type=name,
        warnings=tuple(ledger.warnings),
        notes=tuple(ledger.notes),
        axes=2,
        row_order=order,
    )


def _base(ledger: KeyLedger, form: Denoiser, source: str) -> float:
    key, default = form.theta
    if not key:
        ledger.origins["base"] = source
        return default
    found = _found(ledger, key, default, source)
    return float(ledger.number(Setting(ledger.record("base", found, key), found.origin, found.assumed)))


def _found(ledger: KeyLedger, key: str, default: Any, source: str) -> Setting:
    return ledger.in_file(key) or Setting(default, f"the default of {source}", assumed=True)
