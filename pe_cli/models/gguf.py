"""GGUF metadata → the encoding that llama.cpp computes for the model.

llama.cpp keeps no tables: it turns inside its kernels, adjacent pairs or halves, as `llama_model_rope_type` has it for
each architecture (`data/llama_cpp.json`, with what else its code fixes and no key says).
Scalings that its keys cannot say are tensors of divisors in the file: `rope_freqs.weight` (Llama 3.1 and later),
`rope_factors_short.weight` and `rope_factors_long.weight` (LongRoPE).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pe_cli.errors import PeError, parameter
from pe_cli.files import open_input
from pe_cli.files.gguf import GgufHeader, read_header
from pe_cli.files.sources import load_array
from pe_cli.models.configuration import data
from pe_cli.models.layers import QUERY_TEMPERATURE, one_label, rotated_layers_table
from pe_cli.models.resolved import EVERY_LENGTH, ExtraTable, Resolved, unread_warning

LEARNED = "position_embd.weight"
FULL, SLIDING = "full_attention", "sliding_attention"
DEFAULT_THETA = 10000.0
T5_MAX_DISTANCE = 128
ADJACENT, NO_ROTATION, INTERLEAVED = "NORM", "NONE", "IMROPE"
# Keys below `rope.` that change no frequency in llama.cpp, or only those of sliding layers, or of the others.
NO_EFFECT = ("rope.scaling.finetuned", "rope.scaling.type", "rope.freq_base_swa", "rope.dimension_count_swa")
OF_OTHERS = ("rope.freq_base", "rope.dimension_count")


def resolve_gguf(spec: str, *, layer_type: str | None = None, seq_len: int | None = None) -> Resolved:
    """The encoding that the metadata and the factor tensors of a GGUF file describe."""
    return _opened(spec).resolve(layer_type, seq_len)


def layer_labels(spec: str) -> list[str | None]:
    """The layer types that have a table of their own, or None for one table."""
    return list(_opened(spec).labels) or [None]


def longest(spec: str) -> int | None:
    """The longest context of the model."""
    return _opened(spec).context


def _opened(spec: str) -> _Reading:
    state = os.stat(spec)
    return _Reading(spec, _header(spec, (state.st_ino, state.st_mtime_ns, state.st_size)))


@lru_cache(maxsize=1)
def _header(spec: str, _state: tuple[int, ...]) -> GgufHeader:
    """The header, read once for all layer types: the words of a tokenizer lie in it, hundreds of thousands of them."""
    with open_input(spec) as stream:
        return read_header(stream)


class _Reading:
    """One file while it is read: its keys, and where each argument came from."""

    def __init__(self, spec: str, header: GgufHeader) -> None:
        self.spec, self.header = spec, header
        self.arch = str(header.metadata.get("general.architecture") or "")
        if not self.arch:
            raise PeError(f"{spec}: there is no general.architecture in its metadata, so this is no model")
        self.known = data("llama_cpp")
        self.origins: dict[str, str] = {}
        self.warnings: list[str] = []
        self.notes: list[str] = []
        self.keys_read: set[str] = set()

    @property
    def kind(self) -> str | None:
        """How llama.cpp turns the architecture; None where it is not known here.

        NORM turns adjacent pairs, NEOX halves, MROPE and IMROPE halves in chunked or interleaved sections, NONE nothing.
        """
        conditional = self.known["conditional"].get(self.arch)
        if conditional is not None:
            return str(conditional["with dimension_sections" if self._sections() else "otherwise"])
        return self.known["architectures"].get(self.arch)  # type: ignore[no-any-return]

    @property
    def labels(self) -> tuple[str, ...]:
        """The layer types, where sliding layers have another base or no scaling."""
        sliding = bool(self._whole("attention.sliding_window"))
        own_base = self._value("rope.freq_base_swa") is not None
        fixed_base = sliding and self.arch in self.known["sliding_base"]
        scaled = self._value("rope.scaling.type") not in (None, "none") or self._value("rope.scaling.factor")
        unscaled = sliding and self.arch in self.known["sliding_unscaled"] and scaled
        return (FULL, SLIDING) if own_base or fixed_base or unscaled else ()

    @property
    def context(self) -> int | None:
        return self._whole("context_length")

    def resolve(self, layer_type: str | None, seq_len: int | None) -> Resolved:
        other = self._not_rotary()
        labels = () if other else self.labels
        label = one_label(self.spec, labels, layer_type)
        if other is not None:
            encoding, parameters = other
        else:
            encoding, parameters = "rope", self._rope(label == SLIDING, seq_len)
        extra = () if other else self._extra_tables()
        unread = () if other else self._unread(parameters)
        if unread:
            self.warnings.append(unread_warning(self.spec, unread))
        trained, trained_origin = self._trained_length(parameters)
        return Resolved(
            file=self.spec,
            encoding=encoding,
            parameters=parameters,
            origins=self.origins,
            model_type=self.arch,
            layer_type=label,
            layers=self._layers(label),
            layer_types=labels,
            max_position=self.context,
            trained_length=trained,
            trained_origin=trained_origin,
            warnings=tuple(self.warnings),
            notes=tuple(self.notes),
            extra_tables=extra,
            unread=unread,
            pairing=None if other else "adjacent" if self.kind == ADJACENT else "half",
        )

    def _unread(self, parameters: Mapping[str, Any]) -> tuple[str, ...]:
        prefix = f"{self.arch}.rope."
        harmless = set(map(self._key, (*NO_EFFECT, *(OF_OTHERS if self.labels else ()))))
        if "scaling" not in parameters or "policy" in parameters:
            harmless |= {key for key in self.header.metadata if key.startswith(f"{prefix}scaling.")}
        if "attention_factor" not in parameters:  # llama.cpp multiplies by it whatever the scaling is
            harmless -= {
                key for key, value in self.header.metadata.items() if "attn_factor" in key and value != 1
            }
        keys = (key for key in self.header.metadata if key.startswith(prefix))
        return tuple(key for key in keys if key not in self.keys_read | harmless)

    def _trained_length(self, parameters: Mapping[str, Any]) -> tuple[int | None, str]:
        """The context before scaling and the key that states it, or a guess; rope_freqs.weight does not tell it."""
        if "policy" in parameters:
            return None, ""
        original = self._whole("rope.scaling.original_context_length")
        if original is not None:
            return original, self._key("rope.scaling.original_context_length")
        if parameters.get("scaling") == "linear" and self.context:
            return int(self.context / parameters["factor"]), "a guess: the context over the factor"
        return self.context, "a guess: the longest context"

    def _not_rotary(self) -> tuple[str, dict[str, Any]] | None:
        """The encoding of a model that does not rotate. Raises PeError where it has none, or a learned table."""
        alibi = self._alibi()
        if alibi is not None:
            return alibi
        buckets = self._value("attention.relative_buckets_count")
        if buckets:
            self.origins |= {
                "num_buckets": self._key("attention.relative_buckets_count"),
                "max_distance": "llama.cpp, fixed",
            }
            self.notes.append(
                "the learned bias is enc.blk.0.attn_rel_b.weight; decoder layers need `pe gen t5 --causal`"
            )
            return "t5", {"num_buckets": int(buckets), "max_distance": T5_MAX_DISTANCE}
        if LEARNED in self.header.tensors or self.arch in self.known["learned"]:
            raise PeError(
                f"{self.spec}: {self.arch} has a learned table, so it cannot be computed; it is the tensor {LEARNED} of the file"
            )
        if (
            self.arch in self.known["switched_by_finetuned"]
            and self._value("rope.scaling.finetuned") is False
        ):
            raise PeError(
                f"{self.spec}: {self._key('rope.scaling.finetuned')} is false, with which llama.cpp does not rotate {self.arch}: "
                "the model has no encoding of positions"
            )
        self._refuse_none()
        rotary = any(key.startswith(f"{self.arch}.rope.") for key in self.header.metadata)
        if not rotary and (self.kind is None or self._value("attention.head_count") is None):
            raise PeError(
                f"{self.spec}: nothing in the metadata of architecture {self.arch!r} speaks of positions"
            )
        return None

    def _alibi(self) -> tuple[str, dict[str, Any]] | None:
        said = self._value("attention.max_alibi_bias")
        layers = self.known["alibi_by_layers"].get(self.arch, {})
        fixed = layers.get(str(self._whole("block_count"))) or self.known["alibi"].get(self.arch)
        if not (said or fixed):
            return None
        heads = self._need("attention.head_count")
        self.origins |= {
            "heads": self._key("attention.head_count"),
            "bias_max": self._key("attention.max_alibi_bias")
            if said
            else f"llama.cpp, fixed for {self.arch}",
        }
        return "alibi", {"heads": heads, "bias_max": float(said or fixed)}

    def _refuse_none(self) -> None:
        """Raise where llama.cpp does not rotate the architecture, or the model has no attention."""
        recurrent = self.arch in self.known["no_positions"]["recurrent"]
        attends = any(self._heads())
        if recurrent or (not attends and self._value("attention.head_count") is not None):
            raise PeError(
                f"{self.spec}: {self.arch} is recurrent and has no encoding of positions: llama.cpp does not rotate it"
            )
        if self.kind == NO_ROTATION:
            plain = "is listed without rotation: llama.cpp does not rotate it, so there is no table"
            raise PeError(
                f"{self.spec}: {self.arch} {self.known['no_positions']['others'].get(self.arch, plain)}"
            )

    def _heads(self) -> list[int]:
        found = self._value("attention.head_count")
        return [int(n) for n in found] if isinstance(found, (list, tuple)) else [int(found or 0)]

    def _rope(self, sliding: bool, seq_len: int | None) -> dict[str, Any]:
        parameters: dict[str, Any] = {"dim": self._width(sliding), "base": self._base(sliding)}
        if not sliding:
            parameters |= self._scaling(seq_len)
        parameters["layout"] = "adjacent" if self.kind == ADJACENT else "half"
        commit = self.known["source"]["commit"][:9]
        self.origins["layout"] = f"how llama.cpp turns {self.arch} (llama_model_rope_type, {commit})"
        if self.kind is None:
            self.warnings.append(
                f"architecture {self.arch!r} is not in llama.cpp's table of {commit}: that it turns halves is a guess"
            )
        sections = self._sections()
        if sections and sum(sections) == parameters["dim"] // 2:
            self.origins["sections"] = self._key("rope.dimension_sections")
            parameters["sections"] = sections
            if self.kind == INTERLEAVED:
                self.origins["interleave_sections"] = self.origins["layout"]
                parameters["interleave_sections"] = True
        return parameters

    def _sections(self) -> tuple[int, ...]:
        found = self._value("rope.dimension_sections")
        return tuple(int(size) for size in found if size) if isinstance(found, (list, tuple)) else ()

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
        if sliding:
            found, fixed = self._value("rope.freq_base_swa"), self.known["sliding_base"].get(self.arch)
            if found is not None:
                self.origins["base"] = self._key("rope.freq_base_swa")
                return float(found)
            if fixed is not None:
                self.origins["base"] = f"llama.cpp, fixed for the sliding layers of {self.arch}"
                return float(fixed)
        found = self._value("rope.freq_base")
        if found is None:
            self.origins["base"] = "the default of llama.cpp"
            self.warnings.append(
                f"{self._key('rope.freq_base')} is not in {self.spec}: {DEFAULT_THETA:g} is the default of llama.cpp"
            )
            return DEFAULT_THETA
        self.origins["base"] = self._key("rope.freq_base")
        return float(found)

    def _scaling(self, seq_len: int | None) -> dict[str, Any]:
        if "rope_freqs.weight" in self.header.tensors:
            return self._divisors("rope_freqs.weight")
        if "rope_factors_long.weight" in self.header.tensors:
            return self._longrope(seq_len)
        kind = self._value("rope.scaling.type")
        factor = self._value("rope.scaling.factor") or self._value("rope.scale_linear")
        if kind == "none" or (kind in (None, "linear") and float(factor or 1.0) == 1.0):
            return {}
        if kind not in (None, "linear", "yarn"):
            raise PeError(
                f"{self.spec}: {self._key('rope.scaling.type')} is {kind!r}; none, linear, yarn and longrope (with its tensors) are known"
            )
        part = self._value("rope.scaling.yarn_ext_factor")
        if kind == "yarn" and part not in (None, -1, 0, 1):
            raise PeError(
                f"{self.spec}: {self._key('rope.scaling.yarn_ext_factor')} is {part}: a ramp in part is not computed here, but 0 and 1 are"
            )
        if kind != "yarn" or part == 0:
            key = "rope.scaling.factor" if self._value("rope.scaling.factor") else "rope.scale_linear"
            self.origins |= {"scaling": self._key("rope.scaling.type"), "factor": self._key(key)}
            if kind is None:
                self.origins["scaling"] = "the default of llama.cpp, where there is a factor"
            return {"scaling": "linear", "factor": float(factor or 1.0)}
        return self._yarn(float(factor or 1.0))

    def _yarn(self, factor: float) -> dict[str, Any]:
        self.origins |= {
            "scaling": self._key("rope.scaling.type"),
            "factor": self._key("rope.scaling.factor"),
        }
        arguments: dict[str, Any] = {"scaling": "yarn", "factor": factor, "original_len": self._original()}
        for name in ("beta_fast", "beta_slow"):
            found = self._value(f"rope.scaling.yarn_{name}")
            if found is not None:
                arguments[name] = float(found)
                self.origins[name] = self._key(f"rope.scaling.yarn_{name}")
        arguments |= self._magnitude(factor)
        self.notes.append("GGUF has no key for truncate: llama.cpp always rounds YaRN's range")
        return arguments

    def _original(self) -> int:
        """The context before scaling; llama.cpp takes the whole context where the file does not say it."""
        found = self._whole("rope.scaling.original_context_length")
        key = "rope.scaling.original_context_length" if found else "context_length"
        self.origins["original_len"] = self._key(key)
        if not found:
            found = self._need("context_length")
            self.warnings.append(
                f"{self._key('rope.scaling.original_context_length')} is not in {self.spec}: {found}, the context_length, "
                "is what llama.cpp takes"
            )
        return found

    def _magnitude(self, factor: float) -> dict[str, Any]:
        """What YaRN multiplies cosine and sine with, where it is not 0.1 ln(factor) + 1."""
        gain = self._value("rope.scaling.yarn_log_multiplier")
        if gain:
            key = self._key("rope.scaling.yarn_log_multiplier")
            self.origins["attention_factor"] = f"{key}: llama.cpp moves it to the softmax"
            self.notes.append(f"the softmax scale is multiplied by (1 + {gain:g} ln {factor:g})²")
            return {"attention_factor": 1.0}
        for name in ("rope.scaling.yarn_attn_factor", "rope.scaling.attn_factor"):
            times = self._value(name)
            if times is not None and times != 1:
                self.origins["attention_factor"] = f"{self._key(name)} times 0.1 ln(factor) + 1"
                return {"attention_factor": float(times) * (0.1 * math.log(factor) + 1)}
        return {}

    def _divisors(self, tensor: str) -> dict[str, Any]:
        factors = tuple(float(f) for f in load_array(self.spec, tensor=tensor).reshape(-1))
        self.origins |= {
            "scaling": f"tensor {tensor}",
            "long_factor": f"tensor {tensor}",
            "policy": EVERY_LENGTH,
            "original_len": self._key("context_length"),
            "attention_factor": "llama.cpp, with divisors",
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
                f"{self.spec}: this model chooses its short or long factors by the length: say for which with {parameter('seq_len')} N"
            )
        arguments: dict[str, Any] = {"scaling": "longrope", "seq_len": seq_len}
        self.origins |= {"scaling": "tensors rope_factors_*.weight", "seq_len": "the length asked for"}
        for length in ("short", "long"):
            tensor = f"rope_factors_{length}.weight"
            if tensor not in self.header.tensors:
                raise PeError(f"{self.spec}: {tensor} is missing, though the other list of factors is there")
            arguments[f"{length}_factor"] = tuple(
                float(f) for f in load_array(self.spec, tensor=tensor).reshape(-1)
            )
            self.origins[f"{length}_factor"] = f"tensor {tensor}"
        arguments["original_len"] = self._original()
        magnitude = self._value("rope.scaling.attn_factor")
        arguments["attention_factor"] = float(magnitude or 1.0)
        self.origins["attention_factor"] = self._key("rope.scaling.attn_factor")
        if not magnitude:
            self.origins["attention_factor"] = "the default of llama.cpp"
            self.warnings.append(
                f"{self._key('rope.scaling.attn_factor')} is not in {self.spec}: 1 is the default of llama.cpp"
            )
        return arguments

    def _extra_tables(self) -> tuple[ExtraTable, ...]:
        """Which layers rotate, and the temperature of queries, as llama.cpp fixes them."""
        found = []
        temperature = self.known["temperature"].get(self.arch)
        strength, length = (self._value(f"attention.temperature_{name}") for name in ("scale", "length"))
        where = "of the layers that do not rotate"
        if strength and length:
            temperature, where = {"strength": float(strength), "length": int(length)}, "of all layers"
        elif length:
            self.warnings.append(
                f"{self.spec}: {self._key('attention.temperature_length')} is {length}: by what it multiplies queries is not known here"
            )
        if temperature is not None:
            found.append(ExtraTable(QUERY_TEMPERATURE, f"queries {where} are multiplied", temperature))
        rotating = self._rotating()
        if rotating is not None and not all(rotating):
            found.append(rotated_layers_table(rotating))
        return tuple(found)

    def _rotating(self) -> tuple[int, ...] | None:
        layers, sliding = self._whole("block_count"), bool(self._whole("attention.sliding_window"))
        if layers is None:
            return None
        still = self.known["every_fourth_is_still"].get(self.arch)
        if still == "last" or (still == "first" and sliding):
            return tuple(int((layer + (still == "last")) % 4 != 0) for layer in range(layers))
        if self.arch in self.known["rotates_if_sliding"] and sliding:
            return self._slides(layers)
        return None

    def _layers(self, label: str | None) -> tuple[int, ...]:
        """The numbers of the layers of a type, where the file or llama.cpp says which they are."""
        count = self._whole("block_count")
        slides = self._slides(count) if label and count else ()
        return tuple(layer for layer, flag in enumerate(slides) if bool(flag) == (label == SLIDING))

    def _slides(self, layers: int) -> tuple[int, ...]:
        """1 for each layer whose attention has a window; none where nothing says it."""
        pattern = self._value("attention.sliding_window_pattern")
        if isinstance(pattern, (list, tuple)) and pattern:
            return tuple(int(bool(flag)) for flag in pattern)
        if self.arch not in self.known["sliding_period"]:
            return ()
        period, dense_first = self.known["sliding_period"][self.arch]
        period = int(pattern or period)
        return tuple(int((layer if dense_first else layer + 1) % period != 0) for layer in range(layers))

    def _key(self, name: str) -> str:
        return f"{self.arch}.{name}"

    def _value(self, name: str) -> Any:
        self.keys_read.add(self._key(name))
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
