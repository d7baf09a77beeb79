"""What resolving a configuration gives, and the ledger that notes where each value came from and which were not read.

`data/harmless.json` has the keys that look like position settings and have no effect on a table: `keys` in any case (or
only with the values given), `unscaled` where the frequencies are not scaled, `types` those of one model type, `patterns`
of names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pe_cli.errors import PeError, parameter
from pe_cli.models.configuration import SYNONYMS, Configuration, data, is_part, value_at
from pe_cli.positions import spell

ADJACENT_LAYOUTS = frozenset({"adjacent", "interleaved", "complex"})
MEASURED = frozenset({"dinov3"})  # forms that measure coordinates against their grid
EVERY_LENGTH = "at every length"  # origin of LongRoPE's policy where a file has one list of divisors


@dataclass(frozen=True)
class Setting:
    """A value, where it came from, and whether that was a default rather than the file."""

    value: Any
    origin: str
    assumed: bool = False


@dataclass(frozen=True)
class ExtraTable:
    """A table by position or by layer that a model has beside its encoding."""

    name: str
    summary: str
    parameters: Mapping[str, Any]
    by: str = "position"


class LearnedTableError(PeError):
    """The positions of the model are learned: no configuration gives them, but a tensor whose name ends in `where`."""

    def __init__(
        self,
        message: str,
        *,
        file: str,
        model_type: str,
        component: str,
        where: str,
        shape: tuple[int, int] | None,
    ) -> None:
        super().__init__(message)
        self.file, self.model_type, self.component = file, model_type, component
        self.where, self.shape = where, shape


@dataclass(frozen=True)
class RowOrder:
    """In which order a vision tower holds the patches of a grid, as it passes them to its attention.

    block : patches on each side of the squares that are merged later and lie together; 1 is row by row
    window : squares on each side of the windows that lie together, 0 where there are none; those at the right and at the
        bottom may be smaller
    class_row : first or last, where a row of the class token, which does not turn, is beside the patches
    places : makes coordinates of the rows and columns of a grid of these sides, where they are not these themselves
    whole : sides of the grid whose middle is cut out
    """

    block: int = 1
    window: int = 0
    class_row: str = ""
    places: Callable[[list[NDArray[np.int64]], tuple[int, ...]], list[NDArray[Any]]] | None = None
    whole: tuple[int, int] | None = None

    def count(self, grid: tuple[int, ...]) -> int:
        """How many rows there are."""
        self._check(grid)
        return math.prod(grid) + bool(self.class_row)

    def coordinates(self, rows: ArrayLike, grid: tuple[int, ...], axes: int) -> NDArray[Any]:
        """(n, axes) row and column, and with three axes the frame in front, of these rows of the table.

        The class token lies at -1 on every axis, which is angle 0 in the forms that count from 1.
        """
        self._check(grid)
        height, width = grid[-2:]
        cells, per_frame = math.prod(grid), height * width
        where = np.asarray(rows)
        if where.dtype.kind not in "iu" or where.ndim != 1:
            raise PeError("rows of a grid are whole numbers")
        patch = where.astype(np.int64) - (self.class_row == "first")
        token = patch == (-1 if self.class_row == "first" else cells) if self.class_row else patch != patch
        outside = ~token & ((patch < 0) | (patch >= cells))
        if outside.any():
            raise PeError(
                f"row {where[outside][0]} is outside of a grid of {spell(grid, 'x')}, which has {cells}"
            )
        frame, inner = np.divmod(patch, per_frame)
        square, within = np.divmod(inner, self.block**2)
        row, column = self._squares(square, height // self.block, width // self.block)
        down, right = np.divmod(within, self.block)
        found = [frame, row * self.block + down, column * self.block + right]
        if self.places:
            found[1:] = self.places(found[1:], (height, width))
        cell = np.stack(found[3 - axes :] if axes < 3 else found, axis=1)
        cell[token] = -1
        return cell

    def rows_of_whole(
        self, rows: ArrayLike, grid: tuple[int, ...]
    ) -> tuple[NDArray[np.int64], tuple[int, int]]:
        """The row numbers in the whole grid of these rows of its middle, and the sides of the whole."""
        assert self.whole is not None
        if len(grid) != 2 or any(side > most for side, most in zip(grid, self.whole, strict=False)):
            raise PeError(
                f"{parameter('grid')} {spell(grid, 'x')}: the table is for at most {spell(self.whole, 'x')} patches"
            )
        cell = self.coordinates(rows, grid, 2)
        first = [(most - side) // 2 for side, most in zip(grid, self.whole, strict=True)]
        return (cell[:, 0] + first[0]) * self.whole[1] + cell[:, 1] + first[1], self.whole

    def _squares(
        self, square: NDArray[np.int64], height: int, width: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Row and column of each square of one frame."""
        if not self.window:
            return np.divmod(square, width)
        side = self.window
        band, rest = np.divmod(square, side * width)
        high = np.minimum(side, height - band * side)
        across, rest = np.divmod(rest, side * high)
        wide = np.minimum(side, width - across * side)
        down, right = np.divmod(rest, wide)
        return band * side + down, across * side + right

    def _check(self, grid: tuple[int, ...]) -> None:
        if not 2 <= len(grid) <= 3:
            raise PeError(f"{parameter('grid')} {spell(grid, 'x')}: give HxW, or TxHxW for a video")
        if any(side % self.block for side in grid[-2:]):
            raise PeError(
                f"{parameter('grid')} {spell(grid, 'x')}: the model merges squares of {self.block} x {self.block} patches, "
                "so both sides are multiples of that"
            )

    def described(self) -> str:
        """The order in words."""
        square = f"{self.block}x{self.block} patches"
        words = "row by row" if self.block == 1 else f"squares of {square}"
        if self.window:
            held = "patches" if self.block == 1 else f"squares of {square}"
            words = f"windows of {self.window}x{self.window} {held}"
        return f"{words}, class token {self.class_row}" if self.class_row else words


@dataclass(frozen=True)
class Resolved:
    """An encoding with its arguments, and where each of them came from.

    encoding : name in the catalogue
    parameters : keyword arguments of its function
    origins : of each argument: a key of the file, a derivation, or a default
    warnings : what was assumed, and where the file and the model's code disagree
    notes : what else to know
    layer_type, layer_types : the one resolved, and all that have a table
    layers : numbers of the layers of that type, where something says which they are
    unread : keys of the file that look like position settings and that nothing read
    pairing : half or adjacent: the channels that attention turns together
    axes : coordinates of a position; more than one in vision towers
    row_order : how a vision tower orders the patches of a grid; None where that is row by row
    max_position : the length up to which the model says it works
    trained_length : that before any scaling; trained_origin : the key that states it, or how it was guessed
    """

    file: str
    encoding: str
    parameters: dict[str, Any]
    origins: dict[str, str]
    model_type: str = ""
    component: str = ""
    layer_type: str | None = None
    layers: tuple[int, ...] = ()
    layer_types: tuple[str, ...] = ()
    max_position: int | None = None
    trained_length: int | None = None
    trained_origin: str = ""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    extra_tables: tuple[ExtraTable, ...] = ()
    axes: int = 1
    unread: tuple[str, ...] = ()
    pairing: str | None = None
    row_order: RowOrder | None = None

    def by_rows(
        self, function: Callable[..., Any], arguments: Mapping[str, Any], *, raster: bool = False
    ) -> tuple[Callable[..., Any], dict[str, Any], int | None]:
        """The function of the rows of the table, its arguments, and how many rows the grid among them has.

        Positions (n,) are row numbers in the order of the model, or with `raster` row by row; (n, axes) are coordinates.
        """
        grid = arguments.get("grid")
        if not grid:
            return function, dict(arguments), None
        if self.row_order is None:
            return function, dict(arguments), math.prod(grid)
        order = replace(self.row_order, block=1, window=0, class_row="") if raster else self.row_order
        count = order.count(grid)

        def ordered(positions: ArrayLike, **options: Any) -> Any:
            where = np.asarray(positions)
            if order.whole:
                numbers, whole = order.rows_of_whole(where, grid)
                return function(numbers, grid=whole, **options)
            return function(
                order.coordinates(where, grid, self.axes) if where.ndim == 1 else where, **options
            )

        return ordered, {name: value for name, value in arguments.items() if name != "grid"}, count

    def drop_grid(self, arguments: dict[str, Any], *, coordinates: bool) -> None:
        """Take the grid out of the arguments, where positions or coordinates take its place."""
        measured = "ref_grid" in arguments or arguments.get("axis_style") in MEASURED
        if self.axes == 1 or (coordinates and not measured):
            arguments.pop("grid", None)

    def order_of_rows(self, *, raster: bool = False) -> str:
        """In which order the cells of a grid are, in words."""
        return (self.row_order if self.row_order and not raster else RowOrder()).described()


class KeyLedger:
    """Looks values up in a configuration and in its model class, and notes their origin.

    `described` is the origin of a default, where the model type does not say it.
    """

    def __init__(self, config: Configuration, described: str = "") -> None:
        self.config, self.known = config, config.known
        self.described = described or self.known.described()
        self.origins: dict[str, str] = {}
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.keys_read: set[str] = set()

    def value(self, key: str) -> Any:
        """The value of a key, dotted where it lies in a nested object; None where there is none."""
        return value_at(self.config.values, key)

    def in_file(self, *keys: str) -> Setting | None:
        """The first of the keys (dotted ones reach into nested objects) that the file has and is not null."""
        for index, key in enumerate(keys):
            value = self.value(key)
            if value is not None:
                self.keys_read.update(other for other in keys[index:] if self.value(other) == value)
                return self.setting(key, value)
        return None

    def setting(self, key: str, value: Any) -> Setting:
        """A value of the file, or one that its format assumes."""
        self.keys_read.add(key)
        return self.default(value) if key in self.config.assumed else Setting(value, self.config.key(key))

    def default(self, value: Any) -> Setting:
        """A value that the model class or the format assumes."""
        return Setting(value, self.described, assumed=True)

    def from_class(self, name: str) -> Setting | None:
        """What the model class assumes where the file has no key of this name."""
        value = self.known.fields.get(name)
        return None if value is None else self.default(value)

    def geometry(self, name: str) -> Setting | None:
        """A size by its usual name: what the file calls it, else what the model class assumes."""
        alias = self.known.aliases.get(name)
        found = self.in_file(*((alias,) if alias else ()), *SYNONYMS.get(name, (name,)))
        if found is not None:
            self.whole(found)
            return found
        return self.from_class(name)

    def geometry_like(self, name: str) -> Setting | None:
        """A value of any type by its own name: the file's, else the model class's."""
        return self.in_file(name) or self.from_class(name)

    def size(self, name: str) -> Setting:
        """A size that is needed."""
        found = self.geometry(name)
        if found is None:
            keys = " or ".join(SYNONYMS.get(name, (name,))[:3])
            raise PeError(
                f"{self.config.file}: there is no {self.config.key(name)}, and {self._why_no_default()}; add {keys} to the file"
            )
        return found

    def _why_no_default(self) -> str:
        if not self.config.model_type:
            return "without model_type no default is known"
        return f"no default is known for model type {self.config.model_type!r}"

    def record(self, parameter: str, found: Setting, called: str | None = None) -> Any:
        """Note where a parameter came from; a default of the model class is a warning."""
        self.origins[parameter] = found.origin
        if found.assumed:
            self.assume(called or parameter, found)
        return found.value

    def assume(self, called: str, found: Setting) -> None:
        key = self.config.key(called)
        self.warn(f"{key} is not in {self.config.file}: {_shown(found.value)} is {found.origin}")

    def warn(self, sentence: str) -> None:
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def number(self, found: Setting, *, positive: bool = True, example: str = "4.0") -> float:
        """A finite number, an error that names file, key and remedy (such as `example`) otherwise."""
        value = found.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(found, "a number", _without_quotes(value) or example)
        if not _is_finite(value) or (positive and value <= 0):
            raise self.wrong(found, "a positive number" if positive else "a finite number", example)
        return value

    def whole(self, found: Setting, *, positive: bool = True) -> int:
        """A whole number."""
        value = self.number(found, positive=positive, example="8")
        if value != int(value):
            raise self.wrong(found, "a whole number", str(int(value) or 1))
        return int(value)

    def numbers(self, found: Setting) -> tuple[float, ...]:
        """A list of numbers."""
        values = found.value
        if not isinstance(values, (list, tuple)) or not values:
            raise self.wrong(found, "a list of numbers", "[1.0, 1.02, …]")
        if any(isinstance(v, bool) or not isinstance(v, (int, float)) or not _is_finite(v) for v in values):
            raise self.wrong(found, "a list of finite numbers", "[1.0, 1.02, …]")
        return tuple(values)

    def wholes(self, found: Setting, count: int | None = None) -> tuple[int, ...]:
        """A list of whole numbers, and of so many if `count` says it."""
        values = self.numbers(found)
        if any(value != int(value) for value in values) or count not in (None, len(values)):
            wanted = "a list of whole numbers" if count is None else f"a list of {count} whole numbers"
            raise self.wrong(found, wanted, str([16] * (count or 3)))
        return tuple(map(int, values))

    def truth(self, found: Setting) -> bool:
        if not isinstance(found.value, bool):
            raise self.wrong(found, "true or false", "false")
        return found.value

    def wrong(self, found: Setting, wanted: str, example: str) -> PeError:
        if found.assumed:
            return PeError(f"{self.config.file}: {_shown(found.value)}, {found.origin}, is not {wanted}")
        last = found.origin.rpartition(".")[2]
        return PeError(
            f'{self.config.file}: {found.origin} is {_shown(found.value)}, {wanted} is needed; write "{last}": {example}'
        )

    def resolved(self, encoding: str, parameters: dict[str, Any], **about: Any) -> Resolved:
        """The encoding with these arguments, and with all that was noted of them; `about` are other fields of `Resolved`."""
        noted = {"warnings": tuple(self.warnings), "notes": tuple(self.notes), "origins": self.origins}
        model = {"model_type": self.config.model_type, "component": self.config.path}
        return Resolved(self.config.file, encoding, parameters, **{**noted, **model, **about})


def _without_quotes(value: Any) -> str | None:
    try:
        return f"{float(value):g}" if isinstance(value, str) else None
    except ValueError:
        return None


def _is_finite(value: float) -> bool:
    """Whether it is a number that a double can hold; JSON has whole numbers of any length."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _shown(value: Any) -> str:
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except ValueError:  # Python refuses to write out whole numbers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "…"


BLOCKS = ("rope_scaling", "rope_parameters")
# Names of position settings. "proper", "composition", "layernorm_positioning", "moe_layer_freq" and "freq_mask" are none.
POSITIONAL = re.compile(
    r"(?<!p)rope(?!r)|rotary|ntk|logn|yarn|alibi|nope|(?<!com)(?<!dis)position(?!ing)|theta|(?<!layer_)freq(?!_mask)|temperature|pos_emb|pos_enc|"
    r"posemb|interpol|extrapol|xpos|timescale|sinusoid|dual_chunk|relative_att|rel_pos|attn_factor|"
    r"beta_(fast|slow)|(^|rope_|rotary_|emb_|position_)scaling_factor|(short|long)_m?(scale|factor)|orig(inal)?_.*(len|pos|ctx|context)|max_trained|"
    r"(base|training)_seq_?len|wavelength|(^|_)pos_type|^compression_ratio$",
    re.IGNORECASE,
)


def unread_keys(ledger: KeyLedger, *, unscaled: bool) -> tuple[str, ...]:
    """The keys of position settings, at the level of the table, one level down and above it, that nothing read."""
    config = ledger.config
    own = [
        config.key(key)
        for key, value in _candidates(config)
        if key not in ledger.keys_read
        and not _is_harmless(ledger, key, value, unscaled)
        and not _is_repeated(ledger, key, value)
    ]
    return tuple(dict.fromkeys([*own, *_above(ledger, unscaled)]))


def unread_warning(file: str, unread: Sequence[str]) -> str:
    """That these keys, which look like position settings, were not read."""
    what = "it" if len(unread) == 1 else "them"
    return f"{file}: {', '.join(unread)} had no part in this table: check that the model does not use {what}"


def _candidates(config: Configuration) -> Iterator[tuple[str, Any]]:
    for key, value in config.values.items():
        if key in BLOCKS and isinstance(value, Mapping):
            yield from _in_block(key, value)
        elif isinstance(value, Mapping):
            if POSITIONAL.search(key) and not is_part(key, value):
                yield from _in_block(key, value)
            elif not is_part(key, value) and not key.endswith(NO_SETTINGS):
                yield from ((f"{key}.{k}", v) for k, v in value.items() if POSITIONAL.search(k))
        elif POSITIONAL.search(key):
            yield key, value


NO_SETTINGS = (
    "quantization_config",
    "task_specific_params",
    "generation_config",
    "2id",
    "2label",
    "auto_map",
)


def _in_block(key: str, block: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in block.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}.{k}", v) for k, v in value.items())
        else:
            yield f"{key}.{name}", value


def _above(ledger: KeyLedger, unscaled: bool) -> Iterator[str]:
    """Keys of the levels above: those of a composite speak of the part that was chosen too, unless they repeat it."""
    if ledger.known.has_axes:
        return  # the settings above a vision tower are those of the text
    for path, values in ledger.config.above:
        for key, value in values.items():
            if isinstance(value, Mapping) and key not in BLOCKS:
                continue
            if not POSITIONAL.search(key) or _is_harmless(ledger, key, value, unscaled):
                continue
            if ledger.config.values.get(key) != value and not _is_repeated(ledger, key, value):
                yield f"{path}.{key}" if path else key


def _is_harmless(ledger: KeyLedger, key: str, value: Any, unscaled: bool) -> bool:
    if value is None or value == {} or value == []:
        return True
    known, name = data("harmless"), key.rpartition(".")[2]
    if (unscaled and name in known["unscaled"]) or name in known["types"].get(ledger.config.model_type, ()):
        return True
    for called in (key, name):
        if called in known["keys"]:
            values = known["keys"][called]
            return not isinstance(values, list) or any(value == v and type(value) is type(v) for v in values)
    return any(re.fullmatch(pattern, name) for pattern in known["patterns"])


def _is_repeated(ledger: KeyLedger, key: str, value: Any) -> bool:
    """Whether a key of the same name and value was read somewhere else."""
    name = key.rpartition(".")[2]
    return any(read.rpartition(".")[2] == name and ledger.value(read) == value for read in ledger.keys_read)
