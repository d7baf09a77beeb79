"""From a model's configuration to its positional encoding, with where every value came from."""

from __future__ import annotations

from pe_cli.models.resolve import from_config, resolve, resolve_configuration
from pe_cli.models.resolved import ExtraTable, Resolved

__all__ = ["ExtraTable", "Resolved", "from_config", "resolve", "resolve_configuration"]
