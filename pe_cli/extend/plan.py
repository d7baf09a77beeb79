"""From a header, a configuration and a request to what has to change: tables, what moves along, buffers, fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from pe_cli.errors import PeError, parameter
from pe_cli.extend.find import (
    BufferChange,
    Candidate,
    choose,
    companions,
    coordinate_table,
    distance_buffers,
    find,
    follow,
    masks,
    moments,
    window_buffers,
)
from pe_cli.extend.request import RESAMPLING, SPECIAL_ROWS, WITHOUT_IT, ResizeRequest, known_limits, settle
from pe_cli.extend.rows import (
    PositionAxes,
    distances,
    grid,
    in_step,
    require_axes,
    sequence,
    sequence_axis,
    spans,
    tiles,
    times,
    window,
)
from pe_cli.extend.table import TableChange, Watch
from pe_cli.files import TensorSpec
from pe_cli.position_names import OTHER_TOWERS, Kind, front_of_rows, named

if TYPE_CHECKING:
    from pe_cli.extend.config import Edit, ModelConfig

Change: TypeAlias = TableChange | BufferChange


@dataclass
class ExtensionPlan:
    """What becomes of which tensor, in any order; what the configuration must say; what there is to tell.

    `tokens` is how many positions each table of tokens had and has, where one of them changes.
    """

    tables: dict[str, TableChange] = field(default_factory=dict)
    buffers: dict[str, BufferChange] = field(default_factory=dict)
    edits: list[Edit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tokens: list[tuple[int, int]] = field(default_factory=list)

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
    """Plan the change of the tables of `tensors`; `label` names the file in errors.

    Errors: no table or several, a layout that does not fit, a configuration that disagrees.
    """
    is_grid = config.sizes_image if config is not None else lambda _: False
    if request.window is not None and not request.tensor:
        planner = _Planner(tensors, request, config, ())
        planner.coordinates(request.window)
        if planner.plan.buffers:
            return planner.plan
    chosen = choose(tensors, request.tensor, request.kind, label, config_text, is_grid)
    planner = _Planner(tensors, request, config, chosen)
    {"sequence": planner.sequences, "grid": planner.grids, "window": planner.windows}[request.kind]()
    if config is not None:
        _refuse_shared_fields(planner.plan, tensors, config)
        if planner.plan.tokens:
            planner.plan.tokens += [
                (usable, usable)
                for candidate, (_, usable) in _unchanged_tokens(planner.plan, tensors, config)
                if candidate.main and not OTHER_TOWERS.search(candidate.name)
            ]
    else:
        planner.plan.notes += _fields_that_follow(planner.plan, chosen)
    for change in list(planner.plan.tables.values()):
        planner.plan.add_buffers(moments(tensors, change, label))
    return planner.plan


def _fields_that_follow(plan: ExtensionPlan, chosen: Sequence[Candidate]) -> Iterator[str]:
    """What must change in a configuration that is not there, so that the model's code takes the new table."""
    fields = dict.fromkeys(
        candidate.sized_by
        for candidate in chosen
        if candidate.kind is not None
        and candidate.name in plan.tables
        and named(candidate.name, candidate.spec.shape)
    )
    if fields:
        yield (
            f"the model's configuration must follow, and is not here: {', '.join(fields)} (extend the model's folder to have it done)"
        )


@dataclass
class _Planner:
    """Plans the change of `chosen` tables among `tensors`, kind by kind."""

    tensors: Mapping[str, TensorSpec]
    request: ResizeRequest
    config: ModelConfig | None
    chosen: Sequence[Candidate]
    plan: ExtensionPlan = field(default_factory=ExtensionPlan)

    def _edit(self, what: str, *table: Any) -> None:
        """Keep the configuration in step: `what` is length, grid, window or axial, `table` its name, old and new size."""
        if self.config is not None:
            from pe_cli.extend import config as fields

            edits: dict[str, Callable[..., tuple[list[Edit], list[str]]]] = {
                "length": fields.length_edits,
                "grid": fields.grid_edits,
                "window": fields.window_edits,
                "axial": fields.axial_edits,
            }
            self.plan.add_edits(*edits[what](self.config, *table))

    def coordinates(self, window: tuple[int, ...]) -> None:
        """Swin v2 has no table of biases: its coordinates and indices follow the window."""
        for name, spec in self.tensors.items():
            if not name.endswith("relative_coords_table"):
                continue
            self.request.refuse(("from_window", *RESAMPLING), f"{name}, which is computed, not resampled")
            old = tuple((size + 1) // 2 for size in spec.shape[-3:-1])
            new = TensorSpec(name, spec.dtype, (*spec.shape[:-3], *spans(window), spec.shape[-1]))
            self.plan.add_buffers(
                [BufferChange(spec, new, "coordinates of the new window", coordinate_table(window))]
            )
            self.plan.add_buffers(window_buffers(self.tensors, name, window, 0))
            self._edit("window", name, old, window)
        self.plan.add_buffers(masks(self.tensors) if self.plan.buffers else ())

    def sequences(self) -> None:
        """Tables of tokens: `--len`."""
        request = self.request
        assert request.length is not None
        for candidate in self.chosen:
            spec = candidate.spec
            kind: Kind = "relative" if candidate.kind == "relative" else "sequence"
            if kind == "relative":
                request.refuse(("outliers",), f"{spec.called}, whose rows are distances")
            rows = spec.shape[sequence_axis(spec.shape)]
            prefix, why = request.front or 0, ""
            if request.front is None and candidate.kind == "sequence":
                prefix, why = self._offset_of(spec.name, rows)
            where = sequence(spec.shape, prefix, request.suffix_rows or 0)
            first = "the first row is" if prefix == 1 else f"the first {prefix} rows are"
            told = [
                f"{first} special: {why}" if prefix and why else "",
                *known_limits(spec.name, rows, request),
            ]
            if self.config is not None and self.config.sizes_image(spec.name):
                told.append(
                    f"its rows are pixels, line after line: {parameter('grid')} keeps the lines apart"
                )
            self.plan.add_table(self._table(candidate, where, (request.length,), kind, told))
            old, new = (rows, where.usable), (prefix + request.length + where.suffix, request.length)
            self.plan.add_buffers(follow(self.tensors, spec.name, old, new))
            if candidate.kind == "sequence":
                self._edit("length", spec.name, old, new, candidate.fields)
            if candidate.kind == "sequence" and candidate.main:
                self.plan.tokens.append((old[1], new[1]))

    def _offset_of(self, tensor: str, rows: int) -> tuple[int, str]:
        if self.config is not None:
            from pe_cli.extend.config import offset_of

            return offset_of(tensor, rows, self.config)
        front = front_of_rows(rows)
        return (0, "") if front is None else (front.rows, front.why)

    def grids(self) -> None:
        """Tables of image patches: `--grid`."""
        request = self.request
        assert request.grid is not None
        if self.chosen[0].kind == "axial":
            self._axial()
            return
        if self.chosen[0].kind == "bias":
            self._by_distance(request.grid, request.from_grid)
            return
        if all(candidate.kind == "window" for candidate in self.chosen):
            self._whole_images(request.grid, request.from_grid)
            return
        resized = [candidate for candidate in self.chosen if candidate.kind not in ("relative", "window")]
        if not resized:
            raise PeError(f"{self.chosen[0].name} follows the table of a grid: name that as well")
        layouts = {candidate.name: self._grid_layout(candidate) for candidate in resized}
        self._refuse_branches(layouts)
        for candidate in resized:
            where = layouts[candidate.name]
            require_axes(candidate.spec.called, f"a grid of {times(where.old)}", where, request.grid)
            alike = (layouts[other.name].old for other in resized if other.group == candidate.group)
            largest = max(alike, key=prod)
            new = in_step(request.grid, where.old, largest, halving=False)
            self.plan.add_table(self._table(candidate, where, new, "grid"))
            rows = prod(new) + where.prefix + where.suffix
            self.plan.add_buffers(follow(self.tensors, candidate.name, (where.rows,) * 2, (rows, rows)))
            if where.old == largest:
                self._edit("grid", candidate.name, where.old, new)
            if candidate.kind == "grid" and new == request.grid:
                self._move_along(candidate, where)

    def _refuse_branches(self, layouts: Mapping[str, PositionAxes]) -> None:
        """Tables of one name and of grids that are no stages of one another (CrossViT) are only changed where they are named."""
        largest = max((where.old for where in layouts.values()), key=prod)
        apart = any(
            most % side for where in layouts.values() for most, side in zip(largest, where.old, strict=True)
        )
        if apart and not self.request.tensor and all(c.kind == "grid" for c in self.chosen):
            listed = ", ".join(f"{name} {times(where.old)}" for name, where in layouts.items())
            raise PeError(
                f"there are {len(layouts)} tables of different grids: {listed}; name one with {parameter('tensor')}, or all of them with a "
                "glob, and the others follow the largest in proportion"
            )

    def _by_distance(self, size: tuple[int, ...], old: tuple[int, ...] | None) -> None:
        """Biases by distance of every stage (LeViT, TinyViT): `size` is that of the largest grid."""
        self.request.refuse(SPECIAL_ROWS, "biases by distance, which have no special rows")
        layouts = {c.name: distances(c.spec.shape, c.spec.called, old) for c in self.chosen}
        if old is not None and all(where.old != old for where in layouts.values()):
            raise PeError(f"{self.chosen[0].name} and the like are for no grid of {times(old)}")
        largest = max((where.old for where in layouts.values()), key=prod)
        for candidate in self.chosen:
            where = layouts[candidate.name]
            require_axes(candidate.spec.called, f"for a grid of {times(where.old)}", where, size)
            new = in_step(size, where.old, largest, halving=True)
            self.plan.add_table(self._table(candidate, where, new, "bias"))
            self.plan.add_buffers(distance_buffers(self.tensors, candidate.name, where.old, new))
            if where.old == largest:
                self._edit("grid", candidate.name, where.old, new)

    def _whole_images(self, size: tuple[int, ...], old: tuple[int, ...] | None) -> None:
        """Biases by offset between all patches of an image (BEiT), which have rows for the class token behind them."""
        self.request.refuse(SPECIAL_ROWS, "biases by offset, whose special rows are known")
        for candidate in self.chosen:
            where = window(candidate.spec.shape, candidate.spec.called, old)
            if not where.suffix:
                raise PeError(
                    f"{candidate.name} is for windows inside an image: say {parameter('window')} {times(size)}"
                )
            require_axes(candidate.spec.called, "for a whole image", where, size)
            self._window(candidate, where, size)
            self._edit("grid", candidate.name, tuple((offsets + 1) // 2 for offsets in where.old), size)

    def _axial(self) -> None:
        """The two factors of Reformer: one for the rows and one for the columns of a grid that is the sequence."""
        grid = self.request.grid
        assert grid is not None
        self.request.refuse(("from_grid", *SPECIAL_ROWS), "factors, whose shapes are the grid")
        tables = sorted(self.chosen, key=lambda candidate: candidate.name)
        if len(tables) != len(grid):
            raise PeError(f"{len(tables)} factors make the positions, not {len(grid)} as {times(grid)}")
        olds = tuple(candidate.spec.shape[axis] for axis, candidate in enumerate(tables))
        for axis, (candidate, size) in enumerate(zip(tables, grid, strict=True)):
            where = PositionAxes((axis,), (olds[axis],))
            self.plan.add_table(self._table(candidate, where, (size,), "axial"))
        self._edit("axial", olds, grid)
        self.plan.tokens.append((prod(olds), prod(grid)))

    def windows(self) -> None:
        """Bias tables of attention windows: `--window`."""
        request = self.request
        assert request.window is not None
        if self.chosen[0].kind == "bias":
            self._by_distance(request.window, request.from_window)
            return
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
            require_axes(candidate.spec.called, f"for a window of {times(old)}", where, request.window)
            if where.suffix and any(c.kind == "grid" and c.main for c in find(self.tensors.values())):
                raise PeError(
                    f"the window of {candidate.name} is the whole image: say {parameter('grid')} {times(request.window)}"
                )
            self._window(candidate, where, request.window)
            if candidate.kind == "window":
                self._edit("window", candidate.name, old, request.window)
        self.plan.add_buffers(masks(self.tensors))

    def _grid_layout(self, candidate: Candidate) -> PositionAxes:
        assert self.request.grid is not None
        spec, suffix, d, told = candidate.spec, self.request.suffix_rows, None, None
        if self.config is not None:
            from pe_cli.extend.config import grid_of, suffix_of, width_of
            from pe_cli.extend.config_findings import not_of_patches

            if (gaps := not_of_patches(self.config, self.tensors, spec.name)) is not None:
                raise PeError(f"{gaps.what}; correct {self.config.label}, {WITHOUT_IT}")
            told, d = grid_of(self.config, spec.name), width_of(self.config, spec.name)
            suffix = suffix_of(self.config, spec.name) if suffix is None else suffix
        old = self.request.from_grid or told
        try:
            return grid(
                spec.shape,
                spec.called,
                old=old,
                count=len(self.request.grid),
                prefix=self.request.front,
                suffix=suffix,
                d=d,
                axis=candidate.axis,
            )
        except PeError as error:
            if self.config is None or self.request.from_grid or told is None or set(told) <= set(spec.shape):
                raise
            raise PeError(
                f"{self.config.label} says a grid of {times(told)} (image_size by patch_size), which does not fit "
                f"{spec.called} of shape {list(spec.shape)}; correct it, give {parameter('from_grid')}, {WITHOUT_IT}"
            ) from error

    def _move_along(self, main: Candidate, where: PositionAxes) -> None:
        """Tables of the same grid in the layers: ViTDet's rows by distance, BEiT's bias, rows of tiles and of layers."""
        assert self.request.grid is not None
        new, left = self.request.grid, []
        beside = main.name.rpartition(".")[0].partition(".")[0]
        along = companions(self.chosen, self.tensors)
        named = [c for c in self.chosen if c.kind in ("relative", "window")]
        if named:  # the user said which
            along = [c for c in along if c.kind not in ("relative", "window")] + named
        _require_told_apart([c for c in along if c.kind == "relative"], named, where, self.config)
        for candidate in along:
            spec = candidate.spec
            if candidate.kind == "relative" and len(new) == 2:
                axis = 0 if spec.name.endswith("h") else 1
                is_global = candidate in named or _is_global(candidate, self.config) is not False
                if spec.shape[0] != spans(where.old)[axis] or not is_global:
                    left.append(spec)
                    continue
                old_rows, new_rows = PositionAxes((0,), (spec.shape[0],)), (spans(new)[axis],)
                self.plan.add_table(self._table(candidate, old_rows, new_rows, "relative"))
            elif candidate.kind == "window" and spec.shape[0] in (
                prod(spans(where.old)),
                prod(spans(where.old)) + 3,
            ):
                self._window(candidate, window(spec.shape, spec.name, where.old), new)
            elif candidate.axis is not None and spec.shape[candidate.axis] == where.rows:
                axes = PositionAxes((candidate.axis,), where.old, where.prefix, where.suffix)
                self.plan.add_table(self._table(candidate, axes, new, "grid"))
            elif spec.name.endswith("tile_embedding.weight"):
                axes = tiles(spec.shape, spec.called, where.rows, main.spec.shape[-1], where)
                self.plan.add_table(self._table(candidate, axes, new, "grid"))
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
            spans=spec.name.endswith("pos_embed.pos_embed"),
        )


def _require_told_apart(
    tables: Sequence[Candidate], named: Sequence[Candidate], where: PositionAxes, config: ModelConfig | None
) -> None:
    """Raise where nothing tells layers with windows as large as the grid from those that attend to all of it."""
    fit = [c for c in tables if c.spec.shape[0] in spans(where.old)]
    if len(fit) < len(tables) or not fit or named:
        return
    if config is None or not any(_is_global(c, config) is not None for c in fit):
        raise PeError(
            f"{fit[0].name} and the like fit the grid of {times(where.old)}, and layers with windows of that size would stay: give "
            f"the model's {parameter('config')}, or name what is to change with {parameter('tensor')}, that table and these"
        )


def _is_global(candidate: Candidate, config: ModelConfig | None) -> bool | None:
    """Whether a layer attends over the whole image; None where the configuration does not say which do."""
    number = re.search(r"(?:layers?|blocks)\.(\d+)\.", candidate.name)
    if config is None or number is None:
        return None
    for _, section in config.sections(candidate.name):
        if isinstance(indexes := section.get("global_attn_indexes"), list):
            return int(number[1]) in indexes
        if isinstance(indexes := section.get("window_block_indices"), list):
            return int(number[1]) not in indexes
    return None


def _unchanged_tokens(
    plan: ExtensionPlan, tensors: Mapping[str, TensorSpec], config: ModelConfig
) -> Iterator[tuple[Candidate, tuple[int, int]]]:
    """Tables of tokens that stay, each with its rows and how many of them can be used."""
    from pe_cli.extend.config import offset_of

    for candidate in find(tensors.values(), config.sizes_image):
        if candidate.kind == "sequence" and candidate.name not in plan.tables and candidate.spec.size:
            rows = candidate.spec.shape[sequence_axis(candidate.spec.shape)]
            yield candidate, (rows, rows - offset_of(candidate.name, rows, config)[0])


def _refuse_shared_fields(
    plan: ExtensionPlan, tensors: Mapping[str, TensorSpec], config: ModelConfig
) -> None:
    """One field that sizes two tables (BART) cannot follow one of them."""
    from pe_cli.extend.config import grid_edits, grid_of, length_edits

    edits: list[tuple[str, Sequence[Edit]]] = []
    for candidate, ends in _unchanged_tokens(plan, tensors, config):
        with suppress(PeError):  # that one disagrees anyhow
            edits.append(
                (candidate.name, length_edits(config, candidate.name, ends, (0, 0), candidate.fields)[0])
            )
    for candidate in find(tensors.values(), config.sizes_image):
        images = candidate.kind == "grid" and candidate.main and candidate.name not in plan.tables
        if images and candidate.spec.size and (old := grid_of(config, candidate.name)) is not None:
            edits.append((candidate.name, grid_edits(config, candidate.name, old, (1,) * len(old))[0]))
    edited = {edit.path for edit in plan.edits}
    sized: dict[tuple[str, ...], list[str]] = {}
    for name, made in edits:
        for path in {edit.path for edit in made} & edited:
            sized.setdefault(path, []).append(name)
    for path, names in sized.items():
        raise PeError(
            f"{'.'.join(path)} in {config.label} also sizes {', '.join(names)}; extend them together "
            f"({parameter('tensor')} is a glob, or given several times), {WITHOUT_IT}"
        )
