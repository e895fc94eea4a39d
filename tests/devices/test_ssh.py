# SPDX-License-Identifier: Apache-2.0
"""Measuring over a real ssh connection: results, waiting, and every way it may go wrong."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.devices.conftest import (
    Link,
    Server,
    assert_nothing_is_left,
    free_port,
    make_key,
    wait_until,
)

import litesmith
from litesmith.data import Dataset
from litesmith.devices import Device, check, clean, run, run_all
from litesmith.devices._remote import _files, _opening
from litesmith.errors import DeviceError, ModelError, SessionError, UsageError
from litesmith.measure import Accelerators, Bench, Profile
from litesmith.model import Builder, Model
from litesmith.runtime import forget_custom_op, load_custom_op

LONG = {"seconds": 60.0, "memory": False}
SHORT = {"runs": 5, "memory": False}


def in_background(*arguments: Any, **options: Any) -> Future[Any]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(run, *arguments, **options)
    pool.shutdown(wait=False)
    return future


def job_process(device: Device) -> psutil.Process:
    """The process that runs the job, once it runs."""
    found: list[int] = []

    def started() -> bool:
        for path in (Path(device.folder) / "jobs").glob("*/news"):
            news = [json.loads(line) for line in path.read_text().splitlines()]
            found.extend(entry["pid"] for entry in news if entry["event"] == "started")
        return bool(found)

    wait_until(started, "the job did not start")
    return psutil.Process(found[0])


def test_a_result_comes_back_with_the_facts_of_the_device(board: Device, tiny: Path) -> None:
    said: list[str] = []

    result = run("bench", tiny, device=board, say=said.append, runs=7, threads=[1, 2])

    assert isinstance(result, Bench)
    assert [len(latency.samples_ms) for latency in result.latencies] == [7, 7]
    assert [latency.configuration.threads for latency in result.latencies] == [1, 2]
    assert result.latencies[0].configuration.model == str(tiny)
    assert result.latencies[0].memory is not None
    assert result.machine.cores >= 1
    assert result.machine.versions["ai-edge-litert"]
    assert said == []
    assert_nothing_is_left(board)


def test_other_verbs_and_models_in_memory(board: Device, tiny: Path) -> None:
    profile = run("profile", Model.load(tiny), device=board, runs=5)
    tried = run("accelerators", tiny, device=board, only=["builtin"], runs=5, seconds=0.05)

    assert isinstance(profile, Profile)
    assert [operator.kind for operator in profile.operators] == ["CONV_2D", "MEAN", "FULLY_CONNECTED"]
    assert isinstance(tried, Accelerators)
    assert_nothing_is_left(board)


def test_the_package_is_sent_once_and_clean_removes_it(board: Device, tiny: Path) -> None:
    run("bench", tiny, device=board, **SHORT)
    packages = list((Path(board.folder) / "packages").iterdir())
    before = packages[0].stat().st_ino

    run("bench", tiny, device=board, **SHORT)

    assert [p.stat().st_ino for p in (Path(board.folder) / "packages").iterdir()] == [before]
    (Path(board.folder) / "theirs").write_text("not ours")
    clean(board)
    assert [p.name for p in Path(board.folder).iterdir()] == ["theirs"]


def test_facts_without_writing_anything(board: Device) -> None:
    facts = check(board)

    assert facts.python == sys.version.split()[0]
    assert facts.free_bytes > 0
    assert not Path(board.folder).exists()


def test_samples_travel_with_the_model(board: Device, tiny: Path) -> None:
    data = Dataset.from_arrays({"image": np.random.default_rng(0).random((4, 16, 16, 3), np.float32)})

    result = run("bench", tiny, device=board, data=data, **SHORT)

    assert isinstance(result, Bench)
    assert result.inputs == "given"


def test_labels_travel_with_the_samples(board: Device) -> None:
    model, data = litesmith.samples.model(), litesmith.samples.dataset()

    result = run(
        "accelerators", model, device=board, data=data, samples=40, metric="top2", only=[], runs=3, seconds=0.05
    )

    assert isinstance(result, Accelerators)
    agreement = result.run("xnnpack").agreement
    assert agreement is not None
    assert agreement.samples == 40
    assert agreement.score is not None
    assert agreement.score.value == pytest.approx(litesmith.evaluate(model, data.take(40, seed=0), metric="top2").value)


@pytest.mark.parametrize("name", ["y", "x", "labels"])
def test_inputs_of_any_name_travel(name: str) -> None:
    b = Builder()
    scores = b.fully_connected(b.input(name, (1, 3)), 4, name="head")
    data = Dataset.from_arrays({name: np.eye(3, dtype=np.float32)}, ["a", "b", "c"])

    with _files([b.build({"scores": scores})], data) as files:
        opened = Dataset.open(files[-1][1], **_opening(data, files[0][1]))

        assert opened.inputs == (name,)
        assert np.array_equal(opened[2].inputs[name].ravel(), data[2].inputs[name])
        assert list(opened.labels) == list(data.labels)  # type: ignore[arg-type]
        assert opened.class_names == data.class_names


def test_kernels_of_custom_operators_travel_with_the_model(board: Device, tmp_path: Path) -> None:
    b = Builder()
    model = b.build({"y": b.op("CUSTOM", b.input("x", (3,)), custom_code="Travels", outputs=[((3,), "float32")])})
    file = tmp_path / "kernels.py"
    file.write_text("import litesmith\n@litesmith.custom_op('Travels')\ndef f(x): return x + 1\n")
    load_custom_op(str(file))
    try:
        result = run("profile", model, device=board, runs=3)
        file.write_text(file.read_text().replace("x + 1", "nonsense"))
        with pytest.raises(SessionError, match=f'File "{file}", line 3, in f'):
            run("profile", model, device=board, runs=3)
        litesmith.custom_op("Travels", lambda x: x)
        with pytest.raises(UsageError, match="in no file of its own"):
            run("profile", model, device=board, runs=3)
    finally:
        forget_custom_op("Travels")

    assert isinstance(result, Profile)
    assert [operator.kind for operator in result.operators] == ["Travels"]


def test_users_of_one_device_take_turns(board: Device, tiny: Path) -> None:
    said: list[str] = []
    first = in_background("bench", tiny, device=board, seconds=1.0, memory=False)
    job_process(board)

    second = run("bench", tiny, device=board, say=said.append, **SHORT)

    assert first.result(20).complete
    assert isinstance(second, Bench)
    assert any("busy" in text and "waiting" in text for text in said)
    assert_nothing_is_left(board)


def test_several_devices_at_once_and_one_of_them_gone(board: Device, tiny: Path, tmp_path: Path) -> None:
    other = replace(board, name="other", folder=str(tmp_path / "other"), lock=str(tmp_path / "other.lock"))
    gone = replace(board, name="gone", url=f"ssh://127.0.0.1:{free_port()}")

    results = run_all("bench", tiny, devices=[board, gone, other], **SHORT)

    assert [r.device for r in results.devices] == ["board", "gone", "other"]
    assert [r.result is not None for r in results.devices] == [True, False, True]
    assert "cannot be reached" in results.devices[1].error


def test_a_jump_host_of_the_configuration(board: Device, server: Server, tiny: Path) -> None:
    config = server.config()
    hop = config.read_text().replace("Host board", "Host hop").replace("HostKeyAlias board", "HostKeyAlias hop")
    hosts = config.with_suffix("")
    hosts.write_text(hosts.read_text() + f"hop {(server.folder / 'host.pub').read_text()}")
    config.write_text(f"{config.read_text()}  ProxyJump hop\n{hop}")

    assert isinstance(run("bench", tiny, device=replace(board, ssh_config=str(config)), **SHORT), Bench)


def test_a_key_that_only_an_agent_has(board: Device, server: Server, tiny: Path, tmp_path: Path) -> None:
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        wait_until(socket.exists, "no agent")
        subprocess.run(["ssh-add", "-q", server.folder / "key"], env={"SSH_AUTH_SOCK": str(socket)}, check=True)
        config = server.config(key="nothing")
        text = config.read_text().replace("IdentitiesOnly yes", "IdentitiesOnly no")
        config.write_text(text.replace("IdentityAgent none", f"IdentityAgent {socket}"))

        assert check(replace(board, ssh_config=str(config))).cores > 0
    finally:
        agent.terminate()
        agent.wait()


def test_a_slow_link(linked: Device, link: Link, tiny: Path) -> None:
    link.bytes_per_s = 400_000

    result = run("bench", tiny, device=linked, **SHORT)

    assert isinstance(result, Bench)
    assert_nothing_is_left(linked)


def test_a_job_outlives_a_connection_that_breaks(linked: Device, link: Link, tiny: Path) -> None:
    said: list[str] = []
    future = in_background("bench", tiny, device=replace(linked, grace_s=4), say=said.append, seconds=2.0, memory=False)
    job = job_process(linked)
    pid = job.pid

    link.cut()
    wait_until(lambda: link.connections == 2, "it did not connect again")

    assert job.is_running()
    assert pid == job_process(linked).pid
    assert future.result(30).complete
    assert any("connecting again" in text for text in said)
    assert_nothing_is_left(linked)


def test_a_connection_that_breaks_while_files_are_sent(linked: Device, link: Link, tiny: Path) -> None:
    link.bytes_per_s = 300_000
    future = in_background("bench", tiny, device=linked, **SHORT)
    wait_until(lambda: list((Path(linked.folder) / "jobs").glob("*/package.zip")), "nothing was sent")

    link.bytes_per_s = None
    link.cut()

    assert isinstance(future.result(30), Bench)
    assert_nothing_is_left(linked)


def test_a_connection_that_breaks_again_and_again(
    linked: Device, link: Link, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("litesmith.devices._errand.TRIES", 2)
    link.bytes_per_s = 100_000
    future = in_background("bench", tiny, device=linked, **SHORT)
    for count in (1, 2, 3):
        wait_until(lambda count=count: link.connections == count, "it did not connect")  # type: ignore[misc]
        wait_until(lambda: list((Path(linked.folder) / "jobs").glob("*/package.zip")), "nothing was sent")
        link.cut()
        assert_nothing_is_left(linked)

    with pytest.raises(DeviceError, match="2 times in a row"):
        future.result(30)


def test_stopping_while_files_are_sent(linked: Device, link: Link, tiny: Path) -> None:
    link.bytes_per_s = 300_000
    stop = threading.Event()
    future = in_background("bench", tiny, device=linked, stop=stop, **SHORT)
    wait_until(lambda: list((Path(linked.folder) / "jobs").glob("*/package.zip")), "nothing was sent")

    stop.set()

    with pytest.raises(KeyboardInterrupt):
        future.result(30)
    assert_nothing_is_left(linked)


@pytest.mark.parametrize("silently", [False, True], ids=["cut", "silent"])
def test_a_connection_that_stays_away_leaves_nothing_on_the_device(
    silently: bool, linked: Device, link: Link, tiny: Path
) -> None:
    linked = replace(linked, grace_s=3)
    future = in_background("bench", tiny, device=linked, **LONG)
    job = job_process(linked)

    if silently:
        link.silent = True
    else:
        link.accepts = False
        link.cut()

    with pytest.raises(DeviceError, match="did not come back within 3 s"):
        future.result(60)
    wait_until(lambda: not job.is_running(), "the job is an orphan")
    link.close()
    assert_nothing_is_left(linked)


def test_a_caller_that_is_killed_leaves_nothing_on_the_device(board: Device, tiny: Path, tmp_path: Path) -> None:
    board = replace(board, grace_s=3)
    code = (
        "import sys; from litesmith.devices import Device, run\n"
        f"run('bench', {str(tiny)!r}, device={board!r}, seconds=60.0, memory=False)"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    job = job_process(board)

    caller.kill()
    caller.wait()

    wait_until(lambda: not job.is_running(), "the job is an orphan")
    assert_nothing_is_left(board)


def test_ctrl_c_ends_the_job_at_once(board: Device, tiny: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from litesmith.devices import Device, run\n"
        f"try: run('bench', {str(tiny)!r}, device={replace(board, grace_s=120)!r}, seconds=60.0, memory=False)\n"
        "except KeyboardInterrupt: sys.exit(130)"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    job = job_process(board)

    caller.send_signal(signal.SIGINT)

    assert caller.wait(20) == 130
    assert not job.is_running()
    assert_nothing_is_left(board)


def test_ctrl_c_ends_the_jobs_of_several_devices(board: Device, tiny: Path, tmp_path: Path) -> None:
    other = replace(board, name="other", folder=str(tmp_path / "other"), lock=str(tmp_path / "other.lock"))
    code = (
        "import sys; from litesmith.devices import Device, run_all\n"
        f"try: run_all('bench', {str(tiny)!r}, devices=[{board!r}, {other!r}], seconds=60.0, memory=False)\n"
        "except KeyboardInterrupt: sys.exit(130)"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    jobs = [job_process(board), job_process(other)]

    caller.send_signal(signal.SIGINT)

    assert caller.wait(20) == 130
    assert not any(job.is_running() for job in jobs)
    assert_nothing_is_left(board)
    assert_nothing_is_left(other)


def test_what_a_login_prints_does_not_matter(board: Device, tiny: Path, tmp_path: Path) -> None:
    noisy = tmp_path / "python"
    noisy.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && echo "Welcome! {{}} \\n" && echo "Last login: never" >&2\nexec {sys.executable} "$@"\n'
    )
    noisy.chmod(0o755)

    assert isinstance(run("bench", tiny, device=replace(board, python=str(noisy)), **SHORT), Bench)


def test_users_with_other_folders_share_the_device_s_lock(board: Device, tiny: Path, tmp_path: Path) -> None:
    said: list[str] = []
    stop = threading.Event()
    first = in_background("bench", tiny, device=board, stop=stop, **LONG)
    job_process(board)
    second = in_background("bench", tiny, device=replace(board, folder=str(tmp_path / "b")), say=said.append, **SHORT)
    wait_until(lambda: said, "the second did not wait")

    stop.set()

    with pytest.raises(KeyboardInterrupt):
        first.result(20)
    assert isinstance(second.result(30), Bench)
    assert "is busy for" in said[0]
    assert Path(board.lock).stat().st_mode & 0o777 == 0o666


def test_a_process_that_crashes_on_the_device(board: Device, tiny: Path) -> None:
    future = in_background("bench", tiny, device=board, **LONG)

    job_process(board).send_signal(signal.SIGSEGV)

    with pytest.raises(DeviceError, match=r"bench was ended by signal 11 on device 'board'"):
        future.result(20)
    assert_nothing_is_left(board)


def test_a_worker_that_is_killed(board: Device, tiny: Path) -> None:
    future = in_background("bench", tiny, device=board, **LONG)
    job = job_process(board)

    supervisor = job.parent()
    assert supervisor is not None
    supervisor.kill()

    with pytest.raises(DeviceError, match="was killed"):
        future.result(20)
    wait_until(lambda: not job.is_running(), "the job is an orphan")
    assert_nothing_is_left(board)


def test_what_jobs_left_that_lost_their_power_is_removed_and_nothing_else(board: Device, tiny: Path) -> None:
    dead = Path(board.folder) / "jobs" / "dead"
    dead.mkdir(parents=True)
    (dead / "alive").touch()
    left = subprocess.Popen(["sleep", "60"], cwd=dead)
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    (dead / "group").write_text(str(other.pid))
    try:
        run("bench", tiny, device=board, **SHORT)

        assert not dead.exists()
        assert left.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (left, other):
            process.kill()
            process.wait()


def test_an_error_of_the_verb_is_raised_here_as_its_own_kind(board: Device, tiny: Path) -> None:
    with pytest.raises(UsageError, match="on device 'board': kernels"):
        run("bench", tiny, device=board, kernels="quick", **SHORT)
    with pytest.raises(UsageError, match="'train' does not run on a device"):
        run("train", tiny, device=board)
    assert_nothing_is_left(board)


def test_a_damaged_file_is_told_before_anything_is_sent(board: Device, tiny: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.tflite"
    damaged.write_bytes(tiny.read_bytes()[:500])

    with pytest.raises(ModelError):
        run("bench", damaged, device=board)
    assert not Path(board.folder).exists()


def test_an_unreachable_host(board: Device, tiny: Path) -> None:
    with pytest.raises(DeviceError, match="cannot be reached: .*refused"):
        run("bench", tiny, device=replace(board, url=f"ssh://127.0.0.1:{free_port()}"))
    with pytest.raises(DeviceError, match="cannot be reached: .*resolve"):
        run("bench", tiny, device=replace(board, url="ssh://nowhere.invalid"))


def test_a_key_that_is_not_accepted(board: Device, server: Server, tiny: Path) -> None:
    with pytest.raises(DeviceError, match="does not accept the keys of this machine"):
        run("bench", tiny, device=replace(board, ssh_config=str(server.config(key="stranger"))))


def test_a_host_key_that_changed_is_refused(board: Device, server: Server, tiny: Path, tmp_path: Path) -> None:
    make_key(tmp_path / "old")
    config = server.config(known=(tmp_path / "old.pub").read_text())

    with pytest.raises(DeviceError, match="does not have the host key it had before, so nothing was sent"):
        run("bench", tiny, device=replace(board, ssh_config=str(config)))


def test_a_host_key_that_is_not_known_is_refused_whatever_the_configuration_says(
    board: Device, server: Server, tiny: Path
) -> None:
    config = server.config(known="")
    config.write_text(config.read_text() + "  StrictHostKeyChecking no\n")

    with pytest.raises(DeviceError, match="is not known here"):
        run("bench", tiny, device=replace(board, ssh_config=str(config)))


def test_no_python_there(board: Device, tiny: Path) -> None:
    with pytest.raises(DeviceError, match="there is no '/nowhere/python' on device 'board'"):
        run("bench", tiny, device=replace(board, python="/nowhere/python"))


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7", "3.9"])
def test_an_old_python_there(version: str, board: Device, tiny: Path) -> None:
    places = [*sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")), shutil.which(f"python{version}")]
    if places[0] is None:
        pytest.skip(f"there is no Python {version} on this machine")
    said: list[str] = []

    with pytest.raises(DeviceError, match=r"(?s)Python.*(is too old|needs 3.10 or newer)"):
        run("bench", tiny, device=replace(board, python=str(places[0])), say=said.append)
    assert said == []
    assert not Path(board.folder).exists()


def test_no_runtime_there(board: Device, tiny: Path) -> None:
    bare = f"{Path(sys.executable).resolve()} -I"

    with pytest.raises(SessionError, match="on device 'board': the LiteRT runtime is not installed"):
        run("bench", tiny, device=replace(board, python=bare), **SHORT)
    assert_nothing_is_left(board)


def test_no_folder_can_be_made_there(board: Device, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(DeviceError, match="device 'board': Not a directory"):
        run("bench", tiny, device=replace(board, folder=str(tmp_path / "file" / "litesmith")))


def test_no_room_there(board: Device, tiny: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", small], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        with pytest.raises(DeviceError, match="there is no room in"):
            run("bench", tiny, device=replace(board, folder=str(small / "litesmith")))
        assert not any(path.is_file() for path in small.rglob("*"))
    finally:
        subprocess.run(["umount", small], check=True)
