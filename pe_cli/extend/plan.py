"""From a header, a configuration and a request to what has to change: tables, what moves along, buffers, fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError
from pe_cli.extend.config import (
    Edit,
    ModelConfig,
    grid_edits,
    grid_of,
    length_edits,
    offset_of,
    suffix_of,
    width_of,
    window_edits,
)
from pe_cli.extend.find import (
    Candidate,
    PositionAxes,
    choose,
    companions,
    find,
    grid,
    in_step,
    sequence,
    sequence_axis,
    spans,
    times,
    window,
)
from pe_cli.extend.presets import ResizeRequest, settle
from pe_cli.extend.table import TableChange, Watch
from pe_cli.files import TensorSpec
from pe_cli.position_names import Kind

CLIP_ROWS, WHISPER_ROWS = 77, 1500


@dataclass(frozen=True)
class BufferChange:
    """`old` becomes `new`, made from the old values by `make`; `make` is None where the buffer is left out."""

    old: TensorSpec
    new: TensorSpec
    what: str
    make: Callable[[NDArray[Any]], NDArray[Any]] | None


Change: TypeAlias = TableChange | BufferChange


@dataclass
class ExtensionPlan:
    """What becomes of which tensor, in any order; what the configuration must say; what there is to tell."""

    tables: dict[str, TableChange] = field(default_factory=dict)
    buffers: dict[str, BufferChange] = field(default_factory=dict)
    edits: list[Edit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def change(self, name: str) -> Change | None:
        """The change of tensor `name`, or None where it stays as it is."""
        return self.tables.get(name) or self.buffers.get(name)

    def changes(self) -> list[Change]:
        """All changes, tables first."""
        return [*self.tables.values(), *self.buffers.values()]

    def new_spec(self, spec: TensorSpec) -> TensorSpec | None:
        """What is written for `spec`, or None where it is left out."""
        change = self.change(spec.name)
        if change is None:
            return spec
        return None if isinstance(change, BufferChange) and change.make is None else change.new

    def add_table(self, change: TableChange) -> None:
        self.tables[change.old.name] = change

    def add_buffers(self, changes: Iterable[BufferChange]) -> None:
        self.buffers |= {change.old.name: change for change in changes}

    def watch_first(self, watch: Watch) -> None:
        """Let `watch` see the rows of the first table before and after."""
        name = next(iter(self.tables))
        self.tables[name] = replace(self.tables[name], watch=watch)

    def add_edits(self, edits: Sequence[Edit], notes: Sequence[str]) -> None:
        self.edits += [edit for edit in edits if edit not in self.edits and edit.old != edit.new]
        self.notes += [note for note in notes if note not in self.notes]


def make_plan(
    tensors: Mapping[str, TensorSpec],
    request: ResizeRequest,
    config: ModelConfig | None,
    label: str,
    config_text: str = "",
) -> ExtensionPlan:
    """ExtensionPlan the change of the tables of `tensors`; `label` names the file in errors.

    Errors: no table or several, a layout that does not fit, a configuration that disagrees.
    """
    is_grid = config.sizes_image if config is not None else lambda _: False
    chosen = choose(tensors, request.tensors, request.kind, label, config_text, is_grid)
    planner = _Planner(tensors, request, config, chosen)
    {"sequence": planner.sequences, "grid": planner.grids, "window": planner.windows}[request.kind]()
    if config is not None:
        _refuse_shared_fields(planner.plan, tensors, config)
    return planner.plan


@dataclass
class _Planner:
    """Plans the change of `chosen` tables among `tensors`, kind by kind."""

    tensors: Mapping[str, TensorSpec]
    request: ResizeRequest
    config: ModelConfig | None
    chosen: Sequence[Candidate]
    plan: ExtensionPlan = field(default_factory=ExtensionPlan)

    def sequences(self) -> None:
        """Tables of tokens: `--len`."""
        request = self.request
        assert request.length is not None
        for candidate in self.chosen:
            spec = candidate.spec
            kind: Kind = "relative" if candidate.kind == "relative" else "sequence"
            rows = spec.shape[sequence_axis(spec.shape)]
            prefix, why = request.front or 0, ""
            if request.front is None and candidate.kind == "sequence":
                prefix, why = offset_of(spec.name, rows, self.config)
            where = sequence(spec.shape, prefix, request.suffix or 0)
            first = "the first row is" if prefix == 1 else f"the first {prefix} rows are"
            why = f"{first} special: {why}" if prefix and why else ""
            change = self._table(
                candidate, where, (request.length,), kind, [why, *_limits(spec.name, rows, request)]
            )
            self.plan.add_table(change)
            old, new = (rows, where.usable), (prefix + request.length + where.suffix, request.length)
            self.plan.add_buffers(follow(self.tensors, spec.name, old, new))
            if self.config is not None and candidate.kind == "sequence":
                self.plan.add_edits(*length_edits(self.config, spec.name, old, new))

    def grids(self) -> None:
        """Tables of image patches: `--grid`."""
        request = self.request
        assert request.grid is not None
        layouts = {candidate.name: self._grid_layout(candidate) for candidate in self.chosen}
        for candidate in self.chosen:
            where = layouts[candidate.name]
            _require_axes(candidate.spec, f"a grid of {times(where.old)}", where, request.grid)
            alike = (layouts[other.name].old for other in self.chosen if other.group == candidate.group)
            new = in_step(request.grid, where.old, max(alike, key=prod))
            self.plan.add_table(self._table(candidate, where, new, "grid"))
            rows = prod(new) + where.prefix + where.suffix
            self.plan.add_buffers(follow(self.tensors, candidate.name, (where.rows,) * 2, (rows, rows)))
            if self.config is not None:
                self.plan.add_edits(*grid_edits(self.config, candidate.name, where.old, new))
            if candidate.kind == "grid" and new == request.grid:
                self._move_along(where)

    def windows(self) -> None:
        """Bias tables of attention windows: `--window`."""
        request = self.request
        assert request.window is not None
        layouts = {c.name: window(c.spec.shape, c.spec.called, request.from_window) for c in self.chosen}
        largest = max((where.old for where in layouts.values()), key=prod)
        for candidate in self.chosen:
            where = layouts[candidate.name]
            if where.old != largest:
                self.plan.notes.append(
                    f"{candidate.name} is for a smaller window, {list(where.old)} offsets, and stays"
                )
                continue
            old = tuple((size + 1) // 2 for size in where.old)
            _require_axes(candidate.spec, f"for a window of {times(old)}", where, request.window)
            if where.suffix and any(c.kind == "grid" and c.main for c in find(self.tensors.values())):
                raise PeError(
                    f"the window of {candidate.name} is the whole image: say --grid {times(request.window)}"
                )
            self._window(candidate, where, request.window)
            if self.config is not None and candidate.kind == "window":
                self.plan.add_edits(*window_edits(self.config, candidate.name, old, request.window))
        self.plan.add_buffers(masks(self.tensors))

    def _grid_layout(self, candidate: Candidate) -> PositionAxes:
        assert self.request.grid is not None
        spec, told = candidate.spec, grid_of(self.config, candidate.name)
        old = self.request.from_grid or told
        suffix = self.request.suffix if self.request.suffix is not None else suffix_of(self.config, spec.name)
        try:
            return grid(
                spec.shape,
                spec.called,
                old=old,
                count=len(self.request.grid),
                prefix=self.request.front,
                suffix=suffix,
                d=width_of(self.config, spec.name),
            )
        except PeError as error:
            if self.config is None or self.request.from_grid or told is None:
                raise
            raise PeError(
                f"{self.config.label} says a grid of {times(told)} (image_size by patch_size), which does not fit "
                f"{spec.called} of shape {list(spec.shape)}; correct it, give --from-grid, or leave it out with --config none"
            ) from error

    def _move_along(self, where: PositionAxes) -> None:
        """Tables of the same grid in the layers: ViTDet's rows by distance, BEiT's bias, YOLOS' per-layer rows."""
        assert self.request.grid is not None
        new, left = self.request.grid, []
        beside = self.chosen[0].name.rpartition(".")[0].partition(".")[0]
        for candidate in companions(self.chosen, self.tensors):
            spec = candidate.spec
            if candidate.kind == "relative" and len(new) == 2:
                axis = 0 if spec.name.endswith("h") else 1
                if spec.shape[0] != spans(where.old)[axis] or not _is_global(candidate, self.config):
                    left.append(spec)
                    continue
                old_rows, new_rows = PositionAxes((0,), (spec.shape[0],)), (spans(new)[axis],)
                self.plan.add_table(self._table(candidate, old_rows, new_rows, "relative"))
            elif candidate.kind == "window" and spec.shape[0] in (
                prod(spans(where.old)),
                prod(spans(where.old)) + 3,
            ):
                self._window(candidate, window(spec.shape, spec.name, where.old), new)
            elif candidate.kind == "grid" and len(spec.shape) == 4 and spec.shape[2] == where.rows:
                along = PositionAxes((2,), where.old, where.prefix, where.suffix)
                self.plan.add_table(self._table(candidate, along, new, "grid"))
        if left:
            sizes = sorted({spec.shape[0] for spec in left})
            self.plan.notes.append(
                f"{len(left)} tables of windowed layers ({beside}…, rows {sizes}) stay: their window does not grow; "
                "interpolated rows no longer align with windows (Bolya et al. 2023), so measure"
            )

    def _window(self, candidate: Candidate, where: PositionAxes, window: tuple[int, ...]) -> None:
        self.plan.add_table(self._table(candidate, where, spans(window), "window"))
        self.plan.add_buffers(window_buffers(self.tensors, candidate.name, window, where.suffix))

    def _table(
        self,
        candidate: Candidate,
        where: PositionAxes,
        sizes: tuple[int, ...],
        kind: Kind,
        notes: Sequence[str] = (),
    ) -> TableChange:
        known = candidate.kind == kind
        spec = candidate.spec
        new = TensorSpec(spec.name, spec.dtype, where.shape(spec.shape, sizes))
        way = settle(self.request, kind, len(where.old), known=known)
        return TableChange(
            spec,
            new,
            kind,
            where,
            sizes,
            way,
            self.request.seed or 0,
            known,
            tuple(note for note in notes if note),
        )


def _require_axes(spec: TensorSpec, what: str, where: PositionAxes, new: Sequence[int]) -> None:
    """The size asked for has as many sides as the table."""
    if len(new) != len(where.old):
        raise PeError(f"{spec.called} is {what}, not of {len(new)} axes as {times(new)}")


def _limits(name: str, rows: int, request: ResizeRequest) -> Iterator[str]:
    """What code around a model is known to take for granted about its length."""
    if rows == CLIP_ROWS and ("text" in name or name == "positional_embedding"):
        yield "many programs fix CLIP's text at 77 tokens in their own code: check the one that loads this"
    if rows == WHISPER_ROWS and "encoder" in name and (request.length or rows) < rows:
        yield (
            "a shorter Whisper encoder needs fine-tuning: without it the word errors of tiny.en rose from 4.7 to "
            "226 % (whisper-acft)"
        )


def _is_global(candidate: Candidate, config: ModelConfig | None) -> bool:
    """Whether a layer attends over the whole image, where the configuration says which do."""
    number = re.search(r"(?:layers|blocks)\.(\d+)\.", candidate.name)
    if config is None or number is None:
        return True
    for _, section in config.sections(candidate.name):
        indexes = section.get("global_attn_indexes")
        if isinstance(indexes, list):
            return int(number[1]) in indexes
    return True


def _refuse_shared_fields(
    plan: ExtensionPlan, tensors: Mapping[str, TensorSpec], config: ModelConfig
) -> None:
    """One field that sizes two tables (BART) cannot follow one of them."""
    edited = {edit.path for edit in plan.edits}
    for candidate in find(tensors.values(), config.sizes_image):
        if not candidate.main or candidate.name in plan.tables:
            continue
        edits: Sequence[Edit] = []
        if candidate.kind == "sequence":
            rows = candidate.spec.shape[sequence_axis(candidate.spec.shape)]
            offset, _ = offset_of(candidate.name, rows, config)
            with suppress(PeError):  # that one disagrees anyhow
                edits, _ = length_edits(config, candidate.name, (rows, rows - offset), (0, 0))
        elif candidate.kind == "grid" and (old := grid_of(config, candidate.name)) is not None:
            edits, _ = grid_edits(config, candidate.name, old, (1,) * len(old))
        shared = [edit for edit in edits if edit.path in edited]
        if shared:
            raise PeError(
                f"{'.'.join(shared[0].path)} in {config.label} also sizes {candidate.name}; extend both "
                f"(--tensor is a glob, or given twice), or leave the configuration out with --config none"
            )


def follow(
    tensors: Mapping[str, TensorSpec], table: str, old: tuple[int, int], new: tuple[int, int]
) -> Iterator[BufferChange]:
    """Buffers of a table of tokens that goes from `old` to `new` (rows, usable).

    They are those beside it (`position_ids`, `token_type_ids`) and the causal masks in the layers of GPT-2 and Neo.
    """
    beside = re.sub(r"[^./]*(?:\.weight|/embeddings(?::0)?)?$", "", table)
    for name, spec in tensors.items():
        if not spec.shape or spec.shape[-1] not in old or name == table:
            continue
        size = new[0] if spec.shape[-1] == old[0] else new[1]
        if name in (f"{beside}position_ids", f"{beside}token_type_ids") and spec.size == spec.shape[-1]:
            grown = TensorSpec(name, spec.dtype, (*spec.shape[:-1], size))
            counting = name.endswith("position_ids")
            yield BufferChange(
                spec,
                grown,
                "counts on" if counting else "zeros",
                _counting(grown) if counting else _padded(grown),
            )
        elif re.search(r"\.attn(?:\.attention)?\.bias$", name) and spec.shape == (
            1,
            1,
            spec.shape[-1],
            spec.shape[-1],
        ):
            grown = TensorSpec(name, spec.dtype, (1, 1, size, size))
            yield BufferChange(spec, grown, "causal mask", _causal(grown))


def _counting(new: TensorSpec) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def make(old: NDArray[Any]) -> NDArray[Any]:
        """Counts on from the first value; where the old ones did not count, the new ones continue the last."""
        flat = old.reshape(-1)
        count = new.shape[-1]
        start = flat[0] if np.array_equal(flat, flat[0] + np.arange(len(flat))) else None
        if start is not None:
            values = start + np.arange(count)
        else:
            more = flat[-1] + 1 + np.arange(max(count - len(flat), 0))
            values = np.concatenate([flat, more])[:count]
        grown: NDArray[Any] = values.astype(old.dtype).reshape(new.shape)
        return grown

    return make


def _padded(new: TensorSpec) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def make(old: NDArray[Any]) -> NDArray[Any]:
        grown = np.zeros(new.shape, old.dtype)
        keep = min(new.shape[-1], old.shape[-1])
        grown[..., :keep] = old[..., :keep]
        return grown

    return make


def _causal(new: TensorSpec) -> Callable[[NDArray[Any]], NDArray[Any]]:
    def make(old: NDArray[Any]) -> NDArray[Any]:
        """A lower triangle, or as wide a band below the diagonal as there was (GPT-Neo's local layers)."""
        size, before = new.shape[-1], old.shape[-1]
        band = int(np.count_nonzero(old[0, 0, -1]))
        mask = np.tri(size, dtype=np.bool_)
        if band < before:
            mask ^= np.tri(size, k=-band, dtype=np.bool_)
        return mask.astype(old.dtype).reshape(new.shape)

    return make


def window_buffers(
    tensors: Mapping[str, TensorSpec], table: str, window: Sequence[int], class_rows: int
) -> Iterator[BufferChange]:
    """Swin's and BEiT's `relative_position_index` beside a bias table; masks that the loader makes again are left out."""
    from pe_cli.encodings.windows import swin

    beside = table.rpartition(".")[0]
    for name, spec in tensors.items():
        if name == f"{beside}.relative_position_index":
            index = swin(window=tuple(window), class_token=class_rows > 0)["relative_position_index"]
            yield BufferChange(
                spec, TensorSpec(name, spec.dtype, index.shape), "index of the new window", _give(index)
            )


def masks(tensors: Mapping[str, TensorSpec]) -> Iterator[BufferChange]:
    """Swin's shift masks, which belong to the old window and which its code makes again."""
    for name, spec in tensors.items():
        if re.search(r"blocks\.\d+\.attn_mask$", name):
            yield BufferChange(spec, spec, "left out: made again by the model's code", None)


def _give(values: NDArray[Any]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    return lambda old: values.astype(old.dtype)
