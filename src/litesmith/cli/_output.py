# SPDX-License-Identifier: Apache-2.0
"""How results reach people: tables on stdout at the width of their terminal, and numbers with units."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from litesmith.result import Result

console = Console(highlight=False, soft_wrap=False)


def printable(text: object) -> str:
    """Return text that any terminal shows: names in a file may hold control characters and broken UTF-8."""
    clean = str(text).encode("utf-8", "replace").decode("utf-8")
    return escape("".join(c if c.isprintable() else "�" for c in clean))


def heading(text: str) -> None:
    """Print a heading."""
    console.print(f"\n[bold]{printable(text)}[/bold]")


def line(text: str) -> None:
    """Print one paragraph of plain text; a path longer than a line stays whole, to be copied."""
    margin = len(text) - len(text.lstrip(" "))
    wrapper = textwrap.TextWrapper(
        console.width,
        subsequent_indent=" " * (margin and margin + 2),
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
        expand_tabs=False,
    )
    for part in wrapper.wrap(text) or [""]:
        console.print(printable(part), soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, left: int = 1) -> None:
    """Print a table; the first ``left`` columns are text, the others numbers set flush right."""
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        grid.add_column(name, justify="left" if index < left else "right", overflow="fold")
    for row in rows:
        grid.add_row(*(printable(cell) for cell in row))
    console.print(grid)


def facts(rows: Iterable[tuple[str, object]]) -> None:
    """Print names and values side by side."""
    grid = Table(box=None, pad_edge=False, show_header=False)
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(printable(name), printable(value))
    console.print(grid)


def json(result: Result) -> None:
    """Print a result as JSON, unchanged by any terminal."""
    print(result.to_json().encode("utf-8", "replace").decode("utf-8"))


def deliver(
    result: Any,
    show: Callable[[Any], None],
    *,
    as_json: bool,
    files: Mapping[Path, Callable[[Any, Path], object]],
) -> None:
    """Print a result for people or for programs, then write its files: one that fails takes nothing measured along."""
    if as_json:
        json(result)
    else:
        show(result)
    for path, write in files.items():
        write(result, path)


def bytes_text(size: float) -> str:
    """Return a size with its unit, decimal as in shops and datasheets: 14.0 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size) < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


def count_text(count: float) -> str:
    """Return a count in thousands, millions or billions: 3.5 M."""
    for unit in ("", " k", " M"):
        if abs(count) < 1000:
            return f"{count:.0f}" if not unit else f"{count:.1f}{unit}"
        count /= 1000
    return f"{count:.2f} G"


def plural(count: int, noun: str, many: str = "") -> str:
    """Return a count with its noun: 1 thread, 2 threads."""
    return f"{count} {noun}" if count == 1 else f"{count} {many or noun + 's'}"


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as it is written by hand: 1×224×224×3, with ? for what may change."""
    return "×".join("?" if d < 0 else str(d) for d in shape) or "scalar"
