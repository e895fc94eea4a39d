# SPDX-License-Identifier: Apache-2.0
"""What a training did: the curve of every epoch, the scores before and after, and the files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from litesmith.machine import MachineFacts
from litesmith.model import Model
from litesmith.optimize import Coverage
from litesmith.result import Result


@dataclass(frozen=True)
class Epoch:
    """One epoch.

    Attributes:
        epoch: its number, from 1.
        loss: the mean over its steps.
        score: on the validation samples, at its end.
        seconds: since the training began.
        learning_rate: at its end.
        sparsity: the share of zeros in pruned layers, at its end.
    """

    epoch: int
    loss: float
    score: float
    seconds: float
    learning_rate: float
    sparsity: float = 0.0


@dataclass(frozen=True)
class TrainResult(Result, kind="train", schema=1):
    """What a training did.

    Attributes:
        model: the name of the file it began with.
        recipe: what was trained for, such as ``channels(0.5) → prune(0.8, 4x1) → int8``.
        metric: top1 with labels, or accuracy where each score is a yes or no; agreement with the float model without;
            closeness for other outputs.
        samples: how many were trained on.
        validation: how many were scored on.
        original: the score of the model it began with.
        start: the score before the first step, with everything that is trained for switched on.
        simulated: the score of the best epoch in PyTorch.
        written: the score of the written file in LiteRT.
        best_epoch: the one whose weights were kept.
        stopped: why it ended: epochs, time, patience or callback.
        seconds: of training.
        curve: every epoch.
        notes: what a reader should know.
        machine: the facts of the machine that trained it.
    """

    model: str
    recipe: str
    metric: str
    samples: int
    validation: int
    original: float
    start: float
    simulated: float
    written: float
    best_epoch: int
    stopped: str
    seconds: float
    curve: tuple[Epoch, ...]
    notes: tuple[str, ...] = ()
    machine: MachineFacts | None = None

    def plot(self) -> Any:
        """Return the curves of loss and score as a Plotly figure; ``write_html`` and ``write_image`` keep it."""
        import plotly.graph_objects as go

        epochs = [point.epoch for point in self.curve]
        figure = go.Figure()
        figure.add_scatter(x=epochs, y=[point.loss for point in self.curve], name="loss")
        figure.add_scatter(x=epochs, y=[point.score for point in self.curve], name=self.metric, yaxis="y2")
        figure.add_hline(y=self.original, line_dash="dot", yref="y2", annotation_text="original")
        figure.update_layout(
            title=f"{self.model}: {self.recipe}",
            xaxis_title="epoch",
            yaxis={"title": "loss"},
            yaxis2={"title": self.metric, "overlaying": "y", "side": "right"},
        )
        return figure


@dataclass(frozen=True)
class Trained:
    """The trained model, what became of it, and for quantized ones the coverage."""

    model: Model
    result: TrainResult
    coverage: Coverage | None = None
