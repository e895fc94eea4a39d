# SPDX-License-Identifier: Apache-2.0
"""Metrics of text: word and character error rate, exact match, and F1 of the words in common.

Word and character errors are counted by jiwer. Exact match and F1 follow the evaluation of SQuAD (arXiv:1606.05250):
lower case, no punctuation, no articles; where a label holds several texts, separated by "|", the best one counts.
"""

from __future__ import annotations

import importlib
import re
import string
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from litesmith.accuracy._decode import Decode, check_decode, decode_one
from litesmith.accuracy._metric import Array, MeanMetric, Metric, Observed, Question, Seen, ratio_scorer
from litesmith.accuracy._statistics import Scorer
from litesmith.errors import DataError, MissingExtraError, UsageError

_PUNCTUATION = str.maketrans("", "", string.punctuation)


class _TextMetric(Metric):
    """A metric of text: the model's, decoded, against the label's."""

    def __init__(self, *, output: str | None = None, decode: Decode | None = None) -> None:
        super().__init__(output=output)
        self.decode = decode
        self._class_names: tuple[str, ...] | None = None

    def check(self, question: Question) -> None:
        """Refuse labels that are no text, and outputs that nothing turns into text."""
        super().check(question)
        assert question.labels is not None
        self._class_names = question.class_names
        label_text(question.labels[:1], question.class_names, self.name)
        if self.decode is not None:
            check_decode(self.decode)
            return
        port = self.pick({port.name: port for port in question.outputs})
        if port.dtype.kind not in "OSU" and question.class_names is None:
            raise UsageError(
                f"the metric {self.name} scores text, and the output {port.name!r} is {port.dtype}: say how it becomes "
                "text with decode=module:function or decode=ctc:SYMBOLS.txt, or give class_names"
            )

    def texts(self, observed: Observed) -> tuple[list[str], list[str]]:
        """Return the model's text and the label's for each sample."""
        assert observed.labels is not None
        right = label_text(observed.labels, self._class_names, self.name)
        return [self._decoded(observed, sample) for sample in range(len(right))], right

    def _decoded(self, observed: Observed, sample: int) -> str:
        outputs = {name: array[sample] for name, array in observed.outputs.items()}
        if self.decode is None:
            return _plain_text(self.pick(outputs), self._class_names)
        text = decode_one(self.decode, outputs if self.output is None else {self.output: self.pick(outputs)})
        if not isinstance(text, str):
            raise UsageError(
                f"decode={self.decode} must return text for {self.name}, and it returned {type(text).__name__}"
            )
        return text


class WordErrorRate(_TextMetric):
    """Words wrong, missing or too many, per word of the label."""

    name = "wer"
    higher_is_better = False
    _count = "process_words"

    def check(self, question: Question) -> None:
        """Refuse what is no text, and a missing jiwer."""
        super().check(question)
        _jiwer()

    def observe(self, observed: Observed) -> dict[str, Array]:
        """Keep the text, the errors and the length of each sample."""
        process = getattr(_jiwer(), self._count)
        said, right = self.texts(observed)
        counts = [process(reference, text) for reference, text in zip(right, said, strict=True)]
        return {
            "text": objects(said),
            "errors": np.array([c.substitutions + c.deletions + c.insertions for c in counts], np.int64),
            "length": np.array([c.substitutions + c.deletions + c.hits for c in counts], np.int64),
        }

    def scorer(self, seen: Seen) -> Scorer:
        """Score by the errors of all samples over the length of all labels."""
        return ratio_scorer(seen["errors"], seen["length"])


class CharacterErrorRate(WordErrorRate):
    """Characters wrong, missing or too many, per character of the label."""

    name = "cer"
    _count = "process_characters"


class ExactMatch(_TextMetric, MeanMetric):
    """The share of samples whose text is that of the label, but for case, punctuation and articles."""

    name = "exact-match"

    def observe(self, observed: Observed) -> dict[str, Array]:
        """Keep the text and whether it is right."""
        said, right = self.texts(observed)
        scores = [best_of(exact, text, label) for text, label in zip(said, right, strict=True)]
        return {"text": objects(said), "score": np.array(scores, np.float64)}

    def successes(self, seen: Seen) -> NDArray[np.bool_]:
        """Return which samples are right."""
        return np.asarray(seen["score"] == 1)


class TextF1(_TextMetric, MeanMetric):
    """The mean over samples of the F1 of the words that text and label have in common."""

    name = "f1"

    def observe(self, observed: Observed) -> dict[str, Array]:
        """Keep the text and its F1."""
        said, right = self.texts(observed)
        scores = [best_of(words_in_common, text, label) for text, label in zip(said, right, strict=True)]
        return {"text": objects(said), "score": np.array(scores, np.float64)}


def best_of(score: Any, text: str, label: str) -> float:
    """Return the score against the best of the texts that a label allows."""
    return max(float(score(normalized(text), normalized(one))) for one in label.split("|"))


def exact(text: str, label: str) -> bool:
    """Say whether two normalized texts are the same."""
    return text == label


def words_in_common(text: str, label: str) -> float:
    """Return the F1 of the words of two normalized texts.

    Example:
        >>> words_in_common("the red car", "red car")
        0.8
    """
    ours, theirs = text.split(), label.split()
    if not ours or not theirs:
        return float(ours == theirs)
    return 2 * (Counter(ours) & Counter(theirs)).total() / (len(ours) + len(theirs))


def normalized(text: str) -> str:
    """Return text in lower case, without punctuation, articles and extra spaces.

    Example:
        >>> normalized("The  Red Car!")
        'red car'
    """
    words = re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION))
    return " ".join(words.split())


def label_text(labels: Array, class_names: tuple[str, ...] | None, metric: str) -> list[str]:
    """Return labels as text: as they are, or the names of their classes."""
    values = list(labels)
    if values and not isinstance(values[0], (str, bytes)) and class_names is not None:
        return [class_names[int(value)] for value in values]
    if not all(isinstance(value, (str, bytes)) for value in values):
        raise DataError(f"the metric {metric} compares text, and the labels are {type(values[0]).__name__}; give text")
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values]


def _plain_text(output: Array, class_names: tuple[str, ...] | None) -> str:
    if output.dtype.kind in "OSU":
        words = [value.decode() if isinstance(value, bytes) else str(value) for value in output.reshape(-1).tolist()]
        return " ".join(words)
    assert class_names is not None  # check() refused
    best = output.reshape(-1, output.shape[-1]).argmax(axis=-1)
    return " ".join(class_names[c] if c < len(class_names) else "" for c in best.tolist()).strip()


def objects(values: list[Any]) -> Array:
    """Return one array element for each value, whatever it is."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _jiwer() -> Any:
    try:
        return importlib.import_module("jiwer")
    except ImportError as error:
        raise MissingExtraError("jiwer", "metrics", "word and character error rate") from error
