"""How Sphinx builds the site: ``make docs``. Nothing is fetched from the network."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

# the gallery runs on two cores beside Sphinx: one BLAS thread per process
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import docstrings  # noqa: E402
import mathml  # noqa: E402

import otdro  # noqa: E402

project = "otdro"
author = "the otdro developers"
copyright = "the otdro developers, BSD-3-Clause"
version = release = otdro.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "auto_examples/**/*.ipynb", "auto_examples/**/*.py"]
templates_path = ["_templates"]
nitpicky = False

myst_enable_extensions = ["attrs_inline", "dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
highlight_language = "none"

autosummary_generate = True
# names that differ by case alone are one file on some systems
autosummary_filename_map = {
    "otdro.Audit": "otdro.Audit-class",
    "otdro.Drift": "otdro.Drift-class",
    "otdro.Stability": "otdro.Stability-class",
    "otdro.radius.Path": "otdro.radius.Path-class",
}
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",
    # recipes without a picture: the page on own losses and costs shows them
    "ignore_pattern": r"custom_",
    "reset_modules": ("matplotlib", "gallery_style.tight"),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "min_reported_time": 1e9,
    "subsection_order": [
        f"../examples/{name}" for name in ("ball", "cost", "support", "delta", "new_data")
    ],
    "within_subsection_order": "ExampleTitleSortKey",
    "remove_config_comments": True,
    "write_computation_times": False,
    "backreferences_dir": None,
}

html_theme = "pydata_sphinx_theme"
html_title = "otdro"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
# pages without pages below them have nothing to show at the side
html_sidebars: dict[str, list[str]] = {
    page.stem: [] for page in HERE.glob("*.md") if page.stem != "api"
}
html_theme_options = {
    "logo": {"text": "otdro"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "navigation_with_keys": False,
}


def setup(app: Any) -> None:
    """Join the hooks."""
    docstrings.setup(app)
    mathml.setup(app)
