"""A configuration, and the parts of a composite model in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pe_cli.errors import PeError, no_such
from pe_cli.models.model_types import Defaults, defaults, has_schemes, part_defaults
from pe_cli.models.spellings import translated

TEXT = re.compile(r"(text|llm|language|lm)(_config|_model|_cfg)?$")
WIDTHS = (
    "hidden_size",
    "n_embd",
    "d_model",
    "embed_dim",
    "dim",
    "memory_attention_hidden_size",
    "projection_dim",
)
ROTARY_KEYS = (
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rotary_dim",
    "rotary_pct",
    "rotary_emb_base",
    "rope_pct",
)


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

    def trouble(self, key: str, what: str) -> PeError:
        return PeError(f"{self.file}: {self.key(key)} {what}")


def choose(config: Configuration, component: str | None) -> tuple[Configuration, tuple[str, ...]]:
    """The configuration named by `component` (dotted), or the one that alone can be meant, with what to say about it.

    Raises PeError, with the names there are, where several could be meant.
    """
    config = translated(config)
    if component:
        return _walk(config, component)
    if describes_itself(config):
        return config, ()
    names = list(_leaves(config))
    texts = [name for name in names if TEXT.search(name)]
    chosen = texts if len(texts) == 1 else names
    if len(chosen) == 1:
        found, notes = _walk(config, chosen[0])
        return found, (f"{chosen[0]} of this composite model is used (--component {chosen[0]})", *notes)
    if not names:
        return config, ()
    raise PeError(
        f"{config.file}: this model has several parts, choose one with --component: {', '.join(names)}"
    )


def parts(config: Configuration, component: str | None) -> Iterator[tuple[Configuration, tuple[str, ...]]]:
    """The configuration that is meant, or where several could be all of them, each with what to say about it."""
    config = translated(config)
    names = [] if component or describes_itself(config) else list(_leaves(config))
    if sum(bool(TEXT.search(name)) for name in names) == 1 or len(names) < 2:
        yield choose(config, component)
        return
    for name in names:
        yield _walk(config, name)


def describes_itself(config: Configuration) -> bool:
    """Whether position parameters and a width are at this level."""
    known = config.known
    if has_schemes(config.model_type):
        return True
    if known.known and known.rope is None and known.theta is None:
        return False
    width = any(name in config.values for name in WIDTHS) or any(name in known.fields for name in WIDTHS)
    aliased = any(known.aliases.get(name) in config.values for name in ("hidden_size",))
    return width or aliased


def _walk(config: Configuration, component: str) -> tuple[Configuration, tuple[str, ...]]:
    notes: list[str] = []
    rest = component
    while rest:
        name = _first_name(config, rest)
        config = translated(_nested(config, name, component, notes))
        rest = rest[len(name) + 1 :]
    return config, tuple(notes)


def _first_name(config: Configuration, component: str) -> str:
    """The longest name of a part with which `component` begins; names may have dots in them."""
    names = component.split(".")
    for count in range(len(names), 1, -1):
        if isinstance(config.values.get(".".join(names[:count])), Mapping):
            return ".".join(names[:count])
    return names[0]


def _nested(config: Configuration, name: str, component: str, notes: list[str]) -> Configuration:
    parts = defaults(config.model_type).components
    values = config.values.get(name)
    path = config.key(name)
    above = (*config.above, (config.path, config.values))
    if isinstance(values, Mapping):
        own = values.get("model_type")
        # Old checkpoints repeat the type of the whole in a part.
        model_type = parts.get(name, "") if own in (None, "", config.model_type) else str(own)
        model_type = model_type or str(own or "")
        part = part_defaults(config.model_type, name, model_type, given=True)
        return Configuration(config.file, values, path, model_type, part, above=above)
    if values is not None and name not in parts:
        raise PeError(f"{config.file}: {path} is no configuration, so it cannot be --component {component}")
    if name not in parts and not (TEXT.search(name) and _holds_text(config)):
        known = _names(config)
        if not known:
            raise PeError(f"{config.file}: this model has no parts; leave --component {component} out")
        raise no_such("component", component, known)
    model_type = parts.get(name, config.model_type)
    if TEXT.search(name) and _holds_text(config):
        notes.append(f"{path} is not in {config.file}: its keys are at the level above, as in older files")
        flat = {
            key: value
            for key, value in config.values.items()
            if not isinstance(value, Mapping) or key.startswith("rope")
        }
        return Configuration(config.file, flat, config.path, model_type, above=config.above)
    part = part_defaults(config.model_type, name, model_type, given=False)
    notes.append(f"{path} is not in {config.file}: everything is {part.described()}")
    return Configuration(config.file, {}, path, model_type, part, above=above)


def _holds_text(config: Configuration) -> bool:
    return any(name in config.values for name in (*WIDTHS, *ROTARY_KEYS))


def _names(config: Configuration) -> list[str]:
    nested = [
        key for key, value in config.values.items() if isinstance(value, Mapping) and is_part(key, value)
    ]
    return list(dict.fromkeys([*nested, *defaults(config.model_type).components]))


def is_part(key: str, value: Mapping[str, Any]) -> bool:
    """Whether a nested object is the configuration of a part of a composite."""
    if "model_type" in value:
        return True
    widths = (*WIDTHS, "width") if key.endswith("_cfg") else WIDTHS
    return not key.startswith(("rope", "quantization")) and any(name in value for name in widths)


def _leaves(config: Configuration, prefix: str = "") -> Iterator[str]:
    for name in _names(config):
        part = translated(_nested(config, name, name, []))
        if describes_itself(part):
            yield prefix + name
        else:
            yield from _leaves(part, f"{prefix}{name}.")
