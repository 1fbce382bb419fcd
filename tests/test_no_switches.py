"""No module asks which loss, cost or solver it has in hand, outside the folder that defines it."""

import ast
import importlib
import pkgutil
from pathlib import Path

import pytest

import otdro
from otdro.costs import Cost
from otdro.losses import Loss
from otdro.solvers import Solver

SOURCE = Path(otdro.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
#: Named here too, so that a class that moves or loses its base stays in view.
NAMED = {
    "losses": {"PiecewiseQuadratic"},
    "costs": {"CallableCost"},
    "solvers": {"Exact", "Auto"},
}


def subclasses(kind):
    """Return all classes of otdro below a class."""
    found = set()
    for sub in kind.__subclasses__():
        found |= {sub.__name__} if sub.__module__.startswith("otdro.") else set()
        found |= subclasses(sub)
    return found


def concrete(folder, base):
    """Return the names of what a folder defines: all but its abstract base."""
    package = importlib.import_module(f"otdro.{folder}")
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
    return set(package.__all__) | NAMED[folder] | subclasses(base)


CONCRETE = {
    "losses": concrete("losses", Loss),
    "costs": concrete("costs", Cost),
    "solvers": concrete("solvers", Solver),
}


def names(node):
    """Return the names at the ends of an expression, and strings, which may name a class."""
    found = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute):
            found.add(part.attr)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            found.add(part.value)
    return found


def called(node):
    """Return the name of what a node calls, None if it calls nothing by name."""
    function = node.func if isinstance(node, ast.Call) else None
    return getattr(function, "attr", getattr(function, "id", None))


def asks_for_the_type(node):
    """Whether an expression holds type(x) or x.__class__."""
    for part in ast.walk(node):
        if called(part) == "type":
            return True
        if isinstance(part, ast.Attribute) and part.attr == "__class__":
            return True
    return False


def aliases(tree, forbidden):
    """Return other names in a file for forbidden ones: ``import as`` and tuples of classes."""
    found = set(forbidden)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {a.asname for a in node.names if a.asname and a.name in forbidden}
    for node in tree.body:
        plain = isinstance(node, ast.Assign) and isinstance(
            node.value, ast.Name | ast.Attribute | ast.Tuple | ast.BinOp
        )
        if plain and names(node.value) & found:
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    # __all__ may list them
    return found - {"__all__"}


def switched(node):
    """Return the names that a node compares a type with."""
    if called(node) in ("isinstance", "issubclass"):
        return names(node.args[1])
    if isinstance(node, ast.Compare) and asks_for_the_type(node):
        return names(node)
    if isinstance(node, ast.MatchClass):
        return names(node.cls)
    if called(node) == "register":
        return set().union(*map(names, node.args)) if node.args else set()
    if isinstance(node, ast.Subscript) and asks_for_the_type(node.slice):
        return {"a table by type"}
    return set()


def switches(text, forbidden):
    """Return (line, names) of every switch on a forbidden name."""
    tree = ast.parse(text)
    known = aliases(tree, forbidden) | {"a table by type"}
    found = [(node.lineno, switched(node) & known) for node in ast.walk(tree)
             if hasattr(node, "lineno")]  # fmt: skip
    return [(line, sorted(hits)) for line, hits in found if hits]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_switch_on_a_concrete_class(path):
    own = path.relative_to(SOURCE).parts[0]
    forbidden = set().union(*(known for folder, known in CONCRETE.items() if folder != own))
    found = switches(path.read_text(), forbidden)
    assert not found, f"{path.relative_to(SOURCE)} switches on {found}"


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(loss, Hinge)",
        "isinstance(loss, (Loss, losses.Hinge))",
        "isinstance(loss, Squared | Hinge)",
        "issubclass(kind, Hinge)",
        "type(loss) is Hinge",
        "type(loss) == Hinge",
        "type(loss) in (Hinge, Squared)",
        "loss.__class__ is Hinge",
        "type(loss).__name__ == 'Hinge'",
        "TABLE[type(loss)]",
        "match loss:\n    case Hinge():\n        pass",
        "match loss:\n    case losses.Hinge(kappa=0):\n        pass",
        "from .losses import Hinge as Kink\nisinstance(loss, Kink)",
        "KINKED = (Hinge, Absolute)\nisinstance(loss, KINKED)",
    ],
)
def test_a_switch_is_seen(text):
    assert switches(text, {"Hinge"})


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(loss, Loss)",
        "loss = Hinge()",
        "DEFAULT = Hinge()\nisinstance(x, float)",
        "rows.map(lambda value: isinstance(value, float)).all()",
        "f'order=2 with {type(loss).__name__}'",
        "loss.kappa == 0",
        "KNOWN = {'hinge': Hinge}\nisinstance(x, str)",
    ],
)
def test_other_uses_are_free(text):
    assert not switches(text, {"Hinge"})


def test_the_known_classes_are_found():
    assert CONCRETE["losses"] >= {"Hinge", "Huber", "Logistic", "PiecewiseQuadratic"}
    assert CONCRETE["costs"] >= {"Norm", "Mahalanobis", "FeatureMap", "Graph", "CallableCost"}
    assert CONCRETE["solvers"] >= {"Exact", "Auto", "Smoothed", "Quadrature", "Sinkhorn"}
    assert not {"Loss", "Cost", "Solver"} & set().union(*CONCRETE.values())
