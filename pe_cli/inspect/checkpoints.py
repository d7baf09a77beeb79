"""Position tensors of a checkpoint, named from its header alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt
from typing import Any

from pe_cli.files import TensorSpec
from pe_cli.position_names import PositionName, front_of_rows, named, squares

Shape = tuple[int, ...]


@dataclass(frozen=True)
class PositionTensor:
    """A tensor that carries positions: the encoding it belongs to, its role, what the shape tells."""

    name: str
    encoding: str
    role: str
    facts: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "encoding": self.encoding, "role": self.role, **self.facts}


def describe_checkpoint(tensors: Mapping[str, TensorSpec]) -> dict[str, PositionTensor]:
    """The position tensors among `tensors`, by name and shape alone; no values are read."""
    found = {}
    for name, spec in tensors.items():
        row = named(name, spec.shape)
        if row is not None and row.encoding is not None:
            role = f"{row.role} ({row.source})" if row.source else row.role
            found[name] = PositionTensor(name, row.encoding, role, _shape_facts(row, spec.shape))
    return found


def _shape_facts(row: PositionName, shape: Shape) -> dict[str, Any]:
    if row.encoding == "rope" and len(shape) == 1:
        return {"dim": 2 * shape[0]}
    if row.encoding == "deberta" and shape[0] % 2 == 0:
        return {"position_buckets": shape[0] // 2}
    if row.encoding != "learned":
        return {}
    if row.kind == "bias":
        side = isqrt(shape[1])
        return {"heads": shape[0], **({"grid": f"{side}x{side}"} if side * side == shape[1] else {})}
    live = [size for size in shape if size != 1]
    if len(live) not in (2, 3):
        return {}
    rows, width = (live[0], live[1]) if len(live) == 2 else (live[0] * live[1], live[2])
    facts: dict[str, Any] = {"rows": rows, "dim": width}
    if len(live) == 3:
        return facts | {"grid": f"{live[0]}x{live[1]}"}
    if row.kind == "sequence" and (front := front_of_rows(rows)) is not None:
        return facts | {"offset_rows": front.rows, "usable": rows - front.rows}
    if row.kind == "grid" or (row.either and len(shape) > 2):
        special, side = next(squares(rows), (0, 0))
        if side > 3:
            return facts | ({"prefix_rows": special} if special else {}) | {"grid": f"{side}x{side}"}
    return facts
