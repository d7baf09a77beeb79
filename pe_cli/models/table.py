"""From a configuration to the table itself, for callers in Python."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from inspect import signature
from math import prod
from typing import Any

import numpy as np

from pe_cli.catalogue import load
from pe_cli.errors import PeError, no_such
from pe_cli.models.read import Configuration
from pe_cli.models.resolve import resolve, resolve_configuration
from pe_cli.models.resolved import EVERY_LENGTH
from pe_cli.signature import Tensors


def from_config(
    spec: str | os.PathLike[str] | Mapping[str, Any],
    positions: Any,
    *,
    component: str | None = None,
    layer_type: str | None = None,
    seq_len: int | None = None,
    **options: Any,
) -> Tensors:
    """The table of a model at `positions`, as `pe gen model` makes it.

    Where the encoding is one of pairs (ALiBi, T5), `positions` are those of queries and keys alike. The table comes in
    the layout in which the model's own code has it.

    Parameters
    ----------
    spec : config.json, a model folder or a .gguf file; or the configuration itself as a mapping (`config.to_dict()`).
    positions : (n,) token positions; (n, k) where a position has k coordinates. None with a `grid` among the options.
    component : dotted name of a nested configuration, for composite models.
    layer_type : for models whose layer types have tables of their own.
    seq_len : length served, where the table depends on it (dynamic NTK, LongRoPE).
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
        model_type = str(spec.get("model_type") or "")
        resolved = resolve_configuration(Configuration("config", spec, model_type=model_type), **which)
    else:
        resolved = resolve(os.fspath(spec), **which)
    function = load(resolved.encoding)
    taken = signature(function).parameters
    for name in options:
        if name not in taken:
            raise no_such(f"option of {resolved.encoding}", name, taken)
    arguments = {**resolved.parameters, **options}
    if positions is not None and "grid" not in options:
        arguments.pop("grid", None)
    made = function(**_rows(taken, positions, arguments), **arguments)
    tensors = made if isinstance(made, Tensors) else Tensors({resolved.encoding: made})
    # of LongRoPE's long factors: that they have a short side, which a file with one list has not
    said = () if resolved.origins.get("policy") == EVERY_LENGTH else tensors.warnings
    origins = {**resolved.origins, **dict.fromkeys(options, "argument")}
    about = {"encoding": resolved.encoding, "parameters": arguments, "origins": origins}
    return Tensors(tensors, {**tensors.facts, **about}, (*said, *resolved.warnings))


def _rows(taken: Collection[str], positions: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The argument, or the two, that say which rows."""
    if positions is None:
        if not arguments.get("grid"):
            raise PeError("positions are None: that is for a grid; give positions, or grid=(H, W)")
        positions = np.arange(prod(arguments["grid"]))
    where = np.asarray(positions)
    if "positions" in taken:
        return {"positions": where}
    if "queries" in taken:
        return {"queries": where, "keys": where}
    return {"distances": where[None, :] - where[:, None]}
