"""The scaling of a rotary configuration → the arguments that `rope` takes for it, each checked and noted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pe_cli.errors import PeError, parameter
from pe_cli.models.configuration import data, is_misspelt
from pe_cli.models.layers import Rope
from pe_cli.models.resolved import EVERY_LENGTH, KeyLedger, Setting

TYPES = {
    "default": "none",
    "none": "none",
    "mrope": "none",
    "axial": "none",
    "no_scaling": "none",
    "linear": "linear",
    "ntk": "ntk-by-factor",
    "dynamic": "dynamic-ntk",
    "qwen-dynamic-ntk": "qwen-dynamic-ntk",
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
ROUNDED = "would round the range, as truncating it does"
LARGEST_STRETCH = 1e9  # beyond it the base that dynamic NTK computes is no number any more
LONGROPE_FAMILIES = frozenset({"phi3", "phi4_multimodal"})


def scaling_type(ledger: KeyLedger, rope: Rope) -> str:
    """The name of the scaling as `rope` calls it."""
    found = rope.find(ledger, "rope_type", "type")
    if found is None:
        _warn_of_idle(
            ledger, rope, "there is no rope_type beside it, and without one transformers does not scale"
        )
        return "none"
    if not isinstance(found.value, str):
        raise ledger.wrong(found, "the name of a scaling", '"yarn"')
    refused = data("refused")["rope_types"]
    if found.value in refused:
        raise PeError(
            f"{ledger.config.file}: {found.origin} {found.value!r}: the model {refused[found.value]}, so no table follows from a configuration"
        )
    if found.value not in TYPES:
        near = [name for name in TYPES if is_misspelt(found.value, name)]
        meant = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(TYPES)}"
        raise PeError(f"{ledger.config.file}: {found.origin} {found.value!r} is not known here{meant}")
    name = TYPES[found.value]
    if found.value == "default":
        _warn_of_idle(ledger, rope, f"{found.origin} is 'default', which does not scale")
    if name == "yarn" and ledger.config.model_type in LONGROPE_FAMILIES:
        ledger.note(f"{found.origin} says yarn, which this family means as longrope")
        name = "longrope"
    if name == "dynamic-ntk" and rope.values.get("alpha"):
        name = "ntk"
    if found.assumed and name != "none":
        ledger.assume("rope_type", found)
    return name


def _warn_of_idle(ledger: KeyLedger, rope: Rope, why: str) -> None:
    """Say it where the file has a factor that nothing reads, as the model's code would not."""
    found = rope.find(ledger, "factor")
    if found is not None and not found.assumed:
        ledger.warn(
            f'{found.origin} {found.value} has no effect: {why}; write "rope_type": "linear", or what it is'
        )


BY_LENGTH = {
    "longrope": "chooses its short or long factors by the length",
    "dynamic-ntk": "computes its base from the length",
    "qwen-dynamic-ntk": "computes its base from the length",
}
# Scalings that are another one with parameters computed from their own: the name that `rope` has for it.
COMPUTED = {"qwen-dynamic-ntk": "ntk", "ntk-by-factor": "longrope"}
Reader = Callable[[KeyLedger, Rope, dict[str, Any]], None]


def scaling(ledger: KeyLedger, rope: Rope, name: str, seq_len: int | None, dim: int) -> dict[str, Any]:
    """The arguments of a scaling, each checked and noted."""
    arguments: dict[str, Any] = {"dim": dim}
    if name in BY_LENGTH:
        if seq_len is None:
            raise PeError(
                f"{ledger.config.file}: this model {BY_LENGTH[name]}: say for which with {parameter('seq_len')} N"
            )
        arguments["seq_len"] = seq_len
        ledger.origins["seq_len"] = "the length asked for"
    if name in READERS:
        READERS[name](ledger, rope, arguments)
    if name in COMPUTED:
        arguments["scaling"] = COMPUTED[name]
        arguments.pop("seq_len", None)
    arguments.pop("dim")
    return arguments


def _take(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any], parameter: str, key: str) -> bool:
    found = rope.find(ledger, key)
    if found is None:
        return False
    arguments[parameter] = float(ledger.number(found))
    ledger.origins[parameter] = found.origin
    if f"{rope.block}.{key}" in ledger.config.assumed:
        ledger.assume(f"{rope.block}.{key}", found)
    return True


def _need(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any], parameter: str, key: str) -> None:
    if not _take(ledger, rope, arguments, parameter, key):
        kind = rope.values.get("rope_type", rope.values.get("type"))
        raise PeError(
            f'{ledger.config.file}: {rope.path}.{key} is missing, which rope_type {kind!r} needs; add "{key}": its number'
        )


def _original(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
    """L0: beside the parameters (which wins, as in transformers), in them, or max_position_embeddings."""
    name = "original_max_position_embeddings"
    inside = rope.find(ledger, name)
    beside = None if rope.outer else ledger.in_file(name) or ledger.from_class(name)
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


def _stretch(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
    """The factor, or where it is null the quotient of the two lengths."""
    if _take(ledger, rope, arguments, "factor", "factor"):
        return
    longest = ledger.size("max_position_embeddings")
    arguments["factor"] = ledger.whole(longest) / arguments["original_len"]
    ledger.origins["factor"] = (
        f"{longest.origin} {longest.value} / original length {arguments['original_len']}"
    )


def _linear(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
    _need(ledger, rope, arguments, "factor", "factor")


def _dynamic(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
    _need(ledger, rope, arguments, "factor", "factor")
    if arguments["factor"] > LARGEST_STRETCH:
        found = Setting(arguments["factor"], ledger.origins["factor"])
        raise ledger.wrong(found, f"at most {LARGEST_STRETCH:g}", "4.0")
    longest = ledger.size("max_position_embeddings")
    arguments["original_len"] = ledger.record("original_len", longest, "max_position_embeddings")


def _ntk(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
    # HunYuan's files have the keys of YaRN beside alpha, which its code does not read.
    ledger.keys_read |= {f"{rope.block}.{key}" for key in ("factor", *data("harmless")["unscaled"])}
    _need(ledger, rope, arguments, "factor", "alpha")


def _qwen_dynamic(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
    """The base times alpha^(d/(d-2)) with alpha = 2^ceil(log2(n / L) + 1) - 1, at least 1 (modeling_qwen.py, get_ntk_alpha)."""
    trained = ledger.in_file("seq_length") or ledger.size("max_position_embeddings")
    length = ledger.whole(trained)
    alpha = 2.0 ** math.ceil(math.log2(arguments["seq_len"] / length) + 1) - 1
    arguments["factor"] = max(alpha, 1.0)
    ledger.origins["factor"] = (
        f"2^ceil(log2({arguments['seq_len']} / {trained.origin} {length}) + 1) - 1, at least 1"
    )


def _ntk_by_factor(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
    """The base times s and every frequency divided by s^(2/d), so pair i is divided by s^(2(i+1)/d).

    With `mixed_b` pair i is divided by exp(a (i+1)^b), a = ln s / (d/2)^b. Source: NTKScalingRotaryEmbedding of vLLM,
    modeling.py of Alibaba-NLP/new-impl.
    """
    _need(ledger, rope, arguments, "factor", "factor")
    factor, half = arguments.pop("factor"), arguments["dim"] // 2
    power = rope.find(ledger, "mixed_b")
    if power is None:
        divisors = tuple(factor ** ((pair + 1) / half) for pair in range(half))
        rule = f"{factor:g}^(2(i+1)/{2 * half}) for pair i"
    else:
        b = ledger.number(power)
        rate = math.log(factor) / half**b
        divisors = tuple(math.exp(rate * (pair + 1) ** b) for pair in range(half))
        rule = f"exp(a (i+1)^{b:g}) for pair i, a = ln {factor:g} / {half}^{b:g}"
    longest = ledger.size("max_position_embeddings")
    arguments |= {
        "long_factor": divisors, "policy": "long", "original_len": ledger.whole(longest), "attention_factor": 1.0,
    }  # fmt: skip
    ledger.origins |= {
        "long_factor": rule,
        "policy": EVERY_LENGTH,
        "original_len": longest.origin,
        "attention_factor": "rope type ntk",
    }
    ledger.note(f"the divisors of rope type ntk, {rule}, are written as the factors of longrope")


def _yarn(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
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
    if "attention_factor" not in arguments and assumed is not None and _by_every_label(ledger, rope):
        ledger.warn(
            f"{rope.path}.attention_factor is not in {ledger.config.file}: transformers then computes it from the factor, "
            f"but {assumed:g} where the file has one scaling for all layers, as the model was trained"
        )
    elif "attention_factor" not in arguments and assumed is not None:
        arguments["attention_factor"] = ledger.record("attention_factor", ledger.default(assumed))
    truncate = rope.find(ledger, "truncate")
    if rope.outer:
        beside = rope.outer.get("truncate")
        if truncate is not None and beside is None and truncate.value is False:
            ledger.warn(
                f"{ledger.config.file}: {truncate.origin} is false and is honoured; transformers 5.24 looks for truncate beside the "
                f"layer types only and {ROUNDED}"
            )
        elif beside is not None:
            truncate = Setting(beside, f"{rope.path.rpartition('.')[0]}.truncate")
    if truncate is not None:
        arguments["truncate"] = ledger.truth(truncate)
        ledger.origins["truncate"] = truncate.origin
    if (
        rope.values.get("rope_type", rope.values.get("type")) == "telechat3-yarn"
        and "attention_factor" not in arguments
    ):
        arguments["attention_factor"] = TELECHAT_SLOPE * math.log(arguments["factor"]) + 1.0
        ledger.origins["attention_factor"] = "0.07 ln(factor) + 1, the rule of TeleChat3"


def _by_every_label(ledger: KeyLedger, rope: Rope) -> bool:
    """Whether the file has parameters for each layer type: DeepSeek-V4 then takes them as they are, and sets its own
    magnitude only where it spreads flat ones over the layer types itself."""
    return bool(rope.outer) and all(isinstance(rope.outer.get(label), dict) for label in ledger.known.labels)


def _longrope(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
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


def _magnitude_by_length(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
    """PhiMoE has a magnitude for each of its lists of factors."""
    ledger.keys_read |= {f"{rope.block}.{length}_mscale" for length in ("short", "long")}
    length = "long" if arguments["seq_len"] > arguments["original_len"] else "short"
    said = _take(ledger, rope, arguments, "attention_factor", f"{length}_mscale")
    if said and length == "long" and ledger.config.model_type == "phimoe":
        ledger.warn(
            f"{rope.path}.long_factor is used beyond {arguments['original_len']}; PhimoeRotaryEmbedding in transformers 5.24.0 "
            "turns with short_factor at every length"
        )


def _llama3(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
    _need(ledger, rope, arguments, "factor", "factor")
    _need(ledger, rope, arguments, "low_freq_factor", "low_freq_factor")
    _need(ledger, rope, arguments, "high_freq_factor", "high_freq_factor")
    _original(ledger, rope, arguments)


def _proportional(ledger: KeyLedger, rope: Rope, arguments: dict[str, Any]) -> None:
    _take(ledger, rope, arguments, "factor", "factor")


READERS: dict[str, Reader] = {
    "linear": _linear,
    "dynamic-ntk": _dynamic,
    "ntk": _ntk,
    "ntk-by-factor": _ntk_by_factor,
    "qwen-dynamic-ntk": _qwen_dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}
