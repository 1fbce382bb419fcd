"""The tables of experiments/reports are those of the rows on disk."""

import json
import re
from pathlib import Path

import contamination
import cost_value
import mix
import pytest
import theory_coverage

EXPERIMENTS = Path(__file__).parent.parent / "experiments"
RESULTS = EXPERIMENTS / "results"


def report(name):
    return (EXPERIMENTS / "reports" / f"{name}.md").read_text()


def rows(file):
    return [json.loads(line) for line in (RESULTS / file).read_text().splitlines()]


def cells(line):
    """Return the cells of a row of a table."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def body(page):
    """Return the rows of the first table of a page, without its head."""
    return [line for line in page.splitlines() if line.startswith("| ")][1:]


@pytest.mark.parametrize(
    ("file", "left_out"),
    [
        ("cost_value_report_3.jsonl", ("splits", "learned/true")),
        ("cost_value_report_regression_3.jsonl", ("splits", "learned/true", "accuracy - L2's")),
    ],
)
def test_the_value_of_a_learned_cost_is_that_of_the_rows(file, left_out):
    page = cost_value.page(rows(file))
    kept = [k for k, name in enumerate(cells(page.splitlines()[0])) if name not in left_out]
    shown = [cells(line) for line in body(report("cost_value"))]
    for line in body(page):
        assert [cells(line)[k] for k in kept] in shown
    # "mean over the 11 sets 1.0034, median 1.0004, largest ..."
    mean, median = re.search(r"sets ([\d.]+), median ([\d.]+),", page).groups()
    assert mean.lstrip("0") in report("cost_value")
    assert median.lstrip("0") in report("cost_value")


def test_ratios_of_mixtures_are_those_of_the_rows():
    assert set(mix.report().splitlines()) <= set(report("mix").splitlines())


def test_accuracies_with_bad_rows_are_those_of_the_rows():
    page = contamination.page(rows("contamination.jsonl"))
    assert set(body(page)) <= set(report("contamination").splitlines())
    assert "in 7 of 1872 comparisons" in page
    assert "in 7 of 1,872 comparisons" in report("contamination")


@pytest.mark.parametrize("file", ["classes.md", "labels.md"])
def test_classes_and_labels_are_those_of_the_tables(file):
    assert (RESULTS / file).read_text().strip() in report("classes_and_labels")


@pytest.mark.parametrize(
    ("shown", "method", "file"),
    [
        ("**otdro**", "ours", "table1_blend_4.txt"),
        ("otdro-u", "ours-u", "table1_blend_4.txt"),
        ("otdro-r", "ours-r", "table1_blend_4.txt"),
        ("L2 + asinh", "L2+asinh", "table1_blend_4.txt"),
        ("LRL1", "LRL1", "table1.txt"),
        ("L2, tuned", "L2", "table1.txt"),
        ("W (Euclidean)", "W", "table1.txt"),
        ("DRO-L", "DRO-L", "table1.txt"),
        ("DRO-NL", "DRO-NL", "table1.txt"),
        ("W + asinh", "W+asinh", "table1.txt"),
    ],
)
def test_table_1_is_that_of_the_run(shown, method, file):
    """Cells such as ".139 .949" are the means of log-loss and accuracy over the splits."""
    row = next(line for line in report("table1").splitlines() if line.startswith(f"| {shown} |"))
    printed = [line for line in (RESULTS / file).read_text().splitlines() if "±" in line]
    lines = [line for line in printed if line.split()[0] == method]
    for k in (0, 1):
        means = re.findall(r"(\.\d+)±", lines[k])
        assert [cell.split()[k] for cell in cells(row)[1:]] == means


def test_the_coverage_report_has_the_form_that_its_script_writes():
    table = [cells(line) for line in body(report("coverage"))]
    shares = [(model, cost, int(n), float(a), float(b)) for model, cost, n, a, b in table]
    assert theory_coverage.page(shares, 500) == report("coverage")
