"""Several axes: the sections of M-RoPE, and the tables of vision towers with the order in which they hold their patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pe_cli.errors import PeError, no_such
from pe_cli.models.layers import Rope, layer_count
from pe_cli.models.model_types import data
from pe_cli.models.resolved import KeyLedger, RowOrder, Setting

COMMON_STYLE = "qwen-vision"
MEASURED = frozenset({"dinov3"})
ERNIE = frozenset({"Ernie4_5_VLMoeTextRotaryEmbedding"})
# XD-RoPE of HunYuan-VL divides columns, not pairs, so unequal positions do not make a rotation.
NOT_BY_PAIRS = frozenset({"HunYuanVLRotaryEmbedding"})


@dataclass(frozen=True)
class Tower:
    """What `data/towers.json` says of a rotary module that has coordinates instead of positions.

    style : the published form (`--axis-style`); null where three axes have a third of the head each
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


def tower(ledger: KeyLedger) -> Tower | None:
    """What is known of the module where its tables have coordinates instead of positions, else None."""
    entry = data("towers").get(ledger.known.module)
    if entry is not None:
        return Tower(**entry)
    return Tower() if ledger.known.axial else None


def tower_labels(ledger: KeyLedger) -> tuple[str, ...]:
    """The layer types of a vision tower that have tables of their own."""
    known = tower(ledger)
    return tuple(label for label in known.layers if label) if known else ()


def tower_label(ledger: KeyLedger, known: Tower, asked: str | None) -> str | None:
    """The layer type meant. Raises PeError where there are several and none was named, or one that there is not."""
    labels = [label for label in known.layers if label]
    if asked is None and len(labels) > 1:
        raise PeError(
            f"{ledger.config.file}: this model has a table for each layer type, choose one with --layer-type: {', '.join(labels)}"
        )
    if asked is not None and asked not in labels:
        if labels:
            raise no_such("layer type", asked, labels)
        raise PeError(
            f"{ledger.config.file}: one table serves all layers of this model; leave --layer-type {asked} out"
        )
    return asked


def tower_layers(ledger: KeyLedger, label: str | None) -> tuple[int, ...]:
    """The numbers of the layers of this type: all but the global ones have windows (SAM 3)."""
    known = tower(ledger)
    count = ledger.geometry("num_hidden_layers")
    if label is None or known is None or "global" not in known.layers or count is None:
        return ()
    whole = {int(index) for index in ledger.numbers(taken(ledger, "global_attn_indexes", [7, 15, 23, 31]))}
    return tuple(i for i in range(layer_count(ledger, count)) if (i in whole) == (label == "global"))


def axial_arguments(ledger: KeyLedger, known: Tower, dim: int, label: str | None) -> dict[str, Any]:
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
        side = ledger.whole(taken(ledger, *measured))
        found["ref_grid"] = (side, side)
        ledger.origins["ref_grid"] = f"{source}: positions in units of {measured[0]} cells"
    return found


def tower_row_order(ledger: KeyLedger, known: Tower) -> RowOrder | None:
    """The order in which the tower holds its patches; None where the form itself counts them, row by row."""
    if not known.cells:
        return None
    block = ledger.whole(taken(ledger, *known.block)) if known.block else 1
    window = 0
    if known.window:
        key, default, unit = known.window
        window = ledger.whole(taken(ledger, key, default))
        if unit == "pixels":
            window //= block * ledger.whole(taken(ledger, "patch_size", 14))
        if window < 1:
            raise PeError(
                f"{ledger.config.file}: {ledger.config.key(key)} is smaller than a block of patches"
            )
    return RowOrder(block, window, known.class_row)


def taken(ledger: KeyLedger, key: str, default: Any) -> Setting:
    """A setting, or the default of the model class."""
    return ledger.geometry_like(key) or Setting(default, ledger.known.described(), assumed=True)


def axis_count(parameters: dict[str, Any]) -> int:
    """How many coordinates a place has."""
    if "axes" in parameters:
        return len(parameters["axes"])
    return 3 if parameters["axis_style"] == "vjepa2" else 2


def measures_grid(arguments: Mapping[str, Any]) -> bool:
    """Whether the form needs the grid also where coordinates are given, since it measures them against it."""
    return "ref_grid" in arguments or arguments.get("axis_style") in MEASURED


def _grid(ledger: KeyLedger, known: Tower, label: str | None) -> tuple[int, ...] | None:
    layer = known.layers.get(label or "", {})
    if "sides" in layer:
        found = taken(ledger, *layer["sides"])
        sides = [int(side) for side in ledger.numbers(found)]
        if len(sides) != 2:
            raise ledger.wrong(found, "a list of width and height", "[64, 64]")
        ledger.origins["grid"] = found.origin
        return sides[1], sides[0]
    if "side" in layer:
        found = taken(ledger, *layer["side"])
        ledger.origins["grid"] = found.origin
        return ledger.whole(found), ledger.whole(found)
    if known.volume:
        frames, tube, image, patch = (ledger.whole(taken(ledger, *pair)) for pair in known.volume)
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


def section_arguments(ledger: KeyLedger, rope: Rope, width: int) -> dict[str, Any]:
    """`sections`, where the pairs are shared among axes (time, row, column)."""
    known = ledger.known
    found = rope.find(ledger, "mrope_section", "xdrope_section")
    if found is None and known.sections is not None:
        found = Setting(list(known.sections), known.described(), assumed=True)
    if found is None:
        return {}
    sections = [int(size) for size in ledger.numbers(found)]
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
    if known.module in ERNIE:
        arguments["axis_style"] = "ernie-vl"
        ledger.origins["axis_style"] = f"{known.module}, {known.source}"
    elif ledger.truth(said) if said is not None else known.interleaved:
        arguments["interleave_sections"] = True
        ledger.origins["interleave_sections"] = (
            said.origin if said is not None else f"{known.module}, {known.source}"
        )
    return arguments
