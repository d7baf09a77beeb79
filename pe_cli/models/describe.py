"""What a configuration means for positions, as plain data: what `pe inspect config.json` shows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from pe_cli.encodings.rope.scaling import Frequencies, frequencies
from pe_cli.errors import PeError
from pe_cli.models.configuration import CLASS_KEY, Configuration
from pe_cli.models.layers import layer_tables
from pe_cli.models.read import is_gguf, parts, read_configuration
from pe_cli.models.resolve import layer_types, resolve, resolve_configuration
from pe_cli.models.resolved import KeyLedger, LearnedTableError, Resolved
from pe_cli.models.scalings import BY_LENGTH, scaling_type

SCHEMA = "pe.model/1"
NOT_FREQUENCIES = frozenset(
    {"dim", "base", "layout", "sections", "interleave_sections", "axis_style", "axes", "grid", "partial"}
)
KEPT = 1 + 1e-9


def inspect_config(
    spec: str,
    *,
    component: str | None = None,
    layer_type: str | None = None,
    seq_len: int | None = None,
) -> dict[str, Any]:
    """Every positional table of a model: `{"schema", "file", "model_type", "tables": [table, …]}`.

    Without `component` or `layer_type` all of them. A table has `component`, `layer_type`, `encoding`, `parameters`,
    `origins`, `warnings`, `notes`, `max_position`, `trained_length`, `side_tables` and, where it rotates on one axis,
    `rotary` (see `rotary_report`); or `error`, where no table follows from the file. A learned
    table has `component`, `encoding`, the end of its `tensor`'s name, its `shape` and a `note`.
    Tables that depend on the length are made for `seq_len`, by default the longest length of the model.
    """
    tables = list(_tables(spec, component, layer_type, seq_len))
    told = [t for t in tables if isinstance(t, (Resolved, LearnedTableError))]
    if not told:
        raise next(t for t in tables if isinstance(t, PeError))
    return {
        "schema": SCHEMA,
        "file": told[0].file,
        "model_type": told[0].model_type,
        "tables": [_plain(t) for t in tables],
    }


def unresolved(spec: str, error: PeError) -> dict[str, Any]:
    """The report of a configuration or folder from which no table follows: why."""
    return {"schema": SCHEMA, "file": spec, "model_type": "", "tables": [{"error": str(error)}]}


def _plain(table: Resolved | PeError) -> dict[str, Any]:
    if isinstance(table, Resolved):
        return table_report(table)
    if isinstance(table, LearnedTableError):
        found = {
            "encoding": "learned",
            "component": table.component,
            "tensor": table.where,
            "shape": table.shape,
        }
        return {**found, "note": str(table)}
    return {"error": str(table)}


def table_report(resolved: Resolved) -> dict[str, Any]:
    """One table of a model as plain data."""
    report = {
        key: value for key, value in asdict(resolved).items() if key not in ("file", "model_type", "axes")
    }
    report["side_tables"] = report.pop("extra_tables")
    one_axis = resolved.encoding == "rope" and resolved.axes == 1
    report["rotary"] = rotary_report(resolved) if one_axis else None
    return report


def spectrum_of(resolved: Resolved) -> Frequencies:
    """The frequencies of a rotary table of one axis, before and after its scaling."""
    options = {key: value for key, value in resolved.parameters.items() if key not in NOT_FREQUENCIES}
    if "partial" in resolved.parameters:
        options["partial"] = resolved.parameters["partial"]
    return frequencies(resolved.parameters["dim"], base=resolved.parameters["base"], **options)


def rotary_report(resolved: Resolved) -> dict[str, Any]:
    """Frequencies of a rotary table and what they mean for a longer context.

    `pairs` has for each pair `inv_freq` (radians per position), `wavelength` (positions per turn, None where it does
    not turn), `unscaled_wavelength`, `divided_by` (1 where the scaling keeps it) and `turns` within the trained
    length L0. A pair that made less than a turn in training (the first is `critical_pair`, `critical_frequency`) has
    not seen all its angles: beyond position L0 * divided_by it meets new ones. `leaves_trained_range` is the first
    such position, None where every pair has seen its whole circle, and `leaving_pair` the pair that is first.
    """
    spectrum = spectrum_of(resolved)
    length = resolved.trained_length
    pairs = [
        _pair(float(w), float(v), float(divisor), length)
        for w, v, divisor in zip(spectrum.plain, spectrum.inv_freq, spectrum.divisors(), strict=True)
    ]
    turning = [index for index, pair in enumerate(pairs) if pair["wavelength"] is not None]
    report: dict[str, Any] = {
        "base": resolved.parameters["base"],
        "width": spectrum.width,
        "scaling": resolved.parameters.get("scaling", "none"),
        "attention_factor": spectrum.attention_factor,
        "facts": dict(spectrum.facts),
        "kept": sum(pairs[index]["divided_by"] <= KEPT for index in turning),
        "interpolated": sum(pairs[index]["divided_by"] > KEPT for index in turning),
        "still": len(pairs) - len(turning),
        "pairs": pairs,
    }
    if length is not None:
        short = [index for index in turning if pairs[index]["turns"] < 1]
        first = min(short, key=lambda index: pairs[index]["divided_by"], default=None)
        report |= {
            "complete_turns": len(turning) - len(short),
            "critical_pair": short[0] if short else None,
            "critical_frequency": pairs[short[0]]["inv_freq"] if short else None,
            "leaving_pair": first,
            "leaves_trained_range": None if first is None else length * pairs[first]["divided_by"],
        }
    return report


def _pair(plain: float, scaled: float, divisor: float, length: int | None) -> dict[str, Any]:
    turn = 2 * math.pi
    return {
        "inv_freq": scaled,
        "wavelength": turn / scaled if scaled else None,
        "unscaled_wavelength": turn / plain,
        "divided_by": divisor if scaled else None,
        "turns": None if length is None else length * plain / turn,
    }


def _tables(
    spec: str, component: str | None, layer_type: str | None, seq_len: int | None
) -> Iterator[Resolved | PeError]:
    if is_gguf(spec):
        yield from _gguf_tables(spec, component, layer_type, seq_len)
        return
    config = read_configuration(spec)
    if CLASS_KEY in config.values:
        yield resolve_configuration(config, component=component, layer_type=layer_type, seq_len=seq_len)
        return
    for part, notes in parts(config, component):
        for label in [layer_type] if layer_type is not None else layer_types(part) or [None]:
            try:
                length = seq_len if seq_len is not None else _longest(part, label)
                resolved = resolve_configuration(part, layer_type=label, seq_len=length)
            except PeError as error:
                yield error
                continue
            yield replace(resolved, notes=(*notes, *resolved.notes))


def _gguf_tables(
    spec: str, component: str | None, layer_type: str | None, seq_len: int | None
) -> Iterator[Resolved | PeError]:
    from pe_cli.models.gguf import layer_labels, longest

    for label in [layer_type] if layer_type is not None else layer_labels(spec):
        yield resolve(spec, component=component, layer_type=label, seq_len=seq_len or longest(spec))


def _longest(config: Configuration, label: str | None) -> int | None:
    """The length for which a table that depends on it is shown: the longest of the model."""
    ledger = KeyLedger(config)
    rope = layer_tables(ledger).get(label)
    if rope is None or scaling_type(ledger, rope) not in BY_LENGTH:
        return None
    found = ledger.geometry("max_position_embeddings")
    return ledger.whole(found) if found is not None else None
