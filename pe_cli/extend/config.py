"""A model's configuration: what it says about its position tables, and the edits that keep it in step with them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, prod
from typing import Any, TypeAlias

from pe_cli.errors import PeError, parameter
from pe_cli.extend.request import WITHOUT_IT
from pe_cli.extend.rows import times
from pe_cli.models.sizes import IMAGE_TOKEN_FIELDS, image_tokens
from pe_cli.position_names import (
    COUNT_FIELDS,
    IMAGE_FIELDS,
    LENGTH_FIELD_OF,
    LENGTH_FIELDS,
    OWN_LENGTH_FIELD,
    PAIR_FIELDS,
    SIDE_FIELDS,
    front_of_model,
    front_of_rows,
)

Section: TypeAlias = tuple[tuple[str, ...], dict[str, Any]]

# Parts of a configuration, and the names of the tensors that they describe.
PARTS = (
    ("vlm_config", r"^vlm\."),
    ("text_config", r"(?:^|\.)(?:text_model|language_model|text_encoder|text_backbone|text_decoder|text)\."),
    ("high_res_vision_config", r"high_res_vision"),
    ("vision_config", r"vision|visual|image_encoder|image_tower|video_tower|img_processor|^mit\."),
    ("image_config", r"image_model"),
    ("audio_config", r"audio"),
    ("qformer_config", r"qformer"),
    ("backbone_config", r"backbone|pixel_level_module"),
    ("encoder", r"^encoder\."),
    ("decoder", r"^decoder\."),
    ("decoder_config", r"speech_decoder_model"),
    ("model_args", r""),  # timm
    ("model_cfg", r""),  # open_clip
    ("vision_cfg", r"^visual\."),
    ("text_cfg", r"^(?!visual\.)"),
)
MOST_OFFSET = 8


@dataclass(frozen=True)
class Edit:
    """A field of a configuration with its old and new value; `old` is None where it was left to its default."""

    path: tuple[str, ...]
    old: Any
    new: Any

    def __str__(self) -> str:
        was = "(default)" if self.old is None else json.dumps(self.old)
        return f"{'.'.join(self.path)}: {was} -> {json.dumps(self.new)}"


@dataclass(frozen=True)
class ModelConfig:
    """A `config.json`, with the name to use for it in messages."""

    data: dict[str, Any]
    label: str

    def sections(self, tensor: str) -> list[Section]:
        """The parts that describe `tensor`, the most particular first, the whole last."""
        found: list[Section] = [((), self.data)]
        parts = list(PARTS)
        while parts:
            (key, pattern), (path, inner) = parts.pop(0), found[0]
            part = inner.get(key)
            if isinstance(part, dict) and re.search(pattern, tensor.lower()):
                found.insert(0, ((*path, key), part))
                parts = list(PARTS)  # a part can have parts: vlm_config.vision_config
        if len(found) == 1:  # a part that is called as its tensors are: semantic_config of Bark
            for key, part in self.data.items():
                if isinstance(part, dict) and tensor.startswith(f"{key.removesuffix('_config')}."):
                    found.insert(0, ((key,), part))
        return found

    def sizes_image(self, tensor: str) -> bool:
        """Whether the part that describes `tensor` is of images and has no length: a bare vision model."""
        _, section = self.sections(tensor)[0]
        if all(field in section for field in SIDE_FIELDS) or section.get("model_type") == "imagegpt":
            return True
        sized = any(field in section for field in (*IMAGE_FIELDS, *COUNT_FIELDS))
        return sized and "patch_size" in section and not any(field in section for field in LENGTH_FIELDS[:7])


def edited(data: dict[str, Any], edits: Sequence[Edit]) -> dict[str, Any]:
    """A copy of `data` with the edits made."""
    copy: dict[str, Any] = json.loads(json.dumps(data))
    for edit in edits:
        place = copy
        for key in edit.path[:-1]:
            place = place.setdefault(key, {})
        place[edit.path[-1]] = edit.new
    return copy


def length_fields(section: dict[str, Any], tensor: str, names: Sequence[str] = ()) -> dict[str, int]:
    """The length fields of a part that concern `tensor`: `names`, or those of tokens, of two stacks only its own."""
    side = re.search(r"(?:^|\.)(encoder|decoder)\.", tensor.lower())
    other = {"encoder": r"target|decoder", "decoder": r"source|encoder"}[side[1]] if side else r"(?!)"
    own = OWN_LENGTH_FIELD.get(str(section.get("model_type")))
    if "context_length" in section and "heads" in section:  # open_clip's text
        own = "context_length"
    return {
        field: section[field]
        for field in names or ((own,) if own else LENGTH_FIELDS)
        if type(section.get(field)) is int and section[field] > 0 and not re.search(other, field)
    }


def offset_of(tensor: str, rows: int, config: ModelConfig) -> tuple[int, str]:
    """How many rows stand before position 0 in a table of tokens, and how that is known."""
    for _, section in config.sections(tensor):
        front = front_of_model(str(section.get("model_type")), section.get("pad_token_id"))
        if front is not None:
            return front.rows, front.why
        fields = length_fields(section, tensor)
        for field, value in fields.items():
            if 0 <= rows - value <= MOST_OFFSET:
                return rows - value, f"{field} {value} of {rows} rows" if rows > value else ""
    front = front_of_rows(rows)
    return (0, "") if front is None else (front.rows, front.why)


def length_edits(
    config: ModelConfig, tensor: str, old: tuple[int, int], new: tuple[int, int], names: Sequence[str] = ()
) -> tuple[list[Edit], list[str]]:
    """Edits for a table of rows that goes from `old` to `new` (rows, usable), and what there is to say.

    `names` are the fields that count its rows, where it is no table of tokens.

    Errors: the configuration has a length, and it is neither the rows nor the usable rows of the table.
    """
    for path, section in config.sections(tensor):
        fields = length_fields(section, tensor, names)
        if not fields:
            kind = section.get("model_type")
            if path or kind in LENGTH_FIELD_OF or (names and kind):
                field = names[0] if names else LENGTH_FIELD_OF.get(str(kind), "max_position_embeddings")
                return [Edit((*path, field), None, new[0])], []
            continue
        edits = [
            Edit((*path, field), value, new[0] if value == old[0] else new[1])
            for field, value in fields.items()
            if value in old
        ]
        if not edits:
            said = ", ".join(f"{'.'.join((*path, field))} {value}" for field, value in fields.items())
            usable = f", {old[1]} of them usable" if old[1] != old[0] else ""
            front = old[0] - max(fields.values())
            given = (
                f"give {parameter('offset')} {front} if that many rows stand in front, " if front > 0 else ""
            )
            raise PeError(
                f"{config.label} says {said}, but {tensor} has {old[0]} rows{usable}; correct the configuration, {given}"
                f"{WITHOUT_IT}"
            )
        kept, notes = _relative_rows(path, section, edits)
        return edits + kept, notes
    return [], [f"{config.label} has no field for the length of {tensor}; tell your code"]


def _relative_rows(
    path: tuple[str, ...], section: dict[str, Any], edits: Sequence[Edit]
) -> tuple[list[Edit], list[str]]:
    """DeBERTa: max_relative_positions below 1 means the length, by which the relative rows are counted or spread."""
    length = next((edit for edit in edits if edit.path[-1] == "max_position_embeddings"), None)
    most = section.get("max_relative_positions", -1)
    if length is None or not section.get("relative_attention") or type(most) is not int or most >= 1:
        return [], []
    buckets = section.get("position_buckets", -1)
    if type(buckets) is int and buckets > 0:
        return [], [
            f"max_relative_positions is {most}, which means the length: the {buckets} buckets of distance now spread over "
            f"{length.new}; write max_relative_positions {length.old} to keep them as they were trained"
        ]
    return [Edit((*path, "max_relative_positions"), section.get("max_relative_positions"), length.old)], [
        f"max_relative_positions is now written as {length.old}: the relative rows keep their distances, and longer ones count as "
        "the longest"
    ]


def grid_of(config: ModelConfig, tensor: str) -> tuple[int, ...] | None:
    """The present grid of an image table by image and patch size, where both are known."""
    for _, section in config.sections(tensor):
        if section.get("model_type") == "audio-spectrogram-transformer":
            return _audio_grid(section)
        for said in (*map(section.get, PAIR_FIELDS), [section.get(side) for side in SIDE_FIELDS]):
            if (pair := _pair(said)) is not None:
                return pair
        if "_class_name" in section:  # diffusers
            return _diffusers_grid(section)
        if (tubelet := _tubelet(section)) is not None:
            return tuple(size // step for size, step in zip(*tubelet, strict=True))
        image = next((_pair(section[field]) for field in IMAGE_FIELDS if field in section), None)
        patch = _patch(section, tensor)
        if image and patch and all(p > 0 for p in patch):
            return tuple(i // p for i, p in zip(image, patch, strict=True))
    return None


def _diffusers_grid(section: dict[str, Any]) -> tuple[int, ...] | None:
    """The grid of a transformer of diffusers: pos_embed_max_size patches a side, or in all (AuraFlow)."""
    most = section.get("pos_embed_max_size")
    if type(most) is int:
        return (isqrt(most),) * 2 if section["_class_name"] == "AuraFlowTransformer2DModel" else (most, most)
    sample, patch = _pair(section.get("sample_size")), _pair(section.get("patch_size"))
    return (
        tuple(i // p for i, p in zip(sample, patch, strict=True)) if sample and patch and min(patch) else None
    )


def _diffusers_edits(
    path: tuple[str, ...], section: dict[str, Any], old: tuple[int, ...], new: tuple[int, ...]
) -> list[Edit]:
    most, sample = section.get("pos_embed_max_size"), section.get("sample_size")
    if most == prod(old) and most != old[0]:
        return [Edit((*path, "pos_embed_max_size"), most, prod(new))]
    if type(most) is int and len(set(new)) == 1:
        return [Edit((*path, "pos_embed_max_size"), most, new[0])]
    patch = _pair(section.get("patch_size"))
    if type(most) is not int and sample is not None and patch is not None:
        return [_resized(path, section, "sample_size", [n * p for n, p in zip(new, patch, strict=True)])]
    raise PeError(
        f"pos_embed_max_size {most} counts a square, not {times(new)}; ask for a square, {WITHOUT_IT}"
    )


def _stage(tensor: str) -> int:
    """Which stage of a pyramid a tensor belongs to."""
    number = re.search(r"\.(\d+)\.", tensor)
    return int(number[1]) if number else 0


def _patch(section: dict[str, Any], tensor: str) -> tuple[int, int] | None:
    """Pixels from one patch to the next; in a pyramid, of the stage that `tensor` belongs to."""
    stages = section.get("patch_sizes")
    if isinstance(stages, list) and all(type(size) is int for size in stages):
        return _pair(prod(stages[: _stage(tensor) + 1]))
    return _pair(section.get("patch_stride", section.get("patch_size")))


def _tubelet(section: dict[str, Any]) -> tuple[tuple[int, int, int], tuple[int, int, int]] | None:
    """Frames, height and width of a video, and of one of its patches (ViViT)."""
    patch, frames = section.get("tubelet_size"), section.get("num_frames")
    image = _pair(section.get("image_size"))
    if isinstance(patch, list) and len(patch) == 3 and image is not None and type(frames) is int:
        return (frames, *image), (patch[0], patch[1], patch[2])
    return None


def suffix_of(config: ModelConfig, tensor: str) -> int | None:
    """Rows behind the grid: the detection tokens of YOLOS."""
    for _, section in config.sections(tensor):
        if isinstance(section.get("num_detection_tokens"), int):
            return int(section["num_detection_tokens"])
        if section.get("model_type") == "yolos":
            return 100
    return None


def width_of(config: ModelConfig, tensor: str) -> int | None:
    """hidden_size of the part that describes `tensor`."""
    sizes = [section.get("hidden_size") for _, section in config.sections(tensor)]
    return next((size for size in sizes if isinstance(size, int)), None)


def grid_edits(
    config: ModelConfig, tensor: str, old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[list[Edit], list[str]]:
    """Edits of the image size for a grid that goes from `old` to `new`, also where other parts repeat it."""
    for path, section in config.sections(tensor):
        counted = _counted_edits(path, section, old, new)
        if counted is not None:
            return counted, []
        if "patch_sizes" in section and _stage(tensor):
            return [], []  # the first stage says it
        name = next((field for field in IMAGE_FIELDS if field in section), "image_size")
        patch, before = _patch(section, tensor), section.get(name)
        image = _pair(before)
        if len(new) != 2 or (patch is None and image is None) or (before is not None and image is None):
            continue
        size = _resized_image(image, patch, old, new)
        if size is None:
            continue
        edits = [_resized(path, section, name, size)]
        if name == "pretrain_image_size" and _pair(section.get("image_size")) == image:
            edits.append(_resized(path, section, "image_size", size))
        parts: list[Section] = [((key,), part) for key, part in config.data.items() if isinstance(part, dict)]
        for other, part in [((), config.data), *parts]:
            if image is not None and other != path and _pair(part.get(name)) == image:
                edits.append(_resized(other, part, name, size))
            if _pair(part.get("image_embedding_size")) == old:
                edits.append(_resized(other, part, "image_embedding_size", new))
            edits += _image_token_edits(config.data, other, part, old, new)
            pinned = image and scaled_pinpoints(part.get("image_grid_pinpoints"), image, size)
            if pinned:
                edits.append(Edit((*other, "image_grid_pinpoints"), part["image_grid_pinpoints"], pinned))
        unit = _pair(section.get("masked_unit_size"))
        if unit is not None and any(cells % side for cells, side in zip(new, unit, strict=True)):
            raise PeError(
                f"{config.label} says masked_unit_size {list(unit)}, of which {times(new)} is no multiple"
            )
        notes = _image_notes(config.label, name, before, size)
        notes += [
            f"{field} in {config.label} has no entry for {prod(new)} patches, for which the model looks there: add one"
            for field, listed in config.data.items()
            if isinstance(listed, dict) and str(prod(old)) in listed and str(prod(new)) not in listed
        ]
        return edits, notes
    timm = config.data.get("pretrained_cfg")
    if isinstance(timm, dict) and isinstance(timm.get("input_size"), list) and len(new) == 2:
        return _timm_edits(config.data, timm, old, new), []
    return [], [f"{config.label} has no image_size and patch_size for {tensor}; tell your code: {times(new)}"]


def _counted_edits(
    path: tuple[str, ...], section: dict[str, Any], old: tuple[int, ...], new: tuple[int, ...]
) -> list[Edit] | None:
    """Edits of a section that says the grid itself, not by the size of an image; None where it does not."""
    if section.get("model_type") == "audio-spectrogram-transformer":
        return _audio_edits(path, section, new)
    if "_class_name" in section:
        return _diffusers_edits(path, section, old, new)
    counts = [field for field in COUNT_FIELDS if section.get(field) == prod(old)]
    if counts:
        return [Edit((*path, field), prod(old), prod(new)) for field in counts]
    if tuple(section.get(field) for field in SIDE_FIELDS) == old:
        sides = zip(SIDE_FIELDS, old, new, strict=True)
        return [Edit((*path, field), before, after) for field, before, after in sides]
    pairs = [field for field in PAIR_FIELDS if _pair(section.get(field)) == old]
    if pairs:
        return [Edit((*path, field), section[field], list(new)) for field in pairs]
    if (tubelet := _tubelet(section)) is not None and len(new) == 3:
        frames, *sizes = (n * step for n, step in zip(new, tubelet[1], strict=True))
        clips = Edit((*path, "num_frames"), section["num_frames"], frames)
        return [clips, _resized(path, section, "image_size", sizes)]
    return None


def _resized(path: tuple[str, ...], section: dict[str, Any], field: str, size: Sequence[int]) -> Edit:
    """The sides `size` in a field of a section, written as they were."""
    before = section.get(field)
    return Edit((*path, field), before, _like(before, size))


def _image_notes(label: str, name: str, before: Any, size: tuple[int, ...]) -> list[str]:
    notes = []
    if before is None:
        notes.append(f"{name} was not in {label}, and is {size[0]} now; check that your model knows it")
    if size[0] != size[1] and not isinstance(before, list):
        notes.append(f"{name} becomes {list(size)}: not every model's code takes a size that is not square")
    return notes


def _resized_image(
    image: tuple[int, int] | None, patch: tuple[int, int] | None, old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Image sides for the new grid: by the size of a patch, else in proportion to the old image; None where neither fits."""
    if image is not None and (
        patch is None or tuple(i // p for i, p in zip(image, patch, strict=True)) != old
    ):
        fits = all(cells and side % cells == 0 for side, cells in zip(image, old, strict=True))
        return tuple(s // o * n for s, o, n in zip(image, old, new, strict=True)) if fits else None
    return tuple(n * p for n, p in zip(new, patch, strict=True)) if patch is not None else None


def _image_token_edits(
    data: dict[str, Any], path: tuple[str, ...], part: dict[str, Any], old: Sequence[int], new: Sequence[int]
) -> list[Edit]:
    before, after = image_tokens(data, old), image_tokens(data, new)
    return [
        Edit((*path, field), part[field], after)
        for field in IMAGE_TOKEN_FIELDS
        if before is not None and part.get(field) == before
    ]


def scaled_pinpoints(pinpoints: Any, old: Sequence[int], new: Sequence[int]) -> list[list[int]] | None:
    """LLaVA-NeXT's sizes of tiled images, which are multiples of the image size."""
    if not isinstance(pinpoints, list) or not all(
        isinstance(one, list)
        and len(one) == 2
        and all(type(v) is int and v % o == 0 for v, o in zip(one, old, strict=True))
        for one in pinpoints
    ):
        return None
    return [[v // o * n for v, o, n in zip(one, old, new, strict=True)] for one in pinpoints]


def axial_edits(
    config: ModelConfig, old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[list[Edit], list[str]]:
    """Edits for Reformer's factors: their shape, and the length that is its product."""
    shape, length = config.data.get("axial_pos_shape"), config.data.get("max_position_embeddings")
    if shape is not None and tuple(shape) != old:
        raise PeError(
            f"{config.label} says axial_pos_shape {shape}, but the factors are {times(old)}; correct it"
        )
    edits = [Edit(("axial_pos_shape",), shape, list(new))]
    return [*edits, Edit(("max_position_embeddings",), length, prod(new))], []


def window_edits(
    config: ModelConfig, tensor: str, old: tuple[int, ...], new: tuple[int, ...]
) -> tuple[list[Edit], list[str]]:
    """Edits of `window_size`, or of the image size where the window is the whole image (BEiT)."""
    for path, section in config.sections(tensor):
        before = section.get("window_size")
        if _pair(before) == old:
            return [_resized(path, section, "window_size", new), *_trained(path, section, old)], []
        if grid_of(ModelConfig(section, config.label), tensor) == old:
            return grid_edits(config, tensor, old, new)
        if before is None and "swin" in str(section.get("model_type")):
            return [_resized(path, section, "window_size", new), *_trained(path, section, old)], []
        if before is None and "pretrained_cfg" in section:  # timm
            said = section.get("model_args", {}).get("window_size")
            return [Edit(("model_args", "window_size"), said, _like(7, new))], []
        if before is not None:
            raise PeError(
                f"{config.label} says window_size {before}, but {tensor} is for {times(old)}; correct it, {WITHOUT_IT}"
            )
    return [], [f"{config.label} has no window_size for {tensor}; tell your code: {times(new)}"]


def _trained(path: tuple[str, ...], section: dict[str, Any], old: tuple[int, ...]) -> list[Edit]:
    """Swin v2: the window of training, in whose scale coordinates are, where none was written (0)."""
    sizes = section.get("pretrained_window_sizes")
    if not isinstance(sizes, list) or any(sizes):
        return []
    return [Edit((*path, "pretrained_window_sizes"), sizes, [old[0]] * len(sizes))]


def _pair(value: Any) -> tuple[int, int] | None:
    if type(value) is int:
        return value, value
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(type(v) is int for v in value):
        return value[0], value[1]
    return None


def _like(before: Any, size: Sequence[int]) -> Any:
    """`size` written as the field was: one number for a square, if it was one number."""
    square = len(set(size)) == 1
    return list(size) if isinstance(before, (list, tuple)) or not square else size[0]


def _audio(section: dict[str, Any]) -> tuple[int, tuple[int, int], tuple[int, int]]:
    patch = section.get("patch_size", 16)
    strides = section.get("frequency_stride", 10), section.get("time_stride", 10)
    return patch, strides, (section.get("num_mel_bins", 128), section.get("max_length", 1024))


def _audio_grid(section: dict[str, Any]) -> tuple[int, ...]:
    patch, strides, sizes = _audio(section)
    return tuple((size - patch) // stride + 1 for size, stride in zip(sizes, strides, strict=True))


def _audio_edits(path: tuple[str, ...], section: dict[str, Any], new: tuple[int, ...]) -> list[Edit]:
    patch, strides, sizes = _audio(section)
    fields = zip(("num_mel_bins", "max_length"), sizes, strides, new, _audio_grid(section), strict=True)
    return [
        Edit((*path, field), size, (wanted - 1) * stride + patch)
        for field, size, stride, wanted, is_now in fields
        if wanted != is_now
    ]


def _timm_edits(
    data: dict[str, Any], timm: dict[str, Any], old: tuple[int, ...], new: tuple[int, ...]
) -> list[Edit]:
    channels, *image = timm["input_size"]
    size = [_timm_side(i, o, n) for i, o, n in zip(image, old, new, strict=True)]
    args, architecture = data.get("model_args", {}), str(data.get("architecture", ""))
    field, value = "img_size", size
    if architecture.startswith("naflexvit"):
        field, value = "pos_embed_grid_size", list(new)
    elif architecture.startswith("tiny_vit"):
        windows = args.get("window_sizes", [7, 7, 14, 7])
        field, value = "window_sizes", [-(-window * new[0] // old[0]) for window in windows]
    said = [name for name in ("input_size", "test_input_size") if name in timm]
    edits = [Edit(("pretrained_cfg", name), timm[name], [channels, *size]) for name in said]
    return [*edits, Edit(("model_args", field), args.get(field), value)]


def _timm_side(image: int, old: int, new: int) -> int:
    """The image's side for `new` patches: patches side by side, or patches that overlap by half (PiT)."""
    if image % old and image % (old + 1) == 0:
        return image // (old + 1) * (new + 1)
    return image // old * new
