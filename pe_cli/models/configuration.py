"""A configuration, what is known of its model type, and its translation into the keys of a Hugging Face `config.json`.

What is known is data, in the folder `data`:
`transformers.json` what the classes of transformers assume, collected by `tools/collect_model_defaults.py`;
`remote.json` the same for model types whose code lies beside their checkpoints;
`schemes_*.json` the encodings of models that do not rotate (see `Scheme`), `schemes_collected.json` by
`tools/collect_schemes.py` from what the models of transformers hold;
`layers.json` which layers of which kind a class makes where the file lists none, which kinds rotate, the temperature of
the queries of the others, the key of the layers that are `scaled`, and with `only_masks` that the bases in
layer_rope_theta say which layers rotate and no more;
`refused.json` the model types whose tables do not follow from a configuration, and why;
`spellings.json` the formats that are not config.json, one an entry:

format : whose they are, for the reader
types, has, lacks, any : which configurations are meant: their model types (of the classes in `architectures`, if the
    entry lists some), keys that must (not) be there, or one of them, which with `whatever_type` may have a model type
model_type : what is known of the format by this name (`remote.json`), where the file has no model type; `becomes` the
    same, whatever the file says
inside : the key of the object that is the configuration proper, of this model_type if it has none
keys : {key of the file: key of config.json}, dotted where one lies in the other
clauses : what holds only under a condition: `if` {key of the file: values} (null for a missing key, "*" for any
    value; a list fits where one of its elements does) and `longer` {length: [default, shorter length, default]}, with `keys` as above, `set` {key of config.json:
    value} said by the key `because`, `defaults` {key of config.json: [value, key of the file]} where the file is silent,
    `no_effect` keys that change no table, `layout` how the table is stored, `becomes` as above, `remark` what to say of it
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from pe_cli.errors import slips
from pe_cli.position_names import BEHIND_PADDING

SCHEME_FILES = ("schemes_text", "schemes_speech", "schemes_images", "schemes_other", "schemes_collected")
# Keys where null is a value of its own, no encoding, and not silence.
NULL_SPEAKS = frozenset({"position_embedding_type", "position_embeddings_type"})


@dataclass(frozen=True)
class Defaults:
    """What one model type assumes: the entry of a data file, whose `class` is `name` here, and `rotary` is `module`.

    rope : the rotary parameters of a configuration that says nothing
    ignores : keys that the class does not read: beside the rotary parameters, or parameters not by layer type
    reads : keys of `FOREIGN_KEYS` that its code names
    reached : layer types to which it applies a base beside the parameters of all; `reached_beside` where these are given
        without a base, and `bare` what it assumes there
    """

    model_type: str
    known: bool
    name: str = ""
    source: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    rope: dict[str, Any] | None = None
    theta: float | dict[str, float] | None = None
    partial: float | None = None
    head_dims: dict[str, int] = field(default_factory=dict)
    scaled: Sequence[str] = ()
    sections: Sequence[int] | None = None
    components: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    layout: str = "half"
    pairing: str = ""
    width: dict[str, Any] | None = None
    axial: bool = False
    interleaved: bool = False
    ignores: Sequence[str] = ()
    reads: Sequence[str] = ()
    reached: Sequence[str] = ()
    reached_beside: Sequence[str] = ()
    bare: dict[str, float] = field(default_factory=dict)
    partial_ignored: bool = False
    head_multiple: int = 1
    attention_factor: float | None = None
    module: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The layer types that have rotary parameters of their own."""
        return tuple(k for k, v in (self.rope or {}).items() if v is None or isinstance(v, dict))

    @property
    def has_axes(self) -> bool:
        """Whether its tables have coordinates instead of positions: vision towers."""
        return self.axial or self.module in data("towers")

    def described(self) -> str:
        """`the default of model type 'llama' (LlamaConfig, transformers 5.24.0)`."""
        if not self.known:
            return "the usual default, since the model type is not known here"
        return f"the default of model type {self.model_type!r} ({self.name}, {self.source})"


@dataclass(frozen=True)
class Scheme:
    """One encoding of a model type that does not rotate, or not always.

    encoding : its name in the catalogue; "learned" for a table in the checkpoint, "none" where the model has no
        positions, "elsewhere" where another command makes what the model needs (`note` says which)
    source : the code that says so; {module} stands for the model type
    label : what `layer_type` calls it, where a model has several
    when : keys with the values that choose it, and the class default: {key: [values, default]}
    takes : parameter of the encoding: [key of the configuration, default of the class]; a whole number unless the
        default is a float, whole numbers where it is a list, a word for the note where it is one
    below_one : parameters whose values less than 1 mean another key (with the class default), or where null nothing
    fixed : parameters that are the same in every model of the type
    grid : defaults of image_size and patch_size, where the positions are the patches of an image
    where : for a learned table the end of its tensor's name; `pe_cli.position_names` knows its special rows
    """

    encoding: str
    source: str
    label: str = ""
    when: dict[str, tuple[list[Any], Any]] = field(default_factory=dict)
    takes: dict[str, tuple[str, Any]] = field(default_factory=dict)
    below_one: dict[str, tuple[str, int] | None] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    grid: tuple[int, int] | None = None
    where: str = ""
    note: str = ""


@cache
def data(name: str) -> Any:
    """A data file of this package."""
    return json.loads((files(__package__) / "data" / f"{name}.json").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def _entries_of_schemes() -> dict[str, list[dict[str, Any]]]:
    groups = (group for name in SCHEME_FILES for group in data(name))
    entries = {model_type: group["schemes"] for group in groups for model_type in group["types"]}
    return {**dict.fromkeys(BEHIND_PADDING, entries["roberta"]), **entries}


def schemes(model_type: str) -> tuple[Scheme, ...]:
    """The encodings of a model type that does not rotate, or not always; none where it always does or is not known."""
    module = model_type.replace("-", "_")
    return tuple(
        Scheme(**{**entry, "source": entry["source"].replace("{module}", module)})
        for entry in _entries_of_schemes().get(model_type, ())
    )


def has_schemes(model_type: str) -> bool:
    """Whether the model type has an encoding other than rotation."""
    return model_type in _entries_of_schemes()


def labels_of(model_type: str) -> tuple[str, ...]:
    """What `--layer-type` may name in a model that does not rotate, or only in part."""
    return tuple(dict.fromkeys(scheme.label for scheme in schemes(model_type) if scheme.label))


@lru_cache(maxsize=64)
def defaults(model_type: str) -> Defaults:
    """What is known of `model_type`; `.known` is False where nothing is."""
    collected = data("transformers")
    entry = collected["models"].get(model_type) or data("remote").get(model_type)
    if entry is None:
        return Defaults(model_type, known=False)
    said = {"source": collected["source"].partition(",")[0], **entry}
    said |= {"name": said.pop("class"), "module": said.pop("rotary", "")}
    return Defaults(model_type, known=True, **said)


def part_defaults(outer: str, key: str, model_type: str, *, given: bool) -> Defaults:
    """What is known of the part `key` of a composite, which may fill it otherwise than its own class would.

    `given` says that the file has that part; most composites then leave the rest to its own class.
    """
    known, composite = defaults(model_type), defaults(outer)
    changed = dict(composite.parts.get(key, {}))
    merged = changed.pop("merged", False)
    if not changed or model_type != composite.components.get(key) or (given and not merged):
        return known
    rope = changed.pop("rope_parameters", known.rope)
    return replace(
        known,
        fields={**known.fields, **changed},
        rope=rope,
        model_type=outer,
        name=composite.name,
        source=composite.source,
    )


def known_types() -> list[str]:
    """Every model type of which something is known."""
    return [*data("transformers")["models"], *data("remote"), *_entries_of_schemes()]


def is_misspelt(typed: str, name: str) -> bool:
    """Whether `typed` can be `name` with a slip: one letter added, left out, changed or two exchanged.

    A first letter or a digit that differs is no slip: flava is not llava, and qwen4 is not qwen3.
    """
    a, b = (re.sub(r"[-_. ]", "", word.lower()) for word in (typed, name))
    if a == b:
        return True
    if min(len(a), len(b)) < 4 or a[0] != b[0] or re.findall(r"\d+", a) != re.findall(r"\d+", b):
        return False
    return slips(a, b) <= (2 if min(len(a), len(b)) >= 8 else 1)


CLASS_KEY = "_class_name"  # of the transformers of diffusers
# What other configurations call the same thing, tried after the model class's own name for it.
SYNONYMS = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "embed_dim", "dim"),
    "num_attention_heads": (
        "num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
    ),
    "head_dim": ("head_dim", "kv_channels", "head_size", "attention_head_dim", "d_kv"),
    "max_position_embeddings": (
        "max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "model_max_length", "n_ctx",
    ),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"),
}  # fmt: skip
BASE_KEYS = (
    "rope_theta",
    "rotary_emb_base",
    "rotary_embedding_base",
    "rotary_base",
    "rope_base",
    "rope_freq_base",
)
PARTIAL_KEYS = (
    "partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percentage", "rotary_percent", "rotary_emb_fraction",
    "rope_percent",
)  # fmt: skip
# Keys that not every class reads which reads the usual ones.
FOREIGN_KEYS = (
    *BASE_KEYS[1:], *PARTIAL_KEYS[1:], "rope_ratio", "kv_channels", "head_size", "attention_head_dim", "qk_rope_head_dim",
    "global_head_dim", "no_rope_layers", "alpha", "short_mscale", "long_mscale", "global_rope_theta", "rope_local_base_freq",
    "local_rope_theta", "swa_rope_theta", "sliding_rope_theta", "compress_rope_theta",
)  # fmt: skip
# Any of these says that a model rotates.
ROTARY_KEYS = (
    *BASE_KEYS, *PARTIAL_KEYS, "rope_scaling", "rope_parameters", "rotary_dim", "rope_ratio", "qk_rope_head_dim",
)  # fmt: skip
WIDTHS = (*SYNONYMS["hidden_size"], "memory_attention_hidden_size", "projection_dim")


@dataclass(frozen=True)
class Configuration:
    """The keys and values of a configuration, or of one nested in it at the dotted `path`.

    file : what the user typed, for messages
    part : what a composite assumes of this part of it
    names : what the file calls a key, where it is not what `values` call it
    assumed : keys whose values are not in the file but defaults of the format
    layout : how the table is stored, where keys of the file say it
    remarks : what else to say of the format
    above : the path and the values of each level above this one
    """

    file: str
    values: Mapping[str, Any]
    path: str = ""
    model_type: str = ""
    part: Defaults | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    assumed: frozenset[str] = frozenset()
    layout: str = ""
    remarks: tuple[str, ...] = ()
    above: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    @property
    def known(self) -> Defaults:
        """What is known of the model type, here."""
        return self.part or defaults(self.model_type)

    def key(self, name: str) -> str:
        """The full path of a key, for messages."""
        block, _, rest = name.rpartition(".")
        if block and name not in self.names and block in self.names:
            name = f"{self.names[block]}.{rest}"
        name = self.names.get(name, name)
        return f"{self.path}.{name}" if self.path else name


def is_part(key: str, value: Mapping[str, Any]) -> bool:
    """Whether a nested object is the configuration of a part of a composite."""
    if "model_type" in value:
        return True
    widths = (*WIDTHS, "width") if key.endswith("_cfg") else WIDTHS
    return not key.startswith(("rope", "quantization")) and any(name in value for name in widths)


ANY = "*"


def translated(config: Configuration) -> Configuration:
    """The configuration in the keys of config.json; `names` then has what the file calls them."""
    if config.names:
        return config
    for entry in data("spellings"):
        if not _is_meant(config, entry):
            continue
        if "inside" in entry:
            key = entry["inside"]
            inner = replace(config, values=value_at(config.values, key), path=config.key(key))
            above = (*config.above, (config.path, config.values))
            return translated(
                replace(inner, model_type=entry.get("model_type", config.model_type), above=above)
            )
        return _Translation(config, entry).done()
    return _by_architecture(config)


def _by_architecture(config: Configuration) -> Configuration:
    """A configuration without a model type, with the one whose class it names (`architectures`, `auto_map`)."""
    if config.model_type:
        return config
    listed = config.values.get("architectures")
    mapped = config.values.get("auto_map")
    classes = [
        *(listed if isinstance(listed, list) else ()),
        *(mapped.values() if isinstance(mapped, Mapping) else ()),
    ]
    key = "architectures" if listed else "auto_map"
    for name in (str(each).rpartition(".")[2] for each in classes):
        base = re.sub(r"(For[A-Z]\w*|LMHead\w*|(Pre[Tt]rained)?Model|Config|Encoder|Decoder|LM)$", "", name)
        model_type = types_by_stem().get(stem(base))
        if model_type:
            return replace(config, model_type=model_type, names={"model_type": key})
    return config


@cache
def types_by_stem() -> dict[str, str]:
    """Model types by their names without separators: xlmroberta is xlm-roberta."""
    return {stem(name): name for name in reversed(known_types())}


def stem(name: str) -> str:
    """A name without what separates its words."""
    return re.sub(r"[-_ .]", "", name).lower()


def _is_meant(config: Configuration, entry: Mapping[str, Any]) -> bool:
    values = config.values
    if "types" in entry:
        classes = values.get("architectures")
        listed = set(classes) if isinstance(classes, list) else set()
        fits = not entry.get("architectures") or bool(listed & set(entry["architectures"]))
        return config.model_type in entry["types"] and fits
    if config.model_type and not entry.get("whatever_type"):
        return False
    return (
        all(value_at(values, key) is not None for key in entry.get("has", ()))
        and not any(value_at(values, key) is not None for key in entry.get("lacks", ()))
        and (not entry.get("any") or any(value_at(values, key) is not None for key in entry["any"]))
    )


def value_at(values: Mapping[str, Any], key: str) -> Any:
    """The value of a dotted key; None where there is none. A key with a dot in its name is found too."""
    if key in values:
        return values[key]
    head, _, rest = key.partition(".")
    inner = values.get(head)
    return value_at(inner, rest) if rest and isinstance(inner, Mapping) else None


def _is_wanted(found: Any, wanted: Any) -> bool:
    """Whether a value is the one that a rule is for; text may be a pattern with `*`."""
    if isinstance(found, str) and isinstance(wanted, str):
        return fnmatchcase(found.lower(), wanted.lower())
    return found is wanted or (found == wanted and type(found) is type(wanted))


class _Translation:
    """One configuration on its way into the keys of config.json."""

    def __init__(self, config: Configuration, entry: Mapping[str, Any]) -> None:
        self.config, self.entry = config, entry
        self.said = config.values
        self.values: dict[str, Any] = copy.deepcopy(dict(config.values))
        self.names: dict[str, str] = {}
        self.assumed: set[str] = set()
        self.layout = ""
        self.model_type = entry.get("becomes", config.model_type or entry.get("model_type", ""))
        self.remarks: list[str] = []

    def done(self) -> Configuration:
        """All rules applied."""
        self._rename(self.entry.get("keys", {}))
        for clause in self.entry.get("clauses", ()):
            if self._holds(clause.get("if", {})) and self._is_longer(clause.get("longer", {})):
                self._apply(clause)
        return replace(
            self.config,
            values=self.values,
            model_type=self.model_type,
            part=self.config.part if self.model_type == self.config.model_type else None,
            remarks=tuple(self.remarks),
            names=self.names or {"": ""},
            assumed=frozenset(self.assumed),
            layout=self.layout,
        )

    def _holds(self, conditions: Mapping[str, list[Any]]) -> bool:
        for key, wanted in conditions.items():
            found = value_at(self.said, key)
            if ANY in wanted and found is not None:
                continue
            said = found if isinstance(found, list) else [found]
            if not any(_is_wanted(each, value) for each in said for value in wanted):
                return False
        return True

    def _is_longer(self, lengths: Mapping[str, list[Any]]) -> bool:
        """Whether each length is above the other that is named with it, with the defaults of both."""
        for key, (default, other, least) in lengths.items():
            if (value_at(self.said, key) or default) <= (value_at(self.said, other) or least):
                return False
        return True

    def _apply(self, clause: Mapping[str, Any]) -> None:
        self._rename(clause.get("keys", {}))
        for key, value in clause.get("set", {}).items():
            self._put(key, value, clause["because"])
        for key, (value, called) in clause.get("defaults", {}).items():
            if value_at(self.values, key) is None:
                self._put(key, value, called)
                self.assumed.add(key)
        self.model_type = clause.get("becomes", self.model_type)
        self.remarks += [clause["remark"]] if "remark" in clause else []
        if "layout" in clause:
            self.layout, self.names["layout"] = clause["layout"], next(iter(clause["if"]))
        self._take_out([*clause.get("no_effect", ()), *clause.get("if", {})])

    def _rename(self, keys: Mapping[str, str]) -> None:
        for key, wanted in keys.items():
            value = value_at(self.said, key)
            if value is not None and value_at(self.values, wanted) is None:
                self._take_out([key])
                self._put(wanted, value, key)

    def _put(self, key: str, value: Any, called: str) -> None:
        inner = self.values
        *blocks, last = key.split(".")
        for block in blocks:
            if not isinstance(inner.get(block), dict):
                inner[block] = {}
            inner = inner[block]
        inner[last] = value
        self.names[key] = called
        if blocks:
            self.names.setdefault(blocks[0], called.rpartition(".")[0] or called)

    def _take_out(self, keys: Iterable[str]) -> None:
        for key in keys:
            inner: Any = self.values
            *blocks, last = [key] if key in self.values else key.split(".")
            for block in blocks:
                inner = inner.get(block) if isinstance(inner, dict) else None
            if isinstance(inner, dict) and key not in self.names:
                inner.pop(last, None)
