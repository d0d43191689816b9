"""How large the report is and how long a browser takes to open it.

    python -m benchmarks.report

Needs chromium and chromedriver. From the start of the navigation to the page being drawn and
its script done, best and median of several. Exit code 1 when the page for 64 clients takes more
than a second, or a page is larger than 2 MB (6 clients) or 6 MB (64).
"""

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.fake_runs import made_report

LIMITS = {2: 2e6, 6: 2e6, 64: 6e6}
REPEATS = 7
READY = """
const done = arguments[0];
requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
"""


def main():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.page_load_strategy = "eager"
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        for count, limit in LIMITS.items():
            names = [f"client {k:02d}" for k in range(count)]
            path = made_report(Path(folder), names)[0]
            times = []
            for _ in range(REPEATS):
                driver.get("about:blank")
                driver.get(path.as_uri())
                times.append(driver.execute_async_script(READY))
            size = path.stat().st_size
            print(
                f"{count:>3} clients: {size / 1e6:.2f} MB, drawn after {min(times):.0f} ms "
                f"(median {statistics.median(times):.0f} ms)"
            )
            if size > limit:
                failures.append(f"{count} clients: {size} bytes")
            if min(times) > 1000:
                failures.append(f"{count} clients: {min(times):.0f} ms")
    driver.quit()
    print("\n".join(failures) or "all limits kept")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
