"""What every encoding returns: named arrays, which are used as one array where there is only one."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any, overload

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import DTypeLike, NDArray

from pe_cli.errors import PeError, in_python, spelled


class Tensors(NDArrayOperatorsMixin):
    """Tables by name, with what else there is to say about them.

    >>> from pe_cli import rope
    >>> table = rope(4, dim=8, layout="half")
    >>> table["cos"].shape
    (4, 8)

    `table["cos"]`, `table.keys()`, `table.items()` and `{**table}` go by name. Where there is one table it is used as
    an array: `numpy.asarray(table)`, `table.shape`, `table[3]`, `table[:, :2]`, `2 * table`, `len(table)`,
    `for row in table` and the methods of `numpy.ndarray`. Where there are several, these raise an error that lists
    the names, and `len` and iteration go over the names.

    Attributes
    ----------
    facts : what is recorded in a file and shown in the summary (a solver, a residual, a magnitude)
    warnings : sentences for the user
    """

    def __init__(
        self,
        tensors: Mapping[str, NDArray[Any]] | Tensors,
        facts: Mapping[str, Any] | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._tensors: dict[str, NDArray[Any]] = dict(tensors.items())
        self.facts: dict[str, Any] = dict(facts or {})
        self._warnings = warnings

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.warnings_for(in_python)

    def warnings_for(self, spell: Callable[[str], str]) -> tuple[str, ...]:
        """The warnings with every parameter as `spell` writes it."""
        return tuple(spelled(warning, spell) for warning in self._warnings)

    def with_remarks(self, facts: Mapping[str, Any], warnings: tuple[str, ...]) -> Tensors:
        """The same tables, with `facts` besides their own and `warnings` after their own."""
        return Tensors(self._tensors, {**self.facts, **facts}, (*self._warnings, *warnings))

    def keys(self) -> KeysView[str]:
        return self._tensors.keys()

    def values(self) -> ValuesView[NDArray[Any]]:
        return self._tensors.values()

    def items(self) -> ItemsView[str, NDArray[Any]]:
        return self._tensors.items()

    def get(self, name: str, default: Any = None) -> Any:
        return self._tensors.get(name, default)

    def to_dict(self) -> dict[str, NDArray[Any]]:
        """The tables by name, as a plain dictionary."""
        return dict(self._tensors)

    @property
    def array(self) -> NDArray[Any]:
        """The only table. Raises AttributeError where there are several."""
        if len(self._tensors) != 1:
            raise AttributeError(self._choose())
        return next(iter(self._tensors.values()))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def size(self) -> int:
        return self.array.size

    @property
    def T(self) -> NDArray[Any]:  # noqa: N802 (as numpy calls it)
        transposed: NDArray[Any] = self.array.T
        return transposed

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if len(self._tensors) != 1:
            raise AttributeError(self._choose())
        return getattr(self.array, name)

    @overload
    def __getitem__(self, key: str) -> NDArray[Any]: ...
    @overload
    def __getitem__(self, key: object) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return self._only()[key]
        if key not in self._tensors:
            raise KeyError(f"{key!r}; there are {', '.join(self._tensors)}")
        return self._tensors[key]

    def __contains__(self, key: object) -> bool:
        return key in self._tensors if isinstance(key, str) else key in self._only()

    def __len__(self) -> int:
        return len(self.array) if len(self._tensors) == 1 else len(self._tensors)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array) if len(self._tensors) == 1 else iter(self._tensors)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._only(), dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        arrays = [value._only() if isinstance(value, Tensors) else value for value in inputs]
        return getattr(ufunc, method)(*arrays, **options)

    def _only(self) -> NDArray[Any]:
        if len(self._tensors) != 1:
            raise PeError(self._choose())
        return self.array

    def _choose(self) -> str:
        names = ", ".join(map(repr, self._tensors)) or "none"
        return f"there is not one table but {len(self._tensors)}: choose by name among {names}"

    def __repr__(self) -> str:
        lines = [f"{name}  {array.dtype}  {_times(array.shape)}" for name, array in self._tensors.items()]
        if len(self._tensors) == 1:
            with np.printoptions(threshold=100, edgeitems=2, precision=4, suppress=True):
                lines.append(str(self.array))
        lines += [f"{name.replace('_', ' ')}: {value}" for name, value in self.facts.items()]
        return "\n".join([*lines, *(f"warning: {warning}" for warning in self.warnings)])

    def _repr_html_(self) -> str:
        from pe_cli.heatmap import tables_as_html

        return tables_as_html(self._tensors, self.facts, self.warnings)


Mapping.register(Tensors)


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one number"
