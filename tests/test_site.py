"""The site without building it: its pages, its glossary, what they cite, and the docstrings."""

import contextlib
import doctest
import importlib
import inspect
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.S | re.M)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")
REPORTS = sorted((ROOT / "experiments" / "reports").glob("*.md"))


def entries(page):
    """Return what the tables of contents of a page name."""
    lines = [line for block in TOCTREE.findall(page.read_text()) for line in block.splitlines()]
    named = [line.strip() for line in lines if line.strip() and not line.startswith(":")]
    return [re.sub(r".*<(.*)>", r"\1", name) for name in named]


def anchors(page):
    """Return the places that the headings of a page make."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_page_is_in_a_table_of_contents():
    named = {name for page in PAGES for name in entries(page)}
    assert {page.stem for page in PAGES} - {"index"} <= named


def test_tables_of_contents_name_pages_that_exist():
    # the gallery is written when the site is built
    named = {name for page in PAGES for name in entries(page)} - {"auto_examples/index"}
    assert {name for name in named if not (DOCS / f"{name}.md").exists()} == set()


@pytest.mark.parametrize("page", PAGES + REPORTS, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_links_lead_somewhere(page):
    for file, place in LINK.findall(page.read_text()):
        if file.startswith(("http", "auto_examples/")):
            continue
        target = page.parent / file
        assert target.exists(), file
        assert not place or place in anchors(target), f"{file}#{place}"


def decimals(text):
    """Return the numbers with a decimal point in a text, as they are written."""
    prose = re.sub(r"`[^`\n]*`", "", text)
    return re.findall(r"(?<![\w.])\d*\.\d+(?![\w.]*\d)", prose)


def stated():
    """Yield every part of a page (a paragraph, item or table row) that names a report."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)
        for part in re.split(r"\n(?=\* |\| |\n)", text):
            files = re.findall(r"`(?:experiments/reports/)?(\w+\.md)`", part)
            reports = [report for report in REPORTS if report.name in files]
            if reports and decimals(part):
                yield pytest.param(part, reports, id=f"{page.stem}-{part.strip()[:40]}")


@pytest.mark.parametrize(("part", "reports"), list(stated()))
def test_numbers_of_pages_are_those_of_the_reports_they_name(part, reports):
    known = {float(n) for report in reports for n in decimals(report.read_text())}
    for number in decimals(part):
        digits = len(number.partition(".")[2])
        assert any(f"{value:.{digits}f}".lstrip("0") == number.lstrip("0") for value in known), (
            number
        )


def cited(page):
    """Return the tests that a page names, as pairs of file and function."""
    return re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text())


def test_theory_and_contract_cite_tests():
    assert len(cited(DOCS / "theory.md")) > 40
    lines = (DOCS / "contract.md").read_text().splitlines()
    promises = [line for line in lines if line.startswith("| ") and "| test |" not in line]
    assert len(promises) > 20
    assert [line for line in promises if "`tests/" not in line] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_files_that_pages_name_exist(page):
    """Scripts, results and reports of the repository, written as code."""
    kinds = "experiments|benchmarks|examples|tests|docs"
    for file in re.findall(rf"`((?:{kinds})/[\w./]+\.\w+)`", page.read_text()):
        assert (ROOT / file).exists(), file


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_pages_name_tests_that_exist(page):
    for file, name in cited(page):
        text = (ROOT / file).read_text()
        assert not name or f"def {name}(" in text, f"{file}::{name}"


def test_the_theory_names_functions_that_exist():
    for path in re.findall(r"\{py:\w+\}`([\w.]+)`", (DOCS / "theory.md").read_text()):
        resolve(path)


def test_the_glossary_is_sorted_and_defines_what_it_uses():
    text = (DOCS / "glossary.md").read_text()
    terms = re.findall(r"^(\w[^\n]*)\n  \S", text, re.M)
    assert len(terms) > 40
    assert [term.lower() for term in terms] == sorted(term.lower() for term in terms)
    assert set(re.findall(r"\{term\}`([^`]+)`", text)) <= set(terms)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_pages_have_no_house_words(page):
    # what is typed or shown is not prose
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.S | re.M)
    found = re.findall(
        r"\b((?i:dear|dearer|dearest|bars|a hair|one a row|polish\w*|told)|ours)\b", text
    )
    assert found == []


def resolve(path):
    """Return the object of a dotted name; a function hides a module of its name."""
    module, _, name = path.rpartition(".")
    if module and hasattr(importlib.import_module(module), name):
        return getattr(importlib.import_module(module), name)
    return importlib.import_module(path)


def public():
    """Return the dotted names that the page of the API lists."""
    names, module = [], ""
    for line in (DOCS / "api.md").read_text().splitlines():
        if line.startswith(".. currentmodule::"):
            module = line.split()[-1]
        elif re.fullmatch(r"   \w+", line):
            names.append(f"{module}.{line.strip()}")
    return names


def test_the_api_page_lists_every_exported_name():
    modules = ["otdro", "losses", "costs", "metrics", "solvers", "radius", "plot", "report"]
    for module in [name if name == "otdro" else f"otdro.{name}" for name in modules]:
        exported = {f"{module}.{name}" for name in importlib.import_module(module).__all__}
        assert exported <= set(public()), sorted(exported - set(public()))


def described(thing):
    """Return the names that the sections of a docstring describe."""
    text = inspect.getdoc(thing) or ""
    names = set()
    for heads in re.findall(r"^([\w*][\w, *]*?)(?: : .*)?$\n(?:    \S)", text, re.M):
        names |= {name.strip(" *") for name in heads.split(",")}
    for base in re.findall(r"arameters .*as in ``(\w+)``", text):
        names |= described(
            getattr(importlib.import_module(thing.__module__.rsplit(".", 1)[0]), base)
        )
    return names


@pytest.mark.parametrize("path", public())
def test_every_parameter_is_described(path):
    thing = resolve(path)
    assert inspect.getdoc(thing)
    # fields of a class without a constructor of its own, and parameters of a function
    parameters = [p for p in inspect.signature(thing).parameters if p not in ("args", "kwargs")]
    assert set(parameters) <= described(thing), sorted(set(parameters) - described(thing))


def own_methods(kind):
    """Return the public methods of a class that otdro wrote."""
    for name, member in inspect.getmembers(kind, inspect.isroutine):
        if not name.startswith("_") and getattr(member, "__module__", "").startswith("otdro"):
            yield name, member


@pytest.mark.parametrize("path", [p for p in public() if inspect.isclass(resolve(p))])
def test_every_method_has_a_docstring(path):
    assert [name for name, member in own_methods(resolve(path)) if not member.__doc__] == []


#: Methods that a user calls; those of losses, costs and solvers are called by the library.
CALLED = r"otdro\.(DRO\w+|WorstCase|Drift)|otdro\.(radius|plot)\.\w+"
CALLED_TOO = {
    "otdro.Audit": {"accuracy", "breaking_point", "risk"},
    **{path: {"table"} for path in public() if path.startswith("otdro.costs.")},
    **{path: {"fit"} for path in public() if path.startswith("otdro.metrics.")},
}


def called():
    """Yield the public methods that a user calls, by their dotted names."""
    for path in public():
        kind = resolve(path)
        for name, member in own_methods(kind) if inspect.isclass(kind) else ():
            if re.fullmatch(CALLED, path) or name in CALLED_TOO.get(path, ()):
                yield pytest.param(member, id=f"{path}.{name}")


@pytest.mark.parametrize("method", list(called()))
def test_every_parameter_of_a_method_is_described(method):
    parameters = set(inspect.signature(method).parameters) - {"self"}
    assert parameters <= described(method), sorted(parameters - described(method))


def examples(path):
    """Return the doctests of a public object, without those of its methods."""
    thing = resolve(path)
    return doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", {}, path, None, 0)


#: What a user calls: each has an example.
WITH_EXAMPLE = [
    p for p in public() if re.fullmatch(r"otdro\.(?!Audit|Drift|Stability|Summary)\w+", p)
]


@pytest.mark.parametrize("path", WITH_EXAMPLE)
def test_what_users_call_has_an_example(path):
    assert examples(path).examples


@pytest.mark.parametrize("path", public())
def test_examples_of_docstrings_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = examples(path)
    report = io.StringIO()
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    doctest.DocTestRunner(optionflags=flags).run(found, out=report.write)
    assert report.getvalue() == ""


def test_the_start_page_shows_what_its_block_prints():
    code, shown = re.search(
        r"```python\n(.*?)```\s*```\n(.*?)```", (DOCS / "start.md").read_text(), re.S
    ).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "start.md", "exec"), {})
    # the gap is at the level of rounding: everything else must agree to the digit
    mask = re.compile(r"gap \S+")
    assert mask.sub("gap", printed.getvalue()) == mask.sub("gap", shown)


def test_broken_links_of_a_site_are_found(tmp_path):
    site = tmp_path / "html"
    site.mkdir()
    (site / "a.html").write_text('<a id="here" href="b.html#there">b</a><a href="#here">a</a>')
    (site / "b.html").write_text('<h1 id="there"></h1><a href="https://example.org">elsewhere</a>')
    command = [sys.executable, str(DOCS / "check_links.py"), str(site)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert "example.org" in (tmp_path / "external_links.txt").read_text()
    for wrong in ('<a href="c.html">', '<a href="a.html#nowhere">', '<img src="none.png">'):
        (site / "b.html").write_text(f'<h1 id="there"></h1>{wrong}')
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert "1 broken" in done.stdout


def blocks(text, language):
    """Return the blocks of a language in a page; without one they are what a command prints."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
    return [block for name, block in found if name == language]


@pytest.mark.slow
def test_the_commands_of_the_tutorial_run_and_print_what_it_shows(tmp_path):
    """The first block of Python makes the tables; then every command, in order, in one folder."""
    text = (DOCS / "tutorial.md").read_text()
    subprocess.run([sys.executable, "-c", blocks(text, "python")[0]], cwd=tmp_path, check=True)
    own = f'otdro() {{ "{sys.executable}" -m otdro "$@"; }}\nset -e\n'
    done = subprocess.run(
        ["bash", "-c", own + "\n".join(blocks(text, "sh"))],
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "stop: have the scanner checked" in done.stdout
    printed = " ".join((done.stderr + done.stdout).split())
    for line in "".join(blocks(text, "")).splitlines():
        # lines are wrapped at the width of the terminal, and plots of dashes left out
        assert line == "..." or " ".join(line.split()) in printed, line
    assert (tmp_path / "predictions.csv").read_text().startswith("patient_id,prediction")
    assert (tmp_path / "audit.html").exists()


@pytest.mark.slow
def test_the_demonstration_prints_the_gains_that_pages_state():
    done = subprocess.run(
        [sys.executable, "-m", "otdro", "demo"], capture_output=True, text=True, check=True
    )
    printed = " ".join(done.stdout.split())
    gains = re.findall(r"minus that of the learned one: \+?(-?[\d.]+ ± [\d.]+)\)", printed)
    difference, error = re.search(r"L2 \S+ ± \S+ \+(\S+) ± (\S+)", printed).groups()
    gains.append(f"{float(difference):.3f} ± {float(error):.3f}")
    assert [gain for gain in gains if gain not in (DOCS / "cli.md").read_text()] == []
    when = (DOCS / "when.md").read_text()
    assert [gain for gain in gains[::2] if gain.replace("0.", ".") not in when] == []
