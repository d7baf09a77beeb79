"""Helpers for the tests of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pe_cli.files import TensorSpec
from pe_cli.files.sinks import open_sink
from pe_cli.numerics.dtypes import SAFETENSORS_CODES, numpy_dtype

Write = Callable[..., Path]


def specs_of(tensors: Mapping[str, NDArray[Any]]) -> list[TensorSpec]:
    return [TensorSpec(name, array.dtype.name, array.shape) for name, array in tensors.items()]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write named arrays through a sink in blocks of `rows`, and give the path."""

    def _write(name: str, tensors: Mapping[str, NDArray[Any]], *, rows: int = 3, **options: Any) -> Path:
        path = tmp_path / name
        options = {"metadata": {"pe": "{}"}} | options
        with open_sink(path, specs_of(tensors), **options) as sink:
            for spec in sink.specs:
                array = tensors[spec.name]
                if array.ndim == 0:
                    sink.write(spec.name, 0, array)
                    continue
                for start in range(0, len(array), rows):
                    sink.write(spec.name, start, array[start : start + rows])
        return path

    return _write


@pytest.fixture(params=[*SAFETENSORS_CODES, "complex128"])
def array(request: pytest.FixtureRequest) -> NDArray[Any]:
    """(7, 5) values of every element type: every bit pattern counts, so they are not all tame."""
    dtype = numpy_dtype(request.param)
    generator = np.random.default_rng(5)
    if dtype == np.bool_:
        return generator.integers(0, 2, (7, 5)).astype(np.bool_)
    raw = generator.integers(0, 256, 35 * dtype.itemsize, dtype=np.uint8)
    return raw.view(dtype).reshape(7, 5)
