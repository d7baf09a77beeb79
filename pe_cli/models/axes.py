"""Several axes: the sections of M-RoPE, the tables of vision towers with the order of their patches, and those of the
transformers of diffusers, whose `config.json` names a class that fixes the form of its rotation (`data/denoisers.json`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.models import layers
from pe_cli.models.configuration import CLASS_KEY, Configuration, data, is_misspelt
from pe_cli.models.resolved import (
    ADJACENT_LAYOUTS,
    KeyLedger,
    Resolved,
    RowOrder,
    Setting,
    unread_keys,
    unread_warning,
)

COMMON_STYLE = "qwen-vision"
ERNIE = frozenset({"Ernie4_5_VLMoeTextRotaryEmbedding"})
# XD-RoPE of HunYuan-VL divides columns, not pairs, so unequal positions do not make a rotation.
NOT_BY_PAIRS = frozenset({"HunYuanVLRotaryEmbedding"})


@dataclass(frozen=True)
class Tower:
    """What `data/towers.json` says of a rotary module that has coordinates instead of positions.

    style : the published form (`axis_style`); null where three axes have a third of the head each
    cells : whether rows are cells of any grid, in the order that `block`, `window` and `class_row` say; else the form
        itself counts them, row by row
    block : [key, default] of the patches on each side that are merged later, and are held together
    window : [key, default, unit] of the side of the windows in which they are held; the unit is patches or pixels
    class_row : where the row of the class token is, which does not turn: first or last
    layers : label of each table that the layers have, with its grid: `sides` [key, default] of [width, height], `side` of
        a square, or that of the image, whose cells are `measured_in` those of a square
    heads : how many times the width of one axis the table has
    layout : how the module stores it, where that is not known from running it
    volume : [key, default] of frames, frames in a tube, image side and patch side, where three axes have one grid
    note : what else to know
    """

    style: str | None = COMMON_STYLE
    cells: bool = True
    block: tuple[str, int] | None = None
    window: tuple[str, int, str] | None = None
    class_row: str = ""
    layers: dict[str, dict[str, Any]] = field(default_factory=dict)
    heads: int = 1
    layout: str = ""
    volume: tuple[tuple[str, int], ...] = ()
    note: str = ""


def of_tower(ledger: KeyLedger, parameters: dict[str, Any], asked: str | None) -> dict[str, Any]:
    """What `Resolved` says of a vision tower; its arguments of `rope` are added to `parameters`."""
    known = _tower(ledger)
    labels = tower_labels(ledger)
    label = layers.one_label(ledger.config.file, labels, asked)
    parameters |= _axial_arguments(ledger, known, parameters["dim"], label)
    return {
        "layer_type": label,
        "layers": _tower_layers(ledger, known, label),
        "layer_types": labels,
        "axes": _axis_count(parameters),
        "row_order": _tower_row_order(ledger, known),
    }


def _tower(ledger: KeyLedger) -> Tower:
    """What is known of the module, whose tables have coordinates instead of positions."""
    return Tower(**data("towers").get(ledger.known.module, {}))


def tower_labels(ledger: KeyLedger) -> tuple[str, ...]:
    """The layer types of a vision tower that have tables of their own."""
    return tuple(label for label in _tower(ledger).layers if label)


def _tower_layers(ledger: KeyLedger, known: Tower, label: str | None) -> tuple[int, ...]:
    """The numbers of the layers of this type: all but the global ones have windows (SAM 3)."""
    count = ledger.geometry("num_hidden_layers")
    if label is None or "global" not in known.layers or count is None:
        return ()
    whole = ledger.wholes(_taken(ledger, "global_attn_indexes", [7, 15, 23, 31]))
    return tuple(i for i in range(layers.layer_count(ledger, count)) if (i in whole) == (label == "global"))


def _axial_arguments(ledger: KeyLedger, known: Tower, dim: int, label: str | None) -> dict[str, Any]:
    """The arguments of `rope` for a vision tower: the form, and the grid where the configuration fixes it."""
    source = f"{ledger.known.module}, {ledger.known.source}"
    found: dict[str, Any] = {}
    if known.style is None:
        third = 2 * (dim // 3 // 2)
        found |= {"dim": 3 * third, "axes": (third,) * 3}
        ledger.origins["axes"] = f"{source}: a third of the head each, {dim - 3 * third} channels pass"
    else:
        found["axis_style"] = known.style
        ledger.origins["axis_style"] = source
    if known.heads > 1:
        found["dim"] = known.heads * dim
        ledger.origins["dim"] += f", for each of {known.heads} axes"
    if known.layout:
        found["layout"] = known.layout
    if known.note:
        ledger.note(known.note)
    grid = _grid(ledger, known, label)
    if grid is not None:
        found["grid"] = grid
    measured = known.layers.get(label or "", {}).get("measured_in")
    if measured is not None:
        side = ledger.whole(_taken(ledger, *measured))
        found["ref_grid"] = (side, side)
        ledger.origins["ref_grid"] = f"{source}: positions in units of {measured[0]} cells"
    return found


def _tower_row_order(ledger: KeyLedger, known: Tower) -> RowOrder | None:
    """The order in which the tower holds its patches; None where the form itself counts them, row by row."""
    if not known.cells:
        return None
    block = ledger.whole(_taken(ledger, *known.block)) if known.block else 1
    window = 0
    if known.window:
        key, default, unit = known.window
        window = ledger.whole(_taken(ledger, key, default))
        if unit == "pixels":
            window //= block * ledger.whole(_taken(ledger, "patch_size", 14))
        if window < 1:
            raise PeError(
                f"{ledger.config.file}: {ledger.config.key(key)} is smaller than a block of patches"
            )
    return RowOrder(block, window, known.class_row)


def _taken(ledger: KeyLedger, key: str, default: Any) -> Setting:
    """A setting, or the default of the model class."""
    return ledger.geometry_like(key) or ledger.default(default)


def _axis_count(parameters: dict[str, Any]) -> int:
    """How many coordinates a place has."""
    if "axes" in parameters:
        return len(parameters["axes"])
    return 3 if parameters["axis_style"] == "vjepa2" else 2


def _grid(ledger: KeyLedger, known: Tower, label: str | None) -> tuple[int, ...] | None:
    layer = known.layers.get(label or "", {})
    if "sides" in layer:
        found = _taken(ledger, *layer["sides"])
        width, height = ledger.wholes(found, 2)
        ledger.origins["grid"] = found.origin
        return height, width
    if "side" in layer:
        found = _taken(ledger, *layer["side"])
        ledger.origins["grid"] = found.origin
        return ledger.whole(found), ledger.whole(found)
    if known.volume:
        frames, tube, image, patch = (ledger.whole(_taken(ledger, *pair)) for pair in known.volume)
        names = [key for key, _ in known.volume]
        ledger.origins["grid"] = "{} / {}, {} / {} on each side".format(*names)
        return frames // tube, image // patch, image // patch
    image_size, patch_size = ledger.geometry_like("image_size"), ledger.geometry_like("patch_size")
    return None if image_size is None or patch_size is None else grid_of(ledger, image_size, patch_size)


def grid_of(ledger: KeyLedger, image: Setting, patch: Setting) -> tuple[int, ...]:
    """Rows and columns of patches."""
    sides = tuple(i // p for i, p in zip(_pair(ledger, image), _pair(ledger, patch), strict=True))
    ledger.origins["grid"] = f"image_size {image.value} / patch_size {patch.value}"
    return sides


def _pair(ledger: KeyLedger, found: Setting) -> tuple[int, int]:
    value = found.value
    if not isinstance(value, (list, tuple)):
        return ledger.whole(found), ledger.whole(found)
    if len(value) != 2:
        raise ledger.wrong(found, "a number or [height, width]", "[224, 224]")
    height, width = (ledger.whole(replace(found, value=side)) for side in value)
    return height, width


def section_arguments(ledger: KeyLedger, rope: layers.Rope, width: int) -> dict[str, Any]:
    """`sections`, where the pairs are shared among axes (time, row, column)."""
    known = ledger.known
    found = rope.find(ledger, "mrope_section", "xdrope_section")
    if found is None and known.sections is not None:
        found = ledger.default(list(known.sections))
    if found is None:
        return {}
    sections = list(ledger.wholes(found))
    if known.module in NOT_BY_PAIRS or "xdrope_section" in rope.values:
        ledger.note(
            f"the sections {sections} of XD-RoPE are left out: this is the table of text, whose axes are equal"
        )
        return {}
    pairs = (width + 1) // 2
    if sum(sections) != pairs:
        ledger.warn(
            f"the sections {sections} ({found.origin}) do not add up to {pairs} pairs and are left out: "
            "this is the table of text, whose axes are equal"
        )
        return {}
    ledger.origins["sections"] = found.origin
    arguments: dict[str, Any] = {"sections": tuple(sections)}
    said = rope.find(ledger, "mrope_interleaved")
    if said is not None and known.known and ledger.truth(said) != bool(known.interleaved):
        ledger.warn(f"{said.origin} is used; {known.module} in {known.source} does not read it")
    if known.module in ERNIE:
        arguments["axis_style"] = "ernie-vl"
        ledger.origins["axis_style"] = f"{known.module}, {known.source}"
    elif ledger.truth(said) if said is not None else known.interleaved:
        arguments["interleave_sections"] = True
        ledger.origins["interleave_sections"] = (
            said.origin if said is not None else f"{known.module}, {known.source}"
        )
    return arguments


@dataclass(frozen=True)
class Denoiser:
    """How the diffusion transformers of `classes` rotate: where axes, width and base are, with the defaults of the class.

    axes : key of the widths of its axes, side by side; None where `style` divides the width
    style : the published form (`axis_style`), where it is more than axes side by side
    width : keys whose product is the rotary width, where there are no axes to add up
    rotates : key that must be true
    layout_by : key whose values name the layout, with the default of the class
    stretched : key of the sides of the table whose rows the cells of any grid read
    fitted : keys of the height and width of the picture of training, into whose middle a grid is fitted
    factors : key of the factors by which the contexts of the axes are stretched
    pairing : the channels that attention turns together, where the layout does not tell
    note : what else to know
    """

    classes: tuple[str, ...]
    layout: str
    axes: tuple[str, tuple[int, ...]] | None = None
    theta: tuple[str, float] = ("", 10000.0)
    style: str | None = None
    width: tuple[tuple[str, int], ...] = ()
    rotates: str | None = None
    count: int = 3
    layout_by: tuple[str, str, dict[str, str]] | None = None
    stretched: tuple[str, tuple[int, ...]] | None = None
    fitted: tuple[tuple[str, int], tuple[str, int]] | None = None
    factors: tuple[str, tuple[float, ...]] | None = None
    pairing: str = ""
    note: str = ""


@dataclass(frozen=True)
class SinCos:
    """A diffusion transformer that adds the sines and cosines of `PatchEmbed`: its default heads, head, sample and patch.

    whole : key of the sides of the table of which the middle is cut out for an image, with the default of the class
    scaled : whether `interpolation_scale` is, where the file has none, the sample side over 64
    """

    heads: int
    head: int
    sample: int
    whole: tuple[str, int] | None = None
    scaled: bool = False


def resolve_denoiser(config: Configuration) -> Resolved:
    """The rotary encoding of a diffusion transformer. Its rows are cells of a grid, or places of an array."""
    name, known = str(config.values.get(CLASS_KEY)), data("denoisers")
    if name == "Transformer2DModel":  # what DiT and PixArt were called
        name = known["by_norm"].get(str(config.values.get("norm_type")), name)
    source = f"{name}, {known['source']}"
    ledger = KeyLedger(config, f"the default of {source}")
    if name in known["sincos"]:
        return _sincos(ledger, name, SinCos(**known["sincos"][name]), source)
    others = {each: part["said"] for part in known["parts"] for each in part["classes"]} | known["others"]
    if name in others:
        raise PeError(f"{config.file}: {name} {others[name]}")
    forms = {each: entry for entry in known["rotary"] for each in entry["classes"]}
    if name not in forms:
        near = [each for each in (*forms, *known["sincos"]) if is_misspelt(name, each)]
        settings = ", ".join(unread_keys(ledger, unscaled=True))
        raise PeError(
            f"{config.file}: the class {name!r} is not known here{f'; did you mean {near[0]!r}?' if near else ''}; its code says how its "
            f"places are encoded{f' (position settings in the file: {settings})' if settings else ''}"
        )
    form = Denoiser(**forms[name])
    if form.rotates and not (ledger.in_file(form.rotates) and config.values[form.rotates]):
        raise PeError(
            f"{config.file}: {form.rotates} is not true: this model adds a table instead, `pe gen sinusoidal --style cogvideox`"
        )
    parameters: dict[str, Any] = {"dim": 0, "base": _base(ledger, form, source)}
    if form.style is not None:
        parameters["axis_style"] = form.style
        ledger.origins["axis_style"] = source
    count = form.count
    if form.axes is not None:
        found = _taken(ledger, *form.axes)
        axes = ledger.wholes(found)
        parameters["axes"] = ledger.record("axes", replace(found, value=axes), form.axes[0])
        parameters["dim"], count = sum(axes), len(axes)
        ledger.origins["dim"] = f"sum of {form.axes[0]}"
    else:
        parameters["dim"] = 1
        for key, default in form.width:
            found = _taken(ledger, key, default)
            parameters["dim"] *= ledger.whole(found)
            ledger.record("dim", found, key)
        ledger.origins["dim"] = " * ".join(key for key, _ in form.width)
    if form.factors is not None:
        found = _taken(ledger, *form.factors)
        factors = replace(found, value=ledger.numbers(found))
        parameters["axis_factors"] = ledger.record("axis_factors", factors, form.factors[0])
    parameters["layout"] = form.layout
    ledger.origins["layout"] = source
    if form.layout_by:
        name_of, usual, layouts = form.layout_by
        stored = _taken(ledger, name_of, usual)
        if str(stored.value) not in layouts:
            raise ledger.wrong(stored, f"one of {', '.join(layouts)}", f'"{usual}"')
        parameters["layout"] = layouts[ledger.record("layout", stored, name_of)]
    order = None
    if form.stretched:
        sides = ledger.wholes(_taken(ledger, *form.stretched), 2)
        order = RowOrder(places=partial(_stretched, sides))
    if form.fitted and ledger.in_file("patch_size_t") is None:
        patch = ledger.whole(_taken(ledger, "patch_size", 2))
        sides = tuple(ledger.whole(_taken(ledger, *side)) // patch for side in form.fitted)
        order = RowOrder(places=partial(_fitted, sides))
    if form.note:
        ledger.note(form.note)
    unread = unread_keys(ledger, unscaled=True)
    if unread:
        ledger.warn(unread_warning(config.file, unread))
    return ledger.resolved(
        "rope",
        parameters,
        model_type=name,
        unread=unread,
        axes=count,
        row_order=order,
        pairing=form.pairing or ("adjacent" if parameters["layout"] in ADJACENT_LAYOUTS else "half"),
    )


def _stretched(
    wanted: Sequence[int], lines: list[NDArray[np.int64]], sides: Sequence[int]
) -> list[NDArray[Any]]:
    """Cell k of n reads the row k * side // n of a table of `wanted` sides."""
    return [line * to // side for line, to, side in zip(lines, wanted, sides, strict=True)]


def _fitted(
    trained: Sequence[int], lines: list[NDArray[np.int64]], sides: Sequence[int]
) -> list[NDArray[Any]]:
    """The picture fitted into the middle of that of the training: row k of n lies between `first` and (n - 1) / n of its end.

    Source: `get_resize_crop_region_for_grid` and `get_3d_rotary_pos_embed` of diffusers, with grid_type linspace.
    """
    (high, wide), (height, width) = trained, sides
    upright = height / width > high / wide
    sizes = (high, round(high / height * width)) if upright else (round(wide / width * height), wide)
    places = []
    for line, most, size, side in zip(lines, trained, sizes, sides, strict=True):
        first = round((most - size) / 2)
        last = (first + size) * (side - 1) / side
        places.append(first + line * ((last - first) / max(side - 1, 1)))
    return places


def _sincos(ledger: KeyLedger, name: str, form: SinCos, source: str) -> Resolved:
    """The table that is added to the patches of an image."""
    heads, head, sample, patch = (
        ledger.whole(_taken(ledger, key, default))
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
        whole = ledger.whole(_taken(ledger, *form.whole))
        order = RowOrder(whole=(whole, whole))
        ledger.note(
            f"the rows are the middle of a table of {whole} x {whole}, which the checkpoint holds as pos_embed.pos_embed"
        )
    return ledger.resolved("sinusoidal", parameters, model_type=name, axes=2, row_order=order)


def _base(ledger: KeyLedger, form: Denoiser, source: str) -> float:
    key, default = form.theta
    if not key:
        ledger.origins["base"] = source
        return default
    found = _taken(ledger, key, default)
    ledger.record("base", found, key)
    return float(ledger.number(found))
