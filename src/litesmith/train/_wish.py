# SPDX-License-Identifier: Apache-2.0
"""What a model is trained for, and the stages that lead there.

Zeros and fewer channels cost much, and what is left recovers best in float, with normalization and large steps. Values
that are shared or rounded cost little and need small steps. So where both are asked for, the first comes first: most of
the epochs go to the recovery, and the rest trains the shared or rounded values with the zeros kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from litesmith.errors import UsageError

if TYPE_CHECKING:
    from litesmith.train._loop import LoopSettings

QAT = ("int8", "int16x8", "mixed")
PRUNING = ("second-order", "gradual")
RECOVERY_RATE = 2e-3
"""The learning rate for layers with normalization behind them."""
REFINING_RATE = 3e-4
_RECOVERY_SHARE = 0.75
_EPOCHS = 5
_EPOCHS_OF_RECOVERY = 16


def default_epochs(*, recovers: bool) -> int:
    """Return how often all samples are seen: zeros and fewer channels have more to make up for."""
    return _EPOCHS_OF_RECOVERY if recovers else _EPOCHS


@dataclass(frozen=True)
class Wish:
    """What is trained for."""

    qat: str | None
    prune: str | None
    pruning: str
    cluster: int | None
    channels: float | None
    rules: tuple[str, ...]
    head: str
    io: str

    @property
    def recovers(self) -> bool:
        """Whether much is taken away that training has to make up for."""
        return self.prune is not None or self.channels is not None

    @property
    def refines(self) -> bool:
        """Whether weights or activations take few values."""
        return self.qat is not None or self.cluster is not None

    def text(self) -> str:
        """Return it as a recipe."""
        from litesmith.train._prune_schedule import PruneTarget

        steps = [] if self.channels is None else [f"channels({self.channels:g})"]
        steps += [] if self.prune is None else [str(PruneTarget.parse(self.prune))]
        steps += [] if self.cluster is None else [f"cluster({self.cluster})"]
        steps += [] if self.qat is None else [" + ".join([self.qat, *self.rules])]
        return " → ".join(steps) or "float"

    def check(self) -> None:
        """Refuse what makes no sense."""
        from litesmith.train._prune_schedule import PruneTarget

        if self.qat is not None and self.qat not in QAT:
            raise UsageError(f"qat cannot be {self.qat!r}; choose one of {', '.join(QAT)}")
        if self.prune is not None:
            PruneTarget.parse(self.prune)
        if self.cluster is not None and not 3 <= self.cluster <= 256:
            raise UsageError(f"{self.cluster} clusters cannot be trained; give 3 to 256")
        if self.pruning not in PRUNING:
            raise UsageError(f"pruning cannot be {self.pruning!r}; choose one of {', '.join(PRUNING)}")
        if self.channels is not None and not 0 < self.channels < 1:
            raise UsageError(f"channels is the share of the work to keep, above 0 and below 1, not {self.channels}")
        if self.qat is None and (self.rules or self.io != "float"):
            raise UsageError("rules and io are for quantized models; give qat as well")


@dataclass(frozen=True)
class Stage:
    """One part of a training: whether it recovers in float, or trains values that are shared or rounded."""

    recovers: bool
    refines: bool
    settings: LoopSettings


def stages(wish: Wish, settings: LoopSettings) -> tuple[Stage, ...]:
    """Return the stages of a training: one, or recovery and refinement where both are needed and there is time."""
    if not (wish.recovers and wish.refines) or (settings.minutes is None and settings.epochs < 2):
        if wish.cluster is not None and wish.prune is not None and wish.pruning == "gradual":
            raise UsageError("zeros that come little by little and then clusters take two epochs or more")
        return (Stage(wish.recovers, wish.refines, settings),)
    last = max(round((1 - _RECOVERY_SHARE) * settings.epochs), 1)
    minutes = settings.minutes or 0.0
    times = (None, None) if not minutes else (_RECOVERY_SHARE * minutes, (1 - _RECOVERY_SHARE) * minutes)
    return (
        Stage(True, False, replace(settings, epochs=settings.epochs - last, minutes=times[0])),
        Stage(False, True, replace(settings, epochs=last, minutes=times[1])),
    )
