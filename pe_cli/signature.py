"""The vocabulary of an encoding's signature, and the decorator that reads it.

An encoding is a plain function under `@encoding`. Its parameters are annotated with ordinary types (`int`, `float`,
`bool`, `str`, `Literal[...]`, `X | None`) or with the names below, which say what an argument may be:

    Positions   (n,) integers or floats, or (n, k) for k axes: the rows asked for; an int n stands for 0..n-1
    Queries     (q,) positions of the queries          Keys   (k,) positions of the keys; ints as above
    Distances   key position minus query position, of any shape
    Array       an array; on the command line read from a file (`FILE` or `FILE:TENSOR`)
    Mask        zeros and ones; on the command line written out (`0011`) or read from a file
    Grid        (H, W) or (T, H, W)
    Ints, Floats  several numbers, or one
    DType       an element type: a name, or a type of numpy
    GraphLike, ForestLike (in `pe_cli.structures`)   a graph or trees; on the command line read from a file

The decorator brings each argument into the form that the function computes with (arrays, tuples, canonical names), so
that Python and the command line accept and refuse the same. `pe gen` derives its options from the same signature.

A function whose first parameter is `positions: Positions` is row-wise: every tensor it returns whose first
dimension is the number of positions is written block by block, and it must accept zero positions.
"""

from __future__ import annotations

import inspect
import math
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, wraps
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, folded, no_such, parameter
from pe_cli.numerics.dtypes import FLOATS, ElementType, dtype_name
from pe_cli.process import require_memory
from pe_cli.tensors import Tensors

LARGEST = 2**63


class Meaning(Enum):
    """What an argument is, beyond its type."""

    POSITIONS = "positions"
    QUERIES = "queries"
    KEYS = "keys"
    DISTANCES = "distances"
    ARRAY = "array"
    MASK = "mask"
    GRID = "grid"
    NUMBERS = "numbers"
    DTYPE = "dtype"
    GRAPH = "graph"
    FOREST = "forest"


# What the command line gives by options of its own, such as `--len`, and what it reads from the file that is its argument.
SUPPLIED = frozenset({Meaning.POSITIONS, Meaning.QUERIES, Meaning.KEYS, Meaning.DISTANCES})
READ_FROM_FILE = {Meaning.GRAPH: "GRAPH", Meaning.FOREST: "FILE"}


class HasArray(Protocol):
    """Whatever numpy can read: arrays, `Tensors`, tensors of torch and jax."""

    def __array__(self) -> NDArray[Any]: ...


Line: TypeAlias = NDArray[Any] | HasArray | Sequence[float]
Numbers: TypeAlias = Line | Sequence[Sequence[float]]

Positions: TypeAlias = Annotated[int | Numbers, Meaning.POSITIONS]
Queries: TypeAlias = Annotated[int | Line, Meaning.QUERIES]
Keys: TypeAlias = Annotated[int | Line, Meaning.KEYS]
Distances: TypeAlias = Annotated[Numbers, Meaning.DISTANCES]
Array: TypeAlias = Annotated[Numbers | Sequence[Sequence[Sequence[float]]], Meaning.ARRAY]
Mask: TypeAlias = Annotated[Numbers, Meaning.MASK]
Grid: TypeAlias = Annotated[Sequence[int], Meaning.GRID]
Ints: TypeAlias = Annotated[Sequence[int], Meaning.NUMBERS, int]
Floats: TypeAlias = Annotated[Sequence[float], Meaning.NUMBERS, float]
DType: TypeAlias = Annotated[ElementType, Meaning.DTYPE]
Compute: TypeAlias = Literal["exact", "float32"]


@dataclass(frozen=True)
class Choice:
    """A `str` parameter with known values: `style: Annotated[str, Choice(STYLES, ALIASES)]`."""

    names: tuple[str, ...]
    aliases: Mapping[str, str] | None = field(default=None, hash=False)  # `Choice | None` is hashed
    elsewhere: Mapping[str, str] | None = field(
        default=None, hash=False
    )  # what is asked for here and made elsewhere

    def canonical(self, kind: str, given: Any) -> str:
        """The name that `given` is, in any case of letters, or is an alias of. Raises PeError for any other."""
        known = {name: name for name in self.names} | dict(self.aliases or {})
        word = folded(given) if isinstance(given, str) else ""
        found = {folded(name): canonical for name, canonical in known.items()}.get(word)
        if found is not None:
            return found
        if self.elsewhere and word in self.elsewhere:
            raise PeError(f"{kind} {given!r}: {self.elsewhere[word]}")
        raise no_such(kind, str(given), self.names, known)


@dataclass(frozen=True)
class Parameter:
    """One parameter of an encoding, taken apart."""

    name: str
    type: Any
    default: Any
    optional: bool
    meaning: Meaning | None
    choice: Choice | None
    element: type

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def taken(self, value: Any) -> Any:
        """`value` as the function computes with it. Raises PeError for what it cannot be."""
        if value is None and (self.optional or self.default is None):
            return None
        if self.meaning in _READERS:
            return _READERS[self.meaning](self, value)
        if self.choice is not None:
            return self.choice.canonical(self.name.replace("_", " "), value)
        return _READERS.get(self.type, _as_it_is)(self, value)


@lru_cache(maxsize=256)
def parameters(function: Callable[..., Any]) -> Mapping[str, Parameter]:
    """The parameters of `function`, in order."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: _taken_apart(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
    }


def _taken_apart(name: str, hint: Any, default: Any) -> Parameter:
    meaning: Meaning | None = None
    choice: Choice | None = None
    element: type = int
    optional = False
    if get_origin(hint) in (Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        optional = len(members) < len(get_args(hint))
        hint = members[0] if len(members) == 1 else hint
    if get_origin(hint) is Annotated:
        hint, *marks = get_args(hint)
        meaning = next((mark for mark in marks if isinstance(mark, Meaning)), None)
        choice = next((mark for mark in marks if isinstance(mark, Choice)), None)
        element = next((mark for mark in marks if mark in (int, float)), int)
    if get_origin(hint) is Literal:
        choice = Choice(tuple(map(str, get_args(hint))))
    if meaning is Meaning.DTYPE:
        choice = Choice(FLOATS)
    return Parameter(name, hint, default, optional, meaning, choice, element)


P = ParamSpec("P")


def encoding(function: Callable[P, NDArray[Any] | Tensors]) -> Callable[P, Tensors]:
    """An encoding that takes what people have: ints, lists and arrays, names in any case, types of numpy.

    Every argument comes to the function as `Parameter.taken` reads it, and what the function returns is a `Tensors`: a
    single array is called as the function is. A misspelt or missing argument is a PeError that names it.
    """
    own = function.__name__.replace("_", "-")

    @wraps(function)
    def call(*given: P.args, **named: P.kwargs) -> Tensors:
        known = parameters(function)
        arguments = {name: known[name].taken(value) for name, value in _bound(function, given, named).items()}
        made = function(**arguments)  # type: ignore[call-arg]
        return made if isinstance(made, Tensors) else Tensors({own: np.asarray(made)})

    return call


def _bound(
    function: Callable[..., Any], given: tuple[Any, ...], named: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The arguments by name."""
    known = parameters(function)
    called = function.__name__
    for name in named:
        if name not in known:
            raise no_such(f"parameter of {called}", name, known)
    try:
        bound = _signature(function).bind(*given, **named)
    except TypeError:
        missing = [name for name, p in known.items() if p.required and name not in named]
        if missing[len(given) :]:
            needs = ", ".join(parameter(name) for name in missing[len(given) :])
            raise PeError(f"{called} needs {needs}") from None
        raise PeError(f"{called} takes {_usage(function)}") from None
    return bound.arguments


_signature = lru_cache(maxsize=256)(inspect.signature)


def _usage(function: Callable[..., Any]) -> str:
    """`(queries, keys, *, distances, …)`: how a function is called."""
    names = []
    for name, known in _signature(function).parameters.items():
        if known.kind is known.KEYWORD_ONLY and "*" not in names:
            names.append("*")
        names.append(name)
    return f"({', '.join(names)})"


def as_rows(value: Any, name: str = "positions") -> NDArray[Any]:
    """Positions (n,) or (n, axes) from an int n, which stands for 0..n-1, a list or an array."""
    count = _index(value)
    if count is not None:
        if count < 1:
            raise PeError(f"{parameter(name)} {count}: a table needs at least one row")
        require_memory(16 * count, f"{parameter(name)} {count}", "ask for fewer")
        return np.arange(count)
    where = _array(name, value)
    if where.ndim not in (1, 2):
        raise PeError(f"{parameter(name)} have shape {where.shape}; give (n,), or (n, axes)")
    if where.dtype.kind == "f" and not np.isfinite(where).all():
        raise PeError(f"{parameter(name)}: one of them is NaN or infinite")
    if where.dtype.kind == "u":
        if where.size and where.max() >= LARGEST:
            raise PeError(f"{parameter(name)}: {where.max()} is not below 2^63")
        return where.astype(np.int64)
    return where


def _line(known: Parameter, value: Any) -> NDArray[np.int64]:
    """Queries or keys."""
    where = as_rows(value, known.name)
    if where.ndim != 1 or where.dtype.kind != "i":
        raise PeError(
            f"{parameter(known.name)} are whole numbers on one axis, not {where.dtype} of shape {where.shape}; "
            "pairs that are not those of queries with keys go by distances"
        )
    return where


def _distances(known: Parameter, value: Any) -> NDArray[np.int64]:
    where = _array(known.name, value)
    if not where.ndim:
        raise PeError(f"{parameter(known.name)} {value}: give an array or a list of distances")
    if where.dtype.kind not in "iu":
        raise PeError(f"{parameter(known.name)} are whole numbers, not {where.dtype}")
    return where.astype(np.int64, copy=False)  # rules change signs, which unsigned numbers have not


def _numbers_of_a_file(known: Parameter, value: Any) -> NDArray[Any]:
    values = _array(known.name, value)
    if not values.size:
        raise PeError(f"{parameter(known.name)} holds no numbers, its shape is {values.shape}")
    if values.dtype.kind not in "iu":
        wrong = np.isnan(values)
        if wrong.any():
            where = [int(i) for i in np.unravel_index(int(wrong.argmax()), values.shape)]
            raise PeError(f"{parameter(known.name)} has a NaN at {where}; it would spread over the table")
    return values


def _flags(known: Parameter, value: Any) -> NDArray[Any]:
    values = np.asarray(value)
    return values if values.dtype.kind == "b" else _array(known.name, values)


def _array(name: str, value: Any) -> NDArray[Any]:
    """`value` as an array of real numbers."""
    try:
        values = np.asarray(value)
    except (ValueError, TypeError) as error:  # lists of different lengths, a tensor of torch in bfloat16
        raise PeError(f"{parameter(name)}: this is no array ({error})") from None
    if values.dtype.kind not in "iuf" and values.dtype.name not in FLOATS:
        raise PeError(f"{parameter(name)} holds {values.dtype}; real numbers are needed")
    if not isinstance(value, np.ndarray) and not values.size:
        values = values.astype(np.int64)
    return values


def _several(known: Parameter, value: Any) -> tuple[Any, ...]:
    """Grids and lists of numbers as tuples; a number alone is a list of one."""
    alone = isinstance(value, (str, bytes)) or not np.iterable(value)
    read = _whole if known.meaning is Meaning.GRID or known.element is int else _number
    return tuple(read(known, part) for part in ((value,) if alone else value))


def _whole(known: Parameter, value: Any) -> int:
    number = _index(value)
    if number is None:
        raise PeError(f"{parameter(known.name)} {_shown(value)}: a whole number is needed")
    if not -LARGEST <= number < LARGEST:
        raise PeError(f"{parameter(known.name)} {number}: a whole number here is below 2^63 in size")
    return number


def _number(known: Parameter, value: Any) -> float:
    if (
        isinstance(value, (bool, np.bool_, str, bytes))
        or not hasattr(value, "__float__")
        or getattr(value, "ndim", 0) != 0
    ):
        raise PeError(f"{parameter(known.name)} {_shown(value)}: a number is needed")
    number = float(value)
    if not math.isfinite(number):
        raise PeError(f"{parameter(known.name)} {number}: a finite number is needed")
    if known.meaning is Meaning.NUMBERS and not -LARGEST < number < LARGEST:
        raise PeError(f"{parameter(known.name)} {number:g}: a number here is below 2^63 in size")
    return number


def _flag(known: Parameter, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise PeError(f"{parameter(known.name)} {_shown(value)}: True or False is needed")
    return bool(value)


def _text(known: Parameter, value: Any) -> str:
    if not isinstance(value, str):
        raise PeError(f"{parameter(known.name)} {_shown(value)}: text is needed")
    return value


def _as_it_is(known: Parameter, value: Any) -> Any:
    return value


def _index(value: Any) -> int | None:
    """The whole number that `value` is; None for anything else, booleans too."""
    if isinstance(value, (bool, np.bool_)) or getattr(value, "ndim", 0) != 0:
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


_READERS: Mapping[Any, Callable[[Parameter, Any], Any]] = {
    Meaning.POSITIONS: lambda known, value: as_rows(value, known.name),
    Meaning.QUERIES: _line,
    Meaning.KEYS: _line,
    Meaning.DISTANCES: _distances,
    Meaning.ARRAY: _numbers_of_a_file,
    Meaning.MASK: _flags,
    Meaning.GRID: _several,
    Meaning.NUMBERS: _several,
    Meaning.DTYPE: lambda known, value: dtype_name(value),
    Meaning.GRAPH: _as_it_is,
    Meaning.FOREST: _as_it_is,
    int: _whole,
    float: _number,
    bool: _flag,
    str: _text,
}


F = TypeVar("F", bound=Callable[..., Any])


def default_positions(rule: Callable[..., NDArray[Any]], *, only: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Say which positions `--len N` means where they are not 0..N-1: `rule(length, **parameters)`.

    `only` names parameters that the rule alone looks at: they say nothing beside `--positions`.
    """

    def mark(function: F) -> F:
        function.default_positions = rule  # type: ignore[attr-defined]
        function.only_by_default = only  # type: ignore[attr-defined]
        return function

    return mark
