# SPDX-License-Identifier: Apache-2.0
"""`litesmith choose`: which architecture for this task and budget, measured on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from litesmith.cli import _output as out
from litesmith.cli._files import check_page, chosen, write_json
from litesmith.tune import Choice, choose


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("choose")(command)


def command(
    task: Annotated[str, typer.Option(help="Such as image-classification; `litesmith zoo` has them.")] = (
        "image-classification"
    ),
    max_latency: Annotated[str | None, typer.Option(help="Of one inference, e.g. 10ms.")] = None,
    min_accuracy: Annotated[float | None, typer.Option(help="Published, in the task's metric, e.g. 70.")] = None,
    max_size: Annotated[str | None, typer.Option(help="Of the file, e.g. 8MB.")] = None,
    precision: Annotated[str, typer.Option(help="float, int8 or both.")] = "both",
    dataset: Annotated[str | None, typer.Option(help="Whose accuracies; the one with most variants.")] = None,
    threads: Annotated[int, typer.Option(help="Threads of the measurement.")] = 1,
    workers: Annotated[int | None, typer.Option(help="Processes that build; one for each core by default.")] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again what is in the cache.")] = False,
    page: Annotated[Path | None, typer.Option(help="An .html for the two trade-off plots.")] = None,
    save: Annotated[Path | None, typer.Option(help="A .json to keep the result in.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Build the variants that may fit, measure them here, and pick one, with its place in the trade-off.

    Example: `litesmith choose --task image-classification --max-latency 10ms --min-accuracy 70 --page choose.html`
    """
    files = chosen((save, write_json), (page, _write_page))
    check_page(page)
    result = choose(
        task=task,
        max_latency=max_latency,
        min_accuracy=min_accuracy,
        max_size=max_size,
        precision=precision,
        dataset=dataset,
        threads=threads,
        workers=workers,
        refresh=refresh,
    )
    out.deliver(result, show, as_json=json, files=files)
    if page is not None and not json:
        out.line(f"the page: {page.resolve()}")
    if result.pick is None:
        raise typer.Exit(1)


def _write_page(result: Choice, path: Path) -> None:
    from litesmith.report import report

    report(result, path)


def show(result: Choice) -> None:
    """Print the choice for people: the pick, the front, and what comes next."""
    rows = []
    for number, variant in enumerate(result.variants):
        measured = variant.measured
        if measured is None or not (variant.front or number == result.pick):
            continue
        rows.append(
            (
                "★" if number == result.pick else "✗" if variant.reason else "",
                variant.name,
                variant.precision,
                f"{variant.accuracy:g}",
                f"{measured.latency_ms:.2f}",
                out.bytes_text(measured.size_bytes),
                out.bytes_text(measured.memory_bytes),
            )
        )
    out.line(f"{result.metric} on {result.dataset}, as published; latency with {result.threads} thread(s), here")
    count = sum(v.measured is not None for v in result.variants)
    if count:
        out.table(["", "variant", "", "accuracy", "ms", "size", "memory"], rows, left=3)
        known = f"{count} measured, {result.cached} of them known before"
        out.line(f"the Pareto front of {known}; ★ the pick, ✗ out of bounds")
    for number, reason in enumerate(result.reasons):
        out.line(f"{'★' if result.pick is not None else '·' if number else '✗'} {reason}")
    if result.pick is not None:
        out.console.print(f"next: {out.printable(result.command)}", soft_wrap=True)  # on one line, to be copied
        samples = "" if result.variants[result.pick].precision == "float" else ", and `quantize` samples with --data"
        out.line(
            f"! the weights are random, with which it was measured: give `zoo build` yours with --weights{samples}"
        )
