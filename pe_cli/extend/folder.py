"""A whole model folder, extended into a new one: the shard with the table, index, configuration, tokenizer, images."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pe_cli.errors import PeError
from pe_cli.extend import rewrite as rewriting
from pe_cli.extend.config import (
    Edit,
    ModelConfig,
    edited,
    scaled_pinpoints,
)
from pe_cli.extend.find import moments
from pe_cli.extend.new_folder import WEIGHTS, Place, entries, left_out, names_in, same_file, shards_of
from pe_cli.extend.plan import ExtensionPlan, make_plan
from pe_cli.extend.request import ResizeRequest
from pe_cli.extend.rotary import Stretch
from pe_cli.extend.table import TableChange, TableReport, Watch
from pe_cli.files.sources import Source, open_source
from pe_cli.files.text import read_object
from pe_cli.models.sizes import IMAGE_TOKEN_FIELDS, image_tokens
from pe_cli.position_names import IMAGE_FIELDS

OPTIMIZER = "optimizer.pt"
OPEN_CLIP = "open_clip_config.json"
LIMITED = (
    (OPEN_CLIP, "open_clip"),
    ("video_preprocessor_config.json", "preprocessor"),
    ("tokenizer_config.json", "tokenizer_config"),
    ("tokenizer.json", "tokenizer"),
    ("sentence_bert_config.json", "sentence_bert"),
    ("generation_config.json", "generation"),
    ("preprocessor_config.json", "preprocessor"),
    ("processor_config.json", "processor"),
)
# Fields of a processor that are the size of the image of the model, and those that are in proportion to it.
SIZES, MASKS = ("size", "crop_size", "pad_size", "max_image_size"), ("mask_size", "mask_pad_size")
SAMPLES_PER_FRAME = 2  # Whisper: two mel frames for one position


@dataclass(frozen=True)
class FileChange:
    """What becomes of a file: `action` in a word, and the fields that change where it is JSON."""

    name: str
    action: str
    edits: tuple[Edit, ...] = ()

    def lines(self) -> Iterator[str]:
        """One line, and the changed fields below it."""
        yield f"{self.name}: {self.action}"
        for edit in self.edits:
            yield f"  {edit}"

    def json(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        edits = [{"field": ".".join(e.path), "old": e.old, "new": e.new} for e in self.edits]
        return {"file": self.name, "action": self.action, "edits": edits}


@dataclass
class ExtendedFolder:
    """What was (or would be) done to a folder."""

    plan: ExtensionPlan
    reports: list[TableReport] = field(default_factory=list)
    files: list[FileChange] = field(default_factory=list)


def extend_folder(
    folder: Path,
    target: Path | None,
    request: ResizeRequest,
    *,
    metadata: Mapping[str, str],
    force: bool = False,
    watch: Watch | None = None,
    link: bool = False,
) -> ExtendedFolder:
    """Extend the model in `folder` into the new folder `target` (None: only say what would change).

    `watch` sees the rows of the first table before and after; with `link` files that do not change are hard links.

    Errors: no weights, a target that exists, the errors of `make_plan`.
    """
    place = None if target is None else Place.of(target, folder, force)
    shards, index = shards_of(folder)
    described = config_name(folder, shards)
    config = ModelConfig(read_object(folder / described), str(folder / described)) if described else None
    with ExitStack() as stack:
        sources = {name: stack.enter_context(open_source(str(folder / name))) for name in shards}
        tensors = {name: spec for source in sources.values() for name, spec in source.tensors.items()}
        label = ModelConfig(config.data, f"{folder.name}/{described}") if config else None
        text = json.dumps(config.data) if config else ""
        plan = make_plan(tensors, request, label, str(folder), text)
        if watch is not None:
            plan.watch_first(watch)
        result = ExtendedFolder(plan)
        texts = dict(_texts(folder, plan, described, config))
        names = set(os.listdir(folder)).difference(shards)
        gone = left_out(folder, shards, index)
        optimizer = _optimizer(folder, plan, stack)
        if isinstance(optimizer, str):
            gone.add(OPTIMIZER)
        rewritten = {OPTIMIZER} if isinstance(optimizer, tuple) else set()
        others = list(entries(folder, names.difference(texts, gone, rewritten), gone))

        def build(new: Path | None) -> None:
            for name, source in sources.items():
                _shard(result, source, name, new, metadata, link)
            for name in sorted(names):
                if name == OPTIMIZER and isinstance(optimizer, str):
                    result.files.append(FileChange(name, f"left out: {optimizer}"))
                elif name in gone:
                    result.files.append(FileChange(name, "left out: other weights, with the old table"))
                elif name == OPTIMIZER and isinstance(optimizer, tuple):
                    state, following = optimizer
                    if new is not None:
                        rewriting.rewrite(state, following, str(new / name), metadata=metadata)
                    result.files.append(FileChange(name, "the state of the table follows its rows"))
                elif name in texts:
                    text, edits = texts[name]
                    result.files.append(FileChange(name, "changed", edits))
                    if new is not None:
                        (new / name).write_text(text, encoding="utf-8")
            if new is not None:
                for entry in others:
                    entry.copy(new, link=link)

        if place is None:
            build(None)
        else:
            known = {*names_in(folder), *(entry.listed for entry in others)}
            place.fill(known, build)
        result.reports.sort(key=lambda report: list(plan.tables).index(report.name))
    return result


def stretch_folder(
    folder: Path, target: Path | None, stretch: Stretch, *, force: bool = False, link: bool = False
) -> list[FileChange]:
    """Write the rotary model in `folder` with the configuration of `stretch` into the new folder `target`.

    Weights and all other files are the same; limits of the tokenizer follow. With no `target` it only says what would
    change. Errors: a target that exists, without `force`; the errors of `Place`.
    """
    place = None if target is None else Place.of(target, folder, force)
    limits = Limits(tokens=((stretch.before.max_position or stretch.original_len, stretch.length),))
    texts = dict(_changed_texts(folder, "config.json", stretch.edits, limits))
    names = set(os.listdir(folder)).difference(texts)
    others = list(entries(folder, names, ()))
    if place is not None:

        def build(new: Path) -> None:
            for name, (text, _) in texts.items():
                (new / name).write_text(text, encoding="utf-8")
            for entry in others:
                entry.copy(new, link=link)

        place.fill({*names_in(folder), *(entry.listed for entry in others)}, build)
    return [FileChange(name, "changed", edits) for name, (_, edits) in texts.items()]


def stretched_text(path: Path, stretch: Stretch) -> str:
    """The text of a configuration file with the edits of `stretch`, written as the file is."""
    return _written(edited(read_object(path), stretch.edits), path.read_text(encoding="utf-8"))


def config_name(folder: Path, shards: list[str]) -> str | None:
    """The configuration that describes the weights; open_clip keeps its own."""
    own = [OPEN_CLIP, "config.json"] if shards[0].startswith("open_clip") else ["config.json", OPEN_CLIP]
    return next((name for name in own if (folder / name).is_file()), None)


def _optimizer(
    folder: Path, plan: ExtensionPlan, stack: ExitStack
) -> tuple[Source, ExtensionPlan] | str | None:
    """The state of an optimizer beside the weights with what changes in it, or why it has to be left out; None where none is."""
    if not (folder / OPTIMIZER).is_file():
        return None
    try:
        source = stack.enter_context(open_source(str(folder / OPTIMIZER)))
        changes = ExtensionPlan()
        for table in plan.tables.values():
            changes.add_buffers(moments(source.tensors, table, OPTIMIZER))
    except PeError as error:
        return f"it belongs to the old table, and the optimizer starts anew ({error})"
    return (source, changes) if changes.buffers else None


def _shard(
    result: ExtendedFolder,
    source: Source,
    name: str,
    new: Path | None,
    metadata: Mapping[str, str],
    link: bool,
) -> None:
    plan = result.plan
    changes = {tensor: change for tensor in source.tensors if (change := plan.change(tensor)) is not None}
    if not changes:
        if new is not None:
            same_file(Path(source.label), new / name, link=link)
        result.files.append(FileChange(name, "the same"))
        return
    ours = ExtensionPlan(
        tables={t: c for t, c in plan.tables.items() if t in changes},
        buffers={t: c for t, c in plan.buffers.items() if t in changes},
    )
    if new is None:
        result.reports += rewriting.changed(source, ours)[1]
    else:
        result.reports += rewriting.rewrite(source, ours, str(new / name), metadata=metadata)
    counts = ((len(ours.tables), "table"), (len(ours.buffers), "buffer"))
    what = " and ".join(f"{count} {noun}{'s' * (count > 1)}" for count, noun in counts if count)
    same = "the same values" if source.format == "torch" else "the same bytes"
    result.files.append(FileChange(name, f"{what or 'nothing'} changed, all else {same}"))


def _texts(
    folder: Path, plan: ExtensionPlan, config_name: str | None, config: ModelConfig | None
) -> Iterator[tuple[str, tuple[str, tuple[Edit, ...]]]]:
    """JSON files that change: name, new text and the fields that differ."""
    limits = Limits.of(plan, config)
    yield from _changed_texts(folder, config_name, plan.edits, limits, lambda data: _index(data, plan))


def _changed_texts(
    folder: Path,
    config_name: str | None,
    edits: Sequence[Edit],
    limits: Limits,
    index: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Iterator[tuple[str, tuple[str, tuple[Edit, ...]]]]:
    for name, change in (
        *(((config_name, lambda data: edited(data, edits)),) if config_name is not None else ()),
        *((own, index) for own, _ in WEIGHTS if own is not None and index is not None),
        *((name, getattr(limits, method)) for name, method in LIMITED if name != config_name),
    ):
        path = folder / name
        if not path.is_file():
            continue
        data = read_object(path)
        changer: Callable[[dict[str, Any]], dict[str, Any]] = change
        new = changer(json.loads(json.dumps(data)))
        if new != data:
            yield name, (_written(new, path.read_text(encoding="utf-8")), tuple(_differences(data, new)))


def _differences(old: Any, new: Any, path: tuple[str, ...] = ()) -> Iterator[Edit]:
    """The fields in which two JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict) and path[-1:] != ("strategy",):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _differences(old.get(key), new.get(key), (*path, key))
    elif old != new:
        yield Edit(path, old, new)


def _written(data: dict[str, Any], like: str) -> str:
    """JSON with the indent, the separators, the escapes and the last line end of the text that it replaces."""
    first = like.splitlines()[1] if like.count("\n") > 1 else ""
    indent = len(first) - len(first.lstrip(" ")) or None
    tight = indent is None and '": ' not in like[:200]
    text = json.dumps(
        data, indent=indent, ensure_ascii=like.isascii(), separators=(",", ":") if tight else None
    )
    return text + "\n" if like.endswith("\n") else text


def _index(data: dict[str, Any], plan: ExtensionPlan) -> dict[str, Any]:
    about = data.get("metadata") or {}
    for change in plan.changes():
        new = plan.new_spec(change.old)
        if isinstance(about.get("total_size"), int):
            about["total_size"] += (new.nbytes if new else 0) - change.old.nbytes
        if isinstance(about.get("total_parameters"), int) and isinstance(change, TableChange):
            about["total_parameters"] += change.new.size - change.old.size
        if new is None:
            data["weight_map"].pop(change.old.name, None)
    return data


# Files that repeat sizes of the model


@dataclass(frozen=True)
class Limits:
    """Old and new sizes that files around the model repeat: tokens, image sides, audio positions."""

    tokens: Sequence[tuple[int, int]] = ()
    image: tuple[Any, Any] | None = None
    audio: tuple[int, int] | None = None
    image_tokens: tuple[int, int] | None = None

    @classmethod
    def of(cls, plan: ExtensionPlan, config: ModelConfig | None) -> Limits:
        """What the plan changes, as far as its configuration edits say what it is."""
        image = audio = counts = None
        for edit in plan.edits:
            if edit.path[-1] == "max_source_positions":
                audio = (edit.old, edit.new)
            elif edit.path[-1] in IMAGE_FIELDS and edit.old is not None:
                image = image or (edit.old, edit.new)
        grids = [table for table in plan.tables.values() if table.kind == "grid" and len(table.sizes) == 2]
        if grids and config is not None:
            old, new = (image_tokens(config.data, grid) for grid in (grids[0].layout.old, grids[0].sizes))
            counts = (old, new) if old is not None and new is not None else None
            if image is None and any(
                edit.path[-1] == "n_positions" for edit in plan.edits
            ):  # a pixel is a patch
                image = (list(grids[0].layout.old), list(grids[0].sizes))
        return cls(plan.tokens if audio is None else (), image, audio, counts)

    def _length(self, value: Any) -> Any:
        """A limit in tokens: raised to what is usable now, or lowered to it; one that is no limit stays.

        Of several tables it is a limit of the shortest that is long enough for it.
        """
        if not self.tokens or type(value) is not int:
            return value
        old, new = min((pair for pair in self.tokens if pair[0] >= value), default=max(self.tokens))
        if new > old:
            return new if 0 < value <= old else value
        return new if new < value < 1 << 40 else value

    def tokenizer_config(self, data: dict[str, Any]) -> dict[str, Any]:
        if "model_max_length" in data:
            data["model_max_length"] = self._length(data["model_max_length"])
        return data

    def tokenizer(self, data: dict[str, Any]) -> dict[str, Any]:
        """Truncation at the new length; padding to a fixed length, which was that of truncation, to the longest."""
        truncation, padding = data.get("truncation"), data.get("padding")
        if isinstance(truncation, dict) and self.tokens:
            before = truncation.get("max_length")
            truncation["max_length"] = self._length(before)
            fixed = padding.get("strategy") if isinstance(padding, dict) else None
            if (
                isinstance(fixed, dict)
                and fixed.get("Fixed") == before
                and truncation["max_length"] != before
            ):
                assert isinstance(padding, dict)
                padding["strategy"] = "BatchLongest"
        return data

    def sentence_bert(self, data: dict[str, Any]) -> dict[str, Any]:
        if "max_seq_length" in data:
            data["max_seq_length"] = self._length(data["max_seq_length"])
        return data

    def generation(self, data: dict[str, Any]) -> dict[str, Any]:
        """A length that is that of a table: where that ends, of several the first."""
        ends = dict(sorted(self.tokens, reverse=True))
        if data.get("max_length") in ends:
            data["max_length"] = ends[data["max_length"]]
        return data

    def open_clip(self, data: dict[str, Any]) -> dict[str, Any]:
        """The configuration of open_clip beside weights of another library."""
        parts = data.get("model_cfg", {})
        vision, text = (parts.get(name) for name in ("vision_cfg", "text_cfg"))
        if isinstance(vision, dict) and self.image is not None and vision.get("image_size") == self.image[0]:
            vision["image_size"] = self.image[1]
        ends = dict(self.tokens)
        if isinstance(text, dict) and text.get("context_length") in ends:
            text["context_length"] = ends[text["context_length"]]
        return data

    def preprocessor(self, data: dict[str, Any]) -> dict[str, Any]:
        """Image sides, the number of tokens of an image, and for Whisper the length of a chunk."""
        if self.image is not None:
            self._image_sides(data)
        for key in IMAGE_TOKEN_FIELDS:
            if self.image_tokens is not None and data.get(key) == self.image_tokens[0]:
                data[key] = self.image_tokens[1]
        if self.audio is not None and isinstance(data.get("nb_max_frames"), int):
            _chunk(data, SAMPLES_PER_FRAME * self.audio[1])
        return data

    def processor(self, data: dict[str, Any]) -> dict[str, Any]:
        for part in ("image_processor", "video_processor", "feature_extractor"):
            if isinstance(data.get(part), dict):
                data[part] = self.preprocessor(data[part])
        return self.preprocessor(data)

    def _image_sides(self, data: dict[str, Any]) -> None:
        follow = {key for key in SIZES if key in data and self._image(data[key]) != data[key]}
        # A crop, and tiles, are cut out of what is resized first; masks are smaller than their image.
        around = {"crop_size": data.get("do_center_crop", True), "max_image_size": True}
        if "size" in data.keys() - follow and any(around.get(key) for key in follow):
            data["size"] = self._in_proportion(data["size"])
        for key in MASKS if follow else ():
            if key in data:
                data[key] = self._in_proportion(data[key])
        for key in follow:
            data[key] = self._image(data[key])
        pinned = scaled_pinpoints(data.get("image_grid_pinpoints"), *self._sides())
        if pinned:
            data["image_grid_pinpoints"] = pinned

    def _sides(self) -> tuple[list[int], list[int]]:
        """The old and the new image as [height, width]."""
        assert self.image is not None
        old, new = (side if isinstance(side, list) else [side, side] for side in self.image)
        return old, new

    def _in_proportion(self, value: Any) -> Any:
        """A size that was not the image's, grown as the image grows."""
        old, new = self._sides()
        ratios = {"height": new[0] / old[0], "width": new[1] / old[1]}
        most = max(ratios.values())
        if type(value) is int:
            return math.ceil(value * most)
        if not isinstance(value, dict):
            return value
        return {
            key: math.ceil(side * ratios.get(key, most)) if type(side) is int else side
            for key, side in value.items()
        }

    def _image(self, value: Any) -> Any:
        old, new = self._sides()
        if type(value) is int:
            return new[0] if value == old[0] and new[0] == new[1] else value
        if not isinstance(value, dict):
            return value
        if "height" in value and "width" in value:
            fits = [value["height"], value["width"]] == old
            return {**value, "height": new[0], "width": new[1]} if fits else value
        sides = ("shortest_edge", "longest_edge")
        return {key: max(new) if key in sides and side == max(old) else side for key, side in value.items()}


def _chunk(data: dict[str, Any], frames: int) -> None:
    hop = data.get("hop_length", 160)
    rate = data.get("sampling_rate", 16000)
    data["nb_max_frames"] = frames
    data["n_samples"] = frames * hop
    seconds = frames * hop / rate
    data["chunk_length"] = int(seconds) if seconds == int(seconds) else seconds
