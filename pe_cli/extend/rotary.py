"""A longer context for a rotary model: the configuration that asks for it, and what becomes of the wavelengths.

Nothing in the weights changes. What changes is how fast the pairs turn, which the configuration says, in the spelling
that the file has: `rope_scaling` (transformers 4), `rope_parameters` (transformers 5), or parameters for each layer
type, of which only those of full attention are scaled: a sliding window never sees a longer distance.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pe_cli.errors import PeError, no_such, parameter
from pe_cli.extend import SCALINGS
from pe_cli.extend.config import Edit, edited
from pe_cli.files import TensorSpec
from pe_cli.models.configuration import Configuration, known_types
from pe_cli.models.describe import NOT_FREQUENCIES, spectrum_of
from pe_cli.models.layers import Rope, layer_tables
from pe_cli.models.read import is_gguf, of_tokens, read_configuration
from pe_cli.models.resolve import resolve, resolve_configuration
from pe_cli.models.resolved import KeyLedger, Resolved
from pe_cli.models.scalings import LONGROPE_FAMILIES, TYPES
from pe_cli.position_names import ALIBI, CONVOLUTION, DEBERTA, ROPE, SWIN2, T5, named

FULL = "full_attention"
# The name of each scaling in a configuration of transformers, and what it needs beside the factor.
WRITTEN: dict[str, tuple[str, Mapping[str, float]]] = {
    "linear": ("linear", {}),
    "dynamic-ntk": ("dynamic", {}),
    "yarn": ("yarn", {}),
    "llama3": ("llama3", {"low_freq_factor": 1.0, "high_freq_factor": 4.0}),
}
ORIGINAL = "original_max_position_embeddings"
WITH_ORIGINAL = frozenset({"yarn", "llama3"})
# Keys of the rotary block that do not belong to a scaling, and outlive it.
LASTING = frozenset(
    "rope_theta partial_rotary_factor mrope_section mrope_interleaved rope_interleaved".split()
)
# Models that rotate and whose code reads no scaling, and what to do.
UNREAD_SCALING = {
    **dict.fromkeys(("gptj", "codegen", "roformer", "esm", "baichuan"), "scale in the engine that serves it"),
    "chatglm": "multiply its rope_ratio instead, by which its base is multiplied",
    "qwen": f"take {parameter('scaling')} ntk, which changes rotary_emb_base",
}
READ_BASE = frozenset({"qwen"})
# Where transformers takes the width of a head from the file alone when it scales, and fails without it.
WIDTH_UNSAID = frozenset("hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text minimax ministral mixtral".split())
KEPT = 1 + 1e-6  # a pair whose wavelength grows by less than this is kept


@dataclass(frozen=True)
class Stretch:
    """A rotary model for a longer context.

    before, after : the rotary encoding, with all its arguments; edits : the fields of the configuration that say it
    """

    scaling: str
    factor: float
    original_len: int
    length: int
    before: Resolved
    after: Resolved
    edits: tuple[Edit, ...] = ()
    notes: tuple[str, ...] = ()
    of_gguf: bool = False

    def wavelengths(self) -> tuple[list[float], list[float]]:
        """Positions per turn of each pair, before and after; infinite where a pair does not turn."""
        return _wavelengths(self.before), _wavelengths(self.after)

    def lines(self) -> list[str]:
        """What changes, in sentences for a person."""
        before, after = self.wavelengths()
        grown = [new / old if math.isfinite(old) else 1.0 for old, new in zip(before, after, strict=True)]
        kept = [index for index, ratio in enumerate(grown) if ratio <= KEPT]
        whole = [index for index, ratio in enumerate(grown) if ratio >= self.factor * (1 - 1e-6)]
        head = (
            f"{self.scaling}: factor {self.factor:g}, from {self.original_len} to {self.length} positions; "
        )
        head += f"{len(grown)} pairs of channels"
        said = []
        if kept:
            said.append(f"the wavelength stays in {_pairs(kept)} (up to {before[kept[-1]]:,.0f} positions)")
        if whole:
            waves = (
                f"wavelengths from {before[whole[0]]:,.0f} to {after[whole[0]]:,.0f} positions, and longer"
            )
            said.append(f"it is {self.factor:g} times longer in {_pairs(whole)} ({waves})")
        between = [index for index in range(len(grown)) if index not in {*kept, *whole}]
        if between:
            low, high = min(grown[i] for i in between), max(grown[i] for i in between)
            said.append(f"it is {low:.3g} to {high:.3g} times longer in {_pairs(between)}")
        amplitude = spectrum_of(self.after).attention_factor
        if amplitude != 1:
            said.append(f"cosines and sines are multiplied by {amplitude:.4g} (attention factor)")
        return [head, *said]

    def report(self) -> dict[str, Any]:
        """The same as plain data."""
        before, after = self.wavelengths()
        return {
            "scaling": self.scaling,
            "factor": self.factor,
            "original_len": self.original_len,
            "length": self.length,
            "layer_type": self.after.layer_type,
            "attention_factor": spectrum_of(self.after).attention_factor,
            "wavelengths": {"before": before, "after": after},
        }

    def overrides(self) -> dict[str, Any]:
        """The edited fields as an object to give to an engine, such as the `--hf-overrides` of vLLM."""
        return edited({}, self.edits)


def stretch_model(
    source: str, length: int, scaling: str, *, factor: float | None = None, force: bool = False
) -> Stretch:
    """What to write so that the rotary model in `source` serves `length` positions.

    Parameters
    ----------
    source : a config.json, a model folder or a .gguf file (which is not changed: `gguf_flags` says how to serve it)
    length : positions wanted
    scaling : one of `SCALINGS`
    factor : by how much; length / original length if not given
    force : replace a scaling that the model has

    Raises
    ------
    PeError
        For a model that does not rotate, or is scaled already; a length within the trained one; a scaling that needs
        what no rule gives (longrope).
    """
    scaling = _known(scaling)
    if is_gguf(source):
        return _of_gguf(source, length, scaling, factor, force)
    config = of_tokens(read_configuration(source))
    return stretch_configuration(config, length, scaling, factor=factor, force=force)


def stretch_configuration(
    config: Configuration, length: int, scaling: str, *, factor: float | None = None, force: bool = False
) -> Stretch:
    """`stretch_model` for a configuration that is read already."""
    scaling = _known(scaling)
    ledger = KeyLedger(config)
    before = _rotary(config, _scaled_label(ledger), length)
    rope = layer_tables(ledger)[before.layer_type]
    assert rope is not None
    _must_take(config, scaling)
    original = _original_len(config, rope, before, force, scaling)
    factor = _factor(length, original, factor, config.file)
    notes: list[str] = []
    if scaling == "ntk":
        edits = [_base_edit(config, before, factor)]
    else:
        edits = [_block_edit(config, rope, scaling, factor, original)]
        if config.model_type in WIDTH_UNSAID and config.values.get("head_dim") is None:
            edits.append(Edit((*_section(config), "head_dim"), None, before.parameters["dim"]))
    if before.parameters.get("scaling") and scaling == "ntk":
        edits.insert(0, _unscaled_edit(config, rope))
    limit = ledger.geometry("max_position_embeddings")
    if scaling == "dynamic-ntk":
        if before.max_position not in (None, original):
            edits.append(_limit_edit(config, limit, original))
        notes.append(
            f"max_position_embeddings stays {original}: dynamic NTK begins to scale at that length, and an engine may "
            f"take it for the longest one (vLLM: --max-model-len {length})"
        )
    else:
        edits.append(_limit_edit(config, limit, length))
    if scaling in ("yarn", "linear", "llama3"):
        notes.append(
            "the scaling is static: it is applied to short texts too, and may cost a little quality there"
        )
    edits = [edit for edit in edits if edit.old != edit.new]
    tables = {label: rope for label, rope in layer_tables(ledger).items() if rope is not None}
    others = [label for label in tables if label != before.layer_type]
    now = _edited(config, edits)
    if rope.assumed and any(_frequencies(now, o, length) != _frequencies(config, o, length) for o in others):
        # A block beside the parameters of the layer types would scale all of them: each gets its own.
        blocks = {label: dict(rope.values) for label, rope in tables.items()}
        edits[0] = Edit(
            (*_section(config), "rope_parameters"), None, {**blocks, FULL: {**blocks[FULL], **edits[0].new}}
        )
        now = _edited(config, edits)
    after = _rotary(now, before.layer_type, length)
    if after.parameters == before.parameters:
        raise PeError(
            f"{config.file}: no field that is known here would change how {config.model_type} turns"
        )
    if config.model_type not in known_types():
        notes.append(
            f"{config.model_type or 'this type of model'} is not known to pe: check that its code reads what is written here"
        )
    return Stretch(scaling, factor, original, length, before, after, tuple(edits), tuple(notes))


def _edited(config: Configuration, edits: Sequence[Edit]) -> Configuration:
    part = edited(_outermost(config), edits)
    for name in _section(config):
        part = part[name]
    return replace(config, values=part)


def _frequencies(config: Configuration, label: str | None, length: int) -> list[float]:
    return _wavelengths(_rotary(config, label, length))


def gguf_flags(stretch: Stretch) -> str:
    """The options with which llama.cpp serves a stretched model, as the file itself stays as it is."""
    size, scale = f"-c {stretch.length}", f"--rope-scaling {stretch.scaling} --rope-scale {stretch.factor:g}"
    if stretch.scaling == "linear":
        return f"{scale} {size}"
    if stretch.scaling == "yarn":
        return f"{scale} --yarn-orig-ctx {stretch.original_len} {size}"
    return f"--rope-freq-base {stretch.after.parameters['base']:.10g} {size}"


def _known(scaling: str) -> str:
    if scaling in ("longrope", "su"):
        raise PeError(
            f"{parameter('scaling')} {scaling}: longrope needs long_factor and short_factor, one divisor for each pair, which "
            "are searched for by training; no rule gives them. Write them into the configuration, or take yarn"
        )
    if scaling not in SCALINGS:
        raise no_such("scaling", scaling, SCALINGS)
    return scaling


def _must_take(config: Configuration, scaling: str) -> None:
    if config.model_type in UNREAD_SCALING and (scaling != "ntk" or config.model_type not in READ_BASE):
        raise PeError(
            f"{config.file}: the code of {config.model_type} models does not read a scaling from the configuration, so it would have "
            f"no effect; {UNREAD_SCALING[config.model_type]}"
        )
    if config.model_type in LONGROPE_FAMILIES and scaling != "ntk":
        raise PeError(
            f"{config.file}: {config.model_type} models know no scaling but longrope, which needs long_factor and "
            "short_factor, one divisor for each pair; write them into the configuration"
        )


def _rotary(config: Configuration, label: str | None, length: int) -> Resolved:
    if config.known.has_axes:
        raise PeError(
            f"{config.file}: this model rotates by coordinates of an image; {parameter('scaling')} is for text"
        )
    try:
        found = resolve_configuration(config, layer_type=label, seq_len=length)
    except PeError as error:
        raise PeError(f"{error}; {parameter('scaling')} is for models that rotate") from error
    if found.encoding != "rope":
        raise PeError(
            f"{config.file}: this model uses {found.encoding}, it does not rotate; leave {parameter('scaling')} out"
        )
    return found


def _scaled_label(ledger: KeyLedger) -> str | None:
    """The layer type that is scaled: None where all share one table, else full attention."""
    labels = [label for label, rope in layer_tables(ledger).items() if label is not None and rope is not None]
    if not labels or len(labels) == 1:
        return labels[0] if labels else None
    if FULL not in labels:
        raise PeError(
            f"{ledger.config.file}: this model has rotary parameters for {', '.join(labels)}, and none for {FULL}; say in "
            "the file itself which of them is scaled"
        )
    return FULL


def _original_len(config: Configuration, rope: Rope, before: Resolved, force: bool, scaling: str) -> int:
    kind = before.parameters.get("scaling", "none")
    if kind != "none" and not force:
        raise PeError(
            f"{config.file}: {rope.path} already scales by {kind}"
            + (f", factor {before.parameters['factor']:g}" if "factor" in before.parameters else "")
            + f", which the model was trained with or set up for; give {parameter('force_scaling')} to put {scaling} in its place"
        )
    if before.trained_length is None:
        raise PeError(
            f"{config.file}: nothing says how long the texts were that the model was trained with; add "
            "max_position_embeddings to the file"
        )
    return before.trained_length


def _factor(length: int, original: int, factor: float | None, file: str) -> float:
    if length <= original:
        raise PeError(
            f"{parameter('length')} {length}: the model in {file} was trained with {original} positions, so this length needs no "
            "scaling; lower max_position_embeddings, or the limit of your engine"
        )
    if factor is None:
        return length / original
    if not (math.isfinite(factor) and factor > 1):
        raise PeError(f"{parameter('factor')} {factor:g}: it must be above 1 to reach farther")
    if factor * original < length:
        raise PeError(
            f"{parameter('factor')} {factor:g}: {original} positions times {factor:g} is less than {length}; give at least "
            f"{length / original:g}"
        )
    return factor


def _section(config: Configuration) -> tuple[str, ...]:
    return tuple(config.path.split(".")) if config.path else ()


def _block_edit(config: Configuration, rope: Rope, scaling: str, factor: float, original: int) -> Edit:
    """The rotary block, with the new scaling in place of what was there."""
    old = None if rope.assumed else (dict(rope.values) or None)
    name, beside = WRITTEN[scaling]
    present = TYPES.get(str((old or {}).get("rope_type", (old or {}).get("type"))))
    again = present == scaling
    lasting = {k: v for k, v in (old or {}).items() if again or k in LASTING}
    lasting.pop("type", None)
    new: dict[str, Any] = {**lasting, "rope_type": name, "factor": float(factor)}
    for key, value in beside.items():
        new.setdefault(key, value)
    if scaling in WITH_ORIGINAL:
        new[ORIGINAL] = original
    elif not again:
        new.pop(ORIGINAL, None)
    return Edit((*_section(config), *_block_path(config, rope)), old, new)


def _block_path(config: Configuration, rope: Rope) -> tuple[str, ...]:
    """Where the rotary block is, or is to be written."""
    path = rope.path.removeprefix(f"{config.path}." if config.path else "")
    if path in config.values and isinstance(config.values[path], Mapping):
        return (path,)
    head, _, label = path.partition(".")
    given = config.values.get(head)
    if label and isinstance(given, Mapping) and label in given:
        return head, label
    if isinstance(given, Mapping) and given:
        return (head,)
    return ("rope_scaling",)  # with rope_theta beside it, which every version of transformers reads


def _unscaled_edit(config: Configuration, rope: Rope) -> Edit:
    old = dict(rope.values)
    new: dict[str, Any] = {k: v for k, v in old.items() if k in LASTING} | {"rope_type": "default"}
    return Edit((*_section(config), *_block_path(config, rope)), old, new)


def _ntk_base(before: Resolved, factor: float, file: str) -> float:
    if (width := spectrum_of(before).width) <= 2:
        raise PeError(f"{file}: {parameter('scaling')} ntk needs a rotary width above 2, not {width}")
    return float(before.parameters["base"] * factor ** (width / (width - 2)))


def _base_edit(config: Configuration, before: Resolved, factor: float) -> Edit:
    """NTK-aware scaling: base · factor^(d / (d - 2)), a change of the base alone."""
    base, new = float(before.parameters["base"]), _ntk_base(before, factor, config.file)
    ratio = config.values.get("rope_ratio")
    if isinstance(ratio, (int, float)):
        return Edit((*_section(config), "rope_ratio"), ratio, ratio * new / base)
    path = tuple(before.origins.get("base", "").split("."))
    place: Any = _outermost(config)
    for name in path:
        place = place.get(name) if isinstance(place, Mapping) else None
    if isinstance(place, (int, float, list)):  # or one for each layer
        listed = [new if each == base else each for each in place] if isinstance(place, list) else new
        return Edit(path, place, listed)
    return Edit((*_section(config), "rope_theta"), None, new)


def _limit_edit(config: Configuration, limit: Any, length: int) -> Edit:
    """The field that says how many positions the model takes."""
    if limit is not None and not limit.assumed:
        return Edit(tuple(limit.origin.split(".")), limit.value, length)
    name = config.known.aliases.get("max_position_embeddings", "max_position_embeddings")
    return Edit((*_section(config), name), None, length)


def _outermost(config: Configuration) -> dict[str, Any]:
    """The whole configuration as far as it is known here: the part at its path."""
    values: dict[str, Any] = dict(config.values)
    for name in reversed(_section(config)):
        values = {name: values}
    return values


def _of_gguf(source: str, length: int, scaling: str, factor: float | None, force: bool) -> Stretch:
    if scaling not in ("yarn", "linear", "ntk"):
        raise PeError(
            f"{parameter('scaling')} {scaling}: llama.cpp has no option for it; take yarn, linear or ntk"
        )
    before = resolve(source, seq_len=length)
    if before.encoding != "rope":
        raise PeError(f"{source}: this model uses {before.encoding}, it does not rotate")
    kind = before.parameters.get("scaling", "none")
    if kind != "none" and not force:
        raise PeError(
            f"{source}: this model already scales by {kind}; give {parameter('force_scaling')} for options that put {scaling} in "
            "its place"
        )
    if before.trained_length is None:
        raise PeError(
            f"{source}: nothing says how many positions the model was trained with (context_length)"
        )
    factor = _factor(length, before.trained_length, factor, source)
    plain = {k: v for k, v in before.parameters.items() if k in (*NOT_FREQUENCIES, "partial")}
    arguments = {**plain, "scaling": scaling, "factor": factor}
    if scaling == "ntk":
        arguments = {**plain, "base": _ntk_base(before, factor, source)}
    elif scaling == "yarn":
        arguments["original_len"] = before.trained_length
    after = replace(before, parameters=arguments)
    return Stretch(scaling, factor, before.trained_length, length, before, after, of_gguf=True)


def _wavelengths(resolved: Resolved) -> list[float]:
    return list(spectrum_of(resolved).wavelengths())


def _pairs(indices: Sequence[int]) -> str:
    """`pair 3` or `pairs 3 to 17`."""
    return f"pair {indices[0]}" if len(indices) == 1 else f"pairs {indices[0]} to {indices[-1]}"


# Models without a table, whatever they do instead

# What to say of the encodings that `pe gen model` reads out of a configuration.
SENTENCES = {
    "rope": ROPE,
    "alibi": ALIBI,
    "t5": T5,
    "deberta": DEBERTA,
    "sinusoidal": "sinusoidal positions, computed at run time; where config.json states a length, write the new one there: the rows "
    "of the old one stay as they are (see `pe gen model`)",
}
# Other signs of how a model knows positions: (in the names, in the configuration), what to say.
OTHER_SCHEMES = (
    (r"(?!)", r"relative_attention_num_buckets", T5),
    (r"(?!)", r"relative_attention\b", DEBERTA),
    (r"(?!)", r"pretrained_window_size", SWIN2),
    (r"(?!)", r"num_conv_pos_embeddings", CONVOLUTION),
    (r"rotary|rope", r"rope_theta|rope_scaling|rope_parameters|rotary_dim|rotary_pct", ROPE),
    (
        r"time_mix|mixer\.A_log|ssm",
        r"\"model_type\": ?\"(?:rwkv|mamba)",
        "recurrence; it has no positions",
    ),
    (
        r"self_attn\.q_proj|attention\.wqkv",
        r"(?!)",
        "most likely rotary embeddings (attention without any table)",
    ),
)


def other_scheme(tensors: Mapping[str, TensorSpec], config_text: str) -> str:
    """How a model without a table knows positions, as far as names and configuration tell."""
    data = json.loads(config_text or "{}")
    relative = [name for name in tensors if name.endswith("rel_embeddings.weight")]
    if relative and not _buckets(data):
        most = tensors[relative[0]].shape[0] // 2
        return (
            f"{relative[0]} has a row for each distance up to max_relative_positions {most} on either side; for longer inputs write "
            f"max_relative_positions {most} and the new max_position_embeddings into config.json: distances beyond count as the longest"
        )
    said = _said_by(data)
    if said is not None:
        return f"it uses {said}"
    names = "\n".join(tensors)
    for spec in tensors.values():
        row = named(spec.name, spec.shape)
        if row is not None and row.remark:
            return f"it uses {row.remark}"
    for in_names, in_config, sentence in OTHER_SCHEMES:
        if re.search(in_names, names) or (config_text and re.search(in_config, config_text)):
            return f"it uses {sentence}"
    if not names:
        return "it holds no tensors at all"
    return f"no name looks like one; name the tensor with {parameter('tensor')}"


def _buckets(data: dict[str, Any]) -> bool:
    """Whether DeBERTa gathers its distances in buckets; without a configuration it is taken for granted."""
    return not data or data.get("position_buckets", -1) > 0


def _said_by(data: dict[str, Any]) -> str | None:
    """What the configuration itself says, read as `pe gen model` reads it; None where it does not settle it."""
    try:
        config = Configuration("config.json", data, model_type=str(data.get("model_type") or ""))
        return SENTENCES.get(resolve_configuration(config, seq_len=1).encoding)
    except PeError:
        return None
