"""A headless Chromium; where there is none the tests skip, unless they are told not to."""

import base64
import json
import os
import shutil
from pathlib import Path

import pytest

REQUIRED = "FEDGRANGER_REQUIRE_BROWSER"


def _missing():
    try:
        import selenium  # noqa: F401
    except ModuleNotFoundError:
        return "selenium is not installed"
    for name in ("chromium", "chromedriver"):
        if shutil.which(name) is None:
            return f"{name} is not installed"
    return None


@pytest.fixture(scope="session")
def browser():
    reason = _missing()
    if reason and os.environ.get(REQUIRED):
        pytest.fail(f"{reason}, and {REQUIRED} is set")
    if reason:
        pytest.skip(f"{reason}; on Debian: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def picture_folder(tmp_path_factory):
    """Where screenshots go for a person to look at: `FEDGRANGER_PICTURES`, or a temporary one."""
    folder = os.environ.get("FEDGRANGER_PICTURES")
    if folder is None:
        return tmp_path_factory.mktemp("pictures")
    os.makedirs(folder, exist_ok=True)
    return folder


class Opened:
    """A page in the browser, with what it logged and asked for since it was opened."""

    def __init__(self, driver, path, size=(1100, 900), theme="light"):
        from selenium.webdriver.support.ui import WebDriverWait

        self.driver = driver
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": theme}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        driver.get_log("browser"), driver.get_log("performance")
        driver.get(path.as_uri())
        WebDriverWait(driver, 20).until(lambda _: self._is_complete(path.as_uri()))

    def _is_complete(self, address):
        """Once, with three workers on two cores, a page was asked before it had drawn."""
        return self.script(
            "return document.readyState === 'complete' && location.href === arguments[0]", address
        )

    def script(self, text, *args):
        return self.driver.execute_script(text, *args)

    def messages(self):
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self):
        """Addresses of everything that was asked for over a network."""
        found = []
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                found.append(event["params"]["request"]["url"])
        return [url for url in found if not url.startswith(("file:", "data:"))]

    def choose(self, *, alpha=None, correction=None, test=None):
        """Use the controls as a person would: type, select."""
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys
        from selenium.webdriver.support.ui import Select

        if test is not None:
            Select(self.driver.find_element(By.ID, "test")).select_by_value(test)
        if correction is not None:
            Select(self.driver.find_element(By.ID, "correction")).select_by_value(correction)
        if alpha is not None:
            field = self.driver.find_element(By.ID, "alpha")
            field.send_keys(Keys.CONTROL, "a")
            field.send_keys(repr(alpha))

    def drawn(self):
        """Pairs (cause, effect) that the graph shows, by position of the client."""
        return {
            (int(cause), int(effect))
            for cause, effect in self.script(
                "return [...document.querySelectorAll('#graph .fg-edge')]"
                ".map(edge => [edge.dataset.cause, edge.dataset.effect])"
            )
        }

    def picture(self, folder, name):
        """Store a screenshot of the whole page."""
        size = self.script(
            "return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
        )
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], 12_000), "scale": 1}
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip}
        )
        (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


@pytest.fixture
def open_page(browser):
    return lambda path, **options: Opened(browser, path, **options)
