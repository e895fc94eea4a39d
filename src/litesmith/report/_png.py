# SPDX-License-Identifier: Apache-2.0
"""A drawing as PNG, by Pillow: drawn at four times its size and scaled down to twice, for smooth edges in print."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from litesmith.report._drawing import LIGHT, STAR, Dot, Drawing, Path2D, Rect, Words

_DRAWN, _KEPT = 4, 2
_LACKING = str.maketrans({"→": "›", "★": "*", "●": "*", "≤": "<=", "µ": "u", "×": "x", "−": "-", "–": "-"})
"""What Pillow's own font does not have, for machines without a better one."""
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


def save_png(drawing: Drawing, path: Path) -> Path:
    """Write a drawing as PNG at twice its size."""
    from PIL import Image, ImageDraw

    size = round(drawing.width), round(drawing.height)
    image = Image.new("RGB", (size[0] * _DRAWN, size[1] * _DRAWN), LIGHT["paper"])
    canvas = ImageDraw.Draw(image)
    for shape in drawing.shapes:
        if isinstance(shape, Words):
            _words(image, canvas, shape)
        else:
            _shape(canvas, shape)
    image.resize((size[0] * _KEPT, size[1] * _KEPT), Image.Resampling.LANCZOS).save(path)
    return path


def _shape(canvas: Any, shape: Rect | Path2D | Dot) -> None:
    if isinstance(shape, Rect):
        corners = [_DRAWN * v for v in (shape.x, shape.y, shape.x + max(shape.width, 0.5), shape.y + shape.height)]
        outline = LIGHT[shape.border] if shape.border else None
        canvas.rectangle(corners, fill=LIGHT[shape.role], outline=outline, width=_DRAWN)
    elif isinstance(shape, Path2D):
        points = [(_DRAWN * x, _DRAWN * y) for x, y in shape.points]
        for start, end in itertools.pairwise(points):
            _stroke(canvas, start, end, shape)
    elif shape.role == "winner":
        canvas.polygon([(_DRAWN * (shape.x + x), _DRAWN * (shape.y + y)) for x, y in STAR], fill=LIGHT["winner"])
    else:
        radius = _DRAWN * (6 if shape.role == "front" else 5)
        x, y = _DRAWN * shape.x, _DRAWN * shape.y
        fill = LIGHT["front"] if shape.role == "front" else LIGHT["paper"]
        canvas.ellipse([x - radius, y - radius, x + radius, y + radius], fill, LIGHT[shape.role], 2 * _DRAWN)


def _stroke(canvas: Any, start: tuple[float, float], end: tuple[float, float], shape: Path2D) -> None:
    width = max(1, round(_DRAWN * shape.width))
    if not shape.dashed:
        canvas.line([start, end], fill=LIGHT[shape.role], width=width)
        return
    length = max(1.0, ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5)
    on, period = 5 * _DRAWN / length, 9 * _DRAWN / length
    place = 0.0
    while place < 1:
        stop = min(1.0, place + on)
        dash = [(a + t * (b - a), c + t * (d - c)) for t in (place, stop) for (a, c), (b, d) in ((start, end),)]
        canvas.line(dash, fill=LIGHT[shape.role], width=width)
        place += period


def _words(image: Any, canvas: Any, words: Words) -> None:
    from PIL import Image, ImageDraw, ImageFont

    place = _DRAWN * words.x, _DRAWN * words.y
    text = words.text.encode("utf-8", "replace").decode("utf-8")
    font: Any
    try:
        font = ImageFont.truetype("DejaVuSans.ttf", round(_DRAWN * words.size * 0.92))  # it is wider than most
    except OSError:  # not on this machine
        font, text = ImageFont.load_default(size=_DRAWN * words.size), text.translate(_LACKING)
    colour = LIGHT[words.role]
    stroke = _DRAWN * 0.12 if words.bold else 0
    if not words.turned:
        anchor = _ANCHORS[words.anchor]
        if words.halo:
            rim = {"stroke_width": 2 * _DRAWN, "stroke_fill": LIGHT["paper"]}
            canvas.text(place, text, fill=LIGHT["paper"], font=font, anchor=anchor, **rim)
        canvas.text(place, text, fill=colour, font=font, anchor=anchor, stroke_width=round(stroke))
        return
    left, top, right, bottom = (round(v) for v in canvas.textbbox((0, 0), text, font=font))
    sheet = Image.new("RGB", (right + 8, bottom + 8), LIGHT["paper"])
    ImageDraw.Draw(sheet).text((4 - left, 4 - top), text, fill=colour, font=font)
    turned = sheet.rotate(90, expand=True)
    image.paste(turned, (round(place[0] - turned.width / 2), round(place[1] - turned.height / 2)))
