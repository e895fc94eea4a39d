# SPDX-License-Identifier: Apache-2.0
"""The head alone: features of a frozen backbone, computed once, and the linear classifier that separates them best.

Minimizes the weighted cross-entropy plus ``decay · ‖W‖²`` on standardized features by L-BFGS, which finds the one
minimum of this convex problem; standardization is folded into the weights. Cost: one pass of the backbone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from torch import Tensor

from litesmith.progress import task
from litesmith.train._feed import Samples
from litesmith.train._module import GraphModule
from litesmith.train._yes_no import yes_no_loss

_DECAYS = (1e-4, 1e-3, 1e-2, 1e-1)
_ITERATIONS = 60


@torch.no_grad()
def features(module: GraphModule, samples: Samples, tensor: int, *, block: int = 32) -> Tensor:
    """Return what the head reads, a row a sample."""
    module.eval()
    rows = []
    with task("Computing features", total=len(samples)) as advance:
        for start in range(0, len(samples), block):
            positions = np.arange(start, min(start + block, len(samples)))
            values = module.run(module.feed(samples.inputs(positions)), (tensor,))
            rows.append(values[tensor].reshape(len(positions), -1))
            advance(len(positions))
    return torch.cat(rows)


def fit_head(
    training: tuple[Tensor, Tensor],
    validation: tuple[Tensor, Tensor],
    classes: int,
    class_weights: Tensor | None,
    *,
    logistic: bool = False,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], float]:
    """Return weights, bias and the validation accuracy of the best head; the decay is chosen by that accuracy.

    With ``logistic``, each score is fitted as a yes or no of its own.
    """
    x, y = training
    mean, std = x.mean(dim=0), x.std(dim=0) + 1e-4
    rows = (x - mean) / std
    best: tuple[float, Tensor, Tensor] | None = None
    with task("Training the head", total=len(_DECAYS)) as advance:
        for decay in _DECAYS:
            weight, bias = _solve(rows, y, classes, class_weights, decay, logistic=logistic)
            answers = ((validation[0] - mean) / std) @ weight.T + bias
            score = float((answers.argmax(dim=1) == validation[1]).float().mean())
            if best is None or score >= best[0]:
                best = (score, weight, bias)
            advance(1)
    assert best is not None
    score, weight, bias = best
    folded = weight / std
    return folded.numpy(), (bias - folded @ mean).numpy(), score


def _solve(
    x: Tensor, y: Tensor, classes: int, class_weights: Tensor | None, decay: float, *, logistic: bool
) -> tuple[Tensor, Tensor]:
    truth, sample_weights = nnf.one_hot(y, classes).float(), None if class_weights is None else class_weights[y]
    weight = torch.zeros(classes, x.shape[1], requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=_ITERATIONS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        scores = x @ weight.T + bias
        error = yes_no_loss(scores, truth, sample_weights) if logistic else nnf.cross_entropy(scores, y, class_weights)
        loss = error + decay * (weight**2).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return weight.detach(), bias.detach()
