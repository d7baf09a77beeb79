"""What the attention of every rotary vision tower of the pinned transformers receives in a small forward pass."""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pe_cli.models.configuration import data, defaults, known_types
from pe_cli.models.resolve import from_config

pytestmark = [pytest.mark.interop, pytest.mark.slow]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TURNING = ("apply_rotary", "apply_multidimensional_rope", "vision_apply_rotary")
IMAGE, VIDEO = (1, 8, 12), (3, 4, 6)
# Why a tower cannot be run, or hands no table to its attention.
NOT_RUN = {
    "vjepa2": "its attention computes angles from row numbers inside; tests/encodings/test_rope_axes.py runs that function",
    **dict.fromkeys(
        ["moonvit", "dots_vit", "mistral_vision"],
        "its code is not in transformers; test_axes.py and test_configuration.py have what it says",
    ),
}


class EnoughError(Exception):
    """Ends a forward pass when enough was seen."""


def code_of(name: str) -> Any:
    """The module of transformers that defines the rotary class `name`."""
    for path in sorted((Path(transformers.__file__).parent / "models").glob("*/modeling_*.py")):
        if f"class {name}(" in path.read_text():
            return importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
    raise LookupError(name)


@contextmanager
def watched(code: Any, calls: int) -> Iterator[list[list[np.ndarray]]]:
    """The tables that the functions of `code` which turn queries and keys are given, until `calls` of them were seen."""
    seen: list[list[np.ndarray]] = []
    own = {n: f for n, f in vars(code).items() if inspect.isfunction(f) and n.startswith(TURNING)}

    def watching(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **words: Any) -> Any:
            given = inspect.signature(function).bind(*args, **words).arguments
            names = [n for n in ("cos", "sin", "cos_k", "sin_k", "freqs_ci") if n in given]
            seen.append([given[name].detach().numpy() for name in names])
            if len(seen) == calls:
                raise EnoughError
            return function(*args, **words)

        return call

    for name, function in own.items():
        setattr(code, name, watching(function))
    try:
        with torch.no_grad():
            yield seen
    except EnoughError:
        pass
    finally:
        for name, function in own.items():
            setattr(code, name, function)


def smaller(known: Any) -> dict[str, Any]:
    """The settings of one layer with two heads of the default width."""
    keys = ("hidden_size", "num_attention_heads", "num_hidden_layers")
    hidden, heads, layers = (known.aliases.get(key, key) for key in keys)
    width = known.fields.get(hidden, known.fields["hidden_size"])
    head = known.fields.get("head_dim") or width // known.fields["num_attention_heads"]
    changes = {hidden: 2 * head, heads: 2, layers: 1, "num_key_value_heads": 2, "intermediate_size": 8}
    if known.model_type == "dots3_note_vision_encoder":
        changes |= {"num_hidden_layers": 42, "moe_intermediate_size": 8, "adapter_in_dim": 2 * head}
    if known.model_type == "lfm3_vl_vision":
        changes["layer_types"] = ["full_attention"]
    if known.model_type == "eomt_dinov3":
        changes |= {"num_hidden_layers": 2, "num_blocks": 1}
    if known.model_type.startswith("muse"):
        changes["layer_types"] = ["window_attention"]
    return changes


def built(model_type: str, **changes: Any) -> tuple[Any, Any]:
    """(module of the code, a small model) of a type, with random weights."""
    known = defaults(model_type)
    code = code_of(known.module)
    classes = [
        value
        for value in vars(code).values()
        if inspect.isclass(value)
        and issubclass(value, transformers.PreTrainedModel)
        and value.__module__ == code.__name__
        and getattr(value.config_class, "__name__", "") == known.name
        and "forward" in vars(value)
        and "Encoder" not in value.__name__.removesuffix("VisionEncoder")
    ]
    config = classes[0].config_class(**{**smaller(known), **changes})
    config._attn_implementation = "eager"
    return code, classes[0](config).eval()


def packed(model_type: str, grid: tuple[int, int, int], **changes: Any) -> tuple[list[Any], Any]:
    """The tables of a tower that takes flattened patches and their grid, and its configuration."""
    code, model = built(model_type, **changes)
    config, count = model.config, int(np.prod(grid))
    names = [name for name in ("in_channels", "num_channels") if hasattr(config, name)]
    channels = getattr(config, names[0]) if names else 3
    side = config.patch_size
    depth = getattr(config, "temporal_patch_size", 1) or 1
    words = {"grid_thw": torch.tensor([grid])}
    shape: tuple[int, ...] = (count, channels * depth * side * side)
    if model_type == "kimi_k25_vision":
        shape = (count, channels, side, side)
    if model_type == "paddleocr_vl_vision":
        shape = (1, count, channels, side, side)
    if model_type.startswith("muse"):
        first = next(m for m in model.patch_embedder.modules() if isinstance(m, torch.nn.Linear))
        shape = (count, first.in_features)
    if model_type == "video_llama_3_vision":
        words["merge_sizes"] = torch.tensor([1])
    if model_type == "inkling2_vision":
        merge = config.spatial_merge_size
        frames, rows, columns = grid
        words = {"image_grid_thw": torch.tensor([[frames, rows // merge, columns // merge]])}
        shape = (count // merge**2, side * merge, side * merge, channels)
    patches = next(iter(inspect.signature(model.forward).parameters))
    with watched(code, 1) as seen:
        model(**{patches: torch.zeros(shape)}, **words)
    return seen[0], config


def pictured(
    model_type: str, height: int, width: int, calls: int = 1, **changes: Any
) -> tuple[list[Any], Any]:
    """The tables of a tower that takes images of height x width patches."""
    code, model = built(model_type, **changes)
    side = model.config.patch_size
    side = side if isinstance(side, int) else side[0]
    pixels = torch.zeros(1, 3, side * height, side * width)
    with watched(code, calls) as seen:
        if model_type == "gemma4_vision":
            y, x = (axis.reshape(-1) for axis in np.indices((height, width)))
            ids = torch.tensor(np.stack([x, y], axis=-1))[None]
            model(torch.zeros(1, height * width, 3 * side * side), ids)
        else:
            model(pixels)
    return (seen[0] if calls == 1 else seen), model.config


def remembered(model_type: str, sizes: dict[str, Any]) -> tuple[list[Any], Any]:
    """The tables of the memory attention of a SAM video model."""
    known = defaults(model_type)
    code = code_of(known.module)
    config = getattr(code, known.name.removesuffix("Config") + "Model").config_class(**sizes)
    config._attn_implementation = "eager"
    attention = getattr(code, known.name.removesuffix("Config") + "MemoryAttention")(config).eval()
    width, height = config.memory_attention_rope_feat_sizes
    image = torch.zeros(width * height, 1, config.memory_attention_hidden_size)
    k_sizes = getattr(config, "memory_attention_rope_k_sizes", [width, height])
    memory = torch.zeros(k_sizes[0] * k_sizes[1], 1, 64)
    words = {"num_spatial_memory_tokens": 1} if "key" in data("towers")[known.module]["layers"] else {}
    with watched(code, 2) as seen:
        attention(image, memory, image, memory, **words)
    return seen, config


def agree(tables: list[np.ndarray], config: Any, **words: Any) -> None:
    """Our tables, from nothing but the configuration as it is saved, are those of the model."""
    values = json.loads(config.to_json_string(use_diff=False))
    ours = list(
        from_config(
            values, None, dtype="float64" if tables[0].dtype.kind == "f" else "float32", **words
        ).values()
    )
    for got, want in zip(ours, tables, strict=True):
        want = want.reshape(-1, want.shape[-1])
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, atol=3e-6)


def towers() -> list[str]:
    """The model types whose rotary module has coordinates."""
    named = data("towers")
    return sorted({t for t in known_types() if defaults(t).module in named or defaults(t).axial})


PICTURES = {
    "pixtral": {},
    "step3p5_vision": {},
    "gemma4_vision": {},
    "dinov3_vit": {},
    "sapiens2": {},
    "eomt_dinov3": {},
}
MEMORIES = {
    "sam2_video": {"memory_attention_rope_feat_sizes": [5, 4]},
    "sam3_tracker_video": {"image_size": 70},
}
OWN_TESTS = {"efficientloftr", "llama4_vision_model", "mlcd_vision_model", "sam3_vit_model", "edgetam_video"}


def test_every_tower_is_run_or_has_a_reason() -> None:
    assert set(NOT_RUN) | set(PICTURES) | set(MEMORIES) | OWN_TESTS <= set(towers())
    assert len(towers()) - len(NOT_RUN) > 36


@pytest.mark.parametrize("grid", [IMAGE, VIDEO], ids=["image", "video"])
@pytest.mark.parametrize(
    "model_type", sorted(set(towers()) - set(NOT_RUN) - set(PICTURES) - set(MEMORIES) - OWN_TESTS)
)
def test_towers_that_take_packed_patches(model_type: str, grid: tuple[int, int, int]) -> None:
    if grid == VIDEO and model_type in ("glm4v_vision", "glm4v_moe_vision"):
        pytest.skip("its embeddings take the frames of a video one by one, as images")
    tables, config = packed(model_type, grid)
    agree(tables, config, grid=grid)
    if grid[0] == 1:
        agree(tables, config, grid=grid[1:])


@pytest.mark.parametrize("model_type", PICTURES)
def test_towers_that_take_images(model_type: str) -> None:
    tables, config = pictured(model_type, 4, 6)
    agree(tables, config, grid=(4, 6))


def test_efficientloftr_counts_rows_and_columns_from_one() -> None:
    from transformers import EfficientLoFTRConfig
    from transformers.models.efficientloftr.modeling_efficientloftr import EfficientLoFTRRotaryEmbedding

    config = EfficientLoFTRConfig()
    side = config.q_aggregation_kernel_size
    tables = EfficientLoFTRRotaryEmbedding(config)(torch.zeros(1, 8, 3 * side, 5 * side))
    agree([table.numpy() for table in tables], config, grid=(3, 5))


def test_windows_that_do_not_divide_the_grid() -> None:
    for model_type in ("qwen2_5_vl_vision", "exaone4_5_vision", "qwen2_5_omni_vision_encoder"):
        tables, config = packed(model_type, (2, 14, 18), window_size=84)
        agree(tables, config, grid=(2, 14, 18))
    for model_type in ("muse_glimmer_vision", "muse_spark_vision"):
        tables, config = packed(model_type, (1, 8, 12), pos_emb_height=5, pos_emb_width=5)
        agree(tables, config, grid=(8, 12))


def test_llama4_fixes_its_grid_and_ends_with_the_class_token() -> None:
    tables, config = pictured("llama4_vision_model", 5, 5, image_size=70)
    agree(tables, config)
    agree([table[:-1] for table in tables], config, row_order="raster")


def test_mlcd_has_its_class_token_in_front_which_is_learned() -> None:
    tables, config = pictured("mlcd_vision_model", 4, 6)
    agree([table.reshape(-1, table.shape[-1])[1:] for table in tables], config, grid=(4, 6))


def test_sam3_has_windows_and_scaled_global_layers() -> None:
    seen, config = pictured(
        "sam3_vit_model", 6, 6, 2, image_size=84, window_size=3, num_hidden_layers=2, global_attn_indexes=[1]
    )
    agree(seen[0], config, layer_type="window")
    agree(seen[1], config, layer_type="global")


@pytest.mark.parametrize("model_type", MEMORIES)
def test_memories_of_sam(model_type: str) -> None:
    seen, config = remembered(model_type, MEMORIES[model_type])
    agree(seen[0], config)


def test_edgetam_has_another_grid_for_its_keys() -> None:
    sizes = {"memory_attention_rope_feat_sizes": [5, 4], "memory_attention_rope_k_sizes": [3, 2]}
    seen, config = remembered("edgetam_video", sizes)
    agree(seen[0], config, layer_type="query")
    agree(seen[1][:2], config, layer_type="query")
    agree(seen[1][2:], config, layer_type="key")
