# SPDX-License-Identifier: Apache-2.0
"""Inception-v3 (arXiv:1512.00567) as TF-Slim builds it, without the auxiliary classifier that only training needs.

A block is a set of branches whose outputs are joined; a branch is a chain of steps: a ``Conv``, a ``Halve`` (stride 2,
no padding), a pool by name, or a list of convolutions that part from the same input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from litesmith.model import Value
from litesmith.zoo._architecture import Architecture, Size
from litesmith.zoo._net import Net


class Conv(NamedTuple):
    """A convolution with SAME padding."""

    filters: int
    kernel: int | tuple[int, int] = 1


class Halve(NamedTuple):
    """A 3 × 3 convolution with stride 2 and no padding."""

    filters: int


Step = Conv | Halve | str | Sequence[Conv]
Branch = Sequence[Step]
_ROW, _COLUMN = (1, 7), (7, 1)


def _block_a(pooled: int) -> Sequence[Branch]:
    return (
        [Conv(64)],
        [Conv(48), Conv(64, 5)],
        [Conv(64), Conv(96, 3), Conv(96, 3)],
        ["average", Conv(pooled)],
    )


def _block_b(inner: int) -> Sequence[Branch]:
    return (
        [Conv(192)],
        [Conv(inner), Conv(inner, _ROW), Conv(192, _COLUMN)],
        [Conv(inner), Conv(inner, _COLUMN), Conv(inner, _ROW), Conv(inner, _COLUMN), Conv(192, _ROW)],
        ["average", Conv(192)],
    )


def _block_c() -> Sequence[Branch]:
    fork = [Conv(384, (1, 3)), Conv(384, (3, 1))]
    return ([Conv(320)], [Conv(384), fork], [Conv(448), Conv(384, 3), fork], ["average", Conv(192)])


_BLOCKS: dict[str, Sequence[Branch]] = {
    "mixed5b": _block_a(32),
    "mixed5c": _block_a(64),
    "mixed5d": _block_a(64),
    "mixed6a": ([Halve(384)], [Conv(64), Conv(96, 3), Halve(96)], ["max"]),
    "mixed6b": _block_b(128),
    "mixed6c": _block_b(160),
    "mixed6d": _block_b(160),
    "mixed6e": _block_b(192),
    "mixed7a": ([Conv(192), Halve(320)], [Conv(192), Conv(192, _ROW), Conv(192, _COLUMN), Halve(192)], ["max"]),
    "mixed7b": _block_c(),
    "mixed7c": _block_c(),
}


def _step(net: Net, x: Value, step: Step, size: Size, name: str) -> Value:
    if isinstance(step, Conv):
        return net.conv(x, size.rounded(step.filters), step.kernel, activation="RELU", name=name)
    if isinstance(step, Halve):
        return net.conv(x, size.rounded(step.filters), 3, 2, padding="VALID", activation="RELU", name=name)
    if step == "average":
        return net.average_pool(x, 3, 1, name=name)
    if step == "max":
        return net.max_pool(x, 3, 2, padding="VALID", name=name)
    assert not isinstance(step, str)
    return net.concat([_step(net, x, part, size, f"{name}/fork{i}") for i, part in enumerate(step)], name=name)


def _inception_v3(net: Net, size: Size) -> Mapping[str, Value]:
    x = net.image(size.resolution)
    x = net.conv(x, size.rounded(32), 3, 2, padding="VALID", activation="RELU", name="stem1a")
    x = net.conv(x, size.rounded(32), 3, padding="VALID", activation="RELU", name="stem2a")
    x = net.conv(x, size.rounded(64), 3, activation="RELU", name="stem2b")
    x = net.max_pool(x, 3, 2, padding="VALID", name="stem3a")
    x = net.conv(x, size.rounded(80), activation="RELU", name="stem3b")
    x = net.conv(x, size.rounded(192), 3, padding="VALID", activation="RELU", name="stem4a")
    x = net.max_pool(x, 3, 2, padding="VALID", name="stem5a")
    for block, branches in _BLOCKS.items():
        outputs = []
        for b, branch in enumerate(branches):
            y = x
            for s, step in enumerate(branch):
                y = _step(net, y, step, size, f"{block}/branch{b}/{s}")
            outputs.append(y)
        x = net.concat(outputs, name=block)
    return {"logits": net.dense(net.global_pool(x), size.classes, name="logits")}


ARCHITECTURES = (Architecture("inception_v3", _inception_v3, 299, 1001, smallest=75),)
