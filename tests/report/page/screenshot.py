"""A picture of a report's page: python -m tests.report.page.screenshot OUT.png outputs/part03

Needs a Chromium; `--width 390 --height 844 --dark --whole` for another window, the dark theme, the whole page.
"""

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

from trilab.report import make_report
from trilab.report.page import page_html

from .browser import launched


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description="Write a picture of the page of an experiment's report.")
    parser.add_argument("picture", type=Path)
    parser.add_argument("experiment", type=Path)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=1500)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--whole", action="store_true")
    given = parser.parse_args()
    html = page_html(make_report(given.experiment))
    with sync_playwright() as playwright:
        browser = launched(playwright)
        page = browser.new_page(
            viewport={"width": given.width, "height": given.height},
            device_scale_factor=given.scale,
            color_scheme="dark" if given.dark else "light",
        )
        page.set_content(html)
        page.screenshot(path=given.picture, full_page=given.whole)
        browser.close()


if __name__ == "__main__":
    main()
