"""JSON objects from files: what can be wrong with one, said in a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pe_cli.errors import PeError


def read_object(path: str | Path, *, most: int | None = None) -> dict[str, Any]:
    """The JSON object in a file of at most `most` bytes."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(-1 if most is None else most + 1)
    except OSError as error:
        raise PeError(f"cannot read {path}: {error.strerror or error}") from error
    if most is not None and len(content) > most:
        raise PeError(f"{path} is larger than {most >> 20} MiB: this is no configuration")
    try:
        data = json.loads(content.decode("utf-8-sig"))
    except RecursionError as error:
        raise PeError(f"{path} is nested too deeply") from error
    except ValueError as error:
        raise PeError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise PeError(f"{path} is not a JSON object")
    return data
