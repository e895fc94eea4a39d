# SPDX-License-Identifier: Apache-2.0
"""Name maps: which names of a checkpoint belong to which layer of a model.

A name map is TOML, or a dict of the same form:

    classes = 1000           # what the checkpoint classifies
    padding = "symmetric"    # "same" for weights trained in TensorFlow
    epsilon = 1e-5           # of the batch normalization
    layout = "OIHW"          # of convolution weights; TensorFlow has "HWIO"
    ignore = ["*.num_batches_tracked"]
    [layers]
    "block{n}/expand" = { weights = "features.{n+1}.conv.0.0", norm = "features.{n+1}.conv.0.1" }

``{n}`` stands for any number, on the right also with something added. A layer with ``weights`` reads
``<weights>.weight`` and, where there is one, ``<weights>.bias``; with ``norm`` it folds ``<norm>.weight``, ``.bias``,
``.running_mean`` and ``.running_var`` in. The table ``[suffixes]`` renames these endings. The first line that matches
counts.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from litesmith.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FOLDER = Path(__file__).parent / "name_maps"
_SUFFIXES = {
    "weight": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
    "mean": "running_mean",
    "variance": "running_var",
}
_CHOICES = {"padding": ("same", "symmetric"), "layout": ("OIHW", "HWIO")}
_ENTRIES = ("architectures", "classes", "epsilon", "ignore", "layers", "layout", "padding", "suffixes")


@dataclass(frozen=True)
class NameMap:
    """Which names of a checkpoint belong to which layer, and what else must be known to use it."""

    layers: tuple[tuple[str, Mapping[str, str]], ...]
    name: str = "your name map"
    architectures: tuple[str, ...] = ()
    classes: int | None = None
    padding: str = "same"
    epsilon: float = 1e-5
    layout: str = "OIHW"
    ignore: tuple[str, ...] = ("*.num_batches_tracked",)
    suffixes: Mapping[str, str] = field(default_factory=lambda: _SUFFIXES)

    def find(self, layer: str) -> dict[str, str]:
        """Return the checkpoint's name of each tensor of a layer: weight, bias, gamma, beta, mean, variance.

        Empty when no line matches.
        """
        for pattern, prefixes in self.layers:
            if match := _pattern(pattern).fullmatch(layer):
                numbers = {key: int(value) for key, value in match.groupdict().items()}
                return {
                    part: f"{_substitute(prefixes[kind], numbers)}.{self.suffixes[part]}"
                    for kind, parts in _KINDS.items()
                    if kind in prefixes
                    for part in parts
                }
        return {}


_KINDS = {"weights": ("weight", "bias"), "norm": ("gamma", "beta", "mean", "variance")}


def builtin_name_maps() -> tuple[str, ...]:
    """Return the names of the name maps that come with Litesmith."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def read_name_map(source: str | Path | Mapping[str, Any]) -> NameMap:
    """Return a name map from a dict, a TOML file, or the name of one that comes with Litesmith."""
    if isinstance(source, Mapping):
        return _parse(source, "your name map")
    builtin = _FOLDER / f"{source}.toml"
    path = builtin if builtin.is_file() else Path(source)
    if not path.is_file():
        known = ", ".join(builtin_name_maps())
        raise UsageError(f"there is no name map {str(source)!r}: it is neither a file nor one of {known}")
    name = path.stem if path == builtin else str(path)
    try:
        return _parse(tomllib.loads(path.read_text(encoding="utf-8")), name)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the name map {path} is not TOML: {error}") from error


def suiting_name_map(architecture: str, checkpoint: Iterable[str]) -> NameMap:
    """Return the built-in name map whose names this checkpoint has."""
    names = list(checkpoint)
    maps = [m for m in map(read_name_map, builtin_name_maps()) if architecture in m.architectures]
    suiting = [m for m in maps if m.find("stem")["weight"] in names]
    if len(suiting) == 1:
        return suiting[0]
    known = ", ".join(m.name for m in maps) or "there is none"
    raise UsageError(
        f"no built-in name map of {architecture} ({known}) has the names of this checkpoint "
        f"({', '.join(names[:3])}, …); pass name_map, a TOML file or a dict"
    )


def _parse(document: Mapping[str, Any], name: str) -> NameMap:
    if unknown := sorted(document.keys() - set(_ENTRIES)):
        raise UsageError(f"{name}: unknown entry {unknown[0]!r}; a name map has {', '.join(_ENTRIES)}")
    layers = document.get("layers")
    if not isinstance(layers, Mapping) or not layers:
        raise UsageError(f"{name}: a name map needs a table 'layers'")
    for layer, prefixes in layers.items():
        if not isinstance(prefixes, Mapping) or not prefixes or prefixes.keys() - _KINDS.keys():
            raise UsageError(f"{name}: layer {layer!r} must have 'weights', 'norm' or both, but is {prefixes!r}")
    for key, allowed in _CHOICES.items():
        if document.get(key, allowed[0]) not in allowed:
            raise UsageError(f"{name}: {key} is {document[key]!r}; it must be one of {', '.join(allowed)}")
    options = {key: document[key] for key in ("classes", "padding", "epsilon", "layout") if key in document}
    options |= {key: tuple(document[key]) for key in ("architectures", "ignore") if key in document}
    suffixes = {**_SUFFIXES, **document.get("suffixes", {})}
    return NameMap(tuple(layers.items()), name=name, suffixes=suffixes, **options)


@functools.cache
def _pattern(text: str) -> re.Pattern[str]:
    parts = re.split(r"\{(\w+)\}", text)
    return re.compile("".join(re.escape(p) if i % 2 == 0 else f"(?P<{p}>\\d+)" for i, p in enumerate(parts)))


def _substitute(text: str, numbers: Mapping[str, int]) -> str:
    def number(match: re.Match[str]) -> str:
        if match["name"] not in numbers:
            raise UsageError(f"the name map has {text!r}, but nothing on the left is named {{{match['name']}}}")
        return str(numbers[match["name"]] + int(match["offset"] or 0))

    return re.sub(r"\{(?P<name>[a-z]\w*)(?P<offset>[+-]\d+)?\}", number, text)
