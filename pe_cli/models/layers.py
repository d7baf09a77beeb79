"""Which layers have which rotary parameters, in any spelling.

Spellings: `rope_parameters` (transformers 5; nested by layer type or flat), `rope_scaling` with `rope_theta` beside
it (transformers 4).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pe_cli.errors import PeError, no_such
from pe_cli.models.model_types import Defaults, data
from pe_cli.models.resolved import KeyLedger, Setting

# Layer types that turn in every class that knows them, unless their parameters are null.
ATTENTION = ("full_attention", "sliding_attention")
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
                    return Setting(self.values[key], ledger.known.described(), assumed=True)
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
    raise PeError(
        f"{file}: this model has a table for each layer type, choose one with --layer-type: {', '.join(live)}"
    )


def _asked(
    ledger: KeyLedger, tables: Mapping[str | None, Rope | None], asked: str, labels: list[str]
) -> str | None:
    types = layer_kinds(ledger)
    if asked in tables:
        if tables[asked] is None:
            raise PeError(f"{ledger.config.file}: {asked} layers are {NOPE}")
        return asked
    if labels or asked not in types:
        raise no_layer_type(ledger, asked, labels or list(dict.fromkeys(types)))
    ledger.note(f"all layer types share one table, so --layer-type {asked} changes nothing")
    return None


def no_layer_type(ledger: KeyLedger, asked: str, known: list[str]) -> PeError:
    """None of the `known` layer types is called so; or there are none."""
    if known:
        return no_such("layer type", asked, known)
    return PeError(
        f"{ledger.config.file}: one table serves all layers of this model; leave --layer-type {asked} out"
    )


MOST_LAYERS = 100_000


def layer_kinds(ledger: KeyLedger) -> list[str]:
    """The type of each layer, as the file lists them or else as the model class makes them; empty where neither says."""
    kinds = ledger.config.values.get("layer_types")
    if isinstance(kinds, list):
        return [str(kind) for kind in kinds]
    rule = data("layers").get(ledger.config.model_type, {})
    makes = "pattern" in rule or "period" in rule
    found = ledger.geometry("num_hidden_layers") if makes else None
    return [] if found is None else _made(ledger, rule, layer_count(ledger, found))


def layers_of(ledger: KeyLedger, label: str | None) -> tuple[int, ...]:
    """The numbers of the layers of this type, where something says which they are."""
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
        kinds = _by_period(ledger.whole(found) if found else period, layers)
    if "prefix" in rule:
        count, key, period = rule["prefix"]
        dense, every = ledger.in_file(count), ledger.in_file(key)
        first = ledger.whole(dense, positive=False) if dense else 0
        kinds = [*_by_period(ledger.whole(every) if every else period, first), *kinds][:layers]
    kinds[: len(rule.get("first", ()))] = rule.get("first", [])[:layers]
    if "last" in rule and kinds:
        kinds[-1] = rule["last"]
    return kinds


def _by_period(period: int, layers: int) -> list[str]:
    """Sliding layers, and every `period`-th one with full attention."""
    return [ATTENTION[(layer + 1) % period != 0] for layer in range(layers)]


def first_layer(ledger: KeyLedger, label: str | None) -> int:
    kinds = layer_kinds(ledger)
    return kinds.index(label) if label in kinds else 0
