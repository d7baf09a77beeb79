"""Relative position of the patches of a window: Swin, Swin v2 and BEiT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.distances import checked, head_table, refuse, require_room, sigmoid
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import round_to
from pe_cli.positions import spell
from pe_cli.signature import Array, Choice, DType, Grid, encoding
from pe_cli.tensors import Tensors

VERSIONS = Choice(("1", "2"), {"v1": "1", "v2": "2"})
CLASS_TOKEN_ROWS = 3
LARGEST_BIAS = 16.0


@encoding
def swin(
    *,
    window: Grid,
    version: Annotated[str, VERSIONS] = "1",
    pretrained_window: Grid | None = None,
    class_token: bool = False,
    table: Array | None = None,
    mlp_hidden_weight: Array | None = None,
    mlp_hidden_bias: Array | None = None,
    mlp_output_weight: Array | None = None,
    heads_first: bool = False,
    dtype: DType | None = None,
) -> Tensors:
    """Index of the relative position of two patches in a window (Swin, BEiT), and Swin v2's coordinates.

    The n = H W patches of a window have (2H-1)(2W-1) different offsets; `relative_position_index` (n, n), int64,
    says which one each pair has, and a learned number per offset and head is added to the attention
    logits. Version 2 computes these numbers by a small network of `relative_coords_table` (2H-1, 2W-1, 2),
    the offsets on a logarithmic scale. With --table, or with version 2's network: `bias` (heads, n, n) too.

    Extrapolates: version 1 and BEiT do not, their tables are resized for another window; version 2 does, by
    its coordinates (--pretrained-window keeps the scale that the network was trained with).

    Source: Liu et al. 2021, arXiv 2103.14030, section 3.2; Liu et al. 2022, arXiv 2111.09883, section 3.3;
    Bao et al. 2022, arXiv 2106.08254 (class token).

    Parameters
    ----------
    window : window height and width in patches
    version : 1 (also BEiT) or 2
    pretrained_window : window of the pre-training, which scales version 2's coordinates
    class_token : a class token before the patches, with three more rows for its pairs (BEiT)
    table : learned numbers ((2H-1)(2W-1), heads), three rows more with --class-token; in version 2 the
        outputs of the network
    mlp_hidden_weight : version 2: weight of the network's first layer (hidden, 2)
    mlp_hidden_bias : version 2: bias of the network's first layer (hidden,)
    mlp_output_weight : version 2: weight of the network's second layer (heads, hidden)
    heads_first : the table is (heads, offsets); needed only where both are the same number
    dtype : element type of coordinates and bias (float32)
    """
    height, width = _window_sides(window, "window")
    require_room((height * width, height * width), np.int64)
    if version == "1" and pretrained_window is not None:
        raise PeError(
            f"{parameter('pretrained_window')} {spell(pretrained_window, 'x')}: only {parameter('version')} 2 has a "
            "scale to keep"
        )
    if version == "2" and class_token:
        raise PeError(f"{parameter('class_token')}: only {parameter('version')} 1 (BEiT) has it")
    if table is None:
        refuse(f"there is no {parameter('table')}", heads_first=heads_first)
        if version == "1":
            refuse(f"without {parameter('table')} these are whole numbers", dtype=dtype)
    stored = dtype or "float32"
    index = _window_index(height, width, class_token)
    tensors = {"relative_position_index": index}
    learned = None
    if table is not None:
        rows = (2 * height - 1) * (2 * width - 1) + CLASS_TOKEN_ROWS * class_token
        learned = head_table(
            table, rows, rows_are=f"the offsets of window {height}x{width}", heads_first=heads_first
        )
    network = {
        "mlp_hidden_weight": mlp_hidden_weight,
        "mlp_hidden_bias": mlp_hidden_bias,
        "mlp_output_weight": mlp_output_weight,
    }
    has_network = any(part is not None for part in network.values())
    if version == "1":
        refuse(f"only {parameter('version')} 2 has a network", **network)
    if version == "2":
        coordinates = _log_coordinates((height, width), pretrained_window)
        tensors["relative_coords_table"] = round_to(coordinates, stored)
        if has_network:
            if table is not None:
                refuse(f"{parameter('table')} gives the bias already", **network)
            learned = _network_outputs(coordinates, network)
        if learned is not None:
            learned = LARGEST_BIAS * sigmoid(learned)
    if learned is not None:
        tensors["bias"] = np.take(round_to(learned, stored), index, axis=1)
    return Tensors(tensors)


def _window_index(height: int, width: int, class_token: bool) -> NDArray[np.int64]:
    """(n, n): row (dy + H-1)(2W-1) + dx + W-1 for query minus key; class pairs behind all of them."""
    rows, columns = (axis.reshape(-1) for axis in np.indices((height, width)))
    index: NDArray[np.int64] = rows[:, None] - rows
    index += height - 1
    index *= 2 * width - 1
    index += columns[:, None] - columns
    index += width - 1
    if not class_token:
        return index
    offsets = (2 * height - 1) * (2 * width - 1)
    with_class = np.empty((len(index) + 1, len(index) + 1), np.int64)
    with_class[1:, 1:] = index
    with_class[0, :], with_class[:, 0], with_class[0, 0] = offsets, offsets + 1, offsets + 2
    return with_class


def _log_coordinates(window: tuple[int, int], pretrained: Grid | None) -> NDArray[np.float64]:
    """(2H-1, 2W-1, 2): sign(c) log2(1 + |c|) / 3 of c = 8 offset / (side - 1) (equation 4 of Swin v2)."""
    scales = window if pretrained is None else _window_sides(pretrained, "pretrained_window")
    axes = []
    for side, scale in zip(window, scales, strict=True):
        # A side of one patch has the offset 0 only, whatever the scale.
        c = np.arange(1 - side, side) * (8 / max(scale - 1, 1))
        axes.append(np.sign(c) * np.log2(1 + np.abs(c)) / 3)
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)


def _network_outputs(
    coordinates: NDArray[np.float64], network: Mapping[str, Array | None]
) -> NDArray[np.float64]:
    """(heads, offsets) before the sigmoid: linear, ReLU, linear without bias."""
    missing = [parameter(name) for name, part in network.items() if part is None]
    if missing:
        raise PeError(f"the network needs {', '.join(missing)} too")
    weight, bias, output = (
        checked(part, name, dims=dims)
        for (name, part), dims in zip(network.items(), (2, 1, 2), strict=True)
        if part is not None
    )
    if weight.shape != (len(bias), 2) or output.shape[1] != len(bias):
        raise PeError(
            f"{', '.join(map(parameter, network))} have shapes {weight.shape}, {bias.shape}, {output.shape}; "
            "(hidden, 2), (hidden,), (heads, hidden) are needed"
        )
    hidden = np.maximum(coordinates.reshape(-1, 2) @ weight.T + bias, 0)
    outputs: NDArray[np.float64] = output @ hidden.T
    return outputs


def _window_sides(window: Grid, name: str) -> tuple[int, int]:
    if len(window) != 2 or min(window) < 1:
        raise PeError(
            f"{parameter(name)} {spell(window, 'x')}: a window has a height and a width, for example 7x7"
        )
    return window[0], window[1]
