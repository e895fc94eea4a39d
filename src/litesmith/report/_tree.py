# SPDX-License-Identifier: Apache-2.0
"""The decision tree, as a drawing with the road taken in colour, and as a table."""

from __future__ import annotations

from collections.abc import Sequence

from litesmith.report._drawing import Drawing, Path2D, Rect, Shape, Words, text_width
from litesmith.report._page import Table, table
from litesmith.tune import Advice, Node

_STEP, _ROW, _BOX = 178.0, 30.0, 22.0


def advice_tree(advice: Advice) -> Drawing:
    """Return the tree of an advice; forks that the road does not pass are folded to what they ask."""
    nodes = on_the_road(advice)
    shapes: list[Shape] = []
    lines: list[Path2D] = []
    parents: list[tuple[float, float]] = []
    for row, node in enumerate(nodes):
        x, y = 6 + _STEP * node.depth, 10 + _ROW * row
        del parents[node.depth :]
        if parents:
            left, top = parents[-1]
            role, width = ("taken", 2.5) if node.taken else ("line", 1.0)
            middle = y + _BOX / 2
            lines.append(Path2D(((left, top), (left, middle), (x + 1, middle)), role, width=width))
        label = (
            f"{node.answer} → {node.text}"
            if node.is_leaf
            else f"{node.answer}: {node.text}"
            if node.answer
            else node.text
        )
        border = "taken" if node.taken else "line"
        shapes.append(Rect(x, y, text_width(label, 12, bold=node.taken) + 16, _BOX, "box", border=border))
        shapes.append(Words(x + 8, y + 15, label, "ink" if node.taken else "quiet", size=12, bold=node.taken))
        parents.append((x + 14, y + _BOX))
    lines.sort(key=lambda line: line.width)  # the road taken lies on top
    width = max(s.x + s.width for s in shapes if isinstance(s, Rect)) + 8
    return Drawing("The decision tree; the road taken is marked", width, 16 + _ROW * len(nodes), (*lines, *shapes))


def tree_table(nodes: Sequence[Node]) -> Table:
    """Return nodes of a tree as a table."""
    rows = [
        (node.depth, "· " * node.depth + (node.answer or "start"), node.text, "taken" if node.taken else "")
        for node in nodes
    ]
    return table(["depth", "answer", "question or recipe", "road"], rows, left=4)


def on_the_road(advice: Advice) -> list[Node]:
    """Return the nodes on the road of an advice and their siblings."""
    kept: list[Node] = []
    ancestors: list[Node] = []
    for node in advice.tree:
        del ancestors[node.depth :]
        if all(ancestor.taken for ancestor in ancestors):
            kept.append(node)
        ancestors.append(node)
    return kept
