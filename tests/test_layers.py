"""The way of the data: a module imports only what stands before it."""

import ast
from pathlib import Path

import pytest

import otdro

SOURCE = Path(otdro.__file__).parent
LAYERS = [
    {"arrays", "files", "first_use", "wanted"},
    {"entry"},
    {"design", "progress", "chunks"},
    {"losses", "costs", "pairs"},
    {"metrics", "scaling"},
    {"problem"},
    {"duality"},
    {"solvers"},
    {"worst_case"},
    {"radius"},
    {"estimators"},
    {"inspection"},
    {"mix"},
    {"comparison"},
    {"plot", "report", "persistence"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


def imported(path: Path) -> set[str]:
    """Return the otdro modules that a file imports, anywhere in it."""
    package = path.relative_to(SOURCE).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = list(package[: len(package) - node.level + 1])
            parts = base + (node.module.split(".") if node.module else [])
            found |= {parts[0]} if parts else {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("otdro"):
            parts = node.module.split(".")[1:]
            found |= {parts[0]} if parts else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_module_imports_only_earlier_layers(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert own in LEVEL, f"{own} has no layer: add it to LAYERS and to docs/design.md"
    for name in imported(path) - {own, "__version__"}:
        assert LEVEL[name] < LEVEL[own], f"{own} may not import {name}"
