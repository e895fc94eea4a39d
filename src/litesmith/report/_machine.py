# SPDX-License-Identifier: Apache-2.0
"""The machine behind a result, as facts of its page."""

from __future__ import annotations

from litesmith.measure import MachineFacts


def machine_rows(machine: MachineFacts | None, remark: str = "") -> tuple[tuple[str, str], ...]:
    """Return the machine, with a remark behind it, and the versions; nothing for a result that does not have them."""
    if machine is None:
        return ()
    return (
        ("machine", f"{machine.cpu}, {machine.cores} cores, {machine.kernel}{remark}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in machine.versions.items())),
    )
