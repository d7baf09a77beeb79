"""What else a model keeps by position or by layer: the temperature of queries, and which layers rotate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.models.layers import Rope, layer_count, layer_kinds
from pe_cli.models.model_types import data
from pe_cli.models.resolved import ExtraTable, KeyLedger, Setting
from pe_cli.signature import Positions, encoding
from pe_cli.tensors import Tensors

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


def tables(ledger: KeyLedger, ropes: Mapping[str | None, Rope | None]) -> tuple[ExtraTable, ...]:
    """The side tables of a rotary model, with the arguments of the functions above."""
    found = []
    temperature = _temperature(ledger, ropes)
    if temperature is not None:
        found.append(temperature)
    layers = rotating(ledger, ropes)
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
        return tuple(int(bool(flag)) for flag in said.value)
    thetas = ledger.in_file("layer_rope_theta")
    if thetas is not None and isinstance(thetas.value, list):
        return tuple(int(bool(theta)) for theta in thetas.value)
    kinds = layer_kinds(ledger)
    rule = data("layers").get(ledger.config.model_type, {})
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
