"""Which keys of a configuration look like position settings and were not read: none of them may be lost in silence.

`data/harmless.json` has the keys that are known to have no effect on a table: `keys` in any case (or only with the
values given), `unscaled` where the frequencies are not scaled, `types` those of one model type, `patterns` of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pe_cli.models.configuration import Configuration, is_part
from pe_cli.models.model_types import data
from pe_cli.models.resolved import KeyLedger

BLOCKS = ("rope_scaling", "rope_parameters")
# Names of position settings. "proper" and "composition" are none.
POSITIONAL = re.compile(
    r"(?<!p)rope(?!r)|rotary|ntk|logn|yarn|alibi|nope|(?<!com)(?<!dis)position|theta|freq|temperature|pos_emb|pos_enc|"
    r"posemb|interpol|extrapol|xpos|timescale|sinusoid|dual_chunk|relative_att|rel_pos|attn_factor|"
    r"beta_(fast|slow)|(^|rope_|rotary_|emb_|position_)scaling_factor|(short|long)_m?(scale|factor)|orig(inal)?_.*(len|pos|ctx|context)|max_trained",
    re.IGNORECASE,
)


def unread_keys(ledger: KeyLedger, *, unscaled: bool) -> tuple[str, ...]:
    """The keys of position settings, at the level of the table, one level down and above it, that nothing read."""
    config = ledger.config
    own = [
        config.key(key)
        for key, value in _candidates(config)
        if key not in ledger.keys_read
        and not _is_harmless(ledger, key, value, unscaled)
        and not _is_repeated(ledger, key, value)
    ]
    return tuple(dict.fromkeys([*own, *_above(ledger, unscaled)]))


def _candidates(config: Configuration) -> Iterator[tuple[str, Any]]:
    for key, value in config.values.items():
        if key in BLOCKS and isinstance(value, Mapping):
            yield from _in_block(key, value)
        elif isinstance(value, Mapping):
            if POSITIONAL.search(key) and not is_part(key, value):
                yield from _in_block(key, value)
            elif not is_part(key, value) and not key.endswith(NO_SETTINGS):
                yield from ((f"{key}.{k}", v) for k, v in value.items() if POSITIONAL.search(k))
        elif POSITIONAL.search(key):
            yield key, value


NO_SETTINGS = (
    "quantization_config",
    "task_specific_params",
    "generation_config",
    "2id",
    "2label",
    "auto_map",
)


def _in_block(key: str, block: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in block.items():
        if isinstance(value, Mapping):
            yield from ((f"{key}.{name}.{k}", v) for k, v in value.items())
        else:
            yield f"{key}.{name}", value


def _above(ledger: KeyLedger, unscaled: bool) -> Iterator[str]:
    """Keys of the levels above: those of a composite speak of the part that was chosen too, unless they repeat it."""
    for path, values in ledger.config.above:
        for key, value in values.items():
            if isinstance(value, Mapping) and key not in BLOCKS:
                continue
            if not POSITIONAL.search(key) or _is_harmless(ledger, key, value, unscaled):
                continue
            if ledger.config.values.get(key) != value and not _is_repeated(ledger, key, value):
                yield f"{path}.{key}" if path else key


def _is_harmless(ledger: KeyLedger, key: str, value: Any, unscaled: bool) -> bool:
    if value is None or value == {} or value == []:
        return True
    known, name = data("harmless"), key.rpartition(".")[2]
    for called in (key, name):
        if called in known["keys"]:
            values = known["keys"][called]
            return not isinstance(values, list) or any(value == v and type(value) is type(v) for v in values)
    if (unscaled and name in known["unscaled"]) or name in known["types"].get(ledger.config.model_type, ()):
        return True
    return any(re.fullmatch(pattern, name) for pattern in known["patterns"])


def _is_repeated(ledger: KeyLedger, key: str, value: Any) -> bool:
    """Whether a key of the same name and value was read somewhere else."""
    name = key.rpartition(".")[2]
    return any(read.rpartition(".")[2] == name and ledger.value(read) == value for read in ledger.keys_read)
