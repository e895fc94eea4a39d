# SPDX-License-Identifier: Apache-2.0
"""Build an architecture of the zoo into a Model."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from litesmith.errors import UsageError
from litesmith.model import Model
from litesmith.zoo import _efficientnet, _inception, _mobilebert, _mobilenet, _resnet, _speech, _yolo
from litesmith.zoo._architecture import Architecture
from litesmith.zoo._name_map import read_name_map, suiting_name_map
from litesmith.zoo._net import Net
from litesmith.zoo._weights import load_weights, read_checkpoint

_FAMILIES = (_mobilenet, _efficientnet, _resnet, _inception, _yolo, _speech, _mobilebert)
_ARCHITECTURES: dict[str, Architecture] = {a.name: a for family in _FAMILIES for a in family.ARCHITECTURES}
_PADDINGS = ("same", "symmetric")


def names() -> tuple[str, ...]:
    """Return the names of all architectures, in alphabetical order.

    Example:
        >>> "mobilenet_v2" in names()
        True
    """
    return tuple(sorted(_ARCHITECTURES))


def build(
    name: str,
    *,
    width: float = 1.0,
    resolution: int | None = None,
    classes: int | None = None,
    seed: int = 0,
    padding: str | None = None,
    weights: str | Path | None = None,
    name_map: str | Path | Mapping[str, Any] | None = None,
    skip: Sequence[str] = (),
) -> Model:
    """Build an architecture into a float Model.

    The weights are random, equal for equal seeds, and such that activations neither vanish nor explode; or they come
    from a checkpoint. Batch normalization is folded. Classifiers return logits.

    Args:
        name: An architecture; ``names()`` lists them.
        width: Multiplies the number of channels.
        resolution: Pixels of a side, frames of sound or tokens of text; None is the published one.
        classes: What the last layer tells apart; None is the published number.
        seed: Of the random weights.
        padding: How convolutions with a stride pad: "same", as in TensorFlow, or "symmetric", as in PyTorch. None is
            what the name map of the checkpoint says, else "same".
        weights: A `.safetensors` file or a PyTorch checkpoint to take the weights from.
        name_map: Which names of the checkpoint belong to which layer: a TOML file, a dict, or the name of a built-in
            map. None takes the built-in map that suits.
        skip: Layers that keep random weights, as patterns: ``["logits"]`` to classify something else.

    Example:
        >>> model = build("mobilenet_v2", width=0.35, resolution=96, classes=10)
        >>> model.main.tensors[model.main.outputs[0]].shape
        (1, 10)
    """
    architecture = _find(name)
    loaded = read_checkpoint(weights) if weights is not None else None
    mapped = None
    if loaded is not None:
        mapped = suiting_name_map(name, loaded) if name_map is None else read_name_map(name_map)
        classes = mapped.classes if classes is None else classes
        padding = mapped.padding if padding is None else padding
    elif name_map is not None or skip:
        raise UsageError("name_map and skip say how to use a checkpoint; pass it as weights")
    padding = padding or "same"
    if padding not in _PADDINGS:
        raise UsageError(f"padding is {padding!r}; it must be one of {', '.join(_PADDINGS)}")

    size = architecture.size(width, resolution, classes)
    net = Net(name, seed=seed, symmetric_padding=padding == "symmetric")
    outputs = architecture.layers(net, size)
    origin = f"random weights, seed {seed}" if weights is None else f"weights of {Path(weights).name}"
    description = f"{name}, width {width:g}, resolution {size.resolution}; {origin}"
    model = net.builder.build(outputs, description=description)
    return model if loaded is None or mapped is None else load_weights(model, loaded, mapped, skip=skip)


def _find(name: str) -> Architecture:
    architecture = _ARCHITECTURES.get(name)
    if architecture is not None:
        return architecture
    plain = name.lower().replace("-", "_").replace(" ", "_")
    close = difflib.get_close_matches(plain, _ARCHITECTURES, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names())}"
    raise UsageError(f"the zoo has no architecture {name!r}; {hint}")
