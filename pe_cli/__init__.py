"""Positional encodings as functions: `from pe_cli import rope`.

>>> from pe_cli import rope
>>> rope(4, dim=8).shape
(4, 8)

Every encoding of the catalogue is a function that returns `Tensors`: tables by name, which are used as one array where
there is one. `read`, `identify`, `compare` and `extend` do what the commands do; `from_config` makes the table of a
model, `resolve` says which it is; `Graph`, `Forest`, `read_graph` and `read_forest` are for encodings of graphs and
trees, which take an edge_index and lists of heads as well. What a user can mend is raised as `PeError`.

numpy and the encodings are imported when they are first asked for; a type checker sees them all.
"""

from __future__ import annotations

# ruff: noqa: E402
import _signal  # type: ignore[import-not-found]

# What comes while `first` is found and read waits until it has decided what a signal does.
_ENDING = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT)
_held = _signal.pthread_sigmask(_signal.SIG_BLOCK, _ENDING)
# isort: split
from pe_cli import first as first

_signal.pthread_sigmask(_signal.SIG_SETMASK, _held)
del _signal, _held, _ENDING
# isort: split
from importlib import import_module
from typing import TYPE_CHECKING, Any

# The package comes first: loading it later would put it in the place of the function of the same name.
import pe_cli.extend  # noqa: F401
from pe_cli.catalogue import CATALOGUE, load
from pe_cli.errors import PeError
from pe_cli.first import __version__
from pe_cli.library import compare, extend, identify, read

if TYPE_CHECKING:
    from pe_cli.encodings.biases import alibi, fire, kerple, sandwich
    from pe_cli.encodings.contextual import cope, fox, global_tokens, peg
    from pe_cli.encodings.fourier import fourier
    from pe_cli.encodings.graph.distances import resistance_distance, shortest_path
    from pe_cli.encodings.graph.spectral import laplacian, magnetic
    from pe_cli.encodings.graph.structure import cycles, dag, degree, eigenspaces, electrostatic, svd
    from pe_cli.encodings.graph.walks import heat_kernel, random_walk, rrwp
    from pe_cli.encodings.mixed import deberta, tupe
    from pe_cli.encodings.position_ids import position_ids
    from pe_cli.encodings.relative import shaw, swin, t5, transformer_xl
    from pe_cli.encodings.rope.rotary import rope, xpos
    from pe_cli.encodings.sinusoidal import learned, sinusoidal, timestep
    from pe_cli.encodings.sparse import axial, sparse_transformer
    from pe_cli.encodings.tree import dependency, tree
    from pe_cli.models.resolve import from_config, resolve
    from pe_cli.structures import Forest, Graph, GraphDataset, read_forest, read_graph
    from pe_cli.tensors import Tensors

__all__ = [
    "Forest",
    "Graph",
    "GraphDataset",
    "PeError",
    "Tensors",
    "__version__",
    "alibi",
    "axial",
    "compare",
    "cope",
    "cycles",
    "dag",
    "deberta",
    "degree",
    "dependency",
    "eigenspaces",
    "electrostatic",
    "extend",
    "fire",
    "fourier",
    "fox",
    "from_config",
    "global_tokens",
    "heat_kernel",
    "identify",
    "kerple",
    "laplacian",
    "learned",
    "magnetic",
    "peg",
    "position_ids",
    "random_walk",
    "read",
    "read_forest",
    "read_graph",
    "resistance_distance",
    "resolve",
    "rope",
    "rrwp",
    "sandwich",
    "shaw",
    "shortest_path",
    "sinusoidal",
    "sparse_transformer",
    "svd",
    "swin",
    "t5",
    "timestep",
    "transformer_xl",
    "tree",
    "tupe",
    "xpos",
]

_ELSEWHERE = {
    "Forest": "pe_cli.structures",
    "Graph": "pe_cli.structures",
    "GraphDataset": "pe_cli.structures",
    "Tensors": "pe_cli.tensors",
    "from_config": "pe_cli.models.resolve",
    "read_forest": "pe_cli.structures",
    "read_graph": "pe_cli.structures",
    "resolve": "pe_cli.models.resolve",
}

if not TYPE_CHECKING:  # a type checker would take it as a promise that every name exists

    def __getattr__(name: str) -> Any:
        if name in _ELSEWHERE:
            return getattr(import_module(_ELSEWHERE[name]), name)
        if name.replace("_", "-") in CATALOGUE:
            return load(name)
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=import_module(__name__)
        )


def __dir__() -> list[str]:
    return __all__
