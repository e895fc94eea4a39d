# SPDX-License-Identifier: Apache-2.0
"""`litesmith zoo`: the architectures of the field, listed and built."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import check_writable
from litesmith.errors import UsageError
from litesmith.result import encode_fields
from litesmith.zoo import Entry, catalogue


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    zoo = typer.Typer(invoke_without_command=True)
    zoo.callback()(listing)
    zoo.command("build")(build)
    app.add_typer(zoo, name="zoo")


def listing(
    context: typer.Context,
    task: Annotated[str | None, typer.Option(help="Only architectures for this task.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the catalogue as JSON.")] = False,
) -> None:
    """List the architectures with their published size, cost and accuracy, or build one.

    Example: `litesmith zoo build mobilenet_v2 --width 0.5 -o m.tflite`
    """
    if context.invoked_subcommand is not None:
        return
    entries = [entry for entry in catalogue() if task in (None, entry.task)]
    if not entries:
        tasks = ", ".join(sorted({entry.task for entry in catalogue()}))
        raise UsageError(f"there is no architecture for the task {task!r}; there are some for {tasks}")
    if json:
        print(json_module.dumps([encode_fields(entry) for entry in entries], indent=2))
        return
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(f"{entry.task}: {entry.metric}", []).append(entry)
    for title, group in groups.items():
        out.heading(title)
        _table(group)


def _table(entries: list[Entry]) -> None:
    out.table(
        ["name", "width", "input", "parameters", "MACs", "float", "int8"],
        [
            (
                entry.name,
                f"{entry.width:g}",
                entry.resolution,
                out.count_text(entry.params.value) if entry.params else "",
                out.count_text(entry.macs.value) if entry.macs else "",
                f"{entry.accuracy:g}" if entry.accuracy is not None else "",
                f"{entry.accuracy_int8:g}" if entry.accuracy_int8 is not None else "",
            )
            for entry in entries
        ],
    )


def build(
    name: Annotated[str, typer.Argument(help="The architecture, as `litesmith zoo` lists it.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .tflite to write.")],
    width: Annotated[float, typer.Option(help="Multiplier of all channel counts.")] = 1.0,
    resolution: Annotated[int | None, typer.Option(help="Height and width of the input.")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of output classes.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    weights: Annotated[
        Path | None, typer.Option(help="A safetensors or torch checkpoint to take weights from.")
    ] = None,
    name_map: Annotated[
        str | None, typer.Option(help="How the checkpoint names them: a TOML file or built-in name.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was built as JSON.")] = False,
) -> None:
    """Build an architecture into a float .tflite, with random or loaded weights.

    Example: `litesmith zoo build mobilenet_v2 --width 0.5 -o m.tflite`
    """
    from litesmith.cli.inspect import show
    from litesmith.runtime import inspect
    from litesmith.zoo import build as build_model

    check_writable(output)
    model = build_model(
        name, width=width, resolution=resolution, classes=classes, seed=seed, weights=weights, name_map=name_map
    )
    model.save(output)
    result = inspect(output, delegates=False)
    if json:
        out.json(result)
    else:
        show(result)
