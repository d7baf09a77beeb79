"""What is known of each model type: what its class assumes where a configuration is silent, and how it encodes positions.

All of it is data, in the folder `data`:
`transformers.json` what the classes of transformers assume, collected by `tools/collect_model_defaults.py`;
`remote.json` the same for model types whose code lies beside their checkpoints;
`schemes_*.json` the encodings of models that do not rotate (see `Scheme`), `schemes_collected.json` by
`tools/collect_schemes.py` from what the models of transformers hold;
`layers.json` which layers of which kind a class makes where the file lists none, which kinds rotate, and the
temperature of the queries of the others;
`refused.json` the model types whose tables do not follow from a configuration, and why.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from pe_cli.position_names import BEHIND_PADDING

SCHEME_FILES = ("schemes_text", "schemes_speech", "schemes_images", "schemes_other", "schemes_collected")
# Keys where null is a value of its own, no encoding, and not silence.
NULL_SPEAKS = frozenset({"position_embedding_type", "position_embeddings_type"})


@dataclass(frozen=True)
class Defaults:
    """What one model type assumes. `rope` is the rotary parameters of a configuration that says nothing."""

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
    scaled: tuple[str, ...] = ()
    sections: tuple[int, ...] | None = None
    components: dict[str, str] = field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    layout: str = "half"
    pairing: str = ""
    width: dict[str, Any] | None = None
    axial: bool = False
    interleaved: bool = False
    theta_ignored: bool = False
    partial_ignored: bool = False
    head_multiple: int = 1
    attention_factor: float | None = None
    module: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The layer types that have rotary parameters of their own."""
        return tuple(k for k, v in (self.rope or {}).items() if v is None or isinstance(v, dict))

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
    label : what `--layer-type` calls it, where a model has several
    when : keys with the values that choose it, and the class default: {key: [values, default]}
    takes : parameter of the encoding: [key of the configuration, default of the class]; a whole number unless the
        default is a float, whole numbers where it is a list
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


@lru_cache(maxsize=64)
def defaults(model_type: str) -> Defaults:
    """What is known of `model_type`; `.known` is False where nothing is."""
    collected = data("transformers")
    entry = collected["models"].get(model_type) or data("remote").get(model_type)
    if entry is None:
        return Defaults(model_type, known=False)
    return Defaults(
        model_type,
        known=True,
        name=entry["class"],
        source=entry.get("source", collected["source"].partition(",")[0]),
        fields=entry.get("fields", {}),
        aliases=entry.get("aliases", {}),
        rope=entry.get("rope"),
        theta=entry.get("theta"),
        partial=entry.get("partial"),
        head_dims=entry.get("head_dims", {}),
        scaled=tuple(entry.get("scaled", ())),
        sections=tuple(entry["sections"]) if "sections" in entry else None,
        components=entry.get("components", {}),
        parts=entry.get("parts", {}),
        layout=entry.get("layout", "half"),
        pairing=entry.get("pairing", ""),
        width=entry.get("width"),
        axial=entry.get("axial", False),
        interleaved=entry.get("interleaved", False),
        theta_ignored=bool(entry.get("rope")) and entry.get("theta_ignored", False),
        partial_ignored=entry.get("partial_ignored", False),
        attention_factor=entry.get("attention_factor"),
        head_multiple=entry.get("head_multiple", 1),
        module=entry.get("rotary", ""),
    )


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
    return _slips(a, b) <= (2 if min(len(a), len(b)) >= 8 else 1)


def _slips(a: str, b: str) -> int:
    """The distance of Damerau and Levenshtein, neighbours exchanged counting once."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                row[-1] = min(row[-1], rows[-2][j - 2] + 1)
        rows.append(row)
    return rows[-1][-1]
