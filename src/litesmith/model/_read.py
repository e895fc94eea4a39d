# SPDX-License-Identifier: Apache-2.0
"""From the bytes of a `.tflite` to a Model, whatever the bytes are."""

from __future__ import annotations

import io
import itertools
import lzma
import mmap
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from litesmith.errors import ModelError
from litesmith.model._appendix import detached
from litesmith.model._flatbuffer import Reader, Record, enum_name, enum_values
from litesmith.model._graph import Buffer, Metadata, Model, Operator, Quantization, Signature, Subgraph, Tensor

MAPPED_ABOVE_BYTES = (
    100_000_000  # a mapped file that is cut short under us would end the process: small ones are copied
)
LARGEST_ASSOCIATED_BYTES = 256_000_000
SCHEMA_VERSION = 3
_NOT_AN_ARCHIVE = (  # what zipfile and its decompressors raise; OSError is bzip2's
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, NotImplementedError, RuntimeError, EOFError, ValueError,
)  # fmt: skip


def load(path: str | Path) -> Model:
    """Read a `.tflite` file; above 100 MB it is mapped, not copied."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            if size == 0:
                raise ModelError(f"{path} is empty; a .tflite has at least a header and one table")
            mapped = size > MAPPED_ABOVE_BYTES
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if mapped else file.read())
    except IsADirectoryError:
        raise ModelError(f"{path} is a folder; name the .tflite file in it") from None
    except FileNotFoundError:
        raise ModelError(f"there is no file {path}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return replace(from_bytes(data), source=path)
    except ModelError as error:
        raise ModelError(f"{path} is not a model that can be read: {error}") from None


def from_bytes(data: bytes | bytearray | memoryview) -> Model:
    """Read the bytes of a `.tflite`."""
    view = memoryview(data).cast("B").toreadonly()
    reader = Reader(view)
    root = reader.root("Model")
    if root.version != SCHEMA_VERSION:
        raise ModelError(f"its schema version is {root.version}; LiteRT and Litesmith read version {SCHEMA_VERSION}")
    if not root.subgraphs:
        raise ModelError("it has no subgraphs, so there is nothing to run")
    buffers = _buffers(root, view, reader)
    codes = [_operator_code(i, record) for i, record in enumerate(root.operator_codes or ())]
    model = Model(
        subgraphs=tuple(_subgraph(i, record, codes, buffers, view) for i, record in enumerate(root.subgraphs)),
        signatures=tuple(map(_signature, root.signature_defs or ())),
        metadata=tuple(
            Metadata(
                entry.name or "", _indexed_buffer(buffers, entry.buffer, f"metadata {entry.name!r}") or Buffer(b"")
            )
            for entry in root.metadata or ()
        ),
        description=root.description or "",
        associated_files=_associated_files(view),
        metadata_buffers=tuple(
            _indexed_buffer(buffers, index, "metadata") or Buffer(b"") for index in root.metadata_buffer or ()
        ),
        external_buffer_groups=root.external_buffer_groups or (),
        external_buffers=root.external_buffers or (),
        legacy=_legacy(root),
        unknown=tuple(sorted(reader.unknown)),
    )
    return detached(model, view)


def _buffers(root: Record, view: memoryview, reader: Reader) -> list[Buffer | None]:
    buffers: list[Buffer | None] = []
    spans: list[tuple[int, int, int]] = []
    if root.buffers is None:
        raise ModelError("it has no vector of buffers, without which LiteRT does not read it")
    for index, record in enumerate(root.buffers or ()):
        if record.offset > 1 and record.data is not None:
            raise ModelError(f"buffer {index} has its bytes both among the tables and behind them")
        if record.offset > 1:  # stored behind the tables, counted from the start of the file
            start, end = record.offset, record.offset + record.size
            if end > len(view):
                raise ModelError(
                    f"buffer {index} lies at bytes {start:,} to {end:,}, outside the file of {len(view):,}"
                )
            if start < reader.tables_end and record.size:
                raise ModelError(f"buffer {index} at byte {start:,} overlaps the tables of the model")
            spans.append((start, end, index))
            buffers.append(Buffer(view[start:end]))
        elif record.data is not None:
            buffers.append(Buffer(record.data))
        else:
            buffers.append(None)
    spans.sort()
    for (start, end, index), (after, after_end, other) in itertools.pairwise(spans):
        if after < end and (start, end) != (after, after_end):
            raise ModelError(f"buffers {index} and {other} overlap at byte {after:,}")
    return buffers


def _indexed_buffer(buffers: list[Buffer | None], index: int, owner: str) -> Buffer | None:
    if not 0 <= index < len(buffers) and not (index == 0 and not buffers):
        raise ModelError(f"{owner} refers to buffer {index}, but there are {len(buffers)}")
    return buffers[index] if index else None  # buffer 0 is by convention "no data"


def _operator_code(index: int, record: Record) -> tuple[str, str, int]:
    # Files written before 2020 have the code only in the field that is now deprecated; there 127 means "see the other".
    raw = record.deprecated_builtin_code
    code = max(raw, enum_values("BuiltinOperator")[record.builtin_code])
    try:
        return enum_name("BuiltinOperator", code), record.custom_code or "", record.version
    except ModelError as error:
        raise ModelError(f"operator code {index}: {error}") from None


def _subgraph(
    index: int, record: Record, codes: list[tuple[str, str, int]], buffers: list[Buffer | None], view: memoryview
) -> Subgraph:
    try:
        return Subgraph(
            name=record.name or "",
            tensors=tuple(_tensor(i, t, buffers) for i, t in enumerate(record.tensors or ())),
            operators=tuple(_operator(i, o, codes, view) for i, o in enumerate(record.operators or ())),
            inputs=record.inputs or (),
            outputs=record.outputs or (),
            debug_metadata_index=record.debug_metadata_index,
        )
    except ModelError as error:
        raise ModelError(f"subgraph {index}: {error}") from None


def _tensor(index: int, record: Record, buffers: list[Buffer | None]) -> Tensor:
    name = record.name or ""
    return Tensor(
        name=name,
        shape=record.shape or (),
        dtype=record.type.lower(),
        buffer=_indexed_buffer(buffers, record.buffer, f"tensor {index} {name!r}"),
        quantization=_quantization(record.quantization),
        shape_signature=record.shape_signature,
        is_variable=record.is_variable,
        has_rank=record.has_rank,
        sparsity=record.sparsity,
        variant_tensors=record.variant_tensors or (),
        external_buffer=record.external_buffer,
    )


def _quantization(record: Record | None) -> Quantization | None:
    if record is None:
        return None
    return Quantization(
        scale=record.scale or (),
        zero_point=record.zero_point or (),
        axis=record.quantized_dimension,
        minimum=record.min or (),
        maximum=record.max or (),
        details=record.details,
    )


def _operator(index: int, record: Record, codes: list[tuple[str, str, int]], view: memoryview) -> Operator:
    if record.opcode_index >= len(codes):
        raise ModelError(f"operator {index} refers to operator code {record.opcode_index}, but there are {len(codes)}")
    kind, custom_code, version = codes[record.opcode_index]
    if record.builtin_options is not None and record.builtin_options_2 is not None:
        raise ModelError(f"operator {index} {kind} has two sets of options")
    custom_options: Any = record.custom_options
    if record.large_custom_options_offset > 1:
        start, size = record.large_custom_options_offset, record.large_custom_options_size
        if start + size > len(view):
            raise ModelError(f"operator {index} {kind}: its options end outside the file")
        custom_options = view[start : start + size]
    return Operator(
        kind=kind,
        inputs=record.inputs or (),
        outputs=record.outputs or (),
        options=record.builtin_options or record.builtin_options_2,
        custom_code=custom_code,
        custom_options=None if custom_options is None else bytes(custom_options),
        version=version,
        intermediates=record.intermediates or (),
        mutating_variable_inputs=record.mutating_variable_inputs or (),
        debug_metadata_index=record.debug_metadata_index,
    )


def _signature(record: Record) -> Signature:
    return Signature(
        key=record.signature_key or "",
        inputs=tuple((entry.name or "", entry.tensor_index) for entry in record.inputs or ()),
        outputs=tuple((entry.name or "", entry.tensor_index) for entry in record.outputs or ()),
        subgraph_index=record.subgraph_index,
    )


def _legacy(root: Record) -> tuple[str, ...]:
    found = []
    if any(c.builtin_code == "ADD" and c.deprecated_builtin_code for c in root.operator_codes or ()):
        found.append("operator codes only in the deprecated field")
    if not root.signature_defs:
        found.append("no signature")
    return tuple(found)


def _associated_files(view: memoryview) -> tuple[tuple[str, bytes], ...]:
    """Return the files of a zip appended to the model, as the TFLite metadata tools do; order and names kept."""
    if b"PK\x05\x06" not in bytes(view[-(1 << 16) - 22 :]):
        return ()
    try:
        with zipfile.ZipFile(io.BytesIO(view)) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > LARGEST_ASSOCIATED_BYTES:
                raise ModelError(f"its associated files unpack to more than {LARGEST_ASSOCIATED_BYTES:,} bytes")
            return tuple((entry.filename, archive.read(entry)) for entry in entries)
    except _NOT_AN_ARCHIVE:
        return ()  # weights may contain those four bytes by chance: then there is no archive
