# SPDX-License-Identifier: Apache-2.0
"""Put the weights of a PyTorch or safetensors checkpoint into a Model, batch normalization folded into the layers."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from litesmith.errors import MissingExtraError, ModelError, UsageError
from litesmith.model import Model
from litesmith.zoo._name_map import NameMap

Array = np.ndarray[Any, Any]
_PARTS = ("weight", "bias", "scale", "offset")
_SHOWN = 8


def read_checkpoint(path: str | Path) -> dict[str, Array]:
    """Return the tensors of a `.safetensors` file, or of a PyTorch checkpoint, by name."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"there is no checkpoint file {path}")
    read = _safetensors if path.suffix == ".safetensors" else _torch
    try:
        return read(path)
    except (MissingExtraError, ModelError):
        raise
    except Exception as error:  # the readers raise all kinds of errors for a damaged file
        raise ModelError(f"{path} cannot be read as a checkpoint: {error}") from error


def _safetensors(path: Path) -> dict[str, Array]:
    try:
        from safetensors.numpy import load_file
    except ImportError:
        raise MissingExtraError("safetensors", "train", f"reading the checkpoint {path.name}") from None
    return dict(load_file(path))


def _torch(path: Path) -> dict[str, Array]:
    try:
        import torch
    except ImportError:
        raise MissingExtraError("torch", "train", f"reading the checkpoint {path.name}") from None
    content = torch.load(path, map_location="cpu", weights_only=True)
    if isinstance(content, dict):
        content = content.get("state_dict", content.get("model", content))
    tensors = {n: t for n, t in content.items() if isinstance(t, torch.Tensor)} if isinstance(content, dict) else {}
    if not tensors:
        raise ModelError(f"{path} holds no tensors by name; save model.state_dict()")
    return {n: t.float().numpy() if t.is_floating_point() else t.numpy() for n, t in tensors.items()}


def load_weights(
    model: Model, checkpoint: Mapping[str, Array], name_map: NameMap, *, skip: Sequence[str] = ()
) -> Model:
    """Return the model with the weights of a checkpoint.

    Args:
        model: A float model built by the zoo.
        checkpoint: Tensors by name.
        name_map: Which names belong to which layer.
        skip: Layers of ours, as patterns such as ``"logits"``, that keep the weights they have.

    Raises:
        ModelError: Tensors are missing, left over, of another shape, or not finite; the message lists them all.
    """
    main = model.main
    kinds = {index: operator.kind for operator in main.operators for index in operator.inputs}
    loader = _Loader(checkpoint, name_map)
    tensors = list(main.tensors)
    for i, tensor in enumerate(tensors):
        layer, _, part = tensor.name.rpartition("/")
        if tensor.buffer is None or tensor.dtype != "float32" or part not in _PARTS:
            continue
        if _matches(layer, skip):
            loader.leave(layer)
            continue
        values = loader.take(layer, part, kinds[i], tensor.shape)
        if values is not None:
            tensors[i] = tensor.with_array(np.ascontiguousarray(values, np.float32))
    loader.finish()
    return model.with_main(replace(main, tensors=tuple(tensors)))


class _Loader:
    """Takes tensors out of a checkpoint and keeps account of all that is wrong."""

    def __init__(self, checkpoint: Mapping[str, Array], name_map: NameMap) -> None:
        self.checkpoint = checkpoint
        self.map = name_map
        self.used: set[str] = set()
        self.problems: dict[str, list[str]] = {}

    def leave(self, layer: str) -> None:
        """Pass over a layer: it uses up its tensors, should they be there."""
        self.used.update(self.map.find(layer).values())

    def take(self, layer: str, part: str, kind: str, shape: tuple[int, ...]) -> Array | None:
        """Return the values of one tensor of ours, None when something is wrong with them."""
        names = self.map.find(layer)
        if not names:
            return self._problem("layers without a line in the name map", layer)
        self.used.update(names.values())
        if "bias" in names and names["bias"] not in self.checkpoint:
            del names["bias"]
        if missing := [name for name in names.values() if name not in self.checkpoint]:
            return self._problem("tensors missing from the checkpoint", *missing)
        found = {key: self.checkpoint[name] for key, name in names.items()}
        try:
            values = _folded(found, part, kind, self.map)
        except (KeyError, ValueError):
            return self._problem("layers whose tensors do not go together", layer)
        if values.shape not in (shape, ()):
            given = f"{names.get('weight', names.get('gamma'))!r} gives {list(values.shape)}"
            return self._problem("tensors of another shape", f"{layer}/{part} is {list(shape)}, {given}")
        if not np.isfinite(values).all():
            return self._problem("tensors with values that are not finite", f"{layer}/{part}")
        return np.broadcast_to(values, shape)

    def finish(self) -> None:
        """Raise one error that lists all that is wrong."""
        unused = [n for n in self.checkpoint if n not in self.used and not _matches(n, self.map.ignore)]
        if unused:
            self._problem("tensors of the checkpoint that no layer uses", *unused)
        if self.problems:
            lists = "; ".join(f"{kind}: {_listed(found)}" for kind, found in self.problems.items())
            raise ModelError(
                f"the checkpoint does not fit the model by {self.map.name}: {lists}. Build with the checkpoint's own "
                f"width and classes, leave layers out with skip, or correct the name map"
            )

    def _problem(self, kind: str, *items: str) -> Array | None:
        """Note what is wrong; there are no values then."""
        known = self.problems.setdefault(kind, [])
        known.extend(item for item in items if item not in known)
        return None


def _folded(found: Mapping[str, Array], part: str, kind: str, name_map: NameMap) -> Array:
    """Return one tensor of a layer ``y = w·x + b`` with the normalization ``γ (y − μ) / √(σ² + ε) + β`` folded in."""
    factor: Array = np.ones(1, np.float32)
    if "gamma" in found:
        factor = found["gamma"] / np.sqrt(found["variance"] + name_map.epsilon)
    if part == "scale":
        return factor
    if part == "weight":
        weight = _litert_layout(found["weight"], kind, name_map.layout)
        channel = -1 if kind == "DEPTHWISE_CONV_2D" else 0
        return np.asarray(np.moveaxis(np.moveaxis(weight, channel, -1) * factor, -1, channel))
    bias = found.get("bias", np.float32(0))
    return np.asarray(bias if "gamma" not in found else found["beta"] + (bias - found["mean"]) * factor)


def _litert_layout(weight: Array, kind: str, layout: str) -> Array:
    """Return a weight in LiteRT's order: OHWI, and 1HWC for depthwise."""
    if weight.ndim == 2 and kind in ("CONV_2D", "FULLY_CONNECTED"):
        rows: Array = weight if layout == "OIHW" else weight.T
        return rows[:, None, None, :] if kind == "CONV_2D" else rows
    if weight.ndim != 4:
        return weight
    if kind == "DEPTHWISE_CONV_2D":
        return weight.transpose(1, 2, 3, 0) if layout == "OIHW" else weight.reshape(1, *weight.shape[:2], -1)
    filters: Array = weight.transpose(0, 2, 3, 1) if layout == "OIHW" else weight.transpose(3, 0, 1, 2)
    return filters if kind == "CONV_2D" else filters.reshape(len(filters), -1)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _listed(items: Sequence[str]) -> str:
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
