"""What people type instead: names of papers, configurations and other tools, and the line that does what they mean."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module

from pe_cli.catalogue import CATALOGUE
from pe_cli.errors import PeError, nearest, no_such, option_name

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
    "--force": ("overwrite", "yes", "clobber"),
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

# what a command is called elsewhere
COMMANDS = {
    **dict.fromkeys(("generate", "make", "create", "new", "build", "table"), "gen"),
    **dict.fromkeys(
        ("identify", "show", "info", "view", "cat", "head", "describe", "look", "detect"), "inspect"
    ),
    **dict.fromkeys(
        ("resize", "resample", "interpolate", "lengthen", "longer", "expand", "convert"), "extend"
    ),
    **dict.fromkeys(("compare", "cmp", "difference", "check", "verify", "test"), "diff"),
}
# what an encoding is called elsewhere
ENCODINGS = {
    **dict.fromkeys(("rotary", "rotary-embedding", "roformer", "rope1d", "rope2d", "rotary-emb"), "rope"),
    **dict.fromkeys(
        ("sine", "sincos", "sin-cos", "sin", "cos", "absolute-sinusoidal", "vaswani", "pe"), "sinusoidal"
    ),
    **dict.fromkeys(
        ("absolute", "ape", "bert", "gpt2", "gpt-2", "vit", "embedding", "pos-embed", "wpe"), "learned"
    ),
    **dict.fromkeys(("relative", "rpe", "clipped", "relative-position"), "shaw"),
    **dict.fromkeys(("t5-bias", "relative-bias", "mt5", "relative-attention-bias"), "t5"),
    **dict.fromkeys(("rwpe", "rwse", "randomwalk", "random-walks", "rw"), "random-walk"),
    **dict.fromkeys(("lappe", "lap-pe", "lpe", "laplace", "eigenvectors", "spectral"), "laplacian"),
    **dict.fromkeys(("spd", "graphormer", "shortest-paths"), "shortest-path"),
    **dict.fromkeys(("transformerxl", "xl", "txl"), "transformer-xl"),
    **dict.fromkeys(("swin-v2", "swinv2", "beit"), "swin"),
    **dict.fromkeys(("bloom", "linear-bias"), "alibi"),
    "grit": "rrwp",
    "nope": "learned",
    "deberta-v2": "deberta",
    "deberta-v3": "deberta",
    "dit-timestep": "timestep",
    "time": "timestep",
    "fourier-features": "fourier",
    "forgetting": "fox",
    "reformer": "axial",
    "longt5": "global-tokens",
    "effective-resistance": "resistance-distance",
    "commute-time": "resistance-distance",
}
PARAMETERS = (
    "scaling",
    "style",
    "scheme",
    "axis_style",
    "layout",
)  # where a name given as an encoding is looked for
# options that an encoding does not have, since they follow from something else
ABSENT = {
    ("t5", "heads"): "the bias is learned: --table gives it, with its heads; without it these are buckets",
    ("shaw", "heads"): "the vectors are shared by all heads; --table gives them",
    ("deberta", "heads"): "the index is the same for all heads",
    ("swin", "heads"): "the bias is learned: --table gives it, with its heads; without it this is the index",
    ("global-tokens", "heads"): "the bias is learned: --table gives it, with its heads",
    ("rope", "heads"): "the table is the same for all heads; --dim is the width of one",
    ("sinusoidal", "heads"): "the table is added before heads are split; --dim is the width of the model",
    ("alibi", "dim"): "the bias has no width; --heads says how many slopes",
}


def meant(typed: str, known: Collection[str]) -> str | None:
    """The option among `known` that who typed this is likely to want: a synonym, else one spelled nearly like it."""
    word = typed.lstrip("-").replace("_", "-").lower()
    if f"--{word}" in known:
        return f"--{word}"
    for option, words in SYNONYMS.items():
        if option in known and word in words:
            return option
    return nearest(f"--{word}", known) if len(word) > 2 else None


def no_such_option(typed: str, known: Collection[str], encoding: str | None, argv: Sequence[str]) -> str:
    """The sentence for an option that a command does not have, with the line that does what was meant."""
    word = typed.lstrip("-").replace("_", "-").lower()
    why = ABSENT.get((encoding or "", SAME_AS_HEADS.get(word, word)))
    if why:
        return f"No such option: {typed}; {why}"
    near = meant(typed, known)
    if near is None:
        return f"No such option: {typed}"
    words = [_mended(word, known) for word in argv]
    line = f": {line_of(words)}" if words != list(argv) else ""
    return f"No such option: {typed} (did you mean {near}?){line}"


def _mended(word: str, known: Collection[str]) -> str:
    """A word of the line, with the option that is meant where it is one that the command does not have."""
    option, equals, value = word.partition("=")
    if not option.startswith("--") or option in known:
        return word
    return (meant(option, known) or option) + equals + value


SAME_AS_HEADS = dict.fromkeys(SYNONYMS["--heads"], "heads")


def no_such_command(word: str, rest: Sequence[str]) -> PeError:
    """The error for a first word that is no command of `pe`."""
    folded = _folded(word)
    if folded in CATALOGUE or folded == "model":
        return PeError(f"{word} is made by gen: {line_of(['gen', folded, *rest])}")
    if folded in COMMANDS:
        return PeError(f"no command {word!r}: {line_of([COMMANDS[folded], *rest])}")
    if folded in ("list", "ls", "encodings"):
        return PeError(f"no command {word!r}: {line_of(['gen', '--list'])}")
    near = nearest(word, ("gen", "inspect", "extend", "diff"))
    if near is None and (line := next(_elsewhere(word, rest), None)):
        return PeError(line)
    return no_such("command", word, ("gen", "inspect", "extend", "diff"))


def no_such_encoding(word: str, rest: Sequence[str]) -> PeError:
    """The error for a word behind `gen` that is no encoding."""
    known = [*CATALOGUE, "model"]
    slip = _folded(word) not in ENCODINGS and nearest(word, known) is not None
    line = None if slip else next(_elsewhere(word, rest), None)
    return PeError(line) if line else no_such("encoding", word, known)


def _elsewhere(word: str, rest: Sequence[str]) -> Iterator[str]:
    """Lines for a word that is a model, a value of some encoding's option, or another name of an encoding."""
    folded = _folded(word)
    if folded in ENCODINGS:
        yield f"no encoding {word!r}: {line_of(['gen', ENCODINGS[folded], *rest])}"
    from pe_cli.models.read import preset_names

    names = {_folded(name): name for name in preset_names()}
    if folded in names:
        yield f"{names[folded]} is a model: {line_of(['gen', 'model', names[folded], *rest])}"
    yield from _value(folded, word, rest)
    near = nearest(word, names)
    if near is not None:
        yield f"no encoding {word!r}; did you mean the model {names[near]}? {line_of(['gen', 'model', names[near], *rest])}"


def _value(folded: str, word: str, rest: Sequence[str]) -> Iterator[str]:
    from pe_cli.signature import parameters

    for option in PARAMETERS:
        for name, entry in CATALOGUE.items():
            module, _, function = entry.target.partition(":")
            known = parameters(getattr(import_module(f"pe_cli.encodings.{module}"), function))
            choice = known[option].choice if option in known else None
            if choice is None:
                continue
            values = {_folded(value): value for value in (*choice.names, *(choice.aliases or ()))}
            if folded in values:
                line = line_of(["gen", name, option_name(option), values[folded], *rest])
                kind = option.replace("_", " ")
                yield f"{word} is {'an' if kind[0] in 'aeiou' else 'a'} {kind} of {name}: {line}"


def extra_words(words: Sequence[str], options: Collection[str], argv: Sequence[str]) -> str | None:
    """The line for numbers that were given without their options: `gen rope 4096 128`."""
    if not words or not all(re.fullmatch(r"\d+", word) for word in words):
        return None
    free = [o for o in ("--len", "--dim", "--heads") if o in options and o not in argv][: len(words)]
    if len(free) < len(words):
        return None
    left = list(argv)
    for word in words:
        left.remove(word)
    pairs = [part for pair in zip(free, words, strict=True) for part in pair]
    at = 2 if left[:1] == ["gen"] else 1
    return f"numbers are given by options: {line_of([*left[:at], *pairs, *left[at:]])}"


def whole_number(option: str, text: str) -> str | None:
    """The sentence for `--len 4k` and the like."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg])i?b?", text.lower())
    if found:
        power = "kmg".index(found[2]) + 1
        number = float(found[1])
        binary, decimal = int(number * 1024**power), int(number * 1000**power)
        return f"{option} {text}: write the number out, {option} {binary} or {option} {decimal}"
    plain = text.replace(",", "")
    try:
        value = float(plain)
    except ValueError:
        return None
    if not value.is_integer():  # nor NaN or infinite
        return None
    return f"{option} {text}: a whole number is needed, {option} {int(value)}"


def line_of(words: Sequence[str]) -> str:
    """The command line of these words."""
    return shlex.join(["pe", *words])


def _folded(word: str) -> str:
    return word.lower().replace("_", "-")
