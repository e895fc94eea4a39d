# SPDX-License-Identifier: Apache-2.0
"""Networks for sound: DS-CNN for keywords, Wav2Letter and DeepSpeech for speech. ``resolution`` counts frames.

DS-CNN: mlcommons/tiny, benchmark/training/keyword_spotting/keras_model.py (after arXiv:1711.07128). Wav2Letter: Arm's
version of arXiv:1609.03193, ARM-software/ML-zoo, models/speech_recognition/wav2letter. DeepSpeech: Mozilla's 0.5/0.6
network after arXiv:1412.5567, exported in chunks of 16 frames, its recurrent layer unrolled into one FULLY_CONNECTED
and the gates for each frame, all sharing one weight.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from litesmith.model import Value
from litesmith.zoo._architecture import Architecture, Size
from litesmith.zoo._net import Net
from litesmith.zoo._spread import Spread

_COEFFICIENTS = {"ds_cnn": 10, "wav2letter": 39, "deepspeech": 26}
_WAV2LETTER = ((250, 48, 2), *[(250, 7, 1)] * 7, (2000, 32, 1), (2000, 1, 1))
_CONTEXT = 19  # frames that DeepSpeech sees at once: 9 before, 9 after
_CLIP = 20.0


def _ds_cnn(net: Net, size: Size) -> Mapping[str, Value]:
    channels = size.rounded(64)
    x = net.input("mfcc", (1, size.resolution, _COEFFICIENTS["ds_cnn"], 1))
    x = net.conv(x, channels, (10, 4), 2, activation="RELU", name="stem")
    for n in range(4):
        x = net.depthwise(x, 3, activation="RELU", name=f"block{n}/depthwise")
        x = net.conv(x, channels, activation="RELU", name=f"block{n}/pointwise")
    return {"logits": net.dense(net.global_pool(x), size.classes, name="logits")}


def _wav2letter(net: Net, size: Size) -> Mapping[str, Value]:
    features = _COEFFICIENTS["wav2letter"]
    x = net.input("mfcc", (1, size.resolution, features))
    x = net.reshape(x, (1, 1, size.resolution, features), name="sequence")
    for n, (channels, kernel, stride) in enumerate(_WAV2LETTER):
        filters = size.rounded(channels)
        x = net.conv(x, filters, (1, kernel), (1, stride), activation="LEAKY_RELU_0.2", name=f"conv{n}")
    return {"logits": net.conv(x, size.classes, name="logits")}


def _deepspeech(net: Net, size: Size) -> Mapping[str, Value]:
    units, steps, features = size.rounded(2048), size.resolution, _CONTEXT * _COEFFICIENTS["deepspeech"]
    x = net.input("input_node", (1, steps, _CONTEXT, _COEFFICIENTS["deepspeech"]))
    cell = net.input("previous_state_c", (1, units))
    hidden = net.input("previous_state_h", (1, units))
    shape = np.array((steps, features), np.int32)
    x = net.op("RESHAPE", x, shape, name="frames", new_shape=(steps, features), spread=Spread.of(0, 1, features))
    for n in range(3):
        x = _clipped(net, x, units, name=f"dense{n}")
    x, cell, hidden = _unrolled_lstm(net, x, cell, hidden)
    x = _clipped(net, x, units, name="dense4")
    logits = net.dense(x, size.classes, name="logits")
    return {"logits": logits, "new_state_c": cell, "new_state_h": hidden}


def _clipped(net: Net, x: Value, units: int, *, name: str) -> Value:
    y = net.dense(x, units, activation="RELU", name=name)
    return net.op("MINIMUM", y, np.array(_CLIP, np.float32), name=f"{name}/clipped", spread=net.spread(y))


def _unrolled_lstm(net: Net, x: Value, cell: Value, hidden: Value) -> tuple[Value, Value, Value]:
    """Add one LSTM step for each row of ``x``; the weight on input and state is one matrix, shared by all steps."""
    units = hidden.shape[-1]
    state = Spread.of(0.0, 0.2, units)  # what the gates let the state settle at
    joined, gates = Spread.joined([net.spread(x), state]), Spread.of(0.0, 1.0, 4 * units)
    weight, bias = net.dense_weights(4 * units, joined, gates)
    weight_value = net.builder.constant(weight, "lstm/weight")
    bias_value = net.builder.constant(bias, "lstm/bias")
    gate, unit = Spread.of(0.5, 0.05, units), Spread.of(0.0, 1.0, units)
    outputs = []
    for t in range(x.shape[0]):
        step = f"lstm/step{t}"
        frame = _row(net, x, t, name=f"{step}/frame")
        both = net.concat([frame, hidden], name=f"{step}/joined")
        y = net.op("FULLY_CONNECTED", both, weight_value, bias_value, name=f"{step}/gates", spread=gates)
        i, c, f, o = net.builder.op("SPLIT", np.array(1, np.int32), y, num_splits=4, name=f"{step}/split")
        i, f, o = (net.op("LOGISTIC", v, name=f"{step}/{n}", spread=gate) for v, n in ((i, "i"), (f, "f"), (o, "o")))
        c = net.op("TANH", c, name=f"{step}/c", spread=unit.through("TANH"))
        kept = net.op("MUL", f, cell, name=f"{step}/kept", spread=state)
        new = net.op("MUL", i, c, name=f"{step}/new", spread=state)
        cell = net.op("ADD", kept, new, name=f"{step}/cell", spread=state)
        shown = net.op("TANH", cell, name=f"{step}/tanh", spread=state)
        hidden = net.op("MUL", o, shown, name=f"{step}/hidden", spread=state.scaled(0.3))
        outputs.append(hidden)
    rows = net.op("CONCATENATION", *outputs, axis=0, name="lstm", spread=net.spread(hidden))
    return rows, cell, _row(net, rows, len(outputs) - 1, name="lstm/hidden")


def _row(net: Net, x: Value, index: int, *, name: str) -> Value:
    begin, extent = np.array((index, 0), np.int32), np.array((1, x.shape[-1]), np.int32)
    return net.op("SLICE", x, begin, extent, name=name, spread=net.spread(x))


ARCHITECTURES = (
    Architecture("ds_cnn", _ds_cnn, 49, 12, smallest=2, unit="frames"),
    Architecture("wav2letter", _wav2letter, 296, 29, smallest=2, unit="frames"),
    Architecture("deepspeech", _deepspeech, 16, 29, smallest=1, largest=256, unit="frames"),
)
