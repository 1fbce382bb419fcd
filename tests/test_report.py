"""The page as a file: what it says, what it refuses, and that names are only text."""

import base64
import hashlib
import html.parser
import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from commands import FAST, call, refused
from otdro import (
    DROClassifier,
    DRORegressor,
    MixClassifier,
    MixRegressor,
    audit,
    report,
    stability,
)
from otdro.costs import Norm
from otdro.inspection.summary import share_in_words
from otdro.report.pictures import number, plain, ticks

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"quoted\" 'twice' & {{css}}",
    "\u05e9\u05dc\u05d5\u05dd \u202eright to left",
    "n" * 10_000,
    "bell\x07 \x00 and \ud800 half",
]


def rows(n=60, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.where(X[:, 0] - 0.3 + 0.7 * rng.standard_normal(n) > 0, "yes", "no")


@pytest.fixture(scope="module")
def fitted():
    X, y = rows(120)
    model = DROClassifier(cost="euclidean", order=1, delta="cv", cv=3).fit(X, y)
    return model, audit(model, X, y)


@pytest.fixture(scope="module")
def page(fitted):
    model, found = fitted
    return report.render(found, model=model, title="A fit")


def data(text):
    """Return what the page hands to its script."""
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


class Tags(html.parser.HTMLParser):
    """The tags of a page, and the texts of elements by their id."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.texts = [], [], [], {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        self.open = [value for name, value in attrs if name == "id"]

    def handle_data(self, text):
        for name in self.open:
            self.texts[name] = text
        self.open = []


def test_sections_come_in_order(page):
    heads = re.findall(r"<h2[^>]*>([^<]*)</h2>", page)
    assert heads == [
        "How good, compared with what",
        "How far from breaking, and through which rows and columns",
        "What the cost learned",
        "What drifted",
        "What to do next",
    ]


def test_figures_are_those_of_the_estimator_and_the_audit(fitted, page):
    model, found = fitted
    shown = Tags(page).texts
    assert shown["at-delta"] == number(model.delta_)
    assert shown["at-accuracy"] == share_in_words(found.accuracy(model.delta_))
    assert shown["at-risk"] == number(model.robust_risk_)
    assert f'<td class="n">{number(model.empirical_risk_)}</td>' in page


def test_every_stop_is_what_python_computes(fitted, page):
    _, found = fitted
    given = data(page)
    assert_allclose(given["deltas"], sorted(given["deltas"]))
    for delta, texts in zip(given["deltas"], given["texts"], strict=True):
        assert texts["accuracy"] == share_in_words(found.accuracy(delta))
        assert texts["risk"] == number(found.risk(delta))
        # rows that were wrong before are not made wrong
        wrong = np.count_nonzero((found.moved(delta) > 0) & (found.distance > 0))
        assert texts["wrong"] == f"{wrong} of 120"
        assert texts["chance"] == share_in_words(found.chance_accuracy(delta))
    assert given["texts"][0]["wrong"] == "0 of 120"
    already = np.count_nonzero(found.distance == 0)
    assert f"wrong without any move: {already}." in page


def test_moved_shares_are_those_of_the_audit(fitted, page):
    _, found = fitted
    given = data(page)
    before, spend = np.array(given["budget"], float), np.array(given["spend"], float)
    for delta in given["deltas"]:
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(spend == 0, 1.0, np.clip((delta - before) / spend, 0, 1))
        expected = found.moved(delta) / found.weights
        assert_allclose(np.nan_to_num(share), expected[given["rows"]], atol=1e-5)


def test_the_page_asks_for_nothing_from_elsewhere(page):
    assert "default-src 'none'" in page
    script = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in page
    assert re.findall(r'(?:src|href)="(?!#|data:)', page) == []
    assert "@import" not in page
    assert "url(http" not in page


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_hostile_names_are_text(task):
    X, y = rows(40, len(HOSTILE))
    if task == "classification":
        labels = np.where(y == "yes", *HOSTILE[:2])
        groups = np.resize(HOSTILE[:3], 40)
        found = audit(LogisticRegression().fit(X, labels), X, labels, groups=groups)
    else:
        found = audit(Ridge().fit(X, X[:, 0]), X, X[:, 0] + 0.1 * X[:, 1] ** 2)
    found = replace(found, model=replace(found.model, names=HOSTILE))
    text = report.render(found, title=HOSTILE[0], notes=HOSTILE)
    tags = Tags(text)
    assert tags.tags.count("script") == 2
    assert "img" not in tags.tags
    assert not [name for name in tags.attributes if name.startswith("on")]
    assert "n" * 1000 not in text
    assert "\x07" not in text
    assert "\x00" not in text
    assert len(text.encode("utf-8", errors="strict")) < 1e6


def test_large_data_is_sampled_and_says_so():
    X, y = rows(3000, 4)
    found = audit(LogisticRegression().fit(X, y), X, y)
    text = report.render(found)
    drawn = data(text)["rows"]
    assert len(drawn) == len(set(drawn)) == 600
    price = np.where(found.price > 0, found.price, np.inf)
    assert set(np.argsort(price, kind="stable")[:40].tolist()) <= set(drawn)
    assert "600 of 3,000 rows are drawn" in text


def test_several_classes_groups_and_a_pipeline():
    X, _ = rows(90)
    y = np.digitize(X[:, 0] + 0.5 * X[:, 1], [-0.5, 0.5])
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    text = report.render(audit(model, X, y, groups=np.resize(["a", "b"], 90)), model=model)
    assert "<bdi>group b</bdi>" in text
    assert 'class="no-fitted"' in text
    assert data(text)["own"]["slopes"][2]


@pytest.mark.parametrize(
    "case", ["one column", "two columns", "constant", "all wrong", "l1", "order 2", "float32"]
)
def test_odd_cases_have_a_page(case):
    X, y = rows(50, {"one column": 1, "two columns": 2}.get(case, 3))
    options = {"cost": Norm(1)} if case == "l1" else {"order": 2} if case == "order 2" else {}
    model = LogisticRegression().fit(X, y)
    if case == "constant":
        model.coef_[:] = 0
    if case == "all wrong":
        model.coef_ *= -1
        model.intercept_ *= -1
    if case == "float32":
        X = X.astype(np.float32)
    text = report.render(audit(model, X, y, **options))
    assert "NaN" not in text
    assert data(text)["deltas"][0] == 0


def test_regression_says_what_is_right():
    X, _ = rows()
    y = X[:, 0] + 0.3 * X[:, 1] ** 2
    model = DRORegressor(cost="euclidean", delta=0.05).fit(X, y)
    text = report.render(audit(model, X, y, tau=0.5), model=model)
    assert "within 0.5 of the target" in text
    assert data(text)["own"] is None
    # no boundary is drawn, and none is spoken of where it is hidden
    assert '<span class="boundary-only">With more than two columns the boundary is drawn' in text


def test_drift_is_told():
    X, y = rows(80)
    model = DROClassifier(cost="euclidean", delta=0.05).fit(X, y)
    found = audit(model, X, y, new=(X[:40] + np.array([3.0, 0, 0]), y[:40]))
    text = report.render(found, model=model)
    assert f"Outside: {found.drift.reason}" in text
    assert f"{found.drift.estimate:.4g} (80 and 40 rows)" in text
    assert "Columns, the farthest moved first" in text


def test_a_report_that_fails_leaves_no_file(fitted, tmp_path, monkeypatch):
    model, found = fitted
    file = tmp_path / "page.html"
    file.write_text("the page of yesterday")

    def fail(*_):
        raise RuntimeError("half-way")

    with monkeypatch.context() as patch:
        patch.setattr("otdro.report.page.listed", fail)
        with pytest.raises(RuntimeError, match="half-way"):
            report.write(file, found, model=model)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(RuntimeError, match="half-way"):
            report.write(file, found, model=model)
    assert file.read_text() == "the page of yesterday"
    assert os.listdir(tmp_path) == ["page.html"]
    assert report.write(file, found) == file
    assert file.read_text().startswith("<!doctype html>")


def test_what_is_no_audit_is_refused(tmp_path):
    with pytest.raises(TypeError, match="a report is of an Audit, got LogisticRegression"):
        report.write(tmp_path / "page.html", LogisticRegression())
    assert os.listdir(tmp_path) == []


def test_the_same_audit_gives_the_same_page(fitted, page):
    model, found = fitted
    assert report.render(found, model=model, title="A fit") == page


def test_boundary_lines_are_where_the_largest_scores_are_equal():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((80, 2))
    y = np.arctan2(*X.T).round() % 4
    model = LogisticRegression().fit(X, y)
    text = report.render(audit(model, X, y))
    drawn = re.search(r'<g id="own-lines">(.*?)</g>', text)[1]
    numbers = [float(v) for v in re.findall(r'[xy][12]="([^"]*)"', drawn)]
    assert len(numbers) >= 8
    given = data(text)
    left, top, width, height = given["frame"]
    columns = [axis["across"].strip("\u2068\u2069") for axis in given["axes"]]
    across, up = (given["axes"][columns.index(name)] for name in ("x0", "x1"))
    ends = np.reshape(numbers, (-1, 2))
    x = across["low"] + (ends[:, 0] - left) / width * (across["high"] - across["low"])
    z = up["high"] - (ends[:, 1] - top) / height * (up["high"] - up["low"])
    scores = np.sort(model.decision_function(np.column_stack([x, z])), axis=1)
    assert_allclose(scores[:, -1], scores[:, -2], atol=1e-3)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.2, 7.7), (1e-6, 2e-6), (990, 1010)])
def test_ticks_are_round_and_inside(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 7
    assert low <= found[0] < found[-1] <= high
    assert 0 not in np.diff(found)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        (35.04, "35.04"),
        (999.96, "1,000"),
        (-1224.6, "−1,225"),
        (28714.0, "28,710"),
        (-1.5, "−1.5"),
        (np.inf, "∞"),
        (np.nan, "–"),
    ],
)
def test_numbers_have_the_digits_of_print(value, text):
    assert number(value) == text


def test_plain_text_is_short_and_visible():
    assert plain("a\nb\x01") == "a b\ufffd"
    assert len(plain("n" * 100)) == 40


def test_the_module_is_there_after_import_otdro():
    code = "import otdro; print(otdro.report.write.__name__, otdro.plot.BallDisplay.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["write", "BallDisplay"]


def test_commands_write_the_page(here, table, capsys):
    table.to_csv("rows.csv", index=False)
    fit = ("fit", "rows.csv", "--target", "y", "--save", "m.skops", "--report", "fit.html", *FAST)
    code, out, _ = call(capsys, *fit)
    assert code == 0
    assert "fit.html" in out
    text = (here / "fit.html").read_text()
    assert "y from rows.csv" in text
    assert "The training rows</p>" in text
    command = ("audit", "m.skops", "rows.csv", "--target", "y", "--report", "audit.html", "-q")
    assert call(capsys, *command)[0] == 0
    text = html.unescape((here / "audit.html").read_text())
    assert "m.skops on rows.csv" in text
    assert "Guard it before deployment" in text
    # what is required stands at the top, and the page has the advice that is printed
    command = (*command[:-1], "--require-accuracy", "0.6", "--at-delta", "100")
    code, out, _ = call(capsys, *command, "--json")
    assert code == 3
    told, text = json.loads(out), html.unescape((here / "audit.html").read_text())
    lead = '<div class="lead"><ul><li>NOT MET: accuracy at delta = 100 >= 0.6, found '
    assert lead in text
    advice = text[text.index("What to do next</h2>") :]
    assert re.findall("<li>(.*?)</li>", advice)[: len(told["advice"])] == told["advice"]
    assert "Guard it before deployment" not in text


def test_the_page_opens_with_the_verdict_that_the_command_prints(here, capsys):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.standard_normal((60, 6)), columns=list("abcdef"))
    rows["y"] = np.where(rng.random(60) < 0.5, "yes", "no")
    rows.to_csv("rows.csv", index=False)
    fit = ("fit", "rows.csv", "--target", "y", "--delta", "0.01", "--report", "fit.html", "--json")
    code, out, _ = call(capsys, *fit)
    assert code == 0
    told = json.loads(out)
    assert "than a model that sees no column" in told["verdict"]
    text = (here / "fit.html").read_text()
    top = text[text.index('<div class="lead">') : text.index("<nav")]
    assert top.startswith(f'<div class="lead"><p class="verdict">{told["verdict"]}</p>')
    assert "Each held-out row was predicted by models fitted without it (five folds" in top
    lines = {"otdro": "otdro", "L2": "L2", "L1": "L1", "a constant": "a constant"}
    for words, method in lines.items():
        [score] = [
            score
            for score in told["comparison"]
            if (score["method"], score["measure"]) == (method, "accuracy")
        ]
        line = re.search(rf'<th scope="row"><bdi>{words}</bdi></th>(.*?)</tr>', top)[1]
        assert f"{number(score['mean'])} ± {score['se']:.2g}" in line
    # the figures of the training rows stand apart
    assert top.index("Held-out rows") < top.index("The training rows</p>")
    assert "<td>60, 6 (the columns in front of the last step)</td>" in top


def test_tables_of_a_page_say_what_they_count_and_compare(here, capsys):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.standard_normal((60, 2)), columns=["a", "b"])
    rows["city"] = rng.choice(["Leeds", "York", "Hull"], 60)
    rows["y"] = np.where(rows["a"] + rng.standard_normal(60) > 0, "yes", "no")
    rows.to_csv("rows.csv", index=False)
    fit = ("fit", "rows.csv", "--target", "y", "--save", "m.skops", "--report", "fit.html")
    code, out, _ = call(capsys, *fit, "--json")
    assert code == 0
    told, text = json.loads(out), (here / "fit.html").read_text()
    # the columns of the table and those of the model
    assert (told["columns"], told["features"]) == (3, 5)
    assert "60, 5 (the columns in front of the last step, made of 3 of the table)" in text
    # every table of held-out rows says of which models
    titles = re.findall(r'aria-label="(Held-out rows[^"]*)"><thead>', text)
    assert titles[:2] == [
        "Held-out rows: this model beside others",
        "Held-out rows: this model alone",
    ]
    assert len(set(titles)) == len(titles)
    assert "chose their settings without it too" in text
    assert "than those of a comparison with other models, which sets both anew" in text
    # the rows that the command prints are the first of the page
    first = re.findall(r'data-row="\d+">([^<]*)</button>', text)
    printed = [line["row"] for line in told["attack"]["rows"]]
    assert first[: len(printed)] == printed
    assert "mean loss rises most" not in text
    # a page of otdro audit has other rows than those that otdro fit printed
    assert "otdro fit prints" not in text


def test_page_and_print_round_shares_by_one_rule():
    X, y = rows(160)
    # 94 of 160 rows are 58.75%, of which print says 58.8%
    model = LogisticRegression().fit(X, y)
    wrong = np.flatnonzero(model.predict(X) == y)[:-94]
    y[wrong] = np.where(y[wrong] == "yes", "no", "yes")
    y[model.predict(X) != y] = np.where(model.predict(X) == "yes", "no", "yes")[
        model.predict(X) != y
    ]
    found = audit(model, X, y)
    assert found.accuracy(0) == pytest.approx(94 / 160)
    text = report.render(found)
    assert data(text)["texts"][0]["accuracy"] == "58.8%"
    assert "right: 58.8%" in str(found)


@pytest.mark.parametrize("scoring", [None, "accuracy"])
def test_fold_scores_are_explained(scoring):
    X, y = rows(60)
    model = DROClassifier(scoring=scoring).fit(X, y)
    text = html.unescape(report.render(audit(model, X, y), model=model))
    note = text[text.index("Fold score: ") :]
    note = note[: note.index("</p>")]
    assert "higher is better" in note
    assert ("minus the mean loss of held-out rows" in note) == (scoring is None)
    assert ("Rule 'auto' compares costs by the smoothed loss" in note) == (scoring is None)
    assert ("averages the other costs" in note) == hasattr(model.cost_, "weights_")


@pytest.mark.parametrize("deltas", [[0.0, 0.1, 0.2], [0.0, 0.1]])
def test_a_path_from_delta_zero_has_a_chart_of_numbers(deltas):
    X, y = rows(60)
    model = DROClassifier(cost="euclidean", deltas=deltas).fit(X, y)
    text = report.render(audit(model, X, y), model=model)
    assert not re.search(r'(?:d|x1|y1|x|y)="[^"]*nan', text)
    assert ("Losses along the path" in text) == (len(deltas) > 2)


@pytest.mark.parametrize("kind", ["two classes", "three classes", "regression"])
def test_the_page_has_the_coefficients(kind):
    X, _ = rows(90)
    z = X @ [2.0, 0.0, -1.0] + 0.3 * X[:, 1] ** 2
    y = {"two classes": z > 0, "three classes": np.digitize(z, [-1, 1]), "regression": z}[kind]
    model = (Ridge() if kind == "regression" else LogisticRegression()).fit(X, y)
    text = report.render(audit(model, X, y), model=model)
    coef = np.atleast_2d(model.coef_)
    order = np.argsort(-np.abs(coef).max(axis=0))
    body = "".join(
        f'<tr><th scope="row"><bdi>x{j}</bdi></th>'
        + "".join(f'<td class="n">{number(v)}</td>' for v in coef[:, j])
        + "</tr>"
        for j in order
    )
    assert body in text
    assert "Coefficients, largest first" in text
    assert ("above 0: towards \u2068True\u2069" in text) == (kind == "two classes")


@pytest.mark.constant_model("the larger delta is beyond the slider's own range")
@pytest.mark.parametrize("delta", [0.002, 0.8])
def test_the_slider_covers_and_marks_the_fitted_delta(delta):
    X, y = rows(60)
    model = DROClassifier(cost="euclidean", order=2, delta=delta).fit(X, y)
    found = audit(model, X, y)
    text = report.render(found, model=model)
    given = data(text)
    place = given["deltas"].index(delta)
    assert re.search(rf'id="delta"[^>]* value="{place}" data-fitted="{place}"', text)
    assert f'style="--at:{place / (len(given["deltas"]) - 1):.4f}"' in text
    assert given["texts"][place]["words"].endswith(", the delta of the fit")
    assert sum("the delta of the fit" in texts["words"] for texts in given["texts"]) == 1
    assert 'class="no-fitted"' not in text


def test_rows_have_the_names_that_are_given():
    X, y = rows(40)
    found = audit(LogisticRegression().fit(X, y), X, y)
    names = [f"<{k + 2}>" for k in range(40)]
    text = report.render(found, row_names=names)
    assert [says.split(",")[0] for says in data(text)["says"]] == [f"Row {name}" for name in names]
    k = int(np.argmin(np.where(found.distance > 0, found.distance, np.inf)))
    assert f'data-row="{k}">&lt;{k + 2}&gt;</button>' in text
    assert "counted from 0" not in text
    with pytest.raises(ValueError, match="row_names has 3 entries for 40 rows"):
        report.render(found, row_names=names[:3])


def test_the_page_has_the_advice_of_the_audit(fitted, page):
    _, found = fitted
    section = page[page.index('<section id="next"') :]
    items = [html.unescape(item) for item in re.findall(r"<li>(.*?)</li>", section)]
    assert items[: len(found.advice)] == found.advice


def test_adversary_and_chance_stand_together(fitted, page):
    _, found = fitted
    delta = found.breaking_point("constant")
    top = page[page.index('<div class="lead">') : page.index("<nav")]
    assert f"delta = {delta:.4g}, " in top
    assert "by an adversary that aims at the boundary" in top
    assert f"leaves {found.chance_accuracy(delta):.1%} right" in top


def test_commands_refuse_a_place_that_cannot_be_written(here, table, capsys):
    table.to_csv("rows.csv", index=False)
    fit = ("fit", "rows.csv", "--target", "y", "--report", "nowhere/fit.html", *FAST)
    assert "no folder nowhere" in refused(capsys, *fit)
    assert sorted(path.name for path in here.iterdir()) == ["rows.csv"]


def test_rows_whose_label_is_changed_stay_where_they_are():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(40) > 0, "yes", "no")
    model = DROClassifier(cost="euclidean", delta=0.05, label_cost=0.4).fit(X, y)
    found = audit(model, X, y)
    text = report.render(found, model=model)
    given = data(text)
    before, after = np.array(given["before"]), np.array(given["after"])
    changed = found.relabelled
    assert changed.any()
    np.testing.assert_array_equal(before[:, changed], after[:, changed])
    moved = ~changed & (found.distance > 0)
    assert (before[:, moved] != after[:, moved]).any(axis=0).all()
    k = int(np.flatnonzero(changed)[0])
    assert "its label is changed above delta" in given["says"][k]


def test_rows_whose_target_moves_go_a_part_of_the_way():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(30)
    ball = {"cost": "euclidean", "order": 2, "delta": 0.01}
    model = DRORegressor(**ball, target_cost=2.0).fit(X, y)
    found = audit(model, X, y, tau=0.5)
    w = float(np.linalg.norm(model.coef_))
    np.testing.assert_allclose(found.part_moved, w**2 / (w**2 + 0.5))
    given = data(report.render(found))
    columns = [axis["across"].strip("\u2068\u2069") for axis in given["axes"]]
    for j, name in enumerate(["x0", "x1"]):
        k = columns.index(name)
        moved = np.array(given["after"][k]) - np.array(given["before"][k])
        way = found.part_moved * (found.counterfactuals - X)[:, j]
        np.testing.assert_allclose(moved, way, atol=1e-4)


def test_held_out_rows_have_measures_confusion_calibration_and_roc(fitted, page):
    model, _ = fitted
    measures = model.summary(refits=0).measures
    start = page.index("<h3>Held-out rows: this model alone</h3>")
    section = page[start : page.index('<section id="breaking"')]
    assert "120 training rows, each predicted by models fitted without it" in section
    assert "the folds that chose delta and the cost" in section
    for key in ("log-loss", "accuracy", "AUC", "calibration slope"):
        assert (
            f'<th scope="row"><bdi>{key}</bdi></th><td class="n">{number(measures[key])}</td>'
            in section
        )
    right = re.findall(r'<td class="n">([\d.,]+)</td>', section.split("predicted (columns)")[-1])
    table = np.array([float(v) for v in right[:4]]).reshape(2, 2)
    assert np.trace(table) / table.sum() == pytest.approx(measures["accuracy"], abs=0.01)
    assert f"area {number(measures['AUC'])}" in section
    assert "predicted probability of \u2068yes\u2069" in section


def test_held_out_rows_of_targets_and_of_a_model_without_rows():
    X, _ = rows()
    y = X[:, 0] + 0.1 * X[:, 1]
    model = DRORegressor(cost="euclidean", delta=0.01).fit(X, y)
    text = report.render(audit(model, X, y), model=model)
    assert "RMSE" in text
    assert "folds at the fitted cost and delta" in text
    assert "ROC curve" not in text
    other = Ridge().fit(X, y)
    assert "<h3>Held-out rows" not in report.render(audit(other, X, y), model=other)


def test_stability_is_shown_where_it_was_computed(fitted, page):
    model, found = fitted
    X, y = rows(120)
    result = stability(model, X, y, refits=10)
    text = report.render(found, model=model, stability=result)
    assert "<h3>Stability</h3>" in text
    assert f"{result.flips:.1%}" in text
    ranges = re.search(r'<path class="curve ranges" d="([^"]*)"', text)[1]
    assert ranges.count("M") == 120
    assert "<h3>Stability</h3>" not in page


@pytest.mark.parametrize("kind", ["two classes", "three classes", "regression"])
def test_averages_have_audit_drift_and_page(kind):
    X, y = rows(90)
    if kind == "three classes":
        y = np.resize(["a", "b", "c"], 90)
        X[:, 1] += np.resize([0, 1, 2], 90)
    if kind == "regression":
        y = X[:, 0] + 0.1 * X[:, 1]
    mixed = MixRegressor if kind == "regression" else MixClassifier
    single = DRORegressor if kind == "regression" else DROClassifier
    model = mixed([single(cost="euclidean"), single(cost="euclidean", delta=0.01)]).fit(X, y)
    found = audit(model, X, y, new=(X[:30] + 0.1, y[:30]))
    assert found.fitted_delta == model.delta_
    text = report.render(found, model=model)
    assert '<section id="breaking"' in text
    assert f"<td>{model.delta_:.4g}, {found.in_words(model.delta_)}: " in text


def test_a_category_is_one_column_on_the_page():
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"age": rng.normal(size=120), "city": rng.choice(["Leeds", "York"], 120)})
    y = table["age"] + 2.0 * (table["city"] == "York") + rng.normal(size=120) > 1
    columns = make_column_transformer(
        (StandardScaler(), ["age"]), (OneHotEncoder(sparse_output=False), ["city"])
    )
    model = make_pipeline(columns, DROClassifier(cost="euclidean", delta=0.05)).fit(table, y)
    found = audit(model, table, y)
    text = report.render(found, model=model)
    column = f"city: {found.columns.switch[1]}".replace(">", "&gt;")
    # its coefficients stand under one heading
    heading = '<tr><th scope="row"><bdi>city</bdi></th><td class="n"></td></tr>'
    assert f'{heading}<tr><th scope="row">&emsp;<bdi>' in text
    assert not re.search(r"\bcity=", text)
    # whose rows these are, beside those that otdro fit prints
    assert "Rows that an adversary of the accuracy moves first" in text
    # by columns, by prices
    assert text.count(f'<th scope="row"><bdi>{column}</bdi></th>') == 2
    assert "% of rows</td>" in text
    assert re.search(r"\u2068city\u2069 \u2068(Leeds|York)\u2069 → \u2068\w+\u2069 \(", text)
