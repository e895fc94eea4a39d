# SPDX-License-Identifier: Apache-2.0
"""A table of sample files: `path,label` (a class or a number) or `path,text` (words, kept as they are)."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from litesmith.data._files import FilesSource
from litesmith.data._labels import encode
from litesmith.data._rows import Array
from litesmith.errors import DataError


def csv_source(path: Path) -> FilesSource:
    """Read the table; paths are relative to it. A `path` column alone means no labels."""
    header, rows = _table(path)
    columns = {name.strip().lower(): position for position, name in enumerate(header)}
    if "path" not in columns:
        raise DataError(
            f"{path}: the first line must name the columns, path,label or path,text or path; it is {','.join(header)!r}"
        )
    target = next((name for name in ("label", "text") if name in columns), None)
    if target is None and len(columns) > 1:
        raise DataError(
            f"{path}: there is no column 'label' or 'text' among {', '.join(columns)}; rename one, or keep only path"
        )
    paths, values = [], []
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} values for {len(header)} columns: {','.join(row)!r}")
        paths.append(row[columns["path"]].strip())
        if not (path.parent / paths[-1]).is_file():
            raise DataError(
                f"{path}, line {line}: the file {path.parent / paths[-1]} is missing; paths are relative to the table"
            )
        if target is not None:
            values.append(row[columns[target]].strip())
            if not values[-1] and target == "label":
                raise DataError(f"{path}, line {line}: {paths[-1]} has no label; label it or remove the line")
    if not paths:
        raise DataError(f"{path} lists no samples: there is nothing below its first line")
    labels: Array | None = np.array(values) if target == "text" else None
    class_names = None
    if target == "label":
        labels, class_names = encode(values)
    return FilesSource(path.parent, paths, title=str(path), labels=labels, class_names=class_names)


def _table(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
            rows = [(reader.line_num, row) for row in reader if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not a CSV file in UTF-8: {error}") from error
    if not rows:
        raise DataError(f"{path} is empty; it needs a first line path,label and a line for each sample")
    return rows[0][1], rows[1:]
