"""A whole experiment, its page, and a browser that finds fault with whatever the page does wrong."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from trilab.report import make_report
from trilab.report.page import page_html
from trilab.report.record import json_text

from ..conftest import adds_runs
from .browser import CHROMIUM, launched
from .fixture import leave_all

LEVELS = {"none": 2.521, "cumsum": 2.514, "window": 2.506, "table": 2.466, "attention": 2.413, "softmax": 2.47}


@dataclass(frozen=True)
class Written:
    """A page in a file, and what report.json holds."""

    path: Path
    record: dict[str, Any]

    @property
    def html(self) -> str:
        """The page."""
        return self.path.read_text(encoding="utf-8")


def written(experiment: Path) -> Written:
    """The page of an experiment."""
    report = make_report(experiment)
    path = experiment / "report.html"
    path.write_bytes(page_html(report).encode())
    return Written(path, json.loads(json_text(report)))


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Six strategies with three seeds, everything recorded, one failed run, one that has not begun."""
    experiment = tmp_path_factory.mktemp("outputs") / "part03"
    experiment.mkdir()
    add_run = adds_runs(experiment)
    for name, level in LEVELS.items():
        for seed in range(3):
            leave_all(add_run, name, level, seed=seed)
    add_run("gru", summary={"status": "failed", "error": {"type": "BadInput", "message": "too steep"}})
    plan = {"run": "attention-seed3-00000000", "label": "attention", "seed": 3, "max_steps": 3000}
    (experiment / "planned.jsonl").write_text(f"{json.dumps(plan)}\n")
    return written(experiment)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here (Debian, Ubuntu: apt install chromium)")
    with sync_playwright() as playwright:
        started = launched(playwright)
        yield started
        started.close()


Open = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Opens a file without network; at the end no error was thrown or logged, and nothing else was asked for."""
    faults: list[str] = []
    contexts = []

    def open_page(path: Path, *, width: int = 1280, dark: bool = False, script: bool = True) -> Page:
        context = browser.new_context(
            offline=True,
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            java_script_enabled=script,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("console", lambda said: faults.append(f"{said.type}: {said.text}"))
        page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: request.url.startswith(("file:", "data:")) or faults.append(f"request: {request.url}"),
        )
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not faults
