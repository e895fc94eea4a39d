# SPDX-License-Identifier: Apache-2.0
"""The `--device` option, the same for every verb that measures: there instead of here, on one device or several."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import Write
from litesmith.devices import AndroidBench, DeviceResult, read, run, run_all
from litesmith.result import Result

if TYPE_CHECKING:
    from litesmith.data import Dataset

DeviceOption = Annotated[
    list[str] | None,
    typer.Option("--device", help="Measure there: ssh://user@host, or a name of the devices file. Again for more."),
]
OneDeviceOption = Annotated[
    str | None, typer.Option("--device", help="Measure latency there: ssh://user@host, or a name of the devices file.")
]
DevicesOption = Annotated[
    Path | None, typer.Option("--devices", help="The devices file; default ~/.config/litesmith/devices.toml.")
]


def measure_there(
    verb: str,
    models: Sequence[Path],
    options: dict[str, Any],
    *,
    device: Sequence[str],
    devices: Path | None,
    show: Callable[[Any], None],
    data: Dataset | None = None,
    files: dict[Path, Write] | None = None,
    json: bool = False,
) -> None:
    """Run a verb on devices and print and keep what they give; with several, the device's name goes into file names."""

    def say(text: str) -> None:
        print(text, file=sys.stderr)

    if len(device) == 1:
        result = run(verb, *models, device=device[0], devices_file=devices, data=data, say=say, **options)
        out.deliver(result, lambda found: _show(device[0], found, show), as_json=json, files=files or {})
        if not getattr(result, "complete", True):
            raise typer.Exit(130)
        return
    results = run_all(verb, *models, devices=device, devices_file=devices, data=data, say=say, **options)
    found = [(entry, read(entry)) for entry in results.devices]
    if json:
        out.json(results)
    else:
        for entry, one in found:
            _show_one(entry, one, show)
    for path, write in (files or {}).items():
        for entry, one in found:
            if one is not None:
                write(one, path.with_name(f"{path.stem}.{entry.device}{path.suffix}"))
    if any(entry.error for entry in results.devices):
        raise typer.Exit(1)


def _show_one(entry: DeviceResult, result: Result | None, show: Callable[[Any], None]) -> None:
    if result is not None:
        _show(entry.device, result, show)
        return
    out.heading(entry.device)
    out.line(f"! {entry.error}")


def _show(device: str, result: Result, show: Callable[[Any], None]) -> None:
    machine = getattr(result, "machine", None)
    facts = f": {machine.cpu}, {machine.cores} cores, {machine.architecture}" if machine is not None else ""
    out.heading(f"{device}{facts}")
    if isinstance(result, AndroidBench):
        _show_android(result)
    else:
        show(result)


def _show_android(result: AndroidBench) -> None:
    out.line(", ".join(value for value in result.phone.values() if value))
    rows = []
    for each in result.runs:
        times, memory = each.output.inference, each.output.memory_bytes
        figures = (times.mean_ms, times.deviation_ms, times.min_ms, times.max_ms, each.output.first_ms)
        size = "" if memory is None else out.bytes_text(memory)
        label = f"{Path(each.model).name.removesuffix('.tflite')} ({each.threads} threads, {each.kernels})"
        rows.append((label, *(f"{value:.3f}" for value in figures), times.count, size))
    out.table(["model", "mean ms", "± ms", "min", "max", "first ms", "runs", "memory"], rows)
