"""Pictures of trees: the tree itself, its codes, the arcs of a dependency parse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.render.plots.canvas import BLUE, GREY, Drawing, View
from pe_cli.render.plots.general import curves, heat_map, tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LABELS = 40
LONGEST_LABEL = 12


def tree(view: View) -> list[Drawing]:
    """The first tree of the file, the codes of all nodes, and how many nodes each level has."""
    forest = view.parameters.get("forest")
    drawings: list[Drawing] = []
    if forest is not None and forest.num_nodes:
        drawings.append(_first_tree(forest))
    drawings += [
        tensor(view, name, ("node", "column") if array.ndim == 2 else None)
        for name, array in view.sampled.items()
    ]
    if forest is not None and forest.num_nodes:
        drawings.append(_levels(forest.depths))
    return drawings


def dependency(view: View) -> list[Drawing]:
    """The arcs of the first sentence, the steps to its root, and the relative positions."""
    forest = view.parameters.get("forest")
    drawings: list[Drawing] = []
    if forest is not None and forest.num_nodes:
        drawings.append(_arcs(forest))
    for name, array in view.sampled.items():
        if array.ndim == 1:
            drawings.append(curves({"": array}, name, labels=("word", "steps to the root"), steps=True))
        else:
            drawings.append(heat_map(array, name, labels=("word", "word"), square=True))
    return drawings


def _first_tree(forest: Any) -> Drawing:
    def draw(axes: Axes) -> None:
        size = int(forest.starts[1])
        parents, depths = forest.parents[:size], forest.depths[:size]
        across = _places(parents, depths)
        children = np.flatnonzero(parents >= 0)
        above = parents[children]
        axes.plot(
            np.stack([across[children], across[above]]),
            -np.stack([depths[children], depths[above]]),
            color=GREY,
            linewidth=0.9,
            zorder=1,
        )
        if size <= MOST_LABELS:
            _name(axes, across, -depths.astype(float), _labels(forest, size))
        else:
            axes.scatter(across, -depths, s=float(np.clip(3000 / size, 2, 40)), color=BLUE, zorder=2)
        axes.set(title="the first tree", xlabel="leaves from left to right", ylabel="depth")
        axes.set_xticks([])
        deepest = int(depths.max(initial=0))
        ticks = sorted({0, deepest // 2, deepest}) if deepest > 8 else range(deepest + 1)
        axes.set_yticks([-tick for tick in ticks], [str(tick) for tick in ticks])
        axes.margins(0.08)

    return draw


def _places(parents: NDArray[np.int64], depths: NDArray[np.int64]) -> NDArray[np.float64]:
    """Leaves side by side in the order of a walk from the left, parents above the middle of their children."""
    size = len(parents)
    children: list[list[int]] = [[] for _ in range(size)]
    for node, parent in enumerate(parents.tolist()):
        if parent >= 0:
            children[parent].append(node)
    across = np.zeros(size)
    leaf, stack = 0, [int(root) for root in np.flatnonzero(parents < 0)[::-1]]
    while stack:
        node = stack.pop()
        stack += children[node][::-1]
        if not children[node]:
            across[node] = leaf
            leaf += 1
    for node in np.argsort(-depths, kind="stable").tolist():
        if children[node]:
            across[node] = across[children[node]].mean()
    return across


def _levels(depths: NDArray[np.int64]) -> Drawing:
    def draw(axes: Axes) -> None:
        counts = np.bincount(depths)
        axes.barh(np.arange(len(counts)), counts, color=BLUE)
        axes.invert_yaxis()
        axes.set(title="nodes by depth", xlabel="nodes", ylabel="depth")

    return draw


def _arcs(forest: Any) -> Drawing:
    def draw(axes: Axes) -> None:
        size = int(forest.starts[1])
        half_turn = np.linspace(0, np.pi, 40)
        for word, head in enumerate(forest.parents[:size].tolist()):
            if head >= 0:
                middle, radius = (word + head) / 2, abs(word - head) / 2
                axes.plot(
                    middle + radius * np.cos(half_turn), radius * np.sin(half_turn), color=GREY, linewidth=1
                )
            else:
                axes.plot([word], [0], "o", color=BLUE, label="root", zorder=3)
        labels = _labels(forest, size)
        if size <= MOST_LABELS:
            axes.set_xticks(range(size), labels, rotation=60 if size > 6 else 0)
        axes.set(title="heads of the first sentence", xlabel="word", ylabel="half the distance")
        axes.legend(fontsize="small")

    return draw


def _name(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64], labels: list[str]) -> None:
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": BLUE, "linewidth": 0.8}
    for left, top, label in zip(x, y, labels, strict=True):
        axes.text(
            left, top, label, ha="center", va="center", fontsize=7, bbox=box, zorder=2, parse_math=False
        )


def _labels(forest: Any, size: int) -> list[str]:
    given = list(forest.labels[:size]) if len(forest.labels) >= size else [str(node) for node in range(size)]
    return [label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…" for label in given]
