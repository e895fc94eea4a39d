# SPDX-License-Identifier: Apache-2.0
"""Code for an accelerator that lies behind the tables of a file, as compilers for NPUs put it there.

No table refers to it: each ``DISPATCH_OP`` has its place in its custom options (litert/core/dispatch_op_schema.cc), files
of older compilers in an entry of metadata. In a Model those places count from the start of the appendix, in a file
from the start of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from litesmith.errors import ModelError
from litesmith.model._flexbuffer import decode_flexbuffer, with_integer
from litesmith.model._graph import Buffer, Metadata, Model, Operator

DISPATCH = "DISPATCH_OP"
_METADATA, _MARK, _DIGITS = "NPU_BYTE_CODE", b"<npu_byte_code>", 11


def detached(model: Model, view: memoryview) -> Model:
    """Return a model as read from the bytes of a file with its appendix, if it has one."""
    spans = list(_spans(model))
    if not spans:
        return model
    start, end = min(offset for offset, _ in spans), max(offset + size for offset, size in spans)
    if end > len(view):
        raise ModelError(
            f"code for an accelerator lies at bytes {start:,} to {end:,}, outside the file of {len(view):,}"
        )
    return replace(_moved(model, -start), appendix=Buffer(view[start:end]))


def attached(model: Model, start: int) -> Model:
    """Return the model with places that count from the start of the file, in which the appendix is at ``start``."""
    return _moved(model, start)


def _spans(model: Model) -> Iterator[tuple[int, int]]:
    for _, _, operator in model.operators():
        if place := _place(operator):
            yield place
    for entry in model.metadata:
        if text := _text(entry):
            yield text


def _place(operator: Operator) -> tuple[int, int] | None:
    """Return offset and size of the code that an operator runs."""
    if operator.kind != "CUSTOM" or operator.custom_code != DISPATCH or not operator.custom_options:
        return None
    try:
        options = decode_flexbuffer(operator.custom_options)
    except ModelError:
        return None  # older compilers put only a name here
    if not isinstance(options, dict):
        return None
    offset, size = options.get("bytecode_offset"), options.get("bytecode_size")
    return (offset, size) if isinstance(offset, int) and isinstance(size, int) and offset >= 0 and size > 0 else None


def _text(entry: Metadata) -> tuple[int, int] | None:
    data = bytes(entry.buffer.data)
    if entry.name != _METADATA or not data.startswith(_MARK) or len(data) != len(_MARK) + 2 * _DIGITS:
        return None
    offset, size = (data[start : start + _DIGITS].rstrip(b"\0") for start in (len(_MARK), len(_MARK) + _DIGITS))
    return (int(offset), int(size)) if offset.isdigit() and size.isdigit() and int(size) else None


def _moved(model: Model, distance: int) -> Model:
    def operator(old: Operator) -> Operator:
        place = _place(old)
        if place is None or old.custom_options is None:
            return old
        return replace(old, custom_options=with_integer(old.custom_options, "bytecode_offset", place[0] + distance))

    def metadata(old: Metadata) -> Metadata:
        text = _text(old)
        if text is None:
            return old
        digits = str(text[0] + distance).encode().ljust(_DIGITS, b"\0")
        return replace(old, buffer=Buffer(_MARK + digits + bytes(old.buffer.data)[len(_MARK) + _DIGITS :]))

    subgraphs = tuple(replace(s, operators=tuple(map(operator, s.operators))) for s in model.subgraphs)
    return replace(model, subgraphs=subgraphs, metadata=tuple(map(metadata, model.metadata)))
