"""Write pe_cli/models/data/transformers.json: what each transformers model class assumes where a configuration is silent.

Run with the pinned transformers of the `interop` extra:  python tools/collect_model_defaults.py

For every configuration class that leads to a rotary embedding it records the fields that size and base of the
table come from, the rotary parameters that the class fills in, its nested configurations, and the layout in
which its rotary module returns cos and sin, found by running the module at positions 0 to 4.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import re
import typing
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.configuration_utils import PreTrainedConfig

from pe_cli.models.configuration import FOREIGN_KEYS

TARGET = Path(__file__).parent.parent / "pe_cli" / "models" / "data" / "transformers.json"
MODELS = Path(transformers.__file__).parent / "models"

GEOMETRY = (
    "hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings", "qk_rope_head_dim",
    "rotary_dim", "rope_theta", "compress_rope_theta", "original_max_position_embeddings", "num_hidden_layers",
    "memory_attention_hidden_size", "memory_attention_downsample_rate", "memory_attention_num_attention_heads",
    "no_rope_layer_interval", "image_size", "patch_size", "spatial_merge_size", "embed_dim", "attention_head_dim",
)  # fmt: skip
# Modules whose own forward needs more than positions: the layout is read from their source.
READ_FROM_SOURCE = {
    "GPTJConfig": "split", "CodeGenConfig": "split", "Glm4vTextConfig": "adjacent", "Glm4vMoeTextConfig": "half",
    "GlmImageTextConfig": "half", "HunYuanVLTextConfig": "half", "CohereCompassTextConfig": "half", "Llama4VisionConfig": "complex", "Gemma4VisionConfig": "half",
}  # fmt: skip
# Configurations whose rotary module is declared for another class.
DECLARED_ELSEWHERE = {
    "Qwen2_5OmniTextConfig": ("qwen2_5_omni.modeling_qwen2_5_omni", "Qwen2_5OmniRotaryEmbedding"),
    "Qwen3OmniMoeTalkerTextConfig": ("qwen3_omni_moe.modeling_qwen3_omni_moe", "Qwen3OmniMoeThinkerTextRotaryEmbedding"),
    "Qwen3OmniMoeTalkerCodePredictorConfig": ("qwen3_omni_moe.modeling_qwen3_omni_moe", "Qwen3OmniMoeRotaryEmbedding"),
}  # fmt: skip
# Attention that rotates otherwise than the first function of its file, or whose code lies in another file.
PAIRING_FROM_SOURCE = {
    "DeepseekV4Config": "adjacent", "RoFormerConfig": "adjacent", "SarvamMLAConfig": "adjacent", "Dots3NoteAudioEncoderConfig": "half",
    "Qwen2_5OmniDiTConfig": "adjacent",
}  # fmt: skip


def main() -> None:
    """Write the file anew."""
    text = collected()
    TARGET.write_text(text)
    print(f"{text.count(chr(10)) - 2} model types, {len(text) >> 10} KiB")


def collected() -> str:
    """The text of the file: a line for each model type, in order."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    classes = configuration_classes()
    rotary = rotary_modules()
    for name, (file, module) in DECLARED_ELSEWHERE.items():
        rotary[name] = getattr(importlib.import_module(f"transformers.models.{file}"), module)
    share_with_components(rotary, classes)
    entries: dict[str, dict[str, Any]] = {}
    for cls in classes:
        entry = describe(cls, rotary.get(cls.__name__))
        name = cls.model_type or cls.__name__
        if entry and (name not in entries or is_chosen_by_auto(cls)):
            entries[name] = entry
    for entry in entries.values():
        for key in list(entry.get("parts", {})):
            if "rope" not in entries.get(entry["components"][key], {}):
                del entry["parts"][key]
    source = json.dumps(f"transformers {transformers.__version__}, configuration_*.py and modeling_*.py")
    lines = (f"{json.dumps(name)}:{json.dumps(entries[name], sort_keys=True)}" for name in sorted(entries))
    return f'{{"source":{source},"models":{{\n{",".join(chr(10) + line for line in lines).lstrip()}\n}}}}\n'


def is_chosen_by_auto(cls: type[PreTrainedConfig]) -> bool:
    """Whether AutoConfig takes this class for its model type; several classes may share one."""
    try:
        return CONFIG_MAPPING[cls.model_type] is cls
    except KeyError:
        return False


def configuration_classes() -> list[type[PreTrainedConfig]]:
    """Every configuration class, in a fixed order."""
    found: dict[str, type[PreTrainedConfig]] = {}
    for path in sorted(MODELS.glob("*/configuration_*.py")):
        module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
        for value in vars(module).values():
            if (
                inspect.isclass(value)
                and issubclass(value, PreTrainedConfig)
                and value.__module__ == module.__name__
            ):
                found[value.__name__] = value
    return list(found.values())


def rotary_modules() -> dict[str, type]:
    """The rotary module of each configuration class, by the annotation of its constructor."""
    found = {}
    for path in sorted(MODELS.glob("*/modeling_*.py")):
        names = re.findall(r"^class (\w*(?:Rotary|Rope)\w*Embedding)\(", path.read_text(), re.M)
        if not names:
            continue
        module = importlib.import_module(f"transformers.models.{path.parent.name}.{path.stem}")
        for name in names:
            cls = getattr(module, name)
            for parameter in inspect.signature(cls.__init__).parameters.values():
                for annotated in (parameter.annotation, *typing.get_args(parameter.annotation)):
                    if isinstance(annotated, str):
                        annotated = getattr(module, annotated, None)
                    if inspect.isclass(annotated) and issubclass(annotated, PreTrainedConfig):
                        found.setdefault(annotated.__name__, cls)
    return found


def share_with_components(rotary: dict[str, type], classes: list[type[PreTrainedConfig]]) -> None:
    """A module declared for a composite serves its nested text configurations."""
    for cls in classes:
        module = rotary.get(cls.__name__)
        if module is None:
            continue
        for key in getattr(cls, "sub_configs_defaults", None) or {}:
            nested = getattr(cls(), key, None)
            if isinstance(nested, PreTrainedConfig) and nested.default_rope_type == "default":
                same_family = type(nested).__module__ == cls.__module__
                if same_family and getattr(nested, "rope_parameters", None):
                    rotary.setdefault(type(nested).__name__, module)


def describe(cls: type[PreTrainedConfig], rotary: type | None) -> dict[str, Any]:
    """What the class assumes; empty where it cannot be made without arguments."""
    try:
        config = cls()
    except Exception:
        return {}
    aliases = {k: v for k, v in (cls.attribute_map or {}).items() if k in GEOMETRY and isinstance(v, str)}
    if rotary is not None and "config.embed_dim //" in inspect.getsource(rotary):
        aliases["hidden_size"] = "embed_dim"
    fields = {}
    for key in GEOMETRY:
        value = inspect.getattr_static(cls, aliases.get(key, key), None)
        if isinstance(value, (int, float, list)) and not isinstance(value, bool):
            fields[key] = value
    entry: dict[str, Any] = {"class": cls.__name__}
    components = components_of(config)
    if components:
        entry["components"] = components
        changed = changed_parts(cls, config)
        if changed:
            entry["parts"] = changed
    if aliases:
        entry["aliases"] = aliases
    if fields:
        entry["fields"] = fields
    rope = getattr(config, "rope_parameters", None)
    legacy = any(k in fields for k in ("rotary_dim", "rope_theta"))
    if not rope and not legacy and (rotary is None or components):
        return entry if components else {}
    entry["rope"] = rope or {}
    entry["theta"] = cls.default_theta
    if cls.default_rope_type != "default":
        entry["axial"] = True
    entry |= behaviour(cls, config, rope or {})
    magnitude = yarn_magnitude(cls)
    if magnitude is not None:
        entry["attention_factor"] = magnitude
    multiple = head_multiple(cls, config, fields)
    if multiple is not None:
        entry["head_multiple"] = multiple
    if rotary is not None and "partial_rotary_factor" not in inspect.getsource(rotary):
        entry["partial_ignored"] = True
    if rotary is not None and "config.rope_parameters" not in inspect.getsource(rotary):
        entry["ignores"] = [key for key in PROBES if f"config.{key}" not in inspect.getsource(rotary)]
    assumed = partial_in_code(rotary)
    if assumed is not None:
        entry.setdefault("partial", assumed)
    if rotary is not None:
        entry["rotary"] = rotary.__name__
    entry["layout"] = READ_FROM_SOURCE.get(cls.__name__) or (layout(rotary, config) if rotary else "half")
    paired = pairing(cls)
    if paired:
        entry["pairing"] = paired
    if rotary is not None and "slice(offset, length" in inspect.getsource(rotary):
        entry["interleaved"] = True
    sections = section_defaults(rotary)
    if sections:
        entry["sections"] = sections
    named = foreign_keys(cls)
    if named:
        entry["reads"] = named
    return entry


def behaviour(cls: type[PreTrainedConfig], config: PreTrainedConfig, rope: dict[str, Any]) -> dict[str, Any]:
    """What the class does with rotary keys that a file gives, found by giving them."""
    found: dict[str, Any] = {}
    ignored = [key for key in PROBES if not reads(cls, key)]
    if ignored:
        found["ignores"] = ignored
    labels = [key for key, value in rope.items() if isinstance(value, dict) or value is None]
    if labels:
        found["scaled"] = scaled_labels(cls, labels)
        bare = {label: {"rope_type": "default"} for label in labels}
        alone, beside = (
            thetas(cls, labels, rope_theta=7.0, **more) for more in ({}, {"rope_parameters": bare})
        )
        found["reached"] = sorted(label for label, theta in alone.items() if theta == 7.0)
        found["reached_beside"] = sorted(label for label, theta in beside.items() if theta == 7.0)
        assumed = thetas(cls, labels, rope_parameters=bare)
        found["bare"] = {label: theta for label, theta in assumed.items() if theta}
        heads = {}
        for label in labels:
            try:
                heads[label] = config.per_layer_config[label].head_dim
            except Exception:
                heads = {}
                break
        if len(set(heads.values())) > 1:
            found["head_dims"] = heads
        return found
    try:
        filled = cls(rope_parameters={"rope_type": "default", "rope_theta": 7.0}).rope_parameters
        if filled.get("partial_rotary_factor") is not None:
            found["partial"] = filled["partial_rotary_factor"]
    except Exception:
        pass
    return found


def foreign_keys(cls: type[PreTrainedConfig]) -> list[str]:
    """The keys of `FOREIGN_KEYS` that the code of the class names, in its configuration or its model."""
    path = Path(inspect.getfile(cls))
    files = [path, path.with_name(path.name.replace("configuration_", "modeling_"))]
    source = "".join(file.read_text() for file in files if file.exists())
    return [key for key in FOREIGN_KEYS if re.search(rf"\b{key}\b", source)]


# Keys in the forms in which other files have them, each with a number to look for: beside the rotary parameters as in
# transformers 4, and parameters that are not by layer type.
PROBES: dict[str, Any] = {
    "rope_theta": 12345.0,
    "partial_rotary_factor": 0.4375,
    "rope_scaling": {"rope_type": "linear", "factor": 12345.0},
    "rope_parameters": {"rope_type": "linear", "factor": 12345.0, "rope_theta": 7.0},
}


def reads(cls: type[PreTrainedConfig], key: str) -> bool:
    """Whether a key in the form of `PROBES` has an effect on the rotary parameters."""
    try:
        filled = getattr(cls(**{key: copy.deepcopy(PROBES[key])}), "rope_parameters", None) or {}
    except Exception:
        return True
    flat = {name: value for name, value in filled.items() if not isinstance(value, dict)}
    nested = [value for value in filled.values() if isinstance(value, dict)]
    return any(number in json.dumps(nested or flat) for number in ("12345.0", "0.4375"))


def yarn_magnitude(cls: type[PreTrainedConfig]) -> float | None:
    """The attention factor that the class adds to YaRN parameters without one."""
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    try:
        filled = cls(rope_scaling=yarn).rope_parameters
    except Exception:
        return None
    parts = [filled, *(part for part in filled.values() if isinstance(part, dict))]
    return next((part["attention_factor"] for part in parts if "attention_factor" in part), None)


def head_multiple(
    cls: type[PreTrainedConfig], config: PreTrainedConfig, fields: dict[str, Any]
) -> int | None:
    """How many times hidden_size / num_attention_heads a head is wide, where the class computes it so."""
    if "head_dim" in fields or not {"hidden_size", "num_attention_heads"} <= fields.keys():
        return None
    computed = getattr(config, "head_dim", None)
    multiple = (
        computed * fields["num_attention_heads"] // fields["hidden_size"] if isinstance(computed, int) else 1
    )
    return multiple if multiple > 1 and "qk_rope_head_dim" not in fields else None


def thetas(cls: type[PreTrainedConfig], labels: list[str], **given: Any) -> dict[str, Any]:
    """The base of each layer type that the class makes of what a file gives; empty where it refuses it."""
    try:
        filled = cls(**copy.deepcopy(given)).rope_parameters
    except Exception:
        return {}
    return {label: (filled.get(label) or {}).get("rope_theta") for label in labels}


def scaled_labels(cls: type[PreTrainedConfig], labels: list[str]) -> list[str]:
    """The layer types to which the class applies a flat `rope_scaling`."""
    try:
        filled = cls(rope_scaling={"rope_type": "linear", "factor": 2.0}).rope_parameters
    except Exception:
        return []
    return sorted(n for n in labels if isinstance(filled.get(n), dict) and filled[n].get("factor") == 2.0)


def partial_in_code(rotary: type | None) -> float | None:
    """The factor that the rotary module itself assumes where the parameters have none."""
    match = (
        re.search(r'get\("partial_rotary_factor", ([\d.]+)\)', inspect.getsource(rotary)) if rotary else None
    )
    return float(match[1]) if match and float(match[1]) != 1.0 else None


def section_defaults(rotary: type | None) -> list[int] | None:
    match = re.search(r'get\("mrope_section", (\[[\d, ]+\])\)', inspect.getsource(rotary)) if rotary else None
    return json.loads(match[1]) if match else None


def components_of(config: PreTrainedConfig) -> dict[str, str]:
    """Nested configurations by key, as model types."""
    found = {}
    for key in getattr(config, "sub_configs", {}) or {}:
        nested = getattr(config, key, None)
        if isinstance(nested, PreTrainedConfig):
            found[key] = nested.model_type or type(nested).__name__
    return found


def changed_parts(cls: type[PreTrainedConfig], config: PreTrainedConfig) -> dict[str, Any]:
    """Where a composite fills its nested configuration otherwise than the nested class does by itself.

    `merged` says that it also does so where the file has that part but not the value.
    """
    found = {}
    for key in getattr(config, "sub_configs", {}) or {}:
        nested = getattr(config, key, None)
        if not isinstance(nested, PreTrainedConfig):
            continue
        own = positional(type(nested)())
        here = {name: value for name, value in positional(nested).items() if value != own.get(name)}
        if not here:
            continue
        if getattr(nested, "head_dim", None) is not None:  # else it would follow from the changed sizes
            here["head_dim"] = nested.head_dim
        try:
            given = positional(getattr(cls(**{key: {}}), key))
        except Exception:
            given = own
        found[key] = {**here, "merged": all(given.get(name) == value for name, value in here.items())}
    return found


def positional(config: PreTrainedConfig) -> dict[str, Any]:
    """The values of a configuration that its table comes from, under their usual names."""
    values = {}
    for key in (*GEOMETRY, "rope_parameters"):
        try:
            value = getattr(config, key, None)
        except Exception:  # differs by layer
            continue
        if value is not None:
            values[key] = value
    return values


def layout(rotary: type, config: PreTrainedConfig) -> str:
    """How the module returns cos and sin: compared at positions 0 to 4."""
    candidates = [config, *(getattr(config, key, None) for key in getattr(config, "sub_configs", {}) or {})]
    for candidate in candidates:
        try:
            module = rotary(candidate)
        except Exception:
            continue
        labels = getattr(module, "layer_types", None)
        keywords = {"layer_type": next(iter(module.rope_type))} if labels else {}
        with torch.no_grad():
            try:
                result = module(torch.zeros(1, 5, 8), torch.arange(5)[None], **keywords)
            except Exception:
                continue
        if isinstance(result, torch.Tensor):
            return "complex"
        sin = result[1].reshape(-1, result[1].shape[-1])[-1:]
        width = sin.shape[1] // 2
        if torch.equal(sin[:, :width], sin[:, width:]):
            return "half"
        return "adjacent" if torch.equal(sin[:, ::2], sin[:, 1::2]) else "split"
    return "half"


def pairing(cls: type[PreTrainedConfig]) -> str:
    """The channels that attention turns together, read from the code that rotates queries; empty where it is not there."""
    if cls.__name__ in PAIRING_FROM_SOURCE:
        return PAIRING_FROM_SOURCE[cls.__name__]
    path = Path(inspect.getfile(cls))
    path = path.with_name(path.name.replace("configuration_", "modeling_"))
    source = path.read_text() if path.exists() else ""
    body = function_body(source, "apply_rotary_pos_emb_vision") if "Vision" in cls.__name__ else ""
    if not body and ("apply_rotary_pos_emb_interleave(" in source or "view_as_complex" in source):
        return "adjacent"
    body = body or function_body(source, "apply_rotary_pos_emb")
    if not body:
        return ""
    rotation = re.search(r"\b(rotate_\w+|_apply_rotary_emb)\(", body)
    turned = function_body(source, rotation[1]) if rotation else body
    return "adjacent" if re.search(r"::\s*2\]", turned) else "half"


def function_body(source: str, name: str) -> str:
    """The lines of one function of a file, its description left out; empty where it has none of that name."""
    match = re.search(rf"^( *)def {name}\(.*?(?=^\1[^\s)]|\Z)", source, re.M | re.S)
    return re.sub(r'""".*?"""', "", match[0], flags=re.S) if match else ""


if __name__ == "__main__":
    main()
