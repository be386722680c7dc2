# SPDX-License-Identifier: Apache-2.0
"""Imports of the modules, read from their source without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support import ROOT

PACKAGE = 'robocal_ros'
INSTALLED = (PACKAGE, 'robocal_sim')
STUBS = sorted((ROOT / PACKAGE).rglob('__init__.pyi'))
MODULES = sorted(path for name in (*INSTALLED, 'demo', 'benchmarks')
                 for path in (ROOT / name).rglob('*.py'))


@dataclass(frozen=True)
class Import:
    """One imported module, by its full name, and the line that imports it."""

    module: str
    line: int

    @property
    def top(self) -> str:
        return self.module.partition('.')[0]


def name_of(path: Path) -> str:
    """Return the dotted name of the module in a file below the repository's root."""
    parts = path.relative_to(ROOT).with_suffix('').parts
    return '.'.join(parts[:-1] if parts[-1] == '__init__' else parts)


def imports_of(source: str, module: str = PACKAGE, *, package: bool = False) -> Iterator[Import]:
    """Yield every import of a module's source, those inside functions too.

    `from a import b` counts as `a.b`, because b may be a module.
    """
    parts = module.split('.') if package else module.split('.')[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = parts[: len(parts) - node.level + 1] if node.level else []
            origin = '.'.join([*base, *([node.module] if node.module else [])])
            yield from (Import(f'{origin}.{alias.name}', node.lineno) for alias in node.names)


def imports_in(path: Path) -> list[Import]:
    """Return the imports of a source file."""
    source = path.read_text(encoding='utf-8')
    return list(imports_of(source, name_of(path), package=path.name == '__init__.py'))


def lent() -> dict[str, str]:
    """Return the modules of all names that packages lend, by `package.name`."""
    found = {}
    for path in STUBS:
        package = name_of(path.with_suffix('.py'))
        for item in imports_of(path.read_text(encoding='utf-8'), package, package=True):
            origin, _, name = item.module.rpartition('.')
            found[f'{package}.{name}'] = item.module if origin == package else origin
    return found
