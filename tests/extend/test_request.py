"""What a request comes to: settings of presets by kind of table, and contradictions."""

from __future__ import annotations

from typing import Any

import pytest

from pe_cli.errors import PeError
from pe_cli.extend.plan import make_plan
from pe_cli.extend.request import ResizeRequest, settle
from pe_cli.files import TensorSpec
from pe_cli.position_names import Kind


@pytest.mark.parametrize(
    ("preset", "kind", "words"),
    [
        ("torch", "grid", "cubic (half, a = -0.75)"),
        ("torch", "sequence", "linear (half)"),
        ("beit", "window", "knots"),
        ("beit", "grid", "cubic (half, a = -0.75)"),
        ("timm", "grid", "cubic (half, antialias, a = -0.5)"),
        ("dinov2", "grid", "cubic (half, a = -0.75, scale offset 0.1)"),
    ],
)
def test_presets_by_kind(preset: str, kind: Kind, words: str) -> None:
    sizes: dict[Kind, dict[str, Any]] = {"sequence": {"length": 9}, "window": {"window": (9, 9)}}
    request = ResizeRequest(preset=preset, **sizes.get(kind, {"grid": (9, 9)}))
    assert settle(request, kind, 1, known=True).words == words


@pytest.mark.parametrize(
    ("preset", "request_", "words"),
    [
        (
            "timm",
            {"length": 9},
            r"is for grid(?: and|,) window; for length there are torch, long-clip, longformer",
        ),
        ("longformer", {"grid": (9, 9)}, "is for length; for grid there are timm,"),
        ("dinov2", {"window": (9, 9)}, "is for grid; for window there are timm, torch, swin, beit"),
        ("swin", {"length": 9}, "is for window and grid"),
    ],
)
def test_a_preset_is_for_the_tables_that_its_original_resizes(
    preset: str, request_: dict[str, Any], words: str
) -> None:
    request = ResizeRequest(preset=preset, **request_)
    with pytest.raises(PeError, match=words):
        settle(request, request.kind, 1, known=True)


@pytest.mark.parametrize(("preset", "words"), [("timm", "linear-knots"), ("beit", "knots")])
def test_window_tables_that_move_along_with_a_grid(preset: str, words: str) -> None:
    """timm and BEiT have ways of their own with them."""
    assert settle(ResizeRequest(grid=(9, 9), preset=preset), "window", 2, known=True).words == words
    assert (
        settle(ResizeRequest(grid=(9, 9), preset=preset), "relative", 1, known=True).words == "linear (half)"
    )


def test_coordinates_of_a_preset_are_not_moved() -> None:
    with pytest.raises(PeError, match="leave out anchor"):
        settle(ResizeRequest(grid=(9, 9), preset="dinov2", anchor="ends"), "grid", 2, known=True)


def test_rows_in_front_are_offset_and_prefix_together() -> None:
    assert ResizeRequest(grid=(9, 9)).front is None
    assert ResizeRequest(grid=(9, 9), prefix_rows=1).front == 1
    assert ResizeRequest(grid=(9, 9), prefix_rows=1, offset=2).front == 3


def test_who_names_an_anchor_wants_interpolation() -> None:
    assert not settle(ResizeRequest(length=9), "sequence", 1, known=True).chosen
    assert settle(ResizeRequest(length=9, anchor="left"), "sequence", 1, known=True).chosen


SWIN2 = "layers.0.blocks.0.attn.relative_coords_table"
LEVIT = "levit.encoder.stages.0.layers.0.attention.attention_biases"
BEIT = "beit.encoder.layer.0.attention.attention.relative_position_bias.relative_position_bias_table"
FACTOR = "reformer.embeddings.position_embeddings.weights"


@pytest.mark.parametrize(
    ("tensors", "size", "unread"),
    [
        ({SWIN2: (1, 15, 15, 2)}, {"window": "12x12"}, {"method": "nearest"}),
        ({SWIN2: (1, 15, 15, 2)}, {"window": "12x12"}, {"preset": "swin"}),
        ({SWIN2: (1, 15, 15, 2)}, {"window": "12x12"}, {"from_window": "4x4"}),
        ({LEVIT: (2, 16)}, {"grid": "6x6"}, {"prefix_rows": 1}),
        ({LEVIT: (2, 16)}, {"grid": "6x6"}, {"from_grid": "5x5"}),
        ({BEIT: (52, 2)}, {"grid": "6x6"}, {"suffix_rows": 1}),
        ({f"{FACTOR}.0": (8, 1, 4), f"{FACTOR}.1": (1, 8, 4)}, {"grid": "16x16"}, {"from_grid": "4x4"}),
        ({f"{FACTOR}.0": (8, 1, 4), f"{FACTOR}.1": (1, 8, 4)}, {"grid": "16x16"}, {"offset": 1}),
        ({"blocks.0.attn.rel_pos_h": (27, 8)}, {"length": 31}, {"outliers": "ignore"}),
    ],
)
def test_what_a_table_does_not_read_is_refused(
    tensors: dict[str, tuple[int, ...]], size: dict[str, Any], unread: dict[str, Any]
) -> None:
    specs = {name: TensorSpec(name, "float32", shape) for name, shape in tensors.items()}
    assert make_plan(specs, ResizeRequest.of(**size), None, "m").changes()
    with pytest.raises(PeError, match=r"not for|for no grid"):
        make_plan(specs, ResizeRequest.of(**size, **unread), None, "m")
