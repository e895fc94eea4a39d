# SPDX-License-Identifier: Apache-2.0
"""The running average of all that a module learns, which is steadier than what the last steps made of it.

Each step moves the average by a small share towards the weights of now (Polyak and Juditsky, SIAM J. Control Optim. 30,
1992). It begins where what a training leads to is reached, such as the last zero: weights of other structures are not mixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The average of a module's floating-point values over some steps; ``keep`` is the share of it that outlives one."""

    def __init__(self, module: nn.Module, keep: float) -> None:
        self._module, self._keep = module, keep
        self.steps = 0
        self.values: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self) -> None:
        """Take in the values of now; the first ones count more, so that the beginning is soon forgotten."""
        self.steps += 1
        if self.steps == 1:
            self.values = self._copy()
        share = 1 - min(self._keep, self.steps / (self.steps + 9))
        for name, value in self._module.state_dict().items():
            if value.is_floating_point():
                self.values[name].lerp_(value, share)
            else:
                self.values[name].copy_(value)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the module have the average inside the block, where there is one."""
        if not self.steps:
            yield
            return
        now = self._copy()
        self._module.load_state_dict(self.values)
        try:
            yield
        finally:
            self._module.load_state_dict(now)

    def _copy(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self._module.state_dict().items()}
