# SPDX-License-Identifier: Apache-2.0
"""Mean average precision of detectors, as COCO defines it (arXiv:1405.0312), by pycocotools.

Boxes are rows of ymin, xmin, ymax, xmax in any unit that model and labels share. The model's: the four outputs of
TFLite's detection post-processing (boxes, classes, scores, count), one output with rows of box, score, class, or
whatever ``decode`` returns as such rows. A label: rows of box and class, and optionally 1 for a crowd.
"""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from litesmith.accuracy._decode import Decode, check_decode, decode_one
from litesmith.accuracy._metric import Array, Metric, Observed, Question, Seen
from litesmith.accuracy._statistics import Scorer, Weights
from litesmith.accuracy._text import objects
from litesmith.errors import DataError, MissingExtraError, UsageError

_RECALLS = np.linspace(0, 1, 101)
_MAX_DETECTIONS = 100


class MeanAveragePrecision(Metric):
    """Average precision over classes: at an overlap of 0.5, or over 0.5, 0.55 … 0.95 as COCO has it."""

    def __init__(
        self,
        *,
        at_half: bool,
        output: str | None = None,
        decode: Decode | None = None,
        label_offset: int = 0,
    ) -> None:
        super().__init__(output=output)
        self.at_half, self.decode, self.label_offset = at_half, decode, label_offset
        self.name = "map50" if at_half else "map"

    def check(self, question: Question) -> None:
        """Refuse outputs that are no boxes, and a missing pycocotools."""
        super().check(question)
        assert question.labels is not None
        _boxes_of_label(question.labels[0], 0)
        _pycocotools()
        if self.decode is not None:
            check_decode(self.decode)
        elif len(question.outputs) != 4 and not (
            len(question.outputs) == 1 and question.outputs[0].shape[-1] in (6, -1)
        ):
            raise UsageError(
                f"the metric {self.name} takes boxes, and the model has {len(question.outputs)} outputs of shapes "
                f"{', '.join(str(list(port.shape)) for port in question.outputs)}: say how they become rows of ymin, "
                "xmin, ymax, xmax, score, class with decode=module:function"
            )

    def observe(self, observed: Observed) -> dict[str, Array]:
        """Keep the boxes found and the boxes there are."""
        assert observed.labels is not None
        count = len(observed.labels)
        outputs = [{name: array[i] for name, array in observed.outputs.items()} for i in range(count)]
        return {
            "found": objects([self._found(one) for one in outputs]),
            "there": objects([_boxes_of_label(observed.labels[i], observed.first + i) for i in range(count)]),
        }

    def _found(self, outputs: Mapping[str, Array]) -> Array:
        rows = _post_processed(outputs) if self.decode is None else decode_one(self.decode, outputs)
        boxes = np.asarray(rows, np.float64).reshape(-1, np.shape(rows)[-1] if np.size(rows) else 6)
        if boxes.shape[1] != 6:
            raise UsageError(
                f"boxes for {self.name} are rows of 6 (ymin, xmin, ymax, xmax, score, class), and these have "
                f"{boxes.shape[1]}"
            )
        boxes[:, 5] -= self.label_offset
        return boxes

    def scorer(self, seen: Seen) -> Scorer:
        """Match boxes once by pycocotools; then only counting depends on how often a sample counts."""
        evaluated = _evaluate(seen, at_half=self.at_half)
        curves = _curves(evaluated, len(seen["found"]))

        def score(weights: Weights | None) -> float:
            if weights is None:
                with contextlib.redirect_stdout(io.StringIO()):
                    evaluated.accumulate()
                precision = evaluated.eval["precision"]
                known = precision[precision > -1]
                return float(known.mean()) if known.size else float("nan")
            averages = [a for curve in curves for a in curve.averages(weights)]
            known = np.array([a for a in averages if a >= 0])
            return float(known.mean()) if known.size else float("nan")

        return score


class _Curve:
    """The precision-recall curves of one class: matches sorted by score, to be counted with any weights."""

    def __init__(self, images: list[Mapping[str, Any]], numbers: list[int]) -> None:
        scores = np.concatenate([np.asarray(e["dtScores"]) for e in images])
        order = np.argsort(-scores, kind="mergesort")
        ignored = np.concatenate([np.asarray(e["dtIgnore"]).astype(bool) for e in images], axis=1)[:, order]
        matched = np.concatenate([np.asarray(e["dtMatches"]) for e in images], axis=1)[:, order] > 0
        self._right, self._wrong = matched & ~ignored, ~matched & ~ignored
        self._image = np.repeat(numbers, [len(e["dtScores"]) for e in images])[order]
        self._wanted = np.array([np.count_nonzero(np.asarray(e["gtIgnore"]) == 0) for e in images])
        self._numbers = np.array(numbers)

    def averages(self, weights: Weights) -> list[float]:
        """Return the average precision at each overlap, −1 where no box of the class is there."""
        wanted = int(self._wanted @ weights[self._numbers])
        if not wanted:
            return []
        weight = weights[self._image]
        return [
            _average_precision(np.cumsum(right * weight), np.cumsum(wrong * weight), wanted)
            for right, wrong in zip(self._right, self._wrong, strict=True)
        ]


def _average_precision(right: Array, wrong: Array, wanted: int) -> float:
    if not right.size:
        return 0.0
    precision = right / np.maximum(right + wrong, np.spacing(1))
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    positions = np.searchsorted(right / wanted, _RECALLS, side="left")
    return float(np.where(positions < len(envelope), envelope[np.minimum(positions, len(envelope) - 1)], 0).mean())


def _curves(evaluated: Any, images: int) -> list[_Curve]:
    results = evaluated.evalImgs
    curves = []
    for number in range(len(evaluated.params.catIds)):
        of_class = results[number * images : (number + 1) * images]
        present = [(e, i) for i, e in enumerate(of_class) if e is not None]
        if present:
            curves.append(_Curve([e for e, _ in present], [i for _, i in present]))
    return curves


def _evaluate(seen: Seen, *, at_half: bool) -> Any:
    """Match the boxes of all images and classes by pycocotools, which prints as it goes."""
    coco, cocoeval = _pycocotools()
    truth, found = coco.COCO(), coco.COCO()
    there = [(i, row) for i, rows in enumerate(seen["there"]) for row in rows.tolist()]
    here = [(i, row) for i, rows in enumerate(seen["found"]) for row in rows.tolist()]
    classes = sorted({int(row[4]) for _, row in there} | {int(row[5]) for _, row in here})
    common = {"images": [{"id": i} for i in range(len(seen["there"]))], "categories": [{"id": c} for c in classes]}
    truth.dataset = common | {
        "annotations": [
            _annotation(n, i, row[:4], int(row[4]), iscrowd=int(row[5])) for n, (i, row) in enumerate(there, start=1)
        ]
    }
    found.dataset = common | {
        "annotations": [
            _annotation(n, i, row[:4], int(row[5]), score=row[4], iscrowd=0) for n, (i, row) in enumerate(here, start=1)
        ]
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        found.createIndex()
        evaluated = cocoeval.COCOeval(truth, found, "bbox")
        evaluated.params.areaRng, evaluated.params.areaRngLbl = [[0, 1e10]], ["all"]
        evaluated.params.maxDets = [_MAX_DETECTIONS]
        if at_half:
            evaluated.params.iouThrs = np.array([0.5])
        evaluated.evaluate()
    return evaluated


def _annotation(number: int, image: int, box: list[float], category: int, **more: Any) -> dict[str, Any]:
    top, left, bottom, right = box
    width, height = right - left, bottom - top
    place = {"bbox": [left, top, width, height], "area": width * height}
    return {"id": number, "image_id": image, "category_id": category, **place, **more}


def _post_processed(outputs: Mapping[str, Array]) -> Array:
    arrays = [np.squeeze(array, axis=0) if array.ndim > 1 else array for array in outputs.values()]
    if len(arrays) == 1:
        return arrays[0]
    boxes = next((a for a in arrays if a.ndim == 2 and a.shape[-1] == 4), None)
    flat = [a for a in arrays if a.ndim == 1 and a is not boxes]
    if boxes is None or len(flat) != 3:
        raise UsageError("the four outputs are not boxes, classes, scores and count; use decode=module:function")
    count = next((a for a in flat if a.size == 1), None)
    lists = [a for a in flat if a is not count]
    # Scores fall and lie between 0 and 1; classes are whole numbers.
    classes, scores = lists if np.array_equal(lists[0], np.rint(lists[0])) else lists[::-1]
    valid = len(boxes) if count is None else int(count.reshape(-1)[0])
    return np.column_stack([boxes, scores, classes])[:valid]


def _boxes_of_label(label: Any, sample: int) -> Array:
    try:
        boxes = np.asarray(label, np.float64)
    except (TypeError, ValueError):
        boxes = np.empty(0)
        label = type(label).__name__
    if boxes.size == 0 and isinstance(label, (list, tuple, np.ndarray)):
        return np.zeros((0, 6))
    if boxes.ndim != 2 or boxes.shape[1] not in (5, 6):
        raise DataError(
            f"the label of sample {sample} holds no boxes: rows of ymin, xmin, ymax, xmax, class are needed, and it is "
            f"{label if isinstance(label, str) else list(boxes.shape)}"
        )
    return boxes if boxes.shape[1] == 6 else np.column_stack([boxes, np.zeros(len(boxes))])


def _pycocotools() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pycocotools.coco"), importlib.import_module("pycocotools.cocoeval")
    except ImportError as error:
        raise MissingExtraError("pycocotools", "metrics", "mean average precision") from error
