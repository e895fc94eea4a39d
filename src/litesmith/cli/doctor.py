# SPDX-License-Identifier: Apache-2.0
"""`litesmith doctor`: what this machine can do."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.measure import Diagnosis, doctor


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("doctor")(command)


def command(json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False) -> None:
    """Say which accelerators, extras, CPU features and device tools this machine has, and how to get the missing ones.

    Example: `litesmith doctor`
    """
    result = doctor()
    if json:
        out.json(result)
    else:
        show(result)
    if not result.healthy:
        raise typer.Exit(1)


def show(result: Diagnosis) -> None:
    """Print a diagnosis for people."""
    machine = result.machine
    out.facts(
        [
            ("CPU", f"{machine.cpu}, {machine.architecture}, {machine.cores} cores"),
            ("features", ", ".join(machine.features) or "none that kernels choose by"),
            ("memory", out.bytes_text(machine.memory_bytes)),
            ("system", f"{machine.kernel}, Python {machine.python}"),
            ("versions", ", ".join(f"{name} {version}" for name, version in machine.versions.items())),
        ]
    )
    for group, findings in groupby(result.findings, key=lambda f: f.group):
        out.heading(group.capitalize() if group != "cpu" else "CPU")
        for finding in findings:
            mark = "[green]✓[/green]" if finding.present else "[yellow]–[/yellow]"
            out.console.print(f"{mark} {out.printable(finding.name)}: {out.printable(finding.detail)}")
            if finding.remedy:
                out.console.print(f"  → {out.printable(finding.remedy)}", style="dim")
