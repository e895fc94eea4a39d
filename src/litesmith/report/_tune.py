# SPDX-License-Identifier: Apache-2.0
"""The page of a search: what to ship, what else was tried, and why."""

from __future__ import annotations

from pathlib import Path

from litesmith.optimize import Recipe
from litesmith.report._coverage import coverage_section
from litesmith.report._machine import machine_rows
from litesmith.report._page import Page, Section, Table, table
from litesmith.report._plots import Mark, scatter
from litesmith.report._tree import advice_tree, on_the_road, tree_table
from litesmith.report._tuned_layers import layer_sections
from litesmith.tune import Trial, Tuned


def tune_page(result: Tuned) -> Page:
    """Return the page of a search."""
    there = f"; latency was measured there, on {result.device}" if result.device else ""
    sections = [_plots(result), _trials(result), _decision(result), *layer_sections(result)]
    if result.coverage is not None:
        sections.append(coverage_section(result.coverage))
    if result.accelerators:
        sections.append(_accelerators(result))
    if result.advice is not None:
        sections.append(
            Section(
                "The road that the decision tree advises",
                text=f"{result.advice.recipe or 'float'}: {result.advice.cost}",
                figures=(advice_tree(result.advice),),
                items=result.advice.reasons,
                table=tree_table(on_the_road(result.advice)),
            )
        )
    if result.left_out:
        sections.append(Section("What was left out", table=table(["what", "why"], result.left_out, left=2)))
    return Page(
        title=f"Which file to ship of {Path(result.model).name}",
        summary=summary(result),
        facts=(
            ("model", result.description or result.model),
            ("bounds", result.budget.text()),
            ("scored by", f"{result.metric} on {result.data}"),
            ("search", f"{len(result.trials)} trials in {result.seconds:.0f} s with {result.workers} processes"),
            *machine_rows(result.machine, there),
        ),
        sections=tuple(sections),
    )


def summary(result: Tuned) -> str:
    """Return before and after in one sentence."""
    winner, base = result.winner, result.baseline
    if winner is None:
        return f"No file is within the bounds: {'; '.join(result.verdict.reasons[1:])}."
    if winner.number == 0:
        return "Ship the float model as it is: nothing that was tried is better within the bounds."
    words = [f"{base.size_bytes / winner.size_bytes:.1f} times smaller"]
    if _counts_download(result) and base.download_bytes and winner.download_bytes:
        times, now = base.download_bytes / winner.download_bytes, _kilobytes(winner.download_bytes)
        words = [f"{times:.1f} times smaller to download ({now} through gzip, not {_kilobytes(base.download_bytes)})"]
    if winner.best_timing is not None and base.best_timing is not None:
        words.append(_speed(base.best_timing.median_ms / winner.best_timing.median_ms))
    text = f"Ship {winner.name}: {' and '.join(words)}"
    held = winner.held_out
    if held is not None and held.drop is not None:
        before, after = _score(held.drop.value, result), _score(held.value, result)
        sure = "within the bound for sure" if result.verdict.proved else "too few samples to be sure of the bound"
        text += f"; {result.metric} goes from {before} to {after} on {held.samples:,} samples that the search never saw"
        low, high = _points(-held.drop.drop_high, result), _points(-held.drop.drop_low, result)
        text += f" (change between {low} and {high}; {sure})"
    return f"{text}."


def _speed(times: float) -> str:
    if round(times, 2) == 1:
        return "as fast"
    return f"{times:.2f} times as fast" if times > 1 else f"{1 / times:.2f} times slower"


def _counts_download(result: Tuned) -> bool:
    return result.budget.minimize == "download"


def _plots(result: Tuned) -> Section:
    shown = [t for t in result.trials if t.score is not None]
    better = result.higher_is_better
    scale = 100 if result.is_fraction else 1
    base = result.baseline.score
    floor = None if base is None else scale * (base.value - (1 if better else -1) * result.drop_bound)
    unit = " in %" if result.is_fraction else ""
    y_label = f"{result.metric}{unit}, search split"
    timed = [t for t in shown if t.latency_ms is not None]
    size = result.budget.max_size_bytes
    axes: list[tuple[str, str, list[tuple[Trial, float]], float | None]] = [
        ("latency", "latency in ms", [(t, t.latency_ms or 0.0) for t in timed], result.budget.max_latency_ms),
        ("size", "size in kB", [(t, t.size_bytes / 1000) for t in shown if t.size_bytes], size and size / 1000),
    ]
    if _counts_download(result):
        weighed = [(t, t.download_bytes / 1000) for t in shown if t.download_bytes]
        axes.insert(0, ("download", "download in kB, through gzip", weighed, None))
    figures = [
        scatter(
            f"{result.metric} against {what}",
            [_mark(trial, result, x, scale) for trial, x in places],
            x_label=x_label,
            y_label=y_label,
            x_bound=bound,
            y_bound=floor,
            more_is_better=better,
        )
        for what, x_label, places, bound in axes
        if places
    ]
    weight = "download" if _counts_download(result) else "size"
    text = (
        "Each mark is a trial: ★ the winner, ● the Pareto front, which no other trial beats in accuracy, latency and "
        f"{weight} at once, ○ the others. Hover for the figures; a click leads to the trial."
    )
    filters = sorted({tag for t in shown for tag in _tags(t)})
    return Section(
        "The trade-off",
        text=text,
        figures=tuple(figures),
        filters=tuple(filters) if len(filters) > 1 else (),
        data="All trials",
    )


def _mark(trial: Trial, result: Tuned, x: float, scale: float) -> Mark:
    assert trial.score is not None
    winner = result.winner
    role = "dot" if trial.status == "done" else "out"
    if trial.number in result.front:
        role = "front"
    if winner is not None and trial.number == winner.number:
        role = "winner"
    return Mark(
        x, scale * trial.score.value, trial.name, _label(trial, result), role, f"trial-{trial.number}", _tags(trial)
    )


def _label(trial: Trial, result: Tuned) -> str:
    words = [f"{trial.number}: {trial.name}"]
    if trial.score is not None:
        words.append(f"{result.metric} {_score(trial.score.value, result)}, drop {_points(trial.drop or 0.0, result)}")
    if trial.latency_ms is not None:
        words.append(f"{trial.latency_ms:.3f} ms")
    words.append(_kilobytes(trial.size_bytes))
    if trial.download_bytes:
        words.append(f"{_kilobytes(trial.download_bytes)} to download")
    if trial.status != "done":
        words.append(f"{trial.status}: {trial.reason}")
    return "\n".join(words)


def _tags(trial: Trial) -> tuple[str, ...]:
    """Return the words that a trial is filtered by: the names of its steps, and its stage."""
    steps = [step.name for step in Recipe.parse(trial.recipe).steps] or ["float"]
    mixed = ["mixed"] if "+" in trial.recipe else []
    return tuple(dict.fromkeys([*steps, *mixed]))


def _trials(result: Tuned) -> Section:
    columns = [
        "#",
        "recipe",
        "stage",
        "standing",
        result.metric,
        "drop",
        "interval",
        "ms",
        "threads",
        *(["download"] if _counts_download(result) else []),
        "size",
        "held out",
        "interval of its drop",
    ]
    rows = [_row(t, result) for t in result.trials]
    grid = Table(
        tuple(columns),
        tuple(rows),
        left=4,
        ids=tuple(f"trial-{t.number}" for t in result.trials),
        tags=tuple(_tags(t) for t in result.trials),
    )
    return Section("All trials", text="Drops are against the float model on the same samples, in points.", table=grid)


def _row(trial: Trial, result: Tuned) -> tuple[str, ...]:
    winner = result.winner
    sign = (
        "★ winner"
        if winner is not None and trial.number == winner.number
        else "● front"
        if trial.number in result.front
        else ""
    )
    drop = None if trial.score is None else trial.score.drop
    held = trial.held_out
    best = trial.best_timing
    return (
        str(trial.number),
        trial.name,
        trial.stage,
        sign if trial.status == "done" else f"{trial.status}: {trial.reason}",
        "" if trial.score is None else _score(trial.score.value, result),
        "" if drop is None else _points(drop.drop, result),
        "" if drop is None else f"{_points(drop.drop_low, result)} … {_points(drop.drop_high, result)}",
        "" if best is None else f"{best.median_ms:.3f}",
        "" if best is None else str(best.threads),
        *([_kilobytes(trial.download_bytes)] if _counts_download(result) else []),
        _kilobytes(trial.size_bytes),
        "" if held is None else _score(held.value, result),
        ""
        if held is None or held.drop is None
        else f"{_points(held.drop.drop_low, result)} … {_points(held.drop.drop_high, result)}",
    )


def _decision(result: Tuned) -> Section:
    near = [t for n in result.verdict.nearest for t in result.trials if t.number == n]
    items = (*result.verdict.reasons, *result.notes)
    if not near:
        return Section("The decision", items=items)
    rows = [
        (t.name, "" if t.drop is None else _points(t.drop, result), _latency(t), _kilobytes(t.size_bytes)) for t in near
    ]
    return Section("The decision: nothing fits", items=items, table=table(["nearest", "drop", "latency", "size"], rows))


def _latency(trial: Trial) -> str:
    if trial.latency_ms is None:
        return "" if trial.about_ms is None else f"about {trial.about_ms:.3g} ms"
    return f"{trial.latency_ms:.3f} ms"


def _accelerators(result: Tuned) -> Section:
    names = {t.number: t.name for t in result.trials}
    rows = [
        (
            names[on.trial],
            on.name,
            "● best" if on.best else "" if on.ran else "did not run there",
            on.verdict,
            "" if on.latency_ms is None else f"{on.latency_ms:.3f}",
        )
        for on in result.accelerators
    ]
    return Section(
        "The best files on the accelerators here",
        table=table(["file", "accelerator", "", "verdict", "ms"], rows, left=4),
    )


def _kilobytes(size: int) -> str:
    return f"{size / 1000:.1f} kB" if size else ""


def _score(value: float, result: Tuned) -> str:
    return f"{100 * value:.2f} %" if result.is_fraction else f"{value:.4g}"


def _points(value: float, result: Tuned) -> str:
    return f"{100 * value:+.2f}" if result.is_fraction else f"{value:+.4g}"
