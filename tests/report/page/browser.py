"""Chromium, as Debian installs it."""

import shutil

from playwright.sync_api import Browser, Playwright

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def launched(playwright: Playwright) -> Browser:
    """A headless one; without a sandbox, which root cannot have."""
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    return playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
