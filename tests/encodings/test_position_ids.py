from __future__ import annotations

import numpy as np
import pytest

from pe_cli.encodings.position_ids import position_ids
from pe_cli.errors import PeError


def ids(scheme: str, length: int | None = 10, **options: object) -> dict:
    return {n: t.tolist() for n, t in position_ids(length, scheme=scheme, **options).items()}


def test_stride_and_anchors_fill_the_others() -> None:
    assert ids("stride", stride=3, start=1)["position_ids"] == [-1, 1, 1, 1, 4, 4, 4, 7, 7, 7]
    assert ids("stride", stride=4, fill="nearest")["position_ids"] == [0, 0, 0, 4, 4, 4, 4, 8, 8, 8]
    assert ids("anchors", anchors=(7, 2), fill="none")["position_ids"] == [
        *[-1, -1, 2, -1, -1],
        *[-1, -1, 7, -1, -1],
    ]


def test_sinks_are_ranked_in_the_cache() -> None:
    assert ids("sinks", window=3, sinks=2) == {"position_ids": [0, 1, 2, 3, 4], "kept": [0, 1, 7, 8, 9]}
    assert ids("streaming-llm", length=3, window=3)["kept"] == [0, 1, 2]


def test_randomised_draws_are_sorted_and_distinct() -> None:
    drawn = ids("randomised", length=50, max_position=60, seed=2)["position_ids"]
    assert drawn == sorted(set(drawn))
    assert len(drawn) == 50
    assert 0 <= drawn[0] <= drawn[-1] < 60
    assert drawn != ids("randomised", length=50, max_position=60, seed=3)["position_ids"]


@pytest.mark.parametrize("seed", range(20))
def test_pose_has_one_gap_and_stays_below(seed: int) -> None:
    made = position_ids(10, scheme="pose", max_position=40, seed=seed)
    drawn = made["position_ids"]
    steps = np.diff(drawn)
    assert drawn[0] == 0
    assert drawn[-1] == 9 + made.facts["skip"] < 40
    assert sorted(steps)[:-1] == [1] * 8
    assert 1 <= made.facts["first_run"] <= 5


@pytest.mark.parametrize(("group", "window"), [(2, 4), (3, 7), (8, 8)])
def test_self_extend_by_its_formula(group: int, window: int) -> None:
    made = position_ids(40, scheme="self-extend", group=group, window=window, pairs=True)
    for i in range(40):
        for j in range(40):
            far = i // group - j // group + window - window // group
            want = -1 if j > i else i - j if i - j < window else far
            assert made["distances"][i, j] == want
            assert made["group_query_ids"][i] - made["group_key_ids"][j] == far
    assert made["distances"].max() == made.facts["largest_distance"]


def test_dual_chunk_never_leaves_the_trained_distances() -> None:
    made = position_ids(100, scheme="dual-chunk", max_position=16, pairs=True)
    chunk, size = 12, 10
    for i in range(100):
        for j in range(i + 1):
            apart = i // size - j // size
            query = [i % size, min(i % size + size, chunk)][apart] if apart < 2 else min(2 * size - 1, chunk)
            assert made["distances"][i, j] == query - j % size
    assert made["distances"].max() < 16


def test_lm_infinite_sees_sinks_and_a_window() -> None:
    row = ids("lm-infinite", window=3, sinks=1, max_distance=5)["distances"][8]
    assert row == [5, -1, -1, -1, -1, -1, 2, 1, 0, -1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: ids("strides", stride=2),
        lambda: ids("stride"),
        lambda: ids("stride", stride=2, group=3),
        lambda: ids("stride", stride=0),
        lambda: ids("stride", stride=2, start=10),
        lambda: ids("anchors", anchors=(10,)),
        lambda: ids("sinks", window=2, seed=1),
        lambda: ids("randomised", max_position=9),
        lambda: ids("pose", max_position=9),
        lambda: ids("dual-chunk", max_position=1),
        lambda: ids("sinks", length=0, window=2),
        lambda: ids("stride", None, stride=2),
        lambda: ids("packed", lengths=(2, 3)),
        lambda: ids("packed", None, lengths=(2, 0)),
        lambda: ids("packed", None, lengths=(2,), stride=3),
        lambda: ids("mrope", None, segments="text:5,image:1x4x6"),
        lambda: ids("mrope", None, segments="text:5,image:1x4x5", merge=2),
        lambda: ids("mrope", None, segments="video:3x4x4", merge=2, temporal_merge=2),
        lambda: ids("mrope", None, segments="text:0"),
        lambda: ids("mrope", None, segments="text:5,,text:2"),
        lambda: ids("mrope", None, segments="picture:1x4x4", merge=2),
        lambda: ids("mrope", None, segments="image:4", merge=2),
        lambda: ids("mrope", None, segments="image:1x4x4", merge=0),
        lambda: ids("mrope", None, segments="video:2x4x4", merge=2, time_interval=-1.0),
        lambda: ids("mrope", None, segments="video:2x4x4", merge=2, time_interval=1e300),
        lambda: ids("mrope", None, segments="text:999999999999999999"),
        lambda: ids("mrope", None, segments="image:1x4x4", merge=2, after="all"),
        lambda: ids("from-mask", None, mask=np.array([0, 1, 2])),
        lambda: ids("from-mask", None, mask=np.array(["1"])),
        lambda: ids("from-mask", None, mask=np.ones((2, 2, 2))),
        lambda: ids("from-mask", None, mask=np.array([1]), padding_idx=-1),
    ],
)
def test_what_makes_no_sense_is_refused(call) -> None:
    with pytest.raises(PeError):
        call()


def test_mrope_counts_text_on_all_axes_and_gives_grids_their_own() -> None:
    made = position_ids(
        scheme="mrope", segments="text:2,image:1x4x6,audio:1,video:2x2x2", merge=2, time_interval=1.5
    )
    assert made["position_ids"].tolist() == [
        *[[0, 0, 0], [1, 1, 1]],
        *[[2, 2, 2], [2, 2, 3], [2, 2, 4], [2, 3, 2], [2, 3, 3], [2, 3, 4]],
        *[[5, 5, 5], [6, 6, 6], [7, 6, 6]],
    ]
    assert made["mrope_delta"].tolist() == [8 - 11]


def test_mrope_says_where_a_long_video_is_overtaken_by_what_follows() -> None:
    options = {"scheme": "mrope", "segments": "video:5x2x4,text:1", "merge": 2}
    made = position_ids(**options)
    assert made["position_ids"][-1].tolist() == [2, 2, 2]
    assert "go on behind the largest" in made.warnings[0]
    other = position_ids(**options, after="largest")
    assert other["position_ids"][-1].tolist() == [5, 5, 5]
    assert other.warnings == ()


def test_packed_documents_count_from_the_start_each() -> None:
    assert ids("packed", None, lengths=(2, 1, 3))["position_ids"] == [0, 1, 0, 0, 1, 2]
    assert ids("packed", None, lengths=(2, 2), start=2)["position_ids"] == [2, 3, 2, 3]


def test_masks_number_tokens_and_leave_padding_out() -> None:
    mask = np.array([[0, 0, 1, 1], [1, 1, 1, 0]])
    assert ids("from-mask", None, mask=mask)["position_ids"] == [[1, 1, 0, 1], [0, 1, 2, 1]]
    assert ids("from-mask", None, mask=mask[0] > 0, padding_idx=0)["position_ids"] == [0, 0, 1, 2]


MROPE = [
    ("qwen2_vl", "Qwen2VLModel", {}),
    ("qwen2_5_vl", "Qwen2_5_VLModel", {"tokens_per_second": 2}),
    ("qwen3_vl", "Qwen3VLModel", {}),
    ("glm4v", "Glm4vModel", {}),
    ("glm_ocr", "GlmOcrModel", {}),
    ("paddleocr_vl", "PaddleOCRVLModel", {}),
    ("ernie4_5_vl_moe", "Ernie4_5_VLMoeModel", {"temporal_merge_size": 2}),
]
BY_FRAME = (
    "qwen3_vl",
    "glm4v",
    "glm_ocr",
)  # their processors put time stamps, which are text, between frames


@pytest.mark.interop
@pytest.mark.parametrize(("package", "name", "vision"), MROPE)
def test_mrope_equals_get_rope_index(package: str, name: str, vision: dict) -> None:
    from importlib import import_module
    from types import SimpleNamespace

    torch = pytest.importorskip("torch")
    model = getattr(import_module(f"transformers.models.{package}.modeling_{package}"), name)
    config = SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2, **vision))
    shell = SimpleNamespace(config=config)
    shell.get_vision_position_ids = lambda *a, **k: model.get_vision_position_ids(shell, *a, **k)
    numbers = np.random.default_rng(7)
    for _ in range(20):
        segments, kinds, grids, seconds = (
            [],
            [],
            {"image": [], "video": []},
            float(numbers.choice([0.5, 1.0, 0.7])),
        )
        for kind in numbers.choice(["image", "video"], 3):
            text, (rows, columns) = numbers.integers(1, 9), 2 * numbers.integers(1, 5, 2)
            frames = {"image": 1, "video": 1 if package in BY_FRAME else 2 * numbers.integers(1, 4)}[kind]
            segments += [f"text:{text}", f"{kind}:{frames}x{rows}x{columns}"]
            grids[kind].append([frames, rows, columns])
            seen = frames // (vision.get("temporal_merge_size", 1) if kind == "video" else 1)
            kinds += [0] * text + [1 if kind == "image" else 2] * (seen * rows * columns // 4)
        extra = {}
        interval = None
        if "tokens_per_second" in vision and grids["video"]:
            interval = vision["tokens_per_second"] * seconds
            extra["second_per_grid_ts"] = torch.full((len(grids["video"]),), seconds)
        tensors = {f"{kind}_grid_thw": torch.tensor(grid) if grid else None for kind, grid in grids.items()}
        tokens = torch.zeros(1, len(kinds), dtype=torch.long)
        want, delta = model.get_rope_index(shell, tokens, torch.tensor([kinds]), **tensors, **extra)
        merge = vision.get("temporal_merge_size")
        made = position_ids(
            scheme="mrope", segments=",".join(segments), merge=2, temporal_merge=merge, time_interval=interval
        )
        np.testing.assert_array_equal(made["position_ids"], want[:, 0].T)
        np.testing.assert_array_equal(made["mrope_delta"], delta[0])


@pytest.mark.interop
def test_behind_the_largest_equals_qwen_omni() -> None:
    from types import SimpleNamespace

    torch = pytest.importorskip("torch")
    from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import (
        Qwen2_5OmniPreTrainedModelForConditionalGeneration as Omni,
    )

    names = ("image", "video", "audio", "vision_start", "audio_start")
    config = SimpleNamespace(
        **{f"{name}_token_id": 1 + i for i, name in enumerate(names)},
        position_id_per_seconds=25,
        seconds_per_chunk=2,
    )
    shell = SimpleNamespace(config=config, spatial_merge_size=2)
    shell.get_llm_pos_ids_for_vision = lambda *a: Omni.get_llm_pos_ids_for_vision(shell, *a)
    tokens = [9, 9, 4, *[2] * (6 * 2 * 3), 9, 4, *[1] * (2 * 2), 9, 9]
    want, delta = Omni.get_rope_index(
        shell,
        torch.tensor([tokens]),
        image_grid_thw=torch.tensor([[1, 4, 4]]),
        video_grid_thw=torch.tensor([[6, 4, 6]]),
        attention_mask=torch.ones(1, len(tokens), dtype=torch.long),
        second_per_grids=torch.tensor([0.3]),
    )
    made = position_ids(
        scheme="mrope",
        segments="text:3,video:6x4x6,text:2,image:1x4x4,text:2",
        merge=2,
        time_interval=25 * 0.3,
        after="largest",
    )
    np.testing.assert_array_equal(made["position_ids"], want[:, 0].T)
    np.testing.assert_array_equal(made["mrope_delta"], delta[0])


@pytest.mark.interop
def test_packed_equals_the_flattening_collator() -> None:
    collators = pytest.importorskip("transformers.data.data_collator")
    documents = [{"input_ids": [5] * n} for n in (5, 1, 7)]
    for start in (0, 2):
        collate = collators.DataCollatorWithFlattening(return_tensors="np", position_ids_start=start)
        want = collate(documents)["position_ids"][0]
        assert ids("packed", None, lengths=(5, 1, 7), start=start)["position_ids"] == want.tolist()


@pytest.mark.interop
@pytest.mark.parametrize("padding", [0, 1, 3])
def test_masks_equal_roberta(padding: int) -> None:
    torch = pytest.importorskip("torch")
    from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

    tokens = torch.tensor([[padding, padding, 7, 8, 9], [7, 8, 9, padding, padding], [7, padding, 8, 9, 9]])
    want = RobertaEmbeddings.create_position_ids_from_input_ids(tokens, padding)
    made = position_ids(scheme="from-mask", mask=(tokens != padding).numpy(), padding_idx=padding)
    np.testing.assert_array_equal(made["position_ids"], want)
