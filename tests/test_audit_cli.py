"""``otdro audit`` and ``otdro drift``: documents with stable keys, exit codes, whose models."""

import json

import numpy as np
import pytest

from commands import FAST, call, refused

pytest.importorskip("typer")
pd = pytest.importorskip("pandas")
skops_io = pytest.importorskip("skops.io")
pytest.importorskip("ot")

from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.feature_selection import SelectKBest  # noqa: E402
from sklearn.linear_model import LogisticRegression, Ridge  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402

from otdro import audit  # noqa: E402

AUDIT = (
    "command schema version model data target new check task rows columns classes space cost order "
    "tau loss label_cost target_cost fitted_delta accuracy constant_accuracy curve unit_column "
    "unit_switch deviations_of "
    "breaking_points chance_at_breaking_point classes_breaking groups_breaking by_column advice "
    "notes drift record requirements met"
)
DRIFT = (
    "rows_reference rows_new columns cost order lower_bounds bound_noise beyond_noise estimate "
    "noise_floor rows_used noise_rows p_value label_shift delta verdict reason certified_accuracy "
    "accuracy tau by_column new_values notes"
)
AUDIT_KEYS, DRIFT_KEYS = AUDIT.split(), DRIFT.split()


@pytest.fixture
def files(here, table, capsys):
    """A model of ours and one of scikit-learn, rows and new rows, in the working folder."""
    table = table.drop(columns=["size", "id"])
    table[:80].to_csv("old.csv", index=False)
    new = table[80:].copy()
    new["a"] += 3.0
    new.to_csv("new.csv", index=False)
    call(capsys, "fit", "old.csv", "--target", "y", "--save", "ours.skops", "-q", *FAST)
    numbers = table[["a", "c"]]
    theirs = make_pipeline(StandardScaler(), LogisticRegression()).fit(numbers, table.y)
    skops_io.dump(theirs, "theirs.skops")
    skops_io.dump(LogisticRegression().fit(numbers.to_numpy(), table.y == "yes"), "bare.skops")
    skops_io.dump(Ridge().fit(numbers, numbers.a * 2), "ridge.skops")
    return table, theirs


@pytest.mark.parametrize("model", ["ours.skops", "theirs.skops"])
def test_audit_is_one_document_with_stable_keys(files, capsys, model):
    arguments = ("audit", model, "old.csv", "--target", "y", "--new", "new.csv", "--json")
    code, out, _ = call(capsys, *arguments)
    assert code == 0
    told = json.loads(out)
    assert list(told) == AUDIT_KEYS
    assert list(told["drift"]) == DRIFT_KEYS
    assert told["drift"]["verdict"] == "outside"
    assert told["advice"][-1].startswith("The new rows are farther away than what was certified")
    assert told["met"] is True
    assert set(told["by_column"][0]) == {
        "column", "switch", "share", "breaking_point", "amount"
    }  # fmt: skip
    again = json.loads(call(capsys, *arguments)[1])
    # the date is that of the run
    assert again["record"].pop("date") >= told["record"].pop("date")
    assert again == told


def test_the_document_holds_what_python_computes(files, capsys):
    rows, theirs = files
    told = json.loads(
        call(capsys, "audit", "theirs.skops", "old.csv", "--target", "y", "--json")[1]
    )
    found = audit(theirs, rows[["a", "c"]][:80], rows.y[:80])
    assert told["curve"]["accuracy"] == pytest.approx(found.accuracy(found.deltas))
    assert told["breaking_points"]["constant"] == pytest.approx(found.breaking_point("constant"))


def test_a_requirement_that_is_not_met_leaves_with_3(files, capsys):
    base = ("audit", "theirs.skops", "old.csv", "--target", "y")
    ask = ("--require-accuracy", "0.6", "--at-delta")
    assert call(capsys, *base, *ask, "0.01")[0] == 0
    code, out, _ = call(capsys, *base, *ask, "100")
    assert code == 3
    assert "NOT MET: accuracy at delta = 100 >= 0.6" in out
    code, out, _ = call(capsys, *base, *ask, "100", "--json")
    assert code == 3
    told = json.loads(out)
    assert told["met"] is False
    assert told["requirements"][0]["found"] < 0.6
    assert call(capsys, *base, "--new", "new.csv", "--max-drift", "0.2", "-q") == (3, "", "")
    assert call(capsys, *base, "--new", "new.csv", "--max-drift", "50", "-q") == (0, "", "")


def test_what_a_person_sees_fits_80_columns(files, capsys):
    code, out, err = call(
        capsys, "audit", "ours.skops", "old.csv", "--target", "y", "--new", "new.csv",
        "--groups", "flag", "--drop", "c2",
    )  # fmt: skip
    assert code == 0
    assert "as bad as that at" in out
    assert "by an adversary" in out
    assert "by chance there" in out
    assert "What to do next" in out
    assert "verdict" in out
    assert "group True" in out
    assert max(map(len, (out + err).splitlines())) <= 80


def test_models_without_names_and_of_numbers(files, capsys):
    rows, _ = files
    rows.assign(y=rows.y == "yes")[["a", "c", "y"]].to_csv("bare.csv", index=False)
    assert call(capsys, "audit", "bare.skops", "bare.csv", "--target", "y", "-q")[0] == 0
    told = refused(capsys, "audit", "bare.skops", "old.csv", "--target", "y")
    assert "2 columns and no names" in told
    rows.assign(t=2 * rows.a)[["a", "c", "t"]].to_csv("r.csv", index=False)
    code, out, _ = call(
        capsys, "audit", "ridge.skops", "r.csv", "--target", "t", "--tau", "0.5", "--json",
        "--order", "2",
    )  # fmt: skip
    assert code == 0
    told = json.loads(out)
    assert told["task"] == "regression"
    assert told["tau"] == 0.5


def test_drift_of_tables(files, capsys):
    code, out, _ = call(capsys, "drift", "old.csv", "new.csv", "--target", "y", "--json")
    assert code == 0
    told = json.loads(out)
    head = [
        "command",
        "schema",
        "version",
        "old",
        "by",
        "target",
        "model",
        "new",
        "scale",
        "batches",
        "quantiles",
        "farthest",
    ]
    assert list(told) == head + DRIFT_KEYS + ["requirements", "met"]
    top = max(told["by_column"], key=lambda line: line["distance"])
    assert top["column"] == "a"
    code, out, _ = call(capsys, "drift", "old.csv", "new.csv", "--max-drift", "0.5")
    assert code == 3
    assert "NOT MET: drift <= 0.5" in out
    code, out, err = call(
        capsys, "drift", "old.csv", "new.csv", "--target", "y", "--model", "ours.skops"
    )
    assert code == 0
    assert "verdict" in out
    assert max(map(len, (out + err).splitlines())) <= 80


def test_bad_input_is_one_sentence(files, capsys):
    rows, _ = files
    base = ("audit", "theirs.skops", "old.csv", "--target")
    rows.drop(columns="a").to_csv("less.csv", index=False)
    rows[:5].to_csv("few.csv", index=False)
    rows.assign(y="maybe").to_csv("maybe.csv", index=False)
    rows.assign(y="yes").to_csv("one.csv", index=False)
    (rows.rename(columns={"a": "z"})).to_csv("other.csv", index=False)
    rows.assign(a="much").to_csv("text.csv", index=False)
    for arguments, text in [
        ((*base, "yy"), "Did you mean 'y'?"),
        ((*base, "y", "--require-accuracy", "0.9"), "go together"),
        ((*base, "y", "--require-accuracy", "9", "--at-delta", "1"), "in [0, 1]"),
        ((*base, "y", "--max-drift", "1"), "needs new rows"),
        ((*base, "y", "--order", "3"), "order must be 1 or 2"),
        ((*base, "y", "--cost", "l7"), "--cost must be one of"),
        ((*base, "y", "--new", "few.csv"), "there are 5 new rows"),
        ((*base, "y", "--new", "less.csv"), "lacks columns that the model needs: a"),
        (("audit", "no.skops", "old.csv", "--target", "y"), "no such model"),
        (("audit", "old.csv", "old.csv", "--target", "y"), "is not a model"),
        (("audit", "theirs.skops", "maybe.csv", "--target", "y"), "does not know"),
        (("audit", "theirs.skops", "one.csv", "--target", "y"), "one class only"),
        (("audit", "ridge.skops", "old.csv", "--target", "y"), "must hold numbers"),
        (("drift", "old.csv", "other.csv"), "lacks columns of the old one: a"),
        (("drift", "old.csv", "few.csv"), "there are 5 new rows"),
        (("drift", "old.csv", "text.csv"), "column 'a' must hold numbers"),
        (("drift", "old.csv", "new.csv", "--max-drift", "-1"), "must be a number >= 0"),
    ]:
        assert text in refused(capsys, *arguments)


def test_a_search_and_a_selection_are_loaded(files, capsys):
    rows, _ = files
    inner = make_pipeline(SelectKBest(k=1), LogisticRegression())
    search = GridSearchCV(inner, {"logisticregression__C": [0.1, 1.0]}, cv=3)
    skops_io.dump(search.fit(rows[["a", "c"]], rows.y), "search.skops")
    code, out, _ = call(capsys, "audit", "search.skops", "old.csv", "--target", "y", "--json")
    assert code == 0
    assert json.loads(out)["columns"] == 1


def test_a_preparation_of_another_package_reads_the_table_as_it_is(files, capsys):
    rows, _ = files
    front = ColumnTransformer(
        [("n", StandardScaler(), ["a", "c"]), ("o", OneHotEncoder(), ["city"])]
    )
    model = Pipeline([("columns", front), ("model", LogisticRegression())])
    table = rows[["a", "c", "city"]].assign(city=rows.city.fillna("Rome"), y=rows.y)
    table.to_csv("t.csv", index=False)
    skops_io.dump(model.fit(table.drop(columns="y"), table.y), "columns.skops")
    assert call(capsys, "audit", "columns.skops", "t.csv", "--target", "y", "-q") == (0, "", "")


def test_only_stated_types_are_loaded(files, capsys):
    skops_io.dump(np.random.default_rng, "strange.skops")
    told = refused(capsys, "audit", "strange.skops", "old.csv", "--target", "y")
    assert "strange.skops" in told
