"""One table of names: for every name in it `inspect`, `extend` and `gen model` say the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pe_cli.extend.config import ModelConfig, offset_of
from pe_cli.extend.find import recognise
from pe_cli.extend.rows import grid
from pe_cli.files import TensorSpec
from pe_cli.inspect.learned import describe_checkpoint
from pe_cli.models.configuration import known_types, schemes
from pe_cli.models.resolve import from_config
from pe_cli.models.resolved import LearnedTableError
from pe_cli.position_names import BEHIND_PADDING, NAMES, TWO_IN_FRONT, front_of_model, front_of_rows, named

# A name for every row of the table, as models have it: its shape, encoding and kind.
EXAMPLES: dict[str, tuple[tuple[int, ...], str | None, str | None]] = {
    "query_position_embeddings.weight": ((100, 64), None, None),
    "decoder.relative_pos_embeddings.weight": ((32, 64), None, None),
    "model.layers.3.self_attn.rotary_emb.inv_freq": ((32,), "rope", None),
    "rope_embed.periods": ((16,), "rope", None),
    "encoder/relpos_bias/rel_embedding": ((4, 32), "t5", None),
    "rope_freqs.weight": ((64,), "rope", None),
    "rope_factors_long.weight": ((48,), "rope", None),
    "freqs_cis": ((1024, 64), "rope", None),
    "encoder.block.0.layer.0.SelfAttention.global_relative_attention_bias.weight": ((32, 8), "t5", None),
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": ((32, 8), "t5", None),
    "encoder.rel_pos_bias.weight": ((12, 32), "t5", None),
    "encoder.layers.0.attention.rel_attn_embed.weight": ((320, 12), "t5", None),
    "enc.blk.0.attn_rel_b.weight": ((8, 32), "t5", None),
    "deberta.encoder.rel_embeddings.weight": ((512, 64), "deberta", None),
    "layers.0.blocks.1.attn.relative_position_bias_table": ((169, 4), "swin", "window"),
    "layers.0.blocks.1.attn.relative_position_index": ((49, 49), "swin", None),
    "layers.0.blocks.1.attn.relative_coords_table": ((1, 13, 13, 2), "swin", None),
    "layers.0.blocks.1.attn.cpb_mlp.0.weight": ((512, 2), "swin", None),
    "vision_encoder.layers.2.attn.rel_pos_h": ((127, 64), "shaw", "relative"),
    "encoder.layer.0.attention.relative_position_bias": ((12, 7, 7), "t5", None),
    "encoder.layer.0.attention.self.distance_embedding.weight": ((127, 16), "shaw", None),
    "encoder.embed_positions.pe_k.weight": ((320, 64), "shaw", None),
    "attn.relative_position_embedding.weight": ((63, 16), "shaw", None),
    "transformer.layers.0.dec_attn.r_w_bias": ((8, 64), "transformer-xl", None),
    "encoder.layers.0.self_attn.linear_pos.weight": ((64, 64), "transformer-xl", None),
    "alibi": ((12, 1, 64), "alibi", None),
    "layers.0.attention.bias_p": ((12,), "kerple", None),
    "encoder.pos_conv_embed.conv.weight_g": ((1, 1, 128), "peg", None),
    "pos_block.0.proj.0.weight": ((64, 1, 3, 3), "peg", None),
    "prompt_encoder.shared_embedding.positional_embedding": ((2, 64), "fourier", None),
    "vision_model.gated_positional_embedding.tile_embedding.weight": ((9, 1600), "learned", "grid"),
    "vision_model.pre_tile_positional_embedding.embedding.weight": ((9, 256), "learned", None),
    "vision_model.gated_positional_embedding.embedding": ((50, 8), "learned", "grid"),
    "text_encoder.embeddings.position_embedding.position_embedding": ((1, 1, 77, 512), "learned", "sequence"),
    "embedding.pos.embedding.weight": ((512, 64), "learned", "sequence"),
    "levels.0.blocks.0.attention.self.rpb": ((2, 13, 13), "swin", None),
    "layers.0.self_attn.rel_logits_proj.proj": ((64, 64), "shaw", None),
    "encoder.relative_attention_bias_layer.bias_values.weight": ((1000, 16), "t5", None),
    "char_embeddings.char_position_embeddings.weight": ((64, 32), "learned", None),
    "pixel_pos": ((1, 24, 4, 4), "learned", None),
    "patch_pos": ((1, 197, 64), "learned", "grid"),
    "levels.0.pos_embed": ((1, 16, 196, 64), "learned", "grid"),
    "stages.1.blocks.0.attn.attention_biases": ((4, 196), "learned", "bias"),
    "embeddings.position_embeddings.weights.0": ((16, 1, 8), "learned", "axial"),
    "row_position_embeddings.weight": ((100, 64), "learned", "sequence"),
    "col_position_embeddings.weight": ((100, 64), "learned", "sequence"),
    "embeddings.x_position_embeddings.weight": ((1024, 64), "learned", "sequence"),
    "layout_embeddings.box_position_embeddings.weight": ((514, 48), "learned", "sequence"),
    "row_embeddings.weight": ((50, 64), "learned", "sequence"),
    "vit.encoder.mid_position_embeddings": ((3, 1, 297, 64), "learned", "grid"),
    "vision.embeddings.time_embeddings": ((1, 6, 8), "learned", "sequence"),
    "pos_embed_window": ((1, 64, 8, 8), "learned", "grid"),
    "cls_positional_encoding.pos_embed_class": ((1, 1, 64), "learned", None),
    "visual_bert.embeddings.visual_position_embeddings.weight": ((512, 64), "learned", "sequence"),
    "vision_tower.patch_embedder.position_embedding_table": ((2, 100, 64), "learned", "sequence"),
    "position_embedding_table.weight": ((256, 64), "learned", "sequence"),
    "vision_model.embeddings.position_embedding.weight": ((50, 64), "learned", "grid"),
    "Transformer/posembed_input/pos_embedding": ((1, 197, 64), "learned", "grid"),
    "v.position_embd.weight": ((577, 64), "learned", "grid"),
    "pos_embed": ((1, 197, 64), "learned", "grid"),
    "model.decoder.embed_positions.weight": ((770, 64), "learned", "sequence"),
    "positions_embed.weight": ((512, 64), "learned", "sequence"),
    "embeddings.position_embeddings": ((1, 197, 64), "learned", "grid"),
    "model/bert/embeddings/position_embeddings/embeddings:0": ((512, 64), "learned", "sequence"),
    "pos_emb": ((1, 128, 64), "learned", "sequence"),
    "pos_encoder.pe": ((24, 1, 8), "learned", "sequence"),
    "absolute_pos_embed": ((1, 196, 64), "learned", "grid"),
    "encoder.pe": ((1, 24, 8), "learned", "sequence"),
    "abs_pos_emb": ((128, 64), "learned", "sequence"),
    "backbone.bert.embeddings.position_embeddings.embedding": ((770, 64), "learned", "sequence"),
    "layers/position_embedding/vars/0": ((256, 64), "learned", "sequence"),
    "wpe.weight": ((24, 8), "learned", "sequence"),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_inspect_and_extend_say_the_same(name: str) -> None:
    shape, encoding, kind = EXAMPLES[name]
    spec = TensorSpec(name, "float32", shape)
    seen = describe_checkpoint({name: spec}).get(name)
    found = recognise(spec)
    assert (seen.encoding if seen else None) == encoding
    assert (found.kind if found else None) == kind
    if seen is None or found is None or seen.encoding != "learned":
        return
    if found.kind == "sequence":
        assert seen.facts.get("offset_rows", 0) == (
            front.rows if (front := front_of_rows(max(shape[:-1]))) else 0
        )
    elif found.kind == "grid" and "grid" in seen.facts and len(shape) < 4:
        axes = grid(shape, name, old=None, count=2, prefix=None, suffix=None)
        assert seen.facts.get("prefix_rows", 0) == axes.prefix
        assert seen.facts["grid"] == "x".join(map(str, axes.old))


def test_every_row_of_the_table_has_an_example() -> None:
    rows = {
        id(row) for name, (shape, encoding, _) in EXAMPLES.items() if encoding and (row := named(name, shape))
    }
    missing = [row.role for row in NAMES if row.encoding is not None and id(row) not in rows]
    assert not missing


LEARNED = [(kind, s) for kind in sorted(known_types()) for s in schemes(kind) if s.encoding == "learned"]


@pytest.mark.parametrize(
    ("kind", "scheme"), LEARNED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_gen_model_points_at_names_that_the_others_know(kind: str, scheme: object) -> None:
    where = re.sub(r"\(.*?\)", "", getattr(scheme, "where"))  # noqa: B009
    for name in re.split(r" (?:and|or) ", where.strip()):
        if not name.endswith(".gate"):
            rows = [named(name, shape) for shape in ((50, 64), (1, 50, 64), (1, 8, 8, 64))]
            assert any(row is not None and row.encoding is not None for row in rows), name


@pytest.mark.parametrize("kind", sorted((BEHIND_PADDING | TWO_IN_FRONT) & set(known_types())))
def test_gen_model_and_extend_count_the_same_rows_in_front(kind: str) -> None:
    front = front_of_model(kind, 1)
    assert front is not None
    config = {
        "model_type": kind,
        "hidden_size": 64,
        "d_model": 64,
        "max_position_embeddings": 514 if front.counted else 512,
        "pad_token_id": 1,
        "has_relative_attention_bias": False,
        "position_embedding_type": "absolute",
    }
    name = "embeddings.position_embeddings.weight"
    assert offset_of(name, 514, ModelConfig(config, "config.json"))[0] == front.rows == 2
    if kind != "mpnet":  # its relative bias is the table that `gen model` makes
        with pytest.raises(LearnedTableError) as caught:
            from_config(config, np.arange(2))
        assert caught.value.shape in (None, (514, 64))
        assert "2 rows in front" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "shape", "encoding", "kind"),
    [
        ("transformer/wpe/weight:0", (64, 8), "learned", "sequence"),
        ("positional_encoding.pos_embedding", (64, 8), "learned", "sequence"),
        ("encoder.embed_position.weight", (64, 8), "learned", "sequence"),
        (
            "encoder/block_._0/layer_._0/SelfAttention/relative_attention_bias/embeddings:0",
            (32, 4),
            "t5",
            None,
        ),
        ("deberta/encoder/rel_embeddings/embeddings:0", (512, 8), "deberta", None),
    ],
)
def test_names_of_other_libraries(name: str, shape: tuple[int, ...], encoding: str, kind: str | None) -> None:
    row = named(name, shape)
    assert row is not None
    assert (row.encoding, row.kind) == (encoding, kind)
