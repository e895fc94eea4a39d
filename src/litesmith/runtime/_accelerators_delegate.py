# SPDX-License-Identifier: Apache-2.0
"""Any TFLite external delegate as an accelerator of LiteRT's compiled-model API, in front of XNNPACK.

An external delegate is a shared library with `tflite_plugin_create_delegate` and `tflite_plugin_destroy_delegate`
(tflite/delegates/external/external_delegate_interface.h). What it takes of a graph is asked of the wheel's Interpreter,
which lists its nodes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_size_t, c_void_p
from typing import Any

from litesmith.errors import SessionError
from litesmith.runtime import _litert, _native_accelerator
from litesmith.runtime._environment import creation_lock
from litesmith.runtime._interpreter import explained
from litesmith.runtime._partitions import _group
from litesmith.runtime._source import ModelSource

_REPORT = CFUNCTYPE(None, c_char_p)
_CREATE, _DESTROY = "tflite_plugin_create_delegate", "tflite_plugin_destroy_delegate"


class _Plugin:
    """A loaded delegate library with its options."""

    def __init__(self, library: str, options: Sequence[tuple[str, str]]) -> None:
        try:
            self._library = ctypes.CDLL(library)
            self._create, self._destroy = (getattr(self._library, name) for name in (_CREATE, _DESTROY))
        except OSError as error:
            raise SessionError(f"the delegate {library} cannot be loaded: {error}") from None
        except AttributeError:
            raise SessionError(
                f"{library} is no external delegate: it has no functions {_CREATE} and {_DESTROY}"
            ) from None
        self._create.restype = c_void_p
        self._create.argtypes = [POINTER(c_char_p), POINTER(c_char_p), c_size_t, _REPORT]
        self._destroy.restype, self._destroy.argtypes = None, [c_void_p]
        self._path, self._options = library, tuple(options)
        self._said: list[str] = []

    def create(self) -> int:
        """Return a new delegate."""
        columns = list(zip(*self._options, strict=True)) or [(), ()]
        keys, values = ((c_char_p * len(column))(*(text.encode() for text in column)) for column in columns)
        report = _REPORT(lambda text: self._said.append((text or b"").decode("utf-8", "replace")))
        delegate: int | None = self._create(keys, values, len(self._options), report)
        if not delegate:
            raise SessionError(
                f"the delegate {self._path} refuses to start: {' '.join(self._said) or 'no reason given'}"
            )
        return delegate

    def destroy(self, delegate: int) -> None:
        """Destroy a delegate that `create` returned."""
        self._destroy(delegate)

    @property
    def destroy_function(self) -> c_void_p:
        """The C function that destroys a delegate."""
        return ctypes.cast(self._destroy, c_void_p)


def registrations(
    library: str, options: Sequence[tuple[str, str]]
) -> tuple[Callable[[c_void_p], object], Callable[[c_void_p], object]]:
    """Return the functions that register the delegate and, behind it, XNNPACK with an environment."""
    plugin = _Plugin(library, options)
    plugin.destroy(plugin.create())  # a refusal is told here, where it can be; LiteRT would go on without

    def create(_context: int, _environment: int, _accelerator: int, _options: int, wrapper: Any) -> int:
        return int(
            _litert.load().library.LiteRtWrapDelegate(c_void_p(plugin.create()), plugin.destroy_function, wrapper)
        )

    def register(environment: c_void_p) -> None:
        own = _native_accelerator
        function = own._CREATE(create)  # noqa: SLF001  (the C types of an accelerator stand there)
        own._register(environment, *own._functions[:3], function)  # noqa: SLF001
        _kept.append((plugin, function))

    return register, own_xnnpack


def own_xnnpack(environment: c_void_p) -> None:
    """Register XNNPACK behind the delegate."""
    _native_accelerator.register_xnnpack(environment)


_kept: list[object] = []  # environments are never destroyed, so neither is what they call


def delegate_partitions(
    source: ModelSource, library: str, options: Sequence[tuple[str, str]], *, threads: int = 1
) -> tuple[tuple[int, ...], ...]:
    """Return the operators in each piece that an external delegate takes of the model's first subgraph."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    where = {"model_path": str(source.path)} if source.path is not None else {"model_content": source.content}
    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES  # what is delegated then is this delegate's
    handle = _Handle(_Plugin(library, options))
    with creation_lock, explained(source, "compile"):
        interpreter = Interpreter(
            **where,
            num_threads=threads,
            experimental_op_resolver_type=resolver,
            experimental_delegates=[handle],
        )
        nodes = interpreter._get_ops_details()  # noqa: SLF001  (nothing public lists the delegates' nodes)
        del interpreter  # before the delegate that it uses
        handle.close()
    return tuple(piece.operators for piece in _group(nodes, frozenset()) if piece.delegate is not None)


class _Handle:
    """A delegate as the wheel's Interpreter takes it."""

    def __init__(self, plugin: _Plugin) -> None:
        self._plugin, self._delegate = plugin, plugin.create()

    def _get_native_delegate_pointer(self) -> int:
        return self._delegate

    def close(self) -> None:
        self._plugin.destroy(self._delegate)
