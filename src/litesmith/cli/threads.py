# SPDX-License-Identifier: Apache-2.0
"""`litesmith threads`: how many threads, quiet and under load."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import chosen, write_json, write_plot
from litesmith.cli._on_device import DeviceOption, DevicesOption, measure_there
from litesmith.measure import Threads, threads


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("threads")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file.")],
    counts: Annotated[
        list[int] | None, typer.Option(help="A number of threads; again for more. Default: 1 to 2 × cores.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time for each number in each condition.")] = 2.0,
    background: Annotated[int | None, typer.Option(help="Busy processes of the load; default half the cores.")] = None,
    kernels: Annotated[
        str, typer.Option(help="delegate (XNNPACK and ours), xnnpack, builtin, reference.")
    ] = "delegate",
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    device: DeviceOption = None,
    devices: DevicesOption = None,
    plot: Annotated[Path | None, typer.Option(help="An .html to draw the curves in.")] = None,
    save: Annotated[Path | None, typer.Option(help="A .json to keep the result in.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure 1 to N threads on the quiet machine and under a bounded load, and recommend a number.

    Example: `litesmith threads model.tflite --plot threads.html`
    """
    files = chosen((save, write_json), (plot, write_plot))
    if device:
        options = {"counts": counts, "seconds": seconds, "background": background, "kernels": kernels, "seed": seed}
        measure_there("threads", [model], options, device=device, devices=devices, show=show, files=files, json=json)
        return
    result = threads(model, counts=counts, seconds=seconds, background=background, kernels=kernels, seed=seed)
    out.deliver(result, show, as_json=json, files=files)
    if not result.complete:
        raise typer.Exit(130)


def show(result: Threads) -> None:
    """Print a sweep for people."""
    quiet, loaded = result.of("quiet"), result.of("loaded")
    load = out.plural(result.background, "busy process", "busy processes")
    out.line(f"{result.model}: quiet, and with {load} in the background")
    out.table(
        ["threads", "quiet ms", "p95", "loaded ms", "p95", "spread", "CPU ms", *([] if result.energy else ["mJ"])],
        [
            (
                n,
                f"{quiet[n].summary.median:.3f}",
                f"{quiet[n].summary.p95:.3f}",
                f"{loaded[n].summary.median:.3f}" if n in loaded else "",
                f"{loaded[n].summary.p95:.3f}" if n in loaded else "",
                f"{100 * loaded[n].variability:.0f} %" if n in loaded else "",
                f"{quiet[n].cpu_ms:.3f}",
                *([] if result.energy else [f"{quiet[n].energy_mj or 0:.3f}"]),
            )
            for n in sorted(quiet)
        ],
        left=0,
    )
    for advice in result.advice:
        out.line(f"for {advice.purpose}: {advice.threads} ({advice.reason})")
    if result.energy:
        out.line(f"energy: {result.energy}")
    if not result.complete:
        out.line("! interrupted: the figures are of what was measured until then")
