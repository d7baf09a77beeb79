"""What the commands do, as functions: `read`, `identify`, `compare` and `extend`.

They take a table as an array, as what an encoding returned, or as a file (`FILE` or `FILE:TENSOR`); this module imports
what it needs when a function is called.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, overload

from pe_cli.errors import PeError, parameter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from pe_cli.files import TensorSpec
    from pe_cli.files.sources import Source
    from pe_cli.signature import HasArray
    from pe_cli.tensors import Tensors

    Path: TypeAlias = str | os.PathLike[str]
    Tabular: TypeAlias = (
        NDArray[Any] | HasArray | Sequence[Sequence[float]] | Mapping[str, NDArray[Any]] | Tensors
    )
    Sides: TypeAlias = int | str | Sequence[int] | None


def read(source: Path, *, tensor: str | None = None) -> NDArray[Any] | Tensors:
    """The table of a file, or its tables by name where it holds several.

    >>> import numpy as np
    >>> np.save("table.npy", np.zeros((4, 8), np.float32))
    >>> read("table.npy").shape
    (4, 8)

    Parameters
    ----------
    source : `FILE` or `FILE:TENSOR`: .npy, .npz, .safetensors, HDF5, GGUF, or a checkpoint of torch
    tensor : the name of one tensor, as behind the colon

    Returns
    -------
    An array where there is one table or one was named; else `Tensors`, all of them in the order of the file.

    Raises
    ------
    PeError
        For a file or tensor that does not exist, and for what cannot be read.
    """
    from pe_cli.tensors import Tensors

    with _opened(source, tensor) as (opened, named):
        if named or len(opened.tensors) == 1:
            return opened.read()
        opened.require_tensors()
        return Tensors({name: opened.read(name) for name in opened.tensors})


def identify(source: Path | Tabular, *, tensor: str | None = None) -> IdentifyResult:
    """Which encoding a table is: its convention and parameters, from its values.

    >>> from pe_cli import sinusoidal
    >>> found = identify(sinusoidal(64, dim=16, base=5000))
    >>> found.encoding, found.style, found.base
    ('sinusoidal', 'paper', 5000)

    Parameters
    ----------
    source : an array, the result of an encoding, a mapping of names to arrays, or a file
    tensor : which table, where there are several that are not the same encoding

    Returns
    -------
    IdentifyResult : `encoding`, and every parameter as an attribute; `encoding` is None where no formula gives the
        table, and an attribute is None where the encoding that was found does not have it.

    Raises
    ------
    PeError
        For a file that cannot be read, and for several tables of different encodings.
    """
    from pe_cli.inspect import look_at

    with _opened(source, tensor) as (opened, named):
        opened.require_tensors()
        reports = look_at(opened, named, values=True).tensors
    found = {r.spec.name: r.identified.to_dict() if r.identified else {"encoding": None} for r in reports}
    telling = ("encoding", "style", "base", "scaling", "factor", "start", "stride")
    distinct = {tuple(str(one.get(fact)) for fact in telling) for one in found.values()}
    if len(distinct) > 1:
        raise PeError(
            f"{opened.label} holds {len(found)} tables that are not of one encoding with the same parameters; choose one by {parameter('tensor')}: "
            f"{', '.join(found)}"
        )
    return IdentifyResult(next(iter(found.values())))


def compare(
    a: Path | Tabular,
    b: Path | Tabular,
    *,
    atol: float = 0.0,
    rtol: float = 0.0,
    ulp: int = 0,
    tensor_a: str | None = None,
    tensor_b: str | None = None,
) -> CompareResult:
    """Whether two tables are the same, and if not, why.

    >>> from pe_cli import rope
    >>> result = compare(rope(64, dim=16), rope(64, dim=16, base=500000))
    >>> result.equal, [cause.cause for cause in result.causes]
    (False, ['base'])

    Parameters
    ----------
    a, b : arrays, results of encodings, mappings of names to arrays, or files; b is the reference
    atol, rtol : same means |a - b| <= atol + rtol |b|; NaN equals NaN
    ulp : also the same: at most so many steps of the narrower type apart
    tensor_a, tensor_b : which table, where there are several

    Returns
    -------
    CompareResult : `equal`, `causes` (each with `cause`, `a`, `b`, `residual_after`), `max_abs`, `max_ulp`

    Raises
    ------
    PeError
        For a file or tensor that cannot be read, and for a tolerance that is no number.
    """
    import math

    from pe_cli.diff import compare_sources
    from pe_cli.diff.metrics import Tolerance

    for name, value in (("atol", atol), ("rtol", rtol), ("ulp", ulp)):
        if not math.isfinite(value) or value < 0:
            raise PeError(f"{parameter(name)} {value}: a finite number of at least 0 is needed")
    with _opened(a, tensor_a, "a") as (left, named_a), _opened(b, tensor_b, "b") as (right, named_b):
        report = compare_sources(left, right, (named_a, named_b), Tolerance(atol, rtol, ulp))
    return CompareResult(report.to_dict())


class _Resize(TypedDict, total=False):
    """How a table is resized."""

    method: str | None
    grid: Sides
    from_grid: Sides
    window: Sides
    from_window: Sides
    anchor: str | None
    antialias: bool | None
    keep: int | None
    alpha: float | None
    prefix_rows: int | None
    suffix_rows: int | None
    offset: int | None
    outliers: str | None
    seed: int | None
    preset: str | None


class _Rewrite(_Resize, total=False):
    """What else there is to say of a file or a folder."""

    tensor: str | Sequence[str] | None
    config: Path | None
    scaling: str | None
    factor: float | None
    force_scaling: bool
    output: Path | None
    format: str | None
    force: bool
    link: bool


@overload
def extend(table: Path, length: int | None = ..., **options: Unpack[_Rewrite]) -> ExtendResult: ...
@overload
def extend(table: Tabular, length: int | None = ..., **options: Unpack[_Resize]) -> NDArray[Any]: ...
def extend(table: Any, length: int | None = None, **options: Any) -> Any:
    """A longer, shorter or regridded learned position table: of an array, a file, a checkpoint or a model folder.

    >>> import numpy as np
    >>> extend(np.arange(8.0).reshape(4, 2), 7, method="linear").shape
    (7, 2)

    Parameters
    ----------
    table : an array, a file (`FILE` or `FILE:TENSOR`), or a model folder
    length : usable positions of the new table; special rows are kept besides
    method : linear (default), cubic, nearest, tile, stretch, …: as `pe extend --method`
    grid, from_grid : new and present height and width in patches, for tables of images: (24, 24), 24 or "24x24"
    window, from_window : new and present window of Swin and BEiT
    anchor, antialias, keep, alpha, seed : as the method takes them
    prefix_rows, suffix_rows, offset : rows that are no positions
    outliers : keep or ignore rows at the ends that stand out by their norm
    preset : as an original implementation does it: timm, torch, dinov2, jax, swin, beit, long-clip, longformer
    tensor : the table in a file of several; a glob, or several names
    config : of a file: the model's config.json (default: the one beside it), or "none"
    scaling, factor, force_scaling : of a rotary model, whose configuration changes and whose weights do not: yarn, linear,
        ntk, dynamic-ntk or llama3; by how much (length / original length); in place of a scaling that it has
    output, format, force, link : where a file or folder is written, and how: as `pe extend -o`; nothing without `output`

    Returns
    -------
    For an array the new array; else `ExtendResult`: what changed (`files`, `buffers`, `notes`), and in `tables` the new
    tables where no file was written.

    Raises
    ------
    PeError
        For no size or several, a table that is not found or does not fit, and a method that cannot make these rows.
    """
    from pe_cli.extend import run
    from pe_cli.tensors import Tensors

    if isinstance(table, (str, os.PathLike)):
        for name in ("config", "output"):
            options[name] = None if options.get(name) is None else os.fspath(options[name])
        done = run(os.fspath(table), length=length, **options)
        return ExtendResult(done.to_dict(), Tensors(done.tables))
    from pe_cli.extend.plan import make_plan
    from pe_cli.extend.request import ResizeRequest
    from pe_cli.extend.rewrite import changed

    for name in _Rewrite.__annotations__.keys() & options.keys() - _Resize.__annotations__.keys():
        raise PeError(f"{parameter(name)} is for a file or a folder; of an array the new one is returned")
    request = ResizeRequest.of(length=length, **options)
    with _opened(table, None) as (source, _):
        made, _ = changed(source, make_plan(source.tensors, request, None, source.label))
    return next(iter(made.values()))


@contextmanager
def _opened(
    given: Path | Tabular, tensor: str | None, label: str = "the table"
) -> Iterator[tuple[Source, bool]]:
    """A source of tensors, and whether one of them was chosen."""
    from pe_cli.files.sources import Source, open_source, split_spec

    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        with open_source(path, tensor=tensor, again=True) as source:
            yield source, tensor is not None or split_spec(path)[1] is not None
        return
    arrays: Any = _Memory(given, label)
    yield Source(arrays, arrays, tensor), tensor is not None


class _Memory:
    """Arrays in memory as a file of tensors: both the reader and the stream of a `Source`."""

    format = "arrays"
    seekable = True
    links: Mapping[str, str] = {}
    metadata: Mapping[str, str] = {}

    def __init__(self, given: Tabular, label: str) -> None:
        import numpy as np

        from pe_cli.files import READABLE, TensorSpec
        from pe_cli.tensors import Tensors

        self.label = label
        self._arrays: dict[str, NDArray[Any]]
        if isinstance(given, Tensors) and len(given.keys()) == 1:
            self._arrays = {"": given.array}
        elif isinstance(given, (Tensors, Mapping)):
            self._arrays = {str(name): np.asarray(array) for name, array in given.items()}
        else:
            self._arrays = {"": np.asarray(given)}
        for name, array in self._arrays.items():
            if array.dtype.name not in READABLE:
                raise PeError(f"{name or label} holds {array.dtype}; numbers are needed")
        self.tensors: dict[str, TensorSpec] = {
            name: TensorSpec(name, array.dtype.name, array.shape) for name, array in self._arrays.items()
        }

    def pieces(self, name: str, items: int) -> Iterator[NDArray[Any]]:
        flat = self._arrays[name].reshape(-1)
        for start in range(0, flat.size, items):
            yield flat[start : start + items]

    def start(self, name: str) -> tuple[int, np.dtype[Any]] | None:
        return None

    def close(self) -> None:
        pass


class Record:
    """What was found, as attributes; `to_dict()` gives it as plain data."""

    _known: tuple[str, ...] = ()  # attributes that are None where nothing was found

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        from pe_cli.files.text import jsonable

        plain: dict[str, Any] = jsonable(self._fields)
        return plain

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._fields:
            return self._fields[name]
        if name in self._may_have():
            return None
        raise AttributeError(f"{type(self).__name__} has no {name!r}; it has {', '.join(self._fields)}")

    def _may_have(self) -> Sequence[str]:
        return self._known

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._fields]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._fields == getattr(other, "_fields", None)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._fields.items() if value is not None)
        return f"{type(self).__name__}({shown})"

    def _repr_html_(self) -> str:
        from pe_cli.heatmap import facts_as_html

        return facts_as_html(self._fields)


class IdentifyResult(Record):
    """Which encoding a table is: `encoding`, and its parameters by name."""

    def _may_have(self) -> Sequence[str]:
        from pe_cli.catalogue import CATALOGUE, load
        from pe_cli.signature import parameters

        own = {name for encoding in CATALOGUE for name in parameters(load(encoding))}
        return (
            *own,
            "amplitude",
            "ambiguous",
            "maybe",
            "precision",
            "residual",
            "runs",
            "shift",
            "start",
            "stride",
        )


class Cause(Record):
    """One reason why two tables differ: `cause`, what holds of each side in `a` and `b`, and `residual_after`."""

    _known = ("a", "b", "at", "count", "first", "last", "ratio", "residual_after", "restarts", "rule")


class CompareResult(Record):
    """Whether two tables are the same, how far they are apart, and why."""

    _known = ("explained", "max_abs", "max_rel", "max_ulp")

    @property
    def causes(self) -> list[Cause]:
        return [Cause(cause) for cause in self._fields["causes"]]

    def __repr__(self) -> str:
        if self.equal:
            return "CompareResult(equal=True)"
        causes = ", ".join(map(repr, self.causes))
        return f"CompareResult(equal=False, max_abs={self.max_abs!r}, causes=[{causes}])"


class ExtendResult(Record):
    """What changed in a file, and the new tables by name in `tables`."""

    def __init__(self, fields: Mapping[str, Any], tables: Tensors) -> None:
        super().__init__(fields)
        self.tables = tables
