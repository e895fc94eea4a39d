# SPDX-License-Identifier: Apache-2.0
"""`litesmith report`: the page of any result or search."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import check_writable
from litesmith.report import report


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("report")(command)


def command(
    source: Annotated[Path, typer.Argument(help="The .json of a result, or the folder of a search.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The .html; beside the source by default.")
    ] = None,
    plots: Annotated[Path | None, typer.Option(help="A folder for each plot as SVG and PNG.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the paths as JSON.")] = False,
) -> None:
    """Write one self-contained HTML page of a result: no network, light and dark, printable, sortable.

    Example: `litesmith report litesmith-tune --plots figures/`
    """
    check_writable(output)
    page = report(source, output, plots=plots)
    if json:
        print(json_module.dumps({"page": str(page), "plots": sorted(map(str, plots.iterdir())) if plots else []}))
    else:
        out.line(f"the page: {page.resolve()}")
