"""What one encoding of a model that does not rotate needs to know, and short ways to write the usual ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Keys where null is a value of its own, no encoding, and not silence.
NULL_SPEAKS = frozenset({"position_embedding_type", "position_embeddings_type"})


@dataclass(frozen=True)
class Scheme:
    """One encoding of a model type.

    encoding : its name in the catalogue; "learned" for a table in the checkpoint, "none" where the model has no
        positions, "elsewhere" where another command makes what the model needs (`note` says which)
    label : what `--layer-type` calls it, where a model has several
    when : keys with the values that choose it, and the class default: {key: (values, default)}
    takes : parameter of the encoding: (key of the configuration, default of the class); a whole number unless the
        default is a float, whole numbers where it is a tuple
    below_one : parameters whose values less than 1 mean another key (with the class default), or where None nothing
    fixed : parameters that are the same in every model of the type
    grid : defaults of image_size and patch_size, where the positions are the patches of an image
    where : for a learned table the end of its tensor's name, and the rows in front of position 0
    counted : whether the number of rows in the configuration counts those in front
    """

    encoding: str
    source: str
    label: str = ""
    when: dict[str, tuple[tuple[Any, ...], Any]] = field(default_factory=dict)
    takes: dict[str, tuple[str, Any]] = field(default_factory=dict)
    below_one: dict[str, tuple[str, int] | None] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    grid: tuple[int, int] | None = None
    where: str = ""
    offset: int = 0
    counted: bool = False
    note: str = ""


def fairseq(
    source: str, key: str = "d_model", width: int = 1024, padding: int = 1, label: str = ""
) -> Scheme:
    """The sinusoidal table of fairseq, whose row of the padding index is zero."""
    takes = {"dim": (key, width), "padding_idx": ("pad_token_id", padding)}
    return Scheme("sinusoidal", source, label=label, takes=takes, fixed={"style": "fairseq"})


def sinusoidal(source: str, style: str, key: str, width: int, **rest: Any) -> Scheme:
    return Scheme("sinusoidal", source, takes={"dim": (key, width)}, fixed={"style": style}, **rest)


def learned(where: str, rows: str, width: str, source: str, offset: int = 0, **rest: Any) -> Scheme:
    """A learned table whose size is in the configuration."""
    takes = {"rows": (rows, None), "dim": (width, None)}
    return Scheme("learned", source, takes=takes, where=where, offset=offset, **rest)


def nowhere(source: str, note: str, **rest: Any) -> Scheme:
    """No encoding of positions at all."""
    return Scheme("none", source, note=note, **rest)
