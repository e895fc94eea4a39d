# SPDX-License-Identifier: Apache-2.0
"""What runs on a device: the standard library only, sent over the connection and never installed.

Two processes share the work. The *relay* talks with the machine that asked: it receives the package and the models, and
passes news on. The *supervisor* is out of reach of a dropped connection: it waits for the device's lock, runs the job in
a process group of its own, and writes down how it ended. It lives as long as somebody asks about the job: when the file
``contact`` is not touched for the grace time, or the job is cancelled or its outcome fetched, it ends the job's processes
and removes the job's folder. Whether a supervisor lives is told by its lock in the job's folder, which the kernel lets
go with the process.

A message is a line of JSON; where it has ``bytes``, as many raw bytes follow.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import json
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import time
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAGIC = b"LITESMITH-DEVICE 1\n"
OLDEST_PYTHON = (3, 10)
TICK_S = 0.1
DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
CHUNK = 1 << 16
OURS = ("jobs", "packages", "runtimes", "jobs.lock", "runtimes.lock")
"""All that is ever made in the private folder."""


class Lost(Exception):
    """The other side is gone."""


class Refused(Exception):
    """What was asked cannot be done here; the message is for the person who asked."""


class Channel:
    """Messages over two file descriptors; ``heard`` is called whenever anything arrives."""

    def __init__(self, incoming: int, outgoing: int, silence_s: float) -> None:
        self.incoming, self.outgoing, self.silence_s = incoming, outgoing, silence_s
        self.heard: Callable[[], None] = lambda: None
        self.followed = False  # whether a job is followed, and can be cancelled; before that, all of it is given up
        self._pending = b""

    def send(self, **message: Any) -> None:
        """Send one message."""
        view = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while view:
                view = view[os.write(self.outgoing, view) :]
        except OSError as error:
            raise Lost(str(error)) from None

    def receive(self) -> dict[str, Any]:
        """Return the next message."""
        message = self.poll(self.silence_s)
        if message is None:
            raise Lost(f"nothing was heard for {self.silence_s} s")
        return message

    def poll(self, seconds: float) -> dict[str, Any] | None:
        """Return the next message, None when nothing comes for so long."""
        while b"\n" not in self._pending:
            if not self._more(seconds):
                return None
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        if message.get("ask") == "cancel" and not self.followed:
            raise Lost("it was cancelled")
        return message

    def receive_bytes(self, count: int, write: Callable[[bytes], object]) -> None:
        """Pass the next raw bytes to ``write``."""
        while count:
            if not self._pending and not self._more(self.silence_s):
                raise Lost(f"nothing was heard for {self.silence_s} s")
            part, self._pending = self._pending[:count], self._pending[count:]
            write(part)
            count -= len(part)

    def _more(self, seconds: float) -> bool:
        if not select.select([self.incoming], [], [], seconds)[0]:
            return False
        part = os.read(self.incoming, CHUNK)
        if not part:
            raise Lost("the connection was closed")
        self._pending += part
        self.heard()
        return True


# ---- the relay


def relay(channel: Channel) -> None:
    """Do what the other side asks, until it is content or gone."""
    hello = channel.receive()
    root, lock = Path(hello["folder"]).expanduser(), Path(hello["lock"]).expanduser()
    channel.send(
        event="here", python=platform.python_version(), architecture=platform.machine(), system=platform.system(),
        libc=" ".join(platform.libc_ver()), host=platform.node(), folder=str(root),
    )  # fmt: skip
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise Refused(
            f"its Python is {platform.python_version()}, and Litesmith needs {oldest} or newer; "
            "name another one with `python = …` in the devices file"
        )
    message = channel.receive()
    if message["ask"] == "run":
        job = Job(root, lock, message["job"])
        if job.is_supervised():
            job.follow(channel, message["seen"])
        elif message["seen"]:
            raise Refused("the job is no longer there: the connection was away for longer than the grace time")
        else:
            job.start(channel, message)
    elif message["ask"] == "facts":
        channel.send(event="facts", free_bytes=free_bytes(root), **facts())
    elif message["ask"] == "clean":
        clean(root, lock)
        channel.send(event="done")


def facts() -> dict[str, Any]:
    """Return what can be told of a device without any package."""
    board, cpu = "", ""
    with contextlib.suppress(OSError):
        board = Path("/proc/device-tree/model").read_text(encoding="utf-8", errors="replace").strip("\0\n ")
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": board or cpu or platform.processor() or "unknown", "cores": cores, "memory_bytes": memory}


def free_bytes(path: Path) -> int:
    """Return the room in the file system of a folder that need not exist yet."""
    while not path.exists():
        path = path.parent
    state = os.statvfs(path)
    return state.f_bavail * state.f_frsize


def clean(root: Path, lock: Path) -> None:
    """Remove all that Litesmith keeps on the device, and nothing else."""
    if not root.is_dir():
        return
    if not is_free(lock):
        raise Refused("a job runs there now; try again when it has ended")
    sweep(root)
    for path in (root / name for name in OURS):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
    with contextlib.suppress(OSError):  # a folder that has other things in it stays
        root.rmdir()


class Job:
    """One job's folder and what is known of it."""

    def __init__(self, root: Path, lock: Path, name: str) -> None:
        self.root, self.lock, self.folder = root, lock, root / "jobs" / name

    def start(self, channel: Channel, message: dict[str, Any]) -> None:
        """Receive the files, start the supervisor, and follow it."""
        need, free = message["size_bytes"], free_bytes(self.root)
        if need > free:
            raise Refused(f"there is no room in {self.root}: {need:,} bytes are needed and {free:,} are free")
        alive = self._open()
        try:
            folders = [get_package(self, channel, message["package"])]
            for name in message["files"]:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                receive_file(channel, "file", name, self.folder / name)
            if message["runtime"] is not None:
                folders.append(get_runtime(self, channel, message["runtime"]))
            (self.folder / "job.json").write_text(json.dumps(message["call"]), encoding="utf-8")
            self.touch()
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        own = os.environ.get("PYTHONPATH", "")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, folders), *([own] if own else [])])}
        command = [sys.executable, "-m", message["module"]]
        supervise(self, channel, message["grace_s"], message["who"], command, environment)
        os.close(alive)  # the supervisor holds it now
        self.follow(channel, 0)

    def _open(self) -> int:
        """Make the folder, with its sign of life, away from the eyes of those who sweep."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        sweeping = hold(self.root / "jobs.lock")
        try:
            sweep(self.root)
            self.folder.mkdir(parents=True, mode=0o700)
            return hold(self.folder / "alive")
        finally:
            os.close(sweeping)

    def follow(self, channel: Channel, seen: int) -> None:
        """Pass the supervisor's news on until the job has ended and its outcome has arrived."""
        channel.heard, channel.followed = self.touch, True
        self.touch()
        heard = time.monotonic()
        while True:
            supervised = self.is_supervised()  # asked before the news, which come before the end
            for news in self.news(seen):
                channel.send(**news)
                seen += 1
            if not supervised:
                end_leftovers(self.folder)
                shutil.rmtree(self.folder, ignore_errors=True)
                channel.send(event="vanished")
                return
            message = channel.poll(TICK_S)
            if message is not None:
                heard = time.monotonic()
            elif time.monotonic() - heard > channel.silence_s:
                raise Lost(f"nothing was heard for {channel.silence_s} s")
            if message is not None and message["ask"] in ("cancel", "fetched"):
                self.mark(message["ask"])
                self._await_end()
                channel.send(event="done")
                return

    def _await_end(self) -> None:
        """Wait until the supervisor has removed the folder, which it does at once."""
        while self.is_supervised():
            time.sleep(TICK_S / 5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def is_supervised(self) -> bool:
        """Return whether a process takes care of the job."""
        return not is_free(self.folder / "alive")

    def touch(self) -> None:
        """Say that somebody still waits."""
        self.mark("contact")

    def mark(self, name: str) -> None:
        """Leave a sign for the supervisor."""
        with contextlib.suppress(FileNotFoundError):
            (self.folder / name).touch()

    def read(self, name: str) -> str:
        """Return a file of the folder, nothing when it is not there."""
        try:
            return (self.folder / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""

    def tell(self, **news: Any) -> None:
        """Append to the news."""
        with (self.folder / "news").open("ab", buffering=0) as file:
            file.write(json.dumps(news).encode() + b"\n")

    def news(self, seen: int) -> list[dict[str, Any]]:
        """Return the news after the first ``seen``; a line that is still being written is left for later."""
        complete = self.read("news").rpartition("\n")[0]
        return [json.loads(line) for line in complete.splitlines()[seen:]]


def receive_file(channel: Channel, kind: str, name: str, target: Path) -> None:
    """Ask for a file and write it; what arrives is checked against the sender's digest."""
    channel.send(event="want", what=kind, name=name)
    message, digest = channel.receive(), hashlib.sha256()
    while "bytes" not in message:  # a heartbeat that was under way
        message = channel.receive()
    with target.open("wb") as file:

        def write(part: bytes) -> None:
            digest.update(part)
            file.write(part)

        channel.receive_bytes(message["bytes"], write)
    if digest.hexdigest() != message["sha256"]:
        raise Refused(f"{name} did not arrive as it was sent")


def get_package(job: Job, channel: Channel, package: dict[str, Any]) -> Path:
    """Return the folder of Litesmith itself; it is sent once for each version."""
    folder: Path = job.root / "packages" / package["name"]
    if not folder.is_dir():
        archive, unpacked = job.folder / "package.zip", job.folder / "package"
        receive_file(channel, "package", package["name"], archive)
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(unpacked)
        archive.unlink()
        keep(unpacked, folder)
    return folder


def get_runtime(job: Job, channel: Channel, runtime: dict[str, Any]) -> Path:
    """Return the folder of the packages that Litesmith needs; they are installed once."""
    version = ".".join(map(str, sys.version_info[:2]))
    folder = job.root / "runtimes" / f"{runtime['name']}-{version}-{platform.machine()}"
    lock = hold(job.root / "runtimes.lock", lambda: channel.poll(TICK_S))
    try:
        if not folder.is_dir():
            install(job, channel, runtime, folder)
    finally:
        os.close(lock)
    return folder


def install(job: Job, channel: Channel, runtime: dict[str, Any], folder: Path) -> None:
    """Install the runtime with pip: the device's own, or else the one of the other side."""
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:  # noqa: S603
        receive_file(channel, "pip", "pip.zip", job.folder / "pip.zip")
        pip = [sys.executable, str(job.folder / "pip.zip" / "pip")]
    channel.send(event="installing", requirements=runtime["requirements"])
    fresh, log = job.folder / "runtime", job.folder / "pip.log"
    options = ["--disable-pip-version-check", "--no-input", "--no-cache-dir", "--only-binary=:all:"]
    command = [*pip, "install", *options, "--target", str(fresh), *runtime["requirements"]]
    with log.open("wb") as file:
        process = start(command, stdout=file, stderr=file)
        try:
            while not has_ended(process):
                channel.poll(TICK_S)  # a lost connection ends the installation: half of one is of no use
        finally:
            end_group(process)
    if process.returncode:
        what, where = ", ".join(runtime["requirements"]), f"Python {platform.python_version()} on {platform.machine()}"
        raise Refused(f"pip could not install {what} for {where}: {last_lines(log)}")
    keep(fresh, folder)


def keep(made: Path, folder: Path) -> None:
    """Move a complete folder to where it stays; another job may have been faster."""
    folder.parent.mkdir(exist_ok=True)
    try:
        made.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise


def sweep(root: Path) -> None:
    """Remove the folders of jobs whose supervisor is gone: a device that lost its power leaves them."""
    for folder in (root / "jobs").iterdir() if (root / "jobs").is_dir() else ():
        if is_free(folder / "alive"):
            end_leftovers(folder)
            shutil.rmtree(folder, ignore_errors=True)


# ---- the supervisor


def supervise(
    job: Job, channel: Channel, grace_s: float, who: str, command: list[str], environment: dict[str, str]
) -> None:
    """Start a supervisor that no hang-up reaches."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.close(channel.outgoing)  # or the connection would not end before the job
        log = os.open(job.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, source in enumerate((nothing, log, log)):
            os.dup2(source, number)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        wanted = _Wanted(job, grace_s)
        try:
            _supervise(job, wanted, who, command, environment)
        except Exception:  # noqa: BLE001  (the person who asked must see it)
            job.tell(event="outcome", code=None, outcome=None, log=traceback.format_exc())
        while wanted():
            time.sleep(TICK_S / 5)
    finally:
        shutil.rmtree(job.folder, ignore_errors=True)
        os._exit(0)


class _Wanted:
    """Whether anybody still waits for the job; by our own clock, since a device's calendar may jump."""

    def __init__(self, job: Job, grace_s: float) -> None:
        self.job, self.grace_s = job, grace_s
        self.touched, self.noticed = 0, time.monotonic()

    def __call__(self) -> bool:
        try:
            touched = (self.job.folder / "contact").stat().st_mtime_ns
        except FileNotFoundError:
            return False
        if touched != self.touched:
            self.touched, self.noticed = touched, time.monotonic()
        over = any((self.job.folder / mark).exists() for mark in ("cancel", "fetched"))
        return not over and time.monotonic() - self.noticed < self.grace_s


def _supervise(job: Job, wanted: _Wanted, who: str, command: list[str], environment: dict[str, str]) -> None:
    turn = take_turn(job, who, wanted)
    if turn is None:
        return
    process = start(command, cwd=job.folder, env=environment)
    try:
        job.tell(event="started", pid=process.pid, supervisor=os.getpid())
        while not has_ended(process) and wanted():
            time.sleep(TICK_S / 5)
    finally:
        end_group(process)
    os.close(turn)  # the next job may start while our outcome is fetched
    outcome = job.read("outcome.json")
    job.tell(
        event="outcome",
        code=process.returncode,
        outcome=json.loads(outcome) if outcome else None,
        log=last_lines(job.folder / "log"),
    )


def take_turn(job: Job, who: str, wanted: Callable[[], bool]) -> int | None:
    """Return the descriptor that holds the device's lock, None when nobody waits for the job any more."""
    turn = open_for_all(job.lock)
    told = None
    while wanted():
        try:
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(turn, 200, 0).decode("utf-8", "replace")
            if holder != told:
                job.tell(event="waiting", holder=holder)
                told = holder
            time.sleep(TICK_S)
            continue
        with contextlib.suppress(OSError):  # another user's file may be closed to our writing: then nobody is named
            os.ftruncate(turn, 0)
            os.pwrite(turn, who.encode(), 0)
        return turn
    os.close(turn)
    return None


def open_for_all(path: Path) -> int:
    """Return a descriptor of a lock file that all users of the device can hold."""
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever the umask
        return descriptor
    try:
        return os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that leads a group, so that all it starts ends with it, and that dies with this one."""

    def prepare() -> None:
        os.setpgid(0, 0)
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)

    return subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=prepare, **options)  # noqa: S603


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether a process has ended, and leave it there: as long as it is, its number is not given to another."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def end_leftovers(folder: Path) -> None:
    """Kill what works in the folder of a job that nobody supervises; by the folder, since numbers are given anew."""
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink() == folder.resolve():
                os.kill(int(entry.name), signal.SIGKILL)


def hold(path: Path, while_waiting: Callable[[], object] | None = None) -> int:
    """Return a descriptor that holds a lock file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(TICK_S) if while_waiting is None else while_waiting()
        else:
            return descriptor


def is_free(path: Path) -> bool:
    """Return whether nobody holds a lock file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def last_lines(path: Path, count: int = 2000) -> str:
    """Return the end of a log."""
    return path.read_bytes()[-count:].decode("utf-8", "replace").strip()


def main(silence_s: float) -> None:
    """Greet, and serve on standard input and output."""
    outgoing = os.dup(1)
    os.dup2(2, 1)  # what anything prints must not get between the messages
    os.write(outgoing, MAGIC)
    channel = Channel(0, outgoing, silence_s)
    try:
        relay(channel)
    except Lost:
        sys.exit(3)
    except Refused as error:
        channel.send(event="refused", message=str(error))
    except OSError as error:
        channel.send(event="refused", message=f"{error.strerror}: {error.filename}")
    except Exception as error:  # noqa: BLE001  (whatever it is, the person who asked must see it)
        channel.send(event="refused", message=f"{type(error).__name__}: {error}")
