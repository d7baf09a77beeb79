"""Base, width and trained length of a rotary table, and tokens of an image, under the names that configurations have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from pe_cli.errors import PeError
from pe_cli.models.configuration import BASE_KEYS, FOREIGN_KEYS, PARTIAL_KEYS, SYNONYMS, Defaults, data
from pe_cli.models.layers import Rope, first_layer, one_each
from pe_cli.models.resolved import KeyLedger, Setting

FALLBACK_THETA = 10000.0
WIDEST = 1 << 16
# Names of the base beside the rotary parameters, by layer type; `None` is a model with one table.
THETA_KEYS: dict[str | None, tuple[str, ...]] = {
    None: BASE_KEYS,
    "full_attention": ("global_rope_theta", "rope_theta", "rotary_emb_base"),
    "sliding_attention": ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta", "sliding_rope_theta"),
    "compress": ("compress_rope_theta",),
    "main": ("rope_theta",),
}
# Keys of lengths that may, or may not, be the one that a model was trained at.
LENGTHS = (*SYNONYMS["max_position_embeddings"], "max_seq_length", "max_trained_positions")

# In these the class has a part of the head and a base for each layer type, which count beside parameters that do not name
# the part or are not by layer type.
CLASS_HAS_LAYERS = frozenset({"deepseek_v4"})
# In these classes of transformers the file's `rotary_dim` is the width; the others do not read it.
ROTARY_DIM_COUNTS = frozenset({"gptj", "codegen", "minimax_m2"})


def at_layer(ledger: KeyLedger, found: Setting, label: str | None) -> Setting:
    """The entry of a list with one entry for each layer, for the first layer of this type."""
    first = first_layer(ledger, label)
    if first >= len(one_each(ledger, found)):
        raise PeError(
            f"{ledger.config.file}: {found.origin} has {len(found.value)} entries, but layer {first} is the first of {label}; "
            "it needs one for each layer"
        )
    return Setting(found.value[first], f"{found.origin}.{first}", found.assumed)


def base(ledger: KeyLedger, rope: Rope, label: str | None) -> float:
    """θ, with the loud default of the model type where the file has none."""
    if ledger.config.model_type in CLASS_HAS_LAYERS and not rope.block.endswith(f".{label}"):
        rope = replace(rope, values={key: rope.values[key] for key in rope.values if key != "rope_theta"})
    own = _by_layers(ledger) or (None if rope.assumed else rope.find(ledger, "rope_theta", "base"))
    found = own or _beside(ledger, rope, label) or _assumed_theta(ledger, rope, label)
    value = found.value
    if isinstance(value, list):
        found = at_layer(ledger, found, label)
    theta = float(ledger.number(found, example=f"{FALLBACK_THETA}"))
    ratio = ledger.in_file("rope_ratio")
    if ratio is not None:
        theta *= ledger.number(ratio)
        named = str(ledger.config.values.get("_name_or_path")).lower()
        if ledger.config.model_type == "chatglm" and not re.search("chatglm3|glm-4", named):
            ledger.note(
                f"{ratio.origin} multiplies the base, as in ChatGLM3 and GLM-4; ChatGLM2-32k divides positions by it"
            )
        found = Setting(theta, f"{found.origin}, times {ratio.origin}")
        ledger.origins["base"] = found.origin
        return theta
    ledger.record("base", found, "rope_theta")
    return theta


def _by_layers(ledger: KeyLedger) -> Setting | None:
    """The base of all rotating layers, where the file has a list of bases (0: the layer does not rotate)."""
    if "only_masks" in data("layers").get(ledger.config.model_type, {}):
        return None
    layers = ledger.in_file("layer_rope_theta")
    if layers is not None and isinstance(layers.value, list):
        thetas = sorted({theta for theta in ledger.numbers(layers) if theta})
        if len(thetas) > 1:
            raise PeError(
                f"{ledger.config.file}: {layers.origin} has several bases ({', '.join(f'{t:g}' for t in thetas)}): "
                "make each with `pe gen rope --base`"
            )
        if thetas:
            ledger.keys_read |= {"rope_theta", "rope_parameters.rope_theta", "rope_scaling.rope_theta"}
            return Setting(thetas[0], layers.origin)
    return None


def _beside(ledger: KeyLedger, rope: Rope, label: str | None) -> Setting | None:
    keys = THETA_KEYS.get(label, THETA_KEYS[None])
    found = ledger.in_file(*keys)
    if found is not None or label in (None, "full_attention", "main"):
        return found
    is_all = _one_theta(ledger.known) or label in _reached(ledger, rope, label)
    return ledger.in_file(*THETA_KEYS[None]) if is_all else None


def _reached(ledger: KeyLedger, rope: Rope, label: str | None) -> Sequence[str]:
    """The layer types to which the class applies a base beside their parameters."""
    known = ledger.known
    given = label and rope.block.endswith(f".{label}") and not rope.assumed
    return known.reached_beside if given else known.reached


def _one_theta(known: Defaults) -> bool:
    """Whether the class uses the same base in all its layer types."""
    thetas = {(known.rope or {})[label]["rope_theta"] for label in known.labels if (known.rope or {})[label]}
    return len(thetas) < 2


def _assumed_theta(ledger: KeyLedger, rope: Rope, label: str | None) -> Setting:
    """What the class assumes: in the block that it makes where the file has none, or for a block without a base."""
    known = ledger.known
    own = (known.rope or {}).get(label) if label else known.rope
    if label in known.bare and rope.block.endswith(f".{label}") and not rope.assumed:
        return ledger.default(known.bare[label])
    made = own.get("rope_theta") if isinstance(own, Mapping) and (label or rope.assumed) else None
    for value in (rope.values.get("rope_theta"), made):
        if value is not None:
            return ledger.default(value)
    beside = known.theta.get(label or "") if isinstance(known.theta, Mapping) else known.theta
    for value in (known.fields.get("rope_theta"), beside):
        if isinstance(value, (int, float)):
            return ledger.default(value)
    return ledger.default(FALLBACK_THETA)


def warn_of_ignored(ledger: KeyLedger, rope: Rope, label: str | None) -> None:
    """Say it where keys had a part in the table that the class of transformers does not read in this place."""
    known, config = ledger.known, ledger.config
    reader = f"{known.name} in {known.source} does not read it"
    silent = {"rope_type", "type", *(() if known.labels else ("rope_theta",))}
    inside, filled = {} if rope.assumed else rope.values, known.rope or {}
    own = filled.get(label) if label in known.labels else None
    assumed = {"rope_theta": known.theta, **filled, **(own or {})}
    for key in known.ignores:
        value = config.values.get(key)
        if value == assumed.get(key) or (key == "rope_theta" and label in _reached(ledger, rope, label)):
            continue
        block = isinstance(value, Mapping)
        used = rope.block == key and set(rope.values) - silent if block else key in ledger.keys_read
        if value is not None and used and key not in {*inside, *config.names, *config.assumed}:
            shown = "" if block else f" {json.dumps(value)}"
            where = " in this place" if known.rope else ""
            ledger.warn(f"{config.key(key)}{shown} is used; {reader}{where}")
    theta = config.key("rope_theta")
    beside = known.labels and ledger.origins.get("base") == theta and "rope_theta" not in known.ignores
    if beside and label not in _reached(ledger, rope, label):
        ledger.warn(f"{theta} is used for {label}; {reader} there")
    told = " ".join(ledger.origins.values())
    for key in FOREIGN_KEYS if known.source.startswith("transformers") else ():
        used = bool(config.values.get(key)) if key == "no_rope_layers" else key in re.findall(r"\w+", told)
        if used and key not in {*known.reads, *config.names, *config.assumed}:
            ledger.warn(f"{key} is used; {reader}")


# What in a model that is not known may say another width, another pairing, or that positions are told otherwise.
DOUBTFUL = re.compile(
    r"rot(ary)?_dim|no_?(pe|pos|rope)_\w+|interleaved?|max_period|d_head|dim_head|attn_head_dim|attention_head_dim|qk_head_dim|"
    r"hidden_size_per_head|global_head_dim|num_swa_\w*heads|position_embedding_type|use_\w*(abs|rel)\w*_(pos|bias)\w*"
)
PLAIN = ("rope", "rotary", "none")


def doubtful(ledger: KeyLedger, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys of a model that is not known which may contradict a plain table of this width, and were not read."""
    return tuple(
        ledger.config.key(key)
        for key, value in ledger.config.values.items()
        if not ledger.known.known and key not in ledger.keys_read and DOUBTFUL.fullmatch(key)
        if value not in (None, False, [], parameters["dim"]) and str(value).lower() not in PLAIN
    )


def width(ledger: KeyLedger, rope: Rope, label: str | None, scaling: str) -> tuple[int, float | None]:
    """(rotary width, part of the head that turns); the part is for `proportional`, where the width stays the head's."""
    dim, part = _width(ledger, rope, label, scaling)
    if not 1 <= dim <= WIDEST:
        raise PeError(
            f"{ledger.config.file}: a rotary width of {dim:.15g} ({ledger.origins.get('dim', '')}) is no width of a head; check it"
        )
    return int(dim), part


def _width(ledger: KeyLedger, rope: Rope, label: str | None, scaling: str) -> tuple[float, float | None]:
    """The width as computed, which may be larger than any whole number that a table can have."""
    direct = (
        None
        if is_latent_off(ledger)
        else ledger.in_file("qk_rope_head_dim") or ledger.from_class("qk_rope_head_dim")
    )
    rotary = (
        (ledger.in_file("rotary_dim") or ledger.from_class("rotary_dim"))
        if _reads_rotary_dim(ledger)
        else None
    )
    partial = _partial(ledger, rope, label)
    if direct is not None:
        return _rotated_part(ledger, direct, partial), None
    if rotary is not None and partial is None:
        return _recorded(ledger, rotary, "rotary_dim"), None
    if ledger.known.width is not None:
        return _by_rule(ledger, ledger.known.width), None
    head = head_dim(ledger, label)
    part = 1.0 if partial is None else float(ledger.number(partial))
    if part > 1.0:
        ledger.warn(f"{partial.origin if partial else ''} is {part:g}: more than the whole head")
    if partial is not None and partial.assumed and part != 1.0:
        ledger.assume("partial_rotary_factor", partial)
    ledger.origins["dim"] = head.origin
    if head.assumed:
        ledger.assume("head_dim", head)
    if scaling == "proportional":
        if partial is not None:
            ledger.origins["partial"] = partial.origin
        return ledger.whole(head), part
    if part != 1.0 and partial is not None:
        if ledger.known.partial_ignored and scaling == "none" and not partial.assumed:
            ledger.warn(
                f"{partial.origin} {part:g} is applied; {ledger.known.module} in {ledger.known.source} does not read it"
            )
        ledger.origins["dim"] = f"{head.origin}, times {partial.origin} {part:g}"
    return ledger.whole(head) * part, None


def is_latent_off(ledger: KeyLedger) -> bool:
    """Whether the file switches multi-head latent attention off, so that whole heads rotate (DeepSeek-VL2, DeepSeek-OCR)."""
    switch, width = ledger.in_file("use_mla"), ledger.in_file("qk_rope_head_dim")
    return (switch is not None and switch.value is False) or (width is not None and width.value == 0)


def _reads_rotary_dim(ledger: KeyLedger) -> bool:
    return ledger.config.model_type in ROTARY_DIM_COUNTS or not ledger.known.source.startswith("transformers")


def _by_rule(ledger: KeyLedger, rule: Mapping[str, Any]) -> int:
    """A width that the class computes from two other sizes: max(over / (per times), least)."""
    over, per = ledger.size(rule["over"]), ledger.size(rule["per"])
    found = max(ledger.whole(over) // (rule["times"] * ledger.whole(per)), rule["least"])
    ledger.origins["dim"] = (
        f"max({over.origin} {over.value} / ({rule['times']} * {per.origin} {per.value}), {rule['least']})"
    )
    return int(found)


def _rotated_part(ledger: KeyLedger, direct: Setting, partial: Setting | None) -> float:
    """The rotated channels of a head whose other channels are kept apart (multi-head latent attention)."""
    value = _recorded(ledger, direct, "qk_rope_head_dim")
    head = ledger.config.values.get("head_dim")
    if head not in (None, value) and ledger.known.name:
        ledger.note(
            f"head_dim {head} has no part in this table: {value} channels of each head turn ({direct.origin})"
        )
    reads_part = (
        ledger.known.aliases.get("head_dim") == "qk_rope_head_dim" and not ledger.known.partial_ignored
    )
    if partial is None or partial.assumed or not reads_part:
        if partial is not None and not partial.assumed and ledger.number(partial) != 1:
            ledger.warn(
                f"{partial.origin} {partial.value} has no part in this table: all {value} channels of {direct.origin} turn"
            )
        return value
    ledger.origins["dim"] += f", times {partial.origin} {partial.value}"
    return value * ledger.number(partial)


def _recorded(ledger: KeyLedger, found: Setting, called: str) -> int:
    value = ledger.whole(found)
    ledger.record("dim", found, called)
    return value


def _partial(ledger: KeyLedger, rope: Rope, label: str | None) -> Setting | None:
    found = rope.find(ledger, "partial_rotary_factor") if not rope.assumed else None
    found = found or ledger.in_file(*PARTIAL_KEYS)
    layers = ledger.in_file("partial_rotary_factors")
    if found is None and layers is not None and isinstance(layers.value, list):
        found = at_layer(ledger, layers, label)
    if found is not None:
        return found
    default = rope.values if rope.assumed else rope.fallback
    if rope.outer and ledger.config.model_type in CLASS_HAS_LAYERS:
        default = (ledger.known.rope or {}).get(label or "") or {}
    assumed = default.get("partial_rotary_factor")
    if assumed is not None:
        return ledger.default(assumed)
    if ledger.known.partial is not None:
        return ledger.default(ledger.known.partial)
    return None


def head_dim(ledger: KeyLedger, label: str | None) -> Setting:
    """The width of a head: said, assumed by the class, or hidden_size / num_attention_heads."""
    own = ledger.known.head_dims.get(label or "")
    found = _by_layer(ledger, label)
    if found is None and own in (None, ledger.known.fields.get("head_dim")):
        found = _said(ledger)
    if found is not None:
        ledger.whole(found)
        return found
    if own is not None:
        return ledger.default(own)
    memory = _memory_head(ledger)
    if memory is not None:
        return memory
    if "head_dim" not in ledger.config.values and (fixed := ledger.from_class("head_dim")):
        return fixed
    hidden, heads = ledger.size("hidden_size"), ledger.size("num_attention_heads")
    for name, value in (("hidden_size", hidden), ("num_attention_heads", heads)):
        if value.assumed:
            ledger.assume(name, value)
    times = ledger.known.head_multiple
    origin = (
        f"{_name(hidden, 'hidden_size')} {hidden.value} / {_name(heads, 'num_attention_heads')} {heads.value}"
    )
    return Setting(
        times * ledger.whole(hidden) // ledger.whole(heads), f"{times} * {origin}" if times > 1 else origin
    )


def _memory_head(ledger: KeyLedger) -> Setting | None:
    """The head of the memory attention of SAM 2 video models, which is what turns there."""
    names = (
        "memory_attention_hidden_size",
        "memory_attention_downsample_rate",
        "memory_attention_num_attention_heads",
    )
    hidden, rate, heads = (ledger.geometry_like(name) for name in names)
    if hidden is None or rate is None or heads is None:
        return None
    width = ledger.whole(hidden) // (ledger.whole(rate) * ledger.whole(heads))
    return Setting(width, f"{names[0]} {hidden.value} / ({names[1]} {rate.value} * {names[2]} {heads.value})")


def _name(found: Setting, usual: str) -> str:
    return usual if found.assumed else found.origin


def _said(ledger: KeyLedger) -> Setting | None:
    alias = ledger.known.aliases.get("head_dim")
    return ledger.in_file(
        *((alias,) if alias else ()), "head_dim", "kv_channels", "head_size", "attention_head_dim"
    )


def _by_layer(ledger: KeyLedger, label: str | None) -> Setting | None:
    """A head width that differs by layer type: `per_layer_config`, or `global_head_dim` for full attention."""
    layers = ledger.config.values.get("per_layer_config")
    if label and isinstance(layers, Mapping):
        first = first_layer(ledger, label)
        for index, own in layers.items():  # the keys are numbers, padded with zeros in saved files
            if (
                str(index).isdecimal()
                and int(index) == first
                and isinstance(own, Mapping)
                and own.get("head_dim")
            ):
                return Setting(own["head_dim"], ledger.config.key(f"per_layer_config.{index}.head_dim"))
        if layers and "head_dim" in ledger.config.values:
            return ledger.in_file("head_dim")
    return ledger.in_file("global_head_dim") if label == "full_attention" else None


def trained_length(
    ledger: KeyLedger, parameters: Mapping[str, Any], longest: int | None
) -> tuple[int | None, str]:
    """The length before scaling and the key that states it; where no key does, a guess that says so."""
    stated = ledger.origins.get("original_len", "")
    chunked = ledger.value("dual_chunk_attention_config.original_max_position_embeddings")
    if isinstance(chunked, int):
        key = "dual_chunk_attention_config.original_max_position_embeddings"
        return chunked, ledger.config.key(key)
    if "original_len" in parameters and stated.rpartition(".")[2] not in LENGTHS:
        return int(parameters["original_len"]), stated
    if longest is None:
        return None, ""
    if parameters.get("scaling") == "linear":
        return int(longest / parameters["factor"]), "a guess: the longest length over the factor"
    others = [
        f"{ledger.config.key(key)} is {value}"
        for key in LENGTHS
        if isinstance(value := ledger.value(key), int) and value != longest
    ]
    return longest, "; ".join(["a guess: the longest length of the model", *others])


# How many tokens of the text an image takes, and what says how many patches make one of them.
IMAGE_TOKEN_FIELDS = ("image_seq_length", "image_seq_len", "num_image_tokens", "image_token_length")
MERGING_FIELDS = ("downsample_ratio", "scale_factor", "pixel_shuffle_ratio", "spatial_merge_size")
POOLED = ("mm_tokens_per_image", "perceiver_config", "qformer_config", "num_query_tokens", "resampler_config")


def image_tokens(data: Mapping[str, Any], grid: Sequence[int]) -> int | None:
    """Tokens that a model puts into the text for an image of `grid` patches; None where it pools them to a fixed number."""
    if any(field in data for field in POOLED):
        return None
    ratio = next((data[field] for field in MERGING_FIELDS if isinstance(data.get(field), (int, float))), 1)
    side = ratio if ratio >= 1 else 1 / ratio
    return int(prod(grid) / side**2)
