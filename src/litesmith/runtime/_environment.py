# SPDX-License-Identifier: Apache-2.0
"""What a process shares: LiteRT's environments, their log, and the lock under which LiteRT makes things.

Environments are made once per set of options and kept: making one per session would only repeat the work, and
LiteRT's own locks already let it make one thing at a time. Holding our lock around that, and across a fork, means
that a child never starts out with one of LiteRT's internal locks taken by a thread that it does not have.
"""

from __future__ import annotations

import functools
import os
import threading
from ctypes import c_void_p

from litesmith.runtime import _litert
from litesmith.runtime._log import PrivateStderr
from litesmith.runtime._options import CompileOptions


class _CreationLock:
    """Held while LiteRT makes or destroys something, and by whoever forks: no lock of LiteRT's own is then held.

    A fork need not wait for its turn among threads that make one session after the other: it shuts the turnstile that
    they all pass, and then only waits for those who have passed it. Who has passed may enter again, as the collector of
    garbage does when it finds another session.
    """

    def __init__(self) -> None:
        self._turnstile = threading.RLock()
        self._lock = threading.RLock()  # the thread that makes something may itself fork, in a custom operator
        self._owner, self._depth = 0, 0

    def __enter__(self) -> None:
        if self._owner != threading.get_ident():
            with self._turnstile:
                pass
        self._enter()

    def __exit__(self, *_exception: object) -> None:
        self._depth -= 1
        self._owner = threading.get_ident() if self._depth else 0
        self._lock.release()

    def _enter(self) -> None:
        self._lock.acquire()
        self._owner, self._depth = threading.get_ident(), self._depth + 1

    def before_fork(self) -> None:
        self._turnstile.acquire()
        self._enter()

    def after_fork(self) -> None:
        self.__exit__()
        self._turnstile.release()


creation_lock = _CreationLock()
os.register_at_fork(
    before=creation_lock.before_fork,
    after_in_parent=creation_lock.after_fork,
    after_in_child=creation_lock.after_fork,
)

_EnvironmentKey = tuple[int, int, bool, tuple[object, ...], tuple[object, ...]]
_environments: dict[_EnvironmentKey, c_void_p] = {}


@functools.cache
def litert_log() -> PrivateStderr:
    """Return the log of libLiteRt.so, which is off the terminal from the first call on."""
    return PrivateStderr(_litert.load().library)


def environment(options: CompileOptions) -> c_void_p:
    """Return this process's LiteRT environment for `options`. Call it with `creation_lock` held."""
    key = (os.getpid(), options.hardware, options.native, options.environment, options.accelerators)
    if key not in _environments:
        _environments[key] = _make(options)
    return _environments[key]


def _make(options: CompileOptions) -> c_void_p:
    litert = _litert.load()
    severity = _litert.SEVERITY_INFO if litert_log().active else _litert.SEVERITY_SILENT
    values = dict(  # LiteRT would take the first of two with the same tag
        (
            # What is registered first chooses first: with Litesmith's delegate, XNNPACK must come after it.
            (
                _litert.ENV_AUTO_REGISTER_ACCELERATORS,
                options.hardware & ~_litert.CPU if options.native else options.hardware,
            ),
            (_litert.ENV_MIN_LOGGER_SEVERITY, severity),
            *options.environment,
        )
    )
    array = (_litert.EnvironmentOption * len(values))()
    for option, (tag, value) in zip(array, values.items(), strict=True):
        option.tag = tag
        if isinstance(value, str):
            option.value.type, option.value.value.string = _litert.ANY_STRING, os.fsencode(value)
        else:
            option.value.type, option.value.value.int = _litert.ANY_INT, value
    made = litert.handle("LiteRtCreateEnvironment", len(values), array)
    for register in options.accelerators:
        register(made)
    if options.native:
        from litesmith.runtime._native_accelerator import register_native, register_xnnpack

        register_native(made)
        if options.hardware & _litert.CPU:
            register_xnnpack(made)
    return made
