"""The page in a real browser: what it shows, and that clicks and keys do what they say."""

import importlib.resources
import json
from pathlib import Path

import pytest
from playwright.sync_api import Page

from ..conftest import adds_runs
from .conftest import Open, Written, written
from .fixture import leave_all

HOSTILE = "</script></style><img src=x onerror=alert(1)>\"'&{{7*7}}\u202e\u0000\ud800"


def names(page: Page) -> list[str]:
    """The rows of the verdict table that are seen, from the top; no reference lines."""
    rows = page.locator("table.main tbody tr[data-row]:visible")
    return rows.evaluate_all("rows => rows.map(row => row.dataset.name)")


def test_every_number_of_the_table_is_that_of_report_json(whole: Written, opened: Open) -> None:
    page = opened(whole.path)
    cells = page.locator("table.main tr[data-row]").evaluate_all(
        "rows => rows.map(row => Object.fromEntries([...row.querySelectorAll('[data-key]')]"
        ".map(cell => [cell.dataset.key, cell.dataset.value])))"
    )
    assert [of["name"] for of in cells] == [row["name"] for row in whole.record["rows"]]
    for row, shown in zip(whole.record["rows"], cells, strict=True):
        comparison = row["comparisons"].get("val_loss", {})
        expected = {
            "difference": comparison.get("difference"),
            "low": comparison.get("low"),
            "high": comparison.get("high"),
            "p_holm": comparison.get("p_holm"),
            "seeds": len(row["runs"]),
            "loss": row["losses"]["val_loss"]["mean"],
            "std": row["losses"]["val_loss"]["std"],
            "best_val_loss": row["losses"]["best_val_loss"]["mean"],
            "test_loss": row["losses"]["test_loss"]["mean"],
            "n_params": row["n_params"],
            "training_flops": row["training_flops"],
            "seconds": row["seconds"],
        }
        assert {key: json.loads(shown[key] or "null") for key in expected} == expected
        assert shown["verdict"] == comparison.get("verdict", "baseline")
    lines = page.locator("tr[data-reference]").evaluate_all(
        "rows => rows.map(row => [row.dataset.reference, Number(row.querySelector('[data-key=loss]').dataset.value)])"
    )
    assert sorted(lines) == sorted([line["name"], line["loss"]] for line in whole.record["references"])


def test_columns_sort_by_mouse_and_by_keyboard_with_unknown_values_last(whole: Written, opened: Open) -> None:
    page = opened(whole.path)
    by_loss = [row["name"] for row in whole.record["rows"]]
    assert names(page) == by_loss
    page.get_by_role("button", name="loss", exact=True).click()
    assert names(page) == by_loss[::-1]
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("loss")
    page.get_by_role("button", name="strategy", exact=True).focus()
    page.keyboard.press("Enter")
    assert names(page) == sorted(by_loss)
    page.keyboard.press("Space")
    assert names(page) == sorted(by_loss)[::-1]
    assert page.locator("th[aria-sort=ascending]").count() == 0
    for _ in range(2):
        page.get_by_role("button", name="difference", exact=True).click()
        assert names(page)[-1] == "none"  # the baseline has no difference to itself


def test_the_filter_keeps_lines_by_name_and_verdict_and_says_how_many(whole: Written, opened: Open) -> None:
    page = opened(whole.path)
    page.get_by_label("Filter").fill("WIN")
    assert names(page) == ["window"]
    assert page.get_by_role("status").inner_text().startswith("1 of ")
    assert page.locator("#learning g.of-row.filtered").count() > 0
    page.get_by_label("Filter").fill("baseline")
    assert names(page) == ["none"]
    page.get_by_label("Filter").fill("")
    assert len(names(page)) == 6


def test_reference_lines_come_and_go(whole: Written, opened: Open) -> None:
    page = opened(whole.path)
    seen = page.locator("tr[data-reference]:visible")
    assert seen.count() == 7  # uniform, 1-gram, five that read windows
    page.get_by_label("those that read the whole past").check()
    assert seen.count() == 12
    page.get_by_label("reference lines").uncheck()
    assert seen.count() == 0


def test_a_chosen_row_is_shown_everywhere_until_escape(whole: Written, opened: Open) -> None:
    page = opened(whole.path)
    button = page.locator("table.main").get_by_role("button", name="attention")
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "true"
    place = button.get_attribute("data-pick")
    for region in ("#learning", "#cost", "#by-position", "#tables", "#samples", "#differing", "#commands"):
        picked = page.locator(f"{region} .picked")
        assert picked.count() > 0, region
        assert set(picked.evaluate_all("all => all.map(each => each.dataset.row)")) == {place}
    assert page.locator(".selection").inner_text().startswith("attention")
    page.keyboard.press("Escape")
    assert page.locator(".picked").count() == 0
    assert button.get_attribute("aria-pressed") == "false"
    page.locator(".verdicts .chip", has_text="table").click()
    page.get_by_role("button", name="Clear selection").click()
    assert page.locator(".picked").count() == 0
    page.locator("#learning text.label", has_text="window").click()
    assert page.locator("table.main tr.picked").get_attribute("data-name") == "window"


def test_pointing_at_a_row_shows_its_lines(whole: Written, opened: Open) -> None:
    page = opened(whole.path)
    page.locator("table.main").get_by_role("button", name="softmax").hover()
    assert page.locator("#learning .stroke >> visible=true").count() == 6
    assert page.locator("#learning g.hot .label").text_content() == "softmax"
    page.locator("h1").hover()
    assert page.locator(".hot").count() == 0


def test_one_cost_is_drawn_at_a_time_and_all_of_them_without_script(whole: Written, opened: Open) -> None:
    page = opened(whole.path)
    assert page.locator("#cost svg:visible").count() == 1
    page.get_by_role("radio", name="Parameters").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#cost svg:visible").get_attribute("aria-label") == "Loss against training flops"
    page.get_by_role("radio", name="Seconds of training").check()
    assert page.locator("#cost svg:visible").get_attribute("aria-label") == "Loss against seconds of training"
    page.locator("#cost svg:visible g.point .dot").first.hover()
    assert "loss" in page.locator(".tip").inner_text()
    still = opened(whole.path, script=False)
    assert still.locator("#cost svg:visible").count() == 3
    assert still.get_by_label("Filter").is_hidden()


def test_the_slider_and_the_pointer_read_values_off_the_curves(whole: Written, opened: Open) -> None:
    page = opened(whole.path)
    slider = page.locator("#learning input[type=range]")
    assert page.locator("#learning .slide span").inner_text() == "step 3,000"
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator("#learning .slide span").inner_text() == "step 250"
    drawn = page.locator("#learning g[data-name=attention][data-ys]").get_attribute("data-ys")
    assert drawn is not None
    assert f"attention {drawn.split()[0]}" in page.locator("#learning .values").inner_text()
    page.locator("#learning svg").scroll_into_view_if_needed()
    box = page.locator("#learning svg").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.locator("#learning .slide span").inner_text() not in ("step 250", "step 3,000")


def test_weights_can_be_read_one_by_one_and_all_together(whole: Written, opened: Open) -> None:
    page = opened(whole.path)
    button = page.locator("#tables .weights").first
    values = (button.get_attribute("data-values") or "").split()
    button.scroll_into_view_if_needed()
    box = button.bounding_box()
    assert box is not None
    cell = box["width"] / 8
    page.mouse.move(box["x"] + 1.5 * cell, box["y"] + 2.5 * cell)
    assert page.locator(".tip").inner_text() == f"t = 2, s = 1: {values[4]}"
    page.mouse.move(box["x"] + 2.5 * cell, box["y"] + 1.5 * cell)
    assert page.locator(".tip").inner_text().endswith("the future")
    button.focus()
    page.keyboard.press("Enter")
    table = page.locator(".weights-numbers table")
    assert table.locator("td").all_inner_texts()[8 * 2 + 1] == values[4]
    page.keyboard.press("Enter")
    assert table.is_hidden()


def test_the_theme_follows_the_system_until_it_is_chosen(whole: Written, opened: Open) -> None:
    background = "() => getComputedStyle(document.body).backgroundColor"
    light, dark = opened(whole.path), opened(whole.path, dark=True)
    by_day, by_night = light.evaluate(background), dark.evaluate(background)
    assert by_day != by_night
    light.get_by_role("button", name="Dark theme").click()
    assert light.evaluate(background) == by_night
    light.get_by_role("button", name="Light theme").click()
    assert light.evaluate(background) == by_day
    assert light.evaluate("() => localStorage.length + sessionStorage.length + document.cookie.length") == 0


def test_a_command_can_be_copied(whole: Written, opened: Open) -> None:
    page = opened(whole.path)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#commands summary", has_text="window").click()
    page.locator("#commands details[open] .copy").first.click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied.startswith("trilab reproduce /")
    assert copied.endswith("/report.json --row window")


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_is_never_wider_than_its_window(whole: Written, opened: Open, width: int) -> None:
    page = opened(whole.path, width=width)
    page.locator("details").evaluate_all("all => all.forEach(each => { each.open = true; })")
    assert page.evaluate("() => document.documentElement.scrollWidth") == width
    table = page.locator("#verdicts .wide")
    table.focus()
    assert page.evaluate("() => document.activeElement.classList.contains('wide')")


def test_on_paper_everything_is_there_but_what_can_be_clicked(whole: Written, opened: Open) -> None:
    page = opened(whole.path, dark=True)
    page.emulate_media(media="print")
    assert page.locator("#cost svg:visible").count() == 3
    assert page.locator("nav").is_hidden()
    assert page.get_by_label("Filter").is_hidden()
    ink = page.locator("h1").evaluate("each => getComputedStyle(each).color")
    assert ink == "rgb(28, 30, 33)"  # dark ink on the light paper, whatever the screen's theme
    page.emulate_media(media="screen")
    assert page.locator("#cost svg:visible").count() == 1


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True), (1280, False)])
def test_axe_finds_nothing(whole: Written, opened: Open, width: int, dark: bool) -> None:
    pytest.importorskip("axe_playwright_python")
    axe = importlib.resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page = opened(whole.path, dark=dark, width=width)
    page.locator("details").evaluate_all("all => all.forEach(each => { each.open = true; })")
    page.locator(".weights").first.click()
    page.locator("table.main .pick").first.click()
    page.evaluate(axe)
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    assert [
        (each["id"], each["impact"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found["violations"]
    ] == []


def test_whatever_files_hold_stays_text(tmp_path: Path, opened: Open) -> None:
    experiment = tmp_path / "outputs" / "hostile"
    experiment.mkdir(parents=True)
    add_run = adds_runs(experiment)
    for seed in range(2):
        run = leave_all(add_run, "none", 2.5, seed=seed)
        (run / "sample.txt").write_bytes(HOSTILE.encode("utf-8", "surrogatepass"))
        summary = {
            "label": HOSTILE,
            "references": {"windowed": {HOSTILE: 2.4}},
            "git": HOSTILE,
            "versions": {HOSTILE: HOSTILE},
            "loss_by_position": [2.6, 2.5],
        }
        config = {"agg": {"_target_": HOSTILE[:-2]}}  # YAML has no place for the last two
        run = add_run("attention", seed, 2.4, folder=f"a{seed}", summary=summary, config=config)
        (run / "metrics.jsonl").write_text('{"step": 1, "val/loss": 2.5}\n{"step": 2, "val/loss": 2.4}\n')
    error = {"type": "Fault", "message": HOSTILE}
    add_run("gru", folder="b", summary={"status": "failed", "error": error, "label": HOSTILE})
    page = opened(written(experiment).path)
    assert page.locator("img[src=x]").count() == 0
    for region in (".result", "table.main", "#learning", "#samples", "#differing", "#not-finished", "#origin"):
        assert "</script></style><img src=x onerror=alert(1)>" in (page.locator(region).text_content() or ""), region
    page.locator("table.main .pick").first.click()
    page.get_by_label("Filter").fill("<img")
    assert len(names(page)) == 1
    assert page.evaluate("() => document.querySelectorAll('script').length") == 1
