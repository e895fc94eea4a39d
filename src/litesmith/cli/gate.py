# SPDX-License-Identifier: Apache-2.0
"""`litesmith gate`: hold a file to its lock, for CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._on_device import DevicesOption, OneDeviceOption
from litesmith.tune import Gate, gate


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("gate")(command)


def command(
    lock: Annotated[Path, typer.Argument(help="The litesmith.lock.")],
    model: Annotated[Path | None, typer.Argument(help="The file; winner.tflite beside the lock by default.")] = None,
    data: Annotated[str | None, typer.Option(help="The samples, where they are not where the lock says.")] = None,
    calibrate: Annotated[str | None, typer.Option(help="The samples to calibrate on, likewise.")] = None,
    fail_if: Annotated[
        list[str] | None, typer.Option(help="A bound instead: 'drop>0.5%', 'latency>5ms', 'size>+1%'. Again for more.")
    ] = None,
    latency: Annotated[bool, typer.Option(help="Also check the latency.")] = True,
    seconds: Annotated[float, typer.Option(help="Time to measure the latency for.")] = 2.0,
    device: OneDeviceOption = None,
    devices: DevicesOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check drop, size and latency of a file against a lock; exits with 1 and the reason when one is out of bounds.

    Example: `litesmith gate litesmith.lock build/model.tflite --fail-if 'drop>0.5%'`
    """
    result = gate(
        lock,
        model,
        data=data,
        calibrate=calibrate,
        fail_if=tuple(fail_if or ()),
        latency=latency,
        seconds=seconds,
        device=device,
        devices_file=devices,
    )
    if json:
        out.json(result)
    else:
        show(result)
    if not result.passed:
        raise typer.Exit(1)


def show(result: Gate) -> None:
    """Print the checks for people."""
    same = "the lock's winner, byte for byte" if result.is_winner else "another file than the lock's winner"
    out.line(f"{result.model}: {same}")
    for check in result.checks:
        mark = "✗" if not check.holds else "·" if check.found is None else "✓"
        out.line(f"{mark} {check.text}")
    out.line("passed" if result.passed else "FAILED")
