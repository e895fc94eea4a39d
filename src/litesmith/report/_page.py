# SPDX-License-Identifier: Apache-2.0
"""One self-contained HTML page: sections of text, plots, tables and bars, no network, legible in print, light and dark.

All text is escaped: the names in a model are not ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from litesmith.report._drawing import LIGHT, Drawing


@dataclass(frozen=True)
class Table:
    """Rows under column names; the first ``left`` columns are text, the others numbers.

    Readers can sort it by any column. ``ids`` are what links to rows name; ``tags`` the words that rows are filtered by.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    ids: tuple[str, ...] = ()
    tags: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Bars:
    """A bar for each label, and the text that stands at its end; its data is always shown too."""

    title: str
    bars: tuple[tuple[str, float, str], ...]  # label, value, text

    def widths(self) -> list[tuple[str, float, str]]:
        """Return the bars with their lengths in percent of the longest."""
        longest = max((value for _, value, _ in self.bars), default=0) or 1
        return [(label, 100 * value / longest, text) for label, value, text in self.bars]

    def drawing(self) -> Drawing:
        """Return the bars as a drawing, for a file of its own."""
        from litesmith.report._plots import bars

        return bars(self.title, self.bars)


@dataclass(frozen=True)
class Section:
    """One part of a page; ``filters`` are words to show or hide points and rows by.

    The data of its figures is its table, or that of the section whose title is ``data``.
    """

    title: str
    text: str = ""
    bars: Bars | None = None
    table: Table | None = None
    figures: tuple[Drawing, ...] = ()
    filters: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    data: str = ""

    def drawings(self) -> list[Drawing]:
        """Return all plots of the section."""
        return [*self.figures, *([self.bars.drawing()] if self.bars is not None and self.bars.bars else [])]


@dataclass(frozen=True)
class Page:
    """A page: a title, one line that everybody understands, facts, and sections."""

    title: str
    summary: str
    facts: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = field(default=())

    def drawings(self) -> list[Drawing]:
        """Return all plots of the page."""
        return [drawing for section in self.sections for drawing in section.drawings()]

    def number(self, title: str) -> int:
        """Return which section has a title, counted from 1."""
        return 1 + [section.title for section in self.sections].index(title)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> Table:
    """Return a Table of anything that has text."""
    return Table(tuple(columns), tuple(tuple(str(cell) for cell in row) for row in rows), left)


def render(page: Page) -> str:
    """Return the page as HTML."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text = environment.get_template("page.html.j2").render(page=page, roles=tuple(LIGHT))
    return text.encode("utf-8", "replace").decode("utf-8")


def write(page: Page, path: str | Path) -> Path:
    """Write the page as an HTML file and return its path."""
    target = Path(path)
    target.write_text(render(page), encoding="utf-8")
    return target


def write_plots(page: Page, folder: str | Path) -> list[Path]:
    """Write each plot of a page as SVG and as PNG, named after its title, and return the paths."""
    shelf = Path(folder)
    shelf.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for number, drawing in enumerate(page.drawings(), 1):
        name = re.sub(r"[^a-z0-9]+", "-", drawing.title.lower()).strip("-")[:60]
        written += [drawing.save(shelf / f"{number:02d}-{name}{suffix}") for suffix in (".svg", ".png")]
    return written
