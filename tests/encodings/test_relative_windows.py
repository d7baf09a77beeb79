from __future__ import annotations

import numpy as np
import pytest

from pe_cli.encodings.relative import swin
from pe_cli.errors import PeError


def test_index_of_the_smallest_window() -> None:
    index = swin(window=(2, 2))["relative_position_index"]
    assert index.tolist() == [[4, 3, 1, 0], [5, 4, 2, 1], [7, 6, 4, 3], [8, 7, 5, 4]]


@pytest.mark.parametrize("window", [(3, 5), (1, 4), (4, 1)])
def test_index_reads_the_offset_of_query_and_key(window: tuple[int, int]) -> None:
    height, width = window
    # A table whose entry is the offset itself: what comes out is where the two patches are.
    offsets = [(dy, dx) for dy in range(1 - height, height) for dx in range(1 - width, width)]
    bias = swin(window=window, table=np.array(offsets), dtype="float64")["bias"]
    patches = [(y, x) for y in range(height) for x in range(width)]
    for i, (qy, qx) in enumerate(patches):
        for j, (ky, kx) in enumerate(patches):
            assert bias[:, i, j].tolist() == [qy - ky, qx - kx]


def test_class_token_has_three_rows_behind_the_offsets() -> None:
    index = swin(window=(2, 3), class_token=True)["relative_position_index"]
    np.testing.assert_array_equal(index[1:, 1:], swin(window=(2, 3))["relative_position_index"])
    assert set(index[0, 1:]) == {15}
    assert set(index[1:, 0]) == {16}
    assert index[0, 0] == 17


def test_v2_bias_of_large_outputs_is_0_and_16() -> None:
    outputs = np.array([[-1000.0], [0.0], [1000.0]])
    with np.errstate(over="raise"):
        bias = swin(window=(1, 2), version="2", table=outputs)["bias"]
    assert sorted(set(bias.ravel().tolist())) == [0.0, 8.0, 16.0]


def test_v2_coordinates_run_to_log_of_nine() -> None:
    table = swin(window=(8, 4), version="2", dtype="float64")["relative_coords_table"]
    assert table.shape == (15, 7, 2)
    assert table[0, 0].tolist() == [-np.log2(9) / 3, -np.log2(9) / 3]
    assert table[7, 3].tolist() == [0, 0]
    np.testing.assert_allclose(table[8, 3, 0], np.log2(1 + 8 / 7) / 3)
    wider = swin(window=(8, 8), version="2", pretrained_window=(5, 5), dtype="float64")
    np.testing.assert_allclose(wider["relative_coords_table"][11, 7, 0], np.log2(9) / 3)
    assert np.isfinite(swin(window=(1, 1), version="2")["relative_coords_table"]).all()


@pytest.mark.parametrize(
    "options",
    [
        {"window": (7,)},
        {"window": (0, 7)},
        {"window": (7, 7), "version": "3"},
        {"window": (7, 7), "pretrained_window": (8, 8)},
        {"window": (7, 7), "version": "2", "class_token": True},
        {"window": (7, 7), "dtype": "float16"},
        {"window": (7, 7), "heads_first": True},
        {"window": (7, 7), "table": np.zeros((170, 3))},
        {"window": (7, 7), "mlp_hidden_bias": np.zeros(3)},
        {"window": (7, 7), "version": "2", "mlp_hidden_bias": np.zeros(3)},
    ],
)
def test_what_makes_no_sense_is_refused(options: dict) -> None:
    with pytest.raises(PeError):
        swin(**options)


@pytest.mark.interop
def test_v2_bias_equals_transformers() -> None:
    torch = pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.swinv2.modeling_swinv2")
    from transformers import Swinv2Config

    torch.manual_seed(0)
    layer = modeling.Swinv2SelfAttention(Swinv2Config(), 24, 3, (5, 6), (7, 7))
    names = dict(layer.continuous_position_bias_mlp.named_parameters())
    weights = {name: tensor.detach().numpy() for name, tensor in names.items()}
    with torch.no_grad():
        table = layer.continuous_position_bias_mlp(layer.relative_coords_table).view(-1, 3)
        want = 16 * torch.sigmoid(
            table[layer.relative_position_index.view(-1)].view(30, 30, 3).permute(2, 0, 1)
        )
    got = swin(
        window=(5, 6),
        version="2",
        pretrained_window=(7, 7),
        mlp_hidden_weight=weights["0.weight"],
        mlp_hidden_bias=weights["0.bias"],
        mlp_output_weight=weights["2.weight"],
    )
    np.testing.assert_array_equal(got["relative_position_index"], layer.relative_position_index.numpy())
    np.testing.assert_allclose(got["bias"], want.numpy(), atol=2e-5)
    by_table = swin(window=(5, 6), version="2", table=table.numpy())
    np.testing.assert_allclose(by_table["bias"], want.numpy(), atol=2e-5)


@pytest.mark.interop
@pytest.mark.parametrize("window", [(7, 7), (4, 6)])
def test_beit_index_equals_transformers(window: tuple[int, int]) -> None:
    pytest.importorskip("torch")
    modeling = pytest.importorskip("transformers.models.beit.modeling_beit")
    want = modeling.BeitRelativePositionBias.generate_relative_position_index(window).numpy()
    np.testing.assert_array_equal(swin(window=window, class_token=True)["relative_position_index"], want)
