"""How `make docs` builds the site: Sphinx reads the repository, so that links between docs and results hold."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import error_pages

from trustirl.core.machine import installed

project = "TrustIRL"
author = "The TrustIRL authors"
copyright = "The TrustIRL authors, MIT licence"
release = installed("trustirl") or ""

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "results/*/README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
templates_path: list[str] = []

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
# A notebook that fails fails the build; what has run before is taken from the cache.
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_execution_show_tb = True
nb_output_stderr = "remove"
nb_execution_in_temp = True
nb_execution_cache_path = str(Path(__file__).parents[1] / "build" / "notebooks")

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_mock_imports: list[str] = []
nitpicky = False

html_theme = "furo"
html_title = "TrustIRL"
html_static_path = ["site"]
html_css_files = ["tables.css"]
html_extra_path = ["start"]  # index.html, which leads to docs/index.html
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

error_pages.write(Path(__file__).parent)
