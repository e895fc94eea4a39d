# SPDX-License-Identifier: Apache-2.0
"""The recurrent cell of LiteRT, UNIDIRECTIONAL_SEQUENCE_LSTM, in float and from a state of zeros."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from litesmith.errors import ModelError
from litesmith.train._operators import ACTIVATIONS, Compute, Node, makes

_LAYER_NORM = (20, 21, 22, 23)
_STATE = 18


@makes("UNIDIRECTIONAL_SEQUENCE_LSTM")
def lstm(node: Node) -> Compute:
    """Make an LSTM; without input weights for the input gate it is coupled to the forget gate."""
    if any(node.has(position) for position in _LAYER_NORM):
        raise ModelError(f"{node}: an LSTM with layer normalization cannot be trained through")
    options = node.options
    time_major = bool(options.time_major)
    activation = ACTIVATIONS.get(str(options.fused_activation_function), torch.tanh)
    cell_clip, projection_clip = float(options.cell_clip), float(options.proj_clip)

    def compute(x: Tensor, *rest: Tensor | None) -> Tensor:
        inputs: list[Tensor | None] = [x, *rest, *[None] * (24 - 1 - len(rest))]
        steps = x if time_major else x.transpose(0, 1)
        gates = _gate_functions(inputs)
        units = inputs[8].shape[1] if inputs[8] is not None else 0
        cells = inputs[2].shape[0] if inputs[2] is not None else 0
        output, cell = steps.new_zeros(steps.shape[1], units), steps.new_zeros(steps.shape[1], cells)
        results = []
        for step in steps:
            forget = torch.sigmoid(gates["forget"](step, output, cell))
            enter = torch.sigmoid(gates["input"](step, output, cell)) if "input" in gates else 1.0 - forget
            cell = forget * cell + enter * activation(gates["cell"](step, output, None))
            cell = torch.clamp(cell, -cell_clip, cell_clip) if cell_clip > 0 else cell
            output = torch.sigmoid(gates["output"](step, output, cell)) * activation(cell)
            if inputs[16] is not None:
                output = torch.nn.functional.linear(output, inputs[16], inputs[17])
                output = torch.clamp(output, -projection_clip, projection_clip) if projection_clip > 0 else output
            results.append(output)
        return torch.stack(results, dim=0 if time_major else 1)

    return compute


def _gate_functions(inputs: list[Tensor | None]) -> dict[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]]:
    peepholes = {"input": inputs[9], "forget": inputs[10], "cell": None, "output": inputs[11]}
    found = {}
    for number, name in enumerate(("input", "forget", "cell", "output")):
        weight, recurrent, bias = inputs[1 + number], inputs[5 + number], inputs[12 + number]
        if weight is None or recurrent is None:
            continue
        found[name] = _gate(weight, recurrent, bias, peepholes[name])
    return found


def _gate(
    weight: Tensor, recurrent: Tensor, bias: Tensor | None, peephole: Tensor | None
) -> Callable[[Tensor, Tensor, Tensor | None], Tensor]:
    def compute(x: Tensor, output: Tensor, cell: Tensor | None) -> Tensor:
        total = torch.nn.functional.linear(x, weight, bias) + torch.nn.functional.linear(output, recurrent)
        return total if peephole is None or cell is None else total + peephole * cell

    return compute
