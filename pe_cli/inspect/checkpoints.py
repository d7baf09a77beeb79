"""Position tensors of a checkpoint, named from its header alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pe_cli.files import TensorSpec

Shape = tuple[int, ...]


class Pattern(NamedTuple):
    """A key, what it is, and what the shape must be like."""

    key: re.Pattern[str]
    encoding: str
    role: str
    fits: Callable[[Shape], bool]


def _key(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(^|[./]){pattern}$")


def _dims(*allowed: int) -> Callable[[Shape], bool]:
    return lambda shape: len([n for n in shape if n != 1] or shape) in allowed


def _table(shape: Shape) -> bool:
    """(rows, width) with at least two rows, unit axes aside."""
    return len(shape) >= 2 and shape[-1] > 1 and len([n for n in shape if n > 1]) in (2, 3)


# First match wins: exact names of models before general ones. Sources: the state dictionaries of transformers,
# timm, the models' own code (reference names in parentheses where they are not plain).
PATTERNS = (
    Pattern(
        _key(r"(rotary_emb|rotary_embeddings|rope|rotary|pos_emb)\.(original_)?inv_freq"),
        "rope",
        "frequencies of rotary pairs",
        _dims(1),
    ),
    Pattern(_key(r"inv_freq"), "rope", "frequencies of rotary pairs", _dims(1)),
    Pattern(_key(r"rope\.freqs"), "rope", "frequencies of rotary pairs", _dims(1)),
    Pattern(_key(r"rope_embed\.periods"), "rope", "periods of rotary pairs (DINOv3)", _dims(1)),
    Pattern(_key(r"rope_freqs\.weight"), "rope", "divisors of rotary frequencies (ggml)", _dims(1)),
    Pattern(_key(r"rope_factors_(long|short)\.weight"), "rope", "LongRoPE divisors (ggml)", _dims(1)),
    Pattern(
        _key(r"(cos_sin_cache|(cos|sin)_(cached|cache)|freqs_cis|freqs_(cos|sin))"),
        "rope",
        "rotary table",
        _dims(2, 3),
    ),
    Pattern(
        _key(r"global_relative_attention_bias\.weight"),
        "t5",
        "bias of side positions (buckets, heads), LongT5",
        _dims(2),
    ),
    Pattern(_key(r"relative_attention_bias\.weight"), "t5", "bias by bucket (buckets, heads)", _dims(2)),
    Pattern(
        _key(r"rel_pos(_[xy])?_bias(\.weight)?"), "t5", "bias by bucket (heads, buckets), LayoutLM", _dims(2)
    ),
    Pattern(_key(r"rel_attn_embed\.weight"), "t5", "gated bias by bucket (WavLM)", _dims(2)),
    Pattern(_key(r"attn_rel_b\.weight"), "t5", "bias by bucket (ggml)", _dims(2)),
    Pattern(_key(r"rel_embeddings\.weight"), "deberta", "relative rows (2 S, dim), DeBERTa", _dims(2)),
    Pattern(
        _key(r"relative_position_bias_table"), "swin", "bias by window offset (offsets, heads)", _dims(2)
    ),
    Pattern(_key(r"relative_position_index"), "swin", "index of window offsets", _dims(2)),
    Pattern(_key(r"relative_coords_table"), "swin", "log coordinates of window offsets (Swin v2)", _dims(3)),
    Pattern(
        _key(r"(continuous_position_bias_mlp|cpb_mlp)\.\d+\.(weight|bias)"),
        "swin",
        "network of Swin v2's bias",
        _dims(1, 2),
    ),
    Pattern(_key(r"(relative_position_bias|relative_bias)(\.weight)?"), "t5", "relative bias", _dims(2, 3)),
    Pattern(_key(r"rel_pos_[hwt]"), "shaw", "decomposed relative rows (2 n - 1, head_dim)", _dims(2)),
    Pattern(_key(r"distance_embedding\.weight"), "shaw", "relative rows by distance", _dims(2)),
    Pattern(
        _key(r"(pe_k|emb_rel_[kv]|relative_(key|value)s?(_emb.*)?|[kv]_rel_pos)(\.weight)?"),
        "shaw",
        "relative rows by clipped distance",
        _dims(2, 3),
    ),
    Pattern(
        _key(r"(r_w_bias|r_r_bias|pos_bias_[uv])"),
        "transformer-xl",
        "learned bias of content or position",
        _dims(1, 2),
    ),
    Pattern(_key(r"(linear_pos|r_net)\.weight"), "transformer-xl", "projection of distance rows", _dims(2)),
    Pattern(_key(r"(alibi|slopes|alibi_slopes)"), "alibi", "slopes or bias by distance", _dims(1, 2, 3)),
    Pattern(_key(r"(bias_p|bias_a)"), "kerple", "parameters of the distance kernel", _dims(1)),
    Pattern(
        _key(r"(pos_conv_embed|pos_conv)\..*(weight|weight_g|weight_v|original\d|bias)"),
        "peg",
        "convolutional positions",
        _dims(1, 2, 3),
    ),
    Pattern(
        _key(r"(PEG|peg|pos_block)\.?.*\.proj.*\.(weight|bias)"),
        "peg",
        "depthwise convolution of positions",
        _dims(1, 3),
    ),
    Pattern(
        _key(
            r"(embed_positions|position_embeddings?|positional_embeddings?|position_embed|pos_embeds?|pos_embeddings?|pos_emb|wpe|position_encoding|positional_encoding|abs_pos_emb|absolute_pos_embed|position_embd|query_pos(ition)?_embeddings?|pe)(\.(weight|pe|pos_embed|position_embeddings?|embeddings?))?"
        ),
        "learned",
        "absolute positions (rows, dim)",
        _table,
    ),
    Pattern(
        _key(
            r"(row_embeddings?|column_embeddings?|row_embed|col_embed|[xyhw]_position_embeddings?|[hw]_position_embeddings?)(\.weight)?"
        ),
        "learned",
        "positions along one axis (rows, dim)",
        _table,
    ),
    Pattern(
        _key(
            r"(absolute_pos_embed_win|pos_embed_window|pos_embed_(spatial|temporal|class)|temporal_(pos_)?embed(ding)?s?)(\.weight)?"
        ),
        "learned",
        "positions along one axis (rows, dim)",
        _table,
    ),
)
# A table two rows longer than one of these keeps two rows in front (OPT, BART, RoBERTa: position p is row p + 2).
ROUND_LENGTHS = frozenset(2**k for k in range(6, 18))


@dataclass(frozen=True)
class PositionTensor:
    """A tensor that carries positions: the encoding it belongs to, its role, what the shape tells."""

    name: str
    encoding: str
    role: str
    facts: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "encoding": self.encoding, "role": self.role, **self.facts}


def describe_checkpoint(tensors: Mapping[str, TensorSpec]) -> dict[str, PositionTensor]:
    """The position tensors among `tensors`, by name and shape alone; no values are read."""
    found = {}
    for name, spec in tensors.items():
        for pattern in PATTERNS:
            if pattern.key.search(name) and pattern.fits(spec.shape):
                facts = _shape_facts(pattern, spec.shape)
                found[name] = PositionTensor(name, pattern.encoding, pattern.role, facts)
                break
    return found


def _shape_facts(pattern: Pattern, shape: Shape) -> dict[str, Any]:
    if pattern.encoding != "learned":
        if pattern.encoding == "rope" and len(shape) == 1:
            return {"dim": 2 * shape[0]}
        if pattern.encoding == "deberta" and shape[0] % 2 == 0:
            return {"position_buckets": shape[0] // 2}
        return {}
    live = [n for n in shape if n != 1]
    rows, width = (live[0], live[1]) if len(live) == 2 else (live[0] * live[1], live[2])
    facts: dict[str, Any] = {"rows": rows, "dim": width}
    if len(live) == 3:
        return facts | {"grid": f"{live[0]}x{live[1]}"}
    if rows - 2 in ROUND_LENGTHS:
        return facts | {"offset_rows": 2, "usable": rows - 2}
    for prefix in (1, 2, 5):
        side = round((rows - prefix) ** 0.5)
        if side > 3 and side * side == rows - prefix:
            return facts | {"prefix_rows": prefix, "grid": f"{side}x{side}"}
    return facts
