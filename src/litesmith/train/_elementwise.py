# SPDX-License-Identifier: Apache-2.0
"""Operators that work element by element, with broadcasting as NumPy and LiteRT have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as nnf
from torch import Tensor

from litesmith.train._operators import Compute, Node, makes

_DTYPES = {
    "float32": torch.float32, "float16": torch.float16, "float64": torch.float64, "int32": torch.int32,
    "int64": torch.int64, "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
}  # fmt: skip


def _div(x: Tensor, y: Tensor) -> Tensor:
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ABS": torch.abs,
    "ADD": torch.add,
    "ATAN2": torch.atan2,
    "CEIL": torch.ceil,
    "COS": torch.cos,
    "DIV": _div,
    "ELU": nnf.elu,
    "EQUAL": torch.eq,
    "EXP": torch.exp,
    "FLOOR": torch.floor,
    "FLOOR_DIV": torch.floor_divide,
    "FLOOR_MOD": torch.remainder,
    "GREATER": torch.gt,
    "GREATER_EQUAL": torch.ge,
    "HARD_SWISH": nnf.hardswish,
    "LESS": torch.lt,
    "LESS_EQUAL": torch.le,
    "LOG": torch.log,
    "LOGICAL_AND": torch.logical_and,
    "LOGICAL_NOT": torch.logical_not,
    "LOGICAL_OR": torch.logical_or,
    "LOGISTIC": torch.sigmoid,
    "MAXIMUM": torch.maximum,
    "MINIMUM": torch.minimum,
    "MUL": torch.mul,
    "NEG": torch.neg,
    "NOT_EQUAL": torch.ne,
    "POW": torch.pow,
    "PRELU": lambda x, slope: torch.clamp(x, min=0.0) + slope * torch.clamp(x, max=0.0),
    "RELU": torch.relu,
    "RELU6": nnf.relu6,
    "RELU_0_TO_1": lambda x: nnf.hardtanh(x, 0.0, 1.0),
    "RELU_N1_TO_1": nnf.hardtanh,
    "ROUND": torch.round,
    "RSQRT": torch.rsqrt,
    "SELECT_V2": lambda condition, x, y: torch.where(condition.bool(), x, y),
    "SIGN": torch.sign,
    "SIN": torch.sin,
    "SQRT": torch.sqrt,
    "SQUARE": torch.square,
    "SQUARED_DIFFERENCE": lambda x, y: (x - y) ** 2,
    "SUB": torch.sub,
    "TANH": torch.tanh,
    "ZEROS_LIKE": torch.zeros_like,
}


@makes(*_FUNCTIONS)
def simple(node: Node) -> Compute:
    """Make a function without options."""
    return _FUNCTIONS[node.operator.kind]


@makes("SELECT")
def select(node: Node) -> Compute:
    """Make a choice; a condition of rank 1 chooses whole rows."""
    rows = len(node.shape(0)) == 1 and len(node.shape(1)) > 1

    def compute(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
        chosen = condition.bool()
        if rows:
            chosen = chosen.reshape(-1, *[1] * (x.ndim - 1))
        return torch.where(chosen, x, y)

    return compute


@makes("ADD_N")
def add_n(_node: Node) -> Compute:
    """Make a sum of any number of tensors."""
    return lambda *inputs: sum(inputs[1:], start=inputs[0])


@makes("LEAKY_RELU")
def leaky_relu(node: Node) -> Compute:
    """Make a RELU that lets a share of what is negative pass."""
    slope = float(node.options.alpha)
    return lambda x: nnf.leaky_relu(x, slope)


@makes("GELU")
def gelu(node: Node) -> Compute:
    """Make a Gaussian error linear unit, exact or by tanh."""
    how = "tanh" if node.options.approximate else "none"
    return lambda x: nnf.gelu(x, approximate=how)


@makes("SOFTMAX")
def softmax(node: Node) -> Compute:
    """Make probabilities of scores."""
    beta = float(node.options.beta)
    return lambda x: torch.softmax(x if beta == 1.0 else x * beta, dim=-1)


@makes("LOG_SOFTMAX")
def log_softmax(_node: Node) -> Compute:
    """Make logarithms of probabilities of scores."""
    return lambda x: torch.log_softmax(x, dim=-1)


@makes("CAST")
def cast(node: Node) -> Compute:
    """Make a change of type."""
    dtype = _DTYPES[node.output_dtype()]
    return lambda x: x.to(dtype)
