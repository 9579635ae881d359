"""Sphinx: the same Markdown that is read in the repository, as a site. `make docs` builds it and takes every warning as an error."""

from __future__ import annotations

import runbook

project = "runbook"
author = "the runbook authors"
release = runbook.__version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"runbook {release}"
exclude_patterns = ["images/*.py", "_build"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# A console session, a YAML excerpt with `…` and a JSON answer that was shortened are shown as they are: not every one of them can be lexed.
suppress_warnings = ["misc.highlighting_failure"]
