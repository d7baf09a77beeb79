"""`split` tables drive ONNX Runtime's RotaryEmbedding operator."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli import rope

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.interop

BATCH, HEADS, LENGTH, WIDTH = 2, 3, 10, 16


def contrib_session(interleaved: int) -> onnxruntime.InferenceSession:
    """A model of the one operator com.microsoft.RotaryEmbedding: x, position_ids, cos_cache, sin_cache."""
    from onnx import TensorProto, helper

    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, HEADS, LENGTH, WIDTH]),
        helper.make_tensor_value_info("position_ids", TensorProto.INT64, [BATCH, LENGTH]),
        helper.make_tensor_value_info("cos_cache", TensorProto.FLOAT, ["n", WIDTH // 2]),
        helper.make_tensor_value_info("sin_cache", TensorProto.FLOAT, ["n", WIDTH // 2]),
    ]
    node = helper.make_node(
        "RotaryEmbedding",
        ["x", "position_ids", "cos_cache", "sin_cache"],
        ["y"],
        domain="com.microsoft",
        interleaved=interleaved,
    )
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [BATCH, HEADS, LENGTH, WIDTH])
    graph = helper.make_graph([node], "rotate", inputs, [output])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("interleaved", [0, 1])
def test_the_operator_rotates_as_float64_does(interleaved: int) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(BATCH, HEADS, LENGTH, WIDTH)).astype(np.float32)
    ids = random.integers(0, 4096, size=(BATCH, LENGTH))
    tables = rope(np.arange(4096), dim=WIDTH, base=500000.0, layout="split")
    feeds = {"x": x, "position_ids": ids, "cos_cache": tables["cos"], "sin_cache": tables["sin"]}
    (got,) = contrib_session(interleaved).run(None, feeds)

    frequencies = 500000.0 ** (-np.arange(WIDTH // 2) * 2 / WIDTH)
    turn = np.exp(1j * ids[:, None, :, None] * frequencies)
    wide = x.astype(np.float64)
    first, second = (wide[..., 0::2], wide[..., 1::2]) if interleaved else np.split(wide, 2, axis=-1)
    turned = (first + 1j * second) * turn
    want = np.empty_like(wide)
    if interleaved:
        want[..., 0::2], want[..., 1::2] = turned.real, turned.imag
    else:
        want = np.concatenate([turned.real, turned.imag], axis=-1)
    np.testing.assert_allclose(got, want, atol=1e-6)
