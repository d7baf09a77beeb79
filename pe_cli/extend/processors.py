"""What tokenizer, image processor and other files beside a model repeat of its sizes, kept in step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pe_cli.extend.config import IMAGE_FIELDS, IMAGE_TOKEN_FIELDS, ModelConfig, image_tokens, scaled_pinpoints
from pe_cli.extend.plan import ExtensionPlan

OPEN_CLIP = "open_clip_config.json"
LIMITED = (
    (OPEN_CLIP, "open_clip"),
    ("video_preprocessor_config.json", "preprocessor"),
    ("tokenizer_config.json", "tokenizer_config"),
    ("tokenizer.json", "tokenizer"),
    ("sentence_bert_config.json", "sentence_bert"),
    ("generation_config.json", "generation"),
    ("preprocessor_config.json", "preprocessor"),
    ("processor_config.json", "processor"),
)
SAMPLES_PER_FRAME = 2  # Whisper: two mel frames for one position


@dataclass(frozen=True)
class Limits:
    """Old and new sizes that files around the model repeat: tokens, image sides, audio positions."""

    tokens: tuple[int, int] | None = None
    image: tuple[Any, Any] | None = None
    audio: tuple[int, int] | None = None
    image_tokens: tuple[int, int] | None = None

    @classmethod
    def of(cls, plan: ExtensionPlan, config: ModelConfig | None) -> Limits:
        """What the plan changes, as far as its configuration edits say what it is."""
        image = audio = counts = None
        for edit in plan.edits:
            if edit.path[-1] == "max_source_positions":
                audio = (edit.old, edit.new)
            elif edit.path[-1] in IMAGE_FIELDS and edit.old is not None:
                image = image or (edit.old, edit.new)
        grids = [table for table in plan.tables.values() if table.kind == "grid" and len(table.sizes) == 2]
        if grids and config is not None:
            old, new = (image_tokens(config.data, grid) for grid in (grids[0].layout.old, grids[0].sizes))
            counts = (old, new) if old is not None and new is not None else None
        return cls(plan.tokens if audio is None else None, image, audio, counts)

    def _length(self, value: Any) -> Any:
        """A limit in tokens: raised to what is usable now, or lowered to it; one that is no limit stays."""
        if self.tokens is None or type(value) is not int:
            return value
        old, new = self.tokens
        if new > old:
            return new if 0 < value <= old else value
        return new if new < value < 1 << 40 else value

    def tokenizer_config(self, data: dict[str, Any]) -> dict[str, Any]:
        if "model_max_length" in data:
            data["model_max_length"] = self._length(data["model_max_length"])
        return data

    def tokenizer(self, data: dict[str, Any]) -> dict[str, Any]:
        """Truncation at the new length; padding to a fixed length, which was that of truncation, to the longest."""
        truncation, padding = data.get("truncation"), data.get("padding")
        if isinstance(truncation, dict) and self.tokens is not None:
            before = truncation.get("max_length")
            truncation["max_length"] = self._length(before)
            fixed = padding.get("strategy") if isinstance(padding, dict) else None
            if (
                isinstance(fixed, dict)
                and fixed.get("Fixed") == before
                and truncation["max_length"] != before
            ):
                assert isinstance(padding, dict)
                padding["strategy"] = "BatchLongest"
        return data

    def sentence_bert(self, data: dict[str, Any]) -> dict[str, Any]:
        if "max_seq_length" in data:
            data["max_seq_length"] = self._length(data["max_seq_length"])
        return data

    def generation(self, data: dict[str, Any]) -> dict[str, Any]:
        if self.tokens is not None and data.get("max_length") == self.tokens[0]:
            data["max_length"] = self.tokens[1]
        return data

    def open_clip(self, data: dict[str, Any]) -> dict[str, Any]:
        """The configuration of open_clip beside weights of another library."""
        parts = data.get("model_cfg", {})
        vision, text = (parts.get(name) for name in ("vision_cfg", "text_cfg"))
        if isinstance(vision, dict) and self.image is not None and vision.get("image_size") == self.image[0]:
            vision["image_size"] = self.image[1]
        if (
            isinstance(text, dict)
            and self.tokens is not None
            and text.get("context_length") == self.tokens[0]
        ):
            text["context_length"] = self.tokens[1]
        return data

    def preprocessor(self, data: dict[str, Any]) -> dict[str, Any]:
        """Image sides, the number of tokens of an image, and for Whisper the length of a chunk."""
        if self.image is not None:
            self._image_sides(data)
        for key in IMAGE_TOKEN_FIELDS:
            if self.image_tokens is not None and data.get(key) == self.image_tokens[0]:
                data[key] = self.image_tokens[1]
        if self.audio is not None and isinstance(data.get("nb_max_frames"), int):
            _chunk(data, SAMPLES_PER_FRAME * self.audio[1])
        return data

    def processor(self, data: dict[str, Any]) -> dict[str, Any]:
        for part in ("image_processor", "video_processor", "feature_extractor"):
            if isinstance(data.get(part), dict):
                data[part] = self.preprocessor(data[part])
        return self.preprocessor(data)

    def _image_sides(self, data: dict[str, Any]) -> None:
        crops = self._image(data.get("crop_size")) != data.get("crop_size")
        for key in ("size", "crop_size", "pad_size"):
            if key in data:
                new = self._image(data[key])
                if key == "size" and crops and new == data[key] and data.get("do_center_crop", True):
                    new = self._in_proportion(data[key])  # the crop is cut out of it
                data[key] = new
        pinned = scaled_pinpoints(data.get("image_grid_pinpoints"), *self._sides())
        if pinned:
            data["image_grid_pinpoints"] = pinned

    def _sides(self) -> tuple[list[int], list[int]]:
        """The old and the new image as [height, width]."""
        assert self.image is not None
        old, new = (side if isinstance(side, list) else [side, side] for side in self.image)
        return old, new

    def _in_proportion(self, value: Any) -> Any:
        """A size that was not the image's, grown as the image grows."""
        old, new = self._sides()
        ratios = {"height": new[0] / old[0], "width": new[1] / old[1]}
        most = max(ratios.values())
        if type(value) is int:
            return math.ceil(value * most)
        if not isinstance(value, dict):
            return value
        return {
            key: math.ceil(side * ratios.get(key, most)) if type(side) is int else side
            for key, side in value.items()
        }

    def _image(self, value: Any) -> Any:
        old, new = self._sides()
        if type(value) is int:
            return new[0] if value == old[0] and new[0] == new[1] else value
        if not isinstance(value, dict):
            return value
        if "height" in value and "width" in value:
            fits = [value["height"], value["width"]] == old
            return {**value, "height": new[0], "width": new[1]} if fits else value
        sides = ("shortest_edge", "longest_edge")
        return {key: max(new) if key in sides and side == max(old) else side for key, side in value.items()}


def _chunk(data: dict[str, Any], frames: int) -> None:
    hop = data.get("hop_length", 160)
    rate = data.get("sampling_rate", 16000)
    data["nb_max_frames"] = frames
    data["n_samples"] = frames * hop
    seconds = frames * hop / rate
    data["chunk_length"] = int(seconds) if seconds == int(seconds) else seconds
