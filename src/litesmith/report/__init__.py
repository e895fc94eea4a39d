# SPDX-License-Identifier: Apache-2.0
"""Results as a page to open: self-contained HTML, and each plot as SVG and PNG."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

from litesmith.report._drawing import Drawing
from litesmith.report._page import Bars, Page, Section, Table, render, table, write, write_plots
from litesmith.report._profile import profile_page
from litesmith.report._report import page_of, report

__all__ = [
    "Bars",
    "Drawing",
    "Page",
    "Section",
    "Table",
    "page_of",
    "profile_page",
    "render",
    "report",
    "table",
    "write",
    "write_plots",
]


class _Verb(types.ModuleType):
    """The folder and the verb have one name: ``litesmith.report(…)`` is ``litesmith.report.report(…)``."""

    def __call__(self, *arguments: Any, **options: Any) -> Path:
        """Write a page; see ``report``."""
        return report(*arguments, **options)


sys.modules[__name__].__class__ = _Verb
