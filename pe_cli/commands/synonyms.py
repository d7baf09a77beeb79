"""What people type for an option: the names of papers, configurations and other tools."""

from __future__ import annotations

import difflib
from collections.abc import Collection

# from our option to what it is called elsewhere; a command shows the first of ours that it has
SYNONYMS: dict[str, tuple[str, ...]] = {
    "--len": (
        "length", "size", "rows", "n", "num-positions", "n-positions", "max-len", "max-length",
        "max-seq-len", "max-seq-length", "max-sequence-length", "max-position-embeddings", "max-positions",
        "sequence-length", "seq-length", "seq", "context", "context-length", "ctx", "ctx-len", "n-ctx", "num-embeddings",
        "new-len", "new-length", "target-len", "target-length", "to", "num-tokens", "tokens", "model-max-length",
    ),
    "--seq-len": ("seq-length", "sequence-length", "seqlen"),
    "--original-len": (
        "original-max-position-embeddings", "original-length", "orig-len", "original-max-len", "trained-len",
        "max-position-embeddings",
    ),
    "--dim": (
        "head-dim", "head-size", "d-head", "dim-head", "rotary-dim", "rope-dim", "hidden-size", "hidden-dim", "d-model",
        "model-dim", "n-embd", "embed-dim", "embedding-dim", "emb-dim", "dimension", "dimensions", "dims", "d", "width",
        "features", "num-feats", "channels",
    ),
    "--dims": ("dim", "axial-pos-embds-dim"),
    "--axes": ("axes-dim", "axes-dims", "axes-dims-rope", "rope-axes-dim"),
    "--base": (
        "theta", "rope-theta", "rope-base", "rotary-base", "rotary-emb-base", "freq-base", "rope-freq-base", "temperature",
        "max-period", "max-timescale", "max-wavelength",
    ),
    "--max-period": ("theta", "base", "temperature"),
    "--heads": ("num-heads", "n-heads", "n-head", "nheads", "head", "h", "num-attention-heads", "attention-heads"),
    "--scaling": ("rope-scaling", "scaling-type", "rope-type", "rope-scaling-type", "type"),
    "--factor": ("scale", "scaling-factor", "scale-factor", "rope-factor", "rope-scale", "rope-freq-scale"),
    "--partial": (
        "partial-rotary-factor", "rotary-pct", "rotary-percentage", "rotary-percent", "rope-percent", "rotary-fraction",
        "partial-factor",
    ),
    "--sections": ("mrope-section", "mrope-sections"),
    "--attention-factor": ("attn-factor",),
    "--layout": ("style", "pairing", "interleaved", "half", "rotate-half", "neox"),
    "--style": ("layout", "variant", "kind", "type", "mode"),
    "--scheme": ("kind", "style", "type", "mode", "method"),
    "--form": ("style", "layout", "kind"),
    "--method": ("mode", "interpolation", "resample", "kind"),
    "--anchor": ("align-corners", "align"),
    "--output": ("out", "output-file", "outfile", "out-file", "save", "file", "write", "output-path", "dest", "o"),
    "--force": ("overwrite", "f", "yes", "clobber"),
    "--quiet": ("silent", "no-progress"),
    "--format": ("type", "output-format", "fmt", "ext"),
    "--dtype": ("precision", "data-type", "type", "torch-dtype"),
    "--compute": ("compute-dtype", "exact", "float32", "arithmetic"),
    "--name": ("key", "tensor-name", "tensor"),
    "--tensor": ("key", "name", "tensor-name", "weight"),
    "--grid": ("image-size", "grid-size", "hw", "patches", "new-grid", "size", "resolution", "to-grid", "shape"),
    "--from-grid": ("old-grid", "source-grid", "grid-from"),
    "--window": ("window-size", "win"),
    "--seed": ("random-seed", "random-state", "rng"),
    "--positions": ("pos", "position-ids", "indices", "ids", "range", "offset", "start"),
    "--num-buckets": ("buckets", "relative-attention-num-buckets", "n-buckets"),
    "--max-distance": ("relative-attention-max-distance", "max-dist", "distance", "max-relative-position", "clip"),
    "--max-relative-positions": ("max-relative-position",),
    "--causal": ("unidirectional", "decoder", "is-decoder", "mask"),
    "--bidirectional": ("encoder", "symmetric"),
    "--num-bands": ("bands", "num-freqs", "num-frequencies", "n-freqs", "multires", "num-frequency-bands"),
    "--steps": ("walk-length", "num-steps", "ksteps", "k"),
    "--k": ("num-eigenvectors", "eigenvectors", "max-freqs", "n-eigs", "dim", "pos-enc-dim"),
    "--q": ("potential", "charge"),
    "--norm": ("normalization", "normalisation", "normalized", "laplacian-norm"),
    "--num-nodes": ("nodes", "n-nodes", "n", "size"),
    "--layer-type": ("layer", "layer-types"),
    "--component": ("subconfig", "part", "text-config"),
    "--atol": ("tolerance", "tol", "abs", "eps", "epsilon"),
    "--rtol": ("rel", "relative"),
    "--ulp": ("ulps", "max-ulp"),
    "--tensor-a": ("tensor", "key", "name"),
    "--preset": ("model", "like"),
    "--keep": ("keep-rows", "preserve"),
    "--prefix-rows": ("num-prefix-tokens", "prefix", "cls-token", "class-token", "special-tokens", "num-extra-tokens"),
    "--padding-idx": ("padding-index", "pad-idx", "pad-token-id"),
    "--json": ("as-json",),
}  # fmt: skip
NEAR = 0.7  # of difflib, from which a word is taken for a slip of the fingers


def meant(typed: str, known: Collection[str]) -> str | None:
    """The option among `known` that who typed this is likely to want: a synonym, else one spelled nearly like it."""
    word = typed.lstrip("-").replace("_", "-").lower()
    if f"--{word}" in known:
        return f"--{word}"
    for option, words in SYNONYMS.items():
        if option in known and word in words:
            return option
    near = difflib.get_close_matches(f"--{word}", known, n=1, cutoff=NEAR)
    return near[0] if near else None
