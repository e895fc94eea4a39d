# SPDX-License-Identifier: Apache-2.0
"""What a student is taught with: samples, varied or not, and what a teacher answers to them.

A sample that is varied is shown in a few views, one after the other, and then in the first again. So the teacher, which
may be much larger than the student, is asked about each view once, where its answers fit into memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from litesmith.errors import UsageError
from litesmith.progress import task
from litesmith.train._feed import Augment, Inputs, Mixed, Samples, View, mixed
from litesmith.train._module import GraphModule

VIEWS = 16
_MEMORY_BUDGET_BYTES = 1 << 30

Positions = np.ndarray[Any, Any]
Answers = dict[int, Tensor]


@dataclass(frozen=True)
class Teacher:
    """A model that is asked.

    Attributes:
        module: the model.
        kept: the tensors that are its answer.
        inputs: its input for each of the student's, by the student's name for it.
    """

    module: GraphModule
    kept: tuple[int, ...]
    inputs: Mapping[str, int]

    @torch.no_grad()
    def answer(self, inputs: Inputs) -> Answers:
        """Return what it says to a batch."""
        values = self.module.run({self.inputs[name]: x for name, x in inputs.items()}, self.kept)
        return {tensor: values[tensor] for tensor in self.kept}


class Lessons:
    """Samples with their answers; ``epochs`` says for how many they will be asked for, None where nobody knows."""

    def __init__(
        self,
        samples: Samples,
        teacher: Teacher | None = None,
        *,
        augment: Augment | None = None,
        seed: int = 0,
        epochs: int | None = None,
        block: int = 128,
    ) -> None:
        self.samples, self.labels, self.augment = samples, samples.labels, augment or Augment()
        self._teacher, self._seed, self._block = teacher, seed, block
        whole = [name for name, x in samples.inputs(np.arange(1)).items() if not x.is_floating_point()]
        if self.augment.mix and whole:
            raise UsageError(f"the input {whole[0]!r} has whole numbers, which cannot be mixed; leave out mix")
        self._views: dict[int, View] = {}
        self._answers: dict[int, Answers] = {}
        views = VIEWS if self.augment else 1
        comes_again = views == 1 or (epochs is not None and epochs > views)
        self._remembers = teacher is not None and comes_again and views * self._answer_bytes() <= _MEMORY_BUDGET_BYTES
        self._number_of_views = views if self._remembers or not self.augment else None

    def __len__(self) -> int:
        return len(self.samples)

    def inputs(self, positions: Positions, epoch: int = 0) -> Inputs:
        """Return the inputs of some samples, as they are shown in an epoch."""
        if not self.augment:
            return self.samples.inputs(positions)
        view = self._view(epoch)
        shown = self.augment(self.samples.inputs(positions), view, positions)
        if not self.augment.mix:
            return shown
        others = view.other[positions].numpy()
        return mixed(shown, self.augment(self.samples.inputs(others), view, others), view.part[positions])

    def labels_of(self, positions: Positions, epoch: int = 0) -> Tensor | Mixed | None:
        """Return the labels of some samples, as they are shown in an epoch; None where there are none."""
        if self.labels is None or not self.augment.mix:
            return None if self.labels is None else self.labels[positions]
        view = self._view(epoch)
        return Mixed(self.labels[positions], self.labels[view.other[positions]], view.part[positions])

    def answers(self, positions: Positions, inputs: Inputs, epoch: int = 0) -> Answers | None:
        """Return the teacher's answers to these inputs, None where there is no teacher."""
        if self._teacher is None:
            return None
        if not self._remembers:
            return self._teacher.answer(inputs)
        view = self._number(epoch)
        if view not in self._answers:
            self._answers[view] = self._all_answers(epoch)
        places = torch.from_numpy(np.asarray(positions, np.int64))
        return {tensor: values[places] for tensor, values in self._answers[view].items()}

    def blocks(self) -> list[Positions]:
        """Return the positions of all samples, block by block."""
        return [np.arange(s, min(s + self._block, len(self))) for s in range(0, len(self), self._block)]

    def _number(self, epoch: int) -> int:
        return epoch if self._number_of_views is None else epoch % self._number_of_views

    def _view(self, epoch: int) -> View:
        number = self._number(epoch)
        if number not in self._views:
            generator = torch.Generator().manual_seed(self._seed * 1_000_003 + number)
            self._views = {number: self.augment.view(len(self), generator)}
        return self._views[number]

    def _all_answers(self, epoch: int) -> Answers:
        assert self._teacher is not None
        found = []
        with task("Asking the teacher", total=len(self)) as advance:
            for positions in self.blocks():
                found.append(self._teacher.answer(self.inputs(positions, epoch)))
                advance(len(positions))
        return {tensor: torch.cat([answers[tensor] for answers in found]) for tensor in self._teacher.kept}

    def _answer_bytes(self) -> int:
        """Return the bytes of the answers to all samples."""
        assert self._teacher is not None
        one = self._teacher.answer(self.samples.inputs(np.arange(1)))
        return len(self) * sum(values.numel() * values.element_size() for values in one.values())
