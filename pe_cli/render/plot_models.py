"""The picture of a configuration: wavelengths before and after scaling, against the trained length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pe_cli.errors import PeError
from pe_cli.render.plots.canvas import BLUE, GREY, ORANGE, Drawing, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_model(report: Mapping[str, Any], path: str, *, force: bool) -> None:
    """One drawing for each rotary table of `models.report.inspect_config`."""
    tables = [table for table in report["tables"] if table.get("rotary")]
    if not tables:
        raise PeError(
            f"--plot {path}: {report['file']} has no rotary table on one axis, so no wavelengths to draw"
        )
    write([_wavelengths(table, report["model_type"]) for table in tables], path, force=force)


def _wavelengths(table: Mapping[str, Any], model_type: str) -> Drawing:
    def draw(axes: Axes) -> None:
        pairs = [(index, pair) for index, pair in enumerate(table["rotary"]["pairs"]) if pair["wavelength"]]
        index = [number for number, _ in pairs]
        plain = [pair["unscaled_wavelength"] for _, pair in pairs]
        axes.plot(index, plain, "--", color=GREY, label="unscaled")
        scaled = [pair["wavelength"] for _, pair in pairs]
        axes.plot(index, scaled, color=BLUE, label=table["rotary"]["scaling"])
        if table["trained_length"]:
            label = f"trained length {table['trained_length']}"
            axes.axhline(table["trained_length"], color=ORANGE, label=label)
        where = ", ".join(table[key] for key in ("component", "layer_type") if table[key])
        axes.set(title=where or model_type, xlabel="pair", ylabel="wavelength in positions", yscale="log")
        axes.grid(alpha=0.3)
        axes.legend()

    return draw
