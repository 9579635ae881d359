"""The documentation builds as a site: every warning is an error, every page can be reached, every link of ours leads somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r'href="([^"]+)"')

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built pages."""
    out = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-n", "-q", str(ROOT / "docs"), str(out)]
    made = subprocess.run(argv, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return out


def test_it_builds_without_a_warning_and_has_every_page(site):
    sources = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert sources <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_every_link_of_ours_leads_to_a_page_and_a_place_on_it(site):
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    lost = []
    for page, text in pages.items():
        for link in LINK.findall(text):
            address, fragment = urldefrag(unquote(re.sub(r"\?[^#]*", "", link)))
            target = (page.parent / address).resolve() if address else page
            if "://" in address or address.startswith(("mailto:", "data:")):
                continue
            if not target.exists() or (fragment and target in pages and f'id="{fragment}"' not in pages[target]):
                lost.append(f"{page.relative_to(site)}: {link}")
    assert not lost, "\n".join(lost[:20])
