"""Buffers that follow a table keep their type and their meaning."""

from __future__ import annotations

import numpy as np

from pe_cli.extend.find import follow, window_buffers
from pe_cli.files import TensorSpec


def grown(name: str, old: np.ndarray, table: str, sizes: tuple[int, int], new: tuple[int, int]) -> np.ndarray:
    spec = TensorSpec(name, old.dtype.name, old.shape)
    (change,) = follow({name: spec}, table, sizes, new)
    assert change.make is not None
    made = change.make(old)
    assert made.shape == change.new.shape
    assert made.dtype == old.dtype
    return made


def test_position_ids_count_on() -> None:
    table = "embeddings.position_embeddings.weight"
    for ids, want in (
        (np.arange(8)[None], np.arange(12)[None]),
        (np.arange(2, 10)[None], np.arange(2, 14)[None]),  # YOSO and Nystromformer begin at 2
        (np.array([[0, 1, 1, 3, 4, 5, 6, 9]]), np.array([[0, 1, 1, 3, 4, 5, 6, 9, 10, 11, 12, 13]])),
    ):
        assert np.array_equal(grown("embeddings.position_ids", ids, table, (8, 8), (12, 12)), want)
    shorter = grown("embeddings.position_ids", np.arange(8)[None], table, (8, 8), (5, 5))
    assert np.array_equal(shorter, np.arange(5)[None])


def test_rows_and_usable_rows_are_told_apart() -> None:
    """514 rows are 512 usable ones: a buffer of either size grows to the right one."""
    table = "roberta.embeddings.position_embeddings.weight"
    for size, want in ((514, 1026), (512, 1024)):
        ids = np.arange(size)[None]
        assert grown("roberta.embeddings.position_ids", ids, table, (514, 512), (1026, 1024)).shape == (
            1,
            want,
        )


def test_buffers_elsewhere_stay() -> None:
    tensors = {
        "vision.embeddings.position_ids": TensorSpec("vision.embeddings.position_ids", "int64", (1, 8))
    }
    assert not list(follow(tensors, "text.embeddings.position_embedding.weight", (8, 8), (12, 12)))


def test_causal_masks_are_triangles_or_bands() -> None:
    full, band = np.tri(8, dtype=np.uint8), np.tri(8, dtype=np.bool_) ^ np.tri(8, k=-3, dtype=np.bool_)
    got = grown("transformer.h.0.attn.bias", full[None, None], "transformer.wpe.weight", (8, 8), (12, 12))
    assert np.array_equal(got[0, 0], np.tri(12))
    local = "transformer.h.1.attn.attention.bias"
    got = grown(local, band[None, None], "transformer.wpe.weight", (8, 8), (12, 12))
    assert np.array_equal(got[0, 0], np.tri(12) - np.tri(12, k=-3))


def test_window_index_with_class_rows() -> None:
    name = "blocks.0.attn.relative_position_index"
    spec = TensorSpec(name, "int64", (50, 50))
    (change,) = window_buffers({name: spec}, "blocks.0.attn.relative_position_bias_table", (3, 3), 3)
    assert change.make is not None
    index = change.make(np.zeros((50, 50), np.int64))
    assert index.shape == (10, 10)
    assert (index[0, 0], index[0, 1], index[1, 0], index[1, 1]) == (27, 25, 26, 12)


def test_a_mask_belongs_to_the_nearest_table() -> None:
    """Two models of one size in a file (Bark): only the masks of the one that grows."""
    shapes = {f"{model}.wpe.weight": (8, 4) for model in "ab"}
    shapes |= {f"{model}.h.{layer}.attn.bias": (1, 1, 8, 8) for model in "ab" for layer in (0, 1)}
    specs = {name: TensorSpec(name, "float32", shape) for name, shape in shapes.items()}
    changed = [change.old.name for change in follow(specs, "a.wpe.weight", (8, 8), (16, 16))]
    assert changed == ["a.h.0.attn.bias", "a.h.1.attn.bias"]
    alone = {name: spec for name, spec in specs.items() if name != "b.wpe.weight"}
    assert len(list(follow(alone, "a.wpe.weight", (8, 8), (16, 16)))) == 4
