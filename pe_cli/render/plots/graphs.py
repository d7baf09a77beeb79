"""Pictures of encodings of graphs (eigenvectors over the graph, eigenvalues, walks, distances) and of trees (the tree itself,
its codes, the arcs of a dependency parse).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import counted
from pe_cli.render.plots.drawing import (
    BLUE,
    CYCLIC,
    DIVERGING,
    GREY,
    Drawing,
    View,
    curves,
    heat_map,
    spread,
    tensor,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_EDGES = 20000
MOST_NODES = 20000
MOST_LABELS = 40
MOST_ARROWS = 400
MOST_GRAPHS = 4
LONGEST_LABEL = 12


def laplacian(view: View) -> list[Drawing]:
    """The graph drawn in its first two eigenvectors, coloured by two; all their values; the eigenvalues.

    Of a dataset its first graphs, each drawn in its own eigenvectors.
    """
    vectors, values = view.sampled.get("eigenvectors"), view.sampled.get("eigenvalues")
    if vectors is None or vectors.ndim != 2 or not vectors.shape[1]:
        return []
    vectors = vectors.astype(np.float64)
    if "ptr" in view.sampled:
        return [
            *_first_graphs(view, vectors),
            heat_map(vectors, "eigenvectors", labels=("node", "eigenvector")),
        ]
    drawings = [
        over_graph(
            _in_the_plane(vectors),
            vectors[:, column],
            _edges(view),
            f"eigenvector {column} over the graph",
            arrows=_has_arrows(view.parameters.get("graph")),
            names=_names(view),
        )
        for column in sorted({0, min(2, vectors.shape[1] - 1)})
    ]
    order = np.argsort(vectors[:, 0], kind="stable")
    drawings.append(
        heat_map(vectors[order], "eigenvectors", labels=("nodes, sorted by eigenvector 0", "eigenvector"))
    )
    return drawings + _spectrum(values)


def magnetic(view: View) -> list[Drawing]:
    """The first eigenvector in the complex plane with the edges, modulus and phase of all, the eigenvalues.

    Of a dataset its first graphs, each in its own complex plane.
    """
    vectors = view.sampled["eigenvectors"]
    if not np.iscomplexobj(vectors) or vectors.ndim != 2:
        return [tensor(view, name) for name in view.sampled]
    place = np.stack([vectors[:, 0].real, vectors[:, 0].imag], axis=1).astype(np.float64)
    phases = np.angle(vectors)
    labels = ("real part", "imaginary part")
    over = (
        _first_graphs(view, place, phases[:, 0], labels)
        if "ptr" in view.sampled
        else [
            over_graph(
                place,
                phases[:, 0],
                _edges(view),
                "eigenvector 0 in the complex plane",
                labels=labels,
                phase=True,
                arrows=_has_arrows(view.parameters.get("graph"), always=True),
                names=_names(view),
            )
        ]
    )
    return [
        *over,
        heat_map(np.abs(vectors), "modulus", labels=("node", "eigenvector")),
        heat_map(phases, "phase", labels=("node", "eigenvector"), limits=(-np.pi, np.pi), colours=CYCLIC),
        *_spectrum(view.sampled.get("eigenvalues")),
    ]


def _in_the_plane(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, 2) the first two columns; where there is one, it and the nodes one above the other."""
    if vectors.shape[1] > 1:
        return vectors[:, :2]
    return np.stack([vectors[:, 0], np.arange(len(vectors)) / max(len(vectors) - 1, 1)], axis=1)


def _first_graphs(
    view: View,
    vectors: NDArray[np.float64],
    phases: NDArray[np.float64] | None = None,
    labels: tuple[str, str] = ("eigenvector 0", "eigenvector 1"),
) -> list[Drawing]:
    """The first graphs of a dataset side by side, as many as are sampled whole and fit."""
    dataset, ptr = view.parameters.get("graph"), view.sampled["ptr"].tolist()
    start = int(getattr(view.table, "first", 0))
    drawings = []
    for number, (begin, end) in enumerate(pairwise(ptr)):
        if number == MOST_GRAPHS or end > len(vectors):
            break
        if end == begin:
            continue
        own = slice(begin, end)
        graph = None if dataset is None else dataset.block(start + number, start + number + 1)
        values = vectors[own, 0] if phases is None else phases[own]
        drawings.append(
            over_graph(
                _in_the_plane(vectors[own]),
                values,
                None if graph is None else graph.edges,
                f"graph {start + number}",
                labels=labels,
                phase=phases is not None,
                arrows=_has_arrows(graph, always=phases is not None),
                names=[str(node) for node in range(end - begin)],
            )
        )
    return drawings


def walks(view: View) -> list[Drawing]:
    """Return probabilities of each node, and their mean and spread by the number of steps."""
    steps = np.arange(1, view.sampled["random_walk"].shape[1] + 1)
    return _by_column(view, "random_walk", steps, "return probability by steps", ("steps", "probability"))


def relative_walks(view: View) -> list[Drawing]:
    """Probabilities between nodes: of return by steps, or, of all pairs, the first steps and the last."""
    array = view.sampled["rrwp"].astype(np.float64)
    if "pair_ptr" in view.sampled:
        return _planes(view, "rrwp", array[:, min(1, array.shape[1] - 1)])
    if array.ndim == 2:
        steps = np.arange(array.shape[1])
        return _by_column(view, "rrwp", steps, "return probability by steps", ("steps", "probability"))
    last = array.shape[2] - 1
    return [
        heat_map(
            array[:, :, taken],
            f"after {counted(taken, 'step', 'steps')}",
            labels=("node", "node"),
            rows=view.rows["rrwp"],
        )
        for taken in sorted({min(1, last), min(2, last), last})
    ]


def heat(view: View) -> list[Drawing]:
    """Heat left at each node, and its mean and spread over time."""
    times = np.array(view.parameters["times"], dtype=np.float64)
    return _by_column(view, "heat_kernel", times, "heat left at a node by time", ("time", "heat"))


def _by_column(view: View, name: str, x: NDArray[Any], title: str, labels: tuple[str, str]) -> list[Drawing]:
    """A heat map of (nodes, columns), and the mean and spread of the columns over `x`."""
    array = view.sampled[name].astype(np.float64)

    def over_nodes(axes: Axes) -> None:
        low, high = np.quantile(array, [0.1, 0.9], axis=0)
        order = np.argsort(x)
        axes.fill_between(
            x[order], low[order], high[order], color=BLUE, alpha=0.25, label="10 to 90 % of the nodes"
        )
        axes.plot(x[order], array.mean(axis=0)[order], color=BLUE, marker=".", label="mean")
        axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
        axes.grid(alpha=0.3)
        axes.locator_params(axis="x", integer=x.dtype.kind == "i")
        axes.legend(fontsize="small")

    return [heat_map(array, name, rows=view.rows[name], labels=("node", "column")), over_nodes]


def resistances(view: View) -> list[Drawing]:
    """The matrix of resistances, and how many pairs have which."""
    array = view.sampled["resistance"].astype(np.float64)
    finite = np.where(np.isfinite(array), array, np.nan)
    if "pair_ptr" in view.sampled:
        return _planes(view, "resistance", finite)

    def counts(axes: Axes) -> None:
        axes.hist(finite[np.isfinite(finite)], bins=40, color=BLUE)
        axes.set(title="pairs by resistance", xlabel="resistance", ylabel="pairs of nodes")

    return [_on_axes(view, heat_map(finite, "resistance", labels=("node", "node"), square=True)), counts]


def distances(view: View) -> list[Drawing]:
    """The matrix of distances, and how many pairs are how far apart."""
    array = view.sampled["distance"]
    if "pair_ptr" in view.sampled:
        return _planes(view, "distance", array)

    def counts(axes: Axes) -> None:
        rows = array[spread(len(array))].astype(np.float64)
        found, number = np.unique(np.round(rows[np.isfinite(rows) & (rows >= 0)]), return_counts=True)
        axes.bar(found, number, color=BLUE)
        some = f" of {len(rows)} nodes" if len(rows) < len(array) else ""
        axes.set(title=f"pairs{some} by distance", xlabel="distance", ylabel="pairs of nodes")

    heat = heat_map(array, "distance", labels=("node", "node"), square=array.ndim == 2)
    whole = array.ndim == 2 and len(array) == len(_names(view))
    return [_on_axes(view, heat) if whole else heat, counts]


def _planes(view: View, name: str, values: NDArray[Any]) -> list[Drawing]:
    """The pairs of the first graphs of a dataset, a matrix for each."""
    start = int(getattr(view.table, "first", 0))
    drawings: list[Drawing] = []
    for number, (begin, end) in enumerate(pairwise(view.sampled["pair_ptr"].tolist())):
        if number < MOST_GRAPHS and begin < end <= len(values):
            side = round((end - begin) ** 0.5)
            plane = values[begin:end].reshape(side, side)
            title = f"{name} of graph {start + number}"
            drawings.append(heat_map(plane, title, labels=("node", "node"), square=True))
    return drawings


def over_graph(
    place: NDArray[np.float64],
    values: NDArray[np.float64],
    edges: NDArray[np.int64] | None,
    title: str,
    *,
    labels: tuple[str, str] = ("eigenvector 0", "eigenvector 1"),
    phase: bool = False,
    arrows: bool = False,
    names: list[str] | None = None,
) -> Drawing:
    """Nodes at `place` (n, 2), coloured by `values` (n,), joined by `edges` (2, m), with `names` where they are few.

    Nodes at one place, as equivalent nodes of a graph are, lie on a small circle around it.
    """

    def draw(axes: Axes) -> None:
        from matplotlib.collections import LineCollection

        at = _apart(place)
        drawn = None if edges is None or edges.shape[1] > MOST_EDGES else edges[:, edges[0] != edges[1]]
        if drawn is not None and arrows and drawn.shape[1] <= MOST_ARROWS:
            for source, target in drawn.T:
                line = {"arrowstyle": "-|>", "color": GREY, "linewidth": 0.8, "shrinkA": 3, "shrinkB": 4}
                axes.annotate("", at[target], at[source], arrowprops=line, zorder=1)
        elif drawn is not None:
            axes.add_collection(LineCollection(list(at[drawn.T]), colors=GREY, linewidths=0.6, zorder=1))
        reach = np.pi if phase else float(np.abs(values).max()) or 1.0
        shown = spread(len(at), MOST_NODES)
        dots = axes.scatter(
            at[shown, 0],
            at[shown, 1],
            c=values[shown],
            cmap=CYCLIC if phase else DIVERGING,
            vmin=-reach,
            vmax=reach,
            s=float(np.clip(4000 / len(at), 4, 60)),
            edgecolors="black",
            linewidths=0.4,
            zorder=2,
        )
        if names is not None and len(names) == len(at) <= MOST_LABELS:
            for name, spot in zip(_shortened(names), at, strict=True):
                axes.annotate(
                    name, spot, (3, 3), textcoords="offset points", fontsize=6, zorder=3, parse_math=False
                )
        axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
        axes.figure.colorbar(dots, ax=axes, label="phase" if phase else "value")

    return draw


def _apart(place: NDArray[np.float64]) -> NDArray[np.float64]:
    """The places (n, 2), those that are the same moved to a circle of a fiftieth of the picture around it."""
    reach = float(np.ptp(place, axis=0).max(initial=0)) or 1.0
    _, group, count = np.unique(np.round(place / reach, 4), axis=0, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    turn = np.empty(len(place))
    turn[order] = np.arange(len(place)) - (np.cumsum(count) - count)[group[order]]
    size = count[group]
    angle = 2 * np.pi * turn / size
    moved = np.where(size > 1, reach / 50, 0.0)
    return np.asarray(place + moved[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1))


def _spectrum(values: NDArray[Any] | None) -> list[Drawing]:
    if values is None or values.ndim != 1:
        return []
    return [curves({"": values.astype(np.float64)}, "eigenvalues", labels=("number", "eigenvalue"))]


def _edges(view: View) -> NDArray[np.int64] | None:
    edges = getattr(view.parameters.get("graph"), "edges", None)
    return None if edges is None else np.asarray(edges)


def _names(view: View) -> list[str]:
    """What the file calls the nodes of a graph."""
    graph = view.parameters.get("graph")
    given = getattr(graph, "node_ids", None)
    return [str(name) for name in (range(getattr(graph, "num_nodes", 0)) if given is None else given)]


def _has_arrows(graph: Any, *, always: bool = False) -> bool:
    """Whether the edges have a direction for the encoding; `always` for one that looks at it in undirected graphs too."""
    return bool((always or getattr(graph, "directed", False)) and not getattr(graph, "mirrored", True))


def _on_axes(view: View, heat: Drawing) -> Drawing:
    """A heat map of pairs of nodes with the names of the nodes at its axes, where they are few."""
    names = _names(view)

    def draw(axes: Axes) -> None:
        heat(axes)
        if 0 < len(names) <= MOST_LABELS:
            shown = _shortened(names)
            middles = np.arange(len(names)) + 0.5
            axes.set_xticks(middles, shown, rotation=90, fontsize=6)
            axes.set_yticks(middles, shown, fontsize=6)

    return draw


def tree(view: View) -> list[Drawing]:
    """The first tree of the file, the codes of all nodes, and how many nodes each level has."""
    forest = _forest(view)
    codes = [
        tensor(view, name, ("node", "column") if array.ndim == 2 else None)
        for name, array in view.sampled.items()
    ]
    return codes if forest is None else [_first_tree(forest), *codes, _levels(forest.depths)]


def dependency(view: View) -> list[Drawing]:
    """The arcs of the first sentence, the steps to its root, and the relative positions."""
    forest = _forest(view)
    tables = [
        _steps_to_the_root(forest, name, array)
        if array.ndim == 1
        else heat_map(array, name, labels=("word", "word"), square=True)
        for name, array in view.sampled.items()
    ]
    return tables if forest is None else [_arcs(forest), *tables]


def _forest(view: View) -> Any:
    """The trees of the file, or None where there is no node to draw."""
    forest = view.parameters.get("forest")
    return forest if forest is not None and forest.num_nodes else None


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
                axes.annotate(
                    "",
                    xy=(word, 0),
                    xytext=(word + 0.02 * np.sign(head - word), 0.25),
                    arrowprops={"arrowstyle": "-|>", "color": GREY, "linewidth": 0, "shrinkB": 0},
                )
            else:
                axes.plot([word], [0], "o", color=BLUE, label="root", zorder=3)
        labels = _labels(forest, size)
        if size <= MOST_LABELS:
            axes.set_xticks(range(size), labels, rotation=60 if size > 6 else 0)
        axes.set(
            title="arcs from heads to dependents, first sentence",
            xlabel="word",
            ylabel="longer arcs are higher",
        )
        axes.set_ylim(bottom=-0.15)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(0.0, 1.0))

    return draw


def _steps_to_the_root(forest: Any, name: str, array: NDArray[Any]) -> Drawing:
    def draw(axes: Axes) -> None:
        curves({"": array}, name, labels=("word", "steps to the root"), steps=True)(axes)
        size = int(forest.starts[1]) if forest is not None else 0
        if size == len(array) <= MOST_LABELS:
            axes.set_xticks(range(size), _labels(forest, size), rotation=60 if size > 6 else 0)

    return draw


def _name(axes: Axes, x: NDArray[np.float64], y: NDArray[np.float64], labels: list[str]) -> None:
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": BLUE, "linewidth": 0.8}
    for left, top, label in zip(x, y, labels, strict=True):
        axes.text(
            left, top, label, ha="center", va="center", fontsize=7, bbox=box, zorder=2, parse_math=False
        )


def _labels(forest: Any, size: int) -> list[str]:
    return _shortened(
        list(forest.labels[:size]) if len(forest.labels) >= size else [str(node) for node in range(size)]
    )


def _shortened(given: list[str]) -> list[str]:
    return [label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…" for label in given]
