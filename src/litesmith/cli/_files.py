# SPDX-License-Identifier: Apache-2.0
"""The files that a verb is asked to write: refused before the work is done for them, written after it is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from litesmith.errors import LitesmithError, UsageError
from litesmith.result import Result

Write = Callable[[Any, Path], object]


def check_writable(*paths: Path | None) -> None:
    """Refuse the files that cannot be written where they are asked for."""
    for path in paths:
        if path is not None and path.is_dir():
            raise LitesmithError(f"{path} cannot be written: it is a folder; name a file in it")
        if path is not None and not path.parent.is_dir():
            raise LitesmithError(f"{path} cannot be written: there is no folder {path.parent}; make it first")


def check_page(path: Path | None) -> None:
    """Refuse a file for a page that no browser would open as one."""
    if path is not None and path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{path} cannot be a page, which is HTML; name a file that ends in .html")


def chosen(*entries: tuple[Path | None, Write]) -> dict[Path, Write]:
    """Return what to write where, of the files that were asked for and can be written."""
    files = {path: write for path, write in entries if path is not None}
    check_writable(*files)
    return files


def write_json(result: Result, path: Path) -> None:
    """Keep a result."""
    result.to_json(path)


def write_plot(result: Any, path: Path) -> None:
    """Draw a result."""
    from litesmith.devices import AndroidBench

    if isinstance(result, AndroidBench):
        raise UsageError("benchmark_model gives no single runs, so there is nothing to draw; leave --plot out")
    result.plot().write_html(path, include_plotlyjs=True)
