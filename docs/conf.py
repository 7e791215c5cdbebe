"""Sphinx with MyST: `python -m sphinx -W --keep-going docs docs/_build` (extra `[docs]`)."""

import importlib.metadata

project = "bert_jax"
author = "the authors of bert_jax"
release = importlib.metadata.version("bert_jax")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "bert_jax"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # signatures stay short; docstrings state shapes, dtypes and units
autodoc_member_order = "bysource"
autodoc_mock_imports = ["apache_beam"]
