"""A rotary configuration in any spelling → the arguments of `rope`.

Spellings: `rope_parameters` (transformers 5; nested by layer type or flat), `rope_scaling` with `rope_theta` beside
it (transformers 4; `type` or `rope_type`), and the older names of single model families, which are tables below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pe_cli.errors import PeError, no_such
from pe_cli.models.defaults import Defaults
from pe_cli.models.resolved import Found, Ledger
from pe_cli.models.schemes import REFUSED_TYPES

FALLBACK_THETA = 10000.0
# Names of the base beside the rotary parameters, by layer type; `None` is a model with one table.
THETA_KEYS: dict[str | None, tuple[str, ...]] = {
    None: (
        "rope_theta",
        "rotary_emb_base",
        "rotary_embedding_base",
        "rotary_base",
        "rope_base",
        "rope_freq_base",
    ),
    "full_attention": ("global_rope_theta", "rope_theta", "rotary_emb_base"),
    "sliding_attention": ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta", "sliding_rope_theta"),
    "compress": ("compress_rope_theta",),
    "main": ("rope_theta",),
}
PARTIAL_KEYS = (
    "partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percentage", "rotary_percent", "rotary_emb_fraction",
)  # fmt: skip
TYPES = {
    "default": "none",
    "none": "none",
    "mrope": "none",
    "axial": "none",
    "linear": "linear",
    "dynamic": "dynamic-ntk",
    "xdrope": "dynamic-ntk",
    "yarn": "yarn",
    "deepseek_yarn": "yarn",
    "telechat3-yarn": "yarn",
    "longrope": "longrope",
    "su": "longrope",
    "llama3": "llama3",
    "proportional": "proportional",
}
TELECHAT_SLOPE = 0.07
LONGROPE_FAMILIES = frozenset({"phi3", "phi4_multimodal"})
NOPE = "NoPE: these layers do not rotate, so they have no table"


@dataclass(frozen=True)
class Rope:
    """The rotary parameters of one layer type, before they are read."""

    values: Mapping[str, Any]
    path: str
    assumed: bool
    outer: Mapping[str, Any]
    fallback: Mapping[str, Any] = field(default_factory=dict)

    def find(self, ledger: Ledger, *keys: str) -> Found | None:
        for key in keys:
            if self.values.get(key) is not None:
                if self.assumed:
                    return Found(self.values[key], ledger.known.described(), assumed=True)
                return Found(self.values[key], f"{self.path}.{key}")
        return None


def layer_tables(ledger: Ledger) -> dict[str | None, Rope | None]:
    """The rotary parameters by layer type (`None`: one table for all layers); a value of None means NoPE layers."""
    key, given = _given(ledger)
    path = ledger.config.key(key)
    known = ledger.known
    nested = {k: v for k, v in given.items() if _is_label(k, v, ledger)}
    if nested:
        tables: dict[str | None, Rope | None] = {
            label: None if value is None else Rope(value, f"{path}.{label}", False, given)
            for label, value in nested.items()
        }
        for label in known.labels:
            tables.setdefault(label, _assumed(known, label))
        return tables
    if known.labels:
        return {label: _flat(ledger, label, given, path) for label in known.labels}
    if given:
        return {None: Rope(given, path, False, {})}
    if known.rope:
        return {None: Rope(known.rope, path, True, {})}
    return {None: Rope({}, path, False, {})}


def _given(ledger: Ledger) -> tuple[str, Mapping[str, Any]]:
    """The rotary parameters in the file, old or new spelling; the old wins where both are there, as in transformers."""
    found = {}
    for key in ("rope_scaling", "rope_parameters"):
        value = ledger.config.values.get(key)
        if value is None or value == {}:
            continue
        if not isinstance(value, Mapping):
            raise ledger.wrong(
                Found(value, ledger.config.key(key)), "an object", '{"rope_type": "linear", "factor": 4.0}'
            )
        found[key] = value
    if len(found) == 2 and found["rope_scaling"] != found["rope_parameters"]:
        ledger.warn(
            f"{ledger.config.file}: rope_scaling and rope_parameters differ; rope_scaling is used, as transformers does"
        )
    for key, value in found.items():
        return key, value
    return "rope_parameters", {}


def _is_label(key: str, value: Any, ledger: Ledger) -> bool:
    if isinstance(value, Mapping):
        return True
    return value is None and (key in ledger.known.labels or key.endswith(("attention", "sliding")))


def _assumed(known: Defaults, label: str) -> Rope | None:
    values = (known.rope or {}).get(label)
    return None if values is None else Rope(values, f"rope_parameters.{label}", True, {})


def _flat(ledger: Ledger, label: str, given: Mapping[str, Any], path: str) -> Rope | None:
    """Flat parameters in a model whose layer types differ: the class applies them to some of the types."""
    default = _assumed(ledger.known, label)
    if default is None or not given:
        return default
    if label in ledger.known.scaled:
        if "type" in given and "rope_type" not in given:
            ledger.warn(
                f"{path}.type is used; {ledger.known.name} in {ledger.known.source} reads rope_type only"
            )
        return Rope(given, path, False, {}, default.values)
    if not ledger.known.scaled:
        ledger.warn(
            f"{ledger.config.file}: {path} is not by layer type, and {ledger.known.name} does not read it"
        )
    return Rope({}, path, False, {}, default.values)


def label_of(ledger: Ledger, tables: Mapping[str | None, Rope | None], asked: str | None) -> str | None:
    """The layer type to resolve. Raises PeError where there are several and none was named."""
    labels = [label for label in tables if label is not None]
    live = [label for label in labels if tables[label] is not None]
    file = ledger.config.file
    if asked is not None:
        return _asked(ledger, tables, asked, labels)
    if not labels:
        return None
    if not live:
        raise PeError(f"{file}: no layer rotates (all of {', '.join(labels)} are null)")
    if len(live) == 1:
        if len(labels) > 1:
            ledger.note(
                f"only {live[0]} layers rotate; {', '.join(n for n in labels if n != live[0])} layers are NoPE"
            )
        return live[0]
    distinct = {repr(sorted(tables[label].values.items())) for label in live}  # type: ignore[union-attr]
    if len(distinct) == 1 and not any(tables[label].assumed for label in live):  # type: ignore[union-attr]
        ledger.note(f"the layer types {', '.join(live)} share one table")
        return live[0]
    raise PeError(
        f"{file}: this model has a table for each layer type, choose one with --layer-type: {', '.join(live)}"
    )


def _asked(
    ledger: Ledger, tables: Mapping[str | None, Rope | None], asked: str, labels: list[str]
) -> str | None:
    types = layer_kinds(ledger)
    if asked in tables:
        if tables[asked] is None:
            raise PeError(f"{ledger.config.file}: {asked} layers are {NOPE}")
        return asked
    if labels or asked not in types:
        raise no_such(
            "layer type",
            asked,
            labels or list(dict.fromkeys(types)) or ["one table for all layers: leave --layer-type out"],
        )
    ledger.note(f"all layer types share one table, so --layer-type {asked} changes nothing")
    return None


def base(ledger: Ledger, rope: Rope, label: str | None) -> float:
    """θ, with the loud default of the model type where the file has none."""
    own = None if rope.assumed else rope.find(ledger, "rope_theta", "base")
    found = own or _beside(ledger, label) or _assumed_theta(ledger, rope, label)
    value = found.value
    if isinstance(value, list):
        found = Found(value[_first_layer(ledger, label)], found.origin, found.assumed)
    theta = float(ledger.number(found))
    ratio = ledger.in_file("rope_ratio")
    if ratio is not None:
        theta *= ledger.number(ratio)
        found = Found(theta, f"{found.origin}, times {ratio.origin}")
        ledger.origins["base"] = found.origin
        return theta
    ledger.record("base", found, "rope_theta")
    if own is None and ledger.known.theta_ignored and found.origin.endswith("rope_theta"):
        ledger.warn(
            f"{found.origin} {theta:g} is used; {ledger.known.name} in {ledger.known.source} reads it only inside rope_parameters"
        )
    return theta


def _beside(ledger: Ledger, label: str | None) -> Found | None:
    layers = ledger.in_file("layer_rope_theta")
    if layers is not None and isinstance(layers.value, list):
        thetas = sorted({theta for theta in layers.value if theta})
        if len(thetas) > 1:
            raise PeError(
                f"{ledger.config.file}: {layers.origin} has several bases ({', '.join(f'{t:g}' for t in thetas)}): "
                "make each with `pe gen rope --base`"
            )
        if thetas:
            return Found(thetas[0], layers.origin)
    keys = THETA_KEYS.get(label, THETA_KEYS[None])
    found = ledger.in_file(*keys)
    if found is None and label not in (None, "full_attention", "main") and _one_theta(ledger.known):
        found = ledger.in_file(*THETA_KEYS[None])
    return found


def _one_theta(known: Defaults) -> bool:
    """Whether the class uses the same base in all its layer types."""
    thetas = {(known.rope or {})[label]["rope_theta"] for label in known.labels if (known.rope or {})[label]}
    return len(thetas) < 2


def _assumed_theta(ledger: Ledger, rope: Rope, label: str | None) -> Found:
    known = ledger.known
    own = (known.rope or {}).get(label) if label else known.rope
    for value in (
        rope.values.get("rope_theta"),
        (own or {}).get("rope_theta") if isinstance(own, Mapping) else None,
    ):
        if value is not None:
            return Found(value, known.described(), assumed=True)
    for value in (known.fields.get("rope_theta"), known.theta):
        if isinstance(value, (int, float)):
            return Found(value, known.described(), assumed=True)
    return Found(FALLBACK_THETA, known.described(), assumed=True)


def layer_kinds(ledger: Ledger) -> list[str]:
    """The type of each layer, where the file lists them."""
    kinds = ledger.config.values.get("layer_types")
    return [str(kind) for kind in kinds] if isinstance(kinds, list) else []


def _first_layer(ledger: Ledger, label: str | None) -> int:
    kinds = layer_kinds(ledger)
    return kinds.index(label) if label in kinds else 0


def width(ledger: Ledger, rope: Rope, label: str | None, scaling: str) -> tuple[int, float | None]:
    """(rotary width, part of the head that turns); the part is for `proportional`, where the width stays the head's."""
    direct = ledger.in_file("qk_rope_head_dim") or _from_fields(ledger, "qk_rope_head_dim")
    rotary = ledger.in_file("rotary_dim") or _from_fields(ledger, "rotary_dim")
    partial = _partial(ledger, rope, label)
    if direct is not None:
        return _rotated_part(ledger, direct, partial), None
    if rotary is not None and partial is None and ledger.known.model_type in ROTARY_DIM_COUNTS:
        return _recorded(ledger, rotary, "rotary_dim"), None
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
        return head.value, part
    if part != 1.0 and partial is not None:
        if ledger.known.partial_ignored and scaling == "none" and not partial.assumed:
            ledger.warn(
                f"{partial.origin} {part:g} is applied; {ledger.known.module} in {ledger.known.source} does not read it"
            )
        ledger.origins["dim"] = f"{head.origin}, times {partial.origin} {part:g}"
    dim = int(head.value * part)
    if dim < 1:
        raise PeError(f"{ledger.config.file}: {part:g} of a head of {head.value} leaves no rotary channel")
    return dim, None


# In these the file's `rotary_dim` is the width; elsewhere the key is there but the class does not read it.
ROTARY_DIM_COUNTS = frozenset({"gptj", "codegen", "phi-msft", "", "minimax_m2", "qwen"})


def _rotated_part(ledger: Ledger, direct: Found, partial: Found | None) -> int:
    """The rotated channels of a head whose other channels are kept apart (multi-head latent attention)."""
    value = _recorded(ledger, direct, "qk_rope_head_dim")
    reads_part = (
        ledger.known.aliases.get("head_dim") == "qk_rope_head_dim" and not ledger.known.partial_ignored
    )
    if partial is None or partial.assumed or not reads_part:
        return value
    ledger.origins["dim"] += f", times {partial.origin} {partial.value}"
    return int(value * ledger.number(partial))


def _recorded(ledger: Ledger, found: Found, called: str) -> int:
    value = ledger.whole(found)
    ledger.record("dim", found, called)
    return value


def _from_fields(ledger: Ledger, name: str) -> Found | None:
    value = ledger.known.fields.get(name)
    return None if value is None else Found(value, ledger.known.described(), assumed=True)


def _partial(ledger: Ledger, rope: Rope, label: str | None) -> Found | None:
    found = rope.find(ledger, "partial_rotary_factor") if not rope.assumed else None
    found = found or ledger.in_file(*PARTIAL_KEYS)
    layers = ledger.in_file("partial_rotary_factors")
    if found is None and layers is not None and isinstance(layers.value, list):
        found = Found(layers.value[_first_layer(ledger, label)], layers.origin)
    if found is not None:
        return found
    assumed = (rope.values if rope.assumed else rope.fallback).get("partial_rotary_factor")
    if assumed is not None:
        return Found(assumed, ledger.known.described(), assumed=True)
    if ledger.known.partial is not None:
        return Found(ledger.known.partial, ledger.known.described(), assumed=True)
    return None


def head_dim(ledger: Ledger, label: str | None) -> Found:
    """The width of a head: said, assumed by the class, or hidden_size / num_attention_heads."""
    own = ledger.known.head_dims.get(label or "")
    found = _by_layer(ledger, label)
    if found is None and own in (None, ledger.known.fields.get("head_dim")):
        found = _said(ledger)
    if found is not None:
        ledger.whole(found)
        return found
    if own is not None:
        return Found(own, ledger.known.described(), assumed=True)
    memory = _memory_head(ledger)
    if memory is not None:
        return memory
    if "head_dim" not in ledger.config.values and "head_dim" in ledger.known.fields:
        return Found(ledger.known.fields["head_dim"], ledger.known.described(), assumed=True)
    hidden, heads = ledger.size("hidden_size"), ledger.size("num_attention_heads")
    for name, value in (("hidden_size", hidden), ("num_attention_heads", heads)):
        if value.assumed:
            ledger.assume(name, value)
    times = ledger.known.head_multiple
    origin = (
        f"{_name(hidden, 'hidden_size')} {hidden.value} / {_name(heads, 'num_attention_heads')} {heads.value}"
    )
    return Found(
        times * ledger.whole(hidden) // ledger.whole(heads), f"{times} * {origin}" if times > 1 else origin
    )


def _memory_head(ledger: Ledger) -> Found | None:
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
    return Found(width, f"{names[0]} {hidden.value} / ({names[1]} {rate.value} * {names[2]} {heads.value})")


def _name(found: Found, usual: str) -> str:
    return usual if found.assumed else found.origin


def _said(ledger: Ledger) -> Found | None:
    alias = ledger.known.aliases.get("head_dim")
    return ledger.in_file(
        *((alias,) if alias else ()), "head_dim", "kv_channels", "head_size", "attention_head_dim"
    )


def _by_layer(ledger: Ledger, label: str | None) -> Found | None:
    """A head width that differs by layer type: `per_layer_config`, or `global_head_dim` for full attention."""
    layers = ledger.config.values.get("per_layer_config")
    if label and isinstance(layers, Mapping):
        first = _first_layer(ledger, label)
        for index, own in layers.items():  # the keys are numbers, padded with zeros in saved files
            if (
                str(index).isdecimal()
                and int(index) == first
                and isinstance(own, Mapping)
                and own.get("head_dim")
            ):
                return Found(own["head_dim"], ledger.config.key(f"per_layer_config.{index}.head_dim"))
        if layers and "head_dim" in ledger.config.values:
            return ledger.in_file("head_dim")
    return ledger.in_file("global_head_dim") if label == "full_attention" else None


def scaling_type(ledger: Ledger, rope: Rope) -> tuple[str, Found | None]:
    """The name of the scaling as `rope` calls it, and where it was said."""
    found = rope.find(ledger, "rope_type", "type")
    if found is None:
        return "none", None
    if not isinstance(found.value, str):
        raise ledger.wrong(found, "the name of a scaling", '"yarn"')
    if found.value in REFUSED_TYPES:
        raise PeError(
            f"{ledger.config.file}: {found.origin} {found.value!r}: the model {REFUSED_TYPES[found.value]}, so no table follows from a configuration"
        )
    if found.value not in TYPES:
        trouble = no_such("rope_type", found.value, TYPES)
        raise PeError(f"{ledger.config.file}: {found.origin}: {trouble}")
    name = TYPES[found.value]
    if name == "yarn" and ledger.known.model_type in LONGROPE_FAMILIES:
        ledger.note(f"{found.origin} says yarn, which this family means as longrope")
        name = "longrope"
    if name == "dynamic-ntk" and rope.values.get("alpha"):
        name = "ntk"
    if found.assumed and name != "none":
        ledger.assume("rope_type", found)
    return name, found


BY_LENGTH = {
    "longrope": "chooses its short or long factors by the length",
    "dynamic-ntk": "computes its base from the length",
}
Reader = Callable[[Ledger, Rope, dict[str, Any]], None]


def scaling(ledger: Ledger, rope: Rope, name: str, seq_len: int | None) -> dict[str, Any]:
    """The arguments of a scaling, each checked and noted."""
    arguments: dict[str, Any] = {}
    if name in BY_LENGTH:
        if seq_len is None:
            raise PeError(
                f"{ledger.config.file}: this model {BY_LENGTH[name]}: say for which with --seq-len N"
            )
        arguments["seq_len"] = seq_len
        ledger.origins["seq_len"] = "--seq-len"
    if name in READERS:
        READERS[name](ledger, rope, arguments)
    return arguments


def _take(ledger: Ledger, rope: Rope, arguments: dict[str, Any], parameter: str, key: str) -> bool:
    found = rope.find(ledger, key)
    if found is None:
        return False
    arguments[parameter] = float(ledger.number(found))
    ledger.origins[parameter] = found.origin
    return True


def _need(ledger: Ledger, rope: Rope, arguments: dict[str, Any], parameter: str, key: str) -> None:
    if not _take(ledger, rope, arguments, parameter, key):
        kind = rope.values.get("rope_type", rope.values.get("type"))
        raise PeError(
            f'{ledger.config.file}: {rope.path}.{key} is missing, which rope_type {kind!r} needs; add "{key}": its number'
        )


def _original(ledger: Ledger, rope: Rope, arguments: dict[str, Any]) -> None:
    """L0: beside the parameters (which wins, as in transformers), in them, or max_position_embeddings."""
    name = "original_max_position_embeddings"
    inside = rope.find(ledger, name)
    beside = None if rope.outer else ledger.in_file(name) or _from_fields(ledger, name)
    if beside is not None and inside is not None and beside.value != inside.value:
        ledger.warn(
            f"{ledger.config.file}: {inside.origin} is {inside.value}, but {beside.value} ({beside.origin}) wins, as in transformers"
        )
    found = beside or inside
    if found is None:
        found = ledger.size("max_position_embeddings")
        ledger.warn(
            f"{rope.path}.{name} is not in {ledger.config.file}: max_position_embeddings {found.value} is used, as transformers does"
        )
    arguments["original_len"] = ledger.whole(found)
    ledger.origins["original_len"] = found.origin


def _stretch(ledger: Ledger, rope: Rope, arguments: dict[str, Any]) -> None:
    """The factor, or where it is null the quotient of the two lengths."""
    if _take(ledger, rope, arguments, "factor", "factor"):
        return
    longest = ledger.size("max_position_embeddings")
    arguments["factor"] = ledger.whole(longest) / arguments["original_len"]
    ledger.origins["factor"] = (
        f"{longest.origin} {longest.value} / original length {arguments['original_len']}"
    )


def _linear(ledger: Ledger, rope: Rope, arguments: dict[str, Any]) -> None:
    _need(ledger, rope, arguments, "factor", "factor")


def _dynamic(ledger: Ledger, rope: Rope, arguments: dict[str, Any]) -> None:
    _need(ledger, rope, arguments, "factor", "factor")
    longest = ledger.size("max_position_embeddings")
    arguments["original_len"] = ledger.record("original_len", longest, "max_position_embeddings")


def _ntk(ledger: Ledger, rope: Rope, arguments: dict[str, Any]) -> None:
    _need(ledger, rope, arguments, "factor", "alpha")


def _yarn(ledger: Ledger, rope: Rope, arguments: dict[str, Any]) -> None:
    _original(ledger, rope, arguments)
    _stretch(ledger, rope, arguments)
    for key in ("attention_factor", "mscale", "mscale_all_dim"):
        if rope.values.get(key) == 0 and key != "attention_factor":
            continue
        _take(ledger, rope, arguments, key, key)
    for key in ("beta_fast", "beta_slow"):
        if rope.values.get(key):  # 0 counts as absent in transformers
            _take(ledger, rope, arguments, key, key)
    assumed = ledger.known.attention_factor
    if "attention_factor" not in arguments and assumed is not None:
        arguments["attention_factor"] = ledger.record(
            "attention_factor", Found(assumed, ledger.known.described(), True)
        )
    truncate = rope.find(ledger, "truncate")
    if rope.outer:
        beside = rope.outer.get("truncate")
        if truncate is not None and beside is None and truncate.value is False:
            ledger.warn(
                f"{ledger.config.file}: {truncate.origin} is false and is honoured; transformers 5.24 looks for truncate beside the "
                "layer types only and would round the range (--truncate gives its table)"
            )
        elif beside is not None:
            truncate = Found(beside, f"{rope.path.rpartition('.')[0]}.truncate")
    if truncate is not None:
        arguments["truncate"] = ledger.truth(truncate)
        ledger.origins["truncate"] = truncate.origin
    if (
        rope.values.get("rope_type", rope.values.get("type")) == "telechat3-yarn"
        and "attention_factor" not in arguments
    ):
        arguments["attention_factor"] = TELECHAT_SLOPE * math.log(arguments["factor"]) + 1.0
        ledger.origins["attention_factor"] = "0.07 ln(factor) + 1, the rule of TeleChat3"


def _longrope(ledger: Ledger, rope: Rope, arguments: dict[str, Any]) -> None:
    _original(ledger, rope, arguments)
    _stretch(ledger, rope, arguments)
    if not _take(ledger, rope, arguments, "attention_factor", "attention_factor"):
        _magnitude_by_length(ledger, rope, arguments)
    for key in ("short_factor", "long_factor"):
        found = rope.find(ledger, key)
        if found is None:
            raise PeError(
                f"{ledger.config.file}: {rope.path}.{key} is missing, which longrope needs; add the list of divisors"
            )
        arguments[key] = ledger.numbers(found)
        ledger.origins[key] = found.origin


def _magnitude_by_length(ledger: Ledger, rope: Rope, arguments: dict[str, Any]) -> None:
    """PhiMoE has a magnitude for each of its lists of factors."""
    side = "long" if arguments["seq_len"] > arguments["original_len"] else "short"
    if _take(ledger, rope, arguments, "attention_factor", f"{side}_mscale") and side == "long":
        ledger.warn(
            f"{rope.path}.long_factor is used beyond {arguments['original_len']}; PhimoeRotaryEmbedding in transformers 5.24.0 "
            "turns with short_factor at every length"
        )


def _llama3(ledger: Ledger, rope: Rope, arguments: dict[str, Any]) -> None:
    _need(ledger, rope, arguments, "factor", "factor")
    _need(ledger, rope, arguments, "low_freq_factor", "low_freq_factor")
    _need(ledger, rope, arguments, "high_freq_factor", "high_freq_factor")
    _original(ledger, rope, arguments)


def _proportional(ledger: Ledger, rope: Rope, arguments: dict[str, Any]) -> None:
    _take(ledger, rope, arguments, "factor", "factor")


READERS: dict[str, Reader] = {
    "linear": _linear,
    "dynamic-ntk": _dynamic,
    "ntk": _ntk,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}
