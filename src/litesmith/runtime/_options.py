# SPDX-License-Identifier: Apache-2.0
"""How a model is compiled: everything that LiteRT is told, as one frozen value.

This is the seam for accelerators, custom operators and vendor options: they extend this value, and `_compiled`
hands it to LiteRT without knowing what is in it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Literal

from litesmith.errors import UsageError
from litesmith.runtime import _litert

Kernels = Literal["delegate", "xnnpack", "builtin", "reference"]
KERNELS: tuple[Kernels, ...] = ("delegate", "xnnpack", "builtin", "reference")

ERRORS_TO_LOG, ERRORS_TO_BUFFER = 1, 2  # LiteRtErrorReporterMode


@dataclass(frozen=True)
class CustomOp:
    """A kernel for a custom operator: `kernel` is a LiteRtCustomOpKernel struct, kept alive by this value.

    LiteRT does not look at what a kernel returns: `check` raises what went wrong in it since it was last called.
    """

    name: str
    version: int
    kernel: ctypes.Structure
    check: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class CompileOptions:
    """What LiteRT is told when it compiles a model.

    Attributes:
        threads: Threads of the CPU kernels.
        kernels: "xnnpack" is XNNPACK, with built-in kernels for the rest; "delegate" has Litesmith's delegate in front
            of it for models that have operators for it; the other two are without both.
        profiling: Whether a profiler is attached (70 MB, and a few percent of latency).
        hardware: Set of LiteRtHwAccelerators as bits.
        opaque: Further options as (identifier, TOML), e.g. ("intel_openvino", "graph.0.graph_backend = 0").
        environment: Options of the environment as (LiteRtEnvOptionTag, value).
        custom_ops: Kernels of custom operators.
        accelerators: Functions that register an accelerator on a new environment.
        native: Whether Litesmith's delegate takes part; the session decides by the model and `kernels`.
    """

    threads: int = 1
    kernels: str = "delegate"
    profiling: bool = False
    hardware: int = _litert.CPU
    opaque: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[int, int | str], ...] = ()
    custom_ops: tuple[CustomOp, ...] = ()
    accelerators: tuple[Callable[[c_void_p], object], ...] = ()
    native: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.threads, int) or isinstance(self.threads, bool) or self.threads < 1:
            raise UsageError(f"threads must be a positive whole number, not {self.threads!r}")
        if self.kernels not in KERNELS:
            raise UsageError(f"kernels must be one of {', '.join(KERNELS)}, not {self.kernels!r}")

    @property
    def needs_litert(self) -> bool:
        """Whether only the C API can do this, and the Interpreter cannot."""
        special = self.opaque or self.environment or self.custom_ops or self.accelerators
        return self.profiling or self.hardware != _litert.CPU or bool(special)

    def _more_of(self, identifier: str) -> str:
        """Return the further lines of one identifier: LiteRT looks at the first of several with the same."""
        return "".join(toml for name, toml in self.opaque if name == identifier)

    def make(self, *, error_mode: int = ERRORS_TO_BUFFER) -> c_void_p:
        """Return a new LiteRtOptions, which the caller destroys."""
        litert = _litert.load()
        options = litert.handle("LiteRtCreateOptions")
        litert.call("LiteRtSetOptionsHardwareAccelerators", options, self.hardware)
        profiling = str(self.profiling).lower()
        kernel_mode = "delegate" if self.kernels == "xnnpack" else self.kernels
        payloads = (
            ("runtime_options_string", f"enable_profiling = {profiling}\nerror_reporter_mode = {error_mode}\n"),
            ("xnnpack", f'num_threads = {self.threads}\nkernel_mode = "{kernel_mode}"\n' + self._more_of("xnnpack")),
            *((identifier, toml) for identifier, toml in self.opaque if identifier != "xnnpack"),
        )
        for identifier, toml in payloads:
            copy = _litert.libc.strdup(toml.encode())  # LiteRT frees it with the options
            payload = litert.handle("LiteRtCreateOpaqueOptions", identifier.encode(), copy, _litert.FREE)
            litert.call("LiteRtAddOpaqueOptions", options, payload)
        for op in self.custom_ops:
            kernel = ctypes.addressof(op.kernel)
            litert.call("LiteRtAddCustomOpKernelOption", options, op.name.encode(), op.version, kernel, None)
        return options
