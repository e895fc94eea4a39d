# SPDX-License-Identifier: Apache-2.0
"""The page of an advice."""

from __future__ import annotations

from litesmith.report._page import Page, Section, table
from litesmith.report._tree import advice_tree
from litesmith.tune import Advice


def advice_page(advice: Advice) -> Page:
    """Return the page of an advice: the road taken through the decision tree, and the whole tree as a table."""
    rows = [
        (node.depth, "· " * node.depth + (node.answer or "start"), node.text, "taken" if node.taken else "")
        for node in advice.tree
    ]
    return Page(
        title="Which recipe the field would take",
        summary=f"{advice.recipe}; it costs {advice.cost}.",
        facts=(("next", advice.command), *(("careful", warning) for warning in advice.warnings)),
        sections=(
            Section("The road", figures=(advice_tree(advice),), items=advice.reasons),
            Section("The whole tree", table=table(["depth", "answer", "question or recipe", "road"], rows, left=4)),
        ),
    )
