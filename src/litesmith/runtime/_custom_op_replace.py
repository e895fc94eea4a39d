# SPDX-License-Identifier: Apache-2.0
"""Turn one operator of a model into a custom operator, so that a kernel of one's own runs in its place."""

from __future__ import annotations

import importlib
from dataclasses import replace

from litesmith.errors import UsageError
from litesmith.model import Model, Operator

_CALLS = frozenset({"IF", "WHILE", "CALL", "CALL_ONCE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "STABLEHLO_CASE"})


def replace_op(model: Model, operator: int, name: str) -> Model:
    """Return the model with one operator of its first subgraph as the custom operator ``name``.

    Inputs, outputs and constants stay what they are; the options become those of the custom operator, so that a kernel
    with a parameter ``options`` gets them as a dict, and native code as a FlexBuffer.

    Args:
        model: The model.
        operator: The index of the operator, as `profile` shows it.
        name: The name under which a kernel is registered with `custom_op`.

    Example:
        >>> import litesmith
        >>> model = replace_op(litesmith.samples.model(), 0, "MyConv")
        >>> model.main.operators[0].name
        'MyConv'
    """
    old = operator_at(model, operator)
    fields = {} if old.options is None else old.options.asdict()
    content = old.custom_options if old.kind == "CUSTOM" else _flexbuffer(dict(fields))
    new = Operator("CUSTOM", old.inputs, old.outputs, custom_code=name, custom_options=content)
    operators = (*model.main.operators[:operator], new, *model.main.operators[operator + 1 :])
    return model.with_main(replace(model.main, operators=operators))


def operator_at(model: Model, operator: int) -> Operator:
    """Return an operator that a kernel can stand for."""
    operators = model.main.operators
    if not 0 <= operator < len(operators):
        raise UsageError(f"there is no operator {operator}; the model has {len(operators)}, counted from 0")
    found = operators[operator]
    tensors = [model.main.tensors[i] for i in (*found.inputs, *found.outputs) if i >= 0]
    if found.kind in _CALLS:
        raise UsageError(
            f"operator {operator} is {found.kind}, which runs another subgraph: no kernel can stand for it"
        )
    if any(tensor.is_variable for tensor in tensors):
        raise UsageError(
            f"operator {operator} {found.name} keeps a state in variable tensors: no kernel can stand for it"
        )
    return found


def _flexbuffer(fields: dict[str, object]) -> bytes | None:
    flexbuffers = importlib.import_module("flatbuffers.flexbuffers")  # comes with LiteRT, and without types

    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in fields.items() if v is not None}
    return bytes(flexbuffers.Dumps(plain)) if plain else None
