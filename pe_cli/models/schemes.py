"""From a configuration of a model that does not rotate to its encoding, or to where its learned table lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pe_cli.errors import PeError
from pe_cli.models import layers
from pe_cli.models.configuration import NULL_SPEAKS, SYNONYMS, Scheme, data, labels_of, schemes
from pe_cli.models.resolved import KeyLedger, LearnedTableError, Resolved, Setting, unread_keys
from pe_cli.position_names import Front, front_of_model

ROTATES = frozenset({"rotary", "rope"})
SHAW = frozenset({"relative_key", "relative_key_query"})


def chosen_scheme(ledger: KeyLedger, layer_type: str | None) -> Scheme | None:
    """What the model uses instead of rotation, if it does."""
    known = schemes(ledger.config.model_type)
    fitting = [scheme for scheme in known if _applies(ledger, scheme)]
    kind = ledger.in_file(*sorted(NULL_SPEAKS))
    if kind is not None and _is_one_of(kind.value, ROTATES):
        fitting = [scheme for scheme in fitting if layer_type and scheme.label == layer_type]
    if not fitting:
        _refuse_unknown_value(ledger, known)
        return None
    if kind is not None and not any(NULL_SPEAKS & scheme.when.keys() for scheme in known):
        ledger.keys_read.discard(kind.origin)  # it chose nothing
    if (
        kind is not None
        and _is_one_of(kind.value, SHAW)
        and not any(NULL_SPEAKS & s.when.keys() for s in fitting)
    ):
        raise PeError(
            f"{ledger.config.file}: {kind.origin} {kind.value!r} is Shaw's relative encoding, with a learned table that ends in "
            "attention.self.distance_embedding.weight; `pe gen shaw` makes its index"
        )
    labels = [s.label for s in fitting if s.label]
    if layer_type is not None:
        named = [s for s in fitting if s.label == layer_type]
        if not named:
            raise layers.no_layer_type(ledger.config.file, layer_type, labels)
        return named[0]
    if len(labels) > 1:
        ledger.warn(
            f"{ledger.config.model_type} has a table each for {' and '.join(labels)}: this is the layer type {labels[0]}"
        )
    return fitting[0]


def _is_one_of(value: Any, names: frozenset[str]) -> bool:
    return isinstance(value, str) and value in names


def _applies(ledger: KeyLedger, scheme: Scheme) -> bool:
    for key, (values, default) in scheme.when.items():
        found = ledger.in_file(key)
        value = default if found is None else found.value
        if found is None and key in NULL_SPEAKS and key in ledger.config.values:
            value = None
        if not any(value is wanted or (value == wanted and type(value) is type(wanted)) for wanted in values):
            return False
    return True


def _refuse_unknown_value(ledger: KeyLedger, known: tuple[Scheme, ...]) -> None:
    """Raise where the file names an encoding that the model does not have."""
    wanted: dict[str, list[str]] = {}
    for scheme in known:
        for key, (values, _) in scheme.when.items():
            wanted.setdefault(key, []).extend(value for value in values if isinstance(value, str))
    for key, names in wanted.items():
        found = ledger.in_file(key)
        if names and found is not None and not _is_one_of(found.value, ROTATES):
            condition = data("refused")["turns_only_if"].get(ledger.config.model_type)
            turning = condition[1] if condition else ("rotary",)
            if ledger.known.theta is not None:
                names.extend(str(value) for value in turning)
            raise ledger.wrong(found, "one of " + ", ".join(dict.fromkeys(names)), f'"{names[0]}"')


def from_scheme(ledger: KeyLedger, scheme: Scheme) -> Resolved:
    """The encoding of a scheme, with its arguments. Raises PeError where there is no table to make."""
    config = ledger.config
    parameters = _parameters(ledger, scheme)
    unread = unread_keys(ledger, unscaled=True)
    also = f"; {', '.join(unread)} in the file had no part in this" if unread else ""
    if scheme.encoding == "learned":
        raise _learned_table(ledger, scheme, parameters, also)
    if scheme.encoding in ("none", "elsewhere"):
        spelled = {name: _spelled(name, value) for name, value in parameters.items()}
        raise PeError(f"{config.file}: {config.model_type} {scheme.note.format(**spelled)}{also}")
    if scheme.note:
        ledger.note(scheme.note)
    if unread:
        ledger.warn(f"{config.file}{also}: check that the model does not use them")
    return ledger.resolved(
        scheme.encoding,
        parameters,
        layer_type=scheme.label or None,
        layer_types=labels_of(config.model_type),
        unread=unread,
    )


def _parameters(ledger: KeyLedger, scheme: Scheme) -> dict[str, Any]:
    parameters: dict[str, Any] = dict(scheme.fixed)
    for name in scheme.fixed:
        ledger.origins[name] = scheme.source
    for name, (key, default) in scheme.takes.items():
        found = _taken(ledger, key, default)
        if found is not None and name in scheme.below_one and found.value < 1:
            found = _instead(ledger, found, key, scheme.below_one[name])
        if found is not None:
            parameters[name] = ledger.record(name, found, key)
    if scheme.grid is not None:
        from pe_cli.models.axes import grid_of

        image, patch = (
            ledger.in_file(key) or _assumed(ledger, key, default)
            for key, default in zip(("image_size", "patch_size"), scheme.grid, strict=True)
        )
        parameters["grid"] = grid_of(ledger, image, patch)
    return parameters


def _assumed(ledger: KeyLedger, key: str, default: Any) -> Setting:
    found = Setting(default, f"the default of model type {ledger.config.model_type!r}", assumed=True)
    ledger.assume(key, found)
    return found


def _taken(ledger: KeyLedger, key: str, default: Any) -> Setting | None:
    """A value as the scheme takes it: checked, and the default of the class where the file is silent."""
    found = ledger.in_file(key, *_other_names(key))
    if found is None and default is None:
        return None
    if found is None:
        default = tuple(default) if isinstance(default, list) else default
        return Setting(default, f"the default of model type {ledger.config.model_type!r}", assumed=True)
    if isinstance(default, list):
        return replace(found, value=ledger.wholes(found))
    if isinstance(default, str):
        return found
    if isinstance(default, float):
        ledger.number(found, positive=False)
        return found
    return replace(found, value=ledger.whole(found, positive=False))


def _instead(ledger: KeyLedger, found: Setting, key: str, other: tuple[str, int] | None) -> Setting | None:
    """What a value below 1 means: nothing, or the value of another key."""
    if other is None:
        return None
    name, default = other
    taken = _taken(ledger, name, default)
    assert taken is not None
    if taken.assumed:
        ledger.assume(name, taken)
    origin = f"{name}, {taken.origin}" if taken.assumed else taken.origin
    return Setting(ledger.whole(taken), f"{origin}, since {key} is {found.value}")


def _spelled(name: str, value: Any) -> str:
    """A value as an option takes it."""
    between = "x" if name == "grid" else ","
    return between.join(str(part) for part in value) if isinstance(value, tuple) else str(value)


def _other_names(key: str) -> tuple[str, ...]:
    """Other names of a size, for configurations of another age."""
    for names in SYNONYMS.values():
        if key in names:
            return names
    return ()


def _learned_table(
    ledger: KeyLedger, scheme: Scheme, sizes: Mapping[str, Any], also: str
) -> LearnedTableError:
    config = ledger.config
    rows, dim = sizes.get("rows"), sizes.get("dim")
    front = front_of_model(config.model_type, config.values.get("pad_token_id")) or Front(0, False, "")
    more = 0 if front.counted else front.rows
    shape = (rows + more, dim) if isinstance(rows, int) and isinstance(dim, int) else None
    sized = f" of shape {shape}" if shape else ""
    special = f", with {front.rows} rows in front of position 0" if front.rows else ""
    return LearnedTableError(
        f"{config.file}: {config.model_type} has a learned table{sized}{special}: its positions are learned, so they cannot be computed from the "
        f"configuration; they are in the checkpoint, in the tensor whose name ends in {scheme.where} (`pe inspect CHECKPOINT` "
        f"finds it, `pe extend` lengthens it){scheme.note}{also}",
        file=config.file,
        model_type=config.model_type,
        component=config.path,
        where=scheme.where,
        shape=shape,
    )
