"""What is said of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pe_cli.inspect.fixed import Reading


@dataclass
class Identified:
    """The hypothesis that reproduces a table; `facts` are its parameters, `residual` what it leaves.

    `residual` is the largest difference in ulps of `precision` at the table's amplitude (None where the
    claim is not a value of every entry, as for a learned table). `ambiguous` lists what the values cannot
    tell apart. `reading` keeps the angles of a rotation, for `diff`.
    """

    encoding: str
    facts: dict[str, Any] = field(default_factory=dict)
    residual: float | None = None
    precision: str | None = None
    ambiguous: list[str] = field(default_factory=list)
    reading: Reading | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON: `encoding`, then the facts, then how well they reproduce the table."""
        out: dict[str, Any] = {"encoding": self.encoding}
        out |= {name: plain(value) for name, value in self.facts.items() if value is not None}
        if self.precision is not None:
            out["precision"] = self.precision
        if self.residual is not None:
            out["residual"] = float(f"{self.residual:.4g}")
        if self.ambiguous:
            out["ambiguous"] = list(self.ambiguous)
        return out


def plain(value: Any) -> Any:
    """Python numbers, whole ones as integers, and lists."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
