# SPDX-License-Identifier: BSD-3-Clause
"""Sphinx's settings for //docs:site. Its folder is a copy of the tree's pages (build_site.py)."""

project = "torch_openreg"
extensions = ["myst_parser", "sphinx.ext.napoleon", "autoapi.extension"]
html_theme = "furo"
html_title = "torch_openreg"
# Most code blocks are commands, or C++ and Python without a mark.
highlight_language = "none"

myst_heading_anchors = 4
myst_enable_extensions = ["fieldlist"]
# No warning for what only GitHub needs.
suppress_warnings = [
    "autoapi.python_import_resolution",
    "myst.header",
    "ref.python",  # a field called bytes is taken for the type
]

# Attributes that a docstring describes are fields of a dataclass, too: once is enough.
napoleon_use_ivar = True

# The reference is read from sources: neither torch nor the device is needed here.
autoapi_dirs = ["api/torch"]
autoapi_root = "reference"
autoapi_python_use_implicit_namespaces = True
autoapi_add_toctree_entry = False
autoapi_keep_files = False
autoapi_member_order = "groupwise"
autoapi_options = ["members", "undoc-members", "show-module-summary", "imported-members"]
exclude_patterns = ["api"]
