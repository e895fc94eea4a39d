# SPDX-License-Identifier: Apache-2.0
"""From a Model to the bytes of a `.tflite`: deterministic, and streamed so that a large model is never held twice."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from litesmith.errors import ModelError
from litesmith.model._appendix import attached
from litesmith.model._flatbuffer import LARGEST_ROOT, Record, Writer, enum_values, union_tables
from litesmith.model._graph import Buffer, Model, Operator, Quantization, Signature, Subgraph, Tensor

_SECOND_UNION = frozenset(union_tables("BuiltinOptions2"))


def save(model: Model, path: str | Path) -> None:
    """Write a `.tflite` file; an existing one is replaced only once all is written."""
    path = Path(path)
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 (a descriptor, not a path)
                for piece in pieces(model):
                    file.write(piece)
            Path(draft).chmod(0o666 & ~_umask())
            Path(draft).replace(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(draft).unlink()
            raise
    except OSError as error:
        raise ModelError(f"{path} cannot be written: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def to_bytes(model: Model) -> bytes:
    """Return the bytes of the `.tflite`."""
    return b"".join(pieces(model))


def pieces(model: Model) -> Iterator[bytes | memoryview]:
    """Yield the bytes of the `.tflite`, piece by piece."""
    if model.unknown:
        raise ModelError(
            f"the model uses {', '.join(model.unknown)}, newer than this version of Litesmith, and would lose it; "
            "update Litesmith, or drop it on purpose with dataclasses.replace(model, unknown=())"
        )
    if model.appendix is not None:
        model, start = _placed_appendix(model)
    table = _BufferTable()
    draft = _root(model, table)
    buffers = table.buffers
    if sum(len(b) for b in buffers) < LARGEST_ROOT - (1 << 24):
        records = tuple(Record("Buffer", data=b.data if b is not _NO_DATA else None) for b in buffers)
        encoded: Iterator[bytes | memoryview] = Writer().write(draft.replace(buffers=records))
    else:
        encoded = _buffers_outside(draft, buffers)
    size = 0
    for piece in encoded:
        size += len(piece)
        yield piece
    if model.appendix is not None:
        yield bytes(start - size)
        yield model.appendix.data
        size = start + len(model.appendix)
    if model.associated_files:
        yield _archive(model.associated_files, size)


def _placed_appendix(model: Model) -> tuple[Model, int]:
    """Return the model with the place of its appendix in the file, and that place: the first free one."""
    bare = replace(model, appendix=None, associated_files=())
    size = sum(len(piece) for piece in pieces(bare))  # the places in it take as many bytes whatever they are
    start = size + -size % 16
    return attached(model, start), start


_NO_DATA = Buffer(b"")


class _BufferTable:
    """Numbers buffers in the order of first use; the first is by convention empty."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = [_NO_DATA]
        self._index: dict[int, int] = {}

    def index(self, buffer: Buffer | None) -> int:
        if buffer is None:
            return 0
        if id(buffer) not in self._index:
            self._index[id(buffer)] = len(self.buffers)
            self.buffers.append(buffer)
        return self._index[id(buffer)]


def _buffers_outside(draft: Record, buffers: list[Buffer]) -> Iterator[bytes | memoryview]:
    """Lay the buffers behind the root, for models over 2 GiB: the root is written twice, first to learn its size."""

    def placed(start: int) -> tuple[Record, ...]:
        records, position = [Record("Buffer")], start
        for buffer in buffers[1:]:
            records.append(Record("Buffer", offset=position, size=len(buffer)))
            position += len(buffer) + -len(buffer) % 16
        return tuple(records)

    def encode(start: int) -> bytes:
        return b"".join(Writer().write(draft.replace(buffers=placed(start))))

    root = encode(len(encode(1 << 40)))
    yield root
    for buffer in buffers[1:]:
        yield buffer.data
        yield bytes(-len(buffer) % 16)


def _root(model: Model, table: _BufferTable) -> Record:
    codes: dict[tuple[str, str, int], int] = {}
    subgraphs = tuple(_subgraph(s, codes, table) for s in model.subgraphs)
    metadata = tuple(Record("Metadata", name=m.name, buffer=table.index(m.buffer)) for m in model.metadata)
    unnamed = tuple(table.index(buffer) for buffer in model.metadata_buffers)
    return Record(
        "Model",
        version=3,
        operator_codes=tuple(_operator_code(*code) for code in codes),
        subgraphs=subgraphs,
        description=model.description,
        metadata_buffer=unnamed or None,
        metadata=metadata or None,
        signature_defs=tuple(map(_signature, model.signatures)) or None,
        external_buffer_groups=model.external_buffer_groups or None,
        external_buffers=model.external_buffers or None,
    )


def _operator_code(kind: str, custom_code: str, version: int) -> Record:
    value = enum_values("BuiltinOperator")[kind]
    return Record(
        "OperatorCode",
        deprecated_builtin_code=min(value, 127),  # for runtimes before 2020
        builtin_code=kind,
        custom_code=custom_code or None,
        version=version,
    )


def _subgraph(subgraph: Subgraph, codes: dict[tuple[str, str, int], int], table: _BufferTable) -> Record:
    return Record(
        "SubGraph",
        name=subgraph.name,
        tensors=tuple(_tensor(t, table) for t in subgraph.tensors),
        operators=tuple(_operator(o, codes) for o in subgraph.operators),
        inputs=subgraph.inputs,
        outputs=subgraph.outputs,
        debug_metadata_index=subgraph.debug_metadata_index,
    )


def _tensor(tensor: Tensor, table: _BufferTable) -> Record:
    return Record(
        "Tensor",
        shape=tensor.shape,
        type=tensor.dtype.upper(),
        buffer=table.index(tensor.buffer),
        name=tensor.name,
        quantization=_quantization(tensor.quantization),
        is_variable=tensor.is_variable,
        sparsity=tensor.sparsity,
        shape_signature=tensor.shape_signature,
        has_rank=tensor.has_rank,
        variant_tensors=tensor.variant_tensors or None,
        external_buffer=tensor.external_buffer,
    )


def _quantization(quantization: Quantization | None) -> Record | None:
    if quantization is None:
        return None
    return Record(
        "QuantizationParameters",
        min=quantization.minimum or None,
        max=quantization.maximum or None,
        scale=quantization.scale or None,
        zero_point=quantization.zero_point or None,
        details=quantization.details,
        quantized_dimension=quantization.axis,
    )


def _operator(operator: Operator, codes: dict[tuple[str, str, int], int]) -> Record:
    code = (operator.kind, operator.custom_code, operator.version)
    second = operator.options is not None and operator.options.table in _SECOND_UNION
    return Record(
        "Operator",
        opcode_index=codes.setdefault(code, len(codes)),
        inputs=operator.inputs,
        outputs=operator.outputs,
        builtin_options=None if second else operator.options,
        builtin_options_2=operator.options if second else None,
        custom_options=operator.custom_options,
        mutating_variable_inputs=operator.mutating_variable_inputs or None,
        intermediates=operator.intermediates or None,
        debug_metadata_index=operator.debug_metadata_index,
    )


def _signature(signature: Signature) -> Record:
    def named(entries: tuple[tuple[str, int], ...]) -> tuple[Record, ...]:
        return tuple(Record("TensorMap", name=name, tensor_index=index) for name, index in entries)

    return Record(
        "SignatureDef",
        inputs=named(signature.inputs),
        outputs=named(signature.outputs),
        signature_key=signature.key,
        subgraph_index=signature.subgraph_index,
    )


def _archive(files: tuple[tuple[str, bytes], ...], start: int) -> bytes:
    """Return a zip of the files whose offsets count from ``start`` bytes before it; dates are fixed: equal bytes."""

    class _Behind(io.BytesIO):
        def tell(self) -> int:
            return super().tell() + start

        def seek(self, position: int, whence: int = 0) -> int:
            return super().seek(position - start if whence == 0 else position, whence) + start

    target = _Behind()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files:
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
    return target.getvalue()
