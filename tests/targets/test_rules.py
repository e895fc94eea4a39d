# SPDX-License-Identifier: Apache-2.0
"""The rule tables are data that can be wrong: every name in them must exist, and every rule must be able to fail."""

from __future__ import annotations

import sys
from importlib import resources

import pytest

from litesmith.model import BITS, Record, options_table
from litesmith.model._flatbuffer import enum_values, table_fields
from litesmith.targets import TARGETS
from litesmith.targets._rules import CHAINS, rule_table
from litesmith.targets._substitutes import SUBSTITUTIONS
from litesmith.targets._tests import TESTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OPERATORS = set(enum_values("BuiltinOperator"))
KEYS = {
    "title", "source", "chain", "notes", "supported", "custom", "composites", "remedies", "rule", "deprecated",
    "parameter_cache_bytes",
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_every_operator_of_a_table_is_in_the_schema(target: str) -> None:
    table = rule_table(target)

    assert table.supported <= OPERATORS
    assert len(table.supported) > 30
    assert set(table.remedies) <= OPERATORS
    assert {kind for rule in table.rules for kind in rule.kinds if kind != "*"} <= table.supported


@pytest.mark.parametrize("target", TARGETS)
def test_every_rule_says_what_to_do_and_where_it_is_from(target: str) -> None:
    table = rule_table(target)

    assert table.chain in CHAINS
    assert "/" in table.source
    for rule in table.rules:
        assert rule.test in TESTS
        assert rule.says
        assert rule.remedy
        assert "/" in rule.source


@pytest.mark.parametrize("target", TARGETS)
def test_options_and_types_of_rules_exist(target: str) -> None:
    for rule in rule_table(target).rules:
        assert set(rule.parameters.get("types", ())) <= {*BITS, "string", "resource", "variant"}
        for name in (rule.parameters.get("option"), rule.parameters.get("same_as")):
            for kind in rule.kinds if name is not None else ():
                options = options_table(kind)
                assert options is not None
                assert name in {field.name for field in table_fields(options)}, f"{kind} has no option {name}"
                values = rule.parameters.get("among", ())
                assert all(isinstance(value, type(getattr(Record(options), name))) for value in values)


@pytest.mark.parametrize("target", TARGETS)
def test_a_table_has_no_unknown_words(target: str) -> None:
    text = (resources.files("litesmith.targets") / "rules" / f"{target}.toml").read_text(encoding="utf-8")

    assert set(tomllib.loads(text)) <= KEYS


def test_every_test_is_used_by_a_table() -> None:
    assert {rule.test for target in TARGETS for rule in rule_table(target).rules} == set(TESTS)


def test_substitutes_are_operators() -> None:
    for substitution in SUBSTITUTIONS:
        assert {substitution.kind, *substitution.uses} <= OPERATORS


def test_a_remedy_that_names_fix_has_one() -> None:
    replaced = {substitution.kind for substitution in SUBSTITUTIONS} | {"QUANTIZE", "DEQUANTIZE", "SHAPE", "RESHAPE"}

    for target in TARGETS:
        for kind, remedy in rule_table(target).remedies.items():
            assert "--fix" not in remedy or kind in replaced, (target, kind)
