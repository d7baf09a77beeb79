"""Other formats of configurations, translated into the keys of a Hugging Face `config.json`.

The table is `data/spellings.json`, one format an entry:

types, has, lacks, any : which configurations are meant: their model types, keys that must (not) be there, or one of them
model_type : what is known of the format by this name (`remote.json`), where the file has no model type; `becomes` the
    same, whatever the file says
inside : the key of the object that is the configuration proper
keys : {key of the file: key of config.json}, dotted where one lies in the other
clauses : what holds only under a condition: `if` {key of the file: values} (null for a missing key, "*" for any
    value) and `longer` {length: [default, shorter length, default]}, with `keys` as above, `set` {key of config.json: value} said by the key `because`, `defaults` {key of
    config.json: [value, key of the file]} where the file is silent, `no_effect` keys that change no table, `layout` how the table is stored,
    `becomes` as above, `remark` what to say of it
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pe_cli.models.model_types import data, known_types

if TYPE_CHECKING:
    from pe_cli.models.configuration import Configuration

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
            above = (*config.above, (config.path, config.values))
            return translated(replace(config, values=config.values[key], path=config.key(key), above=above))
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
        stem = re.sub(r"(For[A-Z]\w*|LMHead\w*|(Pre[Tt]rained)?Model|Config|Encoder|Decoder|LM)$", "", name)
        model_type = types_by_stem().get(stem.lower())
        if model_type:
            return replace(config, model_type=model_type, names={"model_type": key})
    return config


@cache
def types_by_stem() -> dict[str, str]:
    """Model types by their names without separators: xlmroberta is xlm-roberta."""
    return {re.sub(r"[-_ .]", "", name).lower(): name for name in reversed(known_types())}


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
            if not any(found is value or (found == value and type(found) is type(value)) for value in wanted):
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
