# SPDX-License-Identifier: Apache-2.0
"""The page of a search in a real browser: no errors, no network; sorting, filtering, hovering and keys work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from litesmith.report import report
from litesmith.tune import Tuned


@pytest.fixture
def opened(
    browser: Any, tuned: Tuned, tmp_path: Path, screenshots: Path, request: pytest.FixtureRequest
) -> Iterator[Any]:
    """The page, opened; fails the test on anything that the console or the network shows."""
    path = report(tuned, tmp_path / "report.html")
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(path.as_uri())
    yield page
    page.screenshot(path=screenshots / f"{request.node.name}.png", full_page=True)
    page.close()
    assert problems == []


def _column(page: Any, section: str, number: int) -> list[str]:
    cells = page.locator(f"section:has(h2:text-is('{section}')) tbody tr:visible td:nth-child({number})")
    return [text.strip() for text in cells.all_inner_texts()]


def test_the_summary_is_one_sentence_a_manager_understands(opened: Any) -> None:
    text = opened.locator(".summary").inner_text()

    assert text.startswith("Ship int8: 3.9 times smaller and 2.67 times as fast")
    assert "92.00 % to 91.50 %" in text


def test_names_stay_names(opened: Any) -> None:
    assert opened.title() != "owned"
    assert opened.locator("img").count() == 0
    assert opened.locator("script").count() == 1
    assert opened.locator("td:has-text('<script>document.title')").count() >= 1


def test_a_click_on_a_column_sorts_and_another_turns_it_round(opened: Any) -> None:
    size = opened.locator("section:has(h2:text-is('All trials')) th button:text-is('size')")
    size.click()
    rising = _column(opened, "All trials", 10)
    size.press("Enter")  # the same by keyboard

    assert rising == ["2000.0 kB", "3600.0 kB", "3600.0 kB", "3650.0 kB", "3700.0 kB", "7000.0 kB", "14000.0 kB"]
    assert _column(opened, "All trials", 10) == rising[::-1]
    assert opened.locator("th[aria-sort=descending]").count() == 1


def test_empty_cells_stay_last(opened: Any) -> None:
    opened.locator("section:has(h2:text-is('All trials')) th button:text-is('ms')").click()

    assert _column(opened, "All trials", 8) == ["1.500", "1.700", "3.000", "4.000", "4.100", "5.000", ""]


def test_the_filter_hides_points_and_rows(opened: Any) -> None:
    points = opened.locator("a.point:visible")
    before = points.count()
    opened.get_by_label("int8", exact=True).check()
    int8 = _column(opened, "All trials", 2)
    opened.get_by_label("mixed", exact=True).check()
    mixed = _column(opened, "All trials", 2)
    shown = points.count()
    opened.get_by_label("int8", exact=True).uncheck()
    opened.get_by_label("mixed", exact=True).uncheck()

    assert before == 13  # seven by size, six of them by latency
    assert int8 == ["int8", "int8(minmax)", "int8 + float:#3"]
    assert mixed == ["int8 + float:#3"]
    assert shown == 2
    assert points.count() == before


def test_a_point_tells_its_figures_and_leads_to_its_trial(opened: Any) -> None:
    point = opened.locator("a.point[href='#trial-3']").first
    point.hover()
    tip = opened.locator("#tip")
    told = tip.inner_text()
    point.click()

    assert "3: int8" in told
    assert "1.500 ms" in told
    assert opened.url.endswith("#trial-3")
    assert "chosen" in (opened.locator("#trial-3").get_attribute("class") or "")
    assert opened.evaluate("document.activeElement.id") == "trial-3"


def test_points_are_reached_and_read_by_keyboard_and_screen_reader(opened: Any) -> None:
    point = opened.locator("a.point[href='#trial-6']").first
    point.focus()

    assert opened.locator("#tip").is_visible()
    assert "weights4" in (point.get_attribute("aria-label") or "")
    opened.keyboard.press("Escape")
    assert not opened.locator("#tip").is_visible()
    point.press("Enter")
    assert opened.url.endswith("#trial-6")
    tree = opened.locator("main").aria_snapshot()
    assert 'group "top1 against latency"' in tree
    assert "table" in tree


def test_dark_and_print_have_their_colours(opened: Any) -> None:
    light = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    opened.emulate_media(color_scheme="dark")
    dark = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    opened.emulate_media(color_scheme="light", media="print")

    assert light == "rgb(255, 255, 255)"
    assert dark == "rgb(22, 24, 28)"
    assert not opened.locator("fieldset").is_visible()
    opened.emulate_media(media="screen")


def test_the_contrast_of_text_is_enough(opened: Any) -> None:
    """WCAG asks for 4.5 to 1; measured on what the browser computed, light and dark."""
    for scheme in ("light", "dark"):
        opened.emulate_media(color_scheme=scheme)
        paper = _luminance(opened.evaluate("getComputedStyle(document.body).backgroundColor"))
        for selector in ("body", "figcaption", "nav a", "svg text.f-quiet"):
            rule = "fill" if selector.startswith("svg") else "color"
            ink = _luminance(opened.evaluate(f"getComputedStyle(document.querySelector({selector!r})).{rule}"))
            high, low = max(paper, ink), min(paper, ink)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (scheme, selector)


def _luminance(colour: str) -> float:
    channels = [int(v) / 255 for v in colour[4:-1].split(",")]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
