"""What the source of a package says of its own structure: who imports whom, which classes there are, how long files are.

The graph is read from the syntax, so that imports inside functions and for type checkers count as well.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path


class House:
    """The modules of the package in `folder`, by dotted name."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.paths = {
            self._dotted(path.relative_to(folder.parent)): path for path in sorted(folder.rglob("*.py"))
        }
        self.trees = {
            module: ast.parse(path.read_text(encoding="utf-8")) for module, path in self.paths.items()
        }

    @staticmethod
    def _dotted(path: Path) -> str:
        parts = path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def imports(self, module: str) -> set[str]:
        """The modules that `module` imports anywhere in its text."""
        found: set[str] = set()
        for node in ast.walk(self.trees[module]):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                found |= {name if name in self.paths else node.module for name in whole}
        return {name for name in found if name in self.paths} - {module}

    def importers(self) -> dict[str, set[str]]:
        """Who imports each module."""
        found: dict[str, set[str]] = defaultdict(set)
        for module in self.paths:
            for imported in self.imports(module):
                found[imported].add(module)
        return found

    def room(self, module: str) -> str:
        """The package of a module just under the root, or the module itself where it lies in the root."""
        return ".".join(module.split(".")[:2])

    def cycles(self) -> list[list[str]]:
        """Rooms that import each other, directly or through others."""
        edges: dict[str, set[str]] = defaultdict(set)
        for module in self.paths:
            edges[self.room(module)] |= {self.room(name) for name in self.imports(module)} - {
                self.room(module)
            }
        reach = {room: self._reached(room, edges) for room in list(edges)}
        groups = {frozenset(b for b in reach[a] if a in reach[b]) for a in reach}
        return sorted(sorted(group) for group in groups if len(group) > 1)

    @staticmethod
    def _reached(start: str, edges: dict[str, set[str]]) -> set[str]:
        seen, waiting = set(), [start]
        while waiting:
            for room in edges[waiting.pop()] - seen:
                seen.add(room)
                waiting.append(room)
        return seen

    def repeated_classes(self) -> dict[str, list[str]]:
        """Names of classes that several modules define."""
        homes: dict[str, list[str]] = defaultdict(list)
        for module, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    homes[node.name].append(module)
        return {name: modules for name, modules in homes.items() if len(set(modules)) > 1}

    def lengths(self) -> Counter[str]:
        """How many lines each module has."""
        return Counter(
            {m: len(path.read_text(encoding="utf-8").splitlines()) for m, path in self.paths.items()}
        )

    def small_with_one_user(self, lines: int) -> list[str]:
        """Modules of fewer `lines` that one other imports: they belong into that one."""
        lengths, importers = self.lengths(), self.importers()
        return sorted(
            module
            for module, path in self.paths.items()
            if path.name not in ("__init__.py", "__main__.py")
            and lengths[module] < lines
            and len(importers[module]) == 1
        )
