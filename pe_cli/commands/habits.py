"""What people type instead: names of papers, configurations and other tools, and the line that does what they mean."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import NamedTuple

from pe_cli.catalogue import CATALOGUE
from pe_cli.errors import PeError, folded, nearest, no_such, option_name

# from our option to what it is called elsewhere; a command shows the first of ours that it has
SYNONYMS: dict[str, tuple[str, ...]] = {
    "--len": (
        "length", "size", "rows", "n", "num-positions", "n-positions", "max-len", "max-length",
        "max-seq-len", "max-seq-length", "max-sequence-length", "max-position-embeddings", "max-positions",
        "sequence-length", "seq-length", "seq", "context", "context-length", "ctx", "ctx-len", "n-ctx", "num-embeddings",
        "new-len", "new-length", "target-len", "target-length", "to", "num-tokens", "tokens", "model-max-length",
        "timesteps", "num-timesteps", "max-seq-len-cached", "seq-len", "seqlen", "maxlen", "max-seqlen", "max-seq", "l",
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
    "--positions": ("pos", "position-ids", "indices", "ids", "range"),
    "--num-buckets": ("buckets", "relative-attention-num-buckets", "n-buckets"),
    "--max-distance": ("relative-attention-max-distance", "max-dist", "distance", "max-relative-position", "clip"),
    "--max-relative-positions": ("max-relative-position",),
    "--causal": ("unidirectional", "decoder", "is-decoder", "is-causal", "mask"),
    "--bidirectional": ("encoder", "symmetric"),
    "--num-bands": ("bands", "num-freqs", "num-frequencies", "n-freqs", "multires", "num-frequency-bands"),
    "--steps": ("walk-length", "num-steps", "ksteps", "k"),
    "--k": ("num-eigenvectors", "num-eigs", "n-eigenvectors", "num-eigenvecs", "eigs", "eigenvectors", "max-freqs", "n-eigs", "dim", "pos-enc-dim"),
    "--q": ("potential", "charge"),
    "--norm": ("normalization", "normalisation", "normalized", "laplacian-norm"),
    "--num-nodes": ("nodes", "n-nodes", "n", "size"),
    "--layer-type": ("layer", "layer-types"),
    "--component": ("subconfig", "part", "text-config"),
    "--atol": ("tolerance", "tol", "abs", "eps", "epsilon", "threshold", "absolute"),
    "--rtol": ("rel", "relative"),
    "--ulp": ("ulps", "max-ulp"),
    "--tensor-a": ("tensor", "key", "name"),
    "--preset": ("model", "like"),
    "--keep": ("keep-rows", "preserve"),
    "--prefix-rows": ("num-prefix-tokens", "prefix", "cls-token", "class-token", "special-tokens", "num-extra-tokens"),
    "--padding-idx": ("padding-index", "pad-idx", "pad-token-id"),
    "--json": ("as-json",),
    "--plot": ("show", "draw", "picture", "png", "figure", "heatmap"),
}  # fmt: skip

# what a command is called elsewhere
COMMANDS = {
    **dict.fromkeys(("generate", "make", "create", "new", "build", "table"), "gen"),
    **dict.fromkeys(("identify", "show", "info", "view", "cat", "head", "describe", "look", "detect"), "inspect"),
    **dict.fromkeys(("resize", "resample", "interpolate", "lengthen", "longer", "expand"), "extend"),
    **dict.fromkeys(("compare", "cmp", "difference", "check", "verify", "test"), "diff"),
}  # fmt: skip
# what an encoding is called elsewhere
ENCODINGS = {
    **dict.fromkeys(("rotary", "rotary-embedding", "roformer", "rope1d", "rope2d", "rotary-emb", "freqs"), "rope"),
    **dict.fromkeys(("sine", "sincos", "sin-cos", "sin", "cos", "absolute-sinusoidal", "vaswani", "pe", "positional-encoding"), "sinusoidal"),
    **dict.fromkeys(("absolute", "ape", "embeddings", "bert", "roberta", "gpt2", "gpt-2", "clip", "opt", "learnable", "trainable", "embedding", "pos-embed", "wpe"), "learned"),
    **dict.fromkeys(("relative", "rpe", "clipped", "relative-position"), "shaw"),
    **dict.fromkeys(("t5-bias", "relative-bias", "mt5", "relative-attention-bias"), "t5"),
    **dict.fromkeys(("rwpe", "rwse", "randomwalk", "random-walks", "rw"), "random-walk"),
    **dict.fromkeys(("lappe", "lap-pe", "lpe", "laplace", "eigenvectors", "spectral"), "laplacian"),
    **dict.fromkeys(("spd", "graphormer", "shortest-paths"), "shortest-path"),
    **dict.fromkeys(("transformerxl", "xl", "txl"), "transformer-xl"),
    **dict.fromkeys(("swin-v2", "swinv2", "beit"), "swin"),
    **dict.fromkeys(("bloom", "mpt", "linear-bias"), "alibi"),
    **dict.fromkeys(("mrope", "m-rope", "multimodal-rope"), "rope --sections 16,24,24"),
    **dict.fromkeys(("sincos2d", "2d-sincos", "sin-cos-2d", "sinusoidal2d", "sinusoidal-2d", "2d", "vit", "mae"), "sinusoidal --style mae"),
    "grit": "rrwp",
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
}  # fmt: skip
NO_POSITIONS = frozenset({"nope", "none", "no", "no-positions"})
DASHES = "\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}"  # which editors make of hyphens
# what joins the values of an option, by what stands for them in the help
LISTS = {"N,N,…": ",", "X,X,…": ",", "SPEC": ",", "HxW": "x"}
# what is said of many encodings and names none
GENERAL = frozenset(
    "embedding embeddings relative absolute relative-position relative-bias positional-encoding pe pos-embed".split()
)
# where a name given as an encoding is looked for
PARAMETERS = ("scaling", "style", "scheme", "axis_style", "layout")
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
# options of other tools that no command of ours has, and why
EVERYWHERE = {
    **dict.fromkeys(("device", "cuda", "gpu", "cpu"), "tables are computed on the CPU, the same bits everywhere"),
    **dict.fromkeys(("batch", "batch-size", "bs", "b"), "one table serves every sequence of a batch"),
    **dict.fromkeys(("verbose", "v", "debug"), "-V is the version, what was made is said anyway, --json says all of it; PE_DEBUG=1 shows where errors arise"),
    **dict.fromkeys(("offset", "start", "start-pos", "end", "stop", "first"), "--positions START:STOP says which rows"),
    **dict.fromkeys(("list", "encodings", "ls", "all"), "'pe gen --list' shows every encoding, 'pe gen model --list' the presets"),
    **dict.fromkeys(("download", "from-pretrained", "repo", "hub"), "pe downloads nothing: give a config.json or a folder to 'pe gen model'"),
}  # fmt: skip
# options of other tools that say an option of ours and its value
SETTINGS = {
    "align-corners": ("--anchor", "ends"),
    "no-align-corners": ("--anchor", "half"),
    "rotate-half": ("--layout", "half"),
    "causal": ("--form", "causal"),
    "bf16": ("--dtype", "bfloat16"),
    "fp16": ("--dtype", "float16"),
    "fp32": ("--dtype", "float32"),
    "fp64": ("--dtype", "float64"),
}
IS_THE_ARGUMENT = frozenset(
    "file input in source path checkpoint ckpt graph config model tensor-file infile i".split()
)


def meant(typed: str, known: Collection[str]) -> str | None:
    """The option among `known` that who typed this is likely to want: a synonym, else one spelled nearly like it."""
    word = folded(typed.lstrip("-"))
    if f"--{word}" in known:
        return f"--{word}"
    for option, words in SYNONYMS.items():
        if option in known and word in words:
            return option
    negated = word.startswith("no-")
    near = {
        option[2:]: option for option in known if option[:2] == "--" and option.startswith("--no-") == negated
    }
    found = nearest(word, near) if len(word) > 2 else None
    return None if found is None else near[found]


def no_such_option(
    typed: str,
    known: Collection[str],
    encoding: str | None,
    argv: Sequence[str],
    choices: Mapping[str, Sequence[str]],
    *,
    has_argument: bool = False,
) -> str:
    """The sentence for an option that a command does not have, with the line that does what was meant.

    `choices` are the values that options take by name, for `--bf16` and `--yarn`.
    """
    word = folded(typed.lstrip("-"))
    settings = _settings(word, known, choices)
    why = ABSENT.get((encoding or "", SAME_AS_HEADS.get(word, word)))
    if why is None and not settings and not any(word in SYNONYMS.get(option, ()) for option in known):
        why = EVERYWHERE.get(word)
    if why and re.match("--[a-z]+", why) and why.split()[0] not in known:
        why = None
    if why:
        return f"No such option: {typed}; {why}"
    if len(settings) > 1:
        either = " or ".join(" ".join(setting) for setting in settings)
        return f"No such option: {typed}; did you mean {either}?"
    near = settings[0][0] if settings else meant(typed, known)
    if near is None and has_argument and word in IS_THE_ARGUMENT:
        words = [part for part in argv if part not in (typed, f"--{word}")]
        return f"No such option: {typed}; the file stands by itself: {line_of(words)}"
    if near is None:
        return f"No such option: {typed}"
    words = [part for given in argv for part in _mended(given, known, choices)]
    line = f": {line_of(words)}" if words != list(argv) else ""
    return f"No such option: {typed} (did you mean {' '.join(settings[0]) if settings else near}?){line}"


def _settings(
    word: str, known: Collection[str], choices: Mapping[str, Sequence[str]]
) -> list[tuple[str, str]]:
    """The options with their values that a bare `--word` can stand for."""
    if word in SETTINGS and SETTINGS[word][0] in known:
        return [SETTINGS[word]]
    return [
        (option, value) for option, values in choices.items() for value in values if folded(value) == word
    ]


def _mended(word: str, known: Collection[str], choices: Mapping[str, Sequence[str]]) -> list[str]:
    """A word of the line, with the option that is meant where it is one that the command does not have."""
    option, equals, value = word.partition("=")
    together = re.fullmatch(r"(--[a-z-]*[a-z])(\d+)", word)
    if together and together[1] in known:
        return [together[1], together[2]]
    if word[:1] in DASHES:
        option = f"--{option.lstrip(DASHES)}"
    if not re.match(r"--?[A-Za-z]", option) or option in known:
        return [option + equals + value]
    settings = _settings(folded(option.lstrip("-")), known, choices)
    if len(settings) == 1 and not equals:
        return list(settings[0])
    return [(meant(option, known) or option) + equals + value]


SAME_AS_HEADS = dict.fromkeys(SYNONYMS["--heads"], "heads")


def options_first(argv: Sequence[str], commands: Collection[str]) -> str | None:
    """The sentence where options stand before the command that they belong to, or None where no command follows them."""
    path = [word for word in argv if folded(word) in commands][:1]
    if path == ["gen"]:
        path += [word for word in argv if folded(word) in CATALOGUE or word == "model"][:1]
    if path == list(argv[: len(path)]):
        return None
    rest = list(argv)
    for word in path:
        rest.remove(word)
    return f"options follow the command: {line_of([*path, *rest])}"


def no_such_command(word: str, rest: Sequence[str]) -> PeError:
    """The error for a first word that is no command of `pe`."""
    said = folded(word)
    if said in CATALOGUE or said == "model":
        return PeError(f"{word} is made by gen: {_line_of_gen(said, rest)}")
    if said in COMMANDS:
        return PeError(f"no command {word!r}: {line_of([COMMANDS[said], *rest])}")
    if said in ("list", "ls", "encodings"):
        return PeError(f"no command {word!r}: {line_of(['gen', '--list'])}")
    if said in ("plot", "draw", "visualize", "visualise"):
        return PeError(f"no command {word!r}: {line_of(['inspect', *rest, '--plot', 'table.png'])}")
    if said == "version":
        return PeError(f"no command {word!r}: {line_of(['--version'])}")
    if said in ("convert", "cast", "save", "export", "dump"):
        return PeError(
            f"no command {word!r}: pe changes no file into another format; {line_of(['gen', 'NAME', '-o', 'FILE'])} writes "
            "a table in the format that FILE ends in"
        )
    near = nearest(word, ("gen", "inspect", "extend", "diff"))
    if near is not None:
        return PeError(f"no command {word!r}; did you mean {near!r}? {line_of([near, *rest])}")
    if line := _elsewhere(word, rest):
        return PeError(line)
    return no_such("command", word, ("gen", "inspect", "extend", "diff"))


def no_such_encoding(word: str, rest: Sequence[str]) -> PeError:
    """The error for a word behind `gen` that is no encoding."""
    said = folded(word)
    if said in ("list", "ls", "all", "encodings"):
        return PeError(f"no encoding {word!r}: {line_of(['gen', '--list'])}")
    if said == "help":
        return PeError(f"no encoding 'help': {line_of(['help', 'gen', *rest])}")
    if said in NO_POSITIONS:
        return PeError(f"no encoding {word!r}: a model without positions has no table")
    near = None if said in ENCODINGS else nearest(word, [*CATALOGUE, "model"])
    line = None if near else _elsewhere(word, rest)
    if line:
        return PeError(line)
    remedy = (
        f"did you mean {near!r}? {_line_of_gen(near, rest)}"
        if near
        else "'pe gen --list' shows what there is"
    )
    return PeError(f"no encoding {word!r}; {remedy}")


def _line_of_gen(encoding: str, rest: Sequence[str]) -> str:
    """The line `pe gen ENCODING` with these words behind it, options of other tools mended."""
    if not rest or encoding == "model":
        return line_of(["gen", encoding, *rest])
    from pe_cli.commands.gen import Encoding

    known = [
        flag for one in Encoding(encoding).declared() for flags in one.flags for flag in flags.split("/")
    ]
    return line_of(["gen", encoding, *(part for word in rest for part in _mended(word, known, {}))])


def _elsewhere(word: str, rest: Sequence[str]) -> str | None:
    """What to type for a word that is a model, a value of some encoding's option, or another name of an encoding."""
    said = folded(word)
    if said in ENCODINGS:
        encoding, *more = ENCODINGS[said].split()
        return f"no encoding {word!r}: {_line_of_gen(encoding, [*more, *rest])}"
    from pe_cli.models.read import presets_like

    names = presets_like(word)
    if len(names) == 1:
        return f"{word} is a model: {line_of(['gen', 'model', names[0], *rest])}"
    setting = next(_values(said, CATALOGUE), None)
    if names and (setting is None or said == "llama"):
        shown = ", ".join(names[:6]) + (", …" if len(names) > 6 else "")
        usual = "llama-3.1" if "llama-3.1" in names else names[0]
        return f"{word} is a family of models ({shown}): {line_of(['gen', 'model', usual, *rest])}"
    if setting is None:
        return _of_parts(word, rest)
    kind = setting.parameter.replace("_", " ")
    line = _line_of_gen(setting.encoding, [option_name(setting.parameter), setting.value, *rest])
    return f"{word} is {'an' if kind[0] in 'aeiou' else 'a'} {kind} of {setting.encoding}: {line}"


def _of_parts(word: str, rest: Sequence[str]) -> str | None:
    """What to type for a name made of several words: `rope+yarn`, `LlamaRotaryEmbedding`, `get_2d_sincos_pos_embed`."""
    parts = [folded(part) for part in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z0-9]+(?![a-z])", word)]
    pairs = [f"{first}-{second}" for first, second in pairwise(parts)]
    known = [one for one in (*pairs, *parts) if one in CATALOGUE or one in ENCODINGS]
    # Every second class is an embedding or a relative bias: the other words say which.
    named = min(known, key=lambda one: one in GENERAL, default=None)
    if named is None or len(parts) < 2:
        return None
    encoding, *more = ENCODINGS.get(named, named).split()
    settings = (one for part in parts if part != named for one in _values(part, [encoding]))
    setting = next(
        (one for one in settings if one.parameter != "layout"), None
    )  # llama names one of each kind
    if setting is not None:
        more = [option_name(setting.parameter), setting.value]
    return f"no encoding {word!r}: {_line_of_gen(encoding, [*more, *rest])}"


class _Setting(NamedTuple):
    encoding: str
    parameter: str
    value: str


def _values(said: str, encodings: Collection[str]) -> Iterator[_Setting]:
    """The parameters of these encodings that have a value called so."""
    from pe_cli.signature import parameters

    for option in PARAMETERS:
        for name in encodings:
            module, _, function = CATALOGUE[name].target.partition(":")
            known = parameters(getattr(import_module(f"pe_cli.encodings.{module}"), function))
            choice = known[option].choice if option in known else None
            values = () if choice is None else (*choice.names, *(choice.aliases or ()))
            yield from (_Setting(name, option, value) for value in values if folded(value) == said)


def extra_words(words: Sequence[str], options: Mapping[str, str], argv: Sequence[str]) -> str | None:
    """The line for what was given without its option: `gen rope 4096 128`, `gen rope len=8`, a second file.

    `options` are those of the command with what stands for their values in the help.
    """
    at = 2 if argv[:1] == ["gen"] else 1
    left = list(argv)
    for word in words:
        left.remove(word)
    behind = _option_before(words, options, argv)
    sign = LISTS.get(options.get(behind or "", ""))
    if behind and sign:
        listed = sign.join([left[left.index(behind) + 1], *words])
        left[left.index(behind) + 1] = listed
        return f"{behind} takes its values in one word: {line_of(left)}"
    if words[0][:1] in DASHES:
        mended = [part for word in argv for part in _mended(word, options, {})]
        return f"options begin with two hyphens: {line_of(mended)}"
    if behind and not options[behind]:
        return f"{behind} {' '.join(words)}: {behind} takes no value"
    if words and all(re.fullmatch(r"[A-Za-z][\w-]*=.+", word) for word in words):
        pairs = [part for word in words for part in _mended(f"--{word}", options, {})]
        return f"options begin with --: {line_of([*left[:at], *pairs, *left[at:]])}"
    if words and all(re.fullmatch(r"\d+", word) for word in words):
        free = [o for o in ("--len", "--dim", "--heads") if o in options and o not in argv][: len(words)]
        if len(free) == len(words):
            pairs = [part for pair in zip(free, words, strict=True) for part in pair]
            return f"numbers are given by options: {line_of([*left[:at], *pairs, *left[at:]])}"
    if argv[:1] == ["diff"]:
        return "two tables are compared at a time, A and B"
    if argv[:1] == ["inspect"]:
        return (
            f"one source at a time; two are compared by {line_of(['diff', left[1], words[0]])}"
            if len(left) > 1
            else None
        )
    if len(words) == 1 and "--output" in options and not {"-o", "--output"} & set(argv) and "." in words[0]:
        return f"the file to write is given by -o: {line_of([*left, '-o', words[0]])}"
    given = " ".join([left[left.index(behind) + 1], *words]) if behind else ""
    return f"{behind} {given}: one value is taken, without spaces" if behind else None


def _option_before(words: Sequence[str], options: Mapping[str, str], argv: Sequence[str]) -> str | None:
    """The option whose value these words follow."""
    for at, word in enumerate(argv):
        begin = at + 2 if options.get(word) else at + 1  # a flag has no value
        if word.startswith("-") and word in options and [*argv[begin : begin + len(words)]] == [*words]:
            return word
    return None


def missing(what: str, path: str) -> str:
    """The sentence for an argument or option without which a command cannot be run."""
    command = path.split()[1:]
    known = CATALOGUE.get(command[-1]) if command else None
    examples = {
        "model": "pe gen model llama-3.1 --len 4096 -o cache.safetensors",
        "inspect": "pe inspect table.npy",
        "extend": "pe extend model.safetensors --len 1024 -o longer.safetensors",
        "diff": "pe diff mine.npy theirs.npy",
    }
    example = known.example(command[-1]) if known else examples.get(command[-1] if command else "")
    return f"{what} is missing" + (f"; for example: {example}" if example else "")


def number(option: str, text: str, *, whole: bool) -> str:
    """The sentence for `--len 4k`, `--heads 12.5`, `--base 500k` and the like."""
    what = f"{option} {shlex.quote(text)}"
    needed = "a whole number is needed" if whole else "a number is needed"
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg])i?b?", text.lower())
    if found:
        power = "kmg".index(found[2]) + 1
        either = [float(found[1]) * step**power for step in (1024, 1000)]
        return f"{what}: write the number out, {' or '.join(f'{option} {value:.0f}' for value in either)}"
    product = re.fullmatch(r"(\d{1,9})\s*(\*\*|\^|\*|x)\s*(\d{1,2})", text)
    if product:
        first, second = int(product[1]), int(product[3])
        value = float(first**second if product[2] in ("**", "^") else first * second)
    elif re.fullmatch(r"0x[0-9a-f]{1,8}", text.lower()):
        value = float(int(text, 16))
    else:
        try:
            value = float(text.replace(",", "") if whole else text.replace(",", "").rstrip("x"))
        except ValueError:
            return f"{what}: {needed}"
    fits = abs(value) < 2**53 and (not whole or value.is_integer())  # neither NaN nor infinite
    return f"{what}: {needed}" + (f", {option} {value:.15g}" if fits else "")


def line_of(words: Sequence[str]) -> str:
    """The command line of these words."""
    return shlex.join(["pe", *words])
