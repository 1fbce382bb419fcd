"""Mutation testing: what share of small faults in the mathematics do the tests notice?

    make mutate                     # 300 mutants of seed 0
    make mutate MUTANTS=50 SEED=1

Cosmic Ray makes the mutants: an operator, a number or a condition of the modules in ``MODULES`` is
replaced. A first run of the suite records which test runs which line; each mutant is then tested,
in a copy of the tree, by the tests that run its line, the shortest first. A mutant is killed if one
of them fails or does not end. What survives is listed with its line in ``.mutate/survivors.txt``.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from queue import Queue

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from coverage import CoverageData

ROOT = Path(__file__).parent.parent
WORK = ROOT / ".mutate"
#: The tree as it was when the suite was recorded: mutants are made of this one.
RECORDED = WORK / "recorded"
#: Losses, costs, duality, the engine, the rule for delta, and the certificate of an audit.
MODULES = (
    "losses/*.py",
    "costs/*.py",
    "duality.py",
    "solvers/*.py",
    "solvers/*/*.py",
    "radius/rules.py",
    "inspection/certificate.py",
)
#: Faults that a person makes. Replacements that end in a TypeError are left out: any test kills
#: them.
OPERATORS = (
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Div_Mul",
    "ReplaceBinaryOperator_Pow_Mul",
    "ReplaceBinaryOperator_BitAnd_BitOr",
    "ReplaceBinaryOperator_BitOr_BitAnd",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Lt_Gt",
    "ReplaceComparisonOperator_Gt_Lt",
    "ReplaceComparisonOperator_LtE_GtE",
    "ReplaceComparisonOperator_GtE_LtE",
    "ReplaceUnaryOperator_Delete_USub",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_Invert",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "NumberReplacer",
    "ZeroIterationForLoop",
)
#: Mutants that no test can notice: module, operator and line, with the reason.
EQUIVALENT = {
    (
        "solvers/euclidean/newton.py",
        "ReplaceComparisonOperator_Gt_Lt",
        "if len(problems) > 1 and not self._together(problems):",
    ): "problems are solved one by one or together: only the time differs",
    (
        "solvers/streamed/order_two.py",
        "NumberReplacer",
        "descents.append(descent[0])",
    ): "a batch of one problem: its first entry is its last",
    (
        "solvers/conic/interior.py",
        "ReplaceUnaryOperator_Delete_USub",
        "signs = np.random.default_rng(0).choice([-1.0, 1.0], (2, d))",
    ): "probes of unusual rows, whose scale is a choice of units: the solution is certified in any",
    (
        "solvers/labels.py",
        "NumberReplacer",
        "PROGRESS = 0.9",
    ): "when a search without progress ends: a budget of time",
}
#: Seconds of tests, by their recorded times, that a mutant is tested with at most.
BUDGET = 30.0
#: A test run that takes this many times its recorded time does not end.
PATIENCE = 10.0
#: Seconds that starting pytest takes at most.
START = 60.0


def exported(folder):
    """Copy the files of the repository to a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in listed.stdout.decode().splitlines():
        if (ROOT / name).is_file() and not name.startswith("benchmarks/results"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def environment(folder):
    """Return the environment in which the tests of a copy import its package."""
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {
        **os.environ,
        **single,
        "PYTHONPATH": str(folder / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def record(workers, tests):
    """Run the suite once; write which test runs which line, and how long each test takes."""
    folder = exported(RECORDED)
    settings = WORK / "coveragerc"
    settings.write_text(f"[run]\nsource = {folder / 'src' / 'otdro'}\n")
    command = [sys.executable, "-m", "pytest", "-n", str(workers), "--dist", "loadfile"]
    command += ["-m", "not slow and not package", "--cov", "--cov-context=test"]
    command += [f"--cov-config={settings}", "--cov-report=", f"--junitxml={WORK / 'times.xml'}"]
    env = {**environment(folder), "COVERAGE_FILE": str(WORK / "coverage")}
    subprocess.run([*command, *tests], cwd=folder, env=env, check=False)


def recorded_times():
    """Return the seconds of every test by its name as coverage has it."""
    times = {}
    for case in ElementTree.parse(WORK / "times.xml").iter("testcase"):
        parts = case.get("classname").split(".")
        # tests.test_x.TestY: the module is the first part that begins with test_
        place = next(i for i, part in enumerate(parts) if part.startswith("test_")) + 1
        names = ["/".join(parts[:place]) + ".py", *parts[place:], case.get("name")]
        # a skipped or failing test proves nothing
        if len(case) == 0:
            times["::".join(names)] = float(case.get("time"))
    return times


def statements(tree):
    """Return, for every line, the lines of the innermost statement (or its head) it belongs to."""
    lines = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            for line in range(node.lineno, max(node.lineno, last) + 1):
                span = range(node.lineno, max(node.lineno, last) + 1)
                if line not in lines or len(span) < len(lines[line]):
                    lines[line] = span
    return lines


def silent_places(tree):
    """Return the lines of annotations, where a mutant is no other program."""
    places = set()
    for node in ast.walk(tree):
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if part is not None:
                places |= {
                    (line, column)
                    for line in range(part.lineno, part.end_lineno + 1)
                    for column in range(part.col_offset, part.end_col_offset + 1)
                }
    return places


def mutants(path):
    """Yield the mutants of a module: operator, its occurrence and the line."""
    text = path.read_text()
    silent = silent_places(ast.parse(text))
    tree = get_ast(text)
    for name in OPERATORS:
        operator = get_operator(f"core/{name}")()
        places = (place for node in ast_nodes(tree) for place in operator.mutation_positions(node))
        for occurrence, (start, _) in enumerate(places):
            if start not in silent:
                yield name, occurrence, start[0]


def chosen_tests(contexts, times):
    """Return tests of a line, the shortest of each file first, and their time."""
    by_file = {}
    for test in sorted(contexts, key=lambda test: times.get(test, 0.0)):
        if test in times:
            by_file.setdefault(test.split("::")[0], []).append(test)
    tests, total = [], 0.0
    for turn in zip_longest(*by_file.values()):
        for test in turn:
            if test is not None and total + times[test] <= BUDGET:
                tests.append(test)
                total += times[test]
    return tests, total


def tried(mutant, folder, times, contexts):
    """Return what became of a mutant: killed, endless, survived, or not run by any test."""
    module, name, occurrence, line = mutant
    tests, total = chosen_tests(contexts[module][line], times)
    if not tests:
        return "not run", 0
    target = folder / module
    original = target.read_text()
    target.write_text(mutate_code(original, get_operator(f"core/{name}")(), occurrence))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    limit = START + PATIENCE * total
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment(folder), capture_output=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return "endless", len(tests)
    finally:
        target.write_text(original)
    return "survived" if ended.returncode == 0 else "killed", len(tests)


def main():
    """Test a sample of mutants and print the share that is killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="use the coverage of the last run")
    parser.add_argument("tests", nargs="*", help="record these only, all by default")
    asked = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    if not asked.keep:
        record(asked.workers, asked.tests)
    times = recorded_times()
    data = CoverageData(str(WORK / "coverage"))
    data.read()
    measured = {Path(file).as_posix().split("/src/", 1)[-1]: file for file in data.measured_files()}
    every, contexts = [], {}
    for pattern in MODULES:
        for path in sorted((RECORDED / "src/otdro").glob(pattern)):
            module = path.relative_to(RECORDED).as_posix()
            file = measured.get(module.removeprefix("src/"))
            by_line = data.contexts_by_lineno(file) if file else {}
            spans = statements(ast.parse(path.read_text()))
            by_line = {
                line: {name.split("|")[0] for name in names} for line, names in by_line.items()
            }
            anywhere = set().union(*by_line.values()) - {""}
            contexts[module] = {}
            for line, span in spans.items():
                tests = set().union(*(by_line.get(each, set()) for each in span))
                # what runs when the module is imported counts for every test of the module
                contexts[module][line] = tests - {""} or (anywhere if tests else set())
            every += [(module, *mutant) for mutant in mutants(path) if mutant[2] in spans]
    sample = random.Random(asked.seed).sample(every, min(asked.mutants, len(every)))
    print(f"{len(sample)} of {len(every)} mutants", flush=True)
    folders = Queue()
    for k in range(asked.workers):
        copy = WORK / f"copy{k}"
        folders.put(Path(shutil.copytree(RECORDED, copy, dirs_exist_ok=True)))

    def run(mutant):
        folder = folders.get()
        try:
            fate, count = tried(mutant, folder, times, contexts)
        finally:
            folders.put(folder)
        module, name, _, line = mutant
        text = (RECORDED / module).read_text().splitlines()[line - 1].strip()
        print(f"{fate:9} {module}:{line} {name} ({count} tests): {text}", flush=True)
        reason = EQUIVALENT.get((module.removeprefix("src/otdro/"), name, text))
        return fate, f"{module}:{line} {name}: {text}", reason

    with ThreadPoolExecutor(asked.workers) as pool:
        results = list(pool.map(run, sample))
    counts = {fate: sum(each == fate for each, _, _ in results) for fate, _, _ in results}
    alive = [(line, known) for fate, line, known in results if fate in ("survived", "not run")]
    lines = [line if reason is None else f"{line} # {reason}" for line, reason in alive]
    (WORK / "survivors.txt").write_text("\n".join(lines) + "\n")
    share = 1 - len(alive) / max(1, len(results))
    missed = sum(reason is None for _, reason in alive)
    killable = max(1, len(results) - len(alive) + missed)
    print(f"{counts}: {share:.1%} killed; survivors in {WORK / 'survivors.txt'}")
    print(f"{1 - missed / killable:.1%} of those that a test can notice")


if __name__ == "__main__":
    main()
