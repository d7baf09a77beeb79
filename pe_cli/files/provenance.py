"""What a file says about how it was made: one key, `pe`, without time, host or path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from pe_cli.errors import TERMINAL_COMMANDS
from pe_cli.first import __version__

SCHEMA = "pe.table/1"


def metadata(
    command: str, encoding: str, parameters: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, str]:
    """The metadata of a file: canonical JSON under `pe`."""
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "version": __version__,
        "command": command,
        "encoding": encoding,
        "parameters": {name: jsonable(value) for name, value in parameters.items() if value is not None},
    }
    if facts:
        record["facts"] = jsonable(dict(facts))
    return {"pe": canonical(record)}


def made_by(metadata: Mapping[str, str]) -> dict[str, Any] | None:
    """The record that `metadata` made, from the metadata of any file; None where it has none."""
    try:
        record = json.loads(metadata.get("pe", "null"))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text.

    What a terminal would act on, in the name of a tensor or a file, is escaped, and so is half of a character.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return TERMINAL_COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def jsonable(value: Any) -> Any:
    """Plain data: an array becomes its shape, dtype and hash; NaN and infinities become text."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    if isinstance(value, np.ndarray):
        import hashlib  # it loads a library, for the few tables that are made from arrays

        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return {"shape": list(value.shape), "dtype": value.dtype.name, "sha256": digest}
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
