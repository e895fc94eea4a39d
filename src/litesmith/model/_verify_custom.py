# SPDX-License-Identifier: Apache-2.0
"""The custom operators that LiteRT brings kernels for, and the options that its native code reads unseen.

Source: tflite/kernels/{audio_spectrogram,detection_postprocess,hadamard_rotation,mfcc,numeric_verify}.cc
"""

from __future__ import annotations

from typing import Any

from litesmith.errors import ModelError
from litesmith.model._appendix import DISPATCH
from litesmith.model._flexbuffer import decode_flexbuffer
from litesmith.model._graph import Tensor
from litesmith.model._verify_node import Node

_MAP = 9  # of the kinds of FlexBuffers


def custom_fits(node: Node) -> None:
    """Raise a ModelError when LiteRT's kernel of a custom operator would not survive it."""
    code = node.operator.custom_code
    if code == DISPATCH and node.operator.custom_options:
        _options(node, node.operator.custom_options)
    rule = _RULES.get(code)
    if rule is None:
        return
    if not node.operator.custom_options:
        raise node.error("it has no custom_options, which its kernel reads")
    if any(index < 0 for index in node.operator.inputs):
        raise node.error("it has an absent input, but all must be there")
    counts, check = rule
    found = len(node.operator.inputs), len(node.operator.outputs)
    if found != counts:
        raise node.error(f"it has {found[0]} inputs and {found[1]} outputs, but must have {counts[0]} and {counts[1]}")
    try:
        check([t for t in node.inputs if t is not None], node.outputs, _options(node, node.operator.custom_options))
    except ModelError as error:
        raise node.error(str(error)) from None


def has_kernel(code: str) -> bool:
    """Return whether LiteRT brings a kernel for a custom operator."""
    return code in _RULES


def composite_fits(node: Node) -> None:
    """The attributes of a composite are read by delegates."""
    if node.options.composite_attributes:
        _options(node, node.options.composite_attributes)


def _options(node: Node, data: bytes | memoryview) -> dict[str, Any]:
    data = bytes(data)
    if len(data) < 3 or data[-2] >> 2 != _MAP:
        return {}  # what is no map, LiteRT takes for an empty one
    try:
        options = decode_flexbuffer(data)
    except ModelError as error:
        raise node.error(f"its options cannot be read: {error}") from None
    return options if isinstance(options, dict) else {}


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise ModelError(text)


def _number(options: dict[str, Any], name: str, low: int, high: int = 2**31 - 1, default: int = 0) -> int:
    value = options.get(name, default)
    if not isinstance(value, int) or not low <= value <= high:
        raise ModelError(f"its option {name} is {value!r}, but must be a number from {low} to {high}")
    return value


def _detections_fit(inputs: list[Tensor], _outputs: list[Tensor], options: dict[str, Any]) -> None:
    boxes, scores, anchors = inputs
    classes = _number(options, "num_classes", 1)
    _number(options, "detections_per_class", 1, default=100)
    most = _number(options, "max_classes_per_detection", 1, classes)
    _number(options, "max_detections", 1, 10_000_000 // most)
    _require(
        len(boxes.shape) == 3 and boxes.shape[0] == 1 and boxes.shape[2] >= 4, f"boxes {list(boxes.shape)} do not fit"
    )
    count = boxes.shape[1]
    fits = len(scores.shape) == 3 and scores.shape[:2] == (1, count) and scores.shape[2] - classes in (0, 1)
    _require(fits, f"scores {list(scores.shape)} do not fit {count} boxes of {classes} classes")
    _require(count > 0 and anchors.shape == (count, 4), f"anchors {list(anchors.shape)} do not fit {count} boxes")
    for tensor in inputs:
        _require(
            tensor.dtype in ("float32", "uint8"), f"{tensor.name!r} is {tensor.dtype}, but must be float32 or uint8"
        )
    _require(anchors.dtype == boxes.dtype, f"anchors are {anchors.dtype}, but boxes {boxes.dtype}")


def _mfcc_fits(inputs: list[Tensor], outputs: list[Tensor], options: dict[str, Any]) -> None:
    spectrum, rate = inputs
    channels = _number(options, "filterbank_channel_count", 1, 10_000)
    count = _number(options, "dct_coefficient_count", 1, channels)
    low, high = _number(options, "lower_frequency_limit", 1), _number(options, "upper_frequency_limit", 1)
    _require(low < high, f"its frequencies from {low} to {high} are no range")
    _require(
        len(spectrum.shape) == 3 and 0 not in spectrum.shape, f"a spectrum of shape {list(spectrum.shape)} does not fit"
    )
    _require(rate.elements == 1 and rate.dtype == "int32", "the sample rate must be one int32")
    wanted = (*spectrum.shape[:2], count)
    _require(
        outputs[0].shape == wanted, f"its output has shape {list(outputs[0].shape)}, but {list(wanted)} is computed"
    )


def _spectrogram_fits(inputs: list[Tensor], outputs: list[Tensor], options: dict[str, Any]) -> None:
    samples = inputs[0]
    window, stride = _number(options, "window_size", 2, 2**20), _number(options, "stride", 1)
    _require(len(samples.shape) == 2, f"samples of shape {list(samples.shape)} do not fit")
    frames = max((samples.shape[0] - window) // stride + 1, 0) if samples.shape[0] >= window else 0
    width = 1 + (1 << (window - 1).bit_length()) // 2
    wanted = (samples.shape[1], frames, width)
    _require(
        outputs[0].shape == wanted, f"its output has shape {list(outputs[0].shape)}, but {list(wanted)} is computed"
    )


def _rotation_fits(inputs: list[Tensor], outputs: list[Tensor], options: dict[str, Any]) -> None:
    x, y = inputs[0], outputs[0]
    size = _number(options, "hadamard_size", 1)
    _require(size & (size - 1) == 0, f"its hadamard_size is {size}, but must be a power of two")
    _require(len(x.shape) in (2, 3) and x.shape[-1] % size == 0, f"blocks of {size} do not divide {list(x.shape)}")
    _require(x.shape == y.shape and x.dtype == y.dtype == "float32", "input and output must be float32 of one shape")


def _comparison_fits(inputs: list[Tensor], outputs: list[Tensor], _options: dict[str, Any]) -> None:
    quantized, reference = inputs
    _require(quantized.shape == reference.shape == outputs[0].shape, "inputs and output must have one shape")
    _require(quantized.is_quantized or quantized.dtype == "float16", f"{quantized.name!r} must be quantized")
    _require(quantized.elements > 0, "there is nothing to compare")


_RULES = {
    "AudioSpectrogram": ((1, 1), _spectrogram_fits),
    "Mfcc": ((2, 1), _mfcc_fits),
    "NumericVerify": ((2, 1), _comparison_fits),
    "TFLite_Detection_PostProcess": ((3, 4), _detections_fit),
    "aeq.hadamard_rotation": ((1, 1), _rotation_fits),
}
