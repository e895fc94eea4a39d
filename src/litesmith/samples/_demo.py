# SPDX-License-Identifier: Apache-2.0
"""The whole story on the bundled sample: look, score, time, shrink, prove; and a page to open at the end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from litesmith.accuracy import Evaluation, evaluate
from litesmith.data import Dataset
from litesmith.errors import UsageError
from litesmith.measure import Change, Comparison, Profile, compare, profile
from litesmith.model import Model
from litesmith.optimize import Coverage, quantize
from litesmith.progress import task
from litesmith.report import Bars, Page, Section, table, write
from litesmith.result import Result
from litesmith.runtime import Inspection, inspect

STEPS = 5
SCHEMES = ("int8", "dynamic", "float16")


@dataclass(frozen=True)
class Candidate:
    """One way to make the sample smaller, and what it costs and saves."""

    scheme: str
    file: str
    evaluation: Evaluation
    comparison: Comparison
    coverage: Coverage


@dataclass(frozen=True)
class Demo(Result, kind="demo", schema=1):
    """What ``demo`` did: the float sample, the candidates made of it, and the page that tells it."""

    page: str
    inspection: Inspection
    float_score: Evaluation
    profile: Profile
    candidates: tuple[Candidate, ...]


def demo(folder: str | Path = "litesmith-demo", *, seconds: float = 1.0) -> Demo:
    """Tell the whole story on the bundled sample, and leave the files and a page in ``folder``.

    Args:
        folder: Where the models and the page go; made if it is not there.
        seconds: Time to measure each model for.
    """
    from litesmith.samples import dataset, model

    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {target} cannot be made: {error.strerror}") from error
    float_file = target / "float.tflite"
    model().save(float_file)
    test, train = dataset("test"), dataset("train")
    with task("The story of the sample", total=STEPS + len(SCHEMES)) as advance:
        inspection = inspect(float_file)
        advance(1)
        score = evaluate(float_file, test)
        advance(1)
        timed = profile(float_file, runs=200)
        advance(1)
        candidates = []
        for scheme in SCHEMES:
            candidates.append(_candidate(scheme, float_file, target, test, train, seconds))
            advance(1)
        page = write(_page(inspection, score, timed, candidates), target / "index.html")
        advance(2)
    result = Demo(str(page), inspection, score, timed, tuple(candidates))
    result.to_json(target / "demo.json")
    return result


def _candidate(scheme: str, float_file: Path, target: Path, test: Dataset, train: Dataset, seconds: float) -> Candidate:
    file = target / f"{scheme}.tflite"
    quantized = quantize(Model.load(float_file), scheme=scheme, data=train if scheme == "int8" else None)
    quantized.model.save(file)
    return Candidate(
        scheme,
        str(file),
        evaluate(file, test, against=float_file),
        compare(float_file, file, seconds=seconds),
        quantized.coverage,
    )


def _page(inspection: Inspection, score: Evaluation, timed: Profile, candidates: list[Candidate]) -> Page:
    int8 = candidates[0]
    size, latency = int8.comparison.change("size"), int8.comparison.change("latency")
    return Page(
        title="Litesmith on its sample",
        summary=(
            f"As int8 the model is {1 / size.ratio:.1f} times smaller and {_speed(latency)}; "
            f"its accuracy goes from {_percent(score)} to {_percent(int8.evaluation)}, {_verdict(int8.evaluation)}."
        ),
        facts=(
            ("model", inspection.description),
            ("parameters", f"{inspection.parameters:,}"),
            ("multiply-accumulates", f"{inspection.macs:,}"),
            ("scored on", f"{score.samples:,} images it has not seen"),
            ("machine", f"{timed.machine.cpu}, {timed.machine.cores} cores, {timed.machine.kernel}"),
            ("versions", ", ".join(f"{name} {version}" for name, version in timed.machine.versions.items())),
        ),
        sections=(
            _candidates_section(score, candidates),
            Section(
                "Where the time goes",
                text=f"The float model, operator by operator: one inference takes {timed.latency_us / 1000:.3f} ms.",
                bars=Bars(
                    "Microseconds by kind of operator",
                    tuple((k.kind, k.mean_us, f"{k.mean_us:.0f} µs") for k in timed.by_kind()),
                ),
                table=table(
                    ["#", "kind", "kernel", "µs", "share", "MACs"],
                    [
                        (
                            o.index,
                            o.kind,
                            " + ".join(o.kernels),
                            f"{o.mean_us:.1f}",
                            f"{100 * o.share:.1f} %",
                            f"{o.macs:,}",
                        )
                        for o in timed.hottest()[:12]
                    ],
                    left=3,
                ),
            ),
            Section(
                "What is in the model",
                table=table(
                    ["operator", "count", "parameters", "MACs"],
                    [(g.kind, g.count, f"{g.parameters:,}", f"{g.macs:,}") for g in inspection.operators],
                ),
            ),
        ),
    )


def _candidates_section(score: Evaluation, candidates: list[Candidate]) -> Section:
    rows: list[tuple[str, ...]] = []
    baseline = candidates[0].comparison
    rows.append(
        (
            "float",
            _percent(score),
            "",
            f"{baseline.change('latency').before:.3f} ms",
            "",
            _kilobytes(baseline.change("size").before),
            "",
        )
    )
    for candidate in candidates:
        latency, size = candidate.comparison.change("latency"), candidate.comparison.change("size")
        rows.append(
            (
                candidate.scheme,
                _percent(candidate.evaluation),
                _verdict(candidate.evaluation),
                f"{latency.after:.3f} ms",
                _speed(latency),
                _kilobytes(size.after),
                f"{100 * size.ratio:.0f} %",
            )
        )
    sizes = [("float", baseline.change("size").before)]
    sizes += [(candidate.scheme, candidate.comparison.change("size").after) for candidate in candidates]
    return Section(
        "Smaller, and still right",
        text="Each file was scored in LiteRT on the same images, and timed against float in interleaved rounds.",
        bars=Bars("Size of the file", tuple((name, size, _kilobytes(size)) for name, size in sizes)),
        table=table(["file", "accuracy", "against float", "latency", "", "size", "of float"], rows),
    )


def _percent(score: Evaluation) -> str:
    return f"{100 * score.value:.2f} %"


def _kilobytes(size: float) -> str:
    return f"{size / 1000:.0f} kB"


def _speed(change: Change) -> str:
    if not change.significant:
        return "as fast"
    return f"{1 / change.ratio:.2f} times as fast"


def _verdict(score: Evaluation) -> str:
    drop = score.drop
    if drop is None:
        return ""
    points = f"{-100 * drop.drop:+.2f} points"
    return f"{points}, significant" if drop.significant else f"{points}, not significant"
