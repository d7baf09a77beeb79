"""Finding tables by header, offsets, layouts and outlier rows."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.errors import PeError
from pe_cli.extend import rows as tables
from pe_cli.extend.config import ModelConfig, offset_of
from pe_cli.extend.find import choose, find, recognise
from pe_cli.extend.plan import make_plan
from pe_cli.extend.request import ResizeRequest
from pe_cli.extend.rows import norms, outliers
from pe_cli.files import TensorSpec

KINDS = {
    "bert.embeddings.position_embeddings.weight": ((512, 64), "sequence"),
    "embeddings.position_embeddings": ((1, 197, 64), "grid"),
    "model.decoder.embed_positions.weight": ((2050, 64), "sequence"),
    "transformer.wpe.weight": ((1024, 64), "sequence"),
    "positions_embed.weight": ((512, 64), "sequence"),
    "text_model.embeddings.position_embedding.weight": ((77, 64), "sequence"),
    "vision_model.embeddings.position_embedding.weight": ((50, 64), "grid"),
    "visual.positional_embedding": ((50, 64), "grid"),
    "positional_embedding": ((77, 64), "sequence"),
    "pos_embed": ((1, 197, 64), "grid"),
    "visual.pos_embed.weight": ((2304, 64), "grid"),
    "vision_encoder.pos_embed": ((1, 64, 64, 32), "grid"),
    "Transformer/posembed_input/pos_embedding": ((1, 197, 64), "grid"),
    "layers.0.blocks.1.attn.relative_position_bias_table": ((169, 4), "window"),
    "vision_encoder.layers.2.attn.rel_pos_h": ((127, 64), "relative"),
    "model/bert/embeddings/position_embeddings/embeddings:0": ((512, 64), "sequence"),
    "vision_tower.patch_embedder.position_embedding_table": ((2, 100, 64), "sequence"),
    "embeddings.x_position_embeddings.weight": ((1024, 64), "sequence"),
    "query_position_embeddings.weight": ((100, 64), None),
    "prompt_encoder.shared_embedding.positional_embedding": ((2, 64), None),
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": ((32, 8), None),
    "embeddings.word_embeddings.weight": ((30000, 64), None),
    "vision_model.post_layernorm.weight": ((64,), None),
}


def specs(**shapes: tuple[int, ...]) -> dict[str, TensorSpec]:
    return {name: TensorSpec(name, "float32", shape) for name, shape in shapes.items()}


@pytest.mark.parametrize("name", KINDS)
def test_kind_by_name(name: str) -> None:
    shape, kind = KINDS[name]
    found = recognise(TensorSpec(name, "float32", shape))
    assert (found.kind if found else None) == kind


TWO_TABLES = specs(
    **{"text_model.position_embedding.weight": (77, 8), "vision_model.position_embedding.weight": (50, 8)}
)


def test_the_size_says_which_table() -> None:
    """Of CLIP's two tables one is a grid and one a sequence."""
    assert [c.name for c in choose(TWO_TABLES, [], "sequence", "clip")] == [
        "text_model.position_embedding.weight"
    ]
    assert [c.name for c in choose(TWO_TABLES, [], "grid", "clip")] == [
        "vision_model.position_embedding.weight"
    ]


def test_two_tables_are_listed() -> None:
    two = specs(**{f"model.{side}.embed_positions.weight": (34, 8) for side in ("encoder", "decoder")})
    with pytest.raises(PeError, match=r"2 position tables.*encoder.*decoder"):
        choose(two, [], "sequence", "bart")
    (one,) = choose(two, ["*decoder*"], "sequence", "bart")
    assert one.name == "model.decoder.embed_positions.weight"


def test_layers_move_together() -> None:
    tensors = specs(**{f"layers.{i}.relative_position_bias_table": (169, 4) for i in range(3)}, other=(3, 3))
    assert len(choose(tensors, [], "window", "swin")) == 3


def test_the_wrong_option_is_told() -> None:
    tensors = specs(**{"embeddings.position_embeddings": (1, 197, 8), "other": (3, 3)})
    with pytest.raises(PeError, match=r"say grid HxW"):
        choose(tensors, [], "sequence", "vit")


@pytest.mark.parametrize(
    ("names", "config", "words"),
    [
        (["layers.0.self_attn.rotary_emb.inv_freq"], "", "RoPE"),
        (["layers.0.self_attn.q_proj.weight"], '{"rope_theta": 10000}', "RoPE"),
        (["block.0.SelfAttention.relative_attention_bias.weight"], "", "T5"),
        (["h.0.weight"], '{"model_type": "bloom"}', "ALiBi"),
        (["h.0.weight"], '{"model_type":"falcon","alibi":true}', "ALiBi"),
        (
            ["h.0.weight"],
            '{"model_type":"falcon","alibi":false,"hidden_size":64,"num_attention_heads":2}',
            "RoPE",
        ),
        (["layers.0.self_attn.q_proj.weight"], '{"model_type":"xglm","d_model":64}', "sinusoidal positions"),
        (["layers.0.self_attn.q_proj.weight"], '{"model_type":"t5"}', "T5"),
        (["h.0.weight"], '{"model_type":"mamba2"}', "recurrence"),
        (["h.0.weight"], '{"model_type":4}', "tensor"),
        (["encoder.pos_conv_embed.conv.weight"], "", "convolution"),
        (["encoder.rel_embeddings.weight"], "", "DeBERTa"),
        (["layers.0.attn.cpb_mlp.0.weight"], "", "Swin v2"),
        (["a", "b"], "", "tensor"),
    ],
)
def test_models_without_a_table(names: list[str], config: str, words: str) -> None:
    tensors = specs(**dict.fromkeys([*names, "lm_head.weight"], (32, 8)))
    with pytest.raises(PeError, match=words):
        choose(tensors, [], "sequence", "model", config)


def test_a_quantised_table_is_refused() -> None:
    tensors = {
        "wpe.weight": TensorSpec("wpe.weight", "int8", (1024, 64)),
        "other": TensorSpec("other", "int8", (3, 3)),
    }
    with pytest.raises(PeError, match="quantised"):
        choose(tensors, [], "sequence", "model")


@pytest.mark.parametrize(
    ("rows", "config", "offset"),
    [
        (514, {"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 514}, 2),
        (512, {"model_type": "roberta", "pad_token_id": 3, "max_position_embeddings": 512}, 4),
        (66, {"model_type": "bart", "max_position_embeddings": 64}, 2),
        (514, {"model_type": "bert", "max_position_embeddings": 514}, 0),
        (1024, {"model_type": "led", "max_encoder_position_embeddings": 1024}, 0),
        (4098, {"model_type": "nystromformer", "max_position_embeddings": 4096}, 2),
    ],
)
def test_offset_rows(rows: int, config: dict[str, object], offset: int) -> None:
    model = ModelConfig(config, "config.json")
    assert offset_of("encoder.embed_positions.weight", rows, model)[0] == offset


@pytest.mark.parametrize(("rows", "offset"), [(512, 0), (514, 2), (1026, 2), (77, 0)])
def test_offset_rows_without_a_configuration(rows: int, offset: int) -> None:
    spec = TensorSpec("encoder.embed_positions.weight", "float32", (rows, 8))
    plan = make_plan({spec.name: spec}, ResizeRequest(length=2 * rows), None, "model")
    assert plan.tables[spec.name].layout.prefix == offset


class TestLayouts:
    @pytest.mark.parametrize(
        ("rows", "prefix", "side"), [(196, 0, 14), (197, 1, 14), (198, 2, 14), (1370, 1, 37)]
    )
    def test_prefix_by_an_exact_square(self, rows: int, prefix: int, side: int) -> None:
        found = tables.grid((1, rows, 8), "t", old=None, count=2, prefix=None, suffix=None)
        assert (found.prefix, found.old, found.axes) == (prefix, (side, side), (1,))

    def test_not_square_is_named(self) -> None:
        with pytest.raises(PeError, match=r"200 rows.*from_grid"):
            tables.grid((1, 200, 8), "t", old=None, count=2, prefix=None, suffix=None)

    def test_given_grid_that_does_not_fit(self) -> None:
        with pytest.raises(PeError, match="check from_grid"):
            tables.grid((1, 200, 8), "t", old=(14, 14), count=2, prefix=1, suffix=None)
        with pytest.raises(PeError, match="check from_grid"):
            tables.grid((1, 190, 8), "t", old=(14, 14), count=2, prefix=None, suffix=None)
        assert tables.grid((1, 200, 8), "t", old=(14, 14), count=2, prefix=1, suffix=3).suffix == 3

    @pytest.mark.parametrize(
        ("shape", "axes"), [((1, 14, 14, 64), (1, 2)), ((1, 64, 14, 14), (2, 3)), ((1, 7, 9, 64), (1, 2))]
    )
    def test_channels_last_or_first(self, shape: tuple[int, ...], axes: tuple[int, int]) -> None:
        assert tables.grid(shape, "t", old=None, count=2, prefix=None, suffix=None).axes == axes

    def test_detection_tokens_behind(self) -> None:
        found = tables.grid((1, 62, 8), "t", old=(7, 8), count=2, prefix=None, suffix=5)
        assert (found.prefix, found.suffix) == (1, 5)

    def test_windows(self) -> None:
        assert tables.window((169, 4), "t", None) == tables.PositionAxes((0,), (13, 13))
        assert tables.window((172, 4), "t", None) == tables.PositionAxes((0,), (13, 13), 0, 3)
        assert tables.window((4, 13, 13), "t", None).axes == (1, 2)
        assert tables.window((13 * 9, 4), "t", (7, 5)).old == (13, 9)
        with pytest.raises(PeError, match="from_window"):
            tables.window((170, 4), "t", None)

    @pytest.mark.parametrize(
        "case",
        [
            ((9, 4), tables.PositionAxes((0,), (6,), 2, 1)),
            ((1, 9, 4), tables.PositionAxes((1,), (3, 3))),
            ((2, 9, 4), tables.PositionAxes((1,), (9,))),
            ((1, 4, 3, 5), tables.PositionAxes((2, 3), (3, 5))),
            ((6, 1, 9, 4), tables.PositionAxes((2,), (9,))),
        ],
    )
    def test_rows_and_back(self, case: tuple[tuple[int, ...], tables.PositionAxes]) -> None:
        shape, where = case
        array = np.arange(np.prod(shape)).reshape(shape)
        assert np.array_equal(where.restore(where.rows_of(array), shape, where.old), array)


class TestOutliers:
    def table(self) -> np.ndarray:
        return np.random.default_rng(0).standard_normal((512, 64)).astype(np.float32)

    def test_none_in_a_random_table(self) -> None:
        narrow = np.random.default_rng(1).standard_normal((4096, 4))
        assert outliers(norms(self.table())).flagged == ()
        assert outliers(norms(narrow)).head == 0

    def test_ends_and_middle(self) -> None:
        table = self.table()
        table[[0, 200, 510, 511]] *= 4
        found = outliers(norms(table))
        assert (found.flagged, found.head, found.tail) == ((0, 200, 510, 511), 1, 2)

    def test_norms_of_low_precision(self) -> None:
        table = self.table()
        assert np.allclose(norms(table.astype(np.float16)), np.linalg.norm(table, axis=1), rtol=1e-3)


def test_find_keeps_the_order_of_the_file() -> None:
    assert [found.name for found in find(TWO_TABLES.values())] == list(TWO_TABLES)


TWO_STACKS = {
    name: TensorSpec(name, "float32", shape)
    for name, shape in {
        "encoder.embed_positions.weight": (64, 8),
        "decoder.embed_positions.weight": (64, 8),
        "decoder.layernorm_embedding.bias": (8,),
        "decoder.layers.0.self_attn.q_proj.weight": (8, 8),
        "decoder.embed_tokens.weight": (99, 8),
    }.items()
}


def test_a_glob_chooses_among_position_tables() -> None:
    """`decoder.*` matches a whole decoder, of which one tensor has a row for each position."""
    (only,) = choose(TWO_STACKS, ["decoder.*"], "sequence", "x")
    assert only.name == "decoder.embed_positions.weight"
    with pytest.raises(PeError, match="write the name of a table in full"):
        choose(TWO_STACKS, ["decoder.l*"], "sequence", "x")
    (named,) = choose(TWO_STACKS, ["decoder.embed_tokens.weight"], "sequence", "x")
    assert named.name == "decoder.embed_tokens.weight"


@pytest.mark.parametrize(
    ("value", "remedy"),
    [(99, "correct the configuration, or give"), (30, "give offset 34 if that many rows")],
)
def test_what_does_not_fit_is_answered_by_what_can_be_typed(value: int, remedy: str) -> None:
    name = "bert.embeddings.position_embeddings.weight"
    config = ModelConfig({"model_type": "bert", "max_position_embeddings": value}, "config.json")
    with pytest.raises(PeError, match=remedy):
        make_plan({name: TensorSpec(name, "float32", (64, 8))}, ResizeRequest.of(length=128), config, "x")
