"""Positional encodings as functions: `from pe_cli import rope`.

Each name of the catalogue is a function of numpy arrays; it is imported when it is first asked for. So are
`from_config` (the table of a model), `resolve` (its encoding and arguments), and `Graph`, `Forest`, `read_graph`,
`read_forest` for the encodings of graphs and trees, which take an edge_index and lists of heads as well.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pe_cli import process as process  # first, since it decides what a signal does from here on
from pe_cli.catalogue import CATALOGUE, load
from pe_cli.errors import PeError

__version__ = "0.2.0.dev0"
BESIDES = {
    "Forest": "pe_cli.structures",
    "Graph": "pe_cli.structures",
    "from_config": "pe_cli.models",
    "read_forest": "pe_cli.structures",
    "read_graph": "pe_cli.structures",
    "resolve": "pe_cli.models",
}
__all__ = ["PeError", "__version__", *BESIDES, *sorted(entry.function for entry in CATALOGUE.values())]


def __getattr__(name: str) -> Any:
    if name.replace("_", "-") in CATALOGUE:
        return load(name)
    if name in BESIDES:
        return getattr(import_module(BESIDES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
