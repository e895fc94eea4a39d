# SPDX-License-Identifier: Apache-2.0
"""TFLite metadata as the Task library reads it: what goes in, how it is normalized, and the labels of what comes out.

The metadata is a FlatBuffer of its own (root table ModelMetadata, identifier M001; the schema is metadata_schema.fbs of
the TFLite Support library) in the model's metadata entry TFLITE_METADATA. The labels are a file in a ZIP archive behind
the model, and the output refers to it as TENSOR_AXIS_LABELS.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from litesmith.data import Preprocess
from litesmith.model import Buffer, Metadata, Model
from litesmith.model._input_metadata import ENTRY, IDENTIFIER, IMAGE, NORMALIZATION
from litesmith.train._audio_features import takes_coefficients

LABELS_FILE = "labels.txt"
_PARSER_VERSION, _PARSER_VERSION_OF_SOUND = "1.0.0", "1.3.0"
_FEATURE, _AUDIO = 1, 4
_RGB, _GRAY = 1, 2
_AXIS_LABELS = 2
_BRIGHTEST = 255.0


@dataclass(frozen=True)
class InputMeaning:
    """What the input of a model is.

    Attributes:
        kind: "image", "audio" or "features".
        channels: of the image or the sound.
        mean, std: with which raw values (0 to 255 for images) are normalized.
        sample_rate: of the sound.
        description: what a reader should know besides.
    """

    kind: str
    channels: int = 1
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    sample_rate: int = 0
    description: str = ""


def meaning_of(preprocess: Preprocess, shape: Sequence[int]) -> InputMeaning:
    """Return what an input is, from its shape and what is done to samples before they reach it."""
    if preprocess.sample_rate:  # before the shape, as coefficients of a sound have that of a gray image
        if not takes_coefficients(shape):
            return InputMeaning("audio", 1, sample_rate=preprocess.sample_rate)
        description = (
            f"Mel-frequency cepstral coefficients of {preprocess.length or preprocess.sample_rate:,} samples of sound at "
            f"{preprocess.sample_rate:,} Hz: {shape[1]} frames with {shape[2]} coefficients each."
        )
        return InputMeaning("features", description=description)
    if len(shape) == 4 and shape[-1] in (1, 3):
        scale = preprocess.scale or (1.0,)
        offset = preprocess.offset or (0.0,)
        mean, std = preprocess.mean or (0.0,), preprocess.std or (1.0,)
        width = max(map(len, (scale, offset, mean, std)))
        full = [values * width if len(values) == 1 else values for values in (scale, offset, mean, std)]
        rows = list(zip(*full, strict=True))
        # (x · scale + offset − mean) / std, written as (x − mean') / std'
        return InputMeaning(
            "image", shape[-1], tuple((m - o) / s for s, o, m, _ in rows), tuple(d / s for s, _, _, d in rows)
        )
    return InputMeaning("features")


def with_metadata(
    model: Model, labels: Sequence[str], meaning: InputMeaning, *, name: str, description: str = ""
) -> Model:
    """Return the model with its labels and the meaning of its input inside."""
    builder: Any = importlib.import_module("flatbuffers").Builder(1024)  # untyped; LiteRT brings it
    graph = model.main
    inputs = _tensor(
        builder,
        graph.tensors[graph.inputs[0]].name,
        _content(builder, meaning),
        units=_units(builder, meaning),
        stats=_stats(builder, meaning),
        description=meaning.description,
    )
    file = _associated_file(builder)
    outputs = _tensor(
        builder,
        graph.tensors[graph.outputs[0]].name,
        _table(builder, {0: ("u8", _FEATURE), 1: ("at", _table(builder, {}))}),
        files=[file],
    )
    subgraph = _table(
        builder,
        {2: ("at", _vector(builder, [inputs])), 3: ("at", _vector(builder, [outputs]))},
    )
    parser = _PARSER_VERSION_OF_SOUND if meaning.kind == "audio" else _PARSER_VERSION
    texts = {0: name, 1: description, 2: "v1", 7: parser}
    fields: dict[int, tuple[str, int]] = {
        slot: ("at", builder.CreateString(text)) for slot, text in texts.items() if text
    }
    fields[3] = ("at", _vector(builder, [subgraph]))
    root = _table(builder, fields)
    builder.Finish(root, file_identifier=IDENTIFIER)
    entry = Metadata(ENTRY, Buffer(bytes(builder.Output())))
    kept = tuple(m for m in model.metadata if m.name != ENTRY)
    others = tuple(pair for pair in model.associated_files if pair[0] != LABELS_FILE)
    text = "".join(f"{label}\n" for label in labels).encode()
    return replace(model, metadata=(*kept, entry), associated_files=(*others, (LABELS_FILE, text)))


def labels_of(model: Model) -> tuple[str, ...] | None:
    """Return the labels that a model carries, None where it has none."""
    for name, data in model.associated_files:
        if name.endswith(".txt"):
            return tuple(line for line in data.decode("utf-8", "replace").splitlines() if line)
    return None


def _table(builder: Any, fields: dict[int, tuple[str, int]]) -> int:
    """Write a table; fields by slot, as ("at", offset) or (scalar type, value)."""
    builder.StartObject(max(fields, default=-1) + 1)
    for slot, (kind, value) in sorted(fields.items()):
        if kind == "at":
            builder.PrependUOffsetTRelativeSlot(slot, value, 0)
        elif kind == "u8":
            builder.PrependUint8Slot(slot, value, 0)
        else:
            builder.PrependUint32Slot(slot, value, 0)
    return int(builder.EndObject())


def _vector(builder: Any, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    return int(builder.EndVector())


def _floats(builder: Any, values: Sequence[float]) -> int:
    builder.StartVector(4, len(values), 4)
    for value in reversed(values):
        builder.PrependFloat32(value)
    return int(builder.EndVector())


def _content(builder: Any, meaning: InputMeaning) -> int:
    if meaning.kind == "image":
        color = _RGB if meaning.channels == 3 else _GRAY
        return _table(builder, {0: ("u8", IMAGE), 1: ("at", _table(builder, {0: ("u8", color)}))})
    if meaning.kind == "audio":
        sound = _table(builder, {0: ("u32", meaning.sample_rate), 1: ("u32", meaning.channels)})
        return _table(builder, {0: ("u8", _AUDIO), 1: ("at", sound)})
    return _table(builder, {0: ("u8", _FEATURE), 1: ("at", _table(builder, {}))})


def _units(builder: Any, meaning: InputMeaning) -> int:
    """Return the vector of process units: the normalization of an image; 0 where there is none."""
    if not meaning.mean:
        return 0
    mean, std = _floats(builder, meaning.mean), _floats(builder, meaning.std)
    options = _table(builder, {0: ("at", mean), 1: ("at", std)})
    return _vector(builder, [_table(builder, {0: ("u8", NORMALIZATION), 1: ("at", options)})])


def _stats(builder: Any, meaning: InputMeaning) -> int:
    """Return the largest and the least value that an image can have when it is normalized; 0 for what is none."""
    if not meaning.mean:
        return 0
    white, black = (
        _floats(builder, [(pixel - mean) / std for mean, std in zip(meaning.mean, meaning.std, strict=True)])
        for pixel in (_BRIGHTEST, 0.0)
    )
    return _table(builder, {0: ("at", white), 1: ("at", black)})


def _associated_file(builder: Any) -> int:
    name, text = builder.CreateString(LABELS_FILE), builder.CreateString("The classes, one a line.")
    return _table(builder, {0: ("at", name), 1: ("at", text), 2: ("u8", _AXIS_LABELS)})


def _tensor(
    builder: Any,
    name: str,
    content: int,
    *,
    units: int = 0,
    stats: int = 0,
    files: Sequence[int] = (),
    description: str = "",
) -> int:
    told = int(builder.CreateString(description)) if description else 0
    listed = _vector(builder, files) if files else 0
    places = {0: int(builder.CreateString(name)), 1: told, 3: content, 4: units, 5: stats, 6: listed}
    return _table(builder, {slot: ("at", place) for slot, place in places.items() if place})
