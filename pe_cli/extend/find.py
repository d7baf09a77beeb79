"""Which tensors of a checkpoint are position tables: told by the header alone, with reasons."""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from pe_cli.errors import PeError, no_such
from pe_cli.files import TensorSpec

Kind: TypeAlias = Literal["sequence", "grid", "window", "relative"]
FLOATS = ("float64", "float32", "float16", "bfloat16")

_END = r"(?:\.weight|\.qweight|\.weight_packed|/embeddings(?::0)?|:0)?$"
_VISION = r"(?:vision|visual|video|image|patch|pixel|vit\b|detr)"

# What looks like a table by name and is none.
NOT_TABLES = (
    r"query_position_embeddings|relative_pos_embeddings",
    r"(?:prompt_encoder|shared_image_embedding|shared_embedding).*positional_embedding",
    r"layer_?norm|\.norm\.|_proj\.|\.bias$",
    r"tile_position|aspect_ratio|tile_embedding",
)


@dataclass(frozen=True)
class Rule:
    """Names that match are tables of this kind; `ranks` are the numbers of axes it may have.

    A table that is not `main` is taken only where it is named, or along with a main one.
    """

    pattern: str
    kind: Kind
    ranks: tuple[int, ...]
    reason: str
    main: bool = True


RULES = (
    Rule(r"relative_position_bias_table$", "window", (2, 3), "bias by offset inside a window (Swin, BEiT)"),
    Rule(r"rel_pos_[hw]$", "relative", (2,), "rows by distance along one axis (ViTDet, SAM)", main=False),
    Rule(
        r"[._/][xyhw]_position_embeddings" + _END, "sequence", (2,), "page coordinates (LayoutLM)", main=False
    ),
    Rule(r"mid_position_embeddings$", "grid", (4,), "per-layer grid rows (YOLOS)", main=False),
    Rule(r"(?:time_embeddings|temporal_embedding)" + _END, "sequence", (2, 3), "rows by frame", main=False),
    Rule(r"position_embedding_table$", "sequence", (3,), "one table for each axis (Gemma vision)"),
    Rule(
        _VISION + r".*(?:pos(?:ition)?(?:al)?_?embed(?:ding)?s?)" + _END,
        "grid",
        (2, 3, 4),
        "rows by image patch",
    ),
    Rule(r"(?:^|[._/])pos_embed_window$", "grid", (4,), "window part of a grid (Hiera)", main=False),
    Rule(r"(?:^|[._/])pos_embed(?:ding|ed)?s?" + _END, "grid", (2, 3, 4), "rows by image patch"),
    Rule(r"posembed_input/pos_embedding$", "grid", (3,), "rows by image patch (JAX)"),
    Rule(r"(?:^|[._/])v\.position_embd" + _END, "grid", (2,), "rows by image patch (GGUF)"),
    Rule(r"(?:^|[._/])embed_positions" + _END, "sequence", (2,), "rows by token (BART and kin)"),
    Rule(r"(?:^|[._/])(?:wpe|positions_embed|a?\.?position_embd)" + _END, "sequence", (2,), "rows by token"),
    Rule(r"(?:^|[._/])position_embeddings?$", "grid", (3, 4), "rows by image patch, behind class tokens"),
    Rule(r"(?:^|[._/])position_embeddings?" + _END, "sequence", (2,), "rows by token"),
    Rule(r"(?:^|[._/])positional_embedding(?:_res)?" + _END, "sequence", (2,), "rows by token"),
    Rule(r"(?:^|[._/])position_enc" + _END, "sequence", (2, 3), "rows by time step (PatchTST)"),
)

# What to say of the encodings that `pe gen model` reads out of a configuration.
_ROPE = "rotary position embeddings (RoPE): change the scaling in config.json instead (see `pe gen rope`)"
SENTENCES = {
    "rope": _ROPE,
    "alibi": "ALiBi biases, computed at run time; any length works",
    "t5": "T5-like buckets of distance; any length works",
    "deberta": "DeBERTa-like relative embeddings, not rows by length",
    "sinusoidal": "sinusoidal positions, computed at run time; any length works (see `pe gen model`)",
}
# Other ways in which a model knows positions: (in the names, in the configuration), what to say.
OTHER_SCHEMES = (
    (r"relative_attention_bias", r"relative_attention_num_buckets", SENTENCES["t5"]),
    (r"rel_embeddings|pos_key_proj", r"relative_attention\b", SENTENCES["deberta"]),
    (
        r"cpb_mlp|continuous_position_bias",
        r"pretrained_window_size",
        "Swin v2's coordinate network: nothing to resample",
    ),
    (
        r"pos_conv_embed",
        r"num_conv_pos_embeddings",
        "a convolution as position encoding (wav2vec 2), free of length",
    ),
    (r"alibi", r"(?!)", SENTENCES["alibi"]),
    (r"rotary|inv_freq|rope", r"rope_theta|rope_scaling|rope_parameters|rotary_dim|rotary_pct", _ROPE),
    (r"time_mix|mixer\.A_log|ssm", r"\"model_type\": ?\"(?:rwkv|mamba)", "recurrence; it has no positions"),
    (
        r"self_attn\.q_proj|attention\.wqkv",
        r"(?!)",
        "most likely rotary embeddings (attention without any table)",
    ),
)


@dataclass(frozen=True)
class Candidate:
    """A tensor that is, or may be, a position table, and why."""

    spec: TensorSpec
    kind: Kind | None
    reason: str
    main: bool = True

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def group(self) -> str:
        """Tables of all layers have one group."""
        return re.sub(r"\d+", "#", self.name)


IsGrid: TypeAlias = Callable[[str], bool]


def _by_name(name: str) -> bool:
    return False


def find(tensors: Iterable[TensorSpec], is_grid: IsGrid = _by_name) -> list[Candidate]:
    """The position tables among `tensors`, by their names and shapes."""
    return [found for spec in tensors if (found := recognise(spec, is_grid)) is not None]


def recognise(spec: TensorSpec, is_grid: IsGrid = _by_name) -> Candidate | None:
    """What `spec` is as a position table, or None.

    `is_grid` says of which tensors the configuration knows that they belong to an image model, where a name as
    `embeddings.position_embedding.weight` does not.
    """
    name = spec.name.lower()
    if any(re.search(pattern, name) for pattern in NOT_TABLES):
        return None
    for rule in RULES:
        if re.search(rule.pattern, name) and (len(spec.shape) in rule.ranks or spec.dtype not in FLOATS):
            if rule.kind == "sequence" and rule.main and is_grid(spec.name):
                return Candidate(spec, "grid", "rows by image patch, says the configuration")
            return Candidate(spec, rule.kind, rule.reason, rule.main)
    return None


def choose(
    tensors: Mapping[str, TensorSpec],
    wanted: Sequence[str],
    kind: Kind,
    label: str,
    config_text: str = "",
    is_grid: IsGrid = _by_name,
) -> list[Candidate]:
    """The tables to change: those named by `wanted` (names or globs), or the only one there is.

    Errors: no table (with the scheme that the model uses instead), several that could be meant, one without rows, a quantised one.
    """
    if wanted:
        chosen = [candidate for word in wanted for candidate in _named(tensors, word, label, is_grid)]
        chosen = list({candidate.name: candidate for candidate in chosen}.values())
    elif len(tensors) == 1:
        (only,) = tensors.values()
        chosen = [recognise(only, is_grid) or Candidate(only, None, "the only tensor")]
    else:
        chosen = _only_group(find(tensors.values(), is_grid), tensors, kind, label, config_text)
    for candidate in chosen:
        if not candidate.spec.shape or not candidate.spec.size:
            raise PeError(
                f"{label}: {candidate.spec.called} of shape {list(candidate.spec.shape)} has nothing to extend"
            )
        if candidate.spec.dtype not in (*FLOATS, "complex64", "complex128"):
            raise PeError(
                f"{label}: {candidate.spec.called} is stored as {candidate.spec.dtype}: a quantised or integer table cannot "
                "be resampled; extend the model before it is quantised"
            )
    return chosen


def companions(chosen: Sequence[Candidate], tensors: Mapping[str, TensorSpec]) -> list[Candidate]:
    """Tables that depend on the same grid and move along: `rel_pos_h/w`, window biases and per-layer grids."""
    names = {candidate.name for candidate in chosen}
    moving = ("relative", "window")
    return [
        found
        for found in find(tensors.values())
        if found.name not in names
        and found.spec.size
        and (found.kind in moving or (found.kind == "grid" and not found.main))
    ]


def _named(tensors: Mapping[str, TensorSpec], word: str, label: str, is_grid: IsGrid) -> list[Candidate]:
    names = [word] if word in tensors else fnmatch.filter(tensors, word)
    if not names:
        if set(tensors) == {""}:
            raise PeError(f"{label} is .npy, one array without a name; leave out {word!r}")
        if any(c in word for c in "*?["):
            raise PeError(f"{label}: no tensor matches {word!r}; {_offer(find(tensors.values()), tensors)}")
        raise (
            no_such(f"tensor in {label}", word, tensors)
            if len(tensors) < 20
            else PeError(f"{label} has no tensor {word!r}; {_offer(find(tensors.values()), tensors)}")
        )
    return [recognise(tensors[name], is_grid) or Candidate(tensors[name], None, "named") for name in names]


def _offer(candidates: Sequence[Candidate], tensors: Mapping[str, TensorSpec]) -> str:
    if candidates:
        return f"its position tables: {_listing(candidates)}"
    some = ", ".join(list(tensors)[:6])
    return f"it holds {some}{' …' if len(tensors) > 6 else ''}"


def _listing(candidates: Sequence[Candidate]) -> str:
    groups: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        groups.setdefault(candidate.group, []).append(candidate)
    words = []
    for members in groups.values():
        first = members[0]
        more = f" and {len(members) - 1} like it" if len(members) > 1 else ""
        words.append(f"{first.name} {list(first.spec.shape)}{more} ({first.kind}: {first.reason})")
    return "; ".join(words)


_OPTION: dict[Kind, str] = {
    "sequence": "--len N",
    "grid": "--grid HxW",
    "window": "--window HxW",
    "relative": "--len N with --tensor",
}


def _only_group(
    candidates: Sequence[Candidate],
    tensors: Mapping[str, TensorSpec],
    kind: Kind,
    label: str,
    config_text: str,
) -> list[Candidate]:
    main = [candidate for candidate in candidates if candidate.main]
    if any(candidate.kind == "grid" for candidate in main) and kind != "window":
        main = [candidate for candidate in main if candidate.kind != "window"]  # they move along
    if not main and candidates:
        raise PeError(f"{label}: name the table with --tensor, of {_listing(candidates)}")
    if not main:
        raise PeError(f"{label} holds no position table: {other_scheme(tensors, config_text)}")
    right = [candidate for candidate in main if candidate.kind == kind]
    if kind == "window" and right:
        main = right
    if not right:
        found = main[0]
        raise PeError(
            f"{label}: {_listing(main)} is what there is; say {_OPTION[found.kind or 'sequence']}, "
            "or name another tensor with --tensor"
        )
    if len({candidate.group for candidate in main}) > 1:
        raise PeError(
            f"{label} holds {len({candidate.group for candidate in main})} position tables; name one with --tensor "
            f"(a glob for several): {_listing(main)}"
        )
    return right


def other_scheme(tensors: Iterable[str], config_text: str) -> str:
    """How a model without a table knows positions, as far as names and configuration tell."""
    said = _said_by(config_text)
    if said is not None:
        return f"it uses {said}"
    names = "\n".join(tensors)
    for in_names, in_config, sentence in OTHER_SCHEMES:
        if re.search(in_names, names) or (config_text and re.search(in_config, config_text)):
            return f"it uses {sentence}"
    if not names:
        return "it holds no tensors at all"
    return "no name looks like one; name the tensor with --tensor"


def _said_by(config_text: str) -> str | None:
    """What the configuration itself says, read as `pe gen model` reads it; None where it does not settle it."""
    from pe_cli.models.configuration import Configuration
    from pe_cli.models.resolve import resolve_configuration

    data = json.loads(config_text or "{}")
    try:
        config = Configuration("config.json", data, model_type=str(data.get("model_type") or ""))
        return SENTENCES.get(resolve_configuration(config, seq_len=1).encoding)
    except PeError:
        return None
