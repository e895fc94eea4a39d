# SPDX-License-Identifier: Apache-2.0
"""A page for every result, from the value or its file; plots as SVG and PNG."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import litesmith
from litesmith import samples
from litesmith.accuracy import diagnose
from litesmith.errors import UsageError
from litesmith.measure import bench, machine_facts, profile
from litesmith.report import page_of, render, report, write_plots
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
        "m.tflite", "int8", "top1", 900, 100, 0.9, 0.7, 0.86, 0.85, 5, "epochs", 50.0, curve, ("a note",)
    )


def _results(tuned: Tuned) -> dict[str, Result]:
    model = samples.model()
    few = samples.dataset("test")[:8]
    quantized = litesmith.quantize(model, scheme="int8", data=few, recover=()).model
    return {
        "tune": tuned,
        "no winner": replace(
            tuned, verdict=replace(tuned.verdict, winner=None, nearest=(3, 5)), layers=(), advice=None
        ),
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


@pytest.mark.parametrize(
    "name", ["tune", "no winner", "advice", "choose", "train", "profile", "diagnose", "bench", "inspect"]
)
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


def test_every_figure_has_its_data(results: dict[str, Result]) -> None:
    for name, result in results.items():
        page = page_of(result)
        tables = [section.table for section in page.sections if section.table is not None]
        assert tables or not page.drawings(), name


def test_plots_are_files_of_their_own(tuned: Tuned, tmp_path: Path) -> None:
    written = write_plots(page_of(tuned), tmp_path)
    svgs, pngs = ([p for p in written if p.suffix == end] for end in (".svg", ".png"))

    assert len(svgs) == len(pngs) == 4  # two trade-offs, a timeline, the tree
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
