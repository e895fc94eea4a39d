# SPDX-License-Identifier: Apache-2.0
"""Every error Litesmith raises on purpose.

    LitesmithError
    ├── UsageError          an argument that makes no sense, whatever the model or the data
    ├── ModelError          a .tflite that cannot be read, breaks a rule, or cannot be written
    ├── DataError           samples that are missing, unreadable, or do not fit the model
    ├── SessionError        LiteRT would not compile or run the model
    ├── RecipeError         a recipe that cannot be read, or a step that cannot be applied
    ├── OptimizeError       an optimization that cannot be done on this model
    ├── MeasureError        a measurement that could not be taken
    ├── DeviceError         a remote device that cannot be reached or used
    └── MissingExtraError   an optional dependency is not installed

A message says what is wrong, where, the value that was found, and what to do about it.
The command line prints the message alone and exits with 1 (2 for UsageError); a library user catches
``LitesmithError``.
"""

from __future__ import annotations


class LitesmithError(Exception):
    """Base of all errors that Litesmith raises on purpose."""


class UsageError(LitesmithError):
    """An argument that makes no sense, whatever the model or the data."""


class ModelError(LitesmithError):
    """A `.tflite` that cannot be read, breaks a rule of the format, or cannot be written."""


class DataError(LitesmithError):
    """Samples that are missing, unreadable, or do not fit the model."""


class SessionError(LitesmithError):
    """LiteRT would not compile or run the model."""


class RecipeError(LitesmithError):
    """A recipe that cannot be read, or a step that cannot be applied."""


class OptimizeError(LitesmithError):
    """An optimization that cannot be done on this model."""


class MeasureError(LitesmithError):
    """A measurement that could not be taken."""


class DeviceError(LitesmithError):
    """A remote device that cannot be reached or used."""


class MissingExtraError(LitesmithError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package!r}; install it with: pip install 'litesmith[{extra}]'")
        self.package = package
        self.extra = extra
