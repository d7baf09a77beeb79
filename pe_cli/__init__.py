"""Positional encodings as functions: `from pe_cli import rope`.

Each name of the catalogue is a function of numpy arrays; it is imported when it is first asked for.
"""

from __future__ import annotations

from typing import Any

from pe_cli.catalogue import CATALOGUE, load
from pe_cli.errors import PeError

__version__ = "0.1.0"
__all__ = ["PeError", "__version__", *sorted(entry.function for entry in CATALOGUE.values())]


def __getattr__(name: str) -> Any:
    if name.replace("_", "-") in CATALOGUE:
        return load(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
