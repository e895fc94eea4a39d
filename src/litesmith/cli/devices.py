# SPDX-License-Identifier: Apache-2.0
"""`litesmith devices`: which devices there are, and what they say of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.devices import Device, DeviceList, clean, find, inventory, load


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("devices")(command)


def command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names or addresses; all of the devices file by default.")
    ] = None,
    devices: Annotated[
        Path | None, typer.Option("--devices", help="The devices file; default ~/.config/litesmith/devices.toml.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Connect to each and ask what it is.")] = False,
    wheels: Annotated[bool, typer.Option("--wheels", help="Also find the wheels its runtime needs.")] = False,
    remove: Annotated[bool, typer.Option("--clean", help="Remove what Litesmith keeps there.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """List the devices that measure for this machine, ask what they are, or remove what Litesmith keeps there.

    Example: `litesmith devices ssh://pi@raspberry --check`
    """
    chosen: list[Device] = [find(name, devices) for name in names] if names else list(load(devices).values())
    if remove:
        for device in chosen:
            clean(device)
    result = inventory(chosen, ask=check, wheels=wheels)
    if json:
        out.json(result)
    else:
        show(result)
    if any(entry.error for entry in result.devices):
        raise typer.Exit(1)


def show(result: DeviceList) -> None:
    """Print the devices for people."""
    if not result.devices:
        out.line("no devices are listed; --help says where, and addresses such as ssh://user@host work without a list")
    for entry in result.devices:
        facts = entry.facts
        rows = [("address", entry.url), ("tags", ", ".join(entry.tags) or "none")]
        if facts is not None:
            rows += [
                ("machine", f"{facts.cpu}, {facts.cores} cores, {facts.architecture}, {facts.libc}"),
                (
                    "memory",
                    f"{out.bytes_text(facts.memory_bytes)}; {out.bytes_text(facts.free_bytes)} free on its disk",
                ),
                ("Python", facts.python),
                ("folder", facts.folder),
            ]
        rows += [("wheel", wheel) for wheel in entry.wheels]
        out.heading(entry.name)
        out.facts(rows)
        if entry.error:
            out.line(f"! {entry.error}")
