"""What else a model keeps by position or by layer: the temperature of queries, and which layers rotate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.models.layers import Rope, layer_kinds
from pe_cli.models.resolved import ExtraTable, KeyLedger
from pe_cli.signature import Positions

QUERY_TEMPERATURE, ROTATED_LAYERS = "query-temperature", "rotated-layers"
LLAMA4 = frozenset({"llama4_text"})
MOST_LAYERS = 100_000
BETA = "llama_4_scaling_beta"


def query_temperature(
    positions: Positions, *, strength: float, length: int, shift: int = 0
) -> NDArray[np.float64]:
    """(n,) the factor of each query: 1 + strength ln(1 + floor((p + shift) / length)).

    Multiplies the query after rotation; it grows with the position, against attention that spreads too thin.
    Source: Llama 4 (strength 0.1, length 8192, shift 1, on layers that do not rotate), Ministral 3 and Mistral 4
    (`llama_4_scaling_beta`, the original context length, shift 0, on all layers).
    """
    places = np.asarray(positions, dtype=np.float64)
    factors: NDArray[np.float64] = 1 + strength * np.log1p(np.floor((places + shift) / length))
    return factors


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
    beta = next((found for rope in ropes.values() if rope and (found := rope.find(ledger, BETA))), None)
    if beta is not None:
        original = next(
            (
                f
                for rope in ropes.values()
                if rope and (f := rope.find(ledger, "original_max_position_embeddings"))
            ),
            None,
        )
        if original is None:
            return None
        parameters = {"strength": float(ledger.number(beta)), "length": ledger.whole(original)}
        return ExtraTable(
            QUERY_TEMPERATURE, f"queries of all layers are multiplied ({beta.origin})", parameters
        )
    if ledger.config.model_type not in LLAMA4:
        return None
    tuning = ledger.in_file("attn_temperature_tuning")
    if tuning is not None and not tuning.value:
        return None
    floor, strength = ledger.in_file("floor_scale"), ledger.in_file("attn_scale")
    parameters = {
        "strength": float(ledger.number(strength)) if strength else 0.1,
        "length": ledger.whole(floor) if floor else 8192,
        "shift": 1,
    }
    return ExtraTable(
        QUERY_TEMPERATURE, "queries of the layers that do not rotate are multiplied", parameters
    )


def rotating(ledger: KeyLedger, ropes: Mapping[str | None, Rope | None]) -> tuple[int, ...] | None:
    """1 for each layer that rotates, 0 for NoPE; None where nothing says so."""
    said = ledger.in_file("no_rope_layers")  # 1 means that the layer rotates
    if said is not None and isinstance(said.value, list) and said.value:
        return tuple(int(bool(flag)) for flag in said.value)
    thetas = ledger.in_file("layer_rope_theta")
    if thetas is not None and isinstance(thetas.value, list):
        return tuple(int(bool(theta)) for theta in thetas.value)
    kinds = layer_kinds(ledger)
    if kinds:
        idle = {label for label, rope in ropes.items() if label is not None and rope is None}
        if ledger.config.model_type in ONLY_SLIDING_ROTATES:
            idle |= {"full_attention"}
        if idle:
            return tuple(int(kind not in idle) for kind in kinds)
    interval = ledger.geometry_like("no_rope_layer_interval")
    count = ledger.geometry("num_hidden_layers")
    if interval is None or count is None:
        return None
    step, layers = ledger.whole(interval), ledger.whole(count)
    if layers > MOST_LAYERS:
        raise ledger.wrong(count, f"a number up to {MOST_LAYERS}", "32")
    return tuple(int((layer + 1) % step != 0) for layer in range(layers))


# Their attention rotates in sliding layers only (modeling_cohere2.py, modeling_exaone4.py and theirs).
ONLY_SLIDING_ROTATES = frozenset({"cohere2", "cohere2_moe", "exaone4", "exaone_moe", "afmoe"})

FUNCTIONS: dict[str, Callable[..., NDArray[Any]]] = {
    QUERY_TEMPERATURE: query_temperature,
    ROTATED_LAYERS: rotated_layers,
}
