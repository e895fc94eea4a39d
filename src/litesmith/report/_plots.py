# SPDX-License-Identifier: Apache-2.0
"""Plots as drawings: points with a front and bounds, bars, a timeline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from litesmith.report._drawing import Dot, Drawing, Path2D, Rect, Shape, Words, text_width

WIDTH, HEIGHT = 760.0, 430.0
LEFT, RIGHT, TOP, BOTTOM = 74.0, 24.0, 30.0, 56.0
_TICKS = 6


@dataclass(frozen=True)
class Mark:
    """A point: where, what it is called, what it says when asked, the id it leads to and the words it is filtered by.

    Its role is winner, front, dot, or out for one that was not finished.
    """

    x: float
    y: float
    name: str
    label: str
    role: str = "dot"
    target: str = ""
    tags: tuple[str, ...] = ()


def scatter(
    title: str,
    marks: Sequence[Mark],
    *,
    x_label: str,
    y_label: str,
    x_bound: float | None = None,
    y_bound: float | None = None,
    more_is_better: bool = True,
) -> Drawing:
    """Return a plot of points, those joined by a line that none beats in both; logarithmic across where it spans much.

    Less is better across; ``more_is_better`` tells of the other axis.
    """
    xs = [m.x for m in marks] + ([] if x_bound is None else [x_bound])
    ys = [m.y for m in marks] + ([] if y_bound is None else [y_bound])
    across = _Axis(xs, LEFT, WIDTH - RIGHT, logarithmic=min(xs) > 0 and max(xs) / min(xs) > 8)
    up = _Axis(ys, HEIGHT - BOTTOM, TOP)
    shapes: list[Shape] = [*_grid(across, up, x_label, y_label)]
    if x_bound is not None:
        x = across(x_bound)
        shapes += [Path2D(((x, TOP), (x, HEIGHT - BOTTOM)), "bound", dashed=True, width=1.5)]
        shapes.append(Words(x - 5, TOP + 12, "bound", "bound", "end", 12))
    if y_bound is not None:
        y = up(y_bound)
        shapes += [Path2D(((LEFT, y), (WIDTH - RIGHT, y)), "bound", dashed=True, width=1.5)]
        shapes.append(Words(WIDTH - RIGHT, y - 5, "bound", "bound", "end", 12))
    front = _unbeaten([(m.x, m.y) for m in marks if m.role != "out"], 1 if more_is_better else -1)
    if len(front) > 1:
        shapes.append(Path2D(tuple((across(x), up(y)) for x, y in front), "front", width=1.2))
    order = {"out": 0, "dot": 0, "front": 1, "winner": 2}
    for mark in sorted(marks, key=lambda m: order[m.role]):
        shapes.append(Dot(across(mark.x), up(mark.y), mark.role, mark.label, mark.target, mark.tags))
    shapes += _names(marks, [m for m in marks if m.role == "winner" or (m.x, m.y) in front], across, up)
    return Drawing(title, WIDTH, HEIGHT, tuple(shapes))


def bars(title: str, rows: Sequence[tuple[str, float, str]]) -> Drawing:
    """Return a bar for each (label, value, text)."""
    room = min(280.0, max((text_width(label) for label, _, _ in rows), default=0.0) + 12)
    longest = max((value for _, value, _ in rows), default=0.0) or 1.0
    space = WIDTH - room - max((text_width(text) for _, _, text in rows), default=0.0) - 24
    shapes: list[Shape] = []
    for number, (label, value, text) in enumerate(rows):
        y = 8 + 24 * number
        length = max(2.0, space * value / longest)
        shown = label if text_width(label) <= room else label[: int((room - 12) / 7.3)] + "…"
        shapes += [
            Words(room - 8, y + 14, shown, anchor="end"),
            Rect(room, y + 2, length, 16, "bar", f"{label}: {text}"),
            Words(room + length + 7, y + 14, text),
        ]
    return Drawing(title, WIDTH, 16 + 24 * len(rows), tuple(shapes))


def before_and_after(
    title: str, rows: Sequence[tuple[str, float, float]], *, names: tuple[str, str], unit: str = "µs"
) -> Drawing:
    """Return two bars for each (label, before, after), none where it is 0, and below what the two are called."""
    room = min(280.0, max((text_width(label) for label, _, _ in rows), default=0.0) + 14)
    longest = max((value for _, *values in rows for value in values), default=0.0) or 1.0
    space = WIDTH - room - 90
    shapes: list[Shape] = []
    for number, (label, *values) in enumerate(rows):
        top = 8 + 40 * number
        shapes.append(Words(room - 10, top + 19, label, anchor="end"))
        for line, (name, role, value) in enumerate(zip(names, ("dot", "bar"), values, strict=True)):
            if value > 0:
                y, length = top + 15 * line, max(1.0, space * value / longest)
                text = f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
                shapes.append(Rect(room, y, length, 13, role, f"{label}, {name}: {value:.1f} {unit}"))
                shapes.append(Words(room + length + 6, y + 11, text, "quiet", size=12))
    x, y = room, 16 + 40 * len(rows)
    for name, role in zip(names, ("dot", "bar"), strict=True):
        shapes += [Rect(x, y, 13, 13, role), Words(x + 19, y + 11, name, size=12)]
        x += text_width(name, 12) + 46
    return Drawing(title, WIDTH, y + 22, tuple(shapes))


def timeline(title: str, spans: Sequence[tuple[str, float, str]], *, unit: str = "µs") -> Drawing:
    """Return (name, length, lane) one after the other on a line for each lane, with the time below."""
    lanes = list(dict.fromkeys(lane for _, _, lane in spans))
    total = sum(length for _, length, _ in spans) or 1.0
    room = min(220.0, max((text_width(lane) for lane in lanes), default=0.0) + 16)
    axis = _Axis([0.0, total], room, WIDTH - RIGHT, padded=False)
    bottom = 10 + 30 * len(lanes)
    shapes: list[Shape] = [Words(room - 10, 28 + 30 * n, lane, anchor="end") for n, lane in enumerate(lanes)]
    start = 0.0
    for name, length, lane in spans:
        x, y = axis(start), 12 + 30 * lanes.index(lane)
        shapes.append(Rect(x, y, axis(start + length) - x - 0.4, 22, "bar", f"{name}: {length:.1f} {unit}"))
        start += length
    for value in axis.ticks():
        x = axis(value)
        shapes += [
            Path2D(((x, bottom), (x, bottom + 5)), "quiet"),
            Words(x, bottom + 19, f"{value:g}", "quiet", "middle", 12),
        ]
    shapes.append(Words(WIDTH - RIGHT, bottom + 36, unit, "quiet", "end", 12))
    return Drawing(title, WIDTH, bottom + 44, tuple(shapes))


class _Axis:
    """Values to places; its ends lie a little beyond the values."""

    def __init__(
        self, values: Sequence[float], start: float, end: float, *, logarithmic: bool = False, padded: bool = True
    ) -> None:
        self._log = logarithmic
        low, high = self._scaled(min(values)), self._scaled(max(values))
        room = ((high - low) or abs(high) * 0.1 or 1.0) * (0.07 if padded else 0.0)
        self._low, self._high, self._start, self._end = low - room, high + room or low + 1, start, end

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def __call__(self, value: float) -> float:
        share = (self._scaled(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        if self._log:
            return [
                m * 10.0**e
                for e in range(math.floor(self._low), math.ceil(self._high) + 1)
                for m in (1, 2, 5)
                if self._low <= math.log10(m * 10.0**e) <= self._high
            ]
        raw = (self._high - self._low) / _TICKS
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
        first = math.ceil(self._low / step - 1e-9)
        return [round(n * step, 12) for n in range(first, math.floor(self._high / step + 1e-9) + 1)]


def _grid(across: _Axis, up: _Axis, x_label: str, y_label: str) -> list[Shape]:
    bottom = HEIGHT - BOTTOM
    shapes: list[Shape] = []
    for value in across.ticks():
        x = across(value)
        shapes += [Path2D(((x, TOP), (x, bottom)), "line"), Words(x, bottom + 18, f"{value:g}", "quiet", "middle", 12)]
    for value in up.ticks():
        y = up(value)
        shapes += [
            Path2D(((LEFT, y), (WIDTH - RIGHT, y)), "line"),
            Words(LEFT - 8, y + 4, f"{value:g}", "quiet", "end", 12),
        ]
    shapes.append(Words((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, "ink", "middle"))
    shapes.append(Words(18, (TOP + bottom) / 2, y_label, "ink", "middle", turned=True))
    return shapes


def _unbeaten(places: Sequence[tuple[float, float]], sign: int) -> list[tuple[float, float]]:
    """Return the points that no other beats in both directions, from left to right."""
    found: list[tuple[float, float]] = []
    for x, y in sorted(places, key=lambda p: (p[0], -sign * p[1])):
        if not found or sign * y > sign * found[-1][1]:
            found.append((x, y))
    return found


def _names(marks: Sequence[Mark], named: Sequence[Mark], across: _Axis, up: _Axis) -> list[Shape]:
    """Return the names of some points beside them, above or below, where no point or name is; else they go unnamed."""
    taken: list[tuple[float, float, float, float]] = [(across(m.x) - 7, up(m.y) - 7, 14.0, 14.0) for m in marks]
    shapes: list[Shape] = []
    for mark in sorted(named, key=lambda m: m.role != "winner"):
        x, y = across(mark.x), up(mark.y)
        text = mark.name if len(mark.name) <= 34 else mark.name[:33] + "…"
        width = text_width(text, 12, bold=mark.role == "winner")
        places = [(x + 11, y + 4), (x - 11 - width, y + 4), (x - width / 2, y - 12), (x - width / 2, y + 22)]
        for left, base in places:
            box = (left, base - 11, width, 14.0)
            inside = left >= LEFT and left + width <= WIDTH - 4 and base >= TOP - 1 and base <= HEIGHT - BOTTOM
            if inside and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                shapes.append(Words(left, base, text, size=12, bold=mark.role == "winner", halo=True))
                break
    return shapes


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def curves(title: str, series: Sequence[tuple[str, Sequence[float]]], *, x_label: str, y_label: str) -> Drawing:
    """Return (name, values) as curves over 1, 2, 3 …, each named at its end."""
    across = _Axis([1.0, float(max(2, *(len(values) for _, values in series)))], LEFT, WIDTH - 120)
    up = _Axis([v for _, values in series for v in values], HEIGHT - BOTTOM, TOP)
    shapes = _grid(across, up, x_label, y_label)
    for number, (name, values) in enumerate(series):
        places = tuple((across(n + 1), up(v)) for n, v in enumerate(values))
        role = ("front", "winner", "quiet")[number % 3]
        shapes.append(Path2D(places, role, dashed=number % 2 == 1, width=2.0))
        shapes.append(Words(places[-1][0] + 8, places[-1][1] + 4, name, role, size=12))
    return Drawing(title, WIDTH, HEIGHT, tuple(shapes))


def spreads(
    title: str, rows: Sequence[tuple[str, tuple[float, float, float, float, float]]], *, x_label: str
) -> Drawing:
    """Return a line from the least to the 95th percentile, a box between the quartiles and the median, for each name."""
    room = min(260.0, max(text_width(name) for name, _ in rows) + 14)
    values = [v for _, five in rows for v in five]
    across = _Axis(values, room, WIDTH - RIGHT, logarithmic=min(values) > 0 and max(values) / min(values) > 20)
    bottom = 12 + 34 * len(rows)
    shapes: list[Shape] = []
    for value in across.ticks():
        x = across(value)
        shapes += [Path2D(((x, 6), (x, bottom)), "line"), Words(x, bottom + 17, f"{value:g}", "quiet", "middle", 12)]
    for number, (name, (low, q1, median, q3, high)) in enumerate(rows):
        y = 29 + 34 * number
        label = (
            f"{name}: median {median:.4g}, quartiles {q1:.4g} and {q3:.4g}, least {low:.4g}, 95th percentile {high:.4g}"
        )
        shapes += [
            Words(room - 8, y + 4, name if text_width(name) <= room else name[: int(room / 8)] + "…", anchor="end"),
            Path2D(((across(low), y), (across(high), y)), "quiet", width=1.5),
            Rect(across(q1), y - 9, across(q3) - across(q1), 18, "bar", label),
            Path2D(((across(median), y - 12), (across(median), y + 12)), "winner", width=2.5),
        ]
    shapes.append(Words((room + WIDTH - RIGHT) / 2, bottom + 38, x_label, "ink", "middle"))
    return Drawing(title, WIDTH, bottom + 48, tuple(shapes))
