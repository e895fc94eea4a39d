# SPDX-License-Identifier: Apache-2.0
"""The page: self-contained, escaped, and without errors in a real browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.report.conftest import EVIL

from litesmith.report import Bars, Page, Section, render, table, write

OUR_SCRIPT = '<script>\n"use strict";'


def _page() -> Page:
    return Page(
        title=f"Report on {EVIL}",
        summary="It is 3 times faster.",
        facts=(("model", EVIL),),
        sections=(
            Section(
                "Operators",
                bars=Bars("µs", ((EVIL, 3.0, "3 µs"), ("ADD", 1.0, "1 µs"))),
                table=table(["name", "µs"], [(EVIL, 3)]),
            ),
            Section("Nothing", text="All is well."),
        ),
    )


def test_names_from_a_model_are_escaped() -> None:
    html = render(_page())

    assert html.count("<script") == html.count(OUR_SCRIPT) == 1
    assert "<img" not in html
    assert html.count("&lt;script&gt;") == 5


def test_the_page_needs_no_network() -> None:
    html = render(_page())

    assert not re.search(r"(src|href)\s*=\s*[\"']?[^#\"']", html.replace("src=x", ""))
    assert "@import" not in html
    assert "url(" not in html


def test_broken_utf8_in_a_name_does_not_break_the_page(tmp_path: Path) -> None:
    path = write(Page(title="name \udcff", summary=""), tmp_path / "page.html")

    assert "name ?" in path.read_text(encoding="utf-8")


def test_a_real_browser_shows_it(tmp_path: Path, screenshots: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed; on Debian: apt install chromium")
    path = write(_page(), tmp_path / "page.html")
    picture = screenshots / "any-page.png"
    picture.unlink(missing_ok=True)
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--enable-logging=stderr",
    ]
    command = [chromium, *flags, f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    dom = subprocess.run(
        [*command[:-2], "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120, check=False
    )

    assert picture.stat().st_size > 5000
    assert ":CONSOLE" not in done.stderr
    assert "owned" not in re.findall(r"<title>(.*?)</title>", dom.stdout)
    assert dom.stdout.count("<tr>") == 2
