"""Write pe_cli/models/data/schemes_collected.json: where the positions of transformers' models lie that do not rotate.

Run with the pinned transformers of the `interop` extra:  python tools/collect_schemes.py

Every model is built from the defaults of its configuration class, without memory (torch's meta device). What it holds
says which encoding it has: a learned table, a convolution over positions, a table of relative positions, or none.
Types that rotate or that have a scheme written by hand are left out, and so are composites, whose parts are asked.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_utils import PreTrainedModel

from pe_cli.models.configuration import SCHEME_FILES, data

TARGET = Path(__file__).parent.parent / "pe_cli" / "models" / "data" / "schemes_collected.json"
MODELS = Path(transformers.__file__).parent / "models"
LONGEST = 40  # seconds for one model
LEARNED = re.compile(
    r"position_embed|pos_embed(?!_layer)|embed_positions|(^|\.)wpe\.|position_embeds_layer|positional_embedding|"
    r"(^|\.)pos_emb\.|row_embed|column_embed|time_embeddings|temporal_embed|position_enc\b"
)
BIASES = re.compile(
    r"rel_pos_[hw]|relative_position_bias_table|relative_attention_bias|rel_embeddings|emb_rel_|attention_biases"
)
CONVOLUTION = re.compile(r"pos_conv_embed|encode_positions\.conv")
RELATIVE = re.compile(r"Rel(ative)?Pos(itional)?Encoding|RelativePositionEmbedding")
ALIBI = "build_alibi"
# Networks of convolutions only, or without attention: nothing in them knows a position.
NO_POSITIONS = re.compile(r"position|rotary|rope|alibi|sinus|relative|coord|attention_bias", re.IGNORECASE)


def main() -> None:
    """Write the file anew."""
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    known = {
        name for file in SCHEME_FILES if "collected" not in file for g in data(file) for name in g["types"]
    }
    known |= {n for n, e in data("transformers")["models"].items() if "rope" in e} | set(data("remote"))
    groups: dict[str, list[str]] = {}
    for cls, module in configuration_classes():
        name = cls.model_type or cls.__name__
        found = None if name in known else schemes_of(cls, module)
        if found:
            groups.setdefault(json.dumps(found), []).append(name)
            known.add(name)
    rows = (
        f'{{"types": {json.dumps(sorted(names))}, "schemes": {schemes}}}'
        for schemes, names in sorted(groups.items())
    )
    TARGET.write_text("[\n" + ",\n".join(rows) + "\n]\n")
    print(f"{sum(map(len, groups.values()))} model types")


def configuration_classes() -> Iterator[tuple[type[PreTrainedConfig], Any]]:
    """Every configuration class with its modelling file, where there is one."""
    for path in sorted(MODELS.glob("*/configuration_*.py")):
        package = f"transformers.models.{path.parent.name}"
        configs = importlib.import_module(f"{package}.{path.stem}")
        try:
            module = importlib.import_module(f"{package}.{path.stem.replace('configuration_', 'modeling_')}")
        except ImportError:
            continue
        for value in vars(configs).values():
            if (
                inspect.isclass(value)
                and issubclass(value, PreTrainedConfig)
                and value.__module__ == configs.__name__
            ):
                yield value, module


def schemes_of(cls: type[PreTrainedConfig], module: Any) -> list[dict[str, Any]]:
    """The schemes of one class; empty where it is a composite, or nothing could be built."""
    try:
        config = cls()
    except Exception:
        return []
    parts = [k for k in config.sub_configs or {} if isinstance(getattr(config, k, None), PreTrainedConfig)]
    if any("backbone" not in key for key in parts):
        return []
    model = built(cls, module)
    if model is None:
        return []
    source = f"{module.__name__.rpartition('.')[2]}.py"
    return judged(model, source, inspect.getsource(module), name=cls.model_type or cls.__name__)


def built(cls: type[PreTrainedConfig], module: Any) -> PreTrainedModel | None:
    """The base model of a class, on the meta device."""
    models = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, PreTrainedModel) and value.__module__ == module.__name__
        and value.config_class is cls and not value.__name__.endswith("PreTrainedModel")
    ]  # fmt: skip
    models.sort(
        key=lambda m: ("For" in m.__name__, not m.__name__.endswith(("Model", "Backbone")), len(m.__name__))
    )
    for candidate in models[:3]:
        signal.alarm(LONGEST)
        try:
            with torch.device("meta"):
                return candidate(cls())
        except Exception:
            continue
        finally:
            signal.alarm(0)
    return None


def judged(model: PreTrainedModel, source: str, code: str, *, name: str) -> list[dict[str, Any]]:
    """What the tensors and modules of a model say."""
    tensors = [re.sub(r"\.\d+\.", ".N.", key) for key, _ in model.named_parameters()]
    learned = ends(key for key in tensors if LEARNED.search(key) and not CONVOLUTION.search(key))
    biases = ends(key for key in tensors if BIASES.search(key))
    convolutions = [match[0] for key in tensors if (match := CONVOLUTION.search(key))]
    modules = sorted({type(m).__name__ for m in model.modules() if RELATIVE.search(type(m).__name__)})
    also = (
        f"; it also has learned relative positions, the tensors that end in {' and '.join(biases)}"
        if biases
        else ""
    )
    if learned:
        noted = {"note": also} if also else {}
        return [
            {
                "encoding": "learned",
                "source": source,
                "where": " and ".join(learned),
                **noted,
                **sizes(learned, code),
            }
        ]
    if convolutions:
        note = (
            "encodes positions by a convolution over the hidden states, not by a table: its weights are the tensors of "
            f"{convolutions[0]}{also}"
        )
        return [{"encoding": "none", "source": source, "note": note}]
    if modules:
        note = f"adds relative positions of its own to the scores of attention ({', '.join(modules)} in {source})"
        return [{"encoding": "none", "source": source, "note": note}]
    if biases:
        return [{"encoding": "learned", "source": source, "where": " and ".join(biases)}]
    if not NO_POSITIONS.search(code):
        return [
            {
                "encoding": "none",
                "source": source,
                "note": f"has no encoding of positions: {source} has nothing of the kind",
            }
        ]
    return []


def sizes(learned: list[str], code: str) -> dict[str, Any]:
    """The keys that the rows and the width of the one learned table come from, as its file makes it."""
    if len(learned) > 1 or not learned[0].endswith(".weight"):
        return {}
    made = (
        rf"self\.{learned[0].split('.')[-2]} = nn\.Embedding\(\s*config\.(\w+)(?: \+ \d+)?,\s*config\.(\w+)"
    )
    found = set(re.findall(made, code))
    if len(found) != 1:
        return {}
    rows, width = found.pop()
    return {"takes": {"rows": [rows, None], "dim": [width, None]}}


def ends(keys: Iterator[str]) -> list[str]:
    """The ends of tensor names, each once: two parts and `weight`, but no number of a layer."""
    found = []
    for key in keys:
        parts = key.rpartition(".N.")[2].split(".")
        kept = parts[-3:] if parts[-1] in ("weight", "bias") else parts[-2:]
        if kept[-1] != "bias":
            found.append(".".join(kept))
    return list(dict.fromkeys(found))[:6]


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError()))
    main()
