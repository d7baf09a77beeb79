"""Models that do not rotate: which of their configurations means which encoding, or where their learned table lies."""

from __future__ import annotations

from typing import Any

from pe_cli.models.scheme import Scheme, fairseq, learned, sinusoidal
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


def _patches(where: str, source: str) -> tuple[Scheme, ...]:
    """A learned table of image patches, with a row for the class token in most models."""
    return (Scheme("learned", source, where=where),)


def _bert(source: str, **rest: Any) -> tuple[Scheme, ...]:
    where = "embeddings.position_embeddings.weight"
    return (learned(where, "max_position_embeddings", "hidden_size", source, **rest),)


def _bart(source: str, offset: int) -> tuple[Scheme, ...]:
    return (learned("embed_positions.weight", "max_position_embeddings", "d_model", source, offset),)


def _wpe(source: str) -> tuple[Scheme, ...]:
    return (learned("wpe.weight", "n_positions", "n_embd", source),)


SCHEMES: dict[str, tuple[Scheme, ...]] = {
    **SPEECH,
    "bloom": (
        Scheme(
            "alibi", "modeling_bloom.py, build_alibi_tensor", takes={"heads": ("n_head", 8)}, fixed={"form": "key"}
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
    "falcon": (
        Scheme(
            "alibi",
            "modeling_falcon.py, build_alibi_tensor",
            when={"alibi": ((True,), False)},
            takes={"heads": ("num_attention_heads", 71)},
            fixed={"form": "key"},
            note="Falcon computes this bias in bfloat16 and divides it by sqrt(head_dim) with the logits",
        ),
    ),
    "t5": _t5("modeling_t5.py"),
    "mt5": _t5("modeling_mt5.py"),
    "umt5": _t5("modeling_umt5.py", "block.N.layer.0.SelfAttention.relative_attention_bias.weight, one per layer"),
    "longt5": _t5("modeling_longt5.py"),
    "switch_transformers": _t5("modeling_switch_transformers.py"),
    "udop": _t5("modeling_udop.py"),
    "pop2piano": _t5("modeling_pop2piano.py"),
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
    "marian": (sinusoidal("modeling_marian.py", "paper-cat", "d_model", 1024),),
    "pegasus": (sinusoidal("modeling_pegasus.py", "paper-cat", "d_model", 1024),),
    "pegasus_x": (sinusoidal("modeling_pegasus_x.py", "t2t", "d_model", 1024),),
    "informer": (sinusoidal("modeling_informer.py", "paper-cat", "d_model", 64),),
    "autoformer": (sinusoidal("modeling_autoformer.py", "paper-cat", "d_model", 64),),
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
    "xlm": (
        Scheme(
            "sinusoidal",
            "modeling_xlm.py, create_sinusoidal_embeddings",
            when={"sinusoidal_embeddings": ((True,), False)},
            takes={"dim": ("emb_dim", 2048)},
            fixed={"style": "paper"},
        ),
        learned("position_embeddings.weight", "max_position_embeddings", "emb_dim", "modeling_xlm.py"),
    ),
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
    "gpt2": _wpe("modeling_gpt2.py"),
    "gpt_bigcode": _wpe("modeling_gpt_bigcode.py"),
    "openai-gpt": (learned("positions_embed.weight", "n_positions", "n_embd", "modeling_openai.py"),),
    "imagegpt": _wpe("modeling_imagegpt.py"),
    "gpt_neo": (learned("wpe.weight", "max_position_embeddings", "hidden_size", "modeling_gpt_neo.py"),),
    "opt": (learned("decoder.embed_positions.weight", "max_position_embeddings", "hidden_size", "modeling_opt.py", 2),),
    "biogpt": (learned("embed_positions.weight", "max_position_embeddings", "hidden_size", "modeling_biogpt.py", 2),),
    **{name: _bart(f"modeling_{name}.py", 2) for name in ("bart", "mbart", "plbart", "mvp", "led", "trocr")},
    **{name: _bart(f"modeling_{name.replace('-', '_')}.py", 0) for name in ("blenderbot", "blenderbot-small", "bigbird_pegasus")},
    **{
        name: _bert(f"modeling_{name.replace('-', '_')}.py")
        for name in ("bert", "albert", "electra", "layoutlm", "mobilebert", "rembert", "squeezebert", "ernie", "big_bird", "megatron-bert")
    },
    **{
        name: _bert(f"modeling_{name.replace('-', '_')}.py", offset=2, counted=True)
        for name in ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "ibert", "data2vec-text")
    },
    **{
        name: (learned("embeddings.position_embedding.weight", "max_position_embeddings", "hidden_size", f"modeling_{name.partition('_')[0]}.py"),)
        for name in ("clip_text_model", "siglip_text_model", "metaclip_2_text_model", "siglip2_text_model")
    },
    **{
        name: _patches("embeddings.position_embeddings", f"modeling_{name}.py")
        for name in ("vit", "deit", "dinov2", "vit_mae", "vit_msn", "dpt")
    },
    **{
        name: _patches("embeddings.position_embedding.weight", f"modeling_{name.partition('_')[0]}.py")
        for name in ("clip_vision_model", "siglip_vision_model", "siglip2_vision_model")
    },
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
