# SPDX-License-Identifier: Apache-2.0
"""The whole story on the bundled sample: look, ask for advice, search, prove; and a page to open at the end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from litesmith.errors import UsageError
from litesmith.measure import Profile, profile
from litesmith.progress import task
from litesmith.report import Page, Section, page_of, profile_page, table, write
from litesmith.result import Result
from litesmith.runtime import Inspection, inspect
from litesmith.tune import Tuned, reproduce, tune

RECIPES = ("float16", "weights8", "dynamic", "int8", "weights4-block32", "int8(minmax, recover=)")
"""A look at every kind of number format; the last is int8 as it is without care, which loses."""
MAX_DROP = "0.5%"
_STEPS = 5


@dataclass(frozen=True)
class Demo(Result, kind="demo", schema=2):
    """What ``demo`` did: the float sample looked into, the search, and the page that tells it.

    Attributes:
        page: the file to open.
        inspection: what is in the sample.
        profile: where its time goes.
        tuned: the search.
        reproduced: whether the lock file made the winner again, byte for byte.
    """

    page: str
    inspection: Inspection
    profile: Profile
    tuned: Tuned
    reproduced: bool


def demo(folder: str | Path = "litesmith-demo", *, seconds: float = 1.0) -> Demo:
    """Tell the whole story on the bundled sample, and leave the files and a page in ``folder``.

    Args:
        folder: Where the files and the page go; made if it is not there.
        seconds: Time to measure each model for.
    """
    from litesmith.samples import facts, model, path

    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"the folder {target} cannot be made: {error.strerror}") from error
    float_file = target / "float.tflite"
    model().save(float_file)
    with task("The story of the sample", total=_STEPS) as advance:
        inspection = inspect(float_file)
        advance(1)
        timed = profile(float_file, runs=200)
        advance(1)
        tuned = tune(
            float_file,
            path("fashion-test.npz"),
            calibrate=path("fashion-train.npz"),
            preprocess=facts().preprocess,
            output=target,
            max_drop=MAX_DROP,
            only=RECIPES,
            seconds=seconds,
        )
        advance(1)
        reproduced = False
        if tuned.winner is not None:
            again = reproduce(target / "litesmith.lock", target / "again.tflite")
            reproduced = again.read_bytes() == (target / "winner.tflite").read_bytes()
            again.unlink()
        advance(1)
        page = write(_page(inspection, timed, tuned, reproduced=reproduced), target / "index.html")
        advance(1)
    result = Demo(str(page), inspection, timed, tuned, reproduced)
    result.to_json(target / "demo.json")
    return result


def _page(inspection: Inspection, timed: Profile, tuned: Tuned, *, reproduced: bool) -> Page:
    """Return the page of the search with what came before it: the sample, and where its time goes."""
    search, times = page_of(tuned), profile_page(timed)
    again = "made again from the lock file, byte for byte" if reproduced else "not made again"
    before = (
        Section(
            "The float model",
            text=f"{inspection.description}: {inspection.parameters:,} parameters, {inspection.macs:,} MACs.",
            table=table(
                ["operator", "count", "parameters", "MACs"],
                [(g.kind, g.count, f"{g.parameters:,}", f"{g.macs:,}") for g in inspection.operators],
            ),
        ),
        replace(times.sections[0], title="Where its time goes"),
    )
    return replace(
        search,
        title="Litesmith on its sample",
        facts=(*search.facts, ("winner", again)),
        sections=(*search.sections[:3], *before, *search.sections[3:]),
    )
