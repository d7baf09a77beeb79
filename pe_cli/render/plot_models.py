"""The picture of a configuration: wavelengths before and after scaling, against the trained length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_cli.errors import PeError
from pe_cli.render.plot import figure, save

BLUE, ORANGE, GREY = "#2166ac", "#d95f02", "#666666"


def plot_model(report: Mapping[str, Any], path: str, *, force: bool) -> None:
    """One drawing for each rotary table of `models.report.inspect_config`."""
    tables = [table for table in report["tables"] if table.get("rotary")]
    if not tables:
        raise PeError(
            f"--plot {path}: {report['file']} has no rotary table on one axis, so no wavelengths to draw"
        )
    made, all_axes = figure(len(tables))
    for table, axes in zip(tables, all_axes, strict=True):
        pairs = [(index, pair) for index, pair in enumerate(table["rotary"]["pairs"]) if pair["wavelength"]]
        index = [number for number, _ in pairs]
        axes.plot(
            index, [pair["unscaled_wavelength"] for _, pair in pairs], "--", color=GREY, label="unscaled"
        )
        axes.plot(
            index, [pair["wavelength"] for _, pair in pairs], color=BLUE, label=table["rotary"]["scaling"]
        )
        if table["trained_length"]:
            axes.axhline(
                table["trained_length"], color=ORANGE, label=f"trained length {table['trained_length']}"
            )
        where = ", ".join(table[key] for key in ("component", "layer_type") if table[key])
        axes.set(
            title=where or report["model_type"], xlabel="pair", ylabel="wavelength in positions", yscale="log"
        )
        axes.grid(alpha=0.3)
        axes.legend()
    save(made, path, force=force)
