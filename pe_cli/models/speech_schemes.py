"""Models of speech and music that do not rotate, or rotate only if told to."""

from __future__ import annotations

from typing import Any

from pe_cli.models.scheme import Scheme, fairseq, nowhere, sinusoidal

KIND = "position_embeddings_type"
SHAW_TAKES = {
    "max_distance": ("left_max_position_embeddings", 64),
    "max_right": ("right_max_position_embeddings", 8),
}
GATED = (
    "the learned bias is layers.0.attention.rel_attn_embed.weight (`pe gen t5 --table`); "
    "each layer multiplies it by a gate computed from the hidden states"
)


def _conformer(source: str, width: int, kind: str | None = None, **rest: Any) -> Scheme:
    """Rows of relative distances, whose class default of `position_embeddings_type` is `kind`."""
    return Scheme(
        "transformer-xl",
        source,
        when={KIND: (("relative",), kind)} if kind else {},
        takes={"dim": ("hidden_size", width)},
        fixed={"style": "paper", "bidirectional": True},
        **rest,
    )


def _shaw(source: str, **rest: Any) -> Scheme:
    table = "the learned table is distance_embedding.weight of each layer: `pe gen shaw --table FILE:TENSOR` reads it"
    when = {KIND: (("relative_key",), "relative_key")}
    return Scheme("shaw", source, when=when, takes=SHAW_TAKES, note=table, **rest)


def _off(source: str, kind: str, **rest: Any) -> Scheme:
    note = f"has {KIND} null in its file: its attention has no encoding of positions"
    return nowhere(source, note, when={KIND: ((None,), kind)}, **rest)


def _t5_like(source: str, **rest: Any) -> Scheme:
    takes = {"num_buckets": ("num_buckets", 320), "max_distance": ("max_bucket_distance", 800)}
    return Scheme("t5", source, takes=takes, fixed={"bidirectional": True}, **rest)


SPEECH: dict[str, tuple[Scheme, ...]] = {
    "wav2vec2-conformer": (
        _conformer("modeling_wav2vec2_conformer.py", 768, "relative"),
        _off("modeling_wav2vec2_conformer.py", "relative"),
    ),
    "wav2vec2-bert": (
        _shaw("modeling_wav2vec2_bert.py"),
        _conformer("modeling_wav2vec2_bert.py", 1024, "relative_key"),
        _off("modeling_wav2vec2_bert.py", "relative_key"),
    ),
    "seamless_m4t": (
        _conformer("modeling_seamless_m4t.py", 1024, "relative", label="speech_encoder"),
        _off("modeling_seamless_m4t.py", "relative", label="speech_encoder"),
        fairseq("modeling_seamless_m4t.py", "hidden_size", padding=0, label="text"),
    ),
    "seamless_m4t_v2": (
        _shaw("modeling_seamless_m4t_v2.py", label="speech_encoder"),
        _off("modeling_seamless_m4t_v2.py", "relative_key", label="speech_encoder"),
        fairseq("modeling_seamless_m4t_v2.py", "hidden_size", padding=0, label="text"),
    ),
    "parakeet_encoder": (_conformer("modeling_parakeet.py", 1024),),
    "fastspeech2_conformer": (_conformer("modeling_fastspeech2_conformer.py", 384),),
    "wavlm": (_t5_like("modeling_wavlm.py", note=GATED),),
    "speech_to_text": (fairseq("modeling_speech_to_text.py", width=256),),
    "speecht5": (
        sinusoidal(
            "modeling_speecht5.py, SpeechT5ScaledPositionalEncoding",
            "paper",
            "hidden_size",
            768,
            label="scaled",
            note="of the text encoder and the speech decoder, times the learned encode_positions.alpha",
        ),
        fairseq(
            "modeling_speecht5.py, SpeechT5SinusoidalPositionalEmbedding", "hidden_size", 768, label="prenet"
        ),
        Scheme(
            "shaw",
            "modeling_speecht5.py, SpeechT5RelativePositionalEncoding",
            label="encoder",
            takes={"max_distance": ("encoder_max_relative_position", 160)},
            fixed={"numbering": "speecht5"},
            note="the learned table ends in embed_positions.pe_k.weight: `pe gen shaw --table FILE:TENSOR` reads it",
        ),
    ),
    "musicgen_decoder": (sinusoidal("modeling_musicgen.py", "t2t-cossin", "hidden_size", 1024),),
    "musicgen_melody_decoder": (
        sinusoidal("modeling_musicgen_melody.py", "t2t-cossin", "hidden_size", 1024),
    ),
    "whisper": (
        sinusoidal("modeling_whisper.py, sinusoids", "t2t", "d_model", 384, label="encoder"),
        Scheme(
            "learned",
            "modeling_whisper.py",
            label="decoder",
            takes={"rows": ("max_target_positions", 448), "dim": ("d_model", 384)},
            where="decoder.embed_positions.weight",
        ),
    ),
}
