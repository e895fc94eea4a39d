# SPDX-License-Identifier: Apache-2.0
"""Sessions in threads, after a fork, at the end of the process, and ten thousand of them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from litesmith.model import Model
from litesmith.runtime import Session

Open = Callable[..., Session]
RunScript = Callable[..., "CompletedProcess[str]"]


def test_one_session_serves_several_threads(open_session: Open, conv_model: Model) -> None:
    images = np.random.default_rng(0).uniform(-1, 1, (8, 1, 32, 32, 3)).astype(np.float32)
    with open_session(conv_model) as session, ThreadPoolExecutor(4) as pool:
        expected = [session(image)["logits"] for image in images]
        results = list(pool.map(lambda k: session(images[k % 8])["logits"], range(160)))
    assert all(np.array_equal(result, expected[k % 8]) for k, result in enumerate(results))


def test_a_session_can_be_closed_while_it_runs_elsewhere(open_session: Open, conv_model: Model) -> None:
    session = open_session(conv_model)
    outcome: list[str] = []

    def work() -> None:
        try:
            while True:
                session.run()
        except Exception as error:  # noqa: BLE001  (its kind is what the test is about)
            outcome.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    session.close()
    thread.join(timeout=30)
    assert outcome == ["this session is closed; make a new one"]


def test_different_sessions_run_at_the_same_time(open_session: Open, conv_model: Model) -> None:
    """Runs of two threads overlap: LiteRT runs without Python's lock, and ours is one per session."""
    spans: list[list[tuple[float, float]]] = [[], []]

    def work(position: int) -> None:
        with open_session(conv_model) as session:
            barrier.wait(timeout=30)
            for _ in range(200):
                started = time.perf_counter()
                session.run()
                spans[position].append((started, time.perf_counter()))

    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=work, args=(position,)) for position in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any(a < d and c < b for a, b in spans[0] for c, d in spans[1])


FORK = """
    import os, sys, threading, time
    from litesmith.errors import SessionError
    from litesmith.runtime import Session

    path, backend, leave = sys.argv[1:]

    def fork(action):
        child = os.fork()
        if child == 0:
            action()
            sys.stdout.flush()
            os._exit(0) if leave == "at once" else sys.exit(0)
        for _ in range(1200):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status
            time.sleep(0.05)
        os.kill(child, 9)
        return "hangs"

    def use_both():
        try:
            session.run()
        except SessionError as error:
            print(error)
        session.close()
        with Session(path, threads=2, backend=backend) as own:
            own.run()
            print("own session runs")

    session = Session(path, threads=2, backend=backend)
    session.run()
    print(fork(use_both))
    session.run()  # the parent's is none the worse

    stop = threading.Event()
    def churn():
        while not stop.is_set():
            with Session(path, threads=2, backend=backend) as other:
                other.run()
    workers = [threading.Thread(target=churn) for _ in range(2)]
    for worker in workers:
        worker.start()
    print({fork(lambda: Session(path, backend=backend).run()) for _ in range(5)})
    stop.set()
    for worker in workers:
        worker.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("leave", ["at once", "in order"])
def test_fork(run_script: RunScript, conv_model: Model, tmp_path: Path, backend: str, leave: str) -> None:
    path = tmp_path / "model.tflite"
    conv_model.save(path)
    done = run_script(FORK, str(path), backend, leave)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "this session belongs to the parent process; a forked child must make its own",
        "own session runs",
        "0",
        "{0}",
    ]


def test_exit_with_live_sessions(run_script: RunScript, conv_model: Model, tmp_path: Path, backend: str) -> None:
    """Even with threads in the middle of a run."""
    path = tmp_path / "model.tflite"
    conv_model.save(path)
    source = """
        import sys, threading, time
        from litesmith.runtime import Session
        def work(session):
            while True:
                session.run()
        path, backend = sys.argv[1:]
        sessions = [Session(path, threads=2, backend=backend) for _ in range(3)]
        for session in sessions[:2]:
            threading.Thread(target=work, args=(session,), daemon=True).start()
        time.sleep(0.1)
        sessions[2].run()
    """
    for _ in range(3):
        done = run_script(source, str(path), backend)
        assert (done.returncode, done.stderr) == (0, "")


def test_ten_thousand_sessions_leak_nothing(run_script: RunScript, backend: str) -> None:
    source = """
        import os, sys
        from pathlib import Path
        from litesmith.runtime import Session
        from litesmith.runtime._selfcheck import TINY_MODEL
        def resident_bytes():
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        def cycle(times):
            for _ in range(times):
                with Session(TINY_MODEL, backend=sys.argv[1], verify=False) as session:
                    session.run()
        cycle(500)
        before = resident_bytes()
        cycle(10_000)
        print(resident_bytes() - before)
    """
    if not Path("/proc/self/statm").is_file():
        pytest.skip("no /proc to read the resident memory from")
    done = run_script(source, backend)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1_000_000, "100 bytes a session would be a leak"
