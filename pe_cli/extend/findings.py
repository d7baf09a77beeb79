"""What contradicts itself in a model folder: the fields that `pe extend` keeps in step, looked at before a model is served.

A finding is told only where two statements of the folder cannot both hold; what merely is unusual is none.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.extend.config import ModelConfig, grid_of, length_fields, offset_of, suffix_of
from pe_cli.files.base import TensorSpec
from pe_cli.files.sources import open_source
from pe_cli.files.text import read_object
from pe_cli.models.configuration import Configuration
from pe_cli.models.describe import spectrum_of
from pe_cli.models.layers import Rope, layer_tables
from pe_cli.models.read import parts
from pe_cli.models.resolve import resolve_configuration
from pe_cli.models.resolved import KeyLedger, LearnedTableError, Resolved
from pe_cli.models.scalings import TYPES, scaling_type
from pe_cli.models.sizes import width
from pe_cli.position_names import named

NO_LIMIT = 1 << 24  # a tokenizer that knows no limit says 10^30, or a number of this size
MOST_SPECIAL = 16  # class, distillation and register rows beside a grid
STORED = 2e-2  # relative rounding of frequencies that a checkpoint keeps in bfloat16, with room
# Loaders of these scalings kept the plain frequencies in the buffer and scaled the positions, or the base by length.
PLAIN_IN_BUFFER = frozenset({"linear", "dynamic-ntk", "longrope"})
ROPE_BLOCKS = ("rope_scaling", "rope_parameters")
# A parameter that may stand beside the rotary block and in it.
TWICE = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
PER_LAYER = ("layer_types", "no_rope_layers", "no_rope_layer_interval_list")


@dataclass(frozen=True)
class Finding:
    """A contradiction: `what` in a sentence, `where` the files and fields that it is between."""

    what: str
    where: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"what": self.what, "where": list(self.where)}


def findings(source: str) -> list[Finding]:
    """What contradicts itself in a model folder, or in a configuration alone; empty where all agree.

    Weights are read by their headers, but for stored frequencies.
    """
    path = Path(source)
    folder = path if path.is_dir() else None
    config_path = path / "config.json" if folder else path
    if not config_path.is_file():
        return []
    config = ModelConfig(read_object(config_path), config_path.name)
    found = list(_within(config))
    if folder is not None:
        weights = _headers(folder)
        found += _tables(config, weights)
        found += _buffers(config, weights)
        found += _stored_frequencies(config, weights)
        found += _limits(folder, config, weights)
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class _Weight:
    """A tensor of the checkpoint: its header, and the file that holds it."""

    spec: TensorSpec
    path: Path

    @property
    def label(self) -> str:
        return f"{self.path.name}:{self.spec.name}"


def _headers(folder: Path) -> dict[str, _Weight]:
    weights = {}
    for path in sorted(folder.glob("*.safetensors")):
        with open_source(str(path)) as source:
            weights.update({name: _Weight(spec, path) for name, spec in source.tensors.items()})
    return weights


# The configuration alone


def _within(config: ModelConfig) -> Iterator[Finding]:
    for path, section in _sections(config.data):
        prefix = "".join(f"{name}." for name in path)
        yield from _said_twice(config.label, prefix, section)
        yield from _lists_by_layer(config.label, prefix, section)
    for part, ledger in _parts(config):
        yield from _rotary_blocks(part, ledger)


def _sections(
    data: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The whole and the parts of a composite, each with its path."""
    yield path, data
    for key, part in data.items():
        if isinstance(part, dict) and key.endswith(("_config", "encoder", "decoder")):
            yield from _sections(part, (*path, key))


def _parts(config: ModelConfig) -> Iterator[tuple[Configuration, KeyLedger]]:
    whole = Configuration(config.label, config.data, model_type=str(config.data.get("model_type") or ""))
    try:
        for part, _ in parts(whole, None):
            yield part, KeyLedger(part)
    except PeError:
        return  # a configuration that cannot be taken apart is refused where its table is asked for


def _said_twice(label: str, prefix: str, section: Mapping[str, Any]) -> Iterator[Finding]:
    """A parameter that stands in two places with two values."""
    blocks = {name: section[name] for name in ROPE_BLOCKS if isinstance(section.get(name), dict)}
    flat = {
        name: block for name, block in blocks.items() if not any(isinstance(v, dict) for v in block.values())
    }
    for name in TWICE:
        places = [(f"{prefix}{name}", section[name])] if _is_number(section.get(name)) else []
        places += [(f"{prefix}{b}.{name}", v[name]) for b, v in flat.items() if _is_number(v.get(name))]
        yield from _differing(label, places)
    for block, values in flat.items():
        kinds = [
            (f"{prefix}{block}.{key}", values[key])
            for key in ("rope_type", "type")
            if isinstance(values.get(key), str)
        ]
        if len({TYPES.get(kind, kind) for _, kind in kinds}) > 1:
            yield from _differing(label, kinds)
    if len(flat) == 2:
        shared = set.intersection(*(set(block) for block in flat.values())) - {*TWICE, "type", "rope_type"}
        for name in sorted(shared):
            yield from _differing(label, [(f"{prefix}{b}.{name}", v[name]) for b, v in flat.items()])


def _differing(label: str, places: Sequence[tuple[str, Any]]) -> Iterator[Finding]:
    if len({json.dumps(float(v) if _is_number(v) else v) for _, v in places}) > 1:
        said = " and ".join(f"{name} is {json.dumps(value)}" for name, value in places)
        yield Finding(
            f"{said}: which of them counts depends on the library and its version",
            tuple(f"{label}:{name}" for name, _ in places),
        )


def _lists_by_layer(label: str, prefix: str, section: Mapping[str, Any]) -> Iterator[Finding]:
    count = section.get("num_hidden_layers")
    for name in PER_LAYER:
        listed = section.get(name)
        if isinstance(listed, list) and type(count) is int and listed and len(listed) != count:
            yield Finding(
                f"{prefix}{name} has {len(listed)} entries for {count} layers (num_hidden_layers)",
                (f"{label}:{prefix}{name}", f"{label}:{prefix}num_hidden_layers"),
            )


def _rotary_blocks(part: Configuration, ledger: KeyLedger) -> Iterator[Finding]:
    """Scalings that do not fit the lengths or the head, and scalings of what does not rotate."""
    block = next(
        (name for name in ROPE_BLOCKS if isinstance(part.values.get(name), dict) and part.values[name]), None
    )
    if block is None:
        return
    if not _rotates(part):
        scaled = part.values[block].get("factor")
        if scaled is not None:
            yield Finding(
                f"{part.key(block)} asks for a scaling, but this model ({part.model_type}) does not rotate: it has no effect",
                (f"{part.file}:{part.key(block)}",),
            )
        return
    try:
        tables = layer_tables(ledger)
    except PeError:
        return
    for label, rope in tables.items():
        if rope is not None and not rope.assumed:
            yield from _reach(part, ledger, rope)
            yield from _fits_head(part, ledger, rope, label)


def _rotates(part: Configuration) -> bool:
    """Whether the model turns; True too where its table cannot be resolved for another reason."""
    try:
        return resolve_configuration(part).encoding == "rope"
    except LearnedTableError:
        return False
    except PeError:
        return True


def _reach(part: Configuration, ledger: KeyLedger, rope: Rope) -> Iterator[Finding]:
    """YaRN that ends before the length that the model claims."""
    kind = rope.values.get("rope_type", rope.values.get("type"))
    fields = {
        f"{rope.path}.factor": rope.values.get("factor"),
        f"{rope.path}.original_max_position_embeddings": rope.values.get("original_max_position_embeddings"),
        part.key("max_position_embeddings"): part.values.get("max_position_embeddings"),
    }
    if TYPES.get(str(kind)) != "yarn" or not all(map(_is_number, fields.values())):
        return
    factor, original, longest = map(float, fields.values())  # type: ignore[arg-type]
    if factor * original < longest * (1 - 1e-3):
        yield Finding(
            f"{rope.path}: factor {factor:g} times original_max_position_embeddings {original:g} reaches "
            f"{factor * original:g} positions, and max_position_embeddings says {longest:g}",
            tuple(f"{part.file}:{name}" for name in fields),
        )


def _fits_head(part: Configuration, ledger: KeyLedger, rope: Rope, label: str | None) -> Iterator[Finding]:
    """Lists of factors, and sections, that have another number of pairs than the head."""
    try:
        dim, partial = width(ledger, rope, label, scaling_type(ledger, rope)[0])
    except PeError:
        return
    turned = int(dim * partial) if partial is not None else dim
    pairs = turned // 2
    for name in ("short_factor", "long_factor"):
        listed = rope.values.get(name)
        if isinstance(listed, list) and len(listed) != pairs:
            yield Finding(
                f"{rope.path}.{name} has {len(listed)} divisors, one is needed for each of the {pairs} pairs that turn",
                (f"{part.file}:{rope.path}.{name}", f"{part.file}:{part.key('head_dim')}"),
            )
    sections = rope.values.get("mrope_section")
    if isinstance(sections, list) and all(map(_is_number, sections)) and sum(sections) not in (pairs, turned):
        yield Finding(
            f"{rope.path}.mrope_section {sections} covers {sum(sections)} pairs, and {pairs} turn",
            (f"{part.file}:{rope.path}.mrope_section", f"{part.file}:{part.key('head_dim')}"),
        )


# Configuration and weights


def _tables(config: ModelConfig, weights: Mapping[str, _Weight]) -> Iterator[Finding]:
    """Learned tables whose rows are not what the configuration says."""
    for name, weight in weights.items():
        row = named(name, weight.spec.shape)
        if row is None or row.encoding != "learned":
            continue
        rows = _rows(weight.spec.shape)
        if rows is None:
            continue
        images = row.kind == "grid" or (row.either and config.sizes_image(name))
        if images:
            yield from _fits_grid(config, weight, rows)
        elif row.kind == "sequence" and row.main:
            yield from _fits_length(config, weight, rows)


def _rows(shape: Sequence[int]) -> int | None:
    """Rows of a table (rows, width), axes of one entry aside; None where more axes leave it open which are rows."""
    live = [size for size in shape if size != 1]
    return live[0] if len(live) == 2 else None


def _fits_length(config: ModelConfig, weight: _Weight, rows: int) -> Iterator[Finding]:
    row = named(weight.spec.name, weight.spec.shape)
    fields = _length_fields(config, weight.spec.name, row.fields if row is not None else ())
    if fields is None:
        return
    prefix, values = fields
    front, _ = offset_of(weight.spec.name, rows, config)
    if any(value in (rows, rows - front) for value in values.values()):
        return
    said = ", ".join(f"{prefix}{field} {value}" for field, value in values.items())
    yield Finding(
        f"{weight.spec.name} has {rows} rows, and {config.label} says {said}",
        (weight.label, *(f"{config.label}:{prefix}{field}" for field in values)),
    )


def _length_fields(
    config: ModelConfig, tensor: str, names: Sequence[str]
) -> tuple[str, dict[str, int]] | None:
    """The fields of the configuration that say how long a table is, with the path in front of them."""
    for path, section in config.sections(tensor):
        values = length_fields(section, tensor, names)
        if values:
            return "".join(f"{name}." for name in path), values
    return None


def _fits_grid(config: ModelConfig, weight: _Weight, rows: int) -> Iterator[Finding]:
    grid = grid_of(config, weight.spec.name)
    if grid is None:
        return
    special = rows - prod(grid)
    if 0 <= special <= MOST_SPECIAL + (suffix_of(config, weight.spec.name) or 0):
        return
    fields = [
        f
        for f in ("image_size", "patch_size", "num_frames")
        if any(f in s for _, s in config.sections(weight.spec.name))
    ]
    sizes = " and ".join(
        f"{field} {next(s[field] for _, s in config.sections(weight.spec.name) if field in s)}"
        for field in fields
    )
    yield Finding(
        f"{weight.spec.name} has {rows} rows; {sizes} make {'x'.join(map(str, grid))} patches, with a class token "
        f"{prod(grid) + 1} rows",
        (weight.label, *(f"{config.label}:{field}" for field in fields)),
    )


def _buffers(config: ModelConfig, weights: Mapping[str, _Weight]) -> Iterator[Finding]:
    """`position_ids` of another length than the table beside them."""
    for name, weight in weights.items():
        if not re.search(r"(?:^|\.)position_ids$", name):
            continue
        beside = name.removesuffix("position_ids")
        count = weight.spec.size
        for other, table in weights.items():
            row = named(other, table.spec.shape)
            rows = _rows(table.spec.shape)
            if row is None or row.encoding != "learned" or not row.main or rows is None:
                continue
            if not other.startswith(beside) or "." in other[len(beside) :].removesuffix(".weight"):
                continue
            front, _ = offset_of(other, rows, config)
            if count not in (rows, rows - front):
                yield Finding(
                    f"{name} has {count} entries, and the table {other} has {rows} rows",
                    (weight.label, table.label),
                )


def _stored_frequencies(config: ModelConfig, weights: Mapping[str, _Weight]) -> Iterator[Finding]:
    """An `inv_freq` that a checkpoint keeps, of another base than the configuration's."""
    stored = {
        n: w for n, w in weights.items() if re.search(r"(?:^|\.)inv_freq$", n) and len(w.spec.shape) == 1
    }
    if not stored:
        return
    tables = list(_resolved(config))
    told: set[tuple[float, ...]] = set()
    for name, weight in stored.items():
        with open_source(str(weight.path), tensor=name) as source:
            values = np.asarray(source.read(name), np.float64)
        key = tuple(values.tolist())
        alike = [table for table in tables if len(spectrum_of(table).inv_freq) == len(values)]
        if key in told or not alike or any(_is_of(values, table) for table in alike):
            continue
        told.add(key)
        base, said = _base_of(values), alike[0]
        of = f"frequencies of base {base:g}" if base is not None else "frequencies of no plain base"
        origin = said.origins.get("base", "rope_theta")
        yield Finding(
            f"{name} holds {of}, and {config.label} says {origin} {said.parameters['base']:g}"
            + (f" with {said.parameters['scaling']} scaling" if said.parameters.get("scaling") else "")
            + ": loaders that read the stored ones turn otherwise than those that do not",
            (weight.label, f"{config.label}:{origin}"),
        )


def _resolved(config: ModelConfig) -> Iterator[Resolved]:
    """The rotary tables of one axis of a model, as far as they can be resolved."""
    for part, ledger in _parts(config):
        try:
            labels = [label for label, rope in layer_tables(ledger).items() if rope is not None]
        except PeError:
            continue
        for label in labels:
            try:
                longest = ledger.geometry("max_position_embeddings")
                length = longest.value if longest is not None else None
                found = resolve_configuration(part, layer_type=label, seq_len=length)
            except PeError:
                continue
            if found.encoding == "rope" and found.axes == 1:
                yield found


def _is_of(values: NDArray[np.float64], table: Resolved) -> bool:
    """Whether stored frequencies are those of a table, scaled or where loaders kept them so, plain."""
    spectrum = spectrum_of(table)
    wanted = [np.array(spectrum.inv_freq, np.float64)]
    if table.parameters.get("scaling", "none") in PLAIN_IN_BUFFER:
        wanted.append(np.array(spectrum.plain, np.float64))
    return any(bool(np.allclose(values, w, rtol=STORED, atol=0)) for w in wanted)


def _base_of(values: NDArray[np.float64]) -> float | None:
    """The base of plain frequencies, base^(-2 i / d), or None where they are none."""
    count = len(values)
    if count < 2 or not (values > 0).all() or abs(values[0] - 1) > STORED:
        return None
    base = float(values[-1] ** (-count / (count - 1)))
    plain = base ** (-np.arange(count) / count)
    if not np.allclose(values, plain, rtol=STORED, atol=0):
        return None
    digits = 10 ** (math.floor(math.log10(base)) - 1)  # rounding of the buffer reaches the base
    rounded = round(base / digits) * digits
    return float(rounded) if abs(rounded / base - 1) < STORED else base


# Files beside the model


def _limits(folder: Path, config: ModelConfig, weights: Mapping[str, _Weight]) -> Iterator[Finding]:
    """Limits of the tokenizer and of sentences beyond the end of a learned table."""
    ends = []
    for name, weight in weights.items():
        row, rows = named(name, weight.spec.shape), _rows(weight.spec.shape)
        if row is None or row.encoding != "learned" or row.kind != "sequence" or not row.main or rows is None:
            continue
        if (row.either and config.sizes_image(name)) or re.search(r"vision|visual|image|audio", name.lower()):
            continue
        front, _ = offset_of(name, rows, config)
        ends.append((rows - front, weight))
    if not ends:
        return
    usable, weight = max(ends, key=lambda end: end[0])
    for file, field, value in _told_limits(folder):
        if usable < value < NO_LIMIT:
            yield Finding(
                f"{file} says {field} {value}, and {weight.spec.name} ends after {usable} positions",
                (f"{file}:{field}", weight.label),
            )


def _told_limits(folder: Path) -> Iterator[tuple[str, str, int]]:
    for file, path in (
        ("tokenizer_config.json", ("model_max_length",)),
        ("tokenizer.json", ("truncation", "max_length")),
        ("sentence_bert_config.json", ("max_seq_length",)),
    ):
        if not (folder / file).is_file():
            continue
        value: Any = read_object(folder / file)
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if _is_number(value):
            yield file, ".".join(path), int(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
