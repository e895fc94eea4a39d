# SPDX-License-Identifier: Apache-2.0
"""The rule tables: one TOML a target, each rule with what it says, what to do about it, and where it comes from."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from litesmith.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TARGETS = ("edgetpu", "gpu", "hexagon", "nnapi", "qnn", "mediatek", "xnnpack", "tflite-micro")
CHAINS = ("one", "any", "whole")
"""What an operator that does not map breaks: all behind it, nothing else, or everything."""

_RULE_WORDS = frozenset({"kinds", "test", "says", "remedy", "source"})


@dataclass(frozen=True)
class Rule:
    """One thing that must hold for operators of some kinds; ``test`` names how it is tested."""

    kinds: frozenset[str]
    test: str
    says: str
    remedy: str
    source: str
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def general(self) -> bool:
        """Whether it is for operators of every kind."""
        return "*" in self.kinds


@dataclass(frozen=True)
class RuleTable:
    """What one target takes."""

    name: str
    title: str
    source: str
    chain: str
    supported: frozenset[str]
    custom: frozenset[str]
    composites: frozenset[str]
    remedies: Mapping[str, str]
    rules: tuple[Rule, ...]
    notes: tuple[str, ...]
    deprecated: bool
    parameter_cache_bytes: int | None

    def rules_for(self, kind: str) -> tuple[Rule, ...]:
        """Return the rules of a kind; a rule that names it stands for the general one with the same test."""
        named = {rule.test for rule in self.rules if kind in rule.kinds}
        return tuple(rule for rule in self.rules if kind in rule.kinds or (rule.general and rule.test not in named))


@functools.cache
def rule_table(target: str) -> RuleTable:
    """Return the rules of a target."""
    if target not in TARGETS:
        raise UsageError(f"there is no target {target!r}; there are: {', '.join(TARGETS)}")
    text = (resources.files("litesmith.targets") / "rules" / f"{target}.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    return RuleTable(
        name=target,
        title=table["title"],
        source=table["source"],
        chain=table["chain"],
        supported=frozenset(table["supported"]),
        custom=frozenset(table.get("custom", ())),
        composites=frozenset(table.get("composites", ())),
        remedies=table.get("remedies", {}),
        rules=tuple(_rule(entry, table["source"]) for entry in table["rule"]),
        notes=tuple(table["notes"]),
        deprecated=table.get("deprecated", False),
        parameter_cache_bytes=table.get("parameter_cache_bytes"),
    )


def _rule(entry: Mapping[str, Any], source: str) -> Rule:
    return Rule(
        kinds=frozenset(entry["kinds"]),
        test=entry["test"],
        says=entry["says"],
        remedy=entry["remedy"],
        source=entry.get("source", source),
        parameters={key: value for key, value in entry.items() if key not in _RULE_WORDS},
    )
