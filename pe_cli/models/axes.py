"""Several axes: the sections of M-RoPE, and the tables of vision towers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pe_cli.models.layers import Rope
from pe_cli.models.resolved import KeyLedger, Setting

# The form of each rotary module that is not the common one (rows, then columns, repeated by halves).
COMMON_STYLE = "qwen-vision"
STYLES = {
    "PixtralVisionRotaryEmbedding": "pixtral",
    "Kimi_K25VisionRotaryEmbedding": "kimi-vision",
    "Gemma4VisionRotaryEmbedding": "gemma4-vision",
    "Sam2VideoVisionRotaryEmbedding": "sam",
    "Sam3ViTRotaryEmbedding": "sam",
    "Sam3TrackerVideoVisionRotaryEmbedding": "sam",
    "EdgeTamVideoVisionRotaryEmbedding": "sam",
    "Inkling2VisionRotaryEmbedding": "inkling-vision",
    "Step3p7VisionRotaryEmbedding": "step3-vision",
    "Llama4VisionRotaryEmbedding": "llama4-vision",
    "DINOv3ViTRopePositionEmbedding": "dinov3",
    "Sapiens2RopePositionEmbedding": "dinov3",
    "EomtDinov3RotaryEmbedding": "dinov3",
    "VJEPA2RopeAttention": "vjepa2",
}
# Modules that give each of three axes a third of the head, rounded down to pairs, and pass the rest.
THIRDS = frozenset({"MiniMaxM3VLVisionRotaryEmbedding"})
ERNIE = frozenset({"Ernie4_5_VLMoeTextRotaryEmbedding"})
# XD-RoPE of HunYuan-VL divides columns, not pairs, so unequal positions do not make a rotation.
NOT_BY_PAIRS = frozenset({"HunYuanVLRotaryEmbedding"})


def is_axial(ledger: KeyLedger) -> bool:
    """Whether the tables have coordinates instead of positions."""
    return ledger.known.axial or ledger.known.module in STYLES


def axial_arguments(ledger: KeyLedger, dim: int) -> dict[str, Any]:
    """The arguments of `rope` for a vision tower: the form, and the grid where the sizes are known."""
    module, source = ledger.known.module, f"{ledger.known.module}, {ledger.known.source}"
    found: dict[str, Any] = {}
    if module in THIRDS:
        third = 2 * (dim // 3 // 2)
        found |= {"dim": 3 * third, "axes": (third,) * 3}
        ledger.origins["axes"] = f"{source}: a third of the head each, {dim - 3 * third} channels pass"
    else:
        found["axis_style"] = STYLES.get(module, COMMON_STYLE)
        ledger.origins["axis_style"] = source
    grid = _grid(ledger)
    if grid is not None:
        found["grid"] = grid
    return found


def axis_count(parameters: dict[str, Any]) -> int:
    """How many coordinates a place has."""
    if "axes" in parameters:
        return len(parameters["axes"])
    return 3 if parameters["axis_style"] == "vjepa2" else 2


def _grid(ledger: KeyLedger) -> tuple[int, ...] | None:
    image, patch = ledger.geometry_like("image_size"), ledger.geometry_like("patch_size")
    return None if image is None or patch is None else grid_of(ledger, image, patch)


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
