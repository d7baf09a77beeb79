"""Every encoding by name, without importing any: `pe gen --help`, completions and the Python API read this.

To add an encoding: write one function in `pe_cli/encodings/` and add its line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from pe_cli.errors import no_such


class Entry(NamedTuple):
    """One encoding: the family it belongs to, where its function is, and what it is in a line."""

    family: str
    target: str
    summary: str

    @property
    def function(self) -> str:
        return self.target.partition(":")[2]


FAMILIES = {
    "fixed": "Fixed",
    "learned": "Learned",
    "relative": "Relative",
    "rotary": "Rotary",
    "mixed": "Absolute + relative",
    "contextual": "Global and contextual",
    "structural": "Structural: trees and graphs",
    "sparse": "Sparse and factorised",
}

CATALOGUE: dict[str, Entry] = {
    "sinusoidal": Entry(
        "fixed", "sinusoidal:sinusoidal", "sine and cosine of each position, in every published style"
    ),
    "fourier": Entry(
        "fixed", "fourier:fourier", "Fourier features of coordinates (NeRF, Perceiver, Gaussian)"
    ),
    "timestep": Entry("fixed", "sinusoidal:timestep", "diffusion timestep embedding"),
    "learned": Entry("learned", "learned:learned", "initial values of a learned table, repeatable by seed"),
    "t5": Entry("relative", "relative:t5", "T5 buckets of relative distance, or the bias of a learned table"),
    "transformer-xl": Entry("relative", "relative:transformer_xl", "Transformer-XL rows by distance"),
    "shaw": Entry("relative", "relative:shaw", "clipped relative index of Shaw et al."),
    "alibi": Entry("relative", "biases:alibi", "linear bias by distance, one slope per head"),
    "kerple": Entry("relative", "biases:kerple", "kernelised distance bias, logarithmic or power"),
    "sandwich": Entry("relative", "biases:sandwich", "sum-of-cosines distance bias"),
    "fire": Entry(
        "relative", "biases:fire", "functional interpolation of distance through a small network"
    ),
    "swin": Entry("relative", "windows:swin", "window index and coordinates (Swin v1, v2, BEiT)"),
    "rope": Entry("rotary", "rotary:rope", "rotary cos/sin table: every scaling, layout and axis form"),
    "xpos": Entry(
        "rotary", "rotary:xpos", "rotary tables with exponential decay, one for queries, one for keys"
    ),
    "deberta": Entry("mixed", "mixed:deberta", "DeBERTa log buckets, shared relative index, absolute part"),
    "tupe": Entry("mixed", "mixed:tupe", "TUPE untied absolute correlation and relative buckets"),
    "cope": Entry("contextual", "contextual:cope", "contextual positions counted by gates, and their bias"),
    "fox": Entry("contextual", "contextual:fox", "forgetting-gate bias (FoX)"),
    "peg": Entry("contextual", "contextual:peg", "conditional encoding by depthwise convolution (CPVT)"),
    "global-tokens": Entry(
        "contextual", "contextual:global_tokens", "side positions of global tokens (ETC, LongT5)"
    ),
    "tree": Entry("structural", "trees:tree", "codes of tree nodes: stack, depth, sibling, ancestor"),
    "dependency": Entry("structural", "trees:dependency", "structural positions of a dependency parse"),
    "laplacian": Entry("structural", "graphs:laplacian", "eigenvectors of the graph Laplacian"),
    "random-walk": Entry("structural", "graphs:random_walk", "return probabilities of random walks"),
    "shortest-path": Entry("structural", "graphs:shortest_path", "shortest-path distance between nodes"),
    "magnetic": Entry("structural", "graphs:magnetic", "magnetic Laplacian of a directed graph"),
    "axial": Entry("sparse", "sparse:axial", "one factor table per axis of a folded sequence"),
    "sparse-transformer": Entry(
        "sparse", "sparse:sparse_transformer", "rows, columns and patterns of factorised attention"
    ),
    "position-ids": Entry("sparse", "sparse:position_ids", "position numbers of long-context schemes"),
}


def load(name: str) -> Any:
    """The function of the encoding called `name` (as on the command line or as in Python)."""
    key = name.replace("_", "-")
    if key not in CATALOGUE:
        raise no_such("encoding", name, CATALOGUE)
    module, _, function = CATALOGUE[key].target.partition(":")
    return getattr(import_module(f"pe_cli.encodings.{module}"), function)
