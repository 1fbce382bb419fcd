"""How large the package is, and how much of it a fit runs through.

    python benchmarks/size.py

Code lines are lines that hold a token other than a comment or a docstring. A fit's files and
functions are those of the package that are called between ``fit`` and its return.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

import numpy as np

import otdro
from otdro import DROClassifier

SOURCE = Path(otdro.__file__).parent
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(text):
    """Return the number of lines that hold code."""
    documented = set()
    for node in ast.walk(ast.parse(text)):
        holds = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if holds and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            documented.update(range(first.lineno, first.end_lineno + 1))
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def numeric_constants(text):
    """Return the number of names that a module binds to numbers at its top level."""
    count = 0
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for value in node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]:
            parts = list(ast.walk(value))
            numbers = any(
                isinstance(part, ast.Constant) and isinstance(part.value, int | float)
                for part in parts
            )
            count += numbers and not any(isinstance(part, ast.Dict | ast.Call) for part in parts)
    return count


def ran_through(fit):
    """Return the files and the functions of the package that a call enters."""
    functions = set()

    def trace(frame, event, arg):
        code = frame.f_code
        named = not code.co_name.startswith("<")
        if event == "call" and named and code.co_filename.startswith(str(SOURCE)):
            functions.add((code.co_filename, code.co_qualname))

    sys.setprofile(trace)
    try:
        fit()
    finally:
        sys.setprofile(None)
    return len({file for file, _ in functions}), len(functions)


def main():
    """Print the figures."""
    lines, files, constants = Counter(), Counter(), 0
    for path in sorted(SOURCE.rglob("*.py")):
        text, place = path.read_text(), path.relative_to(SOURCE)
        folder = place.parts[0] if len(place.parts) > 1 else "."
        lines[folder] += code_lines(text)
        files[folder] += 1
        constants += numeric_constants(text)
    for folder, count in lines.most_common():
        print(f"{folder:14}{count:7} code lines{files[folder]:5} files")
    print(f"{'all':14}{lines.total():7} code lines{files.total():5} files")
    print(f"numeric module constants: {constants}")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 30))
    y = X[:, 0] + rng.standard_normal(60) > 0
    fits = {
        "a default fit of 60 x 30": DROClassifier(),
        "a Euclidean fit of 60 x 30 at a given delta": DROClassifier(cost="euclidean", delta=0.1),
    }
    for name, model in fits.items():
        # names that are looked up at their first use are looked up before
        model.fit(X, y)
        count, functions = ran_through(lambda model=model: model.fit(X, y))
        print(f"{name}: {count} files, {functions} functions")


if __name__ == "__main__":
    main()
