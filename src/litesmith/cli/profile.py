# SPDX-License-Identifier: Apache-2.0
"""`litesmith profile`: time per operator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import chosen, write_json, write_plot
from litesmith.cli._on_device import DeviceOption, DevicesOption, measure_there
from litesmith.errors import UsageError
from litesmith.measure import Profile, profile


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("profile")(command)


def command(
    model: Annotated[Path, typer.Argument(help="The .tflite file.")],
    threads: Annotated[int, typer.Option(help="Threads of the CPU kernels.")] = 1,
    kernels: Annotated[
        str, typer.Option(help="delegate (XNNPACK and ours), xnnpack, builtin, reference.")
    ] = "delegate",
    runs: Annotated[int, typer.Option(help="Runs to record.")] = 100,
    top: Annotated[int, typer.Option(help="How many of the hottest operators to list; 0 for all.")] = 15,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    device: DeviceOption = None,
    devices: DevicesOption = None,
    csv: Annotated[Path | None, typer.Option(help="A .csv to write, a line per operator.")] = None,
    html: Annotated[Path | None, typer.Option(help="An .html to write.")] = None,
    proto: Annotated[Path | None, typer.Option(help="LiteRT's own profiling proto to write.")] = None,
    model_explorer: Annotated[
        Path | None, typer.Option(help="A .json of node data for Model Explorer to write.")
    ] = None,
    optimize_op: Annotated[
        int | None, typer.Option("--optimize-op", help="An operator to try --kernel for, instead of a profile.")
    ] = None,
    kernel: Annotated[
        str | None, typer.Option(help="Your kernel for it: module:function, FILE.py:function or library.so:symbol.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Time for each kernel with --optimize-op.")] = 2.0,
    plot: Annotated[Path | None, typer.Option(help="An .html to draw the operators in.")] = None,
    save: Annotated[Path | None, typer.Option(help="A .json to keep the result in.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure the time of each operator of the file, the kernel that ran it, and what is odd about it.

    With --optimize-op, measure a kernel of your own for one of them against the stock kernels, alone and in the model.

    Example: `litesmith profile model.tflite --top 20 --html profile.html`
    """
    if optimize_op is not None or kernel is not None:
        if device:
            raise UsageError("--optimize-op compares kernels on this machine; run it there by hand, without --device")
        how = {"threads": threads, "seconds": seconds, "seed": seed}
        _contest(model, optimize_op, kernel, how, plot=plot, save=save, json=json)
        return
    from litesmith.measure import write_csv

    options: dict[str, Any] = {"threads": threads, "kernels": kernels, "runs": runs, "seed": seed}
    files = chosen(
        (save, write_json),
        (plot, write_plot),
        (csv, write_csv),
        (proto, _write_proto),
        (model_explorer, _write_node_data),
        (html, _write_page),
    )
    if device:
        measure_there(
            "profile",
            [model],
            options,
            device=device,
            devices=devices,
            show=lambda found: show(found, top),
            files=files,
            json=json,
        )
        return
    result = profile(model, **options)
    out.deliver(result, lambda found: show(found, top), as_json=json, files=files)
    if not result.complete:
        raise typer.Exit(130)


def _write_proto(result: Profile, path: Path) -> None:
    from litesmith.measure import profiling_proto

    path.write_bytes(profiling_proto(result))


def _write_node_data(result: Profile, path: Path) -> None:
    from litesmith.measure import model_explorer_node_data

    path.write_text(model_explorer_node_data(result), encoding="utf-8")


def _write_page(result: Profile, path: Path) -> None:
    from litesmith.report import profile_page, write

    write(profile_page(result), path)


def show(result: Profile, top: int = 15) -> None:
    """Print a profile for people: summary, kinds, hottest operators, oddities."""
    roof = result.roofline
    peaks = f"{roof.gmacs_per_s:.0f} GMAC/s ({roof.int8_gmacs_per_s:.0f} in int8), {roof.gbytes_per_s:.0f} GB/s at best"
    out.facts(
        [
            ("model", f"{result.model}, {out.plural(result.threads, 'thread')}"),
            ("latency", _latency(result)),
            ("in operators", f"{result.operators_us / 1000:.3f} ms"),
            ("besides", _besides(result)),
            ("profiler", f"costs {100 * result.overhead:+.1f} % ({result.unprofiled_us / 1000:.3f} ms without it)"),
            ("this machine", peaks),
        ]
    )
    out.heading("By kind")
    out.table(
        ["kind", "count", "µs", "share", "GMAC/s"],
        [
            (
                k.kind,
                k.count,
                f"{k.mean_us:.1f}",
                f"{100 * k.share:.1f} %",
                f"{k.macs / k.mean_us / 1000:.1f}" if k.macs else "",
            )
            for k in result.by_kind()
        ],
    )
    hottest = result.hottest()[: top or None]
    out.heading(f"The {len(hottest)} hottest of {len(result.operators)} operators")
    cumulative, rows = 0.0, []
    for o in hottest:
        cumulative += o.share
        rows.append(
            (
                o.index,
                o.kind,
                _kernel(o.kernels),
                f"{o.mean_us:.1f}",
                f"{o.p95_us:.0f}",
                f"{100 * o.share:.1f}",
                f"{100 * cumulative:.0f}",
                f"{o.gmacs_per_s:.1f}" if o.macs else "",
                f"{100 * o.roof:.0f}" if o.roof is not None else "",
            )
        )
    out.table(["#", "kind", "kernel", "µs", "p95", "%", "Σ %", "GMAC/s", "roof %"], rows, left=3)
    if result.oddities:
        out.heading("Odd")
    for oddity in result.oddities:
        where = f" (operators {', '.join(map(str, oddity.operators[:8]))}{', …' if len(oddity.operators) > 8 else ''})"
        share = f", {100 * oddity.share:.1f} % of the time" if oddity.share else ""
        out.line(f"! {oddity.what}{where if oddity.operators else ''}{share}")
        out.line(f"  → {oddity.remedy}")

    if result.gains:
        out.heading("What could be gained at the hottest operators")
    for gain in result.gains:
        out.line(f"{gain.operator} {gain.kind}: {gain.saves_us:.0f} µs, {100 * gain.share:.0f} % of the time")
        out.line(f"  → {gain.how}")
    if not result.complete:
        out.line(f"! interrupted: the figures are of the {result.runs} runs until then")


def _kernel(kernels: tuple[str, ...]) -> str:
    main = kernels[-1].split(" (")[0].split("__")[0] if kernels else ""
    algorithm = kernels[-1].split(") ")[-1] if kernels and ") " in kernels[-1] else ""
    return f"{main} {algorithm}".strip()


def _besides(result: Profile) -> str:
    inserted = sum(us for _, us in result.inserted)
    parts = [
        f"{result.border_us:.0f} µs at the border (inputs, outputs, call)",
        f"{result.graph_us:.0f} µs between kernels",
        f"{result.profiler_us:.0f} µs in the profiler itself",
    ]
    if inserted:
        parts.append(f"{inserted:.0f} µs in kernels of no operator")
    if result.fused:
        parts.append(f"{len(result.fused)} operators fused or folded")
    return ", ".join(parts)


def _latency(result: Profile) -> str:
    text = f"{result.latency_us / 1000:.3f} ms, mean of {result.runs - result.interrupted} profiled runs"
    return f"{text}; {result.interrupted} more were interrupted and left out" if result.interrupted else text


def _contest(
    model: Path,
    operator: int | None,
    kernel: str | None,
    options: dict[str, Any],
    *,
    plot: Path | None,
    save: Path | None,
    json: bool,
) -> None:
    from litesmith.cli import _operator_contest
    from litesmith.measure import optimize_op

    if operator is None or kernel is None:
        raise UsageError("--optimize-op and --kernel go together: which operator, and your kernel for it")
    files = chosen((save, write_json), (plot, write_plot))
    result = optimize_op(model, operator, kernel, **options)
    out.deliver(result, _operator_contest.show, as_json=json, files=files)
    if not result.complete:
        raise typer.Exit(130)
