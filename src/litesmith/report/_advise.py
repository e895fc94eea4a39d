# SPDX-License-Identifier: Apache-2.0
"""The page of an advice."""

from __future__ import annotations

from litesmith.report._page import Page, Section
from litesmith.report._tree import advice_tree, tree_table
from litesmith.tune import Advice

WHOLE = "The whole tree"


def advice_page(advice: Advice) -> Page:
    """Return the page of an advice: the road taken through the decision tree, and the whole tree as a table."""
    return Page(
        title="Which recipe the field would take",
        summary=f"{advice.recipe}; it costs {advice.cost}.",
        facts=(("next", advice.command), *(("careful", warning) for warning in advice.warnings)),
        sections=(
            Section("The road", figures=(advice_tree(advice),), items=advice.reasons, data=WHOLE),
            Section(WHOLE, table=tree_table(advice.tree)),
        ),
    )
