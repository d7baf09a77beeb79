"""GGUF metadata → the encoding that llama.cpp computes for the model.

llama.cpp keeps no tables: it turns inside its kernels, NORM architectures in adjacent pairs, NEOX ones in halves.
Scalings that its keys cannot say are tensors of divisors in the file: `rope_freqs.weight` (Llama 3.1 and later),
`rope_factors_short.weight` and `rope_factors_long.weight` (LongRoPE).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_cli.errors import PeError, no_such
from pe_cli.files.gguf import GgufHeader, read_header
from pe_cli.files.inputs import open_input
from pe_cli.files.sources import load_array
from pe_cli.models.resolved import EVERY_LENGTH, Resolved

# llama_model_rope_type: the architectures that turn adjacent pairs (NORM); all others turn halves (NEOX).
ADJACENT = frozenset(
    {
        "llama", "llama4", "deci", "baichuan", "starcoder", "internlm2", "minicpm", "xverse", "command-r", "cohere2",
        "olmo", "arctic", "deepseek", "deepseek2", "plm", "chatglm", "glm4", "granite", "granitemoe", "granitehybrid",
        "chameleon", "bailingmoe", "neo-bert", "smollm3", "arcee", "ernie4_5", "ernie4_5-moe", "mistral3", "mistral4",
    }
)  # fmt: skip
INTERLEAVED = frozenset({"qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"})
LEARNED = "position_embd.weight"
FULL, SLIDING = "full_attention", "sliding_attention"
DEFAULT_THETA = 10000.0
T5_MAX_DISTANCE = 128


def resolve_gguf(spec: str, *, layer_type: str | None = None, seq_len: int | None = None) -> Resolved:
    """The encoding that the metadata and the factor tensors of a GGUF file describe."""
    with open_input(spec) as stream:
        header = read_header(stream)
    return _Reading(spec, header).resolve(layer_type, seq_len)


def layer_labels(spec: str) -> list[str | None]:
    """The layer types that have a table of their own, or None for one table."""
    with open_input(spec) as stream:
        labels = _Reading(spec, read_header(stream)).labels
    return list(labels) or [None]


def longest(spec: str) -> int | None:
    """The longest context of the model."""
    with open_input(spec) as stream:
        return _Reading(spec, read_header(stream)).context


class _Reading:
    """One file while it is read: its keys, and where each argument came from."""

    def __init__(self, spec: str, header: GgufHeader) -> None:
        self.spec, self.header = spec, header
        self.arch = str(header.metadata.get("general.architecture") or "")
        if not self.arch:
            raise PeError(f"{spec}: there is no general.architecture in its metadata, so this is no model")
        self.origins: dict[str, str] = {}
        self.warnings: list[str] = []
        self.notes: list[str] = []

    @property
    def labels(self) -> tuple[str, ...]:
        return (FULL, SLIDING) if self._value("rope.freq_base_swa") is not None else ()

    @property
    def context(self) -> int | None:
        return self._whole("context_length")

    def resolve(self, layer_type: str | None, seq_len: int | None) -> Resolved:
        labels = self.labels
        label = self._label(labels, layer_type)
        other = self._not_rotary()
        if other is not None:
            encoding, parameters = other
        else:
            encoding, parameters = "rope", self._rope(label == SLIDING, seq_len)
        context = self.context
        return Resolved(
            file=self.spec,
            encoding=encoding,
            parameters=parameters,
            origins=self.origins,
            model_type=self.arch,
            layer_type=label,
            layer_types=labels,
            max_position=context,
            trained_length=self._trained_length(parameters),
            warnings=tuple(self.warnings),
            notes=tuple(self.notes),
        )

    def _trained_length(self, parameters: Mapping[str, Any]) -> int | None:
        """The context before scaling; rope_freqs.weight does not tell it."""
        if "policy" in parameters:
            return None
        original = self._whole("rope.scaling.original_context_length")
        if original is None and parameters.get("scaling") == "linear" and self.context:
            return int(self.context / parameters["factor"])
        return original or self.context

    def _label(self, labels: tuple[str, ...], asked: str | None) -> str | None:
        if asked is not None and asked not in labels:
            raise no_such("layer type", asked, labels or ["one table for all layers: leave --layer-type out"])
        if labels and asked is None:
            raise PeError(
                f"{self.spec}: this model has a table for each layer type, choose one with --layer-type: {', '.join(labels)}"
            )
        return asked

    def _not_rotary(self) -> tuple[str, dict[str, Any]] | None:
        alibi = self._value("attention.max_alibi_bias")
        if alibi:
            heads = self._need("attention.head_count")
            self.origins |= {
                "heads": self._key("attention.head_count"),
                "bias_max": self._key("attention.max_alibi_bias"),
            }
            return "alibi", {"heads": heads, "bias_max": float(alibi)}
        buckets = self._value("attention.relative_buckets_count")
        if buckets:
            self.origins |= {
                "num_buckets": self._key("attention.relative_buckets_count"),
                "max_distance": "llama.cpp, fixed",
            }
            self.notes.append(
                "the learned bias is enc.blk.0.attn_rel_b.weight; decoder layers need --causal of `pe gen t5`"
            )
            return "t5", {"num_buckets": int(buckets), "max_distance": T5_MAX_DISTANCE}
        if LEARNED in self.header.tensors:
            raise PeError(f"{self.spec}: {self.arch} has a learned table: it lies in this file as {LEARNED}")
        rotary = any(key.startswith(f"{self.arch}.rope.") for key in self.header.metadata)
        if not rotary and self._value("attention.head_count") is None:
            raise PeError(
                f"{self.spec}: nothing in the metadata of architecture {self.arch!r} speaks of positions"
            )
        return None

    def _rope(self, sliding: bool, seq_len: int | None) -> dict[str, Any]:
        parameters: dict[str, Any] = {"dim": self._width(sliding), "base": self._base(sliding)}
        if not sliding:
            parameters |= self._scaling(seq_len)
        parameters["layout"] = "adjacent" if self.arch in ADJACENT else "half"
        self.origins["layout"] = f"how llama.cpp turns {self.arch}"
        parameters |= self._sections(parameters["dim"])
        return parameters

    def _width(self, sliding: bool) -> int:
        suffix = "_swa" if sliding else ""
        for key in (
            f"rope.dimension_count{suffix}",
            "rope.dimension_count",
            f"attention.key_length{suffix}",
            "attention.key_length",
        ):
            found = self._whole(key)
            if found is not None:
                self.origins["dim"] = self._key(key)
                return found
        width, heads = self._need("embedding_length"), self._need("attention.head_count")
        self.origins["dim"] = (
            f"{self._key('embedding_length')} {width} / {self._key('attention.head_count')} {heads}"
        )
        return width // heads

    def _base(self, sliding: bool) -> float:
        key = "rope.freq_base_swa" if sliding else "rope.freq_base"
        found = self._value(key)
        if found is None:
            self.origins["base"] = "the default of llama.cpp"
            self.warnings.append(
                f"{self._key(key)} is not in {self.spec}: {DEFAULT_THETA:g} is the default of llama.cpp"
            )
            return DEFAULT_THETA
        self.origins["base"] = self._key(key)
        return float(found)

    def _scaling(self, seq_len: int | None) -> dict[str, Any]:
        if "rope_freqs.weight" in self.header.tensors:
            return self._divisors("rope_freqs.weight")
        if "rope_factors_long.weight" in self.header.tensors:
            return self._longrope(seq_len)
        kind = self._value("rope.scaling.type")
        factor = self._value("rope.scaling.factor") or self._value("rope.scale_linear")
        if kind in (None, "none") and not factor:
            return {}
        if kind in (None, "linear"):
            key = "rope.scaling.factor" if self._value("rope.scaling.factor") else "rope.scale_linear"
            self.origins |= {"scaling": self._key("rope.scaling.type"), "factor": self._key(key)}
            return {"scaling": "linear", "factor": float(factor or 1.0)}
        if kind != "yarn":
            raise PeError(
                f"{self.spec}: {self._key('rope.scaling.type')} is {kind!r}; none, linear, yarn and longrope (with its tensors) are known"
            )
        return self._yarn(float(factor or 1.0))

    def _yarn(self, factor: float) -> dict[str, Any]:
        original = self._whole("rope.scaling.original_context_length") or self._need("context_length")
        arguments: dict[str, Any] = {"scaling": "yarn", "factor": factor, "original_len": original}
        self.origins |= {
            "scaling": self._key("rope.scaling.type"),
            "factor": self._key("rope.scaling.factor"),
            "original_len": self._key("rope.scaling.original_context_length"),
        }
        for name in ("beta_fast", "beta_slow"):
            found = self._value(f"rope.scaling.yarn_{name}")
            if found is not None:
                arguments[name] = float(found)
                self.origins[name] = self._key(f"rope.scaling.yarn_{name}")
        gain = self._value("rope.scaling.yarn_log_multiplier")
        if gain:
            arguments["attention_factor"] = 1.0
            self.origins["attention_factor"] = (
                f"{self._key('rope.scaling.yarn_log_multiplier')}: llama.cpp moves it to the softmax"
            )
            self.notes.append(f"the softmax scale is multiplied by (1 + {gain:g} ln {factor:g})²")
        self.notes.append("GGUF has no key for truncate: llama.cpp always rounds YaRN's range")
        return arguments

    def _divisors(self, tensor: str) -> dict[str, Any]:
        factors = tuple(float(f) for f in load_array(self.spec, tensor=tensor).reshape(-1))
        self.origins |= {
            "scaling": f"tensor {tensor}",
            "long_factor": f"tensor {tensor}",
            "policy": EVERY_LENGTH,
        }
        self.notes.append(
            "the divisors of each frequency are in the file, so the scaling that made them is not needed"
        )
        longest = self._need("context_length")
        return {
            "scaling": "longrope",
            "long_factor": factors,
            "policy": "long",
            "original_len": longest,
            "attention_factor": 1.0,
        }

    def _longrope(self, seq_len: int | None) -> dict[str, Any]:
        if seq_len is None:
            raise PeError(
                f"{self.spec}: this model chooses its short or long factors by the length: say for which with --seq-len N"
            )
        arguments: dict[str, Any] = {"scaling": "longrope", "seq_len": seq_len}
        self.origins |= {"scaling": "tensors rope_factors_*.weight", "seq_len": "--seq-len"}
        for side in ("short", "long"):
            tensor = f"rope_factors_{side}.weight"
            if tensor not in self.header.tensors:
                raise PeError(f"{self.spec}: {tensor} is missing, though the other list of factors is there")
            arguments[f"{side}_factor"] = tuple(
                float(f) for f in load_array(self.spec, tensor=tensor).reshape(-1)
            )
            self.origins[f"{side}_factor"] = f"tensor {tensor}"
        arguments["original_len"] = self._need("rope.scaling.original_context_length")
        arguments["attention_factor"] = float(self._value("rope.scaling.attn_factor") or 1.0)
        self.origins |= {
            "original_len": self._key("rope.scaling.original_context_length"),
            "attention_factor": self._key("rope.scaling.attn_factor"),
        }
        return arguments

    def _sections(self, dim: int) -> dict[str, Any]:
        found = self._value("rope.dimension_sections")
        sections = tuple(int(size) for size in found if size) if isinstance(found, (list, tuple)) else ()
        if not sections or sum(sections) != dim // 2:
            return {}
        self.origins["sections"] = self._key("rope.dimension_sections")
        if self.arch in INTERLEAVED:
            self.origins["interleave_sections"] = f"how llama.cpp turns {self.arch}"
            return {"sections": sections, "interleave_sections": True}
        return {"sections": sections}

    def _key(self, name: str) -> str:
        return f"{self.arch}.{name}"

    def _value(self, name: str) -> Any:
        return self.header.metadata.get(self._key(name))

    def _whole(self, name: str) -> int | None:
        """A whole number; where there is one for each layer, the first that is not 0."""
        found = self._value(name)
        if isinstance(found, (list, tuple)):
            found = next((value for value in found if value), None)
        return None if found is None else int(found)

    def _need(self, name: str) -> int:
        found = self._whole(name)
        if not found:
            raise PeError(
                f"{self.spec}: {self._key(name)} is not in its metadata, and the width or length follows from it"
            )
        return found
