"""From a configuration to an encoding and its arguments: the one entry, for every kind of model."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pe_cli.errors import PeError
from pe_cli.models import layers, scalings, side, sizes
from pe_cli.models.axes import axial_arguments, axis_count, is_axial, section_arguments
from pe_cli.models.components import choose
from pe_cli.models.defaults import known_types
from pe_cli.models.diffusion import CLASS_KEY, resolve_denoiser
from pe_cli.models.read import Configuration, is_gguf, read_configuration
from pe_cli.models.resolved import Ledger, Resolved
from pe_cli.models.schemes import REFUSED, SCHEMES
from pe_cli.models.unrotated import chosen_scheme, from_scheme, labels_of, warn_of_silence


def resolve(
    spec: str,
    *,
    component: str | None = None,
    layer_type: str | None = None,
    seq_len: int | None = None,
    truncate: bool | None = None,
) -> Resolved:
    """The encoding of the model that a file describes.

    Parameters
    ----------
    spec : a config.json, a model folder, a .gguf file, or `-` for JSON on stdin
    component : dotted name of a nested configuration, for composite models
    layer_type : for models whose layer types have tables of their own
    seq_len : length for which the table is made, where it depends on that (dynamic NTK, LongRoPE)
    truncate : overrides what the file says on rounding YaRN's range

    Raises PeError that names file, key and remedy where something is missing, of the wrong type or unknown,
    and where the frequencies are learned or depend on data.
    """
    if is_gguf(spec):
        from pe_cli.models.gguf import resolve_gguf

        if component is not None:
            raise PeError(f"--component {component}: a GGUF file holds one model")
        if truncate is not None:
            raise PeError(f"{spec}: llama.cpp always rounds YaRN's range, so --truncate has no place here")
        return resolve_gguf(spec, layer_type=layer_type, seq_len=seq_len)
    return resolve_configuration(
        read_configuration(spec),
        component=component,
        layer_type=layer_type,
        seq_len=seq_len,
        truncate=truncate,
    )


def resolve_configuration(
    config: Configuration,
    *,
    component: str | None = None,
    layer_type: str | None = None,
    seq_len: int | None = None,
    truncate: bool | None = None,
) -> Resolved:
    """`resolve` for a configuration that is read already."""
    if CLASS_KEY in config.values:
        if component is not None or layer_type is not None:
            raise PeError(
                f"{config.file}: a diffusion transformer has one table: leave --component and --layer-type out"
            )
        if truncate is not None or seq_len is not None:
            raise PeError(
                f"{config.file}: the table of a diffusion transformer is not scaled: leave --seq-len and --truncate out"
            )
        return resolve_denoiser(config)
    chosen, notes = choose(config, component)
    ledger = Ledger(chosen)
    ledger.notes.extend(notes)
    if chosen.model_type in REFUSED:
        raise PeError(
            f"{chosen.file}: model type {chosen.model_type!r} {REFUSED[chosen.model_type]}, so no table follows from the configuration"
        )
    scheme = chosen_scheme(ledger, layer_type)
    if scheme is not None:
        if truncate is not None:
            raise PeError(f"{chosen.file}: --truncate is for YaRN, and this model uses {scheme.encoding}")
        if seq_len is not None:
            ledger.note(_same_at_every_length(seq_len))
        return from_scheme(ledger, scheme)
    _must_rotate(ledger)
    warn_of_silence(ledger)
    if layer_type in labels_of(chosen.model_type):
        layer_type = None  # the part of the model that turns here, and has no layer types
    return _rotary(ledger, layer_type, seq_len, truncate)


def layer_types(config: Configuration) -> tuple[str, ...]:
    """The layer types of a configuration that have a table."""
    ledger = Ledger(config)
    if config.model_type in SCHEMES:
        return labels_of(config.model_type)
    return tuple(label for label, rope in layers.layer_tables(ledger).items() if label and rope is not None)


def _rotary(ledger: Ledger, layer_type: str | None, seq_len: int | None, truncate: bool | None) -> Resolved:
    tables = layers.layer_tables(ledger)
    label = layers.label_of(ledger, tables, layer_type)
    rope = tables[label]
    assert rope is not None
    name, _ = scalings.scaling_type(ledger, rope)
    dim, partial = sizes.width(ledger, rope, label, name)
    parameters: dict[str, Any] = {"dim": dim, "base": sizes.base(ledger, rope, label)}
    axial = is_axial(ledger)
    if dim % 2 and not axial and partial is None:
        # An odd width has (width + 1) / 2 pairs and the odd number in its exponents.
        parameters |= {"dim": 2 * dim, "partial": 0.5}
        ledger.origins["partial"] = f"the odd width {dim} as half of {2 * dim}"
    if name != "none":
        parameters["scaling"] = name
        ledger.origins["scaling"] = rope.path if not rope.assumed else ledger.known.described()
    if partial is not None:
        parameters["partial"] = partial
    parameters |= scalings.scaling(ledger, rope, name, seq_len)
    if seq_len is not None and name not in scalings.BY_LENGTH:
        ledger.note(_same_at_every_length(seq_len))
    if truncate is not None:
        if name != "yarn":
            raise PeError(f"{ledger.config.file}: --truncate is for YaRN, and this model's scaling is {name}")
        parameters["truncate"] = truncate
        ledger.origins["truncate"] = "--truncate" if truncate else "--no-truncate"
        ledger.warnings[:] = [w for w in ledger.warnings if "--truncate gives" not in w]
    parameters["layout"] = ledger.known.layout
    ledger.origins["layout"] = _layout_origin(ledger)
    if axial:
        parameters |= axial_arguments(ledger, dim)
    else:
        parameters |= section_arguments(ledger, rope, dim)
    longest = ledger.geometry("max_position_embeddings")
    longest_len = ledger.whole(longest) if longest else None
    return Resolved(
        file=ledger.config.file,
        encoding="rope",
        parameters=parameters,
        origins=ledger.origins,
        model_type=ledger.config.model_type,
        component=ledger.config.path,
        layer_type=label,
        layer_types=tuple(n for n, r in tables.items() if n is not None and r is not None),
        max_position=longest_len,
        trained_length=_trained_length(parameters, longest_len),
        warnings=tuple(ledger.warnings),
        notes=tuple(ledger.notes),
        side_tables=side.tables(ledger, tables),
        axes=axis_count(parameters) if axial else 1,
    )


def _same_at_every_length(seq_len: int) -> str:
    return f"the table does not depend on the length, so --seq-len {seq_len} changes nothing"


def _trained_length(parameters: Mapping[str, Any], longest: int | None) -> int | None:
    """The length before scaling: said, or for position interpolation the longest length over the factor."""
    if "original_len" in parameters:
        return int(parameters["original_len"])
    if longest is not None and parameters.get("scaling") == "linear":
        return int(longest / parameters["factor"])
    return longest


def _layout_origin(ledger: Ledger) -> str:
    if not ledger.known.known:
        return "halves, as most models store it; the model type is not known here"
    return f"{ledger.known.module or ledger.known.name}, {ledger.known.source}"


def _must_rotate(ledger: Ledger) -> None:
    """Raise where nothing says that the model rotates."""
    known, config = ledger.known, ledger.config
    if known.rope is not None or known.theta is not None:
        return
    keys = (
        *sizes.THETA_KEYS[None],
        *sizes.PARTIAL_KEYS,
        "rope_scaling",
        "rope_parameters",
        "rotary_dim",
        "rope_ratio",
        "qk_rope_head_dim",
    )
    if any(key in config.values for key in keys):
        if config.model_type:
            ledger.warn(
                f"{config.file}: model type {config.model_type!r} is not known here; it is read as a plain rotary model"
            )
        return
    if not config.model_type:
        raise PeError(
            f"{config.file}: there is no model_type and no rope_theta in it, so nothing says which encoding the model uses"
        )
    near = difflib.get_close_matches(config.model_type, [*known_types(), *SCHEMES], n=1, cutoff=0.6)
    remedy = f"did you mean {near[0]!r}?" if near else "if it rotates, add rope_theta to the file"
    raise PeError(
        f"{config.file}: no rotary parameters in it, and model type {config.model_type!r} is not known here; {remedy}"
    )
