# SPDX-License-Identifier: Apache-2.0
"""A folder of sample files: one subfolder a class, or a flat folder without labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from litesmith.data._files import FilesSource, kind_of
from litesmith.errors import DataError


def folder_source(root: Path) -> FilesSource:
    """List a folder: the classes are its subfolders, sorted (as numbers where all names are numbers)."""
    entries = [entry for entry in sorted(root.iterdir()) if _visible(entry)]
    classes = [entry for entry in entries if entry.is_dir()]
    loose = [entry.name for entry in entries if entry.is_file() and kind_of(entry)]
    if loose and classes:
        raise DataError(
            f"{root} has both samples ({loose[0]} …) and subfolders ({classes[0].name} …): put each sample into the "
            "subfolder of its class, or point to a folder that has only samples"
        )
    if loose:
        return FilesSource(root, loose, title=str(root))
    if not classes:
        raise DataError(f"{root} has no samples: {_found(entries)}. Samples are images, .wav or .npy files")
    if all(entry.name.isdecimal() for entry in classes):
        classes.sort(key=lambda entry: int(entry.name))
    return _by_class(root, classes)


def _by_class(root: Path, classes: list[Path]) -> FilesSource:
    paths: list[str] = []
    labels: list[int] = []
    empty: list[Path] = []
    for number, folder in enumerate(classes):
        files = [path.relative_to(root).as_posix() for path in _files_below(folder) if kind_of(path)]
        paths += files
        labels += [number] * len(files)
        if not files:
            empty.append(folder)
    if not paths:
        raise DataError(
            f"{root} has no samples in its {len(classes)} subfolders; samples are images, .wav or .npy files"
        )
    if empty:
        names = ", ".join(repr(folder.name) for folder in empty)
        raise DataError(
            f"{root}: class without samples: {names} ({_found(list(empty[0].iterdir()))}); add samples to it or remove "
            "the folder"
        )
    return FilesSource(
        root, paths, title=str(root), labels=np.array(labels), class_names=tuple(folder.name for folder in classes)
    )


def _files_below(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if not _visible(entry):
            continue
        if entry.is_dir():
            yield from _files_below(entry)
        else:
            yield entry


def _visible(entry: Path) -> bool:
    return not entry.name.startswith(".") and entry.name != "__MACOSX"


def _found(entries: list[Path]) -> str:
    kinds = Counter(entry.suffix or "files without a suffix" for entry in entries if entry.is_file())
    return "it holds " + (", ".join(f"{count} × {kind}" for kind, count in kinds.most_common(4)) or "nothing")
