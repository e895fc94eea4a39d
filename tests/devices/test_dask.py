# SPDX-License-Identifier: Apache-2.0
"""Tags of devices as resources of Dask workers: a job lands on the worker that owns the device."""

from __future__ import annotations

import pytest

from litesmith.devices import Device

distributed = pytest.importorskip("distributed", reason="the extra 'cluster' is not installed")


def _who() -> str:
    return str(distributed.get_worker().name)


@pytest.mark.filterwarnings("ignore")  # of Dask's own, about ports and loops
def test_a_job_lands_on_the_worker_that_owns_the_device() -> None:
    devices = [Device("pi", "ssh://raspberry", tags=("arm",)), Device("board", "ssh://board", tags=("arm", "quiet"))]
    workers = {
        device.name: {
            "cls": distributed.Worker,
            "options": {"resources": device.dask_resources(), "nthreads": 1, "dashboard": False},
        }
        for device in devices
    }
    scheduler = {"cls": distributed.Scheduler, "options": {"dashboard": False, "host": "127.0.0.1"}}

    with (
        distributed.SpecCluster(workers=workers, scheduler=scheduler) as cluster,
        distributed.Client(cluster) as client,
    ):
        there = [
            client.submit(_who, resources={tag: 1}, pure=False) for tag in ("device:pi", "device:quiet", "device:board")
        ]
        anywhere = client.submit(_who, resources={"device:arm": 1}, pure=False)

        assert client.gather(there, direct=False) == ["pi", "board", "board"]
        assert anywhere.result(timeout=30) in ("pi", "board")
