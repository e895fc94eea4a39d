# SPDX-License-Identifier: Apache-2.0
"""Ways to damage a model: in its bytes, in the tables of the file, in the graph."""

from __future__ import annotations

import importlib
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from litesmith.errors import ModelError
from litesmith.model import Buffer, Model, Operator, Quantization, Subgraph, Tensor
from litesmith.model import _schema as schema
from litesmith.model._dtypes import BITS, encode, numpy_dtype
from litesmith.model._flatbuffer import Reader, Record, Writer, enum_values, table_fields, union_tables
from litesmith.model._flexbuffer import decode_flexbuffer
from litesmith.model._operators import options_table
from litesmith.model._verify_forms import form
from litesmith.model._verify_node import Node
from litesmith.model._verify_shapes import computed

_NASTY = (0, 1, 2, 3, 4, 5, 7, 8, 16, 100, 127, 255, 256, 1000, 65535, 65536, 2**20, 2**31 - 1)
_DTYPES = (
    "float32",
    "int8",
    "int32",
    "int64",
    "uint8",
    "int16",
    "bool",
    "float16",
    "string",
    "int4",
    "resource",
    "complex64",
)


def damaged(data: bytes, seed: int) -> bytes:
    """Return the bytes of a model, damaged in one to four ways that follow from the seed."""
    chance = random.Random(seed)
    way = chance.choices((_in_bytes, _in_tables, _in_graph), (4, 3, 5))[0]
    return way(data, chance)


# --- bytes ---


def _in_bytes(data: bytes, chance: random.Random) -> bytes:
    reader = Reader(memoryview(data))
    reader.root("Model")
    tables = min(reader.tables_end, len(data))
    content = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        if len(content) >= 8:
            chance.choice(_BYTE_MUTATORS)(content, min(tables, len(content)), chance)
    return bytes(content)


def _place(content: bytearray, tables: int, chance: random.Random, size: int = 1) -> int:
    end = tables if chance.random() < 0.9 else len(content)
    return chance.randrange(max(end - size, 1))


def _flip(content: bytearray, tables: int, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        content[_place(content, tables, chance)] ^= 1 << chance.randrange(8)


def _byte(content: bytearray, tables: int, chance: random.Random) -> None:
    content[_place(content, tables, chance)] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def _dword(content: bytearray, tables: int, chance: random.Random) -> None:
    place = _place(content, tables, chance, 4) & ~3
    value = chance.choice((chance.randrange(2**32), chance.choice(_NASTY), 2**32 - 1 - chance.choice(_NASTY)))
    content[place : place + 4] = struct.pack("<I", value)


def _swap(content: bytearray, tables: int, chance: random.Random) -> None:
    one, other = (_place(content, tables, chance, 4) & ~3 for _ in range(2))
    content[one : one + 4], content[other : other + 4] = content[other : other + 4], content[one : one + 4]


def _shift(content: bytearray, tables: int, chance: random.Random) -> None:
    """Move an offset a little: it then points into the middle of something."""
    place = _place(content, tables, chance, 4) & ~3
    (value,) = struct.unpack_from("<I", content, place)
    struct.pack_into("<I", content, place, (value + chance.choice((-16, -8, -4, -2, -1, 1, 2, 4, 8, 16))) % 2**32)


def _truncate(content: bytearray, tables: int, chance: random.Random) -> None:
    del content[chance.randrange(len(content)) :]


def _cut(content: bytearray, tables: int, chance: random.Random) -> None:
    place = _place(content, tables, chance)
    del content[place : place + chance.choice((1, 2, 4, 16))]


def _grow(content: bytearray, tables: int, chance: random.Random) -> None:
    place = _place(content, tables, chance)
    content[place:place] = chance.randbytes(chance.choice((1, 4, 16)))


def _blank(content: bytearray, tables: int, chance: random.Random) -> None:
    place = _place(content, tables, chance)
    size = min(chance.choice((2, 4, 8, 64)), len(content) - place)
    content[place : place + size] = bytes([chance.choice((0, 0xFF))]) * size


def _copy(content: bytearray, tables: int, chance: random.Random) -> None:
    """Lay one piece over another, so that vectors and buffers overlap."""
    one, other, size = (*(_place(content, tables, chance, 16) for _ in range(2)), chance.choice((4, 8, 16)))
    content[one : one + size] = content[other : other + size]


_BYTE_MUTATORS: tuple[Callable[[bytearray, int, random.Random], None], ...] = (
    _flip, _flip, _byte, _byte, _dword, _dword, _swap, _shift, _shift, _truncate, _cut, _grow, _blank, _copy,
)  # fmt: skip


# --- tables ---


def _in_tables(data: bytes, chance: random.Random) -> bytes:
    root = Reader(memoryview(data)).root("Model")
    for _ in range(chance.choice((1, 1, 2, 3))):
        paths = list(_paths(root, ()))
        root = _at_path(root, chance.choice(paths), chance)
    try:
        return b"".join(Writer().write(root))
    except (ModelError, ValueError, OverflowError, struct.error, KeyError, TypeError, AttributeError):
        return data  # a value that no file can hold


def _paths(record: Record, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for field in table_fields(record.table):
        if not field.used:
            continue
        value = getattr(record, field.name)
        yield (*path, field.name)
        if isinstance(value, Record):
            yield from _paths(value, (*path, field.name))
        elif field.shape == "[table]":
            for index, child in enumerate(value or ()):
                yield from _paths(child, (*path, field.name, index))


def _at_path(record: Record, path: tuple[Any, ...], chance: random.Random) -> Record:
    name, rest = path[0], path[1:]
    value = getattr(record, name)
    if not rest:
        field = next(f for f in table_fields(record.table) if f.name == name)
        return record.replace(**{name: _nasty_value(field, value, chance)})
    if isinstance(value, Record):
        return record.replace(**{name: _at_path(value, rest, chance)})
    children = list(value)
    children[rest[0]] = _at_path(children[rest[0]], rest[1:], chance)
    return record.replace(**{name: tuple(children)})


def _nasty_scalar(element: str, value: Any, chance: random.Random) -> Any:
    if element in schema.ENUMS:
        return chance.choice(list(enum_values(element)))
    if element == "bool":
        return not value
    if element[0] == "f":
        return chance.choice((0.0, 1.0, -1.0, float("nan"), float("inf"), 1e-30, 1e30))
    bits, signed = int(element[1:]), element[0] == "i"
    number = chance.choice((chance.choice(_NASTY), -chance.choice(_NASTY), int(value or 0) + chance.choice((-1, 1))))
    low = -(2 ** (bits - 1)) if signed else 0
    return max(low, min(number, 2 ** (bits - signed) - 1))


def _nasty_value(field: Any, value: Any, chance: random.Random) -> Any:
    if field.shape == "scalar":
        return _nasty_scalar(field.element, value, chance)
    if chance.random() < 0.15:
        return None
    if field.shape == "string":
        return chance.choice(("", "x", "\udcff", "a" * 300))
    if field.shape == "union":
        return Record(chance.choice(union_tables(field.element)))
    if field.shape == "table":
        return value
    if field.element == "u8" and not isinstance(value, tuple):
        content = bytearray(value or b"")
        for _ in range(min(len(content), chance.choice((1, 4)))):
            content[chance.randrange(len(content))] = chance.randrange(256)
        return bytes(content[: chance.randrange(len(content) + 1)] if chance.random() < 0.3 else content)
    items = list(value or ())
    action = chance.random()
    if items and action < 0.25:
        del items[chance.randrange(len(items))]
    elif items and action < 0.4:
        items.insert(chance.randrange(len(items) + 1), chance.choice(items))
    elif len(items) > 1 and action < 0.55:
        chance.shuffle(items)
    elif field.shape == "[scalar]":
        place = chance.randrange(len(items) + 1)
        items[place : place + 1] = [_nasty_scalar(field.element, items[place] if place < len(items) else 0, chance)]
    return tuple(items)


# --- graph ---


def _in_graph(data: bytes, chance: random.Random) -> bytes:
    model = Model.from_bytes(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        model = chance.choice(_GRAPH_MUTATORS)(model, chance)
    if chance.random() < 0.8:
        model = _with_computed_shapes(model)
    try:
        return replace(model, unknown=()).to_bytes()
    except (ModelError, ValueError, OverflowError, struct.error, KeyError, TypeError, AttributeError):
        return data


def _with_subgraph(model: Model, index: int, **changes: Any) -> Model:
    subgraphs = list(model.subgraphs)
    subgraphs[index] = replace(subgraphs[index], **changes)
    return replace(model, subgraphs=tuple(subgraphs))


def _change_tensor(model: Model, chance: random.Random, change: Callable[[Tensor, random.Random], Tensor]) -> Model:
    index = chance.randrange(len(model.subgraphs))
    tensors = list(model.subgraphs[index].tensors)
    if tensors:
        place = chance.randrange(len(tensors))
        tensors[place] = change(tensors[place], chance)
    return _with_subgraph(model, index, tensors=tuple(tensors))


def _change_operator(
    model: Model, chance: random.Random, change: Callable[[Operator, Subgraph, random.Random], Operator]
) -> Model:
    index = chance.randrange(len(model.subgraphs))
    operators = list(model.subgraphs[index].operators)
    if operators:
        place = chance.randrange(len(operators))
        operators[place] = change(operators[place], model.subgraphs[index], chance)
    return _with_subgraph(model, index, operators=tuple(operators))


def _other_shape(shape: tuple[int, ...], chance: random.Random) -> tuple[int, ...]:
    sizes = list(shape)
    action = chance.random()
    if sizes and action < 0.6:
        sizes[chance.randrange(len(sizes))] = chance.choice((0, 1, 2, 3, 4, 5, 7, 8, 16, 33))
    elif sizes and action < 0.75:
        del sizes[chance.randrange(len(sizes))]
    elif action < 0.9:
        sizes.insert(chance.randrange(len(sizes) + 1), chance.choice((0, 1, 1, 2, 3)))
    else:
        chance.shuffle(sizes)
    return tuple(sizes)


def _filled(tensor: Tensor, chance: random.Random) -> Tensor:
    """Return the tensor with constant values that fit its shape and type."""
    if BITS.get(tensor.dtype, 0) == 0 and tensor.dtype != "string":
        return tensor
    count = min(tensor.elements, 100_000)
    if tensor.dtype == "string":
        values: Any = np.array([b"ab"] * count + [None], object)[:-1]
    elif numpy_dtype(tensor.dtype).kind in "iu" and tensor.dtype in ("int32", "int64"):
        pool = (0, 1, 2, 3, -1) if chance.random() < 0.7 else (*_NASTY, -1, -2, -(2**31))
        values = np.resize(np.array([chance.choice(pool) for _ in range(16)]), count)
    else:
        values = np.resize(np.array([1, 0, 3, 1, 2]), count)
    kind = object if tensor.dtype == "string" else numpy_dtype(tensor.dtype)
    return replace(tensor, buffer=Buffer(encode(values.astype(kind), tensor.dtype)), sparsity=None)


def _reshape_tensor(tensor: Tensor, chance: random.Random) -> Tensor:
    changed = replace(tensor, shape=_other_shape(tensor.shape, chance), shape_signature=None)
    return _filled(changed, chance) if tensor.buffer is not None and chance.random() < 0.9 else changed


def _retype_tensor(tensor: Tensor, chance: random.Random) -> Tensor:
    changed = replace(tensor, dtype=chance.choice(_DTYPES))
    return _filled(changed, chance) if tensor.buffer is not None and chance.random() < 0.9 else changed


def _requantize_tensor(tensor: Tensor, chance: random.Random) -> Tensor:
    if chance.random() < 0.25:
        return replace(tensor, quantization=None)
    axis = chance.randrange(len(tensor.shape)) if tensor.shape else 0
    count = tensor.shape[axis] if tensor.shape and chance.random() < 0.4 else 1
    scale = chance.choice((0.0, 1e-40, 1e-20, 1e-5, 0.01, 0.5, 1.0, 100.0, 1e20, 3e38, float("nan")))
    zero = chance.choice((0, 0, 0, 1, -1, 127, -128, 255, 1000))
    return replace(tensor, quantization=Quantization((scale,) * count, (zero,) * count, axis))


def _refill_tensor(tensor: Tensor, chance: random.Random) -> Tensor:
    return _filled(tensor, chance) if tensor.elements < 10_000 else tensor


def _flag_tensor(tensor: Tensor, chance: random.Random) -> Tensor:
    return chance.choice((
        replace(tensor, is_variable=not tensor.is_variable),
        replace(tensor, buffer=None),
        replace(tensor, sparsity=None),
        replace(tensor, external_buffer=chance.choice((0, 1, 7))),
        replace(tensor, shape_signature=_other_shape(tensor.shape, chance)),
        replace(tensor, name=""),
    ))  # fmt: skip


def _nasty_option(operator: Operator, _subgraph: Subgraph, chance: random.Random) -> Operator:
    table = options_table(operator.kind)
    if table is None or not table_fields(table):
        return operator
    options = operator.options or Record(table)
    field = chance.choice([f for f in table_fields(options.table) if f.used] or [None])
    if field is None:
        return operator
    small = chance.random() < 0.6 and field.shape == "scalar" and field.element in ("i32", "i64")
    value = chance.choice((0, 1, 2, 3, 4, -1)) if small else _nasty_value(field, getattr(options, field.name), chance)
    return replace(operator, options=options.replace(**{field.name: value}))


def _nasty_custom_options(operator: Operator, _subgraph: Subgraph, chance: random.Random) -> Operator:
    if operator.kind != "CUSTOM" or not operator.custom_options:
        return operator
    flexbuffers = importlib.import_module("flatbuffers.flexbuffers")

    try:
        options = decode_flexbuffer(operator.custom_options)
    except ModelError:
        options = None
    if not isinstance(options, dict) or not options or chance.random() < 0.3:
        content = bytearray(operator.custom_options)
        content[chance.randrange(len(content))] = chance.randrange(256)
        return replace(operator, custom_options=bytes(content))
    value = chance.choice((0, 1, 2, 5, -1, 100, 2**31 - 1, 1e30, 0.0, "x", [1, 2], None))
    options[chance.choice(list(options))] = value
    return replace(operator, custom_options=bytes(flexbuffers.Dumps(options)))


def _rewire(operator: Operator, subgraph: Subgraph, chance: random.Random) -> Operator:
    inputs, outputs = list(operator.inputs), list(operator.outputs)
    wires = inputs if chance.random() < 0.75 else outputs
    action = chance.random()
    anything = chance.choice((-1, len(subgraph.tensors), chance.randrange(-1, len(subgraph.tensors) + 1)))
    some = chance.randrange(len(subgraph.tensors)) if subgraph.tensors and chance.random() < 0.8 else anything
    if wires and action < 0.5:
        wires[chance.randrange(len(wires))] = some
    elif wires and action < 0.65:
        del wires[chance.randrange(len(wires))]
    elif action < 0.8:
        wires.insert(chance.randrange(len(wires) + 1), some)
    else:
        chance.shuffle(wires)
    return replace(operator, inputs=tuple(inputs), outputs=tuple(outputs))


def _other_kind(operator: Operator, _subgraph: Subgraph, chance: random.Random) -> Operator:
    kinds = list(enum_values("BuiltinOperator"))
    if chance.random() < 0.8:  # one of the same form
        shape = len(operator.inputs), len(operator.outputs)
        kinds = [k for k in kinds if (f := form(k)) and shape[0] in f.inputs and shape[1] in f.outputs] or kinds
    kind = chance.choice(kinds)
    table = options_table(kind)
    options = Record(table) if table and chance.random() < 0.5 else None
    return replace(operator, kind=kind, options=options, version=2 if kind == "BROADCAST_TO" else 1)


def _rewire_borders(model: Model, chance: random.Random) -> Model:
    index = chance.randrange(len(model.subgraphs))
    subgraph = model.subgraphs[index]
    name = chance.choice(("inputs", "outputs"))
    borders = list(getattr(subgraph, name))
    extra = chance.randrange(-1, len(subgraph.tensors) + 1)
    action = chance.random()
    if borders and action < 0.4:
        borders[chance.randrange(len(borders))] = extra
    elif borders and action < 0.7:
        del borders[chance.randrange(len(borders))]
    else:
        borders.append(extra)
    return _with_subgraph(model, index, **{name: tuple(borders)})


def _reorder(model: Model, chance: random.Random) -> Model:
    index = chance.randrange(len(model.subgraphs))
    operators = list(model.subgraphs[index].operators)
    if len(operators) > 1:
        one, other = chance.sample(range(len(operators)), 2)
        operators[one], operators[other] = operators[other], operators[one]
    return _with_subgraph(model, index, operators=tuple(operators))


def _repeat_operator(model: Model, chance: random.Random) -> Model:
    index = chance.randrange(len(model.subgraphs))
    operators = model.subgraphs[index].operators
    return _with_subgraph(model, index, operators=(*operators, chance.choice(operators)) if operators else ())


def _close_a_cycle(model: Model, chance: random.Random) -> Model:
    index = chance.randrange(len(model.subgraphs))
    operators = list(model.subgraphs[index].operators)
    if operators and operators[-1].outputs and operators[0].inputs:
        operators[0] = replace(operators[0], inputs=(operators[-1].outputs[0], *operators[0].inputs[1:]))
    return _with_subgraph(model, index, operators=tuple(operators))


def _on_tensor(change: Callable[[Tensor, random.Random], Tensor]) -> Callable[[Model, random.Random], Model]:
    return lambda model, chance: _change_tensor(model, chance, change)


def _on_operator(
    change: Callable[[Operator, Subgraph, random.Random], Operator],
) -> Callable[[Model, random.Random], Model]:
    return lambda model, chance: _change_operator(model, chance, change)


_GRAPH_MUTATORS: tuple[Callable[[Model, random.Random], Model], ...] = (
    *(_on_tensor(_reshape_tensor),) * 4,
    *(_on_tensor(_retype_tensor),) * 3,
    *(_on_tensor(_requantize_tensor),) * 3,
    *(_on_tensor(_refill_tensor),) * 3,
    _on_tensor(_flag_tensor),
    *(_on_operator(_nasty_option),) * 5,
    *(_on_operator(_nasty_custom_options),) * 2,
    *(_on_operator(_rewire),) * 2,
    *(_on_operator(_other_kind),) * 2,
    _rewire_borders,
    _reorder,
    _repeat_operator,
    _close_a_cycle,
)


def _with_computed_shapes(model: Model) -> Model:
    """Return the model with the shapes that follow from the damage, so that more than the shapes is tried."""
    for index, subgraph in enumerate(model.subgraphs):
        for number in range(len(subgraph.operators)):
            try:
                node = Node(model, index, number, {index: set()})
                results = computed(node) or ()
                tensors = list(model.subgraphs[index].tensors)
                for place, (shape, dtype) in zip(node.operator.outputs, results, strict=False):
                    fixed = node.operator.kind in ("QUANTIZE", "SOFTMAX", "DEQUANTIZE", "CAST")
                    tensors[place] = replace(
                        tensors[place], shape=tuple(shape), dtype=tensors[place].dtype if fixed else dtype
                    )
                model = _with_subgraph(model, index, tensors=tuple(tensors))
            except (
                ModelError,
                ArithmeticError,
                ValueError,
                IndexError,
                TypeError,
                AttributeError,
                MemoryError,
                KeyError,
            ):
                continue
    return model
