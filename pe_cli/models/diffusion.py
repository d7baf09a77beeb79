"""The transformers of diffusers: their `config.json` names a class, and the class fixes the form of its rotation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration
from pe_cli.models.resolved import KeyLedger, Resolved, Setting

CLASS_KEY = "_class_name"
SOURCE = "diffusers 0.42"


@dataclass(frozen=True)
class Denoiser:
    """One class: where its axes, width and base are, with the class's defaults.

    axes : key of the widths of its axes, side by side; None where `style` divides the width
    style : the published form (`--axis-style`), where it is more than axes side by side
    width : keys whose product is the rotary width, where there are no axes to add up
    rotates : key that must be true
    """

    layout: str
    axes: tuple[str, tuple[int, ...]] | None = None
    theta: tuple[str, float] = ("", 10000.0)
    style: str | None = None
    width: tuple[tuple[str, int], ...] = ()
    rotates: str | None = None
    count: int = 3


DENOISERS = {
    "FluxTransformer2DModel": Denoiser("adjacent", ("axes_dims_rope", (16, 56, 56))),
    "Flux2Transformer2DModel": Denoiser(
        "adjacent", ("axes_dims_rope", (32, 32, 32, 32)), ("rope_theta", 2000.0)
    ),
    "Lumina2Transformer2DModel": Denoiser("complex", ("axes_dim_rope", (32, 32, 32))),
    "ZImageTransformer2DModel": Denoiser("complex", ("axes_dims", (32, 48, 48)), ("rope_theta", 256.0)),
    "HunyuanVideoTransformer3DModel": Denoiser(
        "adjacent", ("rope_axes_dim", (16, 56, 56)), ("rope_theta", 256.0)
    ),
    "QwenImageTransformer2DModel": Denoiser("complex", ("axes_dims_rope", (16, 56, 56)), style="qwen-image"),
    "WanTransformer3DModel": Denoiser("adjacent", style="wan", width=(("attention_head_dim", 128),)),
    "CogVideoXTransformer3DModel": Denoiser(
        "adjacent",
        style="cogvideox",
        width=(("attention_head_dim", 64),),
        rotates="use_rotary_positional_embeddings",
    ),
    "LTXVideoTransformer3DModel": Denoiser(
        "adjacent", style="ltx", width=(("num_attention_heads", 32), ("attention_head_dim", 64))
    ),
}


def resolve_denoiser(config: Configuration) -> Resolved:
    """The rotary encoding of a diffusion transformer. Its rows are cells of a grid, or places of an array."""
    name = str(config.values.get(CLASS_KEY))
    if name not in DENOISERS:
        raise PeError(
            f"{config.file}: {CLASS_KEY} {name!r} is not among the diffusion transformers known here: {', '.join(DENOISERS)}"
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
    return Resolved(
        file=config.file,
        encoding="rope",
        parameters=parameters,
        origins=ledger.origins,
        model_type=name,
        warnings=tuple(ledger.warnings),
        notes=tuple(ledger.notes),
        axes=count,
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
