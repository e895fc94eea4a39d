# SPDX-License-Identifier: Apache-2.0
"""Which operators suffer most from 8-bit activations: each is rounded alone, and the change of the outputs measured."""

from __future__ import annotations

import math

import numpy as np
import torch

from litesmith.data import Dataset
from litesmith.model import Model
from litesmith.optimize import Ranges, quantize
from litesmith.optimize._rules import RULES
from litesmith.train._feed import Samples
from litesmith.train._module import GraphModule
from litesmith.train._quantized_graph import QuantizedGraph

_SAMPLES = 32
_SHARE = 0.15


@torch.no_grad()
def sensitive_operators(
    model: Model, ranges: Ranges, data: Dataset, *, head: str = "auto", share: float = _SHARE
) -> list[int]:
    """Return the operators, at most this share of those in int8, whose rounding changes the outputs most."""
    module = GraphModule(model).eval()
    planned = quantize(model, scheme="int8", ranges=ranges, recover=(), head=head)
    samples = Samples(data.take(min(_SAMPLES, len(data))), model)
    feed = module.feed(samples.inputs(np.arange(len(samples))))
    clean = module.run(feed)
    QuantizedGraph(module, planned.model)
    module.weight_transforms.clear()
    module.read_transforms.clear()
    quantizers = dict(module.write_transforms.items())
    producers = model.main.producers()
    errors: dict[int, float] = {}
    for key, quantizer in quantizers.items():
        operator = producers.get(int(key))
        rule = RULES.get(model.main.operators[operator].kind) if operator is not None else None
        if operator is None or rule is None or rule.int16 is None or rule.tied:
            continue
        module.write_transforms.clear()
        module.write_transforms[key] = quantizer
        values = module.run(feed)
        errors[operator] = sum(float(torch.mean((values[t] - clean[t]) ** 2)) for t in model.main.outputs)
    worst = sorted(errors, key=lambda operator: -errors[operator])
    return sorted(worst[: max(math.ceil(share * len(quantizers)), 1)])
