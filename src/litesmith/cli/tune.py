# SPDX-License-Identifier: Apache-2.0
"""`litesmith tune`: a budget in, the file to ship out, and the proof."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from litesmith.cli import _output as out
from litesmith.cli._on_device import DevicesOption, OneDeviceOption
from litesmith.errors import UsageError
from litesmith.tune import Plan, Trial, Tuned, plan, reproduce, tune


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("tune")(command)


FROM_LOCK = ("model", "data", "calibrate", "train", "output", "lock", "json", "custom_op")
"""The options that `--from` uses: where things are, and where the file goes. All else is what the lock says."""


def command(
    context: typer.Context,
    model: Annotated[Path | None, typer.Argument(help="The .tflite file, in float.")] = None,
    data: Annotated[
        str | None, typer.Option(help="Samples to score on: .npz, .npy, folder, .csv, module:function.")
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option(help="How samples become inputs, e.g. 'resize=224 scale=1/255'.")
    ] = None,
    calibrate: Annotated[str | None, typer.Option(help="Samples to calibrate on; else a fifth of --data.")] = None,
    metric: Annotated[str | None, typer.Option(help="top1, agreement, …; top1 where there are labels.")] = None,
    max_drop: Annotated[str, typer.Option(help="What may be lost: 1% is a point of a score in percent.")] = "1%",
    max_latency: Annotated[str | None, typer.Option(help="Of one inference, e.g. 5ms.")] = None,
    max_size: Annotated[str | None, typer.Option(help="Of the file, e.g. 4MB.")] = None,
    minimize: Annotated[str, typer.Option(help="latency, size, download or drop: decides within bounds.")] = "latency",
    time: Annotated[str | None, typer.Option(help="How long the search may take, e.g. 15m.")] = None,
    limit: Annotated[int | None, typer.Option(help="How many samples at most to score candidates on.")] = None,
    model_output: Annotated[str | None, typer.Option(help="The output that is scored, of several.")] = None,
    label_offset: Annotated[int, typer.Option(help="Added to class numbers.")] = 0,
    recipe: Annotated[list[str] | None, typer.Option(help="One more candidate; again for more.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Nothing but this candidate; again for more.")] = None,
    effort: Annotated[str, typer.Option(help="full also searches what can be removed; quick does not.")] = "full",
    accelerators: Annotated[bool, typer.Option(help="Let the best files run on every accelerator.")] = False,
    seconds: Annotated[float, typer.Option(help="To measure each file for, with each number of threads.")] = 1.0,
    workers: Annotated[int | None, typer.Option(help="Processes; one for each core by default.")] = None,
    cluster: Annotated[str | None, typer.Option(help="A Dask scheduler, tcp://HOST:PORT, instead.")] = None,
    device: OneDeviceOption = None,
    devices: DevicesOption = None,
    train: Annotated[
        str | None, typer.Option(help="Samples to train on, as --data: allows candidates that are trained.")
    ] = None,
    train_epochs: Annotated[
        int | None, typer.Option(help="How often each training sees them; 5, or 16 with zeros or fewer channels.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the splits and of all that is drawn.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The folder for the files, litesmith-tune by default; with --from, the file."
        ),
    ] = None,
    only_plan: Annotated[bool, typer.Option("--plan", help="Say what would be tried and what it costs; stop.")] = False,
    lock: Annotated[
        Path | None, typer.Option("--from", help="A litesmith.lock: make its winner again, byte for byte.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Find the file to ship within bounds on accuracy, latency and size, by measuring, and leave it with the proof.

    A search that was stopped goes on where it was when it is started again.

    Example: `litesmith tune model.tflite --data test.npz --max-drop 1% --max-latency 5ms --max-size 4MB --time 15m`
    """
    if lock is not None:
        _check_from(context, lock)
        written = reproduce(lock, output, model=model, data=data, calibrate=calibrate, train=train)
        if json:
            print(dumps({"path": str(written), "lock": str(lock)}, indent=2, ensure_ascii=False))
        else:
            out.line(f"{written} is the winner of {lock}, byte for byte")
        return
    if model is None or data is None:
        raise UsageError("tune needs a model and --data to score it on; without any, see `litesmith advise`")
    if seed < 0:
        raise UsageError(f"--seed must be 0 or more, not {seed}")
    folder = Path("litesmith-tune") if output is None else output
    options: dict[str, Any] = {
        "output": folder,
        "preprocess": preprocess,
        "calibrate": calibrate,
        "metric": metric,
        "max_drop": max_drop,
        "max_latency": max_latency,
        "max_size": max_size,
        "minimize": minimize,
        "time_limit": time,
        "limit": limit,
        "model_output": model_output,
        "label_offset": label_offset,
        "recipes": tuple(recipe or ()),
        "only": tuple(only or ()),
        "effort": effort,
        "accelerators": accelerators,
        "seconds": seconds,
        "workers": workers,
        "cluster": cluster,
        "device": device,
        "devices_file": devices,
        "seed": seed,
        "train": train,
        "train_epochs": train_epochs,
    }
    if only_plan:
        planned = plan(model, data, **options)
        out.json(planned) if json else show_plan(planned)
        return
    result = tune(model, data, **options, on_plan=lambda planned: _tell_plan(planned, to_stderr=json))
    from litesmith.report import report

    if json:
        out.json(result)
    else:
        show(result)
    try:
        page = report(result, folder / "report.html")
    except OSError as error:  # what was found is there all the same
        with contextlib.suppress(OSError):
            (folder / "report.html").unlink()  # no half page, and none of another search
        print(f"! the page cannot be written to {folder}: {error.strerror}", file=sys.stderr if json else sys.stdout)
    else:
        if not json:
            out.line(f"the page: {page.resolve()}")
    if result.winner is None:
        raise typer.Exit(1)


def _check_from(context: typer.Context, lock: Path) -> None:
    """Refuse options that would change what a lock makes, which is what it says."""
    sources = {
        p.opts[0]: context.get_parameter_source(p.name) for p in context.command.params if p.name not in FROM_LOCK
    }
    given = [option for option, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        raise UsageError(
            f"{', '.join(given)} cannot be given with --from, which makes the winner again as {lock} says; leave "
            f"{'it' if len(given) == 1 else 'them'} out, or search again without --from"
        )


def _tell_plan(planned: Plan, *, to_stderr: bool) -> None:
    """Print what is to be expected, in short, before a search begins."""
    expected = ", ".join(f"{name} {text}" for name, text in _expected(planned))
    print(f"plan: {expected}", file=sys.stderr) if to_stderr else out.line(f"plan: {expected}")


def _expected(planned: Plan) -> list[tuple[str, str]]:
    """Return what a search takes, by name."""
    low, high = planned.seconds
    fewest, most = planned.trials
    times = [_duration(seconds) for seconds in (low, high)]
    ends = planned.limit_s is not None and planned.limit_s < high
    limit = f", cut short so that it ends after about {_duration(planned.limit_s or 0)}" if ends else ""
    return [
        ("trials", " to ".join(str(count) for count in dict.fromkeys((fewest, most)))),
        (
            "time",
            f"about {' to '.join(dict.fromkeys(times))} with {out.plural(planned.workers, 'process', 'processes')}{limit}",
        ),
        ("memory", out.bytes_text(planned.memory_bytes)),
        ("disk", out.bytes_text(planned.disk_bytes)),
    ]


def show_plan(planned: Plan) -> None:
    """Print a plan for people."""
    calibrate, search, held_out = planned.samples
    out.facts(
        [
            ("model", planned.model or "without a description"),
            ("samples", f"{calibrate} to calibrate on, {search} to search on, {held_out} held out"),
            *_expected(planned),
        ]
    )
    rows = [
        (
            s.name,
            s.trials or "",
            _duration(s.seconds),
            "if needed" if s.if_needed else "",
            "see below" if s.name == "training" else ", ".join(_counted(s.candidates)[:9]),
        )
        for s in planned.stages
    ]
    out.heading("Stages")
    out.table(["stage", "trials", "time", "", "candidates"], rows, left=1)
    for stage in (s for s in planned.stages if s.name == "training"):
        out.heading("Trainings, from cheap to dear")
        for candidate in stage.candidates:
            out.line(f"· {candidate}")
    for name, reason in planned.left_out:
        out.line(f"! left out: {name}: {reason}")


def _counted(candidates: Sequence[str]) -> list[str]:
    """Return candidates once each, with how many there are of those that are not known yet."""
    return [name if count == 1 else f"{count} × {name}" for name, count in Counter(candidates).items()]


def show(result: Tuned) -> None:
    """Print what a search found for people."""
    winner, first = result.winner, result.baseline
    out.line(f"{result.metric} on {result.data}; bounds: {result.budget.text()}")
    shown = [first, *(t for t in result.trials if t.number in result.front and t.number != 0)]
    if winner is not None and winner not in shown:
        shown.append(winner)
    heading = ["", "recipe", result.metric, "drop", "ms", _weight(result), "held out", "drop"]
    out.table(heading, [(_mark(trial, result), *_row(trial, result)) for trial in shown], left=2)
    if result.device:
        out.line(f"ms were measured on {result.device}: {result.machine.cpu}, {result.machine.cores} cores")
    counts = {s: sum(t.status == s for t in result.trials) for s in ("done", "stopped", "failed")}
    shown_as = (
        "★ is the winner, the others are the Pareto front" if winner is not None else "these are the Pareto front"
    )
    out.line(
        f"{len(result.trials)} trials ({counts['stopped']} stopped early, {counts['failed']} failed) in "
        f"{_duration(result.seconds)} with {result.workers} processes; {shown_as}"
    )
    for reason in result.verdict.reasons:
        out.line(f"{'★' if winner is not None else '✗'} {reason}")
    if result.verdict.nearest:
        near = [t for n in result.verdict.nearest for t in result.trials if t.number == n]
        out.table(["nearest", *heading[2:]], [_row(trial, result) for trial in near], left=1)
    for reason, names in _failures(result).items():
        out.line(f"! failed: {', '.join(names)}: {reason}")
    for on in (a for a in result.accelerators if a.best and a.latency_ms is not None):
        name = next(t for t in result.trials if t.number == on.trial).name
        out.line(f"· {name} is fastest on {on.name}: {on.latency_ms:.3f} ms")
    for note in result.notes:
        out.line(f"! {note}")
    for name, reason in result.left_out:
        out.line(f"· left out: {name}: {reason}")


def _weight(result: Tuned) -> str:
    """Return which size is shown."""
    return "download" if result.budget.minimize == "download" else "size"


def _failures(result: Tuned) -> dict[str, list[str]]:
    """Return the candidates that failed, by the reason."""
    found: dict[str, list[str]] = {}
    for trial in result.trials:
        if trial.status == "failed":
            found.setdefault(trial.reason, []).append(trial.name)
    return found


def _mark(trial: Trial, result: Tuned) -> str:
    return "★" if result.winner is not None and trial.number == result.winner.number else ""


def _row(trial: Trial, result: Tuned) -> tuple[str, ...]:
    scale, unit = (100, " %") if result.is_fraction else (1, "")
    best = trial.best_timing
    where = (
        "" if best is None else f" {best.accelerator}" if best.accelerator else f" ×{best.threads}" * (best.threads > 1)
    )
    about = "" if trial.about_ms is None else f"≈ {trial.about_ms:.3g}"
    latency = about if best is None else f"{best.median_ms:.3f}{where}"
    held = trial.held_out
    return (
        trial.name,
        "" if trial.score is None else f"{scale * trial.score.value:.2f}{unit}",
        "" if trial.drop is None else f"{scale * trial.drop:+.2f}",
        latency,
        out.bytes_text(trial.download_bytes if _weight(result) == "download" else trial.size_bytes),
        "" if held is None else f"{scale * held.value:.2f}{unit}",
        ""
        if held is None or held.drop is None
        else f"{scale * held.drop.drop_low:+.2f}…{scale * held.drop.drop_high:+.2f}",
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
