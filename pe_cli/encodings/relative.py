"""Relative encodings whose learned table is read by distance: T5, Transformer-XL, Shaw, and the windows of Swin.

A distance is the position of the key minus the position of the query: negative to the left. Indices and
buckets (queries, keys) say which row of the learned table a pair reads; with the table at hand, it is expanded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.encodings.distances import (
    checked,
    differences,
    head_table,
    over_distances,
    refuse,
    require_room,
    sigmoid,
    t5_buckets,
)
from pe_cli.errors import PeError, parameter
from pe_cli.numerics.dtypes import numpy_dtype, round_to
from pe_cli.numerics.kernels import geometric, rotation_blocks
from pe_cli.positions import spell
from pe_cli.signature import (
    Array,
    Choice,
    Distances,
    DType,
    Grid,
    Keys,
    Positions,
    Queries,
    default_positions,
    encoding,
)
from pe_cli.tensors import Tensors


@encoding
def t5(
    queries: Queries | None = None,
    keys: Keys | None = None,
    *,
    distances: Distances | None = None,
    table: Array | None = None,
    num_buckets: int = 32,
    max_distance: int = 128,
    bidirectional: bool = True,
    heads_first: bool = False,
    dtype: DType | None = None,
) -> NDArray[Any]:
    """T5 buckets of relative distance, or the bias of a learned table.

    >>> t5(3, num_buckets=32).tolist()
    [[0, 17, 18], [1, 0, 17], [2, 1, 0]]

    Near distances have a bucket each, far ones share buckets that grow geometrically; a learned number
    per bucket and head is added to the attention logits, which T5 does not divide by sqrt(head_dim).
    Without --table: the buckets, int64 (queries, keys). With it: the bias (heads, queries, keys).

    Extrapolates: yes, but everything beyond --max-distance shares one bucket. Used by T5, mT5, UMT5,
    LongT5, Switch, Pop2Piano, MPNet (32, 128), WavLM (320, 800), LayoutLMv2/v3 and UDOP. The buckets are
    found in integers; the usual float code can put distances 16, 32 and 64 on the wrong side of an edge.

    Source: Raffel et al. 2020, arXiv 1910.10683, section 2.1.

    Parameters
    ----------
    queries : positions of the queries (q,)
    keys : positions of the keys (k,); those of the queries if not given
    distances : key minus query, any shape, instead of queries and keys
    table : learned table (num_buckets, heads) or transposed, such as relative_attention_bias.weight
    num_buckets : number of buckets, both directions together
    max_distance : distance from which all share the last bucket
    bidirectional : buckets for keys to the right too (encoder), or only to the left (decoder)
    heads_first : the table is (heads, num_buckets); needed only where both are the same number
    dtype : element type of the bias (float32)

    Returns
    -------
    Tensors
        t5: buckets (queries, keys), int64, or with a table the bias (heads, queries, keys), of type `dtype`.

    Raises
    ------
    PeError
        For too few buckets, a table that has another number of them, positions or distances that are not
        whole numbers, pairs given twice, or more memory than there is.
    """

    def buckets(d: NDArray[np.int64]) -> NDArray[np.int64]:
        return t5_buckets(d, num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional)

    pairs = differences(queries, keys, distances)
    if table is None:
        refuse(f"without {parameter('table')} these are whole numbers", dtype=dtype, heads_first=heads_first)
        return over_distances(buckets, pairs)
    learned = head_table(table, num_buckets, rows_are="the number of buckets", heads_first=heads_first)
    return over_distances(lambda d: learned[:, buckets(d)], pairs, dtype or "float32")


def _descending_distances(
    length: int, *, bidirectional: bool = False, style: str = "paper-cat", **_: Any
) -> NDArray[np.int64]:
    first = length if style == "xlnet" else length - 1
    return np.arange(first, -length if bidirectional else -1, -1)


# The columns of the sines and those of the cosines.
ROW_COLUMNS: dict[str, Callable[[int], tuple[slice, slice]]] = {
    "paper-cat": lambda dim: (slice(0, dim // 2), slice(dim // 2, dim)),
    "paper": lambda dim: (slice(0, dim, 2), slice(1, dim, 2)),
    "xlnet": lambda dim: (slice(0, dim // 2), slice(dim // 2, dim)),
}
ROW_STYLES = Choice(
    tuple(ROW_COLUMNS),
    {
        "transformer-xl": "paper-cat",
        "conformer": "paper",
        "espnet": "paper",
        "wav2vec2-conformer": "paper",
    },
)


@encoding
@default_positions(_descending_distances, only=("bidirectional",))
def transformer_xl(
    positions: Positions,
    *,
    dim: int,
    style: Annotated[str, ROW_STYLES] = "paper-cat",
    bidirectional: bool = False,
    clamp_len: int | None = None,
    base: float = 10000.0,
    dtype: DType = "float32",
) -> NDArray[Any]:
    """Transformer-XL's sinusoidal rows R, one per distance.

    >>> transformer_xl(4, dim=8).shape
    (4, 8)

    The row of distance r = query minus key is the sinusoidal code of r; attention projects it to
    W_R R_r and adds (q + v) . (W_R R_r) to the logit of a pair at that distance (after the "relative shift",
    which only moves rows to their pairs). Shape (distances, dim), largest distance first, as the models
    store it: --len N gives N-1..0, with --bidirectional N-1..-(N-1); XLNet's start at N; --positions gives any
    others.

    Extrapolates: yes, a row exists for every distance. W_R, u and v are learned and are in the model.

    Source: Dai et al. 2019, arXiv 1901.02860, section 3.3; Gulati et al. 2020, arXiv 2005.08100 (Conformer).

    Parameters
    ----------
    positions : distances (n,), query position minus key position; an int n stands for 0..n-1
    dim : width of a row (the model's d_model), even
    style : paper-cat: sines, then cosines (Transformer-XL); paper: sin, cos in turn (Conformer, ESPnet);
        xlnet: as paper-cat, with one more distance in front
    bidirectional : with --len: distances to both sides (Conformer, XLNet 'bi'), or only to the left
    clamp_len : distances beyond it are held at it, as clamp_len of the models
    base : base of the wavelengths
    dtype : element type

    Returns
    -------
    Tensors
        transformer-xl (distances, dim), of type `dtype`.

    Raises
    ------
    PeError
        For an odd width, a limit below 1, positions that are not finite numbers, or more memory than there
        is.
    """
    if dim < 2 or dim % 2:
        raise PeError(f"{parameter('dim')} {dim}: pairs of sine and cosine need an even width")
    if clamp_len is not None and clamp_len < 1:
        raise PeError(f"{parameter('clamp_len')} {clamp_len}: it must be at least 1")
    distances = np.asarray(positions)
    if distances.ndim != 1:
        raise PeError(f"{parameter('positions')} are distances on one axis, not on {distances.shape[-1]}")
    if clamp_len is not None:
        distances = np.clip(distances, -clamp_len, clamp_len)
    rows = np.empty((len(distances), dim), numpy_dtype(dtype))
    sines, cosines = ROW_COLUMNS[style](dim)
    for block, z in rotation_blocks(distances, geometric(base, dim), relative=dtype == "float64"):
        rows[block, sines], rows[block, cosines] = round_to(z.imag, dtype), round_to(z.real, dtype)
    return rows


def _clipped(distances: NDArray[Any], left: int, right: int) -> NDArray[np.int64]:
    clipped: NDArray[np.int64] = np.clip(distances, -left, right) + left
    return clipped


def _etc_ids(distances: NDArray[Any], left: int, right: int) -> NDArray[np.int64]:
    ids: NDArray[np.int64] = np.where(
        distances >= 0, np.minimum(distances, right), right + np.minimum(-distances, left)
    )
    return ids


# How many rows the table has for (left, right), and which of them a distance reads.
Numbering = tuple[Callable[[int, int], int], Callable[[NDArray[Any], int, int], NDArray[np.int64]]]
SHAW_NUMBERINGS: dict[str, Numbering] = {
    "shaw": (lambda left, right: left + right + 1, _clipped),
    "reversed": (lambda left, right: left + right + 1, lambda d, left, right: _clipped(-d, left, right)),
    "speecht5": (lambda left, right: 2 * left, lambda d, left, right: _clipped(-d, left, left - 1)),
    "etc": (lambda left, right: left + right + 1, _etc_ids),
}
SHAW_CHOICE = Choice(
    tuple(SHAW_NUMBERINGS), {"bert": "reversed", "wav2vec2-bert": "shaw", "seamless-m4t-v2": "shaw"}
)


@encoding
def shaw(
    queries: Queries | None = None,
    keys: Keys | None = None,
    *,
    distances: Distances | None = None,
    max_distance: int = 16,
    max_right: int | None = None,
    numbering: Annotated[str, SHAW_CHOICE] = "shaw",
    table: Array | None = None,
    dtype: DType | None = None,
) -> NDArray[Any]:
    """Clipped relative index of Shaw et al., or the vectors of a learned table.

    >>> shaw(3, max_distance=1).tolist()
    [[1, 2, 2], [0, 1, 2], [0, 0, 1]]

    Distance d reads row clip(d, -M, M) + M of a learned table (2M + 1, head_dim), one table for keys and
    one for values, shared by all heads: q . a_K is added to the logits, the weighted a_V to the output.
    Without --table: the index, int64 (queries, keys). With it: the vectors (queries, keys, head_dim).

    Extrapolates: every length is defined, but all distances beyond M look the same.

    Source: Shaw et al. 2018, arXiv 1803.02155, section 3.2.

    Parameters
    ----------
    queries : positions of the queries (q,)
    keys : positions of the keys (k,); those of the queries if not given
    distances : key minus query, any shape, instead of queries and keys
    max_distance : M, distances beyond it are clipped
    max_right : another limit to the right (Wav2Vec2-BERT, SeamlessM4T-v2: 64 left, 8 right)
    numbering : which row a distance d reads: shaw: clip(d)+M; reversed: clip(-d)+M (relative_key of BERT,
        M = its positions - 1); speecht5: clip(-d, -M, M-1)+M, 2M rows; etc: 0 itself, 1..M right, M+1..2M left
    table : learned vectors, one row per index
    dtype : element type of the vectors (float32)

    Returns
    -------
    Tensors
        shaw: rows (queries, keys), int64, or with a table its vectors (queries, keys, head_dim), of type
        `dtype`.

    Raises
    ------
    PeError
        For a distance below 1, a limit to the right that the numbering does not have, a table of another
        number of rows, positions or distances that are not whole numbers, pairs given twice, or more memory
        than there is.
    """
    right = max_distance if max_right is None else max_right
    if max_distance < 1 or right < 0:
        raise PeError(
            f"{parameter('max_distance')} {max_distance}, {parameter('max_right')} {right}: "
            "at least 1 to the left and 0 to the right"
        )
    if numbering != "shaw" and max_right is not None:
        raise PeError(
            f"{parameter('max_right')} {max_right}: {parameter('numbering')} {numbering} is the same to both sides"
        )
    rows, rule = SHAW_NUMBERINGS[numbering]
    index = over_distances(lambda d: rule(d, max_distance, right), differences(queries, keys, distances))
    if table is None:
        refuse(f"without {parameter('table')} these are whole numbers", dtype=dtype)
        return index
    learned = checked(table, "table", dims=2)
    if len(learned) != rows(max_distance, right):
        raise PeError(
            f"{parameter('table')} has {len(learned)} rows, this index has {rows(max_distance, right)}"
        )
    return np.take(round_to(learned, dtype or "float32"), index, axis=0)


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

    >>> swin(window=(7, 7))["relative_position_index"].shape
    (49, 49)

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

    Returns
    -------
    Tensors
        relative_position_index (n, n), with version 2 relative_coords_table, and with numbers to look up bias
        (heads, n, n).

    Raises
    ------
    PeError
        For a window that is not two positive sides, options of the other version, a table or network that
        does not fit, or more memory than there is.
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
