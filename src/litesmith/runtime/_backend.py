# SPDX-License-Identifier: Apache-2.0
"""What a session needs of whatever runs its model: two implementations, `_compiled` and `_interpreter`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from litesmith.errors import SessionError
from litesmith.runtime._arrays import Array
from litesmith.runtime._profile import ProfileEvent

BackendName = Literal["compiled", "interpreter"]


class NeedsInterpreter(Exception):
    """LiteRT's compiled-model API cannot run this model correctly, but the Interpreter can be tried."""


class Backend(Protocol):
    """A loaded model with its input and output arrays. Not thread-safe: the session holds a lock."""

    name: BackendName
    signature: str
    signatures: tuple[str, ...]
    inputs: dict[str, Array]
    outputs: dict[str, Array]
    load_ms: float
    compile_ms: float
    fully_accelerated: bool | None
    log: tuple[str, ...]

    def run(self) -> None:
        """Run once from `inputs` to `outputs`."""

    def run_each(self, samples: Mapping[str, Array], count: int) -> dict[str, Array]:
        """Run samples that lie one behind the other, each alone, and return the outputs likewise."""

    def resize(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Give inputs new shapes, and with them new arrays."""

    def reset(self) -> None:
        """Set variable tensors back to zero."""

    def start_profile(self) -> None:
        """Forget all events and record from here on."""

    def stop_profile(self) -> list[ProfileEvent]:
        """Stop recording and return the events since the start."""

    def close(self) -> None:
        """Release everything; the arrays stay valid."""


def unique_names(names: list[str], kind: str) -> list[str]:
    """Return names by which tensors can be told apart: a missing or repeated one becomes `input_2`, by position.

    Example:
        >>> unique_names(["x", "", "x"], "input")
        ['x', 'input_1', 'input_2']
    """
    taken: set[str] = set()
    result = []
    for position, name in enumerate(names):
        unique = name if name and name not in taken else f"{kind}_{position}"
        while unique in taken:
            unique += "_"
        taken.add(unique)
        result.append(unique)
    return result


def choose_signature(asked: str | None, present: tuple[str, ...]) -> str:
    """Return the signature to use: the one asked for, else the first; "" for a model without signatures."""
    if asked is None:
        return present[0] if present else ""
    if asked not in present:
        names = ", ".join(map(repr, present)) or "none"
        raise SessionError(f"the model has no signature {asked!r}; it has: {names}")
    return asked
