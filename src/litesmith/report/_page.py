# SPDX-License-Identifier: Apache-2.0
"""One self-contained HTML page: sections of text, tables and bars, no network, legible in print, light and dark.

All text is escaped: the names in a model are not ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Table:
    """Rows under column names; the first ``left`` columns are text, the others numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


@dataclass(frozen=True)
class Bars:
    """A bar for each label, and the text that stands at its end; its data is always shown too."""

    title: str
    bars: tuple[tuple[str, float, str], ...]  # label, value, text

    def widths(self) -> list[tuple[str, float, str]]:
        """Return the bars with their lengths in percent of the longest."""
        longest = max((value for _, value, _ in self.bars), default=0) or 1
        return [(label, 100 * value / longest, text) for label, value, text in self.bars]


@dataclass(frozen=True)
class Section:
    """One part of a page."""

    title: str
    text: str = ""
    bars: Bars | None = None
    table: Table | None = None


@dataclass(frozen=True)
class Page:
    """A page: a title, one line that everybody understands, facts, and sections."""

    title: str
    summary: str
    facts: tuple[tuple[str, str], ...] = ()
    sections: tuple[Section, ...] = field(default=())


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
    text = environment.get_template("page.html.j2").render(page=page)
    return text.encode("utf-8", "replace").decode("utf-8")


def write(page: Page, path: str | Path) -> Path:
    """Write the page as an HTML file and return its path."""
    target = Path(path)
    target.write_text(render(page), encoding="utf-8")
    return target
