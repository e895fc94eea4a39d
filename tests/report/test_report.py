# SPDX-License-Identifier: Apache-2.0
"""A page for every result, from the value or its file; plots as SVG and PNG."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.report.conftest import EVIL, coverage

import litesmith
from litesmith import samples
from litesmith.accuracy import diagnose
from litesmith.errors import UsageError
from litesmith.measure import Profile, bench, machine_facts, profile
from litesmith.report import Drawing, Table, page_of, render, report, write_plots
from litesmith.report._drawing import Dot, Path2D, Rect, Words
from litesmith.report._plots import Mark, curves, scatter, timeline
from litesmith.result import Result
from litesmith.train import Epoch, TrainResult
from litesmith.tune import Choice, Measured, Tuned, Variant, advise


def _choice() -> Choice:
    names = {"small": (60.0, 1.0, 2e6), "middle": (70.0, 4.0, 9e6), "large": (75.0, 12.0, 2e7)}
    variants = tuple(
        Variant(n, n, 1.0, 224, 1000, "float", a, Measured(t, t, t, int(2 * s), int(s)), "" if t < 10 else "slow", True)
        for n, (a, t, s) in names.items()
    )
    return Choice(
        "image-classification", "ImageNet", "top-1 accuracy in %", True, 10.0, 65.0, None, 1, variants, 1,
        ("because", "it is fast"), "litesmith zoo build middle", 0, machine_facts(),
    )  # fmt: skip


def _trained() -> TrainResult:
    curve = tuple(Epoch(n, 1 / n, 0.8 + 0.01 * n, 10.0 * n, 1e-3) for n in range(1, 6))
    return TrainResult(
        "m.tflite",
        "int8",
        "top1",
        900,
        100,
        0.9,
        0.7,
        0.86,
        0.85,
        5,
        "epochs",
        50.0,
        curve,
        ("a note",),
        machine_facts(),
    )


def _for_download(tuned: Tuned) -> Tuned:
    trials = tuple(replace(t, download_bytes=t.size_bytes // 2 if t.file else 0) for t in tuned.trials)
    return replace(tuned, trials=trials, budget=replace(tuned.budget, minimize="download"))


def _results(tuned: Tuned) -> dict[str, Result]:
    model = samples.model()
    few = samples.dataset("test")[:8]
    quantized = litesmith.quantize(model, scheme="int8", data=few, recover=()).model
    return {
        "tune": tuned,
        "no winner": replace(
            tuned,
            verdict=replace(tuned.verdict, winner=None, nearest=(3, 5)),
            layers=(),
            advice=None,
            coverage=None,
        ),
        "download": _for_download(tuned),
        "coverage": coverage(),
        "advice": advise(data="unlabelled"),
        "choose": _choice(),
        "train": _trained(),
        "profile": profile(model, runs=5),
        "diagnose": diagnose(model, quantized, few),
        "bench": bench(model, runs=20, memory=False, threads=(1, 2)),
        "inspect": litesmith.inspect(samples.path()),  # one without a page of its own
    }


@pytest.fixture(scope="module")
def results(tuned: Tuned) -> dict[str, Result]:
    return _results(tuned)


NAMES = [
    "tune", "no winner", "download", "coverage", "advice", "choose", "train", "profile", "diagnose", "bench", "inspect",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_result_has_a_page(name: str, results: dict[str, Result], tmp_path: Path) -> None:
    result = results[name]
    result.to_json(tmp_path / "result.json")
    path = report(tmp_path / "result.json", plots=tmp_path / "plots")
    html = path.read_text(encoding="utf-8")

    assert path == tmp_path / "result.html"
    assert html == render(page_of(result))
    assert path.stat().st_size < 6_000_000
    assert page_of(result).summary in html or "&" in page_of(result).summary + html
    drawings = page_of(result).drawings()
    assert len(list((tmp_path / "plots").glob("*.svg"))) == len(drawings)
    assert all(
        section.table is not None or section.text or section.items or section.figures
        for section in page_of(result).sections
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_browser_shows_the_page_and_has_no_complaints(
    name: str, results: dict[str, Result], browser: Any, screenshots: Path, tmp_path: Path
) -> None:
    problems: list[str] = []
    page = browser.new_page(viewport={"width": 1100, "height": 900})
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(report(results[name], tmp_path / "page.html").as_uri())
    page.screenshot(path=screenshots / f"{name.replace(' ', '-')}.png", full_page=True)
    too_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    page.close()

    assert problems == []
    assert not too_wide


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_has_its_data(name: str, results: dict[str, Result]) -> None:
    page = page_of(results[name])
    for section in page.sections:
        told = page.sections[page.number(section.data) - 1] if section.data else section
        for drawing in section.drawings():
            assert told.table is not None, f"{section.title}: {drawing.title}"
            assert _missing(drawing, told.table) == [], f"{section.title}: {drawing.title}"


def _missing(drawing: Drawing, table: Table) -> list[object]:
    """Return what a drawing shows and no row of a table tells: points by their ids, bars and boxes by their words."""
    head = _words(" ".join(table.columns))
    rows = [head | _words(" ".join(row)) for row in table.rows]
    shapes = drawing.shapes
    points = [s for s in shapes if isinstance(s, Dot) and s.target not in table.ids]
    names = [s.label.rpartition(": ")[0] for s in shapes if isinstance(s, Rect) and s.label]
    if any(isinstance(s, Rect) and s.border for s in shapes):
        names += [s.text for s in shapes if isinstance(s, Words)]
    curves = [s for s in shapes if isinstance(s, Path2D) and s.width == 2 and len(s.points) > len(rows)]
    return [*points, *curves, *(name for name in names if not any(_words(name) <= row for row in rows))]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w.]+", text))


def test_the_page_of_a_search_tells_before_and_after(tuned: Tuned) -> None:
    sections = {section.title: section for section in page_of(tuned).sections}
    kinds = sections["Where the time goes, before and after"].table
    after, before = (sections[f"{name}, layer by layer"].table for name in ("The winner", "The float model"))
    covered = sections["Coverage: what is quantized, and what stayed float"]

    assert kinds is not None
    assert kinds.rows == (
        ("CONV_2D", "1", "300.0", "1", "100.0", "-200.0"),
        ("ADD", "1", "9.0", "1", "5.0", "-4.0"),
        ("QUANTIZE", "", "", "1", "2.0", "+2.0"),
    )
    assert after is not None
    assert before is not None
    assert [row[-2:] for row in after.rows] == [("", ""), ("70.0 %", "31.0"), ("0.0 %", "exact")]
    assert "dB" not in before.columns
    assert [row[5] for row in before.rows] == ["4.8 kB", "0.0 kB"]
    assert covered.table is not None
    assert covered.table.rows[0] == ("ATAN2", "float", f"no kernel {EVIL}", "1")
    assert {"Conversions added: 1 QUANTIZE, 2 DEQUANTIZE", "XNNPACK: partitions: 2 predicted, 3 found"} <= set(
        covered.items
    )


def test_the_float_model_as_the_winner_is_shown_once(tuned: Tuned) -> None:
    shown = replace(tuned, verdict=replace(tuned.verdict, winner=0), layers=tuned.float_layers, coverage=None)
    titles = [section.title for section in page_of(shown).sections]

    assert "The float model, layer by layer" in titles
    assert not [title for title in titles if title.startswith(("The winner, ", "Where the time", "Coverage"))]


def test_where_the_download_counts_the_page_speaks_of_it(tuned: Tuned) -> None:
    page, other = page_of(_for_download(tuned)), page_of(tuned)
    trials = page.sections[page.number("All trials") - 1].table

    assert trials is not None
    column = trials.columns.index("download")
    assert [row[column] for row in trials.rows][:3] == ["7000.0 kB", "3500.0 kB", "1850.0 kB"]
    assert "3.9 times smaller to download (1800.0 kB through gzip, not 7000.0 kB)" in page.summary
    assert "top1 against download" in [drawing.title for drawing in page.drawings()]
    assert not re.search("(to|against) download", render(other))


def test_the_summary_of_a_profile_compares_times_of_one_run(results: dict[str, Result]) -> None:
    """The share of a kind is that of the operators' time: the profiler itself may take longer than a small model."""
    found = results["profile"]
    assert isinstance(found, Profile)
    top = found.by_kind()[0]
    share = 100 * top.mean_us / sum(operator.mean_us for operator in found.operators)

    assert page_of(found).summary.endswith(f"; {top.kind} has {share:.0f} % of the operators' time.")


def test_a_choice_tells_the_number_formats_apart_and_its_accuracy() -> None:
    result = _choice()
    large = replace(result.variants[2], precision="int8", accuracy=74.0)
    page = page_of(replace(result, variants=(*result.variants, replace(large, measured=Measured(2.0, 2, 2, 9, 5)))))
    names = [shape.text for shape in page.drawings()[1].shapes if isinstance(shape, Words)]

    assert "Take middle as float: 70 top-1 accuracy in % on ImageNet, as published; it is fast." in page.summary
    assert {"int8 large", "float large"} <= set(names), names


@pytest.mark.parametrize("name", ["tune", "choose", "train", "profile", "diagnose", "bench"])
def test_what_was_run_says_on_which_machine(name: str, results: dict[str, Result]) -> None:
    facts = dict(page_of(results[name]).facts)

    assert machine_facts().cpu in facts["machine"]
    assert "litesmith" in facts["versions"]


@pytest.mark.parametrize("name", ["train", "diagnose"])
def test_results_from_before_they_had_the_machine_have_a_page(name: str, results: dict[str, Result]) -> None:
    document = json.loads(results[name].to_json())
    del document["machine"]
    read = type(results[name]).from_json(json.dumps(document))

    assert "machine" not in dict(page_of(read).facts)


def test_plots_are_files_of_their_own(tuned: Tuned, tmp_path: Path) -> None:
    written = write_plots(page_of(tuned), tmp_path)
    svgs, pngs = ([p for p in written if p.suffix == end] for end in (".svg", ".png"))

    assert len(svgs) == len(pngs) == 6  # two trade-offs, before and after, two timelines, the tree
    for path in svgs:
        root = ET.parse(path).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "href" not in path.read_text()
    for path in pngs:
        pixels = np.asarray(Image.open(path).convert("RGB"))
        assert pixels.shape[1] >= 1000
        assert len(np.unique(pixels[::8, ::8].reshape(-1, 3), axis=0)) > 3


def test_the_folder_of_a_search_is_enough(tuned: Tuned, tmp_path: Path) -> None:
    tuned.to_json(tmp_path / "tune.json")

    assert report(tmp_path) == tmp_path / "tune.html"


def test_what_is_no_result_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text("nonsense")

    for name, words in (("a.json", "holds no result"), ("b.json", "not the JSON"), ("c.json", "cannot be read")):
        with pytest.raises(UsageError, match=words):
            report(tmp_path / name)


def test_the_line_joins_only_what_none_beats_in_both() -> None:
    marks = [Mark(x, y, str(x), "") for x, y in ((1, 1), (2, 3), (3, 2), (4, 4))]
    line = next(s for s in scatter("t", marks, x_label="x", y_label="y").shapes if getattr(s, "role", "") == "front")

    assert len(line.points) == 3  # type: ignore[union-attr]


@dataclass(frozen=True)
class _Case:
    values: tuple[float, ...]


@pytest.mark.parametrize(
    "case", [_Case((1.0,)), _Case((0.0, 0.0)), _Case((5.0, 5.0, 5.0)), _Case((1e-9, 1e9))], ids=str
)
def test_plots_of_odd_values_can_be_drawn(case: _Case) -> None:
    marks = [Mark(v, v, "name", "label") for v in case.values]

    assert "NaN" not in scatter("t", marks, x_label="x", y_label="y").svg().replace("nan", "NaN")
    assert "<svg" in curves("t", [("a", case.values)], x_label="x", y_label="y").svg()
    assert "<svg" in timeline("t", [("a", v, "lane") for v in case.values]).svg()
