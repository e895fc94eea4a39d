# SPDX-License-Identifier: Apache-2.0
"""Results as a page to open: self-contained HTML."""

from litesmith.report._page import Bars, Page, Section, Table, render, table, write
from litesmith.report._profile import profile_page

__all__ = ["Bars", "Page", "Section", "Table", "profile_page", "render", "table", "write"]
