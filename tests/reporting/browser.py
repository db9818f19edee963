"""A real browser without a window, driven through Selenium."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


@contextmanager
def started() -> Iterator[Any]:
    """A headless Chromium; the test is skipped where there is none."""
    pytest.importorskip("selenium", reason='needs Selenium: pip install -e ".[test]"')
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("needs a Chromium and its driver; on Debian: apt-get install chromium chromium-driver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-extensions"):
        options.add_argument(argument)
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.add_argument("--no-sandbox")  # Chromium has none for root, as in containers
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    try:
        yield chrome
    finally:
        chrome.quit()


def show(chrome: Any, path: Path, width: int = 1280, height: int = 800, dark: bool = False) -> None:
    """Opens a file in a window of that size, with empty logs."""
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    chrome.get_log("browser")
    chrome.get_log("performance")
    chrome.get("about:blank")
    chrome.get(path.as_uri())


def requests(chrome: Any) -> list[str]:
    """The addresses that the page asked for since it was opened, the pictures that it holds itself apart."""
    messages = [json.loads(entry["message"])["message"] for entry in chrome.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [address for address in asked if not address.startswith(("data:", "about:"))]
