# SPDX-License-Identifier: Apache-2.0
"""A real OpenSSH server on the loopback, with keys of its own, and a link in front of it that can be slowed and cut."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from litesmith.devices import Device
from litesmith.model import Builder


@dataclass(frozen=True)
class Server:
    """A running sshd, and the files a client needs to get in."""

    port: int
    folder: Path

    def config(self, *, port: int | None = None, known: str | None = None, key: str = "key") -> Path:
        """Write a client configuration with the alias `board`; ``known`` is the host key line to trust."""
        hosts = self.folder / f"known-{time.monotonic_ns()}"
        public = (self.folder / "host.pub").read_text() if known is None else known
        hosts.write_text(f"board {public}" if public else "")
        path = hosts.with_suffix(".conf")
        path.write_text(
            f"Host board\n  HostName 127.0.0.1\n  Port {port or self.port}\n  User {getpass.getuser()}\n"
            f"  HostKeyAlias board\n  IdentityFile {self.folder / key}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {hosts}\n  GlobalKnownHostsFile none\n"
        )
        return path


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An OpenSSH server of this test alone; skips where there is none."""
    sshd = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
    if sshd is None or shutil.which("ssh") is None:
        pytest.skip("no OpenSSH server and client on this machine")
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "key", "stranger"):
        make_key(folder / name)
    (folder / "authorized").write_text((folder / "key.pub").read_text())
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    config = folder / "sshd.conf"
    config.write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder / 'host'}\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {folder / 'authorized'}\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
        "MaxStartups 100\nPermitRootLogin yes\n"
    )
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sshd, "-D", "-e", "-f", config], stdout=log, stderr=log)
    try:
        wait_until(lambda: _listens(port), f"sshd did not start: {(folder / 'log').read_text()}")
        yield Server(port, folder)
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def board(server: Server, tmp_path: Path) -> Device:
    """The server as a device that has the runtime, with a private folder of this test."""
    return Device(
        "board",
        "ssh://board",
        python=sys.executable,
        runtime="installed",
        folder=str(tmp_path / "device"),
        lock=str(tmp_path / "lock"),
        grace_s=10,
        ssh_config=str(server.config()),
    )


class Link:
    """A TCP proxy in front of the server: it can be slow, go silent, and cut all that passes through it."""

    def __init__(self, target: int) -> None:
        self._target, self._pairs, self._closed = target, list[socket.socket](), False
        self.bytes_per_s: float | None = None
        self.silent = False
        self.accepts = True
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break every connection."""
        for end in self._pairs:
            with contextlib.suppress(OSError):  # it may have ended by itself
                end.shutdown(socket.SHUT_RDWR)
        self._pairs.clear()

    def close(self) -> None:
        self._closed = True
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if not self.accepts:
                near.close()
                continue
            self.connections += 1
            far = socket.create_connection(("127.0.0.1", self._target))
            self._pairs += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while part := source.recv(16384):
                while self.silent and not self._closed:
                    time.sleep(0.02)
                if self.bytes_per_s:
                    time.sleep(len(part) / self.bytes_per_s)
                sink.sendall(part)
        except OSError:
            pass  # cut
        finally:
            for end in (source, sink):
                end.close()


@pytest.fixture
def link(server: Server) -> Iterator[Link]:
    """A link to the server that can be slowed and cut."""
    opened = Link(server.port)
    yield opened
    opened.close()


@pytest.fixture
def linked(board: Device, server: Server, link: Link) -> Device:
    """The device behind that link."""
    return replace(board, ssh_config=str(server.config(port=link.port)))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model in a file."""
    b = Builder("tiny")
    x = b.input("image", (1, 16, 16, 3))
    x = b.conv2d(x, 8, kernel=3, stride=2, activation="RELU6", name="stem")
    x = b.op("MEAN", x, np.array([1, 2], np.int32))
    path = tmp_path_factory.mktemp("models") / "tiny.tflite"
    b.build({"logits": b.fully_connected(x, 5, name="head")}, description="a tiny net").save(path)
    return path


def wait_until(condition: Callable[[], object], message: str = "it did not happen", seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, message
        time.sleep(0.02)


def processes_of(folder: str) -> list[psutil.Process]:
    """The job processes of a device's folder: all whose working directory lies in it, and their supervisors."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(folder) or any(folder in file.path for file in process.open_files()):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != os.getpid()]


def assert_nothing_is_left(device: Device, seconds: float = 15) -> None:
    """The device has no process of ours and no job's folder any more."""
    jobs = Path(device.folder) / "jobs"
    wait_until(
        lambda: not processes_of(device.folder) and not (jobs.is_dir() and list(jobs.iterdir())),
        f"left: {processes_of(device.folder)} {list(jobs.iterdir()) if jobs.is_dir() else ''}",
        seconds,
    )
