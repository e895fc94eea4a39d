# SPDX-License-Identifier: Apache-2.0
"""What must hold for each operator, so that LiteRT's kernels stay inside their memory: form, options, types, shapes.

Shapes are followed from the inputs of the graph with the rules of shape inference: what a file says about a tensor that
is computed must be what LiteRT will compute. Where a shape depends on values known only at run time, it and all that
follows from it is uncertain and not checked; LiteRT checks it again while it runs.
"""

from __future__ import annotations

from litesmith.errors import ModelError
from litesmith.model._dtypes import BITS
from litesmith.model._graph import ABSENT, Model
from litesmith.model._operators import options_table
from litesmith.model._verify_calls import called_subgraphs, calls_fit
from litesmith.model._verify_forms import form
from litesmith.model._verify_node import Node
from litesmith.model._verify_rules import rules
from litesmith.model._verify_shapes import computed


def verify_operators(model: Model) -> None:
    """Raise a ModelError for the first operator that breaks a rule; references are known to be in range."""
    uncertain: dict[int, set[int]] = {}
    for index in _callees_first(model):
        uncertain[index] = set()
        for number in range(len(model.subgraphs[index].operators)):
            node = Node(model, index, number, uncertain)
            _form_fits(node)
            _options_fit(node)
            for rule in rules(node.operator.kind):
                rule(node)
            if node.operator.kind in _CALLING:
                if not calls_fit(node):
                    node.uncertain.update(node.operator.outputs)
            else:
                _shapes_fit(node)


def _callees_first(model: Model) -> list[int]:
    order: dict[int, None] = {}
    waiting = list(range(len(model.subgraphs)))
    while waiting:
        index = waiting[-1]
        callees = [c for o in model.subgraphs[index].operators for c in called_subgraphs(o) if c not in order]
        if index in order or not callees:
            order[waiting.pop()] = None
        else:
            waiting += callees
    return list(order)


def _form_fits(node: Node) -> None:
    operator, expected = node.operator, form(node.operator.kind)
    if operator.kind == "CUSTOM" and not operator.custom_code:
        raise node.error("a custom operator needs a custom_code, the name under which its kernel is registered")
    if expected is None:
        return
    for role, indices, count in (
        ("input", operator.inputs, expected.inputs),
        ("output", operator.outputs, expected.outputs),
    ):
        if len(indices) not in count:
            high = "or more" if count[-1] > 1000 else f"to {count[-1]}"
            wanted = f"{count[0]}" if len(count) == 1 else f"{count[0]} {high}"
            raise node.error(f"it has {len(indices)} {role}s, but must have {wanted}")
    for position, index in enumerate(operator.inputs):
        if index == ABSENT and position not in expected.optional:
            raise node.error(f"input {position} is absent, but only inputs {sorted(expected.optional)} may be")


def _options_fit(node: Node) -> None:
    operator = node.operator
    if operator.kind == "CUSTOM":
        if operator.options is not None:
            raise node.error(f"a custom operator has custom_options, not {operator.options.table}")
    elif operator.options is not None and operator.options.table != options_table(operator.kind):
        raise node.error(f"its options are {operator.options.table}, but must be {options_table(operator.kind)}")


def _shapes_fit(node: Node) -> None:
    """What is computed must have the shape and type the file says; what is known only at run time is uncertain."""
    operator = node.operator
    known = not any(index in node.uncertain for index in operator.inputs)
    try:
        results = computed(node)
    except (ModelError, ValueError, ArithmeticError) as error:
        if known:
            raise node.error(str(error)) from None
        results = None
    if results is None:
        node.uncertain.update(operator.outputs)
        return
    if len(results) != len(operator.outputs):
        raise node.error(f"it has {len(operator.outputs)} outputs, but computes {len(results)}")
    for position, (shape, dtype) in enumerate(results):
        said = node.outputs[position]
        if known and said.shape != shape:
            raise node.error(
                f"has shape {list(said.shape)} in the file, but {list(shape)} is computed", output=position
            )
        if dtype and said.dtype not in (dtype, *_CONVERTED.get(operator.kind, {}).get(dtype, ())):
            raise node.error(f"is {said.dtype} in the file, but {dtype} is computed", output=position)
    if not known:
        node.uncertain.update(operator.outputs)


_CALLING = frozenset({"CALL_ONCE", "IF", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE", "WHILE"})
_INTEGERS = ("int8", "uint8", "int16", "int32")
_ANY = {dtype: tuple(BITS) for dtype in BITS}
# Types that an operator may give besides the one that its input has.
_CONVERTED: dict[str, dict[str, tuple[str, ...]]] = {
    "BATCH_MATMUL": {"int8": ("int32",)},
    "CAST": _ANY,
    "DEQUANTIZE": {"float32": ("float16",)},
    "EMBEDDING_LOOKUP": dict.fromkeys(("int8", "uint8", "int4", "int2"), ("float32",)),
    "FULLY_CONNECTED": dict.fromkeys(_INTEGERS, _INTEGERS),
    "QUANTIZE": dict.fromkeys(("float32", *_INTEGERS), (*_INTEGERS, "int4")),
    "SOFTMAX": {"int8": ("int16",), "uint8": ("int16",)},
}
