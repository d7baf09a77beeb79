"""Model folders: the one shard rewritten, the index, configuration and limits kept in step, nothing half done."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pe_cli.errors import PeError
from pe_cli.extend import new_folder
from pe_cli.extend.folder import ExtendedFolder, Limits, extend_folder
from pe_cli.extend.request import ResizeRequest

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


def extended(folder: Path, target: Path | None, **options: Any) -> ExtendedFolder:
    return extend_folder(folder, target, ResizeRequest(**options), metadata={"pe": "{}"})


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


def test_parts_of_other_weights_are_left_out_too(model: Path, tmp_path: Path) -> None:
    stale = {"model.onnx_data", "model.onnx.data", "openvino_model.xml", "adapter_config.json"}
    for name in stale:
        (model / name).write_bytes(b"of the old weights")
    told = extended(model, tmp_path / "new", length=1024).files
    assert not stale & {path.name for path in (tmp_path / "new").iterdir()}
    assert stale <= {change.name for change in told if "left out" in change.action}


def test_the_old_folder_is_not_touched(model: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
    extended(model, tmp_path / "new", length=600)
    assert {path: path.read_bytes() for path in model.rglob("*") if path.is_file()} == before


def test_files_stay_as_private_as_they_are(model: Path, tmp_path: Path) -> None:
    """Also those that are written anew: a configuration, and the shard with the table."""
    for path in model.iterdir():
        if path.is_file():
            path.chmod(0o600)
    extend_folder(model, tmp_path / "new", ResizeRequest.of(length=1024), metadata={})
    written = [path for path in (tmp_path / "new").iterdir() if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}


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
    with pytest.raises(PeError, match="force"):
        extended(model, tmp_path / "new", length=1024)
    with pytest.raises(PeError, match="no model folder"):
        extend_folder(
            model, tmp_path / "new", ResizeRequest(length=9, method="truncate"), metadata={}, force=True
        )
    with pytest.raises(PeError, match="inside it"):
        extended(model, model / "new", length=1024)
    extended(model, tmp_path / "one", length=1024)
    extend_folder(model, tmp_path / "one", ResizeRequest(length=700), metadata={}, force=True)
    assert read(tmp_path / "one" / "config.json")["max_position_embeddings"] == 700


def replaced(folder: Path, target: Path, length: int = 700) -> ExtendedFolder:
    return extend_folder(folder, target, ResizeRequest(length=length), metadata={}, force=True)


def rows(folder: Path) -> int:
    return int(read(folder / "config.json")["max_position_embeddings"])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_target_that_holds_the_model(model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = contents(tmp_path)
    (tmp_path / "model" / "way out").symlink_to(tmp_path)
    for target in (tmp_path, model, model / "way out", model / "way out" / "model" / "new"):
        with pytest.raises(PeError, match=r"holds the model itself|the model itself or inside it"):
            replaced(model, target)
    (model / "way out").unlink()
    assert contents(tmp_path) == before


def test_a_target_that_the_model_links_to(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "first")
    shard = "model-00002-of-00002.safetensors"
    (model / shard).unlink()
    (model / shard).symlink_to(f"../first/{shard}")
    with pytest.raises(PeError, match=rf"first holds what \S*/model/{shard} of the model links to"):
        replaced(model, tmp_path / "first")
    assert rows(tmp_path / "first") == 512


def test_what_the_new_model_does_not_have_is_not_lost(model: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    shutil.copytree(model, new)
    (new / "thesis.txt").write_text("years of work")
    with pytest.raises(
        PeError, match=r"new holds thesis\.txt, which the new model does not have: move it, or"
    ):
        replaced(model, new)
    (new / "1_Pooling" / "mine").write_text("mine")
    (new / "README.md").mkdir()
    (new / "runs" / "1").mkdir(parents=True)
    (new / "links").symlink_to(tmp_path)
    with pytest.raises(PeError, match=r"holds README\.md/, links/, runs/ and 2 more, which .* move them, or"):
        replaced(model, new)
    assert (new / "thesis.txt").exists()
    assert rows(new) == 512
    for name in ("README.md", "runs"):
        shutil.rmtree(new / name)
    for name in ("links", "thesis.txt", "1_Pooling/mine"):
        (new / name).unlink()
    replaced(model, new)
    assert rows(new) == 700
    assert sorted(os.listdir(tmp_path)) == ["model", "new"]


def test_what_comes_into_the_target_meanwhile(model: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    extended(model, new, length=600)

    def watch(*tables: Any) -> None:
        (new / "thesis.txt").write_text("just saved")

    with pytest.raises(PeError, match=r"holds thesis\.txt"):
        extend_folder(model, new, ResizeRequest(length=700), metadata={}, force=True, watch=watch)
    assert (new / "thesis.txt").exists()
    assert rows(new) == 600
    shutil.rmtree(new)

    def appear(*tables: Any) -> None:
        new.mkdir()

    with pytest.raises(PeError, match=r"new exists and is not overwritten"):
        extend_folder(model, new, ResizeRequest(length=700), metadata={}, watch=appear)
    assert sorted(os.listdir(tmp_path)) == ["model", "new"]


def test_a_folder_of_weights_alone_can_be_replaced(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    save_file({TABLE: RNG.standard_normal((512, 8))}, tmp_path / "model" / "model.safetensors")
    for length in (600, 700):
        replaced(tmp_path / "model", tmp_path / "new", length)
        assert load_file(tmp_path / "new" / "model.safetensors")[TABLE].shape == (length, 8)


def test_links_and_files_as_targets(model: Path, tmp_path: Path) -> None:
    extended(model, tmp_path / "real", length=600)
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link"
    link.symlink_to("../real")
    replaced(model, link)
    assert os.readlink(link) == "../real"
    assert rows(tmp_path / "real") == 700
    assert os.listdir(tmp_path / "elsewhere") == ["link"]
    (tmp_path / "file").write_text("")
    with pytest.raises(PeError, match=r"/file is no folder; give the name of a new one$"):
        replaced(model, tmp_path / "file")
    for text in ("missing", "link"):
        link.unlink()
        link.symlink_to(text)
        with pytest.raises(PeError, match=r"/elsewhere/link is a link that leads nowhere; remove it"):
            replaced(model, link)
    with pytest.raises(PeError, match=r"^cannot write \S*/a/b: there is no folder \S*/a; make it first$"):
        replaced(model, tmp_path / "a" / "b")
    with pytest.raises(PeError, match=r"^cannot write \S*/file/b: Not a directory"):
        replaced(model, tmp_path / "file" / "b")


@pytest.mark.parametrize("mask", [0o002, 0o022, 0o077])
def test_modes_are_those_of_any_new_folder(mask: int, model: Path, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        extended(model, tmp_path / "new", length=600)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o777 & ~mask
    (tmp_path / "new").chmod(0o710)
    replaced(model, tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o710


@pytest.mark.parametrize("last", [1, 2, 3])
def test_without_an_exchange_the_old_folder_comes_back(
    last: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted before the first rename, between the two, or not at all."""
    extended(model, tmp_path / "new", length=600)
    monkeypatch.setattr(new_folder, "renamed", lambda *_: False)
    rename, count = os.rename, 0

    def interrupted(source: Path, target: Path) -> None:
        nonlocal count
        count += 1
        if count == last:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    if last < 3:
        with pytest.raises(KeyboardInterrupt):
            replaced(model, tmp_path / "new")
    else:
        replaced(model, tmp_path / "new")
    assert rows(tmp_path / "new") == (700 if last == 3 else 600)
    assert sorted(os.listdir(tmp_path)) == ["model", "new"]


def test_an_interrupted_removal_is_finished(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extended(model, tmp_path / "new", length=600)
    rmtree, calls = shutil.rmtree, []

    def interrupted(folder: Path, **options: Any) -> None:
        calls.append(folder)
        if len(calls) == 1:
            raise KeyboardInterrupt
        rmtree(folder, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replaced(model, tmp_path / "new")
    assert rows(tmp_path / "new") == 700
    assert sorted(os.listdir(tmp_path)) == ["model", "new"]


def test_all_is_on_the_disk_before_a_folder_is_replaced(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, rename = os.fsync, new_folder.renamed
    flushed: list[str] = []
    at_exchange: list[str] = []

    def noted(fd: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        fsync(fd)

    def renamed(source: Path, target: Path, flag: int) -> bool:
        if flag == new_folder.EXCHANGE:
            at_exchange.extend(flushed)
        return rename(source, target, flag)

    extended(model, tmp_path / "new", length=600)
    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(new_folder, "renamed", renamed)
    replaced(model, tmp_path / "new")
    names = {path.name for path in (tmp_path / "new").rglob("*")}
    assert names <= set(at_exchange)
    assert any(name.startswith(".pe-") for name in at_exchange)


def test_read_only_folders_are_replaced(model: Path, tmp_path: Path) -> None:
    (model / "1_Pooling").chmod(0o500)
    replaced(model, tmp_path / "new", 600)
    (tmp_path / "new" / "1_Pooling").chmod(0o500)
    replaced(model, tmp_path / "new", 700)
    assert rows(tmp_path / "new") == 700
    assert stat.S_IMODE((tmp_path / "new" / "1_Pooling").stat().st_mode) == 0o700
    assert sorted(os.listdir(tmp_path)) == ["model", "new"]
    (model / "1_Pooling").chmod(0o700)


@pytest.mark.parametrize("room", [10, 50])
def test_a_full_disk_names_what_was_typed(room: int, model: Path, tmp_path: Path) -> None:
    """As far as a limit on the size of files is like a full disk: too small for the weights, or for what is copied."""
    (model / "vocab.txt").write_bytes(bytes(100_000))
    limit = f'ulimit -f {room}; exec "{sys.executable}" -m pe_cli extend model --len 600 -o new'
    done = subprocess.run(["bash", "-c", limit], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("pe: cannot write new")
    assert ".pe-" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == ["model"]


def test_links_stay_links_where_they_mean_the_same(model: Path, tmp_path: Path) -> None:
    (tmp_path / "blobs" / "more").mkdir(parents=True)
    (tmp_path / "blobs" / "vocab").write_text("a b c")
    (tmp_path / "blobs" / "more" / "loop").symlink_to("more.txt")
    (tmp_path / "blobs" / "more" / "more.txt").write_text("more")
    links = {
        "self": ".",
        "again.json": "config.json",
        "weights": "model-00001-of-00002.safetensors",
        "1_Pooling/up.json": "../config.json",
        "vocab.txt": "../blobs/vocab",
        "vocab2.txt": str(model / "generation_config.json"),
        "more": "../blobs/more",
        "old.link": "older.link",
        "older.link": "pytorch_model.bin",
        "1_Pooling/old": "../onnx/model.onnx",
    }
    for name, leads in links.items():
        (model / name).symlink_to(leads)
    new = tmp_path / "new"
    result = replaced(model, new)
    for name in ("self", "again.json", "weights", "1_Pooling/up.json"):
        assert os.readlink(new / name) == links[name]
    assert read(new / "1_Pooling" / "up.json")["max_position_embeddings"] == 700
    for name, text in {"vocab.txt": "a b c", "more/more.txt": "more", "more/loop": "more"}.items():
        assert (new / name).read_text() == text
        assert not (new / name).is_symlink()
    assert not (new / "vocab2.txt").is_symlink()
    assert {change.name for change in result.files if "left out" in change.action} == {
        *("old.link", "older.link", "onnx", "pytorch_model.bin")
    }
    for name in ("old.link", "older.link", "1_Pooling/old"):
        assert not os.path.lexists(new / name)
    replaced(model, new, 800)
    assert rows(new) == 800


@pytest.mark.parametrize("target", [None, "new"])
@pytest.mark.parametrize(
    ("name", "leads", "said"),
    [
        ("a.txt", "missing", r"a\.txt is a link that leads nowhere: No such file or directory; remove it"),
        ("1_Pooling/a", "a", "1_Pooling/a is a link that leads nowhere: Too many levels .*; remove it"),
        ("up", "..", "up is a link to a folder that holds it, and cannot be copied; remove it"),
        ("root", "/", "root is a link to a folder that holds it, and cannot be copied; remove it"),
        ("null", "/dev/null", "null is a pipe, a socket or a device, and cannot be copied; remove it"),
    ],
)
def test_links_that_cannot_be_copied(
    name: str, leads: str, said: str, target: str | None, model: Path, tmp_path: Path
) -> None:
    (model / name).symlink_to(leads)
    with pytest.raises(PeError, match=rf"^\S*/model/{said}$"):
        extended(model, tmp_path / target if target else None, length=1024)
    assert os.listdir(tmp_path) == ["model"]


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
    with pytest.raises(PeError, match=r"sizes model.decoder.embed_positions.weight; extend them together"):
        extended(tmp_path, None, length=128, tensor=(names[0],))
    result = extended(tmp_path, None, length=128, tensor=("*embed_positions.weight",))
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
