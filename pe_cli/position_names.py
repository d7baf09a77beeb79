"""Names of position tensors: the one table that `pe inspect`, `pe extend` and `pe gen model` ask.

A row says what a tensor of that name is, which shapes it may have, how `pe extend` counts its positions, and who
names it so. Beside it stands what only the type of a model tells: how many rows lie in front of position 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

# How the positions of a table are counted: along a sequence, on a grid of patches, by the signed offset of two cells
# of a window, by the distance of two cells in rows and columns, by distance along one axis, one factor for each axis.
Kind: TypeAlias = Literal["sequence", "grid", "window", "bias", "relative", "axial"]

# The ends of a name in torch, TensorFlow, Keras 3, Flax and quantised files.
_END = r"(?:[./]weight(?::0)?|\.qweight|\.weight_packed|[./]embeddings?(?::0)?|\.embedding\.weight|\.emb(?:\.weight)?|\.pe|/pe|[./]vars/0|:0)?$"
_START = r"(?:^|[._/])"
_VISION = r"(?:vision|visual|video|image|patch|pixel|vit\b|detr)"
_POSITION = r"(?:pos(?:ition)?(?:al)?_?(?:emb(?:ed(?:ding|ed)?)?s?|encodings?))"


@dataclass(frozen=True)
class PositionName:
    """What a tensor is whose name matches `pattern`.

    pattern   regular expression for the end of the name in small letters
    encoding  encoding it belongs to; None where the name looks like a position tensor's and is none
    role      what it holds, in words
    ranks     numbers of axes that it may have, axes of one entry included
    kind      how its positions are counted, where its rows are positions that can be resampled
    main      whether it is the table that a model's length is about; others follow it or have to be named
    either    whether a sequence and a grid go by this name: who resizes it says which
    axis      the axis on which positions lie in a row, where the shape alone would be read otherwise
    fields    what counts its positions in a configuration
    remark    where it cannot be resampled: what to say of the model
    source    whose name it is
    """

    pattern: str
    encoding: str | None
    role: str
    ranks: tuple[int, ...]
    kind: Kind | None = None
    main: bool = True
    either: bool = False
    axis: int | None = None
    fields: tuple[str, ...] = ()
    remark: str = ""
    source: str = ""


def _rows(pattern: str, role: str, kind: Kind, ranks: tuple[int, ...], **rest: Any) -> PositionName:
    """A learned table whose rows are positions."""
    return PositionName(pattern, "learned", role, ranks, kind, **rest)


# What counts the rows of a table of tokens in a configuration.
LENGTH_FIELDS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_source_positions",
    "max_target_positions",
    "max_encoder_position_embeddings",
    "max_decoder_position_embeddings",
    "num_position_embeddings",
    "position_embedding_size",
)
# Where a field is left out since it has its default, this is the one to write.
LENGTH_FIELD_OF = {"gpt2": "n_positions", "openai-gpt": "n_positions", "gpt_bigcode": "n_positions"}
# Types whose length has a name of its own; in other types that name means something else.
OWN_LENGTH_FIELD = {
    **dict.fromkeys(("semantic", "coarse_acoustics", "fine_acoustics"), "block_size"),
    "mpt": "max_seq_len",
}
# What counts the cells of a grid: by the pixels of the image, by each side, as a pair, or all of them.
IMAGE_FIELDS = ("max_img_size", "max_image_size", "pretrain_image_size", "image_size", "input_size")
SIDE_FIELDS = ("pos_emb_height", "pos_emb_width")
PAIR_FIELDS = ("window_positional_embedding_background_size",)
COUNT_FIELDS = ("num_position_embeddings", "num_patches", "n_positions")
# Names of tensors of parts that take no tokens.
OTHER_TOWERS = re.compile(r"vision|visual|image|audio|\bvit\b", re.IGNORECASE)
ROPE = "rotary position embeddings (RoPE), scaled by config.json: `pe extend FOLDER --len N --scaling yarn` writes it (see `pe gen rope`)"
ALIBI = "ALiBi biases, computed at run time; any length works"
T5 = "T5-like buckets of distance; any length works"
DEBERTA = "DeBERTa-like relative embeddings, not rows by length"
SWIN2 = "Swin v2's coordinate network: nothing to resample"
DISTANCE_ROWS = (
    "sinusoidal rows by distance (Transformer-XL, XLNet, Conformer), computed at run time; any length works"
)
CONVOLUTION = "a convolution as position encoding (wav2vec 2), free of length"

# The first row that matches counts: exact names of models come before general ones.
NAMES: tuple[PositionName, ...] = (
    # What only looks like a position tensor.
    PositionName(
        r"query_pos(?:ition)?_embed\w*" + _END, None, "learned queries of a decoder", (1, 2, 3), source="DETR"
    ),
    PositionName(
        r"relative_pos_embeddings\.weight$", None, "a linear layer", (2,), source="ProphetNet"
    ),
    # Rotary.
    PositionName(
        _START + r"(?:(?:original_)?inv_freq|(?:rope|rotary\w*)\.freqs)$", "rope", "frequencies of rotary pairs", (1,), remark=ROPE
    ),
    PositionName(
        r"rope_embed\.periods$", "rope", "periods of rotary pairs", (1,), remark=ROPE, source="DINOv3"
    ),
    PositionName(
        r"rope_freqs\.weight$", "rope", "divisors of rotary frequencies", (1,), remark=ROPE, source="ggml"
    ),
    PositionName(
        r"rope_factors_(?:long|short)\.weight$", "rope", "LongRoPE divisors", (1,), remark=ROPE, source="ggml"
    ),
    PositionName(
        _START + r"(?:cos_sin_cache|(?:cos|sin)_(?:cached|cache)|freqs_cis|freqs_(?:cos|sin))$",
        "rope",
        "rotary table",
        (2, 3, 4),
        remark=ROPE,
    ),
    # Biases and rows by distance.
    PositionName(
        r"global_relative_attention_bias\.weight$",
        "t5",
        "bias of side positions (buckets, heads)",
        (2,),
        remark=T5,
        source="LongT5",
    ),
    PositionName(
        r"relative_attention_bias" + _END, "t5", "bias by bucket (buckets, heads)", (2,), remark=T5, source="T5, MPNet"
    ),
    PositionName(
        r"rel_pos(?:_[xy])?_bias(?:\.weight)?$",
        "t5",
        "bias by bucket (heads, buckets)",
        (2,),
        remark=T5,
        source="LayoutLMv2 and v3",
    ),
    PositionName(
        r"relpos_bias/rel_embedding$", "t5", "bias by bucket (heads, buckets)", (2,), remark=T5, source="T5X"
    ),
    PositionName(r"rel_attn_embed\.weight$", "t5", "gated bias by bucket", (2,), remark=T5, source="WavLM"),
    PositionName(r"attn_rel_b\.weight$", "t5", "bias by bucket", (2,), remark=T5, source="ggml"),
    PositionName(
        r"rel_embeddings" + _END, "deberta", "relative rows (2 S, dim)", (2,), remark=DEBERTA, source="DeBERTa"
    ),
    PositionName(
        r"relative_position_bias_table$",
        "swin",
        "bias by offset inside a window (offsets, heads)",
        (2, 3),
        "window",
        source="Swin, BEiT",
    ),
    PositionName(r"relative_position_index$", "swin", "index of window offsets", (2,), source="Swin, BEiT"),
    PositionName(
        r"relative_coords_table$", "swin", "log coordinates of window offsets", (3, 4), remark=SWIN2, source="Swin v2"
    ),
    PositionName(
        r"(?:continuous_position_bias_mlp|cpb_mlp)\.\d+\.(?:weight|bias)$",
        "swin",
        "network of the bias by offset",
        (1, 2),
        remark=SWIN2,
        source="Swin v2",
    ),
    PositionName(
        _START + r"rel(?:ative)?_pos(?:ition)?_[hwt]$",
        "shaw",
        "rows by distance along one axis (2 n - 1, head_dim)",
        (2,),
        "relative",
        main=False,
        source="ViTDet, SAM, MViT",
    ),
    PositionName(
        _START + r"(?:relative_position_bias|relative_bias)(?:\.weight)?$", "t5", "relative bias", (2, 3), remark=T5
    ),
    PositionName(
        r"distance_embedding\.weight$", "shaw", "rows by distance", (2,), source="BERT with relative_key"
    ),
    PositionName(
        _START + r"(?:pe_k|emb_rel_[kv]|relative_(?:key|value)s?(?:_emb.*)?|[kv]_rel_pos)(?:\.weight)?$",
        "shaw",
        "rows by clipped distance",
        (2, 3),
    ),
    PositionName(
        _START + r"rel(?:ative)?_" + _POSITION + _END, "shaw", "rows by distance", (2, 3), main=False
    ),
    PositionName(r"relative_attention_bias_layer\.bias_values\.weight$", "t5", "bias by bucket", (2,), remark=T5),
    PositionName(
        r"(?:rel_logits_proj|relative_position_bias)\.proj$|relative_position_embedding\.pos_proj\.weight$",
        "shaw",
        "projection of rows by distance",
        (1, 2, 3),
    ),
    PositionName(
        r"attention\.self\.rpb$", "swin", "bias by offset inside a neighbourhood", (3,), source="NAT, DiNAT"
    ),
    PositionName(
        _START + r"(?:r_w_bias|r_r_bias|pos_bias_[uv])$",
        "transformer-xl",
        "learned bias of content or position", (1, 2), remark=DISTANCE_ROWS,
        source="Transformer-XL, Conformer",
    ),
    PositionName(
        _START + r"(?:linear_pos|r_net)\.weight$",
        "transformer-xl",
        "projection of distance rows",
        (2,),
        source="Transformer-XL, Conformer",
    ),
    PositionName(
        _START + r"(?:alibi|slopes|alibi_slopes)$", "alibi", "slopes or bias by distance", (1, 2, 3), remark=ALIBI
    ),
    PositionName(
        _START + r"(?:bias_p|bias_a)$", "kerple", "parameters of the distance kernel", (1, 2, 3), source="KERPLE"
    ),
    # Convolutions.
    PositionName(
        r"(?:pos_conv_embed|pos_conv)\..*(?:weight|weight_g|weight_v|original\d|bias)$",
        "peg",
        "convolution of positions",
        (1, 2, 3),
        remark=CONVOLUTION,
        source="wav2vec 2",
    ),
    PositionName(
        _START + r"(?:peg|pos_block)\.?.*\.proj.*\.(?:weight|bias)$",
        "peg",
        "depthwise convolution of positions",
        (1, 4),
        source="CPVT, Twins",
    ),
    # Tables beside the main one.
    PositionName(
        r"(?:prompt_encoder|shared_image_embedding|shared_embedding).*positional_embedding$",
        "fourier",
        "random frequencies of a prompt's coordinates",
        (2,),
        source="SAM",
    ),
    _rows(
        r"gated_positional_embedding\.tile_embedding\.weight$",
        "grid rows of every tile, by aspect ratio",
        "grid",
        (2,),
        main=False,
        source="Llama 3.2 Vision",
    ),
    PositionName(
        r"(?:tile_position|tile_positional|aspect_ratio).*" + _END,
        "learned",
        "rows by tile of an image",
        (2, 3, 4),
        source="Llama 3.2 Vision",
    ),
    _rows(
        _START + r"[xyhw]_position_embeddings" + _END,
        "rows by page coordinate",
        "sequence",
        (2,),
        main=False,
        fields=("max_2d_position_embeddings",),
        source="LayoutLM",
    ),
    _rows(
        _START + r"box_position_embeddings" + _END,
        "rows by token for the layout",
        "sequence",
        (2,),
        main=False,
        source="LiLT",
    ),
    _rows(
        _START + r"row_position_embeddings" + _END,
        "rows along one axis of a grid",
        "sequence",
        (2,),
        main=False,
        fields=("max_grid_row_position_embeddings",),
        source="TVP",
    ),
    _rows(
        _START + r"col_position_embeddings" + _END,
        "rows along one axis of a grid",
        "sequence",
        (2,),
        main=False,
        fields=("max_grid_col_position_embeddings",),
        source="TVP",
    ),
    _rows(
        _START + r"(?:row|col|column)_embed(?:ding|der)?s?" + _END,
        "rows along one axis of a grid",
        "sequence",
        (2,),
        main=False,
        source="DETR, Pix2Struct",
    ),
    _rows(
        r"mid_position_embeddings$", "grid rows of each layer", "grid", (4,), main=False, axis=2, source="YOLOS"
    ),
    _rows(
        _START
        + r"(?:time_embeddings|temporal_(?:pos_)?embed(?:ding)?s?|time_pos_embed|pos_embed_temporal|mit\.position_embedding)"
        + _END,
        "rows by frame",
        "sequence",
        (2, 3),
        main=False,
        fields=("num_frames",),
        source="TimeSformer, X-CLIP, MViT",
    ),
    _rows(
        _START + r"(?:pos_embed_window|absolute_pos_embed_win)$",
        "window part of a grid",
        "grid",
        (4,),
        main=False,
        source="Hiera",
    ),
    PositionName(
        _START + r"pos_embed_class$", "learned", "row of the class token", (2, 3), source="MViT"
    ),
    PositionName(
        _START + r"char_position_embeddings\.weight$",
        "learned",
        "rows by character",
        (2,),
        remark="rows that num_hash_buckets counts, as it does its tables of hashes (CANINE): its code takes no other number of them",
        source="CANINE",
    ),
    _rows(
        _START + r"visual_position_embeddings" + _END,
        "rows by visual token",
        "sequence",
        (2,),
        main=False,
        source="VisualBERT",
    ),
    PositionName(_START + r"pixel_pos$", "learned", "positions inside a patch", (4,), source="TNT"),
    # Main tables.
    _rows(
        _START + r"(?:pos_encod(?:er|ing)|positional_encod(?:er|ing))\.(?:pe|weight|pos_embedding)$",
        "rows by position",
        "sequence",
        (2, 3),
        either=True,
        source="the tutorial of PyTorch",
    ),
    _rows(
        r"gated_positional_embedding\.embedding$", "rows by image patch", "grid", (2,), source="Llama 3.2 Vision"
    ),
    _rows(_START + r"patch_pos$", "rows by image patch", "grid", (3,), source="TNT"),
    _rows(r"levels\.\d+\.pos_embed$", "rows by patch of a block", "grid", (4,), axis=2, source="Nest"),
    _rows(
        r"attention_biases$",
        "bias by distance in rows and columns (heads, distances)",
        "bias",
        (2,),
        source="LeViT, TinyViT, EfficientFormer",
    ),
    _rows(r"position_embeddings\.weights\.\d+$", "factor of one axis", "axial", (3,), source="Reformer"),
    _rows(r"position_embedding\.position_embedding$", "rows by token", "sequence", (4,), source="MobileCLIP"),
    _rows(r"embedding\.pos\.embedding\.weight$", "rows by token", "sequence", (2,), source="TencentPretrain"),
    _rows(
        r"position_embedding_table$", "one table for each axis", "sequence", (3,), source="Gemma 4 vision"
    ),
    _rows(r"position_embedding_table" + _END, "rows by token", "sequence", (2,)),
    _rows(
        _VISION + r".*(?:" + _POSITION + r"|embed_positions)" + _END,
        "rows by image patch",
        "grid",
        (2, 3, 4),
        source="CLIP, SAM and other towers",
    ),
    _rows(r"posembed_input/pos_embedding$", "rows by image patch", "grid", (3,), source="ViT-JAX"),
    _rows(_START + r"v\.position_embd" + _END, "rows by image patch", "grid", (2,), source="ggml"),
    _rows(
        _START + r"pos_embed(?:ding|ed)?s?(?:\.pos_embed|_spatial|_?\d)?$",
        "rows by image patch",
        "grid",
        (2, 3, 4),
        source="timm, diffusers",
    ),
    _rows(_START + r"embed_positions?" + _END, "rows by token", "sequence", (2, 3), source="fairseq, BART and kin"),
    _rows(
        _START + r"(?:wpe|positions_embed|a?\.?position_embd)" + _END,
        "rows by token",
        "sequence",
        (2,),
        source="GPT, ggml",
    ),
    _rows(
        _START + r"position_embeddings?$",
        "rows by image patch, behind class tokens",
        "grid",
        (3, 4),
        source="ViT and kin of transformers",
    ),
    _rows(
        _START + r"(?:position_embeddings?|positional_embeddings?|positional_embedding_res|position_embeds(?:_layer)?|position_enc)"
        + _END,
        "rows by token",
        "sequence",
        (2, 3),
        source="BERT, CLIP and many more",
    ),
    _rows(_START + _POSITION + _END, "rows by position", "sequence", (2, 3), either=True, source="minGPT and others"),
    _rows(_START + r"pe" + _END, "rows by position", "sequence", (2, 3, 4), either=True),
)  # fmt: skip

_DIGITS = re.compile(r"\d+")


def named(name: str, shape: Sequence[int]) -> PositionName | None:
    """What a tensor called `name` of `shape` is, or None where the name tells nothing of positions.

    >>> named("transformer.wpe.weight", (1024, 768)).kind
    'sequence'
    """
    found = _named(_DIGITS.sub("0", name.lower()), len(shape))  # the layers of a model share one answer
    if found is None or found.encoding is None:
        return None
    if found.kind in ("sequence", "grid") and sum(size > 1 for size in shape) < 2:
        return None
    return found


@lru_cache(maxsize=4096)
def _named(name: str, rank: int) -> PositionName | None:
    # `re` keeps what it compiles; all of them together take a twentieth of what starting takes, and many runs need none.
    return next((row for row in NAMES if rank in row.ranks and re.search(row.pattern, name)), None)


# Positions begin at pad_token_id + 1, and the length in the configuration counts the rows in front as well
# (`create_position_ids_from_input_ids` in transformers, of fairseq).
BEHIND_PADDING = frozenset({
    "roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "mpnet", "esm", "data2vec-text",
    "ibert", "xmod", "lilt", "luke", "roberta-prelayernorm", "layoutlmv3", "markuplm", "bridgetower_text_model",
    "clap_text_model", "altclip_text_model",
})  # fmt: skip
# Two rows stand in front of position 0 beside those that the configuration counts.
TWO_IN_FRONT = frozenset({
    "bart", "mbart", "plbart", "mvp", "trocr", "opt", "biogpt", "nystromformer", "yoso", "mra", "florence2",
    "florence2_language",
})  # fmt: skip
PADDING = 1  # pad_token_id of the models above, where their file does not say


@dataclass(frozen=True)
class Front:
    """Rows before position 0, and whether the length in the configuration counts them as well."""

    rows: int
    counted: bool
    why: str


def front_of_model(model_type: str, pad_token_id: Any = None) -> Front | None:
    """The rows in front of position 0 of a table of tokens of this type of model, or None where the type tells nothing."""
    if model_type in BEHIND_PADDING:
        pad = pad_token_id if type(pad_token_id) is int else PADDING
        return Front(pad + 1, True, f"{model_type}: positions begin at pad_token_id + 1")
    if model_type in TWO_IN_FRONT:
        return Front(2, False, f"{model_type}: positions begin at row 2")
    return None


ROUND = 64  # lengths of tables of tokens are multiples of it
# No special row, a class token, one for distillation too, a class token and four registers.
GRID_PREFIXES = (0, 1, 2, 5)


def front_of_rows(rows: int) -> Front | None:
    """Two rows in front where a table has two rows more than a round length (RoBERTa, BART, OPT), from the number alone."""
    if rows > ROUND and rows % ROUND == 2:
        return Front(2, False, f"{rows} rows are {rows - 2} and 2 (as in RoBERTa, BART and OPT)")
    return None


def squares(rows: int, axes: int = 2, prefixes: Sequence[int] = GRID_PREFIXES) -> Iterator[tuple[int, int]]:
    """(special rows, side) where `rows` are a square (cube) behind that many special rows; never a rounded root."""
    for special in prefixes:
        side = round(max(rows - special, 0) ** (1 / axes))
        if side > 1 and side**axes == rows - special:
            yield special, side
