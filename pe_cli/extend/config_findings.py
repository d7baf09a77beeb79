"""What contradicts itself in a configuration, or between it and the files of text beside it, whatever the weights are."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from pe_cli.errors import PeError
from pe_cli.extend.config import ModelConfig, grid_of
from pe_cli.extend.rows import times
from pe_cli.files import TensorSpec
from pe_cli.files.text import read_object
from pe_cli.models.configuration import Configuration
from pe_cli.models.layers import Rope, layer_tables
from pe_cli.models.read import parts
from pe_cli.models.resolve import resolve_configuration
from pe_cli.models.resolved import KeyLedger, LearnedTableError
from pe_cli.models.scalings import TYPES, scaling_type
from pe_cli.models.sizes import IMAGE_TOKEN_FIELDS, image_tokens, width
from pe_cli.position_names import squares

MOST_SPECIAL = 16  # class, distillation and register rows beside a grid
ROPE_BLOCKS = ("rope_scaling", "rope_parameters")
# Fields that are one parameter in the code of a model, which takes one of them by its version.
SAME_FIELDS = dict.fromkeys(("gpt2", "openai-gpt"), ("n_positions", "n_ctx", "max_position_embeddings"))
# A parameter that may stand beside the rotary block and in it.
TWICE = ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")
# Towers whose code refuses images of another size than image_size, unless it is told to interpolate. A vision_config
# without a type has that of the whole.
ONE_IMAGE_SIZE = frozenset(
    (
        "vit deit vit_mae vit_msn ijepa aimv2_vision_model clip clip_vision_model chinese_clip chinese_clip_vision_model "
        "altclip_vision_model metaclip_2_vision_model siglip siglip_vision_model git git_vision_model kosmos_2_vision_model "
        "blip blip_vision_model blip_2_vision_model granite_docling_vision"
    ).split()
)
# Other towers of which each patch, or each square of merged ones, is a token of the text.
COUNTED_PATCHES = frozenset(("internvl_vision", "idefics3_vision", "smolvlm_vision", "idefics3", "smolvlm"))
PER_LAYER = ("layer_types", "no_rope_layers", "no_rope_layer_interval_list")


@dataclass(frozen=True)
class Finding:
    """A contradiction: `what` in a sentence, `where` the files and fields that it is between."""

    what: str
    where: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"what": self.what, "where": list(self.where)}


def within(config: ModelConfig) -> Iterator[Finding]:
    """What contradicts itself in `config`, whatever the weights are."""
    for path, section in _sections(config.data):
        prefix = "".join(f"{name}." for name in path)
        yield from _said_twice(config.label, prefix, section)
        yield from _lists_by_layer(config.label, prefix, section)
    for part, ledger in parts_of(config):
        yield from _rotary_blocks(part, ledger)


def _sections(
    data: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """The whole and the parts of a composite, each with its path."""
    yield path, data
    for key, part in data.items():
        if isinstance(part, dict) and key.endswith(("_config", "encoder", "decoder")):
            yield from _sections(part, (*path, key))


def _said_twice(label: str, prefix: str, section: Mapping[str, Any]) -> Iterator[Finding]:
    """A parameter that stands in two places with two values."""
    blocks = {name: section[name] for name in ROPE_BLOCKS if isinstance(section.get(name), dict)}
    flat = {
        name: block for name, block in blocks.items() if not any(isinstance(v, dict) for v in block.values())
    }
    same = SAME_FIELDS.get(str(section.get("model_type")), ())
    yield from _differing(label, [(f"{prefix}{n}", section[n]) for n in same if is_number(section.get(n))])
    for name in TWICE:
        places = [(f"{prefix}{name}", section[name])] if is_number(section.get(name)) else []
        places += [(f"{prefix}{b}.{name}", v[name]) for b, v in flat.items() if is_number(v.get(name))]
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
        kinds = [
            (f"{prefix}{b}", TYPES.get(k, k)) for b, v in flat.items() if isinstance(k := kind_of(v), str)
        ]
        yield from _differing(label, kinds)
        shared = set.intersection(*(set(block) for block in flat.values())) - {*TWICE, "type", "rope_type"}
        for name in sorted(shared):
            yield from _differing(label, [(f"{prefix}{b}.{name}", v[name]) for b, v in flat.items()])


def kind_of(block: Mapping[str, Any]) -> Any:
    """The type of scaling that a rotary block names, in either spelling."""
    return block.get("rope_type", block.get("type"))


def _differing(label: str, places: Sequence[tuple[str, Any]]) -> Iterator[Finding]:
    if len({json.dumps(float(v) if is_number(v) else v) for _, v in places}) > 1:
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
        values = part.values[block]
        if values.get("factor") is not None or kind_of(values) not in (None, "default"):
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
            yield from _reach(part, rope)
            yield from _fits_head(part, ledger, rope, label)


def _rotates(part: Configuration) -> bool:
    """Whether the model turns; True too where its table cannot be resolved for another reason."""
    try:
        return resolve_configuration(part).encoding == "rope"
    except LearnedTableError:
        return False
    except PeError:
        return True


def _reach(part: Configuration, rope: Rope) -> Iterator[Finding]:
    """A scaling by one factor that ends before the length that the model claims."""
    original = "original_max_position_embeddings"
    beside = rope.values.get(original) is None
    fields = {
        f"{rope.path}.factor": rope.values.get("factor"),
        part.key(original) if beside else f"{rope.path}.{original}": part.values.get(original)
        if beside
        else rope.values[original],
        part.key("max_position_embeddings"): part.values.get("max_position_embeddings"),
    }
    if TYPES.get(str(kind_of(rope.values))) not in ("yarn", "linear") or not all(
        map(is_number, fields.values())
    ):
        return
    factor, trained, longest = map(float, fields.values())  # type: ignore[arg-type]
    if factor * trained < longest * (1 - 1e-3):
        yield Finding(
            f"{rope.path}: factor {factor:g} times {original} {trained:g} reaches "
            f"{factor * trained:g} positions, and max_position_embeddings says {longest:g}",
            tuple(f"{part.file}:{name}" for name in fields),
        )


def _fits_head(part: Configuration, ledger: KeyLedger, rope: Rope, label: str | None) -> Iterator[Finding]:
    """Lists of factors, and sections, that have another number of pairs than the head."""
    try:
        dim, partial = width(ledger, rope, label, scaling_type(ledger, rope))
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
    if isinstance(sections, list) and all(map(is_number, sections)) and sum(sections) not in (pairs, turned):
        yield Finding(
            f"{rope.path}.mrope_section {sections} covers {sum(sections)} pairs, and {pairs} turn",
            (f"{part.file}:{rope.path}.mrope_section", f"{part.file}:{part.key('head_dim')}"),
        )


def not_of_patches(config: ModelConfig, tensors: Mapping[str, TensorSpec], name: str) -> Finding | None:
    """A table of timm whose grid is not that of input_size, by the convolution that alone cuts the image into patches.

    Patches lie side by side, or overlap where the image is a multiple of the grid.
    """
    timm, front = config.data.get("pretrained_cfg"), name.removesuffix("pos_embed") + "patch_embed."
    cuts = [key for key, spec in tensors.items() if key.startswith(front) and len(spec.shape) == 4]
    if not isinstance(timm, dict) or not name.endswith("pos_embed") or cuts != [f"{front}proj.weight"]:
        return None
    size, kernel = timm.get("input_size"), tensors[cuts[0]].shape[2:]
    if not isinstance(size, list) or len(size) != 3 or not all(type(side) is int for side in size):
        return None
    image, rows = size[1:], tensors[name].shape[-2]
    made = tuple(side // step for side, step in zip(image, kernel, strict=True))
    overlaps = any(
        side % cells == 0 and side // cells < min(kernel) for _, cells in squares(rows) for side in image
    )
    if len(tensors[name].shape) != 3 or 0 <= rows - prod(made) <= MOST_SPECIAL or overlaps:
        return None
    field = f"{config.label}:pretrained_cfg.input_size"
    return Finding(
        f"{name} has {rows} rows; pretrained_cfg.input_size {size} and the patches of {times(kernel)} of {cuts[0]} make "
        f"{times(made)} patches, with a class token {prod(made) + 1} rows",
        (name, field),
    )


# Files beside the configuration


def told_limits(folder: Path) -> Iterator[tuple[str, str, int]]:
    """(file, field, value) of the limits in tokens that files beside the model say."""
    for file, path in (
        ("tokenizer_config.json", ("model_max_length",)),
        ("tokenizer.json", ("truncation", "max_length")),
        ("sentence_bert_config.json", ("max_seq_length",)),
        ("generation_config.json", ("max_length",)),
    ):
        if not (folder / file).is_file():
            continue
        value: Any = read_object(folder / file)
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if is_number(value):
            yield file, ".".join(path), int(value)


def inputs(folder: Path, config: ModelConfig) -> Iterator[Finding]:
    """What a processor makes of images and sounds, and the model refuses since it takes one size."""
    for file in ("preprocessor_config.json", "processor_config.json"):
        if not (folder / file).is_file():
            continue
        data = read_object(folder / file)
        made = {
            f"{name}.": data[name]
            for name in ("image_processor", "feature_extractor")
            if isinstance(data.get(name), dict)
        }
        for prefix, part in {"": data, **made}.items():
            for field, value, said, wanted in _made(config, part):
                if value != wanted:
                    yield Finding(
                        f"{file} makes inputs of {prefix}{field} {value}, and by {config.label} the model takes {said} {wanted}",
                        (f"{file}:{prefix}{field}", f"{config.label}:{said}"),
                    )


def _made(config: ModelConfig, made: Mapping[str, Any]) -> Iterator[tuple[str, Any, str, Any]]:
    """(field, what it makes, field of the model, what that takes) for all that a model takes in one size."""
    yield from _sound_made(config.data, made)
    name = next((n for n in ("vision_config", "encoder") if isinstance(config.data.get(n), dict)), None)
    section, prefix = (config.data, "") if name is None else (config.data[name], f"{name}.")
    kind = section.get("model_type", config.data.get("model_type"))
    if kind in ONE_IMAGE_SIZE:
        yield from _image_made(section, prefix, made)
    if kind in ONE_IMAGE_SIZE or kind in COUNTED_PATCHES:
        yield from _tokens_made(config, section, prefix, made)


def _image_made(
    section: Mapping[str, Any], prefix: str, made: Mapping[str, Any]
) -> Iterator[tuple[str, Any, str, Any]]:
    wanted, crops = section.get("image_size"), made.get("do_center_crop") and "crop_size" in made
    if not crops and made.get("do_resize") is False:
        return
    field = "crop_size" if crops else "size"
    value = _sides(made.get(field))
    if value is not None and _sides(wanted) is not None:
        one = value[0] == value[1] and type(wanted) is int
        yield field, value[0] if one else list(value), f"{prefix}image_size", wanted


def _sides(size: Any) -> tuple[int, int] | None:
    """Height and width of the images that a size asks for, where it fixes both."""
    if isinstance(size, dict):
        size = [size.get("height"), size.get("width")]
    if isinstance(size, list) and len(size) == 2 and all(type(side) is int for side in size):
        return size[0], size[1]
    return (size, size) if type(size) is int else None


def _tokens_made(
    config: ModelConfig, section: Mapping[str, Any], prefix: str, made: Mapping[str, Any]
) -> Iterator[tuple[str, Any, str, Any]]:
    """What a processor counts as tokens of an image: by patches, of which it may merge several, or as a number of them."""
    count, patch = made.get("patch_size"), section.get("patch_size")
    if type(count) is int and type(patch) is int and patch > 0 and count % patch:
        yield "patch_size", count, f"{prefix}patch_size", patch
    grid = grid_of(config, f"{prefix}embeddings.position_embedding.weight")
    tokens = image_tokens(config.data, grid) if grid is not None else None
    for field in IMAGE_TOKEN_FIELDS:
        value = made.get(field)
        if (
            tokens is not None and type(value) is int and value not in (tokens, tokens + 1)
        ):  # with a class token
            yield field, value, f"{prefix}image_size and patch_size, which make", tokens


def _sound_made(data: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[tuple[str, Any, str, Any]]:
    frames, most = made.get("nb_max_frames"), data.get("max_source_positions")
    if data.get("model_type") == "whisper" and type(frames) is int and type(most) is int:
        yield "nb_max_frames", frames, "2 max_source_positions =", 2 * most
    if data.get("model_type") == "audio-spectrogram-transformer":
        for field in ("max_length", "num_mel_bins"):
            if type(made.get(field)) is int and type(data.get(field)) is int:
                yield field, made[field], field, data[field]


# What both modules of findings use


def parts_of(config: ModelConfig) -> Iterator[tuple[Configuration, KeyLedger]]:
    whole = Configuration(config.label, config.data, model_type=str(config.data.get("model_type") or ""))
    try:
        for part, _ in parts(whole, None):
            yield part, KeyLedger(part)
    except PeError:
        return  # a configuration that cannot be taken apart is refused where its table is asked for


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
