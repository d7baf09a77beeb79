"""Pictures of encodings of graphs: eigenvectors over the graph, eigenvalues, walks, distances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import counted
from pe_cli.render.plots.canvas import BLUE, CYCLIC, DIVERGING, GREY, Drawing, View, spread
from pe_cli.render.plots.general import curves, heat_map

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_EDGES = 20000
MOST_NODES = 20000


def laplacian(view: View) -> list[Drawing]:
    """The graph drawn in its first two eigenvectors, coloured by two; all their values; the eigenvalues."""
    vectors, values = view.sampled.get("eigenvectors"), view.sampled.get("eigenvalues")
    if vectors is None or vectors.ndim != 2 or not vectors.shape[1]:
        return []
    vectors = vectors.astype(np.float64)
    second = vectors[:, 1] if vectors.shape[1] > 1 else np.arange(len(vectors)) / max(len(vectors) - 1, 1)
    place = np.stack([vectors[:, 0], second], axis=1)
    drawings = [
        over_graph(place, vectors[:, column], _edges(view), f"eigenvector {column} over the graph")
        for column in sorted({0, min(2, vectors.shape[1] - 1)})
    ]
    order = np.argsort(vectors[:, 0], kind="stable")
    drawings.append(
        heat_map(vectors[order], "eigenvectors", labels=("nodes, sorted by eigenvector 0", "eigenvector"))
    )
    return drawings + _spectrum(values)


def magnetic(view: View) -> list[Drawing]:
    """The first eigenvector in the complex plane with the edges, modulus and phase of all, the eigenvalues."""
    vectors = view.sampled["eigenvectors"]
    place = np.stack([vectors[:, 0].real, vectors[:, 0].imag], axis=1).astype(np.float64)
    phases = np.angle(vectors)
    return [
        over_graph(
            place,
            phases[:, 0],
            _edges(view),
            "eigenvector 0 in the complex plane",
            labels=("real part", "imaginary part"),
            phase=True,
        ),
        heat_map(np.abs(vectors), "modulus", labels=("node", "eigenvector")),
        heat_map(phases, "phase", labels=("node", "eigenvector"), limits=(-np.pi, np.pi), colours=CYCLIC),
        *_spectrum(view.sampled.get("eigenvalues")),
    ]


def walks(view: View) -> list[Drawing]:
    """Return probabilities of each node, and their mean and spread by the number of steps."""
    steps = np.arange(1, view.sampled["random_walk"].shape[1] + 1)
    return _by_column(view, "random_walk", steps, "return probability by steps", ("steps", "probability"))


def relative_walks(view: View) -> list[Drawing]:
    """Probabilities between nodes: of return by steps, or, of all pairs, the first steps and the last."""
    array = view.sampled["rrwp"].astype(np.float64)
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
        axes.legend(fontsize="small")

    return [heat_map(array, name, rows=view.rows[name], labels=("node", "column")), over_nodes]


def resistances(view: View) -> list[Drawing]:
    """The matrix of resistances, and how many pairs have which."""
    array = view.sampled["resistance"].astype(np.float64)
    finite = np.where(np.isfinite(array), array, np.nan)

    def counts(axes: Axes) -> None:
        axes.hist(finite[np.isfinite(finite)], bins=40, color=BLUE)
        axes.set(title="pairs by resistance", xlabel="resistance", ylabel="pairs of nodes")

    return [heat_map(finite, "resistance", labels=("node", "node"), square=True), counts]


def distances(view: View) -> list[Drawing]:
    """The matrix of distances, and how many pairs are how far apart."""
    array = view.sampled["distance"]

    def counts(axes: Axes) -> None:
        rows = array[spread(len(array))].astype(np.float64)
        found, number = np.unique(np.round(rows[np.isfinite(rows) & (rows >= 0)]), return_counts=True)
        axes.bar(found, number, color=BLUE)
        some = f" of {len(rows)} nodes" if len(rows) < len(array) else ""
        axes.set(title=f"pairs{some} by distance", xlabel="distance", ylabel="pairs of nodes")

    return [heat_map(array, "distance", labels=("node", "node"), square=array.ndim == 2), counts]


def over_graph(
    place: NDArray[np.float64],
    values: NDArray[np.float64],
    edges: NDArray[np.int64] | None,
    title: str,
    *,
    labels: tuple[str, str] = ("eigenvector 0", "eigenvector 1"),
    phase: bool = False,
) -> Drawing:
    """Nodes at `place` (n, 2), coloured by `values` (n,), joined by `edges` (2, m)."""

    def draw(axes: Axes) -> None:
        from matplotlib.collections import LineCollection

        if edges is not None and edges.shape[1] <= MOST_EDGES:
            axes.add_collection(LineCollection(list(place[edges.T]), colors=GREY, linewidths=0.6, zorder=1))
        reach = np.pi if phase else float(np.abs(values).max()) or 1.0
        shown = spread(len(place), MOST_NODES)
        dots = axes.scatter(
            place[shown, 0],
            place[shown, 1],
            c=values[shown],
            cmap=CYCLIC if phase else DIVERGING,
            vmin=-reach,
            vmax=reach,
            s=float(np.clip(4000 / len(place), 4, 60)),
            edgecolors="black",
            linewidths=0.4,
            zorder=2,
        )
        axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
        axes.figure.colorbar(dots, ax=axes, label="phase" if phase else "value")

    return draw


def _spectrum(values: NDArray[Any] | None) -> list[Drawing]:
    if values is None or values.ndim != 1:
        return []
    return [curves({"": values.astype(np.float64)}, "eigenvalues", labels=("number", "eigenvalue"))]


def _edges(view: View) -> NDArray[np.int64] | None:
    edges = getattr(view.parameters.get("graph"), "edges", None)
    return None if edges is None else np.asarray(edges)
