"""The encoding of each graph of a dataset, as tensors whose shapes are known at once and whose rows come in blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.errors import PeError, option_name, parameter
from pe_cli.files import TensorSpec
from pe_cli.numerics.dtypes import numpy_dtype, round_to
from pe_cli.parallel import Run
from pe_cli.process import step
from pe_cli.structures.graph import Graph
from pe_cli.tables import SMALL_RANGE, Block, Choose, Table, renamed, stored_dtype
from pe_cli.tensors import Tensors

if TYPE_CHECKING:
    from pe_cli.structures.datasets import GraphDataset

MOST_GRAPHS, MOST_NODES, MOST_EDGES, MOST_PAIRS = 2048, 1 << 16, 1 << 19, 1 << 21  # of a block
SHOWN_NODES = 256  # of the first graphs, in a picture
MASK = "mask"
EXAMPLE = (3, 1)  # sizes of graphs whose numbers of nodes, graphs and pairs all differ


class DatasetTable(Table):
    """The encoding `function` of the graphs `first` to `last - 1` of a dataset.

    Tensors have a row for each node, for each graph, or for each pair of nodes of a graph; which, two tiny graphs show. With
    `pad` nodes a graph they are batches: (graphs, pad, …), of pairs (graphs, pad, pad, …), filled up with 0, and `mask`
    (graphs, pad) is 1 where there is a node.
    """

    run: Run = map

    def __init__(
        self,
        function: Callable[..., Tensors],
        arguments: Mapping[str, Any],
        dataset: GraphDataset,
        dtype: str | None,
        key: str | None = None,
        shard: tuple[int, int] = (0, 1),
        pad: int | None = None,
    ) -> None:
        if pad is not None and pad < dataset.largest:
            raise PeError(
                f"{parameter('pad_to')} {pad}: the largest graph of {dataset.label} has {dataset.largest} nodes"
            )
        self._function, self._dataset = function, dataset
        self._graph = next(n for n, value in arguments.items() if value is dataset)
        self._arguments = {n: value for n, value in arguments.items() if value is not dataset}
        index, count = shard
        self.first, self._last = len(dataset) * index // count, len(dataset) * (index + 1) // count
        sizes = dataset.sizes[self.first : self._last]
        self._starts = {
            "nodes": np.concatenate([[0], np.cumsum(sizes)]),
            "graphs": np.arange(len(sizes) + 1),
            "pairs": np.concatenate([[0], np.cumsum(sizes**2)]),
            "pairs with a node in front": np.concatenate([[0], np.cumsum((sizes + 1) ** 2)]),
        }
        example = self._call(
            Graph(
                sum(EXAMPLE),
                np.array([[0], [1]]),
                directed=dataset.directed,
                mirrored=dataset.mirrored,
                ptr=np.cumsum((0, *EXAMPLE)),
                largest=dataset.largest,
            )
        )
        rows = {
            sum(EXAMPLE): "nodes",
            len(EXAMPLE): "graphs",
            sum(n * n for n in EXAMPLE): "pairs",
            sum((n + 1) ** 2 for n in EXAMPLE): "pairs with a node in front",
        }
        self._names = renamed(example.to_dict(), key)
        kinds = {n: rows[len(array)] for n, array in example.items() if n not in ("ptr", "pair_ptr")}
        self._padding = (
            {} if pad is None else {n: (kind, pad) for n, kind in kinds.items() if kind != "graphs"}
        )
        self._kinds = {n: "graphs" if n in self._padding else kind for n, kind in kinds.items()}
        pairs = next((kind for kind in self._kinds.values() if kind.startswith("pairs")), "pairs")
        self._ptrs = {
            self._names[n]: self._starts["nodes" if n == "ptr" else pairs]
            for n, _ in example.items()
            if n == "ptr" or (n == "pair_ptr" and pad is None)
        }
        self.facts = {
            "graphs": len(sizes),
            "nodes": int(sizes.sum()),
            "edges": int(dataset.edge_starts[self._last] - dataset.edge_starts[self.first]),
            "largest_graph": dataset.largest,
        }
        self.warnings = dataset.notes
        self._not_finite = Counter()
        self._held: dict[str, list[NDArray[Any]]] = {}
        self._told = False
        self.specs = {}
        for n, array in example.items():
            name = self._names[n]
            if name not in self._ptrs and n not in self._kinds:
                continue
            count = len(self._ptrs[name]) if name in self._ptrs else int(self._starts[self._kinds[n]][-1])
            shape = (count, *self._sides(n), *array.shape[1:])
            self.specs[name] = TensorSpec(name, stored_dtype(array.dtype, dtype), shape)
        if pad is not None:
            self.specs[MASK] = TensorSpec(MASK, "uint8", (len(sizes), pad))

    def __getstate__(self) -> dict[str, Any]:
        """What a worker needs: neither the file nor the tables of where graphs begin."""
        left_out = ("_dataset", "_starts", "_ptrs", "_held", "run")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def blocks(self, names: tuple[str, ...]) -> Iterator[Block]:
        for name in names:
            if name in self._ptrs:
                yield Block(name, 0, self._ptrs[name].astype(np.int64))
            elif name == MASK and name in self.specs:
                sizes, width = np.diff(self._starts["nodes"]), self.specs[MASK].shape[1]
                for first in range(0, len(sizes), MOST_GRAPHS):
                    inside = np.arange(width) < sizes[first : first + MOST_GRAPHS, None]
                    yield Block(name, first, inside.astype(np.uint8))
        wanted = [n for n in self._kinds if self._names[n] in names]
        if not wanted or not self.facts["graphs"]:
            return
        if all(n in self._held for n in wanted):
            for n in wanted:
                yield Block(self._names[n], 0, np.concatenate(self._held[n]))
            return
        # Where tensors are written one after the other, small ones are kept for their turn.
        keep = [n for n in self._kinds if self._is_of_graphs(n) and n not in wanted]
        ranges = list(self._ranges())
        graphs = (self._dataset.block(first, last) for first, last in ranges)
        counts: Counter[str] = Counter()
        for (first, last), (rows, facts, warnings, not_finite) in zip(
            ranges, self.run(self.computed, graphs), strict=True
        ):
            counts.update(facts)
            self.warnings = tuple(dict.fromkeys((*self.warnings, *warnings)))
            for n, array in rows.items():
                if n in keep:
                    self._held.setdefault(n, []).append(array)
                if n in wanted:
                    self._not_finite[self._names[n]] += not_finite.get(n, 0)
                    yield Block(self._names[n], int(self._starts[self._kinds[n]][first - self.first]), array)
            step("graphs", last - self.first, self.facts["graphs"])
        if not self._told:
            self._told = True
            self.facts |= {name: count for name, count in counts.items() if name not in self.facts}
        for n in wanted:
            self._warn(self._names[n])

    def computed(
        self, graph: Graph
    ) -> tuple[dict[str, NDArray[Any]], dict[str, int], tuple[str, ...], dict[str, int]]:
        """The rows of a block of graphs as they are stored, what is counted, what is said, and how many are not finite."""
        tensors = self._call(graph)
        rows = {
            n: np.ascontiguousarray(
                round_to(self._padded(n, tensors[n], graph), numpy_dtype(self.specs[self._names[n]].dtype))
            )
            for n in self._kinds
        }
        facts = {n: value for n, value in tensors.facts.items() if type(value) is int}
        # Columns that a small graph does not have are NaN on purpose, in what it has one row of.
        not_finite = {
            n: int(array.size - np.count_nonzero(np.isfinite(array)))
            for n, array in rows.items()
            if not self._is_of_graphs(n) and array.dtype.name in SMALL_RANGE
        }
        return rows, facts, tensors.warnings_for(option_name), not_finite

    def pick(self, choose: Choose) -> dict[str, NDArray[Any]]:
        """Those of the first graphs, whatever rows are asked for."""
        last = self.first + max(1, int(np.searchsorted(self._starts["nodes"], SHOWN_NODES, side="right")) - 1)
        graph = self._dataset.block(self.first, min(last, self._last))
        tensors = self._call(graph)
        return {
            self._names[n]: self._padded(n, array, graph)
            for n, array in tensors.items()
            if self._names[n] in self.specs
        }

    def _is_of_graphs(self, n: str) -> bool:
        """Whether the tensor has one small row for each graph."""
        return self._kinds[n] == "graphs" and n not in self._padding

    def _sides(self, n: str) -> tuple[int, ...]:
        """The axes of nodes that a padded tensor has behind that of graphs."""
        if n not in self._padding:
            return ()
        kind, pad = self._padding[n]
        return (pad,) if kind == "nodes" else (pad + (kind != "pairs"),) * 2

    def _padded(self, n: str, array: NDArray[Any], graph: Graph) -> NDArray[Any]:
        """The rows of a block of graphs, filled up with 0 where that is asked for."""
        sides = self._sides(n)
        if not sides:
            return array
        batch = np.zeros((graph.num_graphs, *sides, *array.shape[1:]), dtype=array.dtype)
        inside = np.arange(sides[0]) < (graph.sizes + sides[0] - self._padding[n][1])[:, None]
        batch[inside if len(sides) == 1 else inside[:, :, None] & inside[:, None, :]] = array
        return batch

    def _ranges(self) -> Iterator[tuple[int, int]]:
        """Blocks of graphs, each of few enough nodes, edges and pairs."""
        edges = self._dataset.edge_starts[self.first : self._last + 1] - self._dataset.edge_starts[self.first]
        largest = max((int(np.prod(self._sides(n))) for n in self._kinds), default=1)
        at_once = int(np.clip(MOST_PAIRS // largest, 1, MOST_GRAPHS))
        begin, end = 0, len(edges) - 1
        while begin < end:
            last = begin + at_once
            for starts, most in (
                (self._starts["nodes"], MOST_NODES),
                (edges, MOST_EDGES),
                (self._starts["pairs"], MOST_PAIRS),
            ):
                last = min(last, int(np.searchsorted(starts, starts[begin] + most, side="right")) - 1)
            last = min(max(last, begin + 1), end)
            yield self.first + begin, self.first + last
            begin = last

    def _call(self, graph: Graph) -> Tensors:
        return self._function(**{self._graph: graph}, **self._arguments)


def by_blocks(function: Callable[..., Any], arguments: Mapping[str, Any]) -> bool:
    """Whether the tensors of a dataset have shapes that are known before they are computed."""
    name, value = getattr(function, "only_whole", (None, None))
    return name is None or arguments.get(name) != value
