"""Values in words, for lines that need no table and no picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

USUAL = {
    "nodes_without_edge_onwards": 0,
    "isolated_nodes": 0,
    "connected_components": 1,
}
LARGEST_WHOLE = 1e15  # up to which a float without a fraction is written as a whole number


def telling(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts without those that say that nothing is special."""
    plain = {name for name, value in USUAL.items() if facts.get(name) == value}
    return {name: value for name, value in facts.items() if name not in plain}


def in_lines(phrases: Iterable[str], width: int) -> str:
    """The phrases with two spaces between them, in as many lines of `width` as they need; none is broken."""
    lines: list[str] = []
    for phrase in phrases:
        if lines and len(lines[-1]) + 2 + len(phrase) <= width:
            lines[-1] += f"  {phrase}"
        else:
            lines.append(phrase)
    return "\n".join(lines)


def spell(value: Any) -> str:
    """A value as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (float, np.floating)):
        whole = abs(value) < LARGEST_WHOLE and value == int(value)
        return str(int(value)) if whole else f"{value:.9g}"
    if isinstance(value, (tuple, list)):
        shown = ", ".join(spell(item) for item in value[:8])
        return f"{shown}, … ({len(value)})" if len(value) > 8 else shown
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {spell(item)}" for key, item in value.items())
    return str(value)
