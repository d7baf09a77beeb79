"""Models of images and video that do not rotate."""

from __future__ import annotations

from typing import Any

from pe_cli.models.scheme import Scheme, learned, nowhere, sinusoidal

MAE_NOTE = (
    "the fixed table of the model has a row of zeros for the class token in front: --prefix-rows 1; "
    "checkpoints hold it as {}, column first, as the original code made it"
)


def _patches(where: str, source: str, **rest: Any) -> Scheme:
    """A learned table of image patches, with a row for the class token in most models."""
    return Scheme("learned", source, where=where, **rest)


def _mae(label: str, key: str, width: int, tensor: str) -> Scheme:
    note, source = MAE_NOTE.format(tensor), "modeling_vit_mae.py, initialize_weights"
    return sinusoidal(source, "mae", key, width, label=label, grid=(224, 16), note=note)


def _windows(source: str, side: int = 7, more: str = "") -> tuple[Scheme, ...]:
    note = (
        f"adds a learned bias for each offset in a window: `pe gen swin --window {{side}}x{{side}}{more}` makes the index "
        "(windows are smaller where a stage has fewer patches)"
    )
    return (Scheme("elsewhere", source, takes={"side": ("window_size", side)}, note=note),)


def _beit(source: str) -> tuple[Scheme, ...]:
    """A bias by offset, in each layer or shared, or the absolute table, or both; by default neither."""
    note = (
        "adds a learned bias for each offset on its grid of patches: `pe gen swin --window {grid} --class-token` makes the index, "
        "for the tensors that end in relative_position_bias_table"
    )
    every, shared = "use_relative_position_bias", "use_shared_relative_position_bias"
    return (
        *(Scheme("elsewhere", source, when={key: ((True,), False)}, grid=(224, 16), note=note) for key in (every, shared)),
        _patches(
            "embeddings.position_embeddings", source, when={"use_absolute_position_embeddings": ((True,), False)}
        ),
        nowhere(source, f"has no positions: its file has neither {every} nor {shared} nor use_absolute_position_embeddings"),
    )  # fmt: skip


IMAGES: dict[str, tuple[Scheme, ...]] = {
    "vit_mae": (
        _mae("encoder", "hidden_size", 768, "vit.embeddings.position_embeddings"),
        _mae("decoder", "decoder_hidden_size", 512, "decoder.decoder_pos_embed"),
    ),
    "videomae": tuple(
        sinusoidal(
            "modeling_videomae.py, get_sinusoid_encoding_table",
            "paper",
            key,
            width,
            label=label,
            note="a row for each tube of patches, frame by frame, row by row",
        )
        for label, key, width in (("encoder", "hidden_size", 768), ("decoder", "decoder_hidden_size", 384))
    ),
    "swin": _windows("modeling_swin.py"),
    "swinv2": _windows("modeling_swinv2.py", more=" --version 2"),
    "swin2sr": _windows("modeling_swin2sr.py", 8, " --version 2"),
    "donut-swin": _windows("modeling_donut_swin.py"),
    "maskformer-swin": _windows("modeling_maskformer_swin.py"),
    "beit": _beit("modeling_beit.py"),
    "data2vec-vision": _beit("modeling_data2vec_vision.py"),
    "imagegpt": (learned("wpe.weight", "n_positions", "n_embd", "modeling_imagegpt.py"),),
    **{
        name: (_patches("embeddings.position_embeddings", f"modeling_{name}.py"),)
        for name in ("vit", "deit", "dinov2", "vit_msn", "dpt")
    },
    **{
        name: (_patches("embeddings.position_embedding.weight", f"modeling_{name.partition('_')[0]}.py"),)
        for name in ("clip_vision_model", "siglip_vision_model", "siglip2_vision_model")
    },
}
