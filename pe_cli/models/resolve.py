"""From a configuration to an encoding and its arguments: the one entry, for every kind of model."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from inspect import signature
from typing import Any, Literal

import numpy as np

from pe_cli.catalogue import load
from pe_cli.errors import PeError, no_such, parameter
from pe_cli.models import layers, scalings, sizes
from pe_cli.models.configuration import (
    BASE_KEYS,
    CLASS_KEY,
    ROTARY_KEYS,
    Configuration,
    data,
    has_schemes,
    is_misspelt,
    known_types,
    labels_of,
    stem,
    types_by_stem,
)
from pe_cli.models.read import choose, configuration_of, is_gguf, preset_configuration, read_configuration
from pe_cli.models.resolved import (
    ADJACENT_LAYOUTS,
    EVERY_LENGTH,
    KeyLedger,
    Resolved,
    unread_keys,
    unread_warning,
)
from pe_cli.signature import as_rows
from pe_cli.tensors import Tensors

SECTIONS = frozenset({"mrope_section", "xdrope_section"})


def resolve(
    spec: str,
    *,
    component: str | None = None,
    layer_type: str | None = None,
    seq_len: int | None = None,
    truncate: bool | None = None,
) -> Resolved:
    """The encoding of the model that a file describes.

    >>> resolve("llama-3.1").parameters["base"]
    500000.0

    Parameters
    ----------
    spec : a config.json, a model folder, a .gguf file, or `-` for JSON on stdin
    component : dotted name of a nested configuration, for composite models
    layer_type : for models whose layer types have tables of their own
    seq_len : length for which the table is made, where it depends on that (dynamic NTK, LongRoPE)
    truncate : overrides what the file says on rounding YaRN's range

    Returns
    -------
    Resolved : `encoding` and its `parameters`, `origins` of the values, `warnings` and `notes`, and the keys that nothing read.

    Raises
    ------
    PeError
        With file, key and remedy: for what is missing, of a wrong type, unknown, learned, or dependent on data.
    """
    if is_gguf(spec):
        from pe_cli.models.gguf import resolve_gguf

        if component is not None:
            raise PeError(f"{parameter('component')} {component}: a GGUF file holds one model")
        if truncate is not None:
            raise PeError(
                f"{spec}: llama.cpp always rounds YaRN's range, so {parameter('truncate')} has no place here"
            )
        return resolve_gguf(spec, layer_type=layer_type, seq_len=seq_len)
    asked: dict[str, Any] = {"component": component, "layer_type": layer_type, "seq_len": seq_len}
    return resolve_configuration(read_configuration(spec), **asked, truncate=truncate)


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
        asked = {"component": component, "layer_type": layer_type, "seq_len": seq_len, "truncate": truncate}
        given = " and ".join(parameter(name) for name, value in asked.items() if value is not None)
        if given:
            raise PeError(
                f"{config.file}: a diffusion transformer has one table, which is not scaled: leave {given} out"
            )
        from pe_cli.models.axes import resolve_denoiser

        return resolve_denoiser(config)
    chosen, notes = choose(config, component)
    ledger = KeyLedger(chosen)
    ledger.notes.extend((*notes, *chosen.remarks))
    if "model_type" in chosen.names:
        ledger.warn(
            f"there is no model_type in {chosen.file}: it is read as {chosen.model_type!r}, which its {chosen.names['model_type']} "
            "name"
        )
    refused = data("refused")["model_types"]
    if chosen.model_type in refused:
        raise PeError(
            f"{chosen.file}: model type {chosen.model_type!r} {refused[chosen.model_type]}, so no table follows from the configuration"
        )
    if has_schemes(chosen.model_type):
        from pe_cli.models.schemes import chosen_scheme, from_scheme

        scheme = chosen_scheme(ledger, layer_type)
        if scheme is not None:
            if truncate is not None:
                raise PeError(
                    f"{chosen.file}: {parameter('truncate')} is for YaRN, and this model uses {scheme.encoding}"
                )
            if seq_len is not None:
                ledger.note(_same_at_every_length(seq_len))
            return from_scheme(ledger, scheme)
    _refuse_switched_off(ledger)
    _must_rotate(ledger)
    _warn_of_silence(ledger)
    if layer_type in labels_of(chosen.model_type):
        layer_type = None  # the part of the model that turns here, and has no layer types
    return _rotary(ledger, layer_type, seq_len, truncate)


ALL_LAYERS = "all"


def resolve_every(
    spec: str, *, component: str | None = None, layer_type: str | None = None, **options: Any
) -> dict[str | None, Resolved]:
    """`resolve` by layer type: that of the one asked for, or with `all` those of every layer type that has a table."""
    if layer_type != ALL_LAYERS:
        return {layer_type: resolve(spec, component=component, layer_type=layer_type, **options)}
    if is_gguf(spec):
        from pe_cli.models.gguf import layer_labels

        labels = [label for label in layer_labels(spec) if label]
        every: dict[str | None, Resolved] = {
            label: resolve(spec, component=component, layer_type=label, **options) for label in labels
        }
    else:
        config = read_configuration(spec)
        labels = [] if CLASS_KEY in config.values else list(layer_types(choose(config, component)[0]))
        every = {
            label: resolve_configuration(config, component=component, layer_type=label, **options)
            for label in labels
        }
    if not every:
        raise layers.no_layer_type(spec, ALL_LAYERS, ())
    return every


def layer_types(config: Configuration) -> tuple[str, ...]:
    """The layer types of a configuration that have a table."""
    ledger = KeyLedger(config)
    if has_schemes(config.model_type):
        return labels_of(config.model_type)
    if config.known.has_axes:
        from pe_cli.models.axes import tower_labels

        return tower_labels(ledger)
    return tuple(label for label, rope in layers.layer_tables(ledger).items() if label and rope is not None)


def _rotary(
    ledger: KeyLedger, layer_type: str | None, seq_len: int | None, truncate: bool | None
) -> Resolved:
    tables = layers.layer_tables(ledger)
    vision = ledger.known.has_axes
    label = layers.label_of(ledger, tables, None if vision else layer_type)
    parameters, scaled = _rope_arguments(ledger, tables, label, seq_len, truncate)
    about: dict[str, Any] = {
        "layer_type": label,
        "layers": layers.layers_of(ledger, label),
        "layer_types": tuple(n for n, r in tables.items() if n is not None and r is not None),
    }
    if vision:
        from pe_cli.models.axes import of_tower

        about |= of_tower(ledger, parameters, layer_type)
    extra, pairing = layers.extra_tables(ledger, tables), _pairing(ledger)
    _read_other_layers(ledger, tables, label)
    unread = unread_keys(ledger, unscaled="scaling" not in parameters) + sizes.doubtful(ledger, parameters)
    _judge(ledger, unread)
    if seq_len is not None and not scaled and not unread:
        ledger.note(_same_at_every_length(seq_len))
    longest = ledger.geometry("max_position_embeddings")
    longest_len = ledger.whole(longest) if longest else None
    trained, trained_origin = sizes.trained_length(ledger, parameters, longest_len)
    return ledger.resolved(
        "rope",
        parameters,
        max_position=longest_len,
        trained_length=trained,
        trained_origin=trained_origin,
        extra_tables=extra,
        unread=unread,
        pairing=pairing,
        **about,
    )


def _rope_arguments(
    ledger: KeyLedger,
    tables: Mapping[str | None, layers.Rope | None],
    label: str | None,
    seq_len: int | None,
    truncate: bool | None,
) -> tuple[dict[str, Any], bool]:
    """The arguments of `rope` for one layer type, and whether they depend on the length."""
    rope = tables[label]
    assert rope is not None
    name = scalings.scaling_type(ledger, rope)
    dim, partial = sizes.width(ledger, rope, label, name)
    parameters: dict[str, Any] = {"dim": dim, "base": sizes.base(ledger, rope, label)}
    axial = ledger.known.has_axes
    if dim % 2 and not axial and partial is None:
        # An odd width has (width + 1) / 2 pairs and the odd number in its exponents.
        parameters |= {"dim": 2 * dim, "partial": 0.5}
        ledger.origins["partial"] = f"the odd width {dim} as half of {2 * dim}"
    if name != "none":
        parameters["scaling"] = name
        ledger.origins["scaling"] = rope.path if not rope.assumed else ledger.known.described()
    if partial is not None:
        parameters["partial"] = partial
    parameters |= scalings.scaling(ledger, rope, name, seq_len, dim)
    sizes.warn_of_ignored(ledger, rope, label)
    if truncate is not None:
        if name != "yarn":
            raise PeError(
                f"{ledger.config.file}: {parameter('truncate')} is for YaRN, and this model's scaling is {name}"
            )
        parameters["truncate"] = truncate
        ledger.origins["truncate"] = "asked for"
        ledger.warnings[:] = [w for w in ledger.warnings if scalings.ROUNDED not in w]
    latent_off = ledger.known.fields.get("qk_rope_head_dim") and sizes.is_latent_off(ledger)
    parameters["layout"] = ledger.config.layout or ("half" if latent_off else ledger.known.layout)
    ledger.origins["layout"] = _layout_origin(ledger)
    if not axial and (ledger.known.sections or rope.values.keys() & SECTIONS):
        from pe_cli.models.axes import section_arguments

        parameters |= section_arguments(ledger, rope, dim)
    return parameters, name in scalings.BY_LENGTH


def _read_other_layers(
    ledger: KeyLedger, tables: Mapping[str | None, layers.Rope | None], label: str | None
) -> None:
    """Count the keys that the tables of other layer types read as read."""
    for other, rope in tables.items():
        if other != label and rope is not None:
            scratch = KeyLedger(ledger.config)
            scratch.keys_read = ledger.keys_read
            with suppress(PeError):
                _rope_arguments(scratch, tables, other, 1, None)


def _judge(ledger: KeyLedger, unread: tuple[str, ...]) -> None:
    """Name the keys that were not read; raise where nothing else is known of the model."""
    config, keys = ledger.config, ", ".join(unread)
    called = (
        f"model type {config.model_type!r} is not known here as one that rotates"
        if config.model_type
        else "there is no model_type in it"
    )
    if not ledger.known.known and _is_of_images(config):
        raise PeError(
            f"{config.file}: a model of images whose type {config.model_type!r} is not known here: its positions may have "
            f"several axes ({', '.join(sorted(ledger.keys_read & set(BASE_KEYS)))}); make the table with "
            "`pe gen rope --axis-style` once you know its code"
        )
    if not ledger.known.known:
        meant = types_by_stem().get(stem(config.model_type))
        if meant and meant != config.model_type:
            raise PeError(f"{config.file}: {called}; did you mean {meant!r}?")
        if unread:
            raise PeError(
                f"{config.file}: {called}, and the file has position settings that pe does not understand: {keys}; make the "
                "table with `pe gen rope` once you know what they do"
            )
        ledger.warn(
            f"{config.file}: {called}; it is read as a plain rotary model, since every position setting in it is understood"
        )
    elif unread:
        ledger.warn(unread_warning(config.file, unread))


def _is_of_images(config: Configuration) -> bool:
    """Whether the configuration is that of a model of images alone."""
    return "patch_size" in config.values and not any(
        "vocab" in key or "vision" in key for key in config.values
    )


def _pairing(ledger: KeyLedger) -> str | None:
    """The channels that attention turns together, which a table stored in halves does not always tell.

    None where only its code says it: of latent attentions DeepSeek's turns adjacent channels, MiniCPM's halves.
    """
    if ledger.known.pairing and sizes.is_latent_off(ledger):
        return "half"
    interleave = ledger.in_file("rope_interleave")
    if interleave is not None and (ledger.known.pairing == "adjacent" or not ledger.known.known):
        return "adjacent" if ledger.truth(interleave) else "half"
    if not ledger.known.known and "qk_rope_head_dim" in ledger.keys_read and not sizes.is_latent_off(ledger):
        ledger.warn(
            f"{ledger.config.file}: which channels its attention turns together, adjacent or half a width apart, is not known"
        )
        return None
    if ledger.config.layout:
        return "adjacent" if ledger.config.layout in ADJACENT_LAYOUTS else "half"
    return ledger.known.pairing or ("adjacent" if ledger.known.layout in ADJACENT_LAYOUTS else "half")


def _same_at_every_length(seq_len: int) -> str:
    return f"the table does not depend on the length: it is the same for {seq_len}"


def _layout_origin(ledger: KeyLedger) -> str:
    if ledger.config.layout:
        return ledger.config.key("layout")
    if not ledger.known.known:
        return "halves, as most models store it; the model type is not known here"
    return f"{ledger.known.module or ledger.known.name}, {ledger.known.source}"


def _refuse_switched_off(ledger: KeyLedger) -> None:
    """Raise where a switch of the file turns rotation off, and nothing else is known of the model."""
    for key, values in data("refused")["switches"].items():
        found = ledger.in_file(key)
        if found is not None and any(found.value is value for value in values):
            others = unread_keys(ledger, unscaled=True)
            instead = (
                f"; what the model uses instead is not known here ({', '.join(others)})" if others else ""
            )
            raise PeError(
                f"{ledger.config.file}: {found.origin} is {json.dumps(found.value)}: the model does not rotate, so there is no "
                f"table to make{instead}"
            )


def _warn_of_silence(ledger: KeyLedger) -> None:
    """Say it where a model turns only if its file says so, and it does not."""
    condition = data("refused")["turns_only_if"].get(ledger.config.model_type)
    if condition is None:
        return
    key, turning, why = condition
    found = ledger.in_file(key)
    if found is None or found.value not in turning:
        silent = found is None and key not in ledger.config.values
        said = "is not in" if silent else f"is {json.dumps(found and found.value)} in"
        ledger.warn(
            f"{ledger.config.key(key)} {said} {ledger.config.file}: {why}; this is the table of a model that turns"
        )


def _must_rotate(ledger: KeyLedger) -> None:
    """Raise where nothing says that the model rotates."""
    known, config = ledger.known, ledger.config
    if known.rope is not None or known.theta is not None:
        return
    if any(config.values.get(key) is not None for key in ROTARY_KEYS):
        return
    if not config.model_type:
        raise PeError(
            f"{config.file}: there is no model_type and no rope_theta in it, so nothing says which encoding the model uses"
        )
    if known.components:
        raise PeError(
            f"{config.file}: {config.model_type} is made of parts ({', '.join(known.components)}), and none in this file has "
            "positions that are known here"
        )
    if has_schemes(config.model_type):
        raise PeError(
            f"{config.file}: it asks for rotation, and models of type {config.model_type!r} do not rotate in the code that is known "
            "here; if its own code does, add rope_theta to the file"
        )
    near = [name for name in known_types() if is_misspelt(config.model_type, name)]
    remedy = f"did you mean {near[0]!r}?" if near else "if it rotates, add rope_theta to the file"
    if _is_of_images(config) and not near:
        remedy = "its code or its checkpoint says how its patches know where they are (`pe inspect CHECKPOINT` finds a table)"
    settings = unread_keys(ledger, unscaled=True)
    found = f" (position settings in it: {', '.join(settings)})" if settings else ""
    raise PeError(
        f"{config.file}: no rotary parameters in it, and model type {config.model_type!r} is not known here{found}; {remedy}"
    )


def preset(name: str, *, layer_type: str | None = None, seq_len: int | None = None) -> Resolved:
    """The encoding of a well-known model; `name:layer_type` chooses among its tables too.

    Raises PeError for a name that is not known, and as `resolve` does where a layer type or length is needed.
    """
    model, _, label = name.partition(":")
    return resolve_configuration(
        preset_configuration(model), layer_type=layer_type or label or None, seq_len=seq_len
    )


def from_config(
    spec: str | os.PathLike[str] | Mapping[str, Any],
    positions: Any,
    *,
    component: str | None = None,
    layer_type: str | None = None,
    seq_len: int | None = None,
    row_order: Literal["model", "raster"] = "model",
    **options: Any,
) -> Tensors:
    """The table of a model at `positions`, as `pe gen model` makes it.

    >>> from_config("llama-3.1", 8192)["cos"].shape
    (8192, 128)

    Where the encoding is one of pairs (ALiBi, T5), `positions` are those of queries and keys alike. The table comes in
    the layout in which the model's own code has it.

    Parameters
    ----------
    spec : config.json, a model folder or a .gguf file; or the configuration itself as a mapping (`config.to_dict()`).
    positions : (n,) token positions, or n for 0..n-1; (n, k) where a position has k coordinates. None with a `grid` among the options.
    component : dotted name of a nested configuration, for composite models.
    layer_type : for models whose layer types have tables of their own.
    seq_len : length served, where the table depends on it (dynamic NTK, LongRoPE).
    row_order : of the cells of a grid: "model", as its attention holds them, or "raster", row by row.
    options : arguments of the encoding that replace those of the model, such as layout="half" or dtype="float64".

    Returns
    -------
    Tensors by name; `facts` says with `encoding`, `parameters` and `origins` what was made and where each value came
    from, `warnings` what was assumed.

    Raises
    ------
    PeError
        For a configuration from which no table follows, and for options that its encoding does not have.
    """
    which: dict[str, Any] = {"component": component, "layer_type": layer_type, "seq_len": seq_len}
    if isinstance(spec, Mapping):
        resolved = resolve_configuration(configuration_of("config", spec), **which)
    else:
        resolved = resolve(os.fspath(spec), **which)
    function = load(resolved.encoding)
    taken = signature(function).parameters
    for name in options:
        if name not in taken:
            raise no_such(f"option of {resolved.encoding}", name, taken)
    arguments = {**resolved.parameters, **options}
    coordinates = positions is not None and np.asarray(positions).ndim == 2
    if positions is not None and "grid" not in options:
        resolved.drop_grid(arguments, coordinates=coordinates)
    ordered, given, count = resolved.by_rows(function, arguments, raster=row_order == "raster")
    made: Tensors = ordered(**_rows(taken, positions, count), **given)
    # of LongRoPE's long factors: that they have a short side, which a file with one list has not
    if resolved.origins.get("policy") == EVERY_LENGTH:
        made = Tensors(made, made.facts)
    origins = {**resolved.origins, **dict.fromkeys(options, "argument")}
    about = {"encoding": resolved.encoding, "parameters": arguments, "origins": origins}
    return made.with_remarks(about, resolved.warnings)


def _rows(taken: Collection[str], positions: Any, count: int | None) -> dict[str, Any]:
    """The argument, or the two, that say which rows; all `count` of the grid where none are given."""
    if positions is None:
        if count is None:
            raise PeError("positions are None: that is for a grid; give positions, or grid=(H, W)")
        positions = np.arange(count)
    return {"positions" if "positions" in taken else "queries": as_rows(positions)}
