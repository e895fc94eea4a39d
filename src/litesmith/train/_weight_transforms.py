# SPDX-License-Identifier: Apache-2.0
"""What a weight goes through before it is used, in order: mask, clusters, rounding."""

from __future__ import annotations

from torch import nn

from litesmith.train._module import GraphModule


def chain(module: GraphModule, key: str, last: nn.Module) -> nn.Sequential:
    """Return what is done to a weight already, and ``last`` behind it."""
    before = module.weight_transforms[key] if key in module.weight_transforms else nn.Sequential()
    assert isinstance(before, nn.Sequential)
    return nn.Sequential(*before, last)
