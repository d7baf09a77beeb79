"""Which layers have which rotary parameters, which do not rotate, and what their queries are multiplied with.

Spellings: `rope_parameters` (transformers 5; nested by layer type or flat), `rope_scaling` with `rope_theta` beside
it (transformers 4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, no_such, parameter
from pe_cli.models.configuration import Defaults, data
from pe_cli.models.resolved import ExtraTable, KeyLedger, Setting
from pe_cli.signature import Positions, encoding
from pe_cli.tensors import Tensors

# Layer types that turn in every class that knows them, unless their parameters are null.
ATTENTION = ("full_attention", "sliding_attention")
SCALED, UNSCALED = "scaled", "unscaled"
NOPE = "NoPE: these layers do not rotate, so they have no table"


@dataclass(frozen=True)
class Rope:
    """The rotary parameters of one layer type, before they are read.

    block : where they lie in the configuration, dotted; path : the same for messages, as the file spells it
    assumed : whether they are the defaults of the model class, because the file has none
    outer : the parameters of all layer types, where these are nested in them
    """

    values: Mapping[str, Any]
    block: str
    path: str
    assumed: bool
    outer: Mapping[str, Any]
    fallback: Mapping[str, Any] = field(default_factory=dict)

    def find(self, ledger: KeyLedger, *keys: str) -> Setting | None:
        for index, key in enumerate(keys):
            if self.values.get(key) is not None:
                same = (k for k in keys[index:] if self.values.get(k) == self.values[key])
                ledger.keys_read.update(f"{self.block}.{k}" for k in same)
                if self.assumed:
                    return ledger.default(self.values[key])
                return ledger.setting(f"{self.block}.{key}", self.values[key])
        return None


def layer_tables(ledger: KeyLedger) -> dict[str | None, Rope | None]:
    """The rotary parameters by layer type (`None`: one table for all layers); a value of None means NoPE layers."""
    key, given = _given(ledger)
    path = ledger.config.key(key)
    known = ledger.known
    nested = {k: v for k, v in given.items() if _is_label(k, v, ledger)}
    if nested:
        tables: dict[str | None, Rope | None] = {
            label: None if value is None else Rope(value, f"{key}.{label}", f"{path}.{label}", False, given)
            for label, value in nested.items()
        }
        for label in known.labels:
            tables.setdefault(label, _assumed(known, label))
        return tables
    if known.labels:
        listed = [kind for kind in ATTENTION if kind in layer_kinds(ledger)]
        labels = dict.fromkeys((*known.labels, *listed))
        return {label: _flat(ledger, label, given, key) for label in labels}
    if given and SCALED in layer_kinds(ledger):
        unscaled = {"rope_theta": given["rope_theta"]} if "rope_theta" in given else {}
        return {SCALED: Rope(given, key, path, False, {}), UNSCALED: Rope(unscaled, key, path, False, {})}
    if given:
        return {None: Rope(given, key, path, False, {})}
    if known.rope:
        return {None: Rope(known.rope, key, path, True, {})}
    return {None: Rope({}, key, path, False, {})}


def _given(ledger: KeyLedger) -> tuple[str, Mapping[str, Any]]:
    """The rotary parameters in the file, old or new spelling; the old wins where both are there, as in transformers."""
    found = {}
    for key in ("rope_scaling", "rope_parameters"):
        value = ledger.config.values.get(key)
        if value is None or value == {}:
            continue
        if not isinstance(value, Mapping):
            raise ledger.wrong(
                Setting(value, ledger.config.key(key)), "an object", '{"rope_type": "linear", "factor": 4.0}'
            )
        found[key] = value
    if len(found) == 2 and found["rope_scaling"] != found["rope_parameters"]:
        ledger.warn(
            f"{ledger.config.file}: rope_scaling and rope_parameters differ; rope_scaling is used, as transformers does"
        )
    for key, value in found.items():
        return key, value
    return "rope_parameters", {}


def _is_label(key: str, value: Any, ledger: KeyLedger) -> bool:
    if isinstance(value, Mapping):
        return True
    return value is None and (key in ledger.known.labels or key.endswith(("attention", "sliding")))


def _assumed(known: Defaults, label: str) -> Rope | None:
    values = (known.rope or {}).get(label)
    return (
        None
        if values is None
        else Rope(values, f"rope_parameters.{label}", f"rope_parameters.{label}", True, {})
    )


def _flat(ledger: KeyLedger, label: str, given: Mapping[str, Any], block: str) -> Rope | None:
    """Flat parameters in a model whose layer types differ: the class applies them to some of the types."""
    path = ledger.config.key(block)
    if label not in ledger.known.labels:
        return Rope({}, block, path, False, {})
    default = _assumed(ledger.known, label)
    if default is None or not given:
        return default
    if label in ledger.known.scaled:
        if "type" in given and "rope_type" not in given:
            ledger.warn(
                f"{path}.type is used; {ledger.known.name} in {ledger.known.source} reads rope_type only"
            )
        return Rope(given, block, path, False, {}, default.values)
    if not ledger.known.scaled:
        ledger.warn(
            f"{ledger.config.file}: {path} is not by layer type, and {ledger.known.name} does not read it"
        )
    return Rope({}, block, path, False, {}, default.values)


def label_of(ledger: KeyLedger, tables: Mapping[str | None, Rope | None], asked: str | None) -> str | None:
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
    return one_label(file, live, None)


def one_label(file: str, labels: Sequence[str], asked: str | None) -> str | None:
    """The layer type meant among those that have tables. Raises PeError where none was named, or one that there is not."""
    if asked is not None and asked not in labels:
        raise no_layer_type(file, asked, labels)
    if asked is None and labels:
        raise PeError(
            f"{file}: this model has a table for each layer type, choose one with {parameter('layer_type')}: {', '.join(labels)}"
        )
    return asked


def _asked(
    ledger: KeyLedger, tables: Mapping[str | None, Rope | None], asked: str, labels: list[str]
) -> str | None:
    types = layer_kinds(ledger)
    if asked in tables:
        if tables[asked] is None:
            raise PeError(f"{ledger.config.file}: {asked} layers are {NOPE}")
        return asked
    if labels or asked not in types:
        raise no_layer_type(ledger.config.file, asked, labels or list(dict.fromkeys(types)))
    ledger.note(f"all layer types share one table, {asked} layers too")
    return None


def no_layer_type(file: str, asked: str, known: Sequence[str]) -> PeError:
    """None of the `known` layer types is called so; or there are none."""
    if known:
        return no_such("layer type", asked, known)
    return PeError(
        f"{file}: one table serves all layers of this model; leave {parameter('layer_type')} {asked} out"
    )


MOST_LAYERS = 100_000


def layer_kinds(ledger: KeyLedger) -> list[str]:
    """The type of each layer, as the file lists them or else as the model class makes them; empty where neither says."""
    rule = data("layers").get(ledger.config.model_type, {})
    scaled = ledger.in_file(rule["scaled"]) if "scaled" in rule else None
    count = ledger.geometry("num_hidden_layers")
    if scaled is not None and count is not None:
        listed = ledger.wholes(scaled) if scaled.value else ()
        by_layer = [SCALED if layer in listed else UNSCALED for layer in range(layer_count(ledger, count))]
        return by_layer if UNSCALED in by_layer else []
    kinds = ledger.config.values.get("layer_types")
    if isinstance(kinds, list):
        return [str(kind) for kind in one_each(ledger, Setting(kinds, ledger.config.key("layer_types")))]
    makes = "pattern" in rule or "period" in rule
    return [] if count is None or not makes else _made(ledger, rule, layer_count(ledger, count))


def one_each(ledger: KeyLedger, listed: Setting) -> list[Any]:
    """A list with an entry for each layer; raises PeError where the file counts more layers than it lists."""
    count = ledger.geometry("num_hidden_layers")
    if count is not None and not count.assumed and len(listed.value) < ledger.whole(count):
        raise PeError(
            f"{ledger.config.file}: {listed.origin} has {len(listed.value)} entries for the {count.value} layers of "
            f"{count.origin}; list all of them"
        )
    return list(listed.value)


def layers_of(ledger: KeyLedger, label: str | None) -> tuple[int, ...]:
    """The numbers of the layers of this type, where the file says how many layers there are: sizes of one class differ."""
    listed = isinstance(ledger.config.values.get("layer_types"), list)
    count = ledger.geometry("num_hidden_layers")
    if not listed and (count is None or count.assumed):
        return ()
    return tuple(layer for layer, kind in enumerate(layer_kinds(ledger)) if label and kind == label)


def layer_count(ledger: KeyLedger, found: Setting) -> int:
    """The number of layers, which has to be one that a model can have."""
    layers = ledger.whole(found)
    if layers > MOST_LAYERS:
        raise ledger.wrong(found, f"a number up to {MOST_LAYERS}", "32")
    return layers


def _made(ledger: KeyLedger, rule: Mapping[str, Any], layers: int) -> list[str]:
    """The layer types that the class makes by a rule of `layers.json`."""
    if "pattern" in rule:
        kinds = [rule["pattern"][layer % len(rule["pattern"])] for layer in range(layers)]
    else:
        key, period = rule["period"]
        found = ledger.in_file(key) if key else None
        if found and isinstance(found.value, str):
            return _by_letters(ledger, found, layers)
        kinds = _by_period(ledger.whole(found) if found else period, layers, full_first="full_first" in rule)
    if "prefix" in rule:
        count, key, period = rule["prefix"]
        dense, every = ledger.in_file(count), ledger.in_file(key)
        first = ledger.whole(dense, positive=False) if dense else 0
        kinds = [*_by_period(ledger.whole(every) if every else period, first), *kinds][:layers]
    kinds[: len(rule.get("first", ()))] = rule.get("first", [])[:layers]
    if "last" in rule and kinds:
        kinds[-1] = rule["last"]
    return kinds


def _by_period(period: int, layers: int, *, full_first: bool = False) -> list[str]:
    """Sliding layers, and every `period`-th one with full attention, the first or the last of each period."""
    return [ATTENTION[(layer + (not full_first)) % period != 0] for layer in range(layers)]


def _by_letters(ledger: KeyLedger, found: Setting, layers: int) -> list[str]:
    """A pattern such as LLLG of EXAONE 4: local layers slide, global ones and the last do not."""
    if not found.value or set(found.value) - set("LG"):
        raise ledger.wrong(found, "a number, or a pattern of L and G", '"LLLG"')
    kinds = [ATTENTION[found.value[layer % len(found.value)] == "L"] for layer in range(layers)]
    return [*kinds[:-1], ATTENTION[0]]


def first_layer(ledger: KeyLedger, label: str | None) -> int:
    kinds = layer_kinds(ledger)
    return kinds.index(label) if label in kinds else 0


QUERY_TEMPERATURE, ROTATED_LAYERS = "query-temperature", "rotated-layers"
BETA, BETA_LENGTH = "llama_4_scaling_beta", "llama_4_scaling_length"


@encoding
def query_temperature(
    positions: Positions, *, strength: float = 0.0, length: int, shift: int = 0, form: str = "steps"
) -> NDArray[np.float64]:
    """(n,) the factor of each query, which grows with its position p against attention that spreads too thin.

    form : "steps" 1 + strength ln(1 + floor((p + shift) / length)) · "power" (1 + (p + shift) / length)^strength ·
        "log" max(1, ln(p + 1) / ln(length))

    Source: steps in Llama 4 (strength 0.1, length 8192, shift 1, on layers that do not rotate), Ministral 3 and
    Mistral 4 (`llama_4_scaling_beta`, the original context length, shift 0, on all layers); power in Beam
    (compute_attention_scaling); log in Qwen 1 (`use_logn_attn`, the trained length).
    """
    places = np.asarray(positions, dtype=np.float64)
    if form == "power":
        grown: NDArray[np.float64] = np.exp(strength * np.log1p((places + shift) / length))
    elif form == "log":
        grown = np.maximum(1.0, np.log(np.maximum(places + 1, 1.0)) / np.log(length))
    else:
        grown = 1 + strength * np.log1p(np.floor((places + shift) / length))
    return grown


@encoding
def rotated_layers(*, layers: tuple[int, ...]) -> NDArray[np.uint8]:
    """(layers,) 1 where a layer rotates, 0 where it is NoPE."""
    return np.array(layers, dtype=np.uint8)


def extra_tables(ledger: KeyLedger, ropes: Mapping[str | None, Rope | None]) -> tuple[ExtraTable, ...]:
    """The side tables of a rotary model, with the arguments of the functions above."""
    found = []
    temperature = _temperature(ledger, ropes)
    if temperature is not None:
        found.append(temperature)
    layers = rotating(ledger, ropes)
    if layers and not any(layers):
        raise PeError(
            f"{ledger.config.file}: no layer of this model rotates, by what the file says of its layers"
        )
    if layers is not None and not all(layers):
        found.append(rotated_layers_table(layers))
    return tuple(found)


def rotated_layers_table(layers: tuple[int, ...]) -> ExtraTable:
    """The table of which layers rotate, where not all of them do."""
    summary = f"{sum(layers)} of {len(layers)} layers rotate, the others are NoPE"
    return ExtraTable(ROTATED_LAYERS, summary, {"layers": layers}, by="layer")


def _temperature(ledger: KeyLedger, ropes: Mapping[str | None, Rope | None]) -> ExtraTable | None:
    if ledger.config.model_type == "qwen" and ledger.value("use_logn_attn") is True:
        ledger.in_file("use_logn_attn")
        trained = ledger.in_file("seq_length") or ledger.size("max_position_embeddings")
        said = "queries of all layers are multiplied beyond the trained length (use_logn_attn)"
        return ExtraTable(QUERY_TEMPERATURE, said, {"length": ledger.whole(trained), "form": "log"})
    beta = _found(ledger, ropes, BETA)
    if beta is not None:
        length = _found(ledger, ropes, BETA_LENGTH) or _found(
            ledger, ropes, "original_max_position_embeddings"
        )
        if length is None:
            return None
        parameters = {"strength": float(ledger.number(beta)), "length": ledger.whole(length)}
        return ExtraTable(
            QUERY_TEMPERATURE, f"queries of all layers are multiplied ({beta.origin})", parameters
        )
    fixed = data("layers").get(ledger.config.model_type, {}).get("temperature")
    if fixed is None:
        return None
    tuning = ledger.in_file("attn_temperature_tuning")
    if not (tuning.value if tuning is not None else fixed.get("unless_said", True)):
        return None
    floor, strength = ledger.in_file("floor_scale"), ledger.in_file("attn_scale")
    parameters = {key: value for key, value in fixed.items() if key != "unless_said"}
    if strength is not None:
        parameters["strength"] = float(ledger.number(strength))
    if floor is not None:
        parameters["length"] = ledger.whole(floor)
    return ExtraTable(
        QUERY_TEMPERATURE, "queries of the layers that do not rotate are multiplied", parameters
    )


def _found(ledger: KeyLedger, ropes: Mapping[str | None, Rope | None], key: str) -> Setting | None:
    inside = (found for rope in ropes.values() if rope and (found := rope.find(ledger, key)))
    return next(inside, None) or ledger.in_file(key)


def rotating(ledger: KeyLedger, ropes: Mapping[str | None, Rope | None]) -> tuple[int, ...] | None:
    """1 for each layer that rotates, 0 for NoPE; None where nothing says so."""
    ledger.in_file("no_rope_layer_interval")  # has no effect beside the list, and is used without it
    said = ledger.in_file("no_rope_layers")  # 1 means that the layer rotates
    if said is not None and isinstance(said.value, list) and said.value:
        return tuple(int(bool(flag)) for flag in one_each(ledger, said))
    thetas = ledger.in_file("layer_rope_theta")
    if thetas is not None and isinstance(thetas.value, list):
        return tuple(int(bool(theta)) for theta in one_each(ledger, thetas))
    kinds = layer_kinds(ledger)
    rule = data("layers").get(ledger.config.model_type, {})
    if "still" in rule and (count := ledger.geometry("num_hidden_layers")) is not None:
        key, default = rule["still"]
        listed = ledger.in_file(key)
        still_layers = ledger.numbers(listed) if listed else default
        return tuple(int(layer not in still_layers) for layer in range(layer_count(ledger, count)))
    if "still_from_end" in rule and (count := ledger.geometry("num_hidden_layers")) is not None:
        layers = layer_count(ledger, count)
        return tuple(int((layers - 1 - layer) % rule["still_from_end"] != 0) for layer in range(layers))
    if kinds and (still := _still_kinds(ledger, ropes, rule, kinds)):
        dense = ledger.in_file("first_k_dense_replace") if "prefix" in rule else None
        first = (
            ledger.whole(dense, positive=False) if dense is not None and not _has_own_period(ledger) else 0
        )
        return tuple(int(kind not in still or layer < first) for layer, kind in enumerate(kinds))
    interval = ledger.geometry_like("no_rope_layer_interval")
    count = ledger.geometry("num_hidden_layers")
    if interval is None or count is None:
        return None
    step, layers = ledger.whole(interval), layer_count(ledger, count)
    return tuple(int((layer + 1) % step != 0) for layer in range(layers))


def _still_kinds(
    ledger: KeyLedger, ropes: Mapping[str | None, Rope | None], rule: Mapping[str, Any], kinds: list[str]
) -> set[str]:
    """The layer types that do not rotate."""
    still = {label for label, rope in ropes.items() if label is not None and rope is None}
    optional = rule.get("unless_null", "")
    everywhere = optional in ledger.config.values and ledger.config.values[optional] is None
    if "rotates" in rule and not everywhere:
        still |= set(kinds) - set(rule["rotates"])
    return still


def _has_own_period(ledger: KeyLedger) -> bool:
    """Whether the dense layers in front alternate as well: then they are not all made to rotate (Cohere 2 MoE)."""
    every = ledger.in_file("prefix_dense_sliding_window_pattern")
    return every is not None and every.value != 1


FUNCTIONS: dict[str, Callable[..., Tensors]] = {
    QUERY_TEMPERATURE: query_temperature,
    ROTATED_LAYERS: rotated_layers,
}
