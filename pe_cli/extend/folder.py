"""A whole model folder, extended into a new one: the shard with the table, index, configuration, tokenizer, images."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pe_cli.errors import PeError
from pe_cli.extend import containers
from pe_cli.extend.config import Edit, ModelConfig, edited, read_config
from pe_cli.extend.followers import moments
from pe_cli.extend.new_folder import Place, entries, left_out, names_in, of_a_trainer, same_file
from pe_cli.extend.plan import ExtensionPlan, make_plan
from pe_cli.extend.presets import ResizeRequest
from pe_cli.extend.processors import LIMITED, OPEN_CLIP, Limits
from pe_cli.extend.report import TableReport
from pe_cli.extend.rotary import Stretch
from pe_cli.extend.table import TableChange, Watch
from pe_cli.files.sources import Source, open_source
from pe_cli.files.text import read_object
from pe_cli.files.torch import EXTENSIONS

# The files that hold the weights, in the order in which libraries look for them: (index of several, a single one).
WEIGHTS = (
    ("model.safetensors.index.json", "model.safetensors"),
    ("diffusion_pytorch_model.safetensors.index.json", "diffusion_pytorch_model.safetensors"),
    (None, "open_clip_model.safetensors"),
    ("pytorch_model.bin.index.json", "pytorch_model.bin"),
    ("diffusion_pytorch_model.bin.index.json", "diffusion_pytorch_model.bin"),
    (None, "open_clip_pytorch_model.bin"),
    (None, "tf_model.h5"),
)
OPTIMIZER = "optimizer.pt"


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
    shards, index = _shards(folder)
    config_name = _config_name(folder, shards)
    config = read_config(folder / config_name) if config_name else None
    with ExitStack() as stack:
        sources = {name: stack.enter_context(open_source(str(folder / name))) for name in shards}
        tensors = {name: spec for source in sources.values() for name, spec in source.tensors.items()}
        label = ModelConfig(config.data, f"{folder.name}/{config_name}") if config else None
        text = json.dumps(config.data) if config else ""
        plan = make_plan(tensors, request, label, str(folder), text)
        if watch is not None:
            plan.watch_first(watch)
        result = ExtendedFolder(plan)
        texts = dict(_texts(folder, plan, config_name, config))
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
                        containers.rewrite(state, following, str(new / name), metadata=metadata)
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
    limits = Limits(tokens=(stretch.before.max_position or stretch.original_len, stretch.length))
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


def _config_name(folder: Path, shards: list[str]) -> str | None:
    """The configuration that describes the weights; open_clip keeps its own."""
    own = [OPEN_CLIP, "config.json"] if shards[0].startswith("open_clip") else ["config.json", OPEN_CLIP]
    return next((name for name in own if (folder / name).is_file()), None)


def _shards(folder: Path) -> tuple[list[str], str | None]:
    """The files that hold the weights, safetensors first, and the name of their index if they have one."""
    for index, single in WEIGHTS:
        if index is not None and (folder / index).is_file():
            return _named(folder / index), index
        if (folder / single).is_file():
            return [single], None
    files = sorted(path.name for path in folder.glob("*.safetensors") if not path.name.startswith("adapter_"))
    if len(files) == 1:
        return files, None
    if files:
        raise PeError(
            f"{folder} holds no model.safetensors, its index, or pytorch_model.bin; name one of {', '.join(files)}"
        )
    torch = sorted(
        path.name
        for ending in EXTENSIONS
        for path in folder.glob(f"*{ending}")
        if not of_a_trainer(path.name)
    )
    if len(torch) == 1:
        return torch, None
    raise PeError(_no_weights(folder, torch))


# What a folder holds instead of weights that pe extends, and what to do: (pattern, sentence).
INSTEAD = (
    (
        "adapter_config.json",
        "it is an adapter, and the tables are in its base model: extend that, and load or train the adapter on it",
    ),
    (
        "flax_model*.msgpack",
        "its weights are in Flax's MessagePack, which pe does not read: load them and save safetensors (from_flax=True)",
    ),
    (
        "tf_model*.h5",
        "its weights are TensorFlow's in several files: load them and save safetensors (from_tf=True)",
    ),
    (
        "*.onnx",
        "an ONNX graph has its shapes built in: extend the model it was exported from, and export that",
    ),
    (
        "*.gguf",
        "give the .gguf file itself, of which the table alone is written; or extend the model it was converted from",
    ),
    ("*.ckpt.index", "a checkpoint of TensorFlow is not read: save its weights as .h5 or .safetensors"),
)


def _no_weights(folder: Path, torch: list[str]) -> str:
    if torch:
        return f"{folder} holds {len(torch)} files of torch; name one of {', '.join(torch)}"
    below = [path.name for path in sorted(folder.iterdir()) if path.is_dir() and _has_weights(path)]
    if below:
        what = "holds no weights itself"
        if (folder / "model_index.json").is_file():
            what = "is a pipeline of diffusers"
        elif (folder / "modules.json").is_file():
            what = "is a model of sentence-transformers"
        return (
            f"{folder} {what}: its models are in {', '.join(below)}; extend the one that has the table, as in "
            f"`pe extend {folder / below[0]} …`, and put the result in its place"
        )
    for pattern, sentence in INSTEAD:
        if any(folder.glob(pattern)):
            return f"{folder} holds no weights that can be extended: {sentence}"
    return f"{folder} holds no model.safetensors, its index, or pytorch_model.bin"


def _has_weights(folder: Path) -> bool:
    try:
        _shards(folder)
    except PeError:
        return False
    return True


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


def _named(index: Path) -> list[str]:
    """The files that an index names, all of them there and in its own folder."""
    data = read_object(index)
    weights = data.get("weight_map")
    if not isinstance(weights, dict):
        raise PeError(f"{index}: weight_map is {_said(weights)}, not an object of tensor and file names")
    for tensor, name in weights.items():
        if not isinstance(name, str):
            raise PeError(f"{index}: weight_map gives {_said(name)} for {tensor}, not the name of a file")
        if os.sep in name or name.startswith("."):
            raise PeError(f"{index} names {name}, which is outside the folder")
        if not (index.parent / name).is_file():
            raise PeError(f"{index} names {_said(name)}, which is not there")
    if not weights:
        raise PeError(f"{index} names no files: weight_map is empty")
    if not isinstance(data.get("metadata"), (dict, type(None))):
        raise PeError(f"{index}: metadata is {_said(data['metadata'])}, not an object")
    return sorted(set(weights.values()))


def _said(value: Any) -> str:
    return json.dumps(value)[:40]


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
        result.reports += containers.changed(source, ours)[1]
    else:
        result.reports += containers.rewrite(source, ours, str(new / name), metadata=metadata)
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
