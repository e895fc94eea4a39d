# SPDX-License-Identifier: Apache-2.0
"""Where samples come from: files, folders, tables, arrays or a function; preprocessed as declared, split by content."""

from __future__ import annotations

from litesmith.data._callable import import_callable
from litesmith.data._dataset import Dataset
from litesmith.data._fit import InputLike, InputSpec
from litesmith.data._preprocess import Preprocess
from litesmith.data._sample import Batch, Sample

__all__ = ["Batch", "Dataset", "InputLike", "InputSpec", "Preprocess", "Sample", "import_callable"]
