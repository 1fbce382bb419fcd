"""The record of an audit: what a reviewer needs, and what differs between two of them."""

import json
from datetime import datetime

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.linear_model import LogisticRegression, Ridge

import otdro
from otdro import audit
from otdro.inspection.record import changes


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 3))
    return X, np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0, "yes", "no")


def document(X, y, C=1.0, **options):
    model = LogisticRegression(C=C).fit(*rows())
    # through JSON, as from a file
    return json.loads(json.dumps(audit(model, X, y, **options).to_dict()))


def test_the_record_says_what_was_measured_on_what_by_what():
    X, y = rows()
    record = document(X, y, random_state=7)["record"]
    assert record["schema"] == 1
    assert datetime.fromisoformat(record["date"]).tzinfo is not None
    assert record["versions"]["otdro"] == otdro.__version__
    assert record["versions"]["scikit-learn"] == sklearn.__version__
    assert record["seed"] == 7
    assert record["conditions"]["order"] == 1
    constant = max(np.mean(y == "yes"), np.mean(y == "no"))
    assert record["metric"]["threshold"] == pytest.approx(constant)
    assert record["data"]["rows"] == 60
    assert len(record["data"]["sha256"]) == 64


def test_the_same_audit_has_no_changes_but_its_date():
    X, y = rows()
    assert changes(document(X, y), document(X, y)) == []
    # as arrays or sparse rows, the certificate is the same; the bytes of the rows are not
    again = changes(document(X, y), document(sparse.csr_matrix(X), y))
    assert again == ["the audited rows are others."]


def test_changes_are_named():
    X, y = rows()
    old = document(X, y)
    other_rows = changes(old, document(*rows(1)))
    assert other_rows[0] == "the audited rows are others."
    assert any(
        s.startswith("the breaking points, constant: ") and ", now " in s for s in other_rows
    )
    assert not any("coefficients" in s for s in other_rows)
    other_model = changes(old, document(X, y, C=0.01))
    assert other_model[0] == "the coefficients of the model are others."
    other_order = changes(old, document(X, y, order=2, random_state=3))
    assert "the conditions, order: 1, now 2." in other_order
    assert "the seed: None, now 3." in other_order
    grouped = document(X, y, groups=np.resize(["a", "b"], 60))
    assert "the breaking points of groups, a: new." in changes(old, grouped)


def test_infinite_values_are_those_of_json():
    X = rows()[0]
    fresh = audit(Ridge().fit(X, X[:, 0]), X, X[:, 0]).to_dict()
    stored = json.loads(json.dumps(fresh).replace("Infinity", "null"))
    assert changes(stored, fresh) == []


@pytest.mark.parametrize("old", [{}, {"record": {"schema": 99}}])
def test_a_document_of_another_schema_is_refused(old):
    with pytest.raises(ValueError, match="record of schema 1"):
        changes(old, document(*rows()))
