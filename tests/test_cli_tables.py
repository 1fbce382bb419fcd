"""Tables as people have them: each is read right with a note, or refused."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

import commands
from commands import FAST, document, done

pytest.importorskip("typer")
pd = pytest.importorskip("pandas")

SHARED = ["--target", "y", *FAST]


def rows(n=60):
    rng = np.random.default_rng(0)
    found = pd.DataFrame({"age": rng.normal(40, 9, n).round(1), "pay": rng.normal(5e3, 9e2, n)})
    found["pay"] = found.pay.round(2)
    found["y"] = np.where(found.age + rng.normal(0, 5, n) > 40, "yes", "no")
    return found


def fit(capsys, *argv):
    return document(capsys, "fit", *argv, *SHARED)


def refused(capsys, *argv):
    return commands.refused(capsys, "fit", *argv, *SHARED)


def european(value):
    return f"{value:,.2f}".replace(",", " ").replace(".", ",").replace(" ", ".")


def test_decimal_commas_and_thousands_are_numbers_and_told(here, capsys):
    table = rows()
    table.to_csv("plain.csv", index=False)
    plain = fit(capsys, "plain.csv")
    for column in ("age", "pay"):
        table[column] = table[column].map(european)
    table.to_csv("excel.csv", sep=";", index=False)
    found = fit(capsys, "excel.csv")
    assert found["coefficients"] == pytest.approx(plain["coefficients"])
    assert any("decimal commas (column 'age'" in note for note in found["notes"])
    assert any("'pay': dots are read as separators of thousands" in n for n in found["notes"])
    # English thousands, in quotes
    english = rows()
    english["pay"] = english.pay.map("{:,.2f}".format)
    english.to_csv("english.csv", index=False)
    found = fit(capsys, "english.csv")
    assert found["coefficients"] == pytest.approx(plain["coefficients"])
    assert any("separators of thousands (column 'pay'" in note for note in found["notes"])


def test_what_has_two_readings_is_refused_until_it_is_said(here, capsys):
    table = rows()
    table["pay"] = (table.pay * 10).round().astype(int).map("{:,}".format)
    table.to_csv("t.csv", sep=";", index=False)
    told = refused(capsys, "t.csv")
    assert "which may be" in told
    assert "--decimal ." in told
    dot = fit(capsys, "t.csv", "--decimal", ".")
    comma = fit(capsys, "t.csv", "--decimal", ",", "--drop", "age")
    assert set(dot["coefficients"]) == {"age", "pay"}
    assert set(comma["coefficients"]) == {"pay"}
    assert "--decimal must be" in refused(capsys, "t.csv", "--decimal", ";")
    table["age"] = table.age.map(lambda v: str(v).replace(".", ","))
    table["pay"] = [f"1,{k:03d}.5" for k in range(len(table))]
    table.to_csv("both.csv", sep=";", index=False)
    assert "writes numbers in two ways" in refused(capsys, "both.csv")


def test_a_text_among_decimal_commas_names_its_row(here, capsys):
    table = rows()
    table["age"] = table.age.map(lambda v: str(v).replace(".", ","))
    table.loc[4, "age"] = "old"
    table.to_csv("t.csv", sep=";", index=False)
    assert "'old' in row 5" in refused(capsys, "t.csv")


def test_predict_reads_decimal_commas_and_carries_an_id(here, capsys):
    table = rows()
    table.to_csv("t.csv", index=False)
    done(capsys, "fit", "t.csv", "--save", "m.skops", "-q", *SHARED)
    plain = pd.read_csv(io.StringIO(done(capsys, "predict", "m.skops", "t.csv").out))
    table.insert(0, "who", [f"p{k}" for k in range(len(table))])
    table["age"] = table.age.map(european)
    table.to_csv("new.csv", sep=";", index=False)
    told = done(capsys, "predict", "m.skops", "new.csv", "--id", "who")
    found = pd.read_csv(io.StringIO(told.out))
    assert found.who.tolist() == table.who.tolist()
    pd.testing.assert_frame_equal(found.drop(columns="who"), plain)
    assert "decimal commas" in told.err
    wrong = commands.refused(capsys, "predict", "m.skops", "new.csv", "--id", "whom")
    assert "Did you mean 'who'?" in wrong


DATES = {
    "iso": lambda k: f"2024-01-{k % 28 + 1:02d}",
    "european": lambda k: f"{k % 28 + 1:02d}.02.2024",
    "american": lambda k: f"2/{k % 28 + 1}/24",
    "stamp": lambda k: f"2024-01-{k % 5 + 1:02d}T10:00:00Z",
    "compact": lambda k: 20240101 + k % 28,
}


@pytest.mark.parametrize("kind", DATES)
def test_dates_are_left_out_with_a_note_also_where_they_repeat(here, capsys, kind):
    table = rows()
    table["day"] = [DATES[kind](k) for k in range(len(table))]
    table.to_csv("t.csv", index=False)
    found = fit(capsys, "t.csv")
    assert set(found["coefficients"]) == {"age", "pay"}
    assert any("'day' holds dates and is left out; --keep day" in n for n in found["notes"])
    kept = fit(capsys, "t.csv", "--keep", "day")
    assert len(kept["coefficients"]) == 3
    note = next(note for note in kept["notes"] if "'day'" in note)
    first = {"european": "2024-02-01", "american": "2024-02-01"}.get(kind, "2024-01-01")
    assert note.endswith(f"is used as numbers: days of day since {first}.")
    assert isinstance(fit(capsys, "t.csv", "--categorical", "day")["coefficients"]["day"], dict)


def test_a_kept_date_is_numbers_for_predict_and_drift_as_well(here, capsys):
    table = rows(120)
    days = pd.Timestamp("2022-03-04") + pd.to_timedelta(np.arange(120) * 7919 % 800, "D")
    table["day"] = days.strftime("%d.%m.%Y")
    table.to_csv("t.csv", index=False)
    told = fit(capsys, "t.csv", "--keep", "day", "--save", "m.skops")
    since = f"days of day since {days.min():%Y-%m-%d}"
    named = {since, "month of day", "weekday of day"}
    assert set(told["coefficients"]) == {"age", "pay", *named}
    # the same days in another writing
    table["day"] = days.strftime("%Y-%m-%d")
    table.to_csv("new.csv", index=False)
    first = done(capsys, "predict", "m.skops", "t.csv")
    assert first.out == done(capsys, "predict", "m.skops", "new.csv").out
    assert "day" not in first.err
    table["day"] = (days + pd.Timedelta(365, "D")).strftime("%Y-%m-%d")
    table.to_csv("new.csv", index=False)
    moved = document(capsys, "drift", "t.csv", "new.csv", "--keep", "day", "--drop", "y")
    assert max(moved["by_column"], key=lambda line: line["distance"])["column"] == since
    table["day"] = "03/04/2024"
    table.to_csv("doubt.csv", index=False)
    said = commands.refused(capsys, "predict", "m.skops", "doubt.csv")
    assert "whose month may be the first or the second number" in said
    table["day"] = "soon"
    table.to_csv("bad.csv", index=False)
    said = commands.refused(capsys, "predict", "m.skops", "bad.csv")
    assert "column 'day' must hold dates, but row 1 holds 'soon'" in said
    lacks = table.drop(columns="day")
    lacks.to_csv("lacks.csv", index=False)
    assert "lacks columns" in commands.refused(capsys, "predict", "m.skops", "lacks.csv")


def test_ids_are_left_out_also_in_small_tables(here, capsys):
    table = rows(16)
    table["row"] = range(1, 17)
    table["customer_id"] = np.random.default_rng(1).permutation(9000)[:16]
    table["name"] = [f"user {k}" for k in range(16)]
    table.to_csv("t.csv", index=False)
    found = fit(capsys, "t.csv")
    assert set(found["coefficients"]) == {"age", "pay"}
    assert len([n for n in found["notes"] if "--keep" in n]) == 3
    kept = fit(capsys, "t.csv", "--keep", "row,customer_id", "--drop", "age", "--drop", "pay,name")
    assert set(kept["coefficients"]) == {"row", "customer_id"}
    told = refused(capsys, "t.csv", "--keep", "row", "--drop", "row")
    assert "both name 'row'" in told


WRITINGS = {
    "percent": "{:.1f}%".format,
    "amounts": lambda v: f"{1000 * v:,.2f} EUR",
    "dollars": lambda v: f"${1000 * round(v):,}",
    "European amounts": lambda v: european(1000 * v) + " €",
    "accountants": lambda v: f"({-v:.2f})" if v < 0 else f"{v:.2f}",
    "a typeset minus": lambda v: f"{v:.2f}".replace("-", "−"),
    "apostrophes": lambda v: f"{round(1000 * v):,}".replace(",", "'"),
    "blanks": lambda v: f"{1000 * v:,.1f}".replace(",", " ").replace(".", ","),
    "truth": lambda v: "yes" if v > 0 else "No",
}


@pytest.mark.parametrize("kind", WRITINGS)
def test_numbers_in_another_writing_are_numbers_and_told(here, capsys, kind):
    value = np.random.default_rng(2).normal(0, 9, 60)
    table = rows()
    plain = {"dollars": np.round, "truth": lambda v: v > 0}.get(kind, lambda v: v.round(3))
    table["x"] = plain(value)
    table.to_csv("plain.csv", sep=";", index=False)
    wanted = fit(capsys, "plain.csv", "--save", "m.skops")["coefficients"]
    table["x"] = [WRITINGS[kind](v) for v in value]
    table.loc[7, "x"] = None
    table.to_csv("t.csv", sep=";", index=False)
    options = ["t.csv", "--decimal", "."]
    told = fit(capsys, *options, "--save", "n.skops")
    assert told["coefficients"]["x"] == pytest.approx(wanted["x"], abs=0.02)
    assert any("column 'x': " in note and " is read." in note for note in told["notes"])
    # the saved model reads the same writing, and names what it cannot read
    done(capsys, "predict", "n.skops", *options, "--out", "p.csv")
    table.loc[3, "x"] = "??"
    table.to_csv("bad.csv", sep=";", index=False)
    bad = ["predict", "n.skops", "bad.csv", "--decimal", ".", "--out", "p.csv"]
    assert "column 'x' must hold numbers" in commands.refused(capsys, *bad)
    assert isinstance(fit(capsys, *options, "--categorical", "x")["coefficients"]["x"], dict)


def test_a_target_of_amounts_is_a_number_and_yes_and_no_are_labels(here, capsys):
    table = rows()
    table["cost"] = table.pay.map("${:,.2f}".format)
    table.to_csv("t.csv", index=False)
    assert fit(capsys, "t.csv", "--drop", "cost,pay")["classes"] == ["no", "yes"]
    regression = ["fit", "t.csv", "--target", "cost", "--drop", "y", *FAST, "--save", "m.skops"]
    assert document(capsys, *regression)["task"] == "regression"
    audit = document(capsys, "audit", "m.skops", "t.csv", "--target", "cost")
    assert audit["task"] == "regression"


def test_a_target_of_amounts_is_a_number_for_a_drift_without_a_model(here, capsys):
    table = rows(80).drop(columns="y")
    table["pay"] = table.pay.map("${:,.2f}".format)
    table[:40].to_csv("old.csv", index=False)
    table[40:].to_csv("new.csv", index=False)
    told = document(capsys, "drift", "old.csv", "new.csv", "--target", "pay")
    assert told["label_shift"]["labels"] is None
    assert {line["column"] for line in told["by_column"]} == {"age"}


def test_excel_files(here, capsys):
    pytest.importorskip("openpyxl")
    table = rows()
    with pd.ExcelWriter("t.xlsx") as book:
        table.to_excel(book, sheet_name="people", index=False)
        table.to_excel(book, sheet_name="more", index=False)
    table.to_csv("t.csv", index=False)
    found = fit(capsys, "t.xlsx")
    assert found["coefficients"] == pytest.approx(fit(capsys, "t.csv")["coefficients"])
    assert any("first sheet, 'people'" in note for note in found["notes"])
    Path("old.xls").write_bytes(b"\xd0\xcf\x11\xe0" + b"\0" * 600)
    assert "old Excel file" in refused(capsys, "old.xls")


def test_two_fractions_are_labels(here, capsys):
    found = rows()
    found["y"] = np.where(found.y == "yes", 0.5, 1.5)
    found.to_csv("fractions.csv", index=False)
    assert fit(capsys, "fractions.csv")["classes"] == ["0.5", "1.5"]


def test_texts_nearly_all_distinct_are_not_sent_to_regression(here, capsys):
    found = rows()
    found["y"] = [f"name {k}" for k in range(len(found))]
    found.to_csv("names.csv", index=False)
    said = refused(capsys, "names.csv")
    assert "60 distinct values in 60 rows; use another --target" in said
    assert "regression" not in said


def test_infinite_values_are_called_infinite_by_fit_and_predict(here, capsys):
    table = rows()
    table.loc[[3, 4], "pay"] = np.inf
    table.loc[5, "pay"] = np.nan
    table["never"] = np.inf
    table.to_csv("t.csv", index=False)
    notes = fit(capsys, "t.csv", "--save", "m.skops")["notes"]
    assert (
        "column 'pay': 1 missing value and 2 infinite values are replaced by the median." in notes
    )
    assert any("'never' has no finite values" in note for note in notes)
    told = " ".join(done(capsys, "predict", "m.skops", "t.csv", "--out", "p.csv").err.split())
    assert "1 missing value is replaced as in the training data." in told
    assert "2 infinite values are replaced as missing ones are" in told


@pytest.mark.parametrize("name", ["x.parquet", "x.xlsx"])
def test_a_text_under_the_name_of_another_kind_is_refused(here, capsys, name):
    Path(name).write_text("a note\n")
    assert "does not hold one" in refused(capsys, name)
    rows().to_csv(name, index=False)
    assert "rename it to .csv" in refused(capsys, name)


def test_rare_categories_are_called_other_values(here, capsys):
    table = rows(120)
    table["town"] = [f"t{k % 40}" if k % 2 else f"t{k % 10}" for k in range(120)]
    table.to_csv("t.csv", index=False)
    found = fit(capsys, "t.csv", "--save", "m.skops")
    assert "other values" in found["coefficients"]["town"]
    told = done(capsys, "audit", "m.skops", "t.csv", "--target", "y", "--json").out
    assert "infrequent" not in json.dumps(found) + told


@pytest.mark.parametrize("value", ["1,2{:02d} kg", "1.2{:02d} kg", "07:{:02d}"])
def test_what_may_be_a_number_is_told(here, capsys, value):
    table = rows()
    table["x"] = [value.format(k % 5) for k in range(60)]
    table.to_csv("t.csv", index=False, sep=";")
    notes = fit(capsys, "t.csv", "--decimal", ".")["notes"]
    assert any("'x' holds texts like" in note and "plain numbers" in note for note in notes)
    table["x"] = [value.format(k) for k in range(60)]
    table.to_csv("t.csv", index=False, sep=";")
    notes = fit(capsys, "t.csv", "--decimal", ".")["notes"]
    assert any("60 distinct texts" in note for note in notes)


def test_labels_that_differ_in_case_only_are_told(here, capsys):
    table = rows()
    table["y"] = np.where(np.arange(60) % 3 == 0, table.y.str.upper(), table.y)
    table.loc[7, "y"] = None
    table.to_csv("t.csv", index=False)
    notes = fit(capsys, "t.csv")["notes"]
    assert any("labels 'NO', 'no' of the target 'y' differ in case" in note for note in notes)
    assert "1 row without a target is left out." in notes


def test_a_line_above_the_names_is_said_to_be_one(here, capsys):
    Path("t.csv").write_text("exported by a tool\n" + rows().to_csv(index=False))
    assert "more fields than the first line, which must name the columns" in refused(
        capsys, "t.csv"
    )


def test_many_names_and_a_quote_that_is_not_closed(here, capsys):
    from otdro.cli import reading

    names = [f"column_{k}" for k in range(20_000)]
    Path("wide.csv").write_text(",".join(names) + "\n" + ",".join("1" * 20_000) + "\n")
    assert list(reading.read(reading.locate("wide.csv")).columns) == names
    Path("t.csv").write_text('a,"y\n' + "1,u\n" * 60_000)
    assert "t.csv is not a regular table" in refused(capsys, "t.csv")
    Path("t.csv").write_text('a,y\n1,"u\n' + "1,u\n" * 60_000)
    assert "t.csv is not a regular table" in refused(capsys, "t.csv")


def test_codes_and_placeholders_are_not_numbers_in_silence(here, capsys):
    table = rows()
    table["zip"] = [f"{k:05d}" for k in np.random.default_rng(1).integers(100, 99999, 60)]
    table.loc[:4, "age"] = -999
    table.to_csv("t.csv", index=False)
    notes = " ".join(done(capsys, "fit", "t.csv", *SHARED).err.split())
    assert "column 'zip' is read as numbers, without zeros in front as in 0" in notes
    assert "--categorical zip" in notes
    assert "column 'age' holds -999 5 times, far below its other values" in notes
    # one such value, or one among others like it, stands for itself
    table = rows()
    table.loc[0, "age"] = -999
    table.loc[:4, "pay"] = [-999, -999, -998, -997, -996]
    table.to_csv("t.csv", index=False)
    assert "holds -999" not in done(capsys, "fit", "t.csv", *SHARED).err
