"""The page in a browser: it moves as Python computes, by mouse and keys, in every dress."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from chromium import MISSING, Browser, program
from otdro import DROClassifier, audit, report
from otdro.costs import Mahalanobis
from otdro.inspection.summary import share_in_words
from otdro.report.pictures import number

pytestmark = pytest.mark.skipif(program() is None, reason=MISSING)

HOSTILE = [
    "<script>document.title='broken'</script>",
    '"><img src=x onerror="document.title=\'broken\'">',
    "\u05e9\u05dc\u05d5\u05dd \u202eright to left",
    "n" * 10_000,
]
#: Pixels of a picture's unit to which lines are written.
PIXEL = 0.02
#: Seconds in which a page must be usable; the machine may be busy, so that this is not the bar.
USABLE = 5.0


@pytest.fixture(scope="module")
def browser():
    found = Browser()
    yield found
    found.close()


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((90, 3))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] + 0.6 * rng.standard_normal(90) > 0, "yes", "no")
    cost = Mahalanobis(np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]]))
    model = DROClassifier(cost=cost, order=2, delta=0.05).fit(X, y)
    return model, audit(model, X, y)


@pytest.fixture(scope="module")
def file(fitted, tmp_path_factory):
    model, found = fitted
    return report.write(tmp_path_factory.mktemp("page") / "page.html", found, model=model)


@pytest.fixture(scope="module")
def shared(browser, file):
    """A page that tests move about, each from where the last left it."""
    page = browser.page(file)
    yield page
    assert page.errors() == []
    assert page.requests() == []
    page.close()


def given(page):
    return json.loads(page.text("data"))


def move(page, stop):
    """Move the slider as a reader does."""
    page.value(
        f"(() => {{ const s = document.getElementById('delta'); s.value = {stop};"
        "s.dispatchEvent(new Event('input')); s.dispatchEvent(new Event('change')); })()"
    )


def choose(page, x, y):
    """Choose both axes by number."""
    for name, k in (("x", x), ("y", y)):
        page.value(
            f"(() => {{ const s = document.getElementById('axis-{name}'); s.value = '{k}';"
            "s.dispatchEvent(new Event('change')); })()"
        )


def lines(page, group):
    """Return the lines of a group, (k, 2, 2), in units of the picture."""
    found = page.value(
        f"[...document.querySelectorAll('#{group} line')].map(l => ['x1', 'y1', 'x2', 'y2']"
        ".map(a => Number(l.getAttribute(a))))"
    )
    return np.reshape(found, (-1, 2, 2))


def in_data(page, points, x, y):
    """Return points of the picture in the units of the axes, and the size of a pixel there."""
    left, top, width, height = given(page)["frame"]
    a, b = (given(page)["axes"][k] for k in (x, y))
    unit = np.array([(a["high"] - a["low"]) / width, -(b["high"] - b["low"]) / height])
    start = np.array([a["low"] - left * unit[0], b["high"] - top * unit[1]])
    return start + points * unit, np.abs(unit)


def axis_number(page, start):
    """Return the number of the axis whose label begins with a text."""
    labels = [axis["across"].strip("\u2068\u2069") for axis in given(page)["axes"]]
    return next(k for k, label in enumerate(labels) if label.startswith(start))


@pytest.mark.parametrize("stop", [0, 5, 13, -1])
def test_slider_changes_what_is_printed(shared, fitted, stop):
    _, found = fitted
    stop = stop % len(given(shared)["deltas"])
    delta = given(shared)["deltas"][stop]
    move(shared, stop)
    assert shared.text("delta-out") == shared.text("at-delta") == number(delta)
    assert shared.text("at-accuracy") == share_in_words(found.accuracy(delta))
    assert shared.text("at-risk") == number(found.risk(delta))
    assert share_in_words(found.accuracy(delta)) in shared.text("live")
    said = shared.value("document.getElementById('delta').getAttribute('aria-valuetext')")
    assert number(found.risk(delta)) in said


def test_slider_moves_the_rows_that_the_adversary_moves(shared, fitted):
    _, found = fitted
    for stop in (0, 8, 16):
        move(shared, stop)
        shares = np.array(
            shared.value("[...document.querySelectorAll('#ends path')].map(p => "
                         "Number(p.getAttribute('opacity')))")
        )  # fmt: skip
        expected = found.moved(given(shared)["deltas"][stop]) / found.weights
        assert_allclose(shares, expected, atol=0.0051)


def test_moved_rows_end_at_their_counterfactuals(shared, fitted):
    _, found = fitted
    x, y = axis_number(shared, "x0"), axis_number(shared, "x2")
    choose(shared, x, y)
    ends = shared.value(
        "[...document.querySelectorAll('#ends path')].map(p => "
        "p.getAttribute('transform').match(/-?[\\d.]+/g).map(Number))"
    )
    at, unit = in_data(shared, np.array(ends), x, y)
    assert_allclose((at - found.counterfactuals[:, [0, 2]]) / unit, 0, atol=0.1)


@pytest.mark.parametrize("axes", [("x0", "x1"), ("x2", "price"), ("the model", "x1")])
def test_boundaries_are_where_scores_are_zero(shared, fitted, axes):
    model, found = fitted
    x, y = (axis_number(shared, start) for start in axes)
    choose(shared, x, y)
    center, unit = found.X.mean(axis=0), np.eye(3)
    scale = found.scale
    cheapest = scale * np.linalg.eigh(scale[:, None] * model.cost_.matrix * scale)[1][:, 0]
    directions = {
        "x0": unit[0],
        "x1": unit[1],
        "x2": unit[2],
        "price": cheapest / np.linalg.norm(cheapest),
        "the model": model.coef_[0] / np.linalg.norm(model.coef_),
    }
    D = np.stack([directions[name] for name in axes])
    if D[1] @ center and axes[1] == "price":
        # an eigenvector has no sign: the page has the one whose largest entry is positive
        D[1] *= np.sign(D[1][np.abs(D[1]).argmax()])
    (ends,) = lines(shared, "own-lines")
    at, size = in_data(shared, ends, x, y)
    points = center + (at - D @ center) @ np.linalg.inv(D @ D.T) @ D
    # a pixel's hundredth of the score's slope in the plane
    slope = np.abs(np.linalg.inv(D @ D.T) @ D @ model.coef_[0]) @ size
    assert np.abs(model.decision_function(points)).max() <= 3 * PIXEL * slope


def test_cursors_follow_the_slider(shared):
    for stop in (2, 15):
        move(shared, stop)
        for name, places in given(shared)["cursors"].items():
            circle = f"document.querySelector('#cursor-{name} circle')"
            at = [float(shared.value(f"{circle}.getAttribute('{a}')")) for a in ("cx", "cy")]
            assert at == places[stop]


def test_keys_move_the_slider(shared):
    move(shared, 4)
    shared.value("document.getElementById('delta').focus()")
    shared.key("ArrowRight", 3)
    assert shared.text("at-delta") == given(shared)["texts"][7]["delta"]
    shared.key("Home")
    assert shared.text("at-delta") == "0"
    shared.key("End")
    assert shared.text("at-accuracy") == given(shared)["texts"][-1]["accuracy"]


def test_keys_walk_through_the_rows(shared, fitted):
    _, found = fitted
    shared.value("document.getElementById('view').focus()")
    shared.key("Escape")
    first = np.argsort(found.price, kind="stable")[:2]
    for k in first:
        shared.key("ArrowRight")
        assert shared.text("row-says").startswith(f"Row {k},")
    shared.key("Escape")
    assert shared.text("row-says").startswith("Point at a row")


def test_pointing_at_a_row_tells_of_it(shared):
    choose(shared, axis_number(shared, "x0"), axis_number(shared, "x1"))
    shared.value("document.getElementById('view').scrollIntoView({behavior: 'instant'})")
    place = shared.value(
        "(() => { const r = document.querySelector('#starts path').getBoundingClientRect();"
        "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
    )
    shared.send("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
    assert shared.text("row-says").startswith("Row 0,")
    shared.send("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert shared.text("row-says").startswith("Point at a row")


def test_buttons_show_rows_and_the_fitted_delta(shared, fitted):
    model, _ = fitted
    row = shared.value("document.querySelector('button[data-row]').dataset.row")
    shared.value("document.querySelector('button[data-row]').click()")
    assert shared.text("row-says").startswith(f"Row {row},")
    move(shared, 0)
    shared.value("document.getElementById('to-fitted').click()")
    assert shared.text("at-delta") == number(model.delta_)
    assert shared.text("at-risk") == number(model.robust_risk_)


def test_everything_that_acts_has_a_name(shared):
    unnamed = shared.value(
        "[...document.querySelectorAll('input, select, button, svg[role], table')].filter(e => "
        "!(e.labels?.length || e.getAttribute('aria-label') || e.textContent.trim())).length"
    )
    assert unnamed == 0
    tree = shared.send("Accessibility.getFullAXTree")["nodes"]
    roles = {(n["role"]["value"], n.get("name", {}).get("value", "")) for n in tree if "role" in n}
    assert any(r == "slider" and "Budget of the adversary" in name for r, name in roles)
    assert any(r == "combobox" and name.startswith("Across") for r, name in roles)


def test_without_scripts_there_is_a_picture(browser, file, fitted):
    model, found = fitted
    page = browser.page(file, scripts=False)
    text = page.send("DOMSnapshot.captureSnapshot", computedStyles=[])["strings"]
    assert share_in_words(found.accuracy(model.delta_)) in text
    assert any(part.startswith("Scripts are off") for part in text)
    document = page.send("DOM.getDocument")["root"]["nodeId"]
    for selector, count in (("#own-lines line", 1), ("#starts path", 90), (".control[hidden]", 1)):
        nodes = page.send("DOM.querySelectorAll", nodeId=document, selector=selector)["nodeIds"]
        assert len(nodes) == count
    page.close()


def contrast(page):
    """Return the ratio of luminances of the text and the page behind it."""
    colours = page.value(
        "(() => { const s = getComputedStyle(document.body);"
        "return [s.color, s.backgroundColor].map(c => c.match(/\\d+/g).map(Number)); })()"
    )
    light = []
    for colour in colours:
        c = np.array(colour) / 255
        linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        light.append(float(linear @ [0.2126, 0.7152, 0.0722]))
    return light, (max(light) + 0.05) / (min(light) + 0.05)


def test_dark_and_light_can_be_read(shared):
    for dark in (True, False):
        shared.media(dark=dark)
        (text, back), ratio = contrast(shared)
        assert ratio > 7
        assert (text > back) == dark


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_nothing_is_wider_than_the_screen(browser, file, width):
    page = browser.page(file, width=width)
    assert page.value("document.documentElement.scrollWidth") <= width
    page.close()


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_no_axis_label_is_cut_by_the_edge_of_its_picture(browser, tmp_path, width):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.where(X[:, 0] + X[:, 1] + 0.5 * rng.standard_normal(60) > 0, "yes", "no")
    found = audit(LogisticRegression().fit(X, y), X, y)
    names = [f"mean daily temperature of the outer casing at W{k}, in kelvin" for k in range(3)]
    found = replace(found, model=replace(found.model, names=names))
    page = browser.page(report.write(tmp_path / "page.html", found), width=width)
    cut = """(() => [...document.querySelectorAll('svg .label')].filter(text => {
        const label = text.getBoundingClientRect();
        const picture = text.ownerSVGElement.getBoundingClientRect();
        return label.top < picture.top - 1 || label.bottom > picture.bottom + 1
            || label.right > picture.right + 1 || label.left < picture.left - 4;
    }).map(text => text.textContent).join(', '))()"""
    assert page.value(cut) == ""
    choose(page, 2, 3)
    assert page.value(cut) == ""
    assert page.value("document.querySelector('.axis-y .label').textContent").startswith(
        "\u2068mean"
    )
    page.close()


@pytest.mark.parametrize("width", [320, 390, 1280])
@pytest.mark.parametrize("scale", [0.05, 3000.0])
def test_no_text_of_a_picture_overlaps_another(browser, tmp_path, width, scale):
    rng = np.random.default_rng(0)
    X = scale * rng.standard_normal((60, 3))
    y = np.where(X[:, 0] + X[:, 1] + 0.5 * scale * rng.standard_normal(60) > 0, "yes", "no")
    model = DROClassifier(cost="euclidean", order=2, delta=0.1 * scale**2).fit(X, y)
    found = audit(model, X, y)
    names = [f"mean daily temperature of the outer casing at W{k}, in kelvin" for k in range(3)]
    found = replace(found, model=replace(found.model, names=names))
    page = browser.page(report.write(tmp_path / "page.html", found, model=model), width=width)
    choose(page, 1, 2)
    overlaps = page.value("""(() => [...document.querySelectorAll('svg')].flatMap(svg => {
        const texts = [...svg.querySelectorAll('text')].map(t => [t, t.getBoundingClientRect()]);
        return texts.flatMap(([t, a], k) => texts.slice(k + 1).filter(([, b]) =>
            a.left < b.right - 1 && b.left < a.right - 1
            && a.top < b.bottom - 1 && b.top < a.bottom - 1
        ).map(([u]) => `${t.textContent} | ${u.textContent}`));
    }).join('; '))()""")
    assert overlaps == ""
    page.close()


def test_print_has_no_controls_and_some_pages(shared):
    shared.media(kind="print")
    hidden = "getComputedStyle(document.querySelector('.control')).display"
    assert shared.value(hidden) == "none"
    shared.media()
    assert shared.value(hidden) != "none"
    paper = shared.pdf()
    assert paper.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 12


def test_hostile_names_do_nothing(browser, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(60) > 0, *HOSTILE[:2])
    found = audit(LogisticRegression().fit(X, y), X, y, groups=np.resize(HOSTILE[2:], 60))
    found = replace(found, model=replace(found.model, names=HOSTILE))
    title = "</title>" + HOSTILE[0]
    page = browser.page(report.write(tmp_path / "page.html", found, title=title, notes=HOSTILE))
    for stop in (3, 9):
        move(page, stop)
    choose(page, 1, 2)
    page.value("document.getElementById('view').focus()")
    page.key("ArrowRight", 3)
    assert page.value("document.title") == title
    assert page.value("document.querySelectorAll('script').length") == 2
    assert page.value("document.querySelectorAll('img').length") == 0
    assert HOSTILE[0][:40] in page.value("document.body.innerText")
    assert page.value("document.documentElement.scrollWidth") <= 1280
    assert page.errors() == []
    assert page.requests() == []
    page.close()


def test_three_classes_have_boundaries_between_the_winners(browser, tmp_path):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((120, 2))
    y = np.array(["left", "middle", "right"])[np.digitize(X[:, 0], [-0.6, 0.6])]
    model = LogisticRegression().fit(X, y)
    page = browser.page(report.write(tmp_path / "page.html", audit(model, X, y)))
    choose(page, axis_number(page, "x0"), axis_number(page, "x1"))
    ends = lines(page, "own-lines")
    assert len(ends) >= 2
    at, unit = in_data(page, ends.reshape(-1, 2), axis_number(page, "x0"), axis_number(page, "x1"))
    best = np.sort(model.decision_function(at), axis=1)
    assert_allclose(
        best[:, -1], best[:, -2], atol=0.1 * float(unit.max()) * np.abs(model.coef_).max()
    )
    page.close()


def test_page_of_many_rows_is_small_and_quick(browser, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10_000, 50))
    y = X[:, 0] + X[:, 1] + rng.standard_normal(10_000) > 0
    model = DROClassifier(cost="euclidean", order=1, delta=0.05).fit(X, y)
    file = report.write(tmp_path / "page.html", audit(model, X, y), model=model)
    assert file.stat().st_size < 3e6
    page = browser.page(file)
    assert page.value("document.documentElement.dataset.ready") == "yes"
    assert page.seconds < USABLE
    page.close()
