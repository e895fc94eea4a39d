# SPDX-License-Identifier: Apache-2.0
"""The facts of the machine."""

from __future__ import annotations

import os
from dataclasses import replace

from litesmith.measure import doctor, machine_facts


def test_the_facts_are_of_this_machine() -> None:
    facts = machine_facts()

    assert facts.cores == len(os.sched_getaffinity(0))
    assert facts.memory_bytes > 1_000_000
    assert facts.kernel.startswith(os.uname().sysname)
    assert len(facts.load) == 3
    assert {"litesmith", "ai-edge-litert", "numpy"} <= set(facts.versions)


def test_the_load_is_no_part_of_the_identity_but_the_cpu_is() -> None:
    facts = machine_facts()

    assert replace(facts, load=(9.0, 9.0, 9.0)).identity == facts.identity
    assert replace(facts, cpu="another").identity != facts.identity


def test_doctor_has_a_remedy_for_what_is_missing() -> None:
    result = doctor()

    assert result.healthy
    for finding in result.findings:
        if not finding.present and finding.group in ("extras", "devices"):
            assert finding.remedy
