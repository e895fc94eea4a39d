# SPDX-License-Identifier: Apache-2.0
"""The architectures of the field, built straight into Models, and the catalogue of what they reach."""

from litesmith.zoo._build import build, names
from litesmith.zoo._catalogue import Entry, Figure, catalogue
from litesmith.zoo._name_map import NameMap, builtin_name_maps, read_name_map
from litesmith.zoo._weights import load_weights, read_checkpoint

__all__ = [
    "Entry",
    "Figure",
    "NameMap",
    "build",
    "builtin_name_maps",
    "catalogue",
    "load_weights",
    "names",
    "read_checkpoint",
    "read_name_map",
]
