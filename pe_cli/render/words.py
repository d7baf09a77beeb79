"""Values in words, for lines that need no table and no picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def spell(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (float, np.floating)):
        return f"{value:.9g}"
    if isinstance(value, (tuple, list)):
        shown = ", ".join(spell(item) for item in value[:8])
        return f"{shown}, … ({len(value)})" if len(value) > 8 else shown
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {spell(item)}" for key, item in value.items())
    return str(value)
