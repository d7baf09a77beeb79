"""Diffusion transformers by the class that their configuration names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pe_cli.encodings.rope.rotary import rope
from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration
from pe_cli.models.diffusion import DENOISERS
from pe_cli.models.resolve import resolve_configuration
from pe_cli.models.resolved import Resolved


def resolved(name: str, **values: Any) -> Resolved:
    return resolve_configuration(Configuration("config.json", {"_class_name": name, **values}))


@pytest.mark.parametrize("name", DENOISERS)
def test_every_class_makes_a_table(name: str) -> None:
    found = resolved(name, use_rotary_positional_embeddings=True)
    place = np.arange(found.axes)[None]
    tensors = rope(place, **found.parameters)
    assert all(len(table) == 1 for table in tensors.values())
    assert found.parameters.keys() == found.origins.keys()


def test_flux_has_its_axes_side_by_side() -> None:
    found = resolved("FluxTransformer2DModel", axes_dims_rope=[16, 56, 56])
    expected = {"dim": 128, "base": 10000.0, "axes": (16, 56, 56), "layout": "adjacent"}
    assert (found.parameters, found.warnings) == (expected, ())


def test_what_the_file_leaves_out_is_loud() -> None:
    found = resolved("Flux2Transformer2DModel")
    assert (found.parameters["base"], found.parameters["dim"]) == (2000.0, 128)
    assert {warning.split()[0] for warning in found.warnings} == {"rope_theta", "axes_dims_rope"}


def test_a_class_that_does_not_rotate_or_is_not_known() -> None:
    with pytest.raises(PeError, match="sinusoidal --style cogvideox"):
        resolved("CogVideoXTransformer3DModel")
    with pytest.raises(PeError, match="not among the diffusion transformers"):
        resolved("MyTransformer")


@pytest.mark.interop
def test_flux_and_wan_against_diffusers() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers.models.transformers.transformer_flux import FluxPosEmbed
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

    places = np.stack(np.meshgrid(np.arange(1), np.arange(4), np.arange(6), indexing="ij"), -1).reshape(-1, 3)
    flux = rope(places, **resolved("FluxTransformer2DModel", axes_dims_rope=[16, 56, 56]).parameters)
    cos, sin = FluxPosEmbed(10000, [16, 56, 56])(torch.tensor(places))
    np.testing.assert_allclose(flux["cos"], cos.numpy(), atol=1e-6)
    np.testing.assert_allclose(flux["sin"], sin.numpy(), atol=1e-6)
    wan = rope(places, **resolved("WanTransformer3DModel").parameters)
    cos, sin = WanRotaryPosEmbed(128, (1, 1, 1), 64)(torch.zeros(1, 1, 1, 4, 6))
    np.testing.assert_allclose(wan["cos"], cos.numpy().reshape(24, 128), atol=1e-6)
    np.testing.assert_allclose(wan["sin"], sin.numpy().reshape(24, 128), atol=1e-6)
