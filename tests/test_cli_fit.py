"""What ``otdro fit`` prints answers the questions of its reader, about the model it saves."""

from pathlib import Path

import numpy as np
import pytest

from commands import FAST, document, done, refused

pytest.importorskip("typer")
pd = pytest.importorskip("pandas")

import otdro  # noqa: E402
from otdro.cli.fit import directions, directions_told, switches  # noqa: E402
from otdro.comparison import Score, Summary, summarise, verdict  # noqa: E402
from otdro.costs import Mahalanobis, Norm  # noqa: E402
from otdro.costs.mahalanobis import LowRank  # noqa: E402
from otdro.costs.table import Grid, principal_directions  # noqa: E402
from otdro.estimators.columns import ColumnGroups  # noqa: E402


@pytest.fixture
def here(here, few_penalties):
    rng = np.random.default_rng(0)
    n = 70
    table = pd.DataFrame(rng.standard_normal((n, 2)), columns=["a", "b"])
    table["outcome"] = rng.choice(["yes", "no"], n)
    table["size"] = table.a + 0.1 * rng.standard_normal(n)
    table["kind"] = np.resize(list("pqrstuv"), n)
    table["y"] = np.where(table.a + 0.5 * rng.standard_normal(n) > 0, "up", "down")
    table.to_csv("t.csv", index=False)
    return here


def test_the_model_that_is_compared_is_the_one_that_is_saved(here, capsys):
    """A delta at which all coefficients vanish scores as the constant model does."""
    options = ["--target", "y", "--drop", "size,kind"]
    given = ["--cost", "euclidean", "--delta", "50", "--save", "m.skops"]
    told = document(capsys, "fit", "t.csv", *options, *given)
    mean = {s["method"]: s["mean"] for s in told["comparison"] if s["measure"] == "log-loss"}
    assert mean["otdro"] == pytest.approx(mean["a constant"], abs=1e-3)
    assert mean["L2"] < mean["otdro"] - 0.1
    assert told["verdict"].startswith("No better than a model that sees no column")
    assert "L2" in told["verdict"]
    assert any("--delta 50 is at or above" in note for note in told["notes"])
    assert not otdro.load("m.skops")[-1].coef_.any()
    splits = ["--splits", "2", "--cost", "euclidean", "--delta", "50"]
    rows = document(capsys, "compare", "t.csv", *options, *splits)
    mean = {s["method"]: s["mean"] for s in rows["comparison"] if s["measure"] == "log-loss"}
    assert mean["otdro"] == pytest.approx(mean["a constant"], abs=1e-2)


def test_the_report_answers(here, capsys):
    fast = ["--cost", "euclidean", "--delta", "0.1", "--drop", "size,kind"]
    out = done(capsys, "fit", "t.csv", "--target", "y", *fast).out
    for part in (
        "down 3",
        "a mean move of 0.1 standard deviations of",
        "Coefficients, largest first",
        "What the adversary attacks",
        "(cheapest to make wrong, and at which cost)",
        "constant",
        "Verdict: ",
    ):
        assert part in " ".join(out.split()), part
    told = document(capsys, "fit", "t.csv", "--target", "y", *fast, "--no-compare")
    by_column = told["coefficients"].values()
    sizes = [
        max(np.abs(list(v.values())), default=0) if isinstance(v, dict) else abs(v)
        for v in by_column
    ]
    assert (np.diff(sizes) <= 0).all()


def test_several_classes_are_named_and_nothing_is_cut_at_60_columns(here, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    fast = ["--cost", "linf", "--delta", "0.05", "--no-compare", "--drop", "size,y"]
    # one model per class; the softmax model has one risk
    out = done(capsys, "fit", "t.csv", "--target", "kind", "--loss", "hinge", *fast).out
    assert max(map(len, out.splitlines())) <= 60
    assert "…" not in out
    flat = " ".join(out.split())
    risks = flat[flat.index("empirical risk") : flat.index("robust risk")]
    assert [word for word in risks.split() if word in set("pqrstuv")] == list("pqrstuv")
    assert "the same in every direction" not in flat
    assert "largest change in any one column" in flat


def test_tables_of_numbers_are_not_cut_on_narrow_terminals(capsys, monkeypatch):
    from otdro.cli import printing

    line = ["gradient boosting", "0.123456 ± 0.000123", "+0.123456 ± 0.000123"]
    for width in (60, 30):
        monkeypatch.setenv("COLUMNS", str(width))
        printing.grid(Grid(["log-loss", "mean ± se", "minus otdro"], [line]))
        out = " ".join(capsys.readouterr().out.split())
        assert line[1] in out
        assert line[2] in out


def test_directions_of_categories_are_switches():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((5, 5))
    cost = Mahalanobis(root @ root.T + np.eye(5))
    features = ColumnGroups(
        ["a", "c=x", "c=y", "c=z", "b"],
        {"a": [0], "c": [1, 2, 3], "b": [4]},
        {"c": ["x", "y", "z"]},
    )
    scale = np.array([2.0, 1.0, 1.0, 1.0, 0.5])
    found = directions(cost, features, scale, most=9)
    # each direction is listed once
    assert len(found["cheapest"]) == len(found["most_expensive"]) == 2
    ways = [*found["cheapest"], *found["most_expensive"][::-1]]
    assert [way["price"] for way in ways] == sorted({way["price"] for way in ways})
    for way in ways:
        assert set(way["along"]) <= {"a", "b"} | {f"c: {s} -> {e}" for s in "xyz" for e in "xyz"}
    prices = switches(cost, features)["c"]
    move = np.array([0.0, 1.0, -1.0, 0.0, 0.0])
    assert set(prices) == {"x <-> y", "x <-> z", "y <-> z"}
    assert list(prices.values()) == sorted(prices.values())
    assert prices["x <-> y"] == pytest.approx(float(cost.norm(move)))
    # no unit move, of a number or a switch, is outside the prices of the directions
    lowest, highest = (found[end][0]["price"] for end in ("cheapest", "most_expensive"))
    units = [*prices.values(), *cost.norm(np.diag(scale)[[0, 4]])]
    assert lowest <= min(units) <= max(units) <= highest
    switch_only = Mahalanobis(np.diag([9.0, 1.0, 1.0, 4.0, 100.0]))
    [first] = directions(switch_only, features, scale, most=1)["cheapest"]
    assert first["along"] == {"c: x -> y": 1.0} or first["along"] == {"c: y -> x": 1.0}
    assert first["price"] == pytest.approx(switches(switch_only, features)["c"]["x <-> y"])
    assert directions(Norm(2), features, scale) == {}


def test_confined_directions_are_priced_by_the_cost():
    rng = np.random.default_rng(0)
    cost = Mahalanobis(LowRank(rng.uniform(1, 2, 5), rng.standard_normal((5, 2))))
    basis = np.linalg.qr(rng.standard_normal((5, 3)))[0]
    found = principal_directions(cost, 5, basis)
    np.testing.assert_allclose(cost.norm(found.vectors.T), found.prices)
    np.testing.assert_allclose(basis @ (basis.T @ found.vectors), found.vectors, atol=1e-12)
    inner = basis.T @ cost.matrix.toarray() @ basis
    np.testing.assert_allclose(found.prices**2, np.linalg.eigvalsh(inner))


def test_the_cost_of_a_wide_table_is_told_without_its_directions():
    d = 2_001
    cost = Mahalanobis(LowRank(np.ones(d), np.zeros((d, 1))))
    numbers = {f"x{j}": [j] for j in range(3, d)}
    features = ColumnGroups(
        [*(f"c={k}" for k in range(3)), *numbers],
        {"c": [0, 1, 2], **numbers},
        {"c": ["0", "1", "2"]},
    )
    assert directions(cost, features, np.ones(d)) == {}
    assert min(switches(cost, features)["c"].values()) == pytest.approx(np.sqrt(2))


@pytest.mark.parametrize(
    ("task", "options"),
    [
        pytest.param(
            "y",
            ["--loss", "hinge", "--order", "1", "--delta", "0.1", "--cost", "euclidean"],
            marks=pytest.mark.slow,
        ),
        ("size", ["--quantile", "0.9", "--delta", "0.1", "--cost", "euclidean"]),
        (
            "size",
            ["--loss", "absolute", "--rule", "1se", "--cost", "l1", "--no-compare"],
        ),
    ],
)
def test_losses_orders_rules_and_quantiles(here, capsys, task, options):
    options = [*options, "--drop", "kind", "--save", "m.skops"]
    told = document(capsys, "fit", "t.csv", "--target", task, *options)
    measures = {s["measure"] for s in told["comparison"]}
    if "hinge" in options:
        assert measures == {"log-loss", "accuracy"}
    if "--quantile" in options:
        assert not measures
        assert otdro.load("m.skops")[-1].loss_.tau == 0.9


def test_bad_choices_are_one_sentence(here, capsys):
    for options, said in (
        (["--order", "3"], "--order must be 1, 2 or auto"),
        (["--quantile", "2"], "--quantile must lie between 0 and 1"),
        (["--loss", "hinge", "--quantile", "0.5"], "--quantile is for --loss quantile"),
        (["--save", "m.pkl"], "runs code when it is loaded"),
    ):
        assert said in refused(capsys, "fit", "t.csv", "--target", "y", *options)


def summary(method, difference, error=0.01):
    return Summary(method, "log-loss", 0.5, 0.1, difference, error)


def test_the_verdict_says_what_is_better_and_what_to_try():
    rows = [summary("otdro", 0, 0), summary("a constant", 0.2)]
    tie = [*rows, summary("L2", 0.001), summary("L1", -0.001)]
    assert verdict(tie) == "No better and no worse than L2 and L1 (log-loss, 2 standard errors)."
    lost = [*rows, summary("L2", 0.001), summary("L1", -0.1)]
    assert "L1 is better: try --cost linf" in verdict(lost)
    assert "try" not in verdict(lost, "linf")
    won = [*rows, summary("L2", 0.1), summary("L1", 0.1)]
    assert verdict(won).startswith("Better than L2 and L1 here")
    unsure = [summary("otdro", 0, 0), summary("a constant", 0.012), summary("L2", 0.1)]
    assert verdict(unsure).startswith(
        "Not shown to be better than a model that sees no column (log-loss lower by 0.012 ± 0.01 "
        "over these splits): that may be chance either way;"
    )
    assert verdict(unsure).endswith(" Better than L2 here (log-loss, 2 standard errors).")
    none = [summary("otdro", 0, 0), summary("a constant", -0.001), summary("L2", -0.1)]
    assert verdict(none).startswith(
        "No better than a model that sees no column (its log-loss minus ours: -0.001 ± 0.01 over "
        "these splits). L2 is better"
    )
    assert verdict([summary("otdro", 0, 0), summary("a constant", -0.001)]).endswith("splits).")


def test_the_verdict_on_an_average_with_a_published_model():
    rows = [summary("mix", 0, 0), summary("otdro", 0.1), summary("source, recalibrated", -0.1)]
    told = verdict(rows)
    assert told.startswith("Better than otdro here; source, recalibrated is better: use the ")
    assert "--source" not in told
    assert "leave --source out" in verdict([rows[0], summary("otdro", -0.1)])
    # the fit of the rows alone is advised to take the mix
    own = verdict([summary("otdro", 0, 0), summary("mix", -0.1)])
    assert "Mix is better: use it, by otdro fit --source" in own


def test_more_switches_than_those_of_three_categories_are_counted():
    report = {"cost_in_words": "", "directions": {"cheapest": [], "most_expensive": []}}
    prices = {"a <-> b": 1.0, "a <-> c": 2.0, "b <-> c": 3.0}
    told = dict(directions_told(report | {"switches": {"k": prices}}))
    assert told["  switch k"] == "a <-> b 1, a <-> c 2, b <-> c 3"
    told = dict(directions_told(report | {"switches": {"k": prices | {"c <-> d": 4.0}}}))
    assert told["  switch k"] == "a <-> b 1, c <-> d 4, and 2 between"


def test_a_weak_signal_in_few_rows_is_not_called_none(here, capsys):
    """The folds of few rows cannot tell; fresh rows can."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((5080, 4))
    y = np.where(X[:, 0] + rng.logistic(scale=1.2, size=5080) > 0, "up", "down")
    table = pd.DataFrame(X, columns=list("abcd")).assign(y=y)
    table[:80].to_csv("few.csv", index=False)
    told = document(capsys, "fit", "few.csv", "--target", "y", "--save", "m.skops")
    assert (otdro.load("m.skops").predict(table[80:].drop(columns="y")) == y[80:]).mean() > 0.55
    assert told["verdict"].startswith("Not shown to be better than a model that sees no column")


def test_shell_completion_is_offered(capsys):
    assert "--install-completion" in done(capsys, "--help").out


def test_what_rounding_leaves_of_no_difference_is_none():
    values = {
        "otdro": [0.3, 0.4, 0.5],
        "noise": [0.3 - 2.2e-17, 0.4, 0.5 + 1e-16],
        "shuffled": [0.4, 0.5, 0.3],
        "constant": [0.1 + 0.2, 0.3, 0.3],
        "L1": [0.3, 0.4, 0.5 + 1.23e-4],
    }
    splits = [Score(m, k, {"log-loss": v}) for m, own in values.items() for k, v in enumerate(own)]
    found = {s.method: s for s in summarise(splits)}
    zeros = [found["otdro"].difference, found["noise"].difference, found["noise"].difference_se]
    zeros += [found["shuffled"].difference, found["constant"].se]
    assert [str(value) for value in zeros] == ["0.0"] * 5
    assert found["shuffled"].difference_se > 0.05
    assert found["L1"].difference == pytest.approx(4.1e-5)


# categories are one column


@pytest.fixture
def cities(here):
    """A table with a column of categories that matters and one with rare values."""
    rng = np.random.default_rng(1)
    n = 150
    table = pd.DataFrame({"age": rng.normal(40, 10, n)})
    table["city"] = rng.choice(["Leeds", "York", "Bath"], n)
    table["plan"] = [f"p{k % 40}" if k % 2 else f"p{k % 10}" for k in range(n)]
    score = (table.age - 40) / 10 - 2 * (table.city == "York") + rng.logistic(size=n)
    table["y"] = np.where(score > 0, "stay", "leave")
    table.to_csv("cities.csv", index=False)
    return table


def test_a_category_is_one_column_in_print_and_document(cities, capsys):
    fit = ["fit", "cities.csv", "--target", "y", "--no-compare", "--delta", "0.05"]
    told = document(capsys, *fit)
    assert set(told["coefficients"]) == {"age", "city", "plan"}
    assert set(told["coefficients"]["city"]) == {"Leeds", "York", "Bath"}
    assert "other values" in told["coefficients"]["plan"]
    assert set(told["attack"]["columns"]) == {"age", "city", "plan"}
    assert sum(told["attack"]["columns"].values()) == pytest.approx(1)
    switch = told["attack"]["switches"]["city"]
    assert "York" in (switch["from"], switch["to"])
    assert 0 < switch["rows"] < 0.5
    out = " ".join(done(capsys, *fit).out.split())
    assert f"city: {switch['from']} -> {switch['to']}, {switch['rows']:.1%} of rows' worth" in out
    assert "each of which may go a part of the way" in " ".join(out.split())
    assert "(cheapest to make wrong, and at which cost)" in out
    assert "city York -" in out
    assert "and 16 more" in out
    assert "city_" not in out


def test_print_audit_and_page_state_delta_by_the_same_column(cities, capsys):
    fit = ["fit", "cities.csv", "--target", "y", "--no-compare", "--delta", "0.05"]
    told = document(capsys, *fit, "--save", "m.skops", "--report", "fit.html")
    result = otdro.audit(otdro.load("m.skops"), cities.drop(columns="y"), cities["y"])
    assert told["delta_in_words"] == result.in_words(0.05)
    assert f"{told['delta_in_words']}, the delta of the fit" in Path("fit.html").read_text()


def test_print_and_audit_state_delta_by_the_same_column_of_many_rows(here, capsys):
    """The last rows of a long table count as much as the first ones."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.standard_normal(21_000), "b": rng.standard_normal(21_000)})
    table["y"] = np.where(table.a + table.b + rng.logistic(size=21_000) > 0, "up", "down")
    table.loc[20_000:, "a"] *= 20
    table.to_csv("long.csv", index=False)
    told = document(capsys, "fit", "long.csv", "--target", "y", *FAST, "--save", "m.skops")
    result = otdro.audit(otdro.load("m.skops"), table.drop(columns="y"), table["y"])
    assert told["delta_in_words"] == result.in_words(0.1)


def test_a_category_is_one_column_of_a_drift_between_tables(cities, capsys):
    moved = cities.assign(city=np.where(cities.city == "Leeds", "York", cities.city))
    moved.to_csv("new.csv", index=False)
    told = document(capsys, "drift", "cities.csv", "new.csv", "--target", "y")
    lines = {line["column"]: line for line in told["by_column"]}
    assert set(lines) == {"age", "city", "plan"}
    assert lines["city"]["switch"] == "Leeds -> York"
    out = done(capsys, "drift", "cities.csv", "new.csv", "--target", "y").out
    assert "city: Leeds -> York" in out


def test_columns_are_traced_through_pipelines_of_scikit_learn(cities):
    from sklearn.compose import ColumnTransformer
    from sklearn.decomposition import PCA
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    from otdro.estimators.columns import column_groups

    X = cities.drop(columns="y").assign(tenure=np.arange(len(cities)) % 7)
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    front = ColumnTransformer(
        [("c", OneHotEncoder(max_categories=5), ["plan", "city"]), ("n", numbers, [0, 3])]
    ).fit(X)
    names = list(front.get_feature_names_out())
    groups = column_groups(front, names)
    assert list(groups.indices) == ["plan", "city", "age", "tenure"]
    assert groups.indices["city"] == [5, 6, 7]
    assert groups.categories["city"] == ["Bath", "Leeds", "York"]
    assert groups.categories["plan"][-1] == "other values"
    assert [groups.names[j] for j in groups.numbers] == ["n__age", "n__tenure"]
    assert groups.names[7] == "city=York"
    move = np.zeros(len(names))
    move[[5, 6, 7]] = 0.01, -0.02, 0.01
    assert str(groups.switch("city", move)) == "city: Leeds -> Bath"
    assert groups.switch("city", move).size == pytest.approx(0.02)
    assert groups.sums(np.ones(len(names)))["city"] == 3
    # columns whose origin is lost, and no steps at all
    mixed = make_pipeline(front, PCA(2)).fit(X)
    assert list(column_groups(mixed, ["a", "b"]).indices) in (["a", "b"], ["pca0", "pca1"])
    assert column_groups(None, ["a", "b"]).numbers == [0, 1]


# what else is asked of fit and compare


def test_compare_against_models_that_are_not_linear(here, capsys):
    compare = ["compare", "t.csv", "--target", "y", "--splits", "2", "--drop", "kind"]
    asked = ["--cost", "euclidean", "--delta", "0.1", "--against", "forest, boosting,splines"]
    told = document(capsys, *compare, *asked)
    methods = {s["method"] for s in told["comparison"] if s["measure"] == "log-loss"}
    assert methods > {"otdro", "random forest", "gradient boosting", "splines"}
    assert all(np.isfinite(s["mean"]) for s in told["comparison"])
    said = refused(capsys, *compare, "--against", "forest,svm")
    assert "--against must name some of forest, boosting, splines, got 'svm'" in said


def test_against_takes_numbers_and_several_classes(here, capsys):
    compare = ["compare", "t.csv", "--splits", "2", "--against", "forest,splines,boosting"]
    fast = ["--cost", "euclidean", "--delta", "0.1"]
    for target, drop in (("size", "kind,y"), ("kind", "y,outcome")):
        told = document(capsys, *compare, *fast, "--target", target, "--drop", drop)
        assert len({s["method"] for s in told["comparison"]}) == 9


def test_the_verdict_on_a_model_that_is_not_linear():
    rows = [summary("otdro", 0, 0), summary("a constant", 0.2), summary("random forest", -0.1)]
    assert "andom forest is better: use it, or add columns" in verdict(rows)


@pytest.mark.parametrize("leak", ["threshold", "category", "number"])
def test_a_column_that_tells_the_target_is_named(here, capsys, leak):
    rng = np.random.default_rng(3)
    table = pd.DataFrame({"a": rng.standard_normal(200), "b": rng.standard_normal(200)})
    y = np.where(table.a + rng.logistic(size=200) > 1, "yes", "no")
    table["y"] = y
    if leak == "threshold":
        table["after"] = np.where(y == "yes", 5.0, 0.0) + rng.random(200)
    elif leak == "category":
        table["after"] = np.where(y == "yes", rng.choice(["won", "kept"], 200), "lost")
    else:
        table["y"] = 3 * table.a + rng.standard_normal(200)
        table["after"] = np.exp(table.y / 10)
    table.to_csv("leak.csv", index=False)
    for command in (["fit", *FAST], ["compare", "--splits", "2", "--cost", "euclidean"]):
        told = document(capsys, command[0], "leak.csv", "--target", "y", *command[1:])
        named = [note for note in told["notes"] if "alone tells the target" in note]
        assert len(named) == 1
        assert "column 'after'" in named[0]
        assert "--drop after" in named[0]


def test_refits_print_and_document_the_stability(here, capsys):
    fit = ["fit", "t.csv", "--target", "y", *FAST, "--refits", "20"]
    told = document(capsys, *fit)["stability"]
    assert told["refits"] == 20
    assert 0 < told["flips"] < 0.5
    out = " ".join(done(capsys, *fit, "--report", "r.html").out.split())
    assert "Stability: 20 refits to bootstrap samples of 70 rows" in out
    assert document(capsys, *fit[:-2])["stability"] is None
    assert "--refits must be at least 2, got 1" in refused(capsys, *fit[:-1], "1")


def test_a_tolerance_buys_a_larger_delta(here, capsys):
    fit = ["fit", "t.csv", "--target", "y", "--drop", "kind", "--no-compare", "--cost", "euclidean"]
    best = document(capsys, *fit, "--rule", "min")["delta"]
    rule = [*fit, "--rule", "tolerance"]
    wide = document(capsys, *rule, "--tolerance", "0.2")["delta"]
    assert wide >= document(capsys, *rule)["delta"] >= best
    assert wide > best
    assert "--tolerance is for --rule tolerance" in refused(capsys, *fit, "--tolerance", "0.1")
    assert "--tolerance must be a share >= 0" in refused(capsys, *rule, "--tolerance", "-1")


def test_a_long_fit_writes_a_line_also_in_a_log(here, capsys, monkeypatch):
    fit = ["fit", "t.csv", "--target", "y", *FAST, "--refits", "20"]
    assert "so far" not in done(capsys, *fit).err
    monkeypatch.setattr("otdro.progress.LONG", 0.001)
    told = done(capsys, *fit)
    assert "fitting again, 20 times, 0 s so far" in told.err
    assert "so far" not in told.out


def test_a_long_fit_says_nothing_if_it_is_quiet(here, capsys, caplog, monkeypatch):
    monkeypatch.setattr("otdro.progress.LONG", 0.0001)
    fit = ["fit", "t.csv", "--target", "y", "--no-compare", "--drop", "kind"]
    done(capsys, *fit)
    assert "the fit has taken" in caplog.text
    caplog.clear()
    assert done(capsys, *fit, "--quiet") == ("", "")
    assert not caplog.records


# published models


@pytest.fixture
def hospital(here):
    """A large table of one site, a small one of another, and the coefficients behind both."""

    def rows(n, seed, shift):
        rng = np.random.default_rng(seed)
        table = pd.DataFrame({"age": rng.normal(60, 10, n), "bp": rng.normal(120, 15, n)})
        table["smoker"] = rng.choice(["yes", "no"], n)
        table["ward"] = rng.choice(["A", "B", "C"], n)
        score = 0.12 * (table.age - 60) - 0.05 * (table.bp - 120) + 1.5 * (table.ward == "B")
        score += 1.0 * (table.smoker == "yes") + shift
        table["y"] = np.where(score + rng.logistic(size=n) > 0, "sick", "healthy")
        table["size"] = score + rng.standard_normal(n)
        return table

    rows(1500, 0, 0.0).to_csv("large.csv", index=False)
    rows(40, 1, -1.0).to_csv("small.csv", index=False)
    lines = ["column,coefficient", "(intercept),2.8", "age,0.12", "bp,-0.05", "smoker=yes,1"]
    Path("paper.csv").write_text("\n".join([*lines, "ward=B,1.5"]) + "\n")
    return rows


MIX = ["fit", "small.csv", "--target", "y", "--drop", "size", "--cost", "euclidean", "--no-compare"]


def test_a_saved_model_is_a_source(hospital, capsys):
    large = ["fit", "large.csv", *MIX[2:], "--delta", "0.001", "--save", "old.skops"]
    done(capsys, *large)
    told = document(capsys, *MIX, "--source", "old.skops", "--save", "mix.skops")
    assert set(told["weights"]) == {"source", "otdro"}
    assert told["weights"]["source"] > 0.2
    assert any("is the published model 'source'" in note for note in told["notes"])
    assert set(told["coefficients"]) == {"age", "bp", "smoker", "ward"}
    # the mix is linear in the columns as the source prepares them
    model, old = otdro.load("mix.skops"), otdro.load("old.skops")
    weight = told["weights"]["source"]
    own = model[-1].members_["otdro"]
    mixed = weight * old[-1].coef_ + (1 - weight) * own.coef_
    np.testing.assert_allclose(model[-1].coef_, mixed)
    test = hospital(2000, 9, -1.0)
    test.to_csv("test.csv", index=False)
    done(capsys, "predict", "mix.skops", "test.csv", "--out", "p.csv")
    assert (pd.read_csv("p.csv").prediction == test.y).mean() > 0.68
    out = " ".join(done(capsys, *MIX, "--source", "old.skops", "--report", "r.html").out.split())
    assert "average of otdro" in out
    for command in (["predict", "mix.skops", "large.csv"], ["audit", "mix.skops", "large.csv"]):
        extra = ["--target", "y"] if command[0] == "audit" else ["--out", "p.csv"]
        done(capsys, *command, *extra)


def test_a_fit_with_a_source_compares_the_mix(hospital, capsys):
    fit = [*MIX[:-1], "--delta", "0.1", "--source", "paper.csv"]
    told = document(capsys, *fit, "--report", "r.html")
    first, *others = [s for s in told["comparison"] if s["measure"] == "log-loss"]
    assert (first["method"], first["difference"]) == ("mix", 0)
    for line in others:
        assert line["difference"] == pytest.approx(line["mean"] - first["mean"])
    assert "otdro fit --source" not in told["verdict"]
    for name in ("source, recalibrated", "otdro"):
        assert name in told["verdict"]
    assert "log-loss minus mix" in Path("r.html").read_text()
    assert "minus mix" in done(capsys, *fit).out


def test_a_source_may_lack_columns_but_not_have_others(hospital, capsys):
    large = ["fit", "large.csv", *MIX[2:], "--drop", "ward", "--delta", "0.001"]
    done(capsys, *large, "--save", "o.skops")
    told = document(capsys, *MIX, "--source", "o.skops", "--save", "mix.skops")
    assert set(told["coefficients"]) == {"age", "bp", "smoker", "ward"}
    assert set(told["coefficients"]["ward"]) == {"A", "B", "C"}
    done(capsys, "predict", "mix.skops", "large.csv", "--out", "p.csv")
    said = refused(capsys, *MIX, "--drop", "age", "--source", "o.skops")
    assert "needs columns that the table lacks or that are left out: age" in said
    other = [*MIX[:3], "size", "--drop", "y", "--source", "o.skops"]
    assert "predicts healthy, sick, and the target here holds numbers" in refused(capsys, *other)


def test_a_mix_is_a_source(hospital, capsys):
    """The columns that the mix adds to those of its source are known by their kinds."""
    large = ["fit", "large.csv", *MIX[2:], "--drop", "ward", "--delta", "0.001"]
    done(capsys, *large, "--save", "o.skops")
    done(capsys, *MIX, "--source", "o.skops", "--save", "a.skops")
    done(capsys, *MIX, "--source", "a.skops", "--save", "b.skops")
    done(capsys, "predict", "b.skops", "large.csv", "--out", "p.csv")


def test_coefficients_in_raw_units_are_a_source(hospital, capsys):
    told = document(capsys, *MIX, "--source", "paper.csv", "--save", "mix.skops")
    assert told["scale"] == "standard"
    assert told["weights"]["source"] > 0.2
    done(capsys, "predict", "mix.skops", "large.csv", "--out", "p.csv")
    done(capsys, "audit", "mix.skops", "small.csv", "--target", "y")
    regression = ["compare", "small.csv", "--target", "size", "--drop", "y", "--splits", "3"]
    rows = document(capsys, *regression, "--cost", "euclidean", "--source", "paper.csv")[
        "comparison"
    ]
    mean = {s["method"]: s["mean"] for s in rows if s["measure"] == "RMSE"}
    assert {"source", "source, recalibrated", "mix", "otdro"} < set(mean)
    # the source is shifted by 5, which its intercept takes up
    assert mean["source, recalibrated"] < mean["source"]
    assert mean["mix"] < mean["source"]
    test = hospital(500, 9, 0.0)
    test.to_csv("test.csv", index=False)
    wide = ["compare", "test.csv", "--target", "size", "--drop", "y", "--splits", "2"]
    exact = document(capsys, *wide, "--source", "paper.csv", "--cost", "euclidean")["comparison"]
    found = next(
        s for s in exact if s["method"] == "source, recalibrated" and s["measure"] == "RMSE"
    )
    assert found["mean"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,value\nage,1\n", "must have the columns column,coefficient"),
        ("column,coefficient\nage,1\n", "has no line (intercept)"),
        ("column,coefficient\n(intercept),0\naeg,1\n", "Did you mean 'age'?"),
        ("column,coefficient\n(intercept),0\nward,1\n", "must name them, as ward=value"),
        (
            "column,coefficient\n(intercept),0\nage,1\nage,2\n",
            "one number for each column; see age",
        ),
        ("column,coefficient\n(intercept),0\nage,much\n", "must hold numbers"),
    ],
)
def test_a_bad_table_of_coefficients_is_refused(hospital, capsys, text, said):
    Path("bad.csv").write_text(text)
    assert said in refused(capsys, *MIX, "--source", "bad.csv")
    assert "no such file: none.csv" in refused(capsys, *MIX, "--source", "none.csv")
    assert "--scale asinh is not linear" in refused(
        capsys, *MIX, "--source", "paper.csv", "--scale", "asinh"
    )
