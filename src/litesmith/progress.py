# SPDX-License-Identifier: Apache-2.0
"""Progress of long work, on stderr, for whoever asked to see it.

Library code reports; it never decides whether anybody looks. The command line turns the display on with
``show()``; without it, ``task`` costs a function call per step and prints nothing.

Example:
    >>> with task("Calibrating", total=3) as advance:
    ...     for _ in range(3):
    ...         advance(1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_display: Progress | None = None


@contextmanager
def show() -> Iterator[None]:
    """Display the progress of everything inside on stderr, until the block ends."""
    global _display
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        _display = display
        try:
            yield
        finally:
            _display = None


@contextmanager
def task(description: str, total: float | None = None) -> Iterator[Callable[[float], None]]:
    """Yield a function that advances one bar; ``total`` of None shows a bar of unknown length."""
    display = _display
    if display is None:
        yield lambda _steps: None
        return
    bar = display.add_task(description, total=total)
    try:
        yield lambda steps: display.advance(bar, steps)
    finally:
        display.remove_task(bar)
