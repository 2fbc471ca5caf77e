"""A real browser: Debian's chromium, without a window, driven by its chromedriver."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # not in the environments of the large frameworks, which load this file too
    from selenium import webdriver

NAMES = ("chromium", "chromium-browser", "google-chrome")


@functools.cache
def why_not() -> str | None:
    """Why there is none here."""
    missing = [
        name
        for name, found in (("chromium", _program()), ("chromedriver", shutil.which("chromedriver")))
        if not found
    ]
    return f"{' and '.join(missing)} not installed" if missing else None


def _program() -> str | None:
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def started(*, javascript: bool = True) -> Iterator[webdriver.Chrome]:
    """A browser that runs while the block does."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = _program() or ""
    arguments = [
        "--headless=new",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
        "--window-size=1100,800",
    ]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # it does not start as root with one
    for argument in arguments:
        options.add_argument(argument)
    if not javascript:
        options.add_experimental_option("prefs", {"profile.managed_default_content_settings.javascript": 2})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        driver.set_page_load_timeout(60)
        yield driver
    finally:
        driver.quit()


def look(driver: webdriver.Chrome, *, dark: bool = False, narrow: bool = False) -> None:
    """A browser with a person's settings, on a phone or not."""
    scheme: dict[str, Any] = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    width, height = (360, 740) if narrow else (1100, 800)
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": narrow}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
