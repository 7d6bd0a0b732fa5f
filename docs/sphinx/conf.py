# SPDX-License-Identifier: BSD-3-Clause
"""Sphinx's settings for //docs:site. Sphinx reads a copy of the pages (build_site.py)."""

project = "torch_openreg"
extensions = ["myst_parser", "sphinx.ext.napoleon", "autoapi.extension"]
html_theme = "furo"
html_title = "torch_openreg"
# Most code blocks are commands, or are C++ or Python without a language name.
highlight_language = "none"

myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]
# Suppress warnings about markup that only GitHub needs.
suppress_warnings = [
    "autoapi.python_import_resolution",
    "myst.header",
    "ref.python",  # Sphinx mistakes a field named bytes for the type.
]

# The attributes that a docstring describes are also the fields of a dataclass. List them only once.
napoleon_use_ivar = True

# The reference is generated from the sources, so neither torch nor the device is needed.
autoapi_dirs = ["api/torch"]
autoapi_root = "reference"
autoapi_python_use_implicit_namespaces = True
autoapi_add_toctree_entry = False
autoapi_keep_files = False
autoapi_member_order = "groupwise"
autoapi_options = ["members", "undoc-members", "show-module-summary", "imported-members"]
exclude_patterns = ["api"]
