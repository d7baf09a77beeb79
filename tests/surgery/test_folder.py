"""Model folders: the one shard rewritten, the index, configuration and limits kept in step, nothing half done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pe_cli.errors import PeError
from pe_cli.surgery.folder import Limits, Result, extend_folder
from pe_cli.surgery.presets import Request

TABLE = "embeddings.position_embeddings.weight"
RNG = np.random.default_rng(5)


def write(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A BERT-like model in two shards, with every file that repeats its length."""
    folder = tmp_path / "model"
    (folder / "1_Pooling").mkdir(parents=True)
    (folder / "onnx").mkdir()
    table = RNG.standard_normal((512, 8)).astype(np.float32)
    shards = {
        "model-00001-of-00002.safetensors": {
            TABLE: table,
            "embeddings.position_ids": np.arange(512)[None],
        },
        "model-00002-of-00002.safetensors": {"head.weight": np.ones((8, 8), np.float32)},
    }
    total = 0
    for name, tensors in shards.items():
        save_file(tensors, folder / name, metadata={"format": "pt"})
        total += sum(tensor.nbytes for tensor in tensors.values())
    write(
        folder / "model.safetensors.index.json",
        {
            "metadata": {"total_size": total, "total_parameters": 512 * 8 + 64},
            "weight_map": {key: name for name, tensors in shards.items() for key in tensors},
        },
    )
    write(folder / "config.json", {"model_type": "bert", "max_position_embeddings": 512, "name": "Zoë"})
    write(folder / "tokenizer_config.json", {"model_max_length": 512})
    write(folder / "sentence_bert_config.json", {"max_seq_length": 256})
    write(folder / "generation_config.json", {"max_length": 512})
    truncation = {"truncation": {"max_length": 128}, "padding": {"strategy": {"Fixed": 128}}, "vocab": ["é"]}
    (folder / "tokenizer.json").write_text(
        json.dumps(truncation, ensure_ascii=False, separators=(",", ":")), encoding="utf-8"
    )
    write(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": 8})
    (folder / "pytorch_model.bin").write_bytes(b"old weights")
    (folder / "onnx" / "model.onnx").write_bytes(b"old weights")
    return folder


def extended(folder: Path, target: Path | None, **options: Any) -> Result:
    return extend_folder(folder, target, Request(**options), metadata={"pe": "{}"})


def test_one_shard_and_all_that_repeats_the_length(model: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    extended(model, new, length=1024, method="tile")
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    got = load_file(new / first)
    assert got[TABLE].shape == (1024, 8)
    assert np.array_equal(got["embeddings.position_ids"], np.arange(1024)[None])
    assert (new / second).read_bytes() == (model / second).read_bytes()
    index = read(new / "model.safetensors.index.json")
    assert index["weight_map"] == read(model / "model.safetensors.index.json")["weight_map"]
    assert index["metadata"]["total_size"] == sum(
        tensor.nbytes for name in (first, second) for tensor in load_file(new / name).values()
    )
    assert index["metadata"]["total_parameters"] == 1024 * 8 + 64
    assert read(new / "config.json") == {"model_type": "bert", "max_position_embeddings": 1024, "name": "Zoë"}
    assert read(new / "tokenizer_config.json")["model_max_length"] == 1024
    assert read(new / "sentence_bert_config.json")["max_seq_length"] == 1024
    assert read(new / "generation_config.json")["max_length"] == 1024
    text = (new / "tokenizer.json").read_text(encoding="utf-8")
    assert text == '{"truncation":{"max_length":1024},"padding":{"strategy":"BatchLongest"},"vocab":["é"]}'
    assert (new / "1_Pooling" / "config.json").exists()
    assert not (new / "pytorch_model.bin").exists()
    assert not (new / "onnx").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"model", "new"}


def test_the_old_folder_is_not_touched(model: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
    extended(model, tmp_path / "new", length=600)
    assert {path: path.read_bytes() for path in model.rglob("*") if path.is_file()} == before


def test_dry_run_tells_the_same_and_writes_nothing(model: Path, tmp_path: Path) -> None:
    told = extended(model, None, length=1024)
    assert {path.name for path in tmp_path.iterdir()} == {"model"}
    done = extended(model, tmp_path / "new", length=1024)
    assert [change.json() for change in told.files] == [change.json() for change in done.files]
    by_name = {change.name: change for change in told.files}
    assert [str(edit) for edit in by_name["config.json"].edits] == ["max_position_embeddings: 512 -> 1024"]
    assert "left out" in by_name["pytorch_model.bin"].action
    assert [report.name for report in told.reports] == [TABLE]


def test_shrinking_lowers_only_limits_above(model: Path, tmp_path: Path) -> None:
    extended(model, tmp_path / "new", length=200, method="truncate")
    new = tmp_path / "new"
    assert read(new / "sentence_bert_config.json")["max_seq_length"] == 200
    assert read(new / "tokenizer.json")["truncation"]["max_length"] == 128


def test_a_config_that_disagrees(model: Path, tmp_path: Path) -> None:
    write(model / "config.json", {"model_type": "bert", "max_position_embeddings": 128})
    with pytest.raises(PeError, match=r"says max_position_embeddings 128, but .* has 512 rows"):
        extended(model, tmp_path / "new", length=1024)
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


def test_nothing_is_left_of_a_failure(model: Path, tmp_path: Path) -> None:
    broken = model / "model-00001-of-00002.safetensors"
    tensors = load_file(broken)
    tensors[TABLE][3] = np.inf
    save_file(tensors, broken)
    with pytest.raises(PeError, match="not finite in row 3"):
        extended(model, tmp_path / "new", length=1024)
    assert {path.name for path in tmp_path.iterdir()} == {"model"}


def test_an_existing_folder(model: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("dear to me")
    with pytest.raises(PeError, match="--force"):
        extended(model, tmp_path / "new", length=1024)
    with pytest.raises(PeError, match="no model folder"):
        extend_folder(model, tmp_path / "new", Request(length=9, method="truncate"), metadata={}, force=True)
    with pytest.raises(PeError, match="inside it"):
        extended(model, model / "new", length=1024)
    extended(model, tmp_path / "one", length=1024)
    extend_folder(model, tmp_path / "one", Request(length=700), metadata={}, force=True)
    assert read(tmp_path / "one" / "config.json")["max_position_embeddings"] == 700


def test_no_weights(tmp_path: Path) -> None:
    with pytest.raises(PeError, match=r"holds no model\.safetensors"):
        extended(tmp_path, None, length=9)


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weight_map": None}, "weight_map is null, not an object of tensor and file names"),
        ({"weight_map": [1]}, r"weight_map is \[1\], not an object of tensor and file names"),
        ({"weight_map": {}}, "names no files: weight_map is empty"),
        ({"weight_map": {"a": 1}}, "weight_map gives 1 for a, not the name of a file"),
        ({"weight_map": {"a": "b"}}, 'names "b", which is not there'),
        ({"weight_map": {"a": "../b"}}, "names ../b, which is outside the folder"),
        ({"metadata": [1]}, r"metadata is \[1\], not an object"),
    ],
)
def test_an_index_that_is_none(changes: dict[str, Any], said: str, model: Path) -> None:
    write(model / INDEX, {**read(model / INDEX), **changes})
    with pytest.raises(PeError, match=rf"^\S*/{INDEX}:? {said}$"):
        extended(model, None, length=1024)


def test_an_index_without_metadata(model: Path, tmp_path: Path) -> None:
    write(model / INDEX, {**read(model / INDEX), "metadata": None})
    extended(model, tmp_path / "new", length=1024)
    assert (tmp_path / "new" / INDEX).read_bytes() == (model / INDEX).read_bytes()


def test_one_field_for_two_tables(tmp_path: Path) -> None:
    names = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]
    save_file(
        {name: RNG.standard_normal((66, 8)).astype(np.float32) for name in names},
        tmp_path / "model.safetensors",
    )
    write(tmp_path / "config.json", {"model_type": "bart", "max_position_embeddings": 64})
    with pytest.raises(PeError, match="extend both"):
        extended(tmp_path, None, length=128, tensors=(names[0],))
    result = extended(tmp_path, None, length=128, tensors=("*embed_positions.weight",))
    assert [str(edit) for edit in result.plan.edits] == ["max_position_embeddings: 64 -> 128"]


def test_image_sizes_of_processors() -> None:
    limits = Limits(image=(224, 384))
    assert limits.preprocessor(
        {"size": {"height": 224, "width": 224}, "crop_size": 224, "do_resize": True}
    ) == {
        "size": {"height": 384, "width": 384},
        "crop_size": 384,
        "do_resize": True,
    }
    assert limits.preprocessor({"size": {"shortest_edge": 256}}) == {"size": {"shortest_edge": 256}}
    nested = {"image_processor": {"size": {"shortest_edge": 224}}}
    assert limits.processor(nested) == {"image_processor": {"size": {"shortest_edge": 384}}}


def test_whisper_chunks_follow_the_encoder() -> None:
    before = {
        "nb_max_frames": 3000,
        "n_samples": 480000,
        "chunk_length": 30,
        "hop_length": 160,
        "sampling_rate": 16000,
    }
    after = Limits(audio=(1500, 750)).preprocessor(dict(before))
    assert (after["nb_max_frames"], after["n_samples"], after["chunk_length"]) == (1500, 240000, 15)
