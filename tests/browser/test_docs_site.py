"""The site builds with no warning, holds every page, asks for nothing over a network.

Built once, in a process of its own: mkdocs and its plugins warn in ways that are errors here.
"""

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = ("mkdocs", "material", "mkdocstrings_handlers", "latex2mathml")
LOADING = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


def build(folder, config="mkdocs.yml"):
    absent = [name for name in PLUGINS if importlib.util.find_spec(name) is None]
    reason = f"{', '.join(absent)} not installed; pip install -e '.[docs]'"
    if absent and os.environ.get("FEDGRANGER_REQUIRE_BROWSER"):
        pytest.fail(reason)
    if absent:
        pytest.skip(reason)
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Resources(HTMLParser):
    """Addresses that a browser loads by itself."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name == LOADING.get(tag) and value]


def test_nothing_is_loaded_over_a_network(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        far = [url for url in Resources(page).found if re.match(r"(https?:)?//", url)]
        assert not far, (page.name, far)
    sheets = [text.read_text("utf-8") for text in site.rglob("*.css")]
    assert not [one for one in sheets if re.search(r"url\([\"']?(https?:)?//", one)]


def test_every_page_is_there_and_formulas_are_drawn(site):
    for page in (ROOT / "docs").rglob("*.md"):
        made = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        text = made.read_text("utf-8")
        assert "arithmatex" not in text, page.name
        formulas = page.read_text("utf-8").count("$$") // 2
        assert text.count('display="block"') >= formulas, page.name
    assert "<p>```" not in (site / "gallery.html").read_text("utf-8")


def test_the_reference_has_every_public_name(site):
    import fedgranger as fg

    text = (site / "api.html").read_text("utf-8")
    for name in {*fg.__all__} - {"__version__", "plot"}:
        assert f'id="fedgranger.{name}"' in text, name
    titles = re.findall(r"fedgranger\.plot\.(\w+)\s*<", text)
    assert {*fg.plot.__all__} <= {*titles}


def test_a_broken_link_fails_the_build(tmp_path):
    """A page of its own with the site's rules: a missing page and a missing anchor count."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# One\n\n[no page](no.md), [no anchor](#no)\n")
    rules = (ROOT / "mkdocs.yml").read_text()
    validation = rules[rules.index("validation:") :]
    config = f"site_name: x\ndocs_dir: docs\nplugins: []\nstrict: true\n{validation}"
    (tmp_path / "mkdocs.yml").write_text(config)
    done = build(tmp_path / "out", str(tmp_path / "mkdocs.yml"))
    assert done.returncode != 0
    assert "no.md" in done.stdout + done.stderr
    assert "#no" in done.stdout + done.stderr


def test_search_works_from_a_disk_and_asks_nobody(site, open_page):
    """Browsers allow no workers there: docs/iframe-worker.js stands in."""
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.expected_conditions import element_to_be_clickable
    from selenium.webdriver.support.ui import WebDriverWait

    page = open_page(site / "index.html")
    wait = WebDriverWait(page.driver, 20)
    page.script("document.querySelector('[data-md-toggle=search]').click()")
    wait.until(element_to_be_clickable((By.NAME, "query"))).send_keys("semicolon")
    links = (By.CSS_SELECTOR, ".md-search-result__link")
    wait.until(lambda driver: driver.find_elements(*links))
    targets = [one.get_attribute("href") for one in page.driver.find_elements(*links)]
    assert any("own-data.html" in target for target in targets)
    assert page.requests() == []
    assert page.messages() == []
