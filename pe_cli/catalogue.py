"""Every encoding by name, without importing any: `pe gen --help`, completions and the Python API read this.

To add an encoding: write one function in `pe_cli/encodings/` and add its line here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from pe_cli.errors import no_such


class Entry(NamedTuple):
    """One encoding: the family it belongs to, where its function is, what it is in a line, and how it is used."""

    family: str
    target: str
    summary: str
    arguments: str

    def example(self, name: str) -> str:
        """A command line that makes this encoding."""
        return f"pe gen {name} {self.arguments}"

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
        "fixed",
        "sinusoidal:sinusoidal",
        "sine and cosine of each position, in every published style",
        "--style whisper --len 1500 --dim 384 -o whisper.npy",
    ),
    "fourier": Entry(
        "fixed",
        "fourier:fourier",
        "Fourier features of coordinates (NeRF, Perceiver, Gaussian)",
        "--style nerf --positions=0,0.25,0.5,-0.75 --num-bands 10 -o features.npy",
    ),
    "timestep": Entry(
        "fixed",
        "sinusoidal:timestep",
        "diffusion timestep embedding",
        "--positions 0,10,999 --dim 320 --flip-sin-to-cos --downscale-freq-shift 0 -o time.npy",
    ),
    "learned": Entry(
        "learned",
        "sinusoidal:learned",
        "initial values of a learned table, repeatable by seed",
        "--len 512 --dim 384 --std 0.02 --seed 1 -o table.npy",
    ),
    "t5": Entry(
        "relative",
        "relative:t5",
        "T5 buckets of relative distance, or the bias of a learned table",
        "--len 128 --num-buckets 32 --max-distance 128 -o buckets.npy",
    ),
    "transformer-xl": Entry(
        "relative",
        "relative:transformer_xl",
        "Transformer-XL rows by distance",
        "--len 128 --dim 64 --bidirectional -o rows.npy",
    ),
    "shaw": Entry(
        "relative",
        "relative:shaw",
        "clipped relative index of Shaw et al.",
        "--len 64 --max-distance 16 -o index.npy",
    ),
    "alibi": Entry(
        "relative",
        "biases:alibi",
        "linear bias by distance, one slope per head",
        "--heads 12 --len 128 -o bias.safetensors",
    ),
    "kerple": Entry(
        "relative",
        "biases:kerple",
        "kernelised distance bias, logarithmic or power",
        "--heads 8 --len 128 --kernel log -o kerple.safetensors",
    ),
    "sandwich": Entry(
        "relative",
        "biases:sandwich",
        "sum-of-cosines distance bias",
        "--heads 8 --len 128 --dim 128 -o bias.npy",
    ),
    "fire": Entry(
        "relative",
        "biases:fire",
        "functional interpolation of distance through a small network",
        "--heads 8 --len 128 --seed 1 -o fire.safetensors",
    ),
    "swin": Entry(
        "relative",
        "relative:swin",
        "window index and coordinates (Swin v1, v2, BEiT)",
        "--window 7x7 -o window.safetensors",
    ),
    "rope": Entry(
        "rotary",
        "rope.rotary:rope",
        "rotary cos/sin table: every scaling, layout and axis form",
        "--len 4096 --dim 128 --base 500000 --layout half -o rope.safetensors",
    ),
    "xpos": Entry(
        "rotary",
        "rope.rotary:xpos",
        "rotary tables with exponential decay, one for queries, one for keys",
        "--len 2048 --dim 64 -o xpos.safetensors",
    ),
    "deberta": Entry(
        "mixed",
        "mixed:deberta",
        "DeBERTa log buckets, shared relative index, absolute part",
        "--len 128 --position-buckets 256 --max-relative-positions 512 -o deberta.safetensors",
    ),
    "tupe": Entry(
        "mixed",
        "mixed:tupe",
        "TUPE untied absolute correlation and relative buckets",
        "--len 128 --num-buckets 32 -o tupe.safetensors",
    ),
    "cope": Entry(
        "contextual",
        "contextual:cope",
        "contextual positions counted by gates, and their bias",
        "--query q.npy --key k.npy --table e.npy -o cope.safetensors",
    ),
    "fox": Entry(
        "contextual", "contextual:fox", "forgetting-gate bias (FoX)", "--log-gates f.npy -o fox.safetensors"
    ),
    "peg": Entry(
        "contextual",
        "contextual:peg",
        "conditional encoding by depthwise convolution (CPVT)",
        "--hidden x.npy --weight w.npy --grid 14x14 -o peg.npy",
    ),
    "global-tokens": Entry(
        "contextual",
        "contextual:global_tokens",
        "side positions of global tokens (ETC, LongT5)",
        "--scheme longt5 --len 1024 --block 16 -o side.safetensors",
    ),
    "tree": Entry(
        "structural",
        "tree:tree",
        "codes of tree nodes: stack, depth, sibling, ancestor",
        "parse.txt --scheme stack --max-depth 16 --max-width 4 -o tree.safetensors",
    ),
    "dependency": Entry(
        "structural",
        "tree:dependency",
        "structural positions of a dependency parse",
        "parse.conllu -o dependency.safetensors",
    ),
    "laplacian": Entry(
        "structural",
        "graph.spectral:laplacian",
        "eigenvectors of the graph Laplacian",
        "graph.tsv -k 8 --norm sym -o laplacian.safetensors",
    ),
    "random-walk": Entry(
        "structural",
        "graph.walks:random_walk",
        "return probabilities of random walks",
        "graph.tsv --steps 16 -o walks.safetensors",
    ),
    "rrwp": Entry(
        "structural",
        "graph.walks:rrwp",
        "relative random walk probabilities (GRIT)",
        "graph.tsv --steps 8 -o rrwp.safetensors",
    ),
    "heat-kernel": Entry(
        "structural",
        "graph.walks:heat_kernel",
        "heat left at a node after some time (GraphGPS)",
        "graph.tsv --times 1,2,4,8 -o heat.npy",
    ),
    "shortest-path": Entry(
        "structural",
        "graph.distances:shortest_path",
        "shortest-path distance between nodes",
        "graph.tsv -o distances.npy",
    ),
    "resistance-distance": Entry(
        "structural",
        "graph.distances:resistance_distance",
        "electrical resistance between nodes, commute time",
        "graph.tsv -o resistance.npy",
    ),
    "eigenspaces": Entry(
        "structural",
        "graph.structure:eigenspaces",
        "projectors on the eigenspaces of the Laplacian",
        "graph.tsv -k 4 -o projectors.safetensors",
    ),
    "svd": Entry(
        "structural",
        "graph.structure:svd",
        "singular vectors of a directed graph's adjacency",
        "graph.tsv -k 4 --directed -o svd.safetensors",
    ),
    "electrostatic": Entry(
        "structural",
        "graph.structure:electrostatic",
        "potentials of unit charges on a graph (ElstaticSE)",
        "graph.tsv -o potentials.npy",
    ),
    "degree": Entry(
        "structural",
        "graph.structure:degree",
        "in- and out-degree of each node (Graphormer)",
        "graph.tsv --directed -o degree.safetensors",
    ),
    "cycles": Entry(
        "structural",
        "graph.structure:cycles",
        "cycles of 3 to 5 edges through each node",
        "graph.tsv -o cycles.npy",
    ),
    "dag": Entry(
        "structural",
        "graph.structure:dag",
        "depth and reachability in a directed acyclic graph",
        "dag.tsv -o depth.npy",
    ),
    "magnetic": Entry(
        "structural",
        "graph.spectral:magnetic",
        "magnetic Laplacian of a directed graph",
        "graph.tsv -k 4 --q 0.25 --directed -o magnetic.npz",
    ),
    "axial": Entry(
        "sparse",
        "sparse:axial",
        "one factor table per axis of a folded sequence",
        "--shape 64,64 --dims 64,192 -o axial.safetensors",
    ),
    "sparse-transformer": Entry(
        "sparse",
        "sparse:sparse_transformer",
        "rows, columns and patterns of factorised attention",
        "--len 128 --stride 16 --pattern strided -o pattern.safetensors",
    ),
    "position-ids": Entry(
        "sparse",
        "position_ids:position_ids",
        "position numbers of long-context schemes",
        "--scheme self-extend --len 4096 --window 1024 --group 8 -o ids.safetensors",
    ),
}


def load(name: str) -> Any:
    """The function of the encoding called `name` (as on the command line or as in Python)."""
    key = name.replace("_", "-")
    if key not in CATALOGUE:
        raise no_such("encoding", name, CATALOGUE)
    module, _, function = CATALOGUE[key].target.partition(":")
    return getattr(import_module(f"pe_cli.encodings.{module}"), function)
