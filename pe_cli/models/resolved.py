"""What resolving a configuration gives, and the ledger that notes where each value came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pe_cli.errors import PeError
from pe_cli.models.configuration import Configuration
from pe_cli.models.spellings import value_at

EVERY_LENGTH = "at every length"  # origin of LongRoPE's policy where a file has one list of divisors
# What other configurations call the same thing, tried after the model class's own name for it.
SYNONYMS = {
    "hidden_size": ("hidden_size", "n_embd", "d_model", "embed_dim", "dim"),
    "num_attention_heads": (
        "num_attention_heads",
        "n_head",
        "n_heads",
        "num_heads",
        "encoder_attention_heads",
        "decoder_attention_heads",
    ),
    "head_dim": ("head_dim", "kv_channels", "head_size", "attention_head_dim", "d_kv"),
    "max_position_embeddings": (
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "max_sequence_length",
        "model_max_length",
        "n_ctx",
    ),
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"),
}


@dataclass(frozen=True)
class Setting:
    """A value, where it came from, and whether that was a default rather than the file."""

    value: Any
    origin: str
    assumed: bool = False


@dataclass(frozen=True)
class ExtraTable:
    """A table by position or by layer that a model has beside its encoding."""

    name: str
    summary: str
    parameters: Mapping[str, Any]
    by: str = "position"


class LearnedTableError(PeError):
    """The positions of the model are learned: no configuration gives them, but a tensor whose name ends in `where`."""

    def __init__(
        self,
        message: str,
        *,
        file: str,
        model_type: str,
        component: str,
        where: str,
        shape: tuple[int, int] | None,
    ) -> None:
        super().__init__(message)
        self.file, self.model_type, self.component = file, model_type, component
        self.where, self.shape = where, shape


@dataclass(frozen=True)
class Resolved:
    """An encoding with its arguments, and where each of them came from.

    encoding : name in the catalogue
    parameters : keyword arguments of its function
    origins : of each argument: a key of the file, a derivation, or a default
    warnings : what was assumed, and where the file and the model's code disagree
    notes : what else to know
    layer_type, layer_types : the one resolved, and all that have a table
    unread : keys of the file that look like position settings and that nothing read
    pairing : half or adjacent: the channels that attention turns together
    axes : coordinates of a position; more than one in vision towers
    max_position : the length up to which the model says it works
    trained_length : that before any scaling; trained_origin : the key that states it, or how it was guessed
    """

    file: str
    encoding: str
    parameters: dict[str, Any]
    origins: dict[str, str]
    model_type: str = ""
    component: str = ""
    layer_type: str | None = None
    layer_types: tuple[str, ...] = ()
    max_position: int | None = None
    trained_length: int | None = None
    trained_origin: str = ""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    extra_tables: tuple[ExtraTable, ...] = ()
    axes: int = 1
    unread: tuple[str, ...] = ()
    pairing: str | None = None


class KeyLedger:
    """Looks values up in a configuration and in its model class, and notes their origin."""

    def __init__(self, config: Configuration) -> None:
        self.config, self.known = config, config.known
        self.origins: dict[str, str] = {}
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.keys_read: set[str] = set()

    def value(self, key: str) -> Any:
        """The value of a key, dotted where it lies in a nested object; None where there is none."""
        return value_at(self.config.values, key)

    def in_file(self, *keys: str) -> Setting | None:
        """The first of the keys (dotted ones reach into nested objects) that the file has and is not null."""
        for index, key in enumerate(keys):
            value = self.value(key)
            if value is not None:
                self.keys_read.update(other for other in keys[index:] if self.value(other) == value)
                return self.setting(key, value)
        return None

    def setting(self, key: str, value: Any) -> Setting:
        """A value of the file, or one that its format assumes."""
        self.keys_read.add(key)
        if key in self.config.assumed:
            return Setting(value, self.known.described(), assumed=True)
        return Setting(value, self.config.key(key))

    def geometry(self, name: str) -> Setting | None:
        """A size by its usual name: what the file calls it, else what the model class assumes."""
        alias = self.known.aliases.get(name)
        found = self.in_file(*((alias,) if alias else ()), *SYNONYMS.get(name, (name,)))
        if found is not None:
            self.whole(found)
            return found
        if name in self.known.fields:
            return Setting(self.known.fields[name], self.known.described(), assumed=True)
        return None

    def geometry_like(self, name: str) -> Setting | None:
        """A value of any type by its own name: the file's, else the model class's."""
        found = self.in_file(name)
        if found is None and name in self.known.fields:
            found = Setting(self.known.fields[name], self.known.described(), assumed=True)
        return found

    def size(self, name: str) -> Setting:
        """A size that is needed."""
        found = self.geometry(name)
        if found is None:
            keys = " or ".join(SYNONYMS.get(name, (name,))[:3])
            raise PeError(
                f"{self.config.file}: there is no {self.config.key(name)}, and {self._why_no_default()}; add {keys} to the file"
            )
        return found

    def _why_no_default(self) -> str:
        if not self.config.model_type:
            return "without model_type no default is known"
        return f"no default is known for model type {self.config.model_type!r}"

    def record(self, parameter: str, found: Setting, called: str | None = None) -> Any:
        """Note where a parameter came from; a default of the model class is a warning."""
        self.origins[parameter] = found.origin
        if found.assumed:
            self.assume(called or parameter, found)
        return found.value

    def assume(self, called: str, found: Setting) -> None:
        key = self.config.key(called)
        self.warn(f"{key} is not in {self.config.file}: {_shown(found.value)} is {found.origin}")

    def warn(self, sentence: str) -> None:
        if sentence not in self.warnings:
            self.warnings.append(sentence)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def number(self, found: Setting, *, positive: bool = True, example: str = "4.0") -> float:
        """A finite number, an error that names file, key and remedy (such as `example`) otherwise."""
        value = found.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(found, "a number", _without_quotes(value) or example)
        if not _is_finite(value) or (positive and value <= 0):
            raise self.wrong(found, "a positive number" if positive else "a finite number", example)
        return value

    def whole(self, found: Setting, *, positive: bool = True) -> int:
        """A whole number."""
        value = self.number(found, positive=positive, example="8")
        if value != int(value):
            raise self.wrong(found, "a whole number", str(int(value) or 1))
        return int(value)

    def numbers(self, found: Setting) -> tuple[float, ...]:
        """A list of numbers."""
        values = found.value
        if not isinstance(values, (list, tuple)) or not values:
            raise self.wrong(found, "a list of numbers", "[1.0, 1.02, …]")
        if any(isinstance(v, bool) or not isinstance(v, (int, float)) or not _is_finite(v) for v in values):
            raise self.wrong(found, "a list of finite numbers", "[1.0, 1.02, …]")
        return tuple(values)

    def truth(self, found: Setting) -> bool:
        if not isinstance(found.value, bool):
            raise self.wrong(found, "true or false", "false")
        return found.value

    def wrong(self, found: Setting, wanted: str, example: str) -> PeError:
        if found.assumed:
            return PeError(f"{self.config.file}: {_shown(found.value)}, {found.origin}, is not {wanted}")
        last = found.origin.rpartition(".")[2]
        return PeError(
            f'{self.config.file}: {found.origin} is {_shown(found.value)}, {wanted} is needed; write "{last}": {example}'
        )


def _without_quotes(value: Any) -> str | None:
    try:
        return f"{float(value):g}" if isinstance(value, str) else None
    except ValueError:
        return None


def _is_finite(value: float) -> bool:
    """Whether it is a number that a double can hold; JSON has whole numbers of any length."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _shown(value: Any) -> str:
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except ValueError:  # Python refuses to write out whole numbers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "…"
