"""Models on disk: what is saved is what is loaded, and nothing else is."""

import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import otdro
from otdro import DROClassifier

skops = pytest.importorskip("skops.io")
X, Y = load_iris(return_X_y=True)


def test_what_is_saved_is_loaded(tmp_path):
    model = make_pipeline(StandardScaler(), DROClassifier(cost="linf", delta=0.05)).fit(X, Y)
    otdro.save(model, tmp_path / "m.skops")
    again = otdro.load(str(tmp_path / "m.skops"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again[-1].delta_ == 0.05
    assert [p.name for p in tmp_path.iterdir()] == ["m.skops"]


@pytest.mark.parametrize("name", ["m.pkl", "m.PKL", "m.pickle", "m.joblib"])
def test_a_pickle_is_refused_by_name(tmp_path, name):
    model = DROClassifier(cost="euclidean", delta=0.05).fit(X, Y)
    with pytest.raises(ValueError, match=r"runs code when it is loaded.*name it m\.skops"):
        otdro.save(model, tmp_path / name)
    (tmp_path / name).write_bytes(pickle.dumps(model))
    with pytest.raises(ValueError, match="named as a pickle"):
        otdro.load(tmp_path / name)


def test_an_unfitted_model_is_refused(tmp_path):
    for model in (DROClassifier(), make_pipeline(StandardScaler(), DROClassifier())):
        with pytest.raises(ValueError, match="is not fitted, so that there is nothing to save"):
            otdro.save(model, tmp_path / "m.skops")
    assert list(tmp_path.iterdir()) == []


class Stranger:
    """A type that no model of otdro has."""

    def predict(self, X):
        return X


def test_what_is_no_model_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such model"):
        otdro.load(tmp_path / "none.skops")
    (tmp_path / "text.skops").write_text("text")
    with pytest.raises(ValueError, match="is not a model saved by"):
        otdro.load(tmp_path / "text.skops")
    skops.dump(Stranger(), tmp_path / "s.skops")
    with pytest.raises(ValueError, match=r"types that no model of otdro has: .*Stranger"):
        otdro.load(tmp_path / "s.skops")
    with pytest.raises(ValueError, match=r"holds .*Stranger, which otdro\.load would refuse"):
        otdro.save(Stranger(), tmp_path / "t.skops")
    with pytest.raises(TypeError, match="is not a model"):
        otdro.save({"a": 1}, tmp_path / "t.skops")
    assert not (tmp_path / "t.skops").exists()


def test_the_package_is_the_command_line_too():
    done = subprocess.run(
        [sys.executable, "-m", "otdro", "--version"], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == otdro.__version__


def test_a_model_of_another_version_is_refused_with_what_to_do(tmp_path):
    model = otdro.DROClassifier(cost="euclidean", delta=0.1).fit([[0.0], [1.0]], ["a", "b"])
    otdro.save(model, tmp_path / "new.skops")
    with (
        zipfile.ZipFile(tmp_path / "new.skops") as new,
        zipfile.ZipFile(tmp_path / "old.skops", "w") as old,
    ):
        for name in new.namelist():
            old.writestr(name, new.read(name).replace(b"otdro.estimators.", b"otdro.estimators.x"))
    with pytest.raises(ValueError, match=r"saved by another version of otdro .*Fit it again"):
        otdro.load(tmp_path / "old.skops")
