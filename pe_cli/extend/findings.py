"""What contradicts itself in a model folder: the fields that `pe extend` keeps in step, looked at before a model is served.

A finding is told only where two statements of the folder cannot both hold; what merely is unusual is none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.extend.config import ModelConfig, grid_of, length_fields, offset_of, suffix_of
from pe_cli.extend.config_findings import (
    MOST_SPECIAL,
    Finding,
    inputs,
    is_number,
    not_of_patches,
    parts_of,
    told_limits,
    within,
)
from pe_cli.extend.folder import config_name
from pe_cli.extend.new_folder import WEIGHTS, shards_of
from pe_cli.extend.rows import spans, times
from pe_cli.files import TensorSpec
from pe_cli.files.sources import open_source
from pe_cli.files.text import read_object
from pe_cli.files.torch import EXTENSIONS
from pe_cli.models.describe import spectrum_of
from pe_cli.models.layers import layer_tables
from pe_cli.models.resolve import resolve_configuration
from pe_cli.models.resolved import Resolved
from pe_cli.position_names import COUNT_FIELDS, OTHER_TOWERS, front_of_model, named

NO_LIMIT = 1 << 24  # a tokenizer that knows no limit says 10^30, or a number of this size
STORED = 2e-2  # relative rounding of frequencies that a checkpoint keeps in bfloat16, with room
# Loaders of these scalings kept the plain frequencies in the buffer and scaled the positions, or the base by length.
PLAIN_IN_BUFFER = frozenset({"linear", "dynamic-ntk", "longrope"})
HEADS = {"q": "num_attention_heads", "k": "num_key_value_heads"}
# Fields of models whose layers, or whose queries and keys, have heads of several widths or numbers.
OTHER_HEADS = re.compile(
    r"^(?!head_dim$|num_attention_heads$|num_key_value_heads$).*(?:head_dim|_heads)|layer_configs|per_layer"
)
# Models whose configuration counts every row of their table of tokens.
ALL_ROWS_COUNTED = frozenset(
    (
        "bert albert electra distilbert mobilebert convbert rembert big_bird deberta deberta-v2 layoutlm gpt2 openai-gpt gpt_neo "
        "gpt_bigcode clip clip_text_model siglip siglip_text_model led blenderbot whisper"
    ).split()
)


def findings(source: str) -> list[Finding]:
    """What contradicts itself in a model folder, or in a configuration alone; empty where all agree.

    Weights are read by their headers, but for stored frequencies and `position_ids`.
    """
    path = Path(source)
    if not path.is_dir():
        return list(dict.fromkeys(within(ModelConfig(read_object(path), path.name))))
    files = weight_files(path)
    weights = _headers(files)
    name = config_name(path, [file.name for file in files] or [""])
    found = list(_index(path, weights))
    if name is not None:
        config = ModelConfig(read_object(path / name), name)
        found += within(config)
        found += _tables(config, weights)
        found += _buckets(config, weights)
        found += _heads(config, weights)
        found += _buffers(config, weights)
        found += _stored_frequencies(config, weights)
        found += _limits(path, config, weights)
        found += inputs(path, config)
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class _Weight:
    """A tensor of the checkpoint: its header, and the file that holds it."""

    spec: TensorSpec
    path: Path

    @property
    def label(self) -> str:
        return f"{self.path.name}:{self.spec.name}"


def weight_files(folder: Path) -> list[Path]:
    """The files of weights whose headers are read: all of safetensors, else those of torch where it is installed."""
    files = sorted(folder.glob("*.safetensors"))
    if files or find_spec("torch") is None:
        return files
    with suppress(PeError):
        return [folder / name for name in shards_of(folder)[0] if name.endswith(EXTENSIONS)]
    return []


def _headers(files: Sequence[Path]) -> dict[str, _Weight]:
    weights = {}
    for path in files:
        with open_source(str(path)) as source:
            weights.update({name: _Weight(spec, path) for name, spec in source.tensors.items()})
    return weights


def _index(folder: Path, weights: Mapping[str, _Weight]) -> Iterator[Finding]:
    """An index of several files that does not list the position tensors that these hold."""
    for name in (own for own, _ in WEIGHTS if own is not None and (folder / own).is_file()):
        listed = read_object(folder / name).get("weight_map")
        if not isinstance(listed, dict):
            continue
        missing = sorted({str(file) for file in listed.values() if not (folder / str(file)).is_file()})
        yield from (
            Finding(f"{name} names {file}, which is not there", (f"{name}:weight_map",)) for file in missing
        )
        held = {tensor: weight.path.name for tensor, weight in weights.items()}
        if not weights or name.split(".")[1] != next(iter(held.values())).rpartition(".")[2]:
            continue
        for tensor in sorted(set(listed) | set(held)):
            said, real = listed.get(tensor), held.get(tensor)
            if (
                said == real
                or said in missing
                or named(tensor, (2, 2)) is None
                or (said is None and real not in listed.values())
            ):
                continue
            where = f"in {real}" if real is not None else "in no file"
            yield Finding(
                f"{name} says {'nothing' if said is None else said} for {tensor}, which is {where}",
                (f"{name}:weight_map.{tensor}", *([] if real is None else [f"{real}:{tensor}"])),
            )


# Configuration and weights


def _tables(config: ModelConfig, weights: Mapping[str, _Weight]) -> Iterator[Finding]:
    """Learned tables, and biases of windows, whose rows are not what the configuration says."""
    for name, weight in weights.items():
        row = named(name, weight.spec.shape)
        if row is None or row.kind is None:
            continue
        rows = _rows(weight.spec.shape)
        images = row.kind == "grid" or (row.kind == "sequence" and row.main and config.sizes_image(name))
        if row.kind == "window":
            yield from _fits_window(config, weight)
        elif row.kind == "axial" and isinstance(sides := config.data.get("axial_pos_shape"), list):
            axis = int(name.rpartition(".")[2])
            if axis < len(sides) and rows != sides[axis]:
                yield _says(config, weight, ("axial_pos_shape",), sides)
        elif rows is None and images and row.main and row.axis is None:
            yield from _fits_sides(config, weight)
        elif rows is not None and images and row.main:
            yield from _fits_grid(config, weight, rows)
            if (
                gaps := not_of_patches(config, {key: other.spec for key, other in weights.items()}, name)
            ) is not None:
                yield gaps
        elif rows is not None and row.kind == "sequence" and (row.main or row.fields):
            yield from _fits_length(config, weight, rows)
        elif rows is not None and row.kind == "relative":
            yield from _fits_distances(config, weight, rows)


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
    if any(rows - value in _in_front(config, weight.spec.name, rows) for value in values.values()):
        return
    said = ", ".join(f"{prefix}{field} {value}" for field, value in values.items())
    yield Finding(
        f"{weight.spec.name} has {rows} rows, and {config.label} says {said}",
        (weight.label, *(f"{config.label}:{prefix}{field}" for field in values)),
    )


def _in_front(config: ModelConfig, tensor: str, rows: int) -> set[int]:
    """How many rows a table may have more than the configuration counts."""
    for _, section in config.sections(tensor):
        front = front_of_model(str(section.get("model_type")), section.get("pad_token_id"))
        if front is not None:
            return {0 if front.counted else front.rows}
    kind = config.sections(tensor)[0][1].get("model_type", config.data.get("model_type"))
    return {0} if kind in ALL_ROWS_COUNTED else {0, offset_of(tensor, rows, config)[0]}


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
        for path, section in config.sections(weight.spec.name):
            for field in COUNT_FIELDS if "patch_size" in section else ():
                if type(count := section.get(field)) is int and count != rows:
                    yield _says(config, weight, (*path, field), count)
        return
    special = rows - prod(grid)
    if len(grid) == 3 and rows in (grid[0], prod(grid[1:])):
        return  # of the frames alone, or of one frame
    if not 0 <= special <= MOST_SPECIAL + (suffix_of(config, weight.spec.name) or 0):
        made = f"{times(grid)} patches, with a class token {prod(grid) + 1} rows"
        yield _not_of_image(config, weight, f"has {rows} rows", made)


def _fits_sides(config: ModelConfig, weight: _Weight) -> Iterator[Finding]:
    """A grid with an axis for each side, (1, H, W, D) or (1, D, H, W)."""
    grid, live = grid_of(config, weight.spec.name), [size for size in weight.spec.shape if size != 1]
    if grid is not None and len(grid) == 2 and len(live) == 3 and list(grid) not in (live[:2], live[1:]):
        yield _not_of_image(
            config, weight, f"has the shape {list(weight.spec.shape)}", f"{times(grid)} patches"
        )


def _fits_distances(config: ModelConfig, weight: _Weight, rows: int) -> Iterator[Finding]:
    """Rows by distance along an axis of SAM: of a window, or in global layers of the whole grid."""
    grid, (path, section) = grid_of(config, weight.spec.name), config.sections(weight.spec.name)[0]
    window = section.get("window_size")
    if grid is None or type(window) is not int or rows in {2 * side - 1 for side in (window, *grid)}:
        return
    yield _says(config, weight, (*path, "window_size"), window, 2 * window - 1)


def _says(
    config: ModelConfig, weight: _Weight, path: tuple[str, ...], value: Any, needs: int | None = None
) -> Finding:
    """A field that counts the rows of a table, or from which their number follows, and it is another one."""
    field, needed = ".".join(path), "" if needs is None else f", which needs {needs}"
    return Finding(
        f"{weight.spec.name} has {_rows(weight.spec.shape)} rows, and {config.label} says {field} {value}{needed}",
        (weight.label, f"{config.label}:{field}"),
    )


def _fits_window(config: ModelConfig, weight: _Weight) -> Iterator[Finding]:
    """Biases by offset: of the window that the configuration says, or of the image where that is smaller or it is BEiT's."""
    name, rows = weight.spec.name, weight.spec.shape[0]
    grid = grid_of(config, name)
    window = next(
        (s["window_size"] for _, s in config.sections(name) if type(s.get("window_size")) is int), None
    )
    if grid is None or len(weight.spec.shape) != 2 or len(grid) != 2:
        return
    if window is None:
        if (
            any("relative_position_bias" in field for _, s in config.sections(name) for field in s)
            and rows != prod(spans(grid)) + 3
        ):
            made = f"{times(grid)} patches, which need {prod(spans(grid)) + 3} rows"
            yield _not_of_image(config, weight, f"has {rows} rows", made)
        return
    stage = re.search(r"layers\.(\d+)\.", name)
    sides = [side // 2 ** int(stage[1] if stage else 0) for side in grid]
    if rows not in (prod(spans((window, window))), prod(spans((min(window, *sides),) * 2))):
        yield _says(config, weight, ("window_size",), window, prod(spans((window, window))))


def _not_of_image(config: ModelConfig, weight: _Weight, has: str, made: str) -> Finding:
    sections = [section for _, section in config.sections(weight.spec.name)]
    fields = [f for f in ("image_size", "patch_size", "num_frames") if any(f in s for s in sections)]
    sizes = " and ".join(f"{field} {next(s[field] for s in sections if field in s)}" for field in fields)
    return Finding(
        f"{weight.spec.name} {has}; {sizes} make {made}",
        (weight.label, *(f"{config.label}:{field}" for field in fields)),
    )


def _buckets(config: ModelConfig, weights: Mapping[str, _Weight]) -> Iterator[Finding]:
    """Rows by bucket (T5) and by distance (DeBERTa) that are not as many as the configuration says."""
    for name, weight in weights.items():
        for _, section in config.sections(name):
            if name.endswith("relative_attention_bias.weight"):
                field, wanted = (
                    "relative_attention_num_buckets",
                    section.get("relative_attention_num_buckets"),
                )
            elif name.endswith("rel_embeddings.weight") and section.get("relative_attention"):
                field, wanted = _distances(section)
            else:
                continue
            if type(wanted) is int and weight.spec.shape[0] != wanted:
                yield _says(config, weight, (field,), section[field], wanted)
            break


def _distances(section: Mapping[str, Any]) -> tuple[str, int | None]:
    """The field of DeBERTa that counts its rows by distance, and how many rows it needs: one for each side."""
    buckets, most = section.get("position_buckets", -1), section.get("max_relative_positions", -1)
    if section.get("model_type") in ("deberta-v2", "sew-d") and is_number(buckets) and buckets > 0:
        return "position_buckets", 2 * buckets
    if is_number(most) and most > 0:
        return "max_relative_positions", 2 * most
    length = section.get("max_position_embeddings")
    return "max_position_embeddings", 2 * length if type(length) is int else None


def _heads(config: ModelConfig, weights: Mapping[str, _Weight]) -> Iterator[Finding]:
    """Projections to queries or keys that are not of the heads whose width the rotary table is made for."""
    for name, weight in weights.items():
        kind = re.search(r"\.self_attn\.([qk])_proj\.weight$", name)
        if kind is None or len(weight.spec.shape) != 2 or "float" not in weight.spec.dtype:
            continue
        path, section = config.sections(name)[0]
        width = (
            ["head_dim"] if type(section.get("head_dim")) is int else ["hidden_size", "num_attention_heads"]
        )
        fields = [HEADS[kind[1]], *width]
        sizes: list[Any] = [section.get(field) for field in fields]
        if (
            "patch_size" in section
            or any(map(OTHER_HEADS.search, section))
            or not all(type(n) is int and n > 0 for n in sizes)
        ):
            continue
        count, across, *by = sizes
        needed = count * (across // by[0] if by else across)
        if weight.spec.shape[0] not in (
            needed,
            needed * (2 if kind[1] == "q" else 1),
        ):  # a gate may stand beside the queries
            paths = [".".join((*path, field)) for field in dict.fromkeys(fields)]
            said = ", ".join(
                f"{path} {section[field]}" for path, field in zip(paths, dict.fromkeys(fields), strict=True)
            )
            yield Finding(
                f"{name} has {weight.spec.shape[0]} rows, and {config.label} says {said}, which needs {needed}",
                (weight.label, *(f"{config.label}:{path}" for path in paths)),
            )
            return


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
            values = _read(weight).reshape(-1)
            if count in (rows, rows - front) and not np.array_equal(values - values[0], np.arange(count)):
                yield Finding(
                    f"{name} does not count up by one: positions take other rows of {other} than they were trained with",
                    (weight.label,),
                )
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
        values = _read(weight)
        key = tuple(values.tolist())
        alike = [table for table in tables if len(spectrum_of(table).inv_freq) == len(values)]
        if key in told or not tables or any(_is_of(values, table) for table in alike):
            continue
        told.add(key)
        if not alike:
            if not OTHER_TOWERS.search(name):
                turn = " or ".join(str(len(spectrum_of(table).inv_freq)) for table in tables)
                yield Finding(
                    f"{name} holds {len(values)} frequencies, and by {config.label} {turn} pairs turn",
                    (
                        weight.label,
                        *(f"{config.label}:{o}" for o in [tables[0].origins.get("dim", "head_dim")]),
                    ),
                )
            continue
        base, said = _base_of(values), alike[0]
        of = f"frequencies of base {base:g}" if base is not None else "frequencies of no plain base"
        origin = said.origins.get("base", "rope_theta")
        yield Finding(
            f"{name} holds {of}, and {config.label} says {origin} {said.parameters['base']:g}"
            + (f" with {said.parameters['scaling']} scaling" if said.parameters.get("scaling") else "")
            + ": loaders that read the stored ones turn otherwise than those that do not",
            (weight.label, f"{config.label}:{origin}"),
        )


def _read(weight: _Weight) -> NDArray[np.float64]:
    with open_source(str(weight.path), tensor=weight.spec.name) as source:
        return np.asarray(source.read(weight.spec.name), np.float64)


def _resolved(config: ModelConfig) -> Iterator[Resolved]:
    """The rotary tables of one axis of a model, as far as they can be resolved."""
    for part, ledger in parts_of(config):
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
        if config.sizes_image(name) or OTHER_TOWERS.search(name):
            continue
        front, _ = offset_of(name, rows, config)
        ends.append((rows - front, weight))
    if not ends:
        return
    writers = [end for end in ends if re.search(r"(?:^|\.)decoder\.", end[1].spec.name)] or ends
    for file, field, value in told_limits(folder):
        usable, weight = max(writers if file == "generation_config.json" else ends, key=lambda end: end[0])
        if usable < value < NO_LIMIT:
            yield Finding(
                f"{file} says {field} {value}, and {weight.spec.name} ends after {usable} positions",
                (f"{file}:{field}", weight.label),
            )
