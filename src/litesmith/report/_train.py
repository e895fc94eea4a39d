# SPDX-License-Identifier: Apache-2.0
"""The page of a training."""

from __future__ import annotations

from litesmith.report._machine import machine_rows
from litesmith.report._page import Page, Section, table
from litesmith.report._plots import curves
from litesmith.train import TrainResult


def train_page(result: TrainResult) -> Page:
    """Return the page of a training: the curve of every epoch, and the scores before and after."""
    scores = [("score", [e.score for e in result.curve]), ("original", [result.original] * len(result.curve))]
    return Page(
        title=f"Training of {result.model}",
        summary=(
            f"Trained for {result.recipe or 'float'}: {result.metric} goes from {result.start:.4g} to {result.written:.4g} "
            f"in the written file; the original has {result.original:.4g}."
        ),
        facts=(
            ("samples", f"{result.samples:,} to train on, {result.validation:,} to score on"),
            ("in PyTorch", f"{result.simulated:.4g} at epoch {result.best_epoch}"),
            ("ended by", result.stopped),
            ("time", f"{result.seconds:.0f} s"),
            *machine_rows(result.machine),
        ),
        sections=(
            Section(
                "Epoch by epoch",
                figures=(
                    curves("Score on the validation samples", scores, x_label="epoch", y_label=result.metric),
                    curves("Loss", [("loss", [e.loss for e in result.curve])], x_label="epoch", y_label="loss"),
                )
                if result.curve
                else (),
                table=table(
                    ["epoch", "loss", result.metric, "seconds", "learning rate", "zeros"],
                    [
                        (
                            e.epoch,
                            f"{e.loss:.4f}",
                            f"{e.score:.4f}",
                            f"{e.seconds:.0f}",
                            f"{e.learning_rate:.2e}",
                            f"{100 * e.sparsity:.0f} %",
                        )
                        for e in result.curve
                    ],
                    left=0,
                ),
            ),
            *([Section("Notes", items=result.notes)] if result.notes else []),
        ),
    )
