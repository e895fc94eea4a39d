# SPDX-License-Identifier: Apache-2.0
"""Which devices there are: addresses, the devices file, tags, and mistakes in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from litesmith.devices import Device, DeviceList, devices_file, find, inventory, load
from litesmith.devices import _connection as connection
from litesmith.errors import DeviceError, UsageError

FILE = """
[pi]
url = "ssh://pi@raspberry:2222"
tags = ["pi4", "quiet"]
python = "/opt/venv/bin/python"
runtime = "installed"
folder = "/var/tmp/litesmith"
grace_s = 20
ssh_config = "lab.conf"

[phone]
url = "adb://0123456789"
benchmark_model = "/opt/benchmark_model"
"""


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    path = tmp_path / "devices.toml"
    path.write_text(FILE)
    return path


def test_the_devices_file_is_read(listed: Path) -> None:
    devices = load(listed)

    assert list(devices) == ["pi", "phone"]
    assert devices["pi"].address == ("ssh", "pi", "raspberry", 2222)
    assert devices["pi"].ssh_config == str(listed.parent / "lab.conf"), "relative to the file"
    assert devices["pi"].dask_resources() == {"device:pi": 1.0, "device:pi4": 1.0, "device:quiet": 1.0}
    assert devices["phone"].benchmark_model == "/opt/benchmark_model"
    assert find("pi", listed) == devices["pi"]


def test_the_user_s_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert load() == {}
    devices_file().parent.mkdir()
    devices_file().write_text(FILE)
    assert find("pi").tags == ("pi4", "quiet")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ssh://raspberry", ("ssh", None, "raspberry", None)),
        ("ssh://pi@10.0.0.7:22/", ("ssh", "pi", "10.0.0.7", 22)),
        ("ssh://pi@[fe80::1]:22", ("ssh", "pi", "fe80::1", 22)),
        ("adb://", ("adb", None, "", None)),
        ("local://", ("local", None, "", None)),
    ],
)
def test_addresses(url: str, address: tuple[object, ...]) -> None:
    assert find(url).address == address


@pytest.mark.parametrize(
    "url",
    [
        "ssh://",
        "ssh://-oProxyCommand=x",
        "ssh://-x@host",
        "ssh://a b",
        "ssh://host:0",
        "ssh://host:99999",
        "http://host",
        "ssh://h/x",
    ],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError):
        find(url)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[pi]\n", "needs a url"),
        ("pi = 1\n", "needs a url"),
        ("[pi\n", "cannot be read"),
        ('[pi]\nurl = "ssh://h"\ncolour = "red"\n', "unknown key 'colour'"),
        ('[pi]\nurl = "ssh://h"\ntags = "pi4"\n', "not of its kind"),
        ('[pi]\nurl = "ssh://h"\ngrace_s = "long"\n', "not of its kind"),
        ('[pi]\nurl = "ssh://h"\ngrace_s = 0.1\n', "grace_s must be 1 or more"),
        ('[pi]\nurl = "ssh://h"\nruntime = "docker"\n', "runtime must be one of"),
        ('[pi]\nurl = "telnet://h"\n', "is not an address"),
    ],
)
def test_mistakes_in_the_file_are_told_with_its_name(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "devices.toml").write_text(text)

    with pytest.raises(DeviceError, match=said) as caught:
        load(tmp_path / "devices.toml")
    assert "devices.toml" in str(caught.value)


def test_names_that_are_not_listed(listed: Path) -> None:
    with pytest.raises(UsageError, match=r"no device 'pie'; .* has: pi, phone"):
        find("pie", listed)
    with pytest.raises(DeviceError, match="no devices file"):
        load(listed.parent / "none.toml")


def test_ssh_is_called_strictly_and_without_questions() -> None:
    device = Device("pi", "ssh://pi@raspberry:2222", ssh_config="lab.conf")

    words = connection._command(device, "print(1)")

    assert words[0] == "ssh"
    assert "StrictHostKeyChecking=yes" in words
    assert "BatchMode=yes" in words
    assert words[words.index("-F") :] == [
        "-F", "lab.conf", "-l", "pi", "-p", "2222", "--", "raspberry", "exec python3 -c 'print(1)'",
    ]  # fmt: skip


def test_the_list_is_a_result(listed: Path) -> None:
    found = inventory(list(load(listed).values()))

    assert [entry.name for entry in found.devices] == ["pi", "phone"]
    assert DeviceList.from_json(found.to_json()) == found
