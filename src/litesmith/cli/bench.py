# SPDX-License-Identifier: Apache-2.0
"""`litesmith bench`: latency with its spread."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import chosen, write_json, write_plot
from litesmith.cli._on_device import DeviceOption, DevicesOption, measure_there
from litesmith.measure import Bench, bench


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("bench")(command)


def command(
    models: Annotated[list[Path], typer.Argument(help="One or more .tflite files.")],
    threads: Annotated[list[int] | None, typer.Option(help="Threads; give it again to compare several.")] = None,
    kernels: Annotated[
        list[str] | None, typer.Option(help="delegate (XNNPACK and ours), xnnpack, builtin, reference; again for more.")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Runs of each; by default as many as fit into --seconds.")] = None,
    seconds: Annotated[float, typer.Option(help="Time for each, warm-up aside.")] = 3.0,
    data: Annotated[
        str | None, typer.Option(help="Samples to run on: .npz, .npy, folder, .csv, module:function.")
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option(help="How samples become inputs, e.g. 'resize=224 scale=1/255'.")
    ] = None,
    memory: Annotated[bool, typer.Option(help="Also measure memory, each in a process of its own.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    device: DeviceOption = None,
    devices: DevicesOption = None,
    plot: Annotated[Path | None, typer.Option(help="An .html to write the distributions to.")] = None,
    save: Annotated[Path | None, typer.Option(help="A .json to keep the result in, for compare.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON, raw samples included.")] = False,
) -> None:
    """Measure latency and memory: warmed up until stable, several models or settings interleaved in rounds.

    Example: `litesmith bench float.tflite int8.tflite --threads 1 --threads 2`
    """
    files = chosen((save, write_json), (plot, write_plot))
    samples = None
    if data is not None:
        from litesmith.data import Dataset

        samples = Dataset.open(data, preprocess=preprocess)
    options: dict[str, Any] = {
        "threads": tuple(threads or (1,)),
        "kernels": tuple(kernels or ("delegate",)),
        "runs": runs,
        "seconds": seconds,
        "memory": memory,
        "seed": seed,
    }
    if device:
        measure_there(
            "bench", models, options, device=device, devices=devices, show=show, data=samples, files=files, json=json
        )
        return
    result = bench(*models, data=samples, **options)
    out.deliver(result, show, as_json=json, files=files)
    if not result.complete:
        raise typer.Exit(130)


def show(result: Bench) -> None:
    """Print a measurement for people."""
    out.table(
        ["model", "median ms", "95 % interval", "min", "p95", "p99", "runs"],
        [
            (
                latency.configuration.label,
                f"{(s := latency.summary).median:.3f}",
                f"{s.low:.3f}–{s.high:.3f}",
                f"{s.minimum:.3f}",
                f"{s.p95:.3f}",
                f"{s.p99:.3f}",
                s.count,
            )
            for latency in result.latencies
        ],
    )
    out.table(
        ["model", "size", "ready ms", "first ms", "memory", "peak", "per s"],
        [
            (
                latency.configuration.label,
                out.bytes_text(latency.size_bytes),
                f"{latency.load_ms + latency.compile_ms:.1f}",
                f"{latency.first_ms:.2f}",
                out.bytes_text(latency.memory.model_bytes) if latency.memory else "",
                out.bytes_text(latency.memory.peak_bytes) if latency.memory else "",
                f"{latency.throughput:.0f}",
            )
            for latency in result.latencies
        ],
    )
    for latency in result.latencies:
        for doubt in latency.doubts():
            out.line(f"! {latency.configuration.label}: {doubt}")
    if not result.complete:
        out.line("! interrupted: the figures are of what was measured until then")
