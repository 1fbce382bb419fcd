"""Screenshots of the report: light, dark, on a phone, on paper. Needs Chromium (apt: chromium).

    python docs/screenshots.py [folder]      (default: scratch/screenshots)

They are of a fit to scikit-learn's breast cancer data, with the rows of the second half drifted.
Look at them after every change of the page. The centre of the light one is the picture of
docs/report.md.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

from otdro import DROClassifier, audit, report

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from chromium import MISSING, Browser, program  # noqa: E402

if program() is None:
    sys.exit(MISSING)
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "scratch" / "screenshots"
folder.mkdir(parents=True, exist_ok=True)

data = load_breast_cancer(as_frame=True)
X = (data.data - data.data.mean()) / data.data.std()
y = data.target_names[data.target]
rows, new = np.arange(0, 569, 2), np.arange(1, 569, 2)
model = DROClassifier().fit(X.iloc[rows], y[rows])
drifted = X.iloc[new] + 0.6 * np.eye(30)[21]
found = audit(model, X.iloc[rows], y[rows], new=(drifted, y[new]), random_state=0)

SHOTS = {
    "report_light": {},
    "report_dark": {"dark": True},
    "report_phone": {"width": 390, "height": 844},
    "report_without_scripts": {"scripts": False},
}
browser = Browser()
with tempfile.TemporaryDirectory() as place:
    file = report.write(Path(place) / "page.html", found, model=model, title="Breast cancer")
    for name, options in SHOTS.items():
        page = browser.page(file, **options)
        if options.get("scripts", True):
            # two thirds up the slider: rows have moved and the figures have changed
            page.value(
                "(() => { const s = document.getElementById('delta'); s.value = 12;"
                "s.dispatchEvent(new Event('input')); })()"
            )
        page.screenshot(folder / f"{name}.png")
        if not options:
            (folder / "report.pdf").write_bytes(page.pdf())
            page.value("document.getElementById('breaking').scrollIntoView()")
            page.screenshot(ROOT / "docs" / "figures" / "report.png", whole=False)
        print(f"{name}: loaded in {page.seconds:.2f} s")
        page.close()
browser.close()
