# SPDX-License-Identifier: Apache-2.0
"""The accelerators that LiteRT can use here: what each is, what it needs, and how LiteRT is told to use it.

Nothing here runs a model. An accelerator may crash the process it is loaded into, so that its use is for a process of
its own (`litesmith.measure.accelerators`); what that process needs in its environment is said here too.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from litesmith.errors import UsageError
from litesmith.runtime import _litert
from litesmith.runtime._options import CompileOptions

OPENVINO_VERSION = "2026.3.1"  # LiteRT 2.3's plugin links libopenvino.so.2631 and no other
_Setting: TypeAlias = Callable[[CompileOptions, Path], CompileOptions]
_GPU, _NPU = 2, 4  # LiteRtHwAccelerators
_ENV_COMPILER_FOLDER, _ENV_DISPATCH_FOLDER, _ENV_RUNTIME_FOLDER = 0, 1, 22  # LiteRtEnvOptionTag
_FORCE_FP16 = 4  # TFLITE_XNNPACK_DELEGATE_FLAG_FORCE_FP16
_OPENVINO_DEVICES = {"openvino-cpu": 0, "openvino-gpu": 1, "openvino-npu": 2}
_MOST_GRAPHS = 64  # each partition must be told its device; a further one would be compiled for the NPU
_VULKAN_FOLDERS = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")
_SWIFTSHADER_FOLDERS = (
    "/usr/lib/chromium", "/usr/lib64/chromium-browser", "/usr/lib/chromium-browser", "/opt/google/chrome",
    "/usr/share/chromium", "/snap/chromium/current/usr/lib/chromium-browser",
)  # fmt: skip


@dataclass(frozen=True)
class Accelerator:
    """One way to run a model on this machine.

    Attributes:
        name: A short name, as in `NAMES`, or that of a delegate's file.
        title: What it is, for people.
        library: The file of an external delegate; empty for all others.
        options: What an external delegate is told.
    """

    name: str
    title: str
    library: str = ""
    options: tuple[tuple[str, str], ...] = ()

    def compile_options(self, *, threads: int, folder: Path, profiling: bool = False) -> CompileOptions:
        """Return what LiteRT is told; `folder` is where caches may be written."""
        how = CompileOptions(threads=threads, profiling=profiling, kernels="xnnpack")
        return _with_delegate(how, self) if self.library else _SETTINGS[self.name](how, folder)

    def environment(self) -> dict[str, str]:
        """Return the environment variables that a process needs for it, besides those of this one."""
        if self.name == "webgpu" and (driver := vulkan_driver()):
            return _vulkan_environment(driver)
        if self.name in _OPENVINO_DEVICES and (folder := _openvino_folder()):
            return {"LD_LIBRARY_PATH": _joined(str(folder), os.environ.get("LD_LIBRARY_PATH", ""))}
        return {}

    def why_absent(self) -> tuple[str, str]:
        """Return why it cannot be used here and how to get it; two empty texts if nothing is known to be missing."""
        if self.name == "webgpu":
            return _why_no_webgpu()
        if self.name in _OPENVINO_DEVICES:
            return _why_no_openvino(self.name)
        if self.name == "litesmith":
            return _why_no_native()
        return "", ""


_TITLES = {
    "xnnpack": "XNNPACK (CPU)",
    "xnnpack-cache": "XNNPACK, weight cache on disk",
    "xnnpack-fp16": "XNNPACK, float16 arithmetic",
    "ynnpack": "YNNPACK before XNNPACK",
    "builtin": "built-in kernels",
    "reference": "reference kernels",
    "litesmith": "Litesmith's delegate",
    "webgpu": "GPU (WebGPU)",
    "openvino-cpu": "OpenVINO, CPU",
    "openvino-gpu": "OpenVINO, GPU",
    "openvino-npu": "OpenVINO, NPU",
}
NAMES = tuple(_TITLES)
"""The accelerators besides external delegates, in the order in which they are tried."""


def known_accelerators() -> tuple[Accelerator, ...]:
    """Return all accelerators that LiteRT may have here, present or not."""
    return tuple(Accelerator(name, title) for name, title in _TITLES.items())


def external_delegate(library: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Accelerator:
    """Return the accelerator that is a TFLite external delegate: a library with tflite_plugin_create_delegate."""
    path = Path(library)
    if not path.is_file():
        raise UsageError(f"there is no file {path} to load a delegate from")
    return Accelerator(path.name, f"delegate {path.name}", str(path.absolute()), tuple((options or {}).items()))


def choose(names: Sequence[str]) -> tuple[Accelerator, ...]:
    """Return the accelerators of these names."""
    known = {accelerator.name: accelerator for accelerator in known_accelerators()}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"there is no accelerator {unknown[0]!r}; there are: {', '.join(known)}")
    return tuple(known[name] for name in names)


def vulkan_driver() -> Path | None:
    """Return the file that describes the Vulkan driver to use: that of a GPU, else the software one of Chromium."""
    named = [Path(p) for p in os.environ.get("VK_ICD_FILENAMES", "").split(os.pathsep) if p]
    folders = [Path(folder) for folder in _VULKAN_FOLDERS]
    installed = [file for folder in folders if folder.is_dir() for file in sorted(folder.glob("*.json"))]
    software = [Path(folder) / "vk_swiftshader_icd.json" for folder in _SWIFTSHADER_FOLDERS]
    return next((file for file in (*named, *installed, *software) if file.is_file()), None)


def _vulkan_environment(driver: Path) -> dict[str, str]:
    environment = {"VK_ICD_FILENAMES": str(driver)}
    if (driver.parent / "libvulkan.so.1").is_file():  # Chromium brings the loader along with the driver
        environment["LD_LIBRARY_PATH"] = _joined(os.environ.get("LD_LIBRARY_PATH", ""), str(driver.parent))
    return environment


def _joined(*folders: str) -> str:
    return os.pathsep.join(folder for folder in folders if folder)


def _why_no_webgpu() -> tuple[str, str]:
    if not (_litert.package_folder() / "libLiteRtWebGpuAccelerator.so").is_file():
        return "the installed LiteRT has no WebGPU accelerator", "install ai-edge-litert 2.3.0 on Linux x86-64"
    if vulkan_driver() is None:
        return "there is no Vulkan driver", (
            "install the GPU's Vulkan driver; to try it on the CPU, Debian's package chromium has SwiftShader"
        )
    return "", ""


def _openvino_folder() -> Path | None:
    spec = importlib.util.find_spec("openvino")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "libs"


def _why_no_openvino(name: str) -> tuple[str, str]:
    remedy = f"pip install openvino=={OPENVINO_VERSION}"
    if not (_litert.package_folder() / "vendors" / "intel_openvino" / "dispatch").is_dir():
        return "the installed LiteRT has no OpenVINO dispatch", "use an x86-64 Linux machine"
    if _openvino_folder() is None:
        return "the package openvino is not installed", remedy
    version = importlib.metadata.version("openvino")
    if version != OPENVINO_VERSION:
        return f"openvino {version} does not fit LiteRT's plugin", remedy
    if name == "openvino-gpu" and not list(Path("/dev/dri").glob("renderD*")):
        return "there is no GPU (no /dev/dri/renderD*)", "needs an Intel GPU and its driver"
    if name == "openvino-npu" and not list(Path("/dev/accel").glob("accel*")):
        return "there is no NPU (no /dev/accel/accel*)", "needs an Intel NPU and its driver"
    return "", ""


def _why_no_native() -> tuple[str, str]:
    from litesmith.errors import SessionError
    from litesmith.runtime._native import delegate_path, native_tier

    try:
        delegate_path()
    except SessionError as error:
        reason, _, remedy = str(error).partition("; ")
        return reason, remedy
    return (
        ("", "") if native_tier() else ("it has no kernels for this processor", "needs AVX2, or Arm with dot products")
    )


def _webgpu(how: CompileOptions, _folder: Path) -> CompileOptions:
    folder = str(_litert.package_folder())
    return replace(how, hardware=_litert.CPU | _GPU, environment=((_ENV_RUNTIME_FOLDER, folder),))


def _openvino(device: int) -> _Setting:
    def setting(how: CompileOptions, _folder: Path) -> CompileOptions:
        vendor = _litert.package_folder() / "vendors" / "intel_openvino"
        folders = ((_ENV_COMPILER_FOLDER, str(vendor / "compiler")), (_ENV_DISPATCH_FOLDER, str(vendor / "dispatch")))
        graphs = "".join(f"graph.{index}.graph_backend = {device}\n" for index in range(_MOST_GRAPHS))
        opaque = (("intel_openvino", graphs),)
        return replace(how, hardware=_litert.CPU | _NPU, environment=folders, opaque=opaque)

    return setting


def _xnnpack(toml: str) -> _Setting:
    """`{folder}` in the text is where files may be written."""
    return lambda how, folder: replace(how, opaque=(("xnnpack", toml.format(folder=folder)),))


def _kernels(kernels: str) -> _Setting:
    return lambda how, _: replace(how, kernels=kernels)


_SETTINGS: dict[str, _Setting] = {
    "xnnpack": lambda how, _: how,
    "xnnpack-cache": _xnnpack('weight_cache_file_path = "{folder}/weights.xnnpack"\n'),
    "xnnpack-fp16": _xnnpack(f"flags = {_FORCE_FP16}\n"),
    "ynnpack": _xnnpack("enable_ynnpack = true\n"),
    "builtin": _kernels("builtin"),
    "reference": _kernels("reference"),
    "litesmith": _kernels("delegate"),
    "webgpu": _webgpu,
    **{name: _openvino(device) for name, device in _OPENVINO_DEVICES.items()},
}


def _with_delegate(how: CompileOptions, accelerator: Accelerator) -> CompileOptions:
    from litesmith.runtime._accelerators_delegate import registrations

    register = registrations(accelerator.library, accelerator.options)
    return replace(how, environment=((_litert.ENV_AUTO_REGISTER_ACCELERATORS, 0),), accelerators=register)
