# SPDX-License-Identifier: Apache-2.0
"""A drawing: shapes with roles instead of colours, so that one description serves the page, a paper and a screen reader.

On a page the roles are coloured by its style, light or dark; as a file of its own, an SVG has the light colours inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

LIGHT = {
    "ink": "#1c1e21",
    "quiet": "#5c6370",
    "line": "#d9dce1",
    "paper": "#ffffff",
    "dot": "#7a8699",
    "out": "#a9b0bb",
    "front": "#2f6fab",
    "winner": "#c4540a",
    "bound": "#b3261e",
    "bar": "#2f6fab",
    "taken": "#2f6fab",
    "box": "#f5f6f8",
}
"""The colours of the roles on white: each at least 3 to 1 against it, text 4.5 to 1."""
FONT = "system-ui, sans-serif"


@dataclass(frozen=True)
class Rect:
    """A filled rectangle, with a border where it is a box of a tree."""

    x: float
    y: float
    width: float
    height: float
    role: str
    label: str = ""
    border: str = ""


@dataclass(frozen=True)
class Path2D:
    """A line through points."""

    points: tuple[tuple[float, float], ...]
    role: str
    dashed: bool = False
    width: float = 1.0


@dataclass(frozen=True)
class Dot:
    """A point of a plot: what it says when asked, the id it leads to, and the words it is filtered by."""

    x: float
    y: float
    role: str
    label: str
    target: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Words:
    """Text at a place; ``anchor`` is start, middle or end."""

    x: float
    y: float
    text: str
    role: str = "ink"
    anchor: str = "start"
    size: float = 13.0
    bold: bool = False
    turned: bool = False
    halo: bool = False  # a rim in the colour of the paper, where lines may run below it


Shape = Rect | Path2D | Dot | Words


@dataclass(frozen=True)
class Drawing:
    """Shapes on a sheet, and what they show."""

    title: str
    width: float
    height: float
    shapes: tuple[Shape, ...]

    def svg(self, *, standalone: bool = False) -> str:
        """Return the drawing as SVG: for a page, or as a document of its own."""
        role = "img" if not any(isinstance(s, Dot) and s.target for s in self.shapes) else "group"
        head = f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="{role}" aria-label="{escape(self.title)}"'
        if standalone:
            rules = "".join(f".f-{role}{{fill:{c}}}.s-{role}{{stroke:{c}}}" for role, c in LIGHT.items())
            head += f' xmlns="http://www.w3.org/2000/svg" width="{self.width:g}" height="{self.height:g}"'
            inside = f"<style>text{{font-family:{FONT}}}{rules}</style>"
            inside += f'<rect width="{self.width:g}" height="{self.height:g}" class="f-paper"/>'
        else:
            inside = ""
        return f"{head}>{inside}{''.join(_svg(shape, link=not standalone) for shape in self.shapes)}</svg>"

    def save(self, path: str | Path) -> Path:
        """Write the drawing as `.svg` or `.png`."""
        target = Path(path)
        if target.suffix == ".png":
            from litesmith.report._png import save_png

            return save_png(self, target)
        target.write_text(self.svg(standalone=True) + "\n", encoding="utf-8", errors="replace")
        return target


def _svg(shape: Shape, *, link: bool) -> str:
    if isinstance(shape, Rect):
        border = f' class="f-{shape.role} s-{shape.border}" rx="5"' if shape.border else f' class="f-{shape.role}"'
        title = f"<title>{escape(shape.label)}</title>" if shape.label else ""
        place = f'x="{shape.x:.1f}" y="{shape.y:.1f}" width="{max(shape.width, 0.5):.1f}" height="{shape.height:.1f}"'
        return f"<rect {place}{border}>{title}</rect>"
    if isinstance(shape, Path2D):
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
        dash = ' stroke-dasharray="5 4"' if shape.dashed else ""
        return f'<polyline points="{places}" fill="none" class="s-{shape.role}" stroke-width="{shape.width:g}"{dash}/>'
    if isinstance(shape, Words):
        turn = f' transform="rotate(-90 {shape.x:.1f} {shape.y:.1f})"' if shape.turned else ""
        weight = ' font-weight="600"' if shape.bold else ""
        halo = ' paint-order="stroke" stroke-width="4" stroke-linejoin="round"' if shape.halo else ""
        return (
            f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" text-anchor="{shape.anchor}" font-size="{shape.size:g}" '
            f'class="f-{shape.role}{" s-paper" if shape.halo else ""}"{weight}{halo}{turn}>{escape(shape.text)}</text>'
        )
    mark = f"{_mark(shape)}<title>{escape(shape.label)}</title>"
    if not (link and shape.target):
        return f"<g>{mark}</g>"
    tags, label = escape(" ".join(shape.tags)), escape(shape.label)
    return f'<a href="#{escape(shape.target)}" class="point" data-tags="{tags}" aria-label="{label}">{mark}</a>'


def _mark(dot: Dot) -> str:
    """Return the mark of a point: a star, a filled or an open circle, so that no colour is needed to tell them apart."""
    if dot.role == "winner":
        corners = " ".join(f"{dot.x + x:.1f},{dot.y + y:.1f}" for x, y in STAR)
        return f'<polygon points="{corners}" class="f-winner"/>'
    if dot.role == "front":
        return f'<circle cx="{dot.x:.1f}" cy="{dot.y:.1f}" r="6" class="f-front"/>'
    return f'<circle cx="{dot.x:.1f}" cy="{dot.y:.1f}" r="5" class="f-paper s-{dot.role}" stroke-width="1.8"/>'


def _star(radius: float) -> tuple[tuple[float, float], ...]:
    from math import cos, pi, sin

    ends = [(radius if n % 2 == 0 else 0.45 * radius, pi * (n / 5 - 0.5)) for n in range(10)]
    return tuple((r * cos(angle), r * sin(angle)) for r, angle in ends)


STAR = _star(11)


def text_width(text: str, size: float = 13.0, *, bold: bool = False) -> float:
    """Return about how wide a text is, for leaving room."""
    return (1.1 if bold else 1.0) * size * sum(0.7 if c.isupper() or c in "_@%→" else 0.56 for c in text)
