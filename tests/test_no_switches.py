"""No module asks which loss, cost, solver or other member of a family it has in hand."""

import ast
import importlib
import pkgutil
from functools import cache
from inspect import signature
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator

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
    "solvers": {"Exact"},
}


def subclasses(kind):
    """Return all classes of otdro below a class."""
    found = set()
    for sub in kind.__subclasses__():
        found |= {sub.__name__} if sub.__module__.startswith("otdro.") else set()
        found |= subclasses(sub)
    return found


def classes():
    """Return all classes that otdro defines."""
    for module in pkgutil.walk_packages(otdro.__path__, "otdro."):
        loaded = importlib.import_module(module.name)
        for known in vars(loaded).values():
            if isinstance(known, type) and known.__module__ == module.name:
                yield known


def is_own(kind):
    """Whether a class is one of otdro."""
    return kind.__module__.startswith("otdro.")


def facts(kind):
    """Return the public names that a class states by itself: methods, attributes, parameters."""
    names = {*vars(kind), *getattr(kind, "__annotations__", {})}
    if "__init__" in vars(kind):
        names |= set(signature(kind).parameters)
    return {name for name in names if not name.startswith("_")} - set(dir(BaseEstimator))


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
#: Members of any family: classes of otdro below a class of otdro that is no exception.
MEMBERS = {kind.__name__ for kind in classes() if any(is_own(base) for base in kind.__mro__[1:])}
#: Where a member may be asked for, because what is in hand comes from a user.
OPEN = {
    # a reader that the user made names its columns, where arrays come beside the rows
    "chunks/__init__.py": {"ParquetRows"},
}
#: What losses, costs and solvers state, every one of them: its base class has the default.
FACTS = set().union(
    *(facts(kind) for kind in classes() if issubclass(kind, Loss | Cost | Solver))
) - {"shape"}  # arrays have it


parsed = cache(ast.parse)


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


@cache
def decisions(tree):
    """Return the nodes of a tree outside asserts, which tell a type checker what is known."""
    nodes = list(ast.walk(tree))
    known = {id(part) for node in nodes if isinstance(node, ast.Assert) for part in ast.walk(node)}
    return [node for node in nodes if id(node) not in known]


def switches(text, forbidden):
    """Return (line, names) of every switch on a forbidden name."""
    tree = parsed(text)
    known = aliases(tree, forbidden) | {"a table by type"}
    found = [(node.lineno, switched(node) & known) for node in decisions(tree)
             if hasattr(node, "lineno")]  # fmt: skip
    return [(line, sorted(hits)) for line, hits in found if hits]


def guesses(text, stated):
    """Return (line, name) where a fact that every object states is guessed from its presence."""
    return [
        (node.lineno, node.args[1].value)
        for node in decisions(parsed(text))
        if (called(node) == "hasattr" or (called(node) == "getattr" and len(node.args) == 3))
        and isinstance(node.args[1], ast.Constant)
        and node.args[1].value in stated
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_switch_on_a_concrete_class(path):
    own = path.relative_to(SOURCE).parts[0]
    forbidden = set().union(*(known for folder, known in CONCRETE.items() if folder != own))
    found = switches(path.read_text(), forbidden)
    assert not found, f"{path.relative_to(SOURCE)} switches on {found}"


def test_no_switch_on_a_member_of_a_family():
    found = {}
    for path in FILES:
        name = path.relative_to(SOURCE).as_posix()
        found[name] = switches(path.read_text(), MEMBERS - OPEN.get(name, set()))
    told = {name: hits for name, hits in found.items() if hits}
    assert not told, f"switches on {told}: let the class state what the code asks for"


def test_no_fact_is_guessed():
    found = {str(path.relative_to(SOURCE)): guesses(path.read_text(), FACTS) for path in FILES}
    told = {name: hits for name, hits in found.items() if hits}
    assert not told, f"guesses {told}: ask for it, the base class has the default"


@pytest.mark.parametrize("text", ["hasattr(cost, 'matrix')", "getattr(x.cost, 'matrix', None)"])
def test_a_guess_is_seen(text):
    assert guesses(text, {"matrix"})


@pytest.mark.parametrize("text", ["cost.matrix", "getattr(cost, 'matrix')", "hasattr(X, 'nnz')"])
def test_a_question_is_no_guess(text):
    assert not guesses(text, {"matrix"})


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
        "assert isinstance(loss, Hinge)",
    ],
)
def test_other_uses_are_free(text):
    assert not switches(text, {"Hinge"})


def test_the_known_classes_are_found():
    assert CONCRETE["losses"] >= {"Hinge", "Huber", "Logistic", "PiecewiseQuadratic"}
    assert CONCRETE["costs"] >= {"Norm", "Mahalanobis", "FeatureMap", "Graph", "CallableCost"}
    assert CONCRETE["solvers"] >= {"Exact", "Smoothed", "Quadrature", "Sinkhorn"}
    assert not {"Loss", "Cost", "Solver"} & set().union(*CONCRETE.values())
    assert {"Hinge", "Norm", "Exact", "CutNorm", "SumNorm", "Joint", "InteriorPoint"} <= MEMBERS
    assert not {"Loss", "Cost", "Solver", "PenaltyNorm", "Form", "Method"} & MEMBERS
    assert {"kappa", "matrix", "p", "learns", "several_scores", "tol"} <= FACTS
