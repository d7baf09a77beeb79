"""Command lines of `pe inspect`, `pe extend` and `pe diff` put together at random, over good, changed and broken files."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import pytest
from fuzzing import mutated, seeds
from lines import BY_NAME, TARGETS, check, some_options
from safetensors.numpy import save, save_file

from pe_cli.files.sources import open_source
from pe_cli.numerics.dtypes import numpy_dtype

MODELS: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "bert": ({"model_type": "bert", "max_position_embeddings": 40}, {"embeddings.position_embeddings.weight": (40, 8), "embeddings.position_ids": (1, 40)}),
    "bart": ({"model_type": "bart", "max_position_embeddings": 38}, {"model.encoder.embed_positions.weight": (40, 8), "model.decoder.embed_positions.weight": (40, 8)}),
    "vit": ({"model_type": "vit", "image_size": 64, "patch_size": 16}, {"embeddings.position_embeddings": (1, 17, 8)}),
    "swin": ({"model_type": "swin", "window_size": 4, "image_size": 32}, {"layer.relative_position_bias_table": (49, 3), "layer.relative_position_index": (16, 16)}),
    "sam": ({"model_type": "sam"}, {"pos_embed": (1, 4, 4, 8), "block.attn.rel_pos_h": (7, 8), "block.attn.rel_pos_w": (7, 8)}),
    "llama": ({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}, {"model.embed_tokens.weight": (9, 8), "rotary_emb.inv_freq": (4,)}),
}  # fmt: skip
LINES = {
    "inspect": ["table.npy", "cube.npy", "bool.npy", "narrow.npy", "none.npy", "q.npy", "nan.npy", "bert.safetensors", "bert.safetensors --values", "swin.safetensors", "vit",
                "llama/config.json", "two.safetensors:a", "llama.safetensors:rotary_emb.inv_freq"],
    "extend": ["table.npy --len 64", "table.npy --len 8", "x.npy --grid 20x20", "bert.safetensors --len 64", "bert --len 64", "bart --len 50", "bart.safetensors --len 20", "bert.h5 --len 64", "bert.npz --len 64", "vit.h5 --grid 6x6",
               "vit --grid 6x6", "vit.safetensors --grid 3x5", "swin.safetensors --window 6x6", "sam.safetensors --grid 6x6", "sam --grid 8x8"],
    "diff": ["table.npy table.npy", "q.npy k.npy", "e.npy nan.npy", "bert.safetensors bert.safetensors", "bert.safetensors bart.safetensors", "bert.h5 bert.npz", "two.safetensors:a one.npy",
             "bert.safetensors bart.safetensors --tensor-a embeddings.position_embeddings.weight --tensor-b model.encoder.embed_positions.weight", "bool.npy inf.npy", "narrow.npy one.npy", "none.npy narrow.npy"],
}  # fmt: skip
CHANGED = ("table.npy", "two.safetensors", "bert.safetensors", "vit.safetensors", "vit/config.json", "bert.h5", "vit.h5", "bert.npz", "bomb.npz", "external.h5", "short.gguf")  # fmt: skip


@pytest.fixture(scope="module")
def sources(folder: Path) -> list[str]:
    """Names of what may be looked at in `folder`: arrays, broken files, configurations, checkpoints, model folders."""
    return add_models(folder)


def add_models(folder: Path) -> list[str]:
    """Put model folders and checkpoints in every format beside the other files; the names of all that can be read."""
    chance = np.random.default_rng(3)
    for name, (config, shapes) in MODELS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        tensors = {key: chance.normal(size=shape).astype(np.float32) for key, shape in shapes.items()}
        save_file(tensors, folder / name / "model.safetensors")
        save_file(tensors, folder / f"{name}.safetensors")
        np.savez_compressed(folder / f"{name}.npz", **tensors)
        with h5py.File(folder / f"{name}.h5", "w") as file:
            for key, tensor in tensors.items():
                file.create_dataset(key, data=tensor, chunks=tensor.shape if name == "vit" else None)
    return sorted({*os.listdir(folder), *(f"{name}/config.json" for name in MODELS)} - {"fifo"})


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """All files under `folder`, hidden ones too, and when they were last changed."""
    found = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size) for path in found}


SHAPES = [(0,), (1,), (5,), (64,), (1, 1), (1, 8), (2, 2), (3, 5), (8, 1), (16, 16), (16, 8), (64, 33), (2, 3, 4), (1, 16, 8), (4, 16, 16), (1, 1, 64, 32), (7, 7, 2), ()]  # fmt: skip
KINDS: list[Callable[[np.random.Generator, tuple[int, ...]], Any]] = [
    lambda chance, shape: chance.standard_normal(shape),
    lambda chance, shape: np.full(shape, chance.choice([0.0, 1.0, -1e300, np.nan, np.inf])),
    lambda chance, shape: chance.integers(-5, 5, shape),
    lambda chance, shape: np.cos(chance.standard_normal(shape)),
    lambda chance, shape: np.cos(np.arange(np.prod(shape)).reshape(shape) * chance.random()),
    lambda chance, shape: np.where(chance.random(shape) < 0.1, np.nan, chance.standard_normal(shape)),
    lambda chance, shape: np.arange(np.prod(shape)).reshape(shape),
    lambda chance, shape: abs(chance.standard_normal(shape)) * 10.0 ** chance.integers(-320, 308),
]
DTYPES = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "int64", "uint8", "int8", "bool")


def any_array(chance: Random) -> bytes:
    """A file with an array or two of any shape, kind and type."""
    random = np.random.default_rng(chance.randrange(2**60))
    with np.errstate(all="ignore"):
        arrays = {
            name: np.asarray(chance.choice(KINDS)(random, chance.choice(SHAPES))).astype(
                numpy_dtype(chance.choice(DTYPES))
            )
            for name in chance.choice(["a", "ab"])
        }
    return save(arrays)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(500))
def test_sources(seed: int, launch, folder: Path, sources: list[str]) -> None:  # type: ignore[no-untyped-def]
    chance = Random(seed)
    original = (folder / chance.choice(CHANGED)).read_bytes()
    (folder / "changed").write_bytes(mutated(original, chance))
    (folder / "made").write_bytes(any_array(chance))
    name = chance.choice([*LINES])
    argv = [name, *shlex.split(chance.choice(LINES[name]))]
    count = 2 if name == "diff" else 1
    for at in range(1, 1 + count):
        if chance.random() < 0.3:
            argv[at] = chance.choice(["changed", "made", "made:a", chance.choice(sources)])
    stdin = folder / argv[1]
    if stdin.is_file() and chance.random() < 0.1:
        argv[1] = "-"
    argv += some_options(chance, BY_NAME[name])
    target = folder / chance.choice([*TARGETS, "new"])
    if name == "extend":
        argv += ["-o", target.name]

    picture = folder / "new.svg"
    if chance.random() < 0.02:
        argv += ["--plot", picture.name]

    before = state(folder)
    done = launch(argv, folder, **({"stdin": str(stdin)} if argv[1] == "-" else {}))
    after = state(folder)
    made = [Path(path) for path in after if path not in before]
    try:
        check(done, argv, codes=(0, 1, 2) if name == "diff" else (0, 2))
        assert {path: after.get(path) for path in before} == before, (argv, done)
        assert not made or done.code != 2, (argv, done)
        assert name == "extend" or set(made) <= {picture}, (argv, made)
        for path in made:
            if path.suffix not in (".json", ".svg"):
                with open_source(str(path)) as written:
                    assert written.tensors, (argv, done)
    finally:
        for path in made:
            path.unlink()
        if target.is_dir():
            target.rmdir()


@pytest.mark.parametrize("seed", seeds(60))
def test_what_is_compared_with_itself_is_the_same(
    seed: int, launch, folder: Path, sources: list[str]
) -> None:  # type: ignore[no-untyped-def]
    chance = Random(seed)
    one = chance.choice(sources)
    argv = ["diff", one, one, *some_options(chance, BY_NAME["diff"])]
    done = launch(argv, folder)
    if not any(word in argv for word in ("--tensor-a", "--tensor-b")):
        check(done, argv, codes=(0, 2))
