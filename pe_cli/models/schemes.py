"""Models that do not rotate: which of their configurations means which encoding, or where their learned table lies."""

from __future__ import annotations

from typing import Any

from pe_cli.models.image_schemes import IMAGES
from pe_cli.models.scheme import Scheme, fairseq, learned, nowhere, sinusoidal
from pe_cli.models.speech_schemes import SPEECH

T5_TAKES = {
    "num_buckets": ("relative_attention_num_buckets", 32),
    "max_distance": ("relative_attention_max_distance", 128),
}
DEBERTA_TAKES = {
    "position_buckets": ("position_buckets", -1),
    "max_relative_positions": ("max_relative_positions", -1),
}
DEBERTA_LENGTH: dict[str, tuple[str, int] | None] = {
    "max_relative_positions": ("max_position_embeddings", 512)
}
T5_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"


def _t5(source: str, bias: str = T5_BIAS) -> tuple[Scheme, ...]:
    table = f"the learned bias is the tensor that ends in {bias}: `pe gen t5 --table FILE:TENSOR` expands it"
    both = {"takes": T5_TAKES, "source": source}
    return (
        Scheme("t5", label="encoder", fixed={"bidirectional": True}, note=table, **both),  # type: ignore[arg-type]
        Scheme("t5", label="decoder", fixed={"bidirectional": False}, note=table, **both),  # type: ignore[arg-type]
    )


def _bert(source: str, **rest: Any) -> tuple[Scheme, ...]:
    where = "embeddings.position_embeddings.weight"
    return (learned(where, "max_position_embeddings", "hidden_size", source, **rest),)


def _bart(source: str, offset: int) -> tuple[Scheme, ...]:
    return (learned("embed_positions.weight", "max_position_embeddings", "d_model", source, offset),)


def _wpe(source: str) -> tuple[Scheme, ...]:
    return (learned("wpe.weight", "n_positions", "n_embd", source),)


SCHEMES: dict[str, tuple[Scheme, ...]] = {
    **SPEECH,
    **IMAGES,
    "bloom": (
        Scheme(
            "alibi", "modeling_bloom.py, build_alibi_tensor", takes={"heads": ("n_head", 8)}, fixed={"form": "key"}
        ),
    ),
    "baichuan": (
        Scheme(
            "alibi",
            "modeling_baichuan.py of baichuan-inc/Baichuan-13B-Base, _gen_alibi_mask",
            when={"hidden_size": ((5120,), 4096)},
            takes={"heads": ("num_attention_heads", 40)},
            fixed={"form": "matrix", "bidirectional": False},
            note="Baichuan of hidden_size 5120 (13B) adds ALiBi; that of 4096 (7B) rotates",
        ),
    ),
    "mpt": (
        Scheme(
            "alibi",
            "modeling_mpt.py, build_mpt_alibi_tensor",
            when={"attn_config.alibi": ((True,), True)},
            takes={"heads": ("n_heads", 16), "bias_max": ("attn_config.alibi_bias_max", 8.0)},
            fixed={"form": "mpt"},
        ),
        learned("wpe.weight", "max_seq_len", "d_model", "llm-foundry, modeling_mpt.py"),
    ),
    **{
        name: (
            Scheme(
                "alibi",
                f"{source}, build_alibi_tensor",
                when={"alibi": ((True,), False)},
                takes={"heads": (key, heads)},
                fixed={"form": "key"},
                note="Falcon computes this bias in bfloat16 and divides it by sqrt(head_dim) with the logits",
            ),
        )
        for name, source, key, heads in (
            ("falcon", "modeling_falcon.py", "num_attention_heads", 71),
            ("RefinedWebModel", "modelling_RW.py of tiiuae/falcon-7b", "n_head", 71),
            ("RefinedWeb", "modelling_RW.py of tiiuae/falcon-40b", "n_head", 128),
        )
    },
    "t5": _t5("modeling_t5.py"),
    "mt5": _t5("modeling_mt5.py"),
    "umt5": _t5("modeling_umt5.py", "block.N.layer.0.SelfAttention.relative_attention_bias.weight, one per layer"),
    "longt5": _t5("modeling_longt5.py"),
    "switch_transformers": _t5("modeling_switch_transformers.py"),
    "udop": _t5("modeling_udop.py"),
    "pop2piano": _t5("modeling_pop2piano.py"),
    "pix2struct_text_model": (
        Scheme(
            "t5",
            "modeling_pix2struct.py",
            takes=T5_TAKES,
            fixed={"bidirectional": False},
            note="the learned bias is layer.0.self_attention.attention.relative_attention_bias.weight",
        ),
    ),
    **{
        name: (
            Scheme(
                "t5",
                f"modeling_{name}.py, relative_position_bucket",
                when={"has_relative_attention_bias": ((True,), True)},
                takes={"num_buckets": ("rel_pos_bins", 32), "max_distance": ("max_rel_pos", 128)},
                fixed={"bidirectional": True},
                note="the learned bias is rel_pos_bias.weight; learned absolute tables and the boxes of the words are added too",
            ),
            *_bert(f"modeling_{name}.py"),
        )
        for name in ("layoutlmv2", "layoutlmv3")
    },
    "mpnet": (
        Scheme(
            "t5",
            "modeling_mpnet.py, relative_position_bucket",
            takes={"num_buckets": ("relative_attention_num_buckets", 32)},
            fixed={"bidirectional": True, "max_distance": 128},
            note="the learned bias is encoder.relative_attention_bias.weight; MPNet adds a learned absolute table too",
        ),
    ),
    "deberta-v2": (
        Scheme("deberta", "modeling_deberta_v2.py", when={"relative_attention": ((True,), False)}, takes=DEBERTA_TAKES, below_one=DEBERTA_LENGTH),
        *_bert("modeling_deberta_v2.py"),
    ),
    "deberta": (
        Scheme(
            "deberta",
            "modeling_deberta.py",
            when={"relative_attention": ((True,), False)},
            takes={"max_relative_positions": ("max_relative_positions", -1)},
            below_one=DEBERTA_LENGTH,
            fixed={"position_buckets": 0},
        ),
        *_bert("modeling_deberta.py"),
    ),
    "m2m_100": (fairseq("modeling_m2m_100.py"),),
    "nllb-moe": (fairseq("modeling_nllb_moe.py"),),
    "xglm": (fairseq("modeling_xglm.py"),),
    "fsmt": (fairseq("modeling_fsmt.py"),),
    "kosmos-2_text_model": (fairseq("modeling_kosmos2.py", "embed_dim", 2048),),
    "kosmos_2_text_model": (fairseq("modeling_kosmos2.py", "embed_dim", 2048),),
    "kosmos_2_5_text_model": (fairseq("modeling_kosmos2_5.py", "embed_dim", 1536),),
    "marian": (sinusoidal("modeling_marian.py", "paper-cat", "d_model", 1024),),
    "pegasus": (sinusoidal("modeling_pegasus.py", "paper-cat", "d_model", 1024),),
    "pegasus_x": (sinusoidal("modeling_pegasus_x.py", "t2t", "d_model", 1024),),
    "informer": (sinusoidal("modeling_informer.py", "paper-cat", "d_model", 64),),
    "autoformer": (sinusoidal("modeling_autoformer.py", "paper-cat", "d_model", 64),),
    "time_series_transformer": (sinusoidal("modeling_time_series_transformer.py", "paper-cat", "d_model", 64),),
    "tipsv2_text_model": (sinusoidal("modeling_tipsv2.py", "t2t", "hidden_size", 768),),
    "timesfm": (
        Scheme(
            "sinusoidal",
            "modeling_timesfm.py, TimesFmPositionalEmbedding",
            when={"use_positional_embedding": ((True,), False), "min_timescale": ((1,), 1)},
            takes={"dim": ("hidden_size", 1280), "base": ("max_timescale", 10000.0)},
            fixed={"style": "t2t"},
        ),
        nowhere(
            "modeling_timesfm.py",
            "adds a sinusoidal table with wavelengths of its own: `pe gen sinusoidal --style t2t` has it for min_timescale 1 only",
            when={"use_positional_embedding": ((True,), False)},
        ),
        nowhere("modeling_timesfm.py", "has no positions unless use_positional_embedding is true in its file"),
    ),
    "ctrl": (sinusoidal("modeling_ctrl.py", "paper-cat", "n_embd", 1280),),
    "distilbert": (
        Scheme(
            "sinusoidal",
            "modeling_distilbert.py, create_sinusoidal_embeddings",
            when={"sinusoidal_pos_embds": ((True,), False)},
            takes={"dim": ("dim", 768)},
            fixed={"style": "paper"},
            note="these are initial values: checkpoints hold the table as embeddings.position_embeddings.weight",
        ),
        learned("embeddings.position_embeddings.weight", "max_position_embeddings", "dim", "modeling_distilbert.py"),
    ),
    **{
        name: (
            sinusoidal(
                f"modeling_{name}.py, create_sinusoidal_embeddings",
                "paper",
                "emb_dim",
                2048,
                when={"sinusoidal_embeddings": ((True,), False)},
            ),
            learned("position_embeddings.weight", "max_position_embeddings", "emb_dim", f"modeling_{name}.py"),
        )
        for name in ("xlm", "flaubert")
    },
    "transfo-xl": (
        Scheme(
            "transformer-xl",
            "modeling_transfo_xl.py of transformers 4",
            takes={"dim": ("d_model", 1024), "clamp_len": ("clamp_len", 1000)},
            below_one={"clamp_len": None},
        ),
    ),
    "xlnet": tuple(
        Scheme(
            "transformer-xl",
            "modeling_xlnet.py, relative_positional_encoding",
            when={"attn_type": ((kind,), "bi")},
            takes={"dim": ("d_model", 1024), "clamp_len": ("clamp_len", -1)},
            below_one={"clamp_len": None},
            fixed={"style": "xlnet", "bidirectional": kind == "bi"},
        )
        for kind in ("bi", "uni")
    ),
    "led": tuple(
        learned(f"{side}.embed_positions.weight", f"max_{side}_position_embeddings", "d_model", "modeling_led.py", label=side)
        for side in ("encoder", "decoder")
    ),
    "reformer": (
        Scheme(
            "elsewhere",
            "modeling_reformer.py, AxialPositionEmbeddings",
            when={"axial_pos_embds": ((True,), True)},
            takes={"shape": ("axial_pos_shape", (64, 64)), "dims": ("axial_pos_embds_dim", (64, 192))},
            note="has learned axial tables, the tensors that end in position_embeddings.weights.0 and .1; "
            "`pe gen axial --shape {shape} --dims {dims}` makes tables of their shapes",
        ),
        learned("position_embeddings.embedding.weight", "max_position_embeddings", "hidden_size", "modeling_reformer.py"),
    ),
    "perceiver": (
        Scheme(
            "elsewhere",
            "modeling_perceiver.py",
            note="has its positions in its preprocessor: learned rows for text, the tensor that ends in "
            "input_preprocessor.position_embeddings.weight, and Fourier features (`pe gen fourier`) or learned rows for images",
        ),
    ),
    **{
        name: (nowhere(f"modeling_{name}.py", "has no encoding of positions: its recurrent layers know the order"),)
        for name in ("jamba", "nemotron_h", "mamba", "mamba2", "falcon_mamba")
    },
    "gpt2": _wpe("modeling_gpt2.py"),
    "gpt_bigcode": _wpe("modeling_gpt_bigcode.py"),
    "openai-gpt": (learned("positions_embed.weight", "n_positions", "n_embd", "modeling_openai.py"),),
    "gpt_neo": (learned("wpe.weight", "max_position_embeddings", "hidden_size", "modeling_gpt_neo.py"),),
    "opt": (learned("decoder.embed_positions.weight", "max_position_embeddings", "hidden_size", "modeling_opt.py", 2),),
    "biogpt": (learned("embed_positions.weight", "max_position_embeddings", "hidden_size", "modeling_biogpt.py", 2),),
    **{name: _bart(f"modeling_{name}.py", 2) for name in ("bart", "mbart", "plbart", "mvp", "trocr")},
    **{name: _bart(f"modeling_{name.replace('-', '_')}.py", 0) for name in ("blenderbot", "blenderbot-small", "bigbird_pegasus")},
    "bert": (
        Scheme(
            "alibi",
            "modeling_bert.py of jinaai/jina-bert-implementation, rebuild_alibi_tensor",
            when={"position_embedding_type": (("alibi",), "absolute")},
            takes={"heads": ("num_attention_heads", 12)},
            fixed={"form": "matrix", "bidirectional": True},
        ),
        *_bert("modeling_bert.py"),
    ),
    "esm": _bert("modeling_esm.py", offset=2, counted=True, when={"position_embedding_type": (("absolute",), "rotary")}),
    "granitemoehybrid": (
        nowhere(
            "modeling_granitemoehybrid.py",
            "has position_embedding_type 'nope' in its file: its attention has no encoding of positions",
            when={"position_embedding_type": (("nope",), "rope")},
        ),
    ),
    **{
        name: _bert(f"modeling_{name.replace('-', '_')}.py")
        for name in ("albert", "electra", "layoutlm", "mobilebert", "rembert", "squeezebert", "ernie", "big_bird", "megatron-bert")
    },
    **{
        name: _bert(f"modeling_{name.replace('-', '_')}.py", offset=2, counted=True)
        for name in ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "ibert", "data2vec-text")
    },
    **{
        name: (learned("embeddings.position_embedding.weight", "max_position_embeddings", "hidden_size", f"modeling_{name.partition('_')[0]}.py"),)
        for name in ("clip_text_model", "siglip_text_model", "metaclip_2_text_model", "siglip2_text_model")
    },
}  # fmt: skip

# Rotary models whose class turns only if the file says so: (key, values that do, what else).
SILENT = {
    "esm": ("position_embedding_type", ("rotary",), "EsmConfig's own default is 'absolute', a learned table"),
    "granitemoehybrid": ("position_embedding_type", ("rope",), "GraniteMoeHybridModel turns for 'rope' only, else it has no positions"),
    "zamba2": ("use_mem_rope", (True,), "Zamba2 turns only where it is true, else it has no positions"),
}  # fmt: skip
# Rotary models whose tables are no function of their configuration.
REFUSED = {
    "mistral_large4_text": "multiplies its frequencies by exp(alpha), and alpha is learned: it is the tensor that ends in rotary_emb.alpha",
    "musicflamingo": "turns by the time stamps of the audio, which are data",
    "esmfold2": "turns by the coordinates of atoms, which are data",
    "EsmFold2AtomEncoderConfig": "turns by the coordinates of atoms, which are data",
}
REFUSED_TYPES = {
    "fope": "mixes frequencies by learned matrices for each head (FoPE)",
    "fourier": "mixes frequencies by learned matrices for each head (FoPE)",
    "carope": "computes its frequencies from each token (CARoPE)",
}
