# SPDX-License-Identifier: Apache-2.0
"""Rewrite src/litesmith/model/_schema.py from a TensorFlow Lite schema.fbs.

    python tools/update_schema.py path/to/tflite/converter/schema/schema.fbs "LiteRT commit f6745779"

Run it when a new LiteRT adds operators, then run the tests: one compares the result with the schema in the wheel.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "src" / "litesmith" / "model" / "_schema.py"
HEADER = '''# SPDX-License-Identifier: Apache-2.0
"""The tables, unions and enumerations of the `.tflite` format, as data.

Source: tflite/converter/schema/schema.fbs, {origin}. Written by tools/update_schema.py; do not edit.

An enumeration is its scalar type, then its names, counted from 0 or from the last `=value`. A union is its tables,
whose tags count from 1. A table is a line of fields in slot order, `name:type` or `name:type=default`. A type is a scalar
(bool, i8 … f64), `str`, an enumeration, a table, a union (it takes two slots: its tag, then its value), or `[type]` for
a vector; `!` marks a field that is no longer used and `@16` one whose bytes start at a multiple of 16.
"""

from __future__ import annotations

'''
SCALARS = {
    "bool": "bool", "byte": "i8", "int8": "i8", "ubyte": "u8", "uint8": "u8", "short": "i16", "int16": "i16",
    "ushort": "u16", "uint16": "u16", "int": "i32", "int32": "i32", "uint": "u32", "uint32": "u32", "long": "i64",
    "int64": "i64", "ulong": "u64", "uint64": "u64", "float": "f32", "double": "f64", "string": "str",
}  # fmt: skip


def scalar(name: str) -> str:
    inner = re.fullmatch(r"\[\s*(\w+)\s*\]", name)
    return f"[{SCALARS.get(inner[1], inner[1])}]" if inner else SCALARS.get(name, name)


def enumeration(body: str) -> dict[str, int]:
    members: dict[str, int] = {}
    following = 0
    for entry in filter(None, (part.strip() for part in body.split(","))):
        match = re.match(r"(\w+)\s*(?:=\s*(-?\w+))?", entry)
        assert match, entry
        following = int(match[2], 0) if match[2] else following
        members[match[1]] = following
        following += 1
    return members


def compact(members: dict[str, int]) -> str:
    following, words = 0, []
    for name, value in members.items():
        words.append(name if value == following else f"{name}={value}")
        following = value + 1
    return " ".join(words)


def field(line: str) -> str:
    match = re.match(r"(\w+)\s*:\s*(\[?\s*\w+\s*\]?)\s*(?:=\s*([-\w.]+))?\s*(?:\((.*)\))?$", line)
    assert match, line
    name, kind, default, notes = match[1], scalar(match[2].strip()), match[3], match[4] or ""
    aligned = re.search(r"force_align:\s*(\d+)", notes)
    mark = "!" if "deprecated" in notes else f"@{aligned[1]}" if aligned else ""
    return f"{name}:{kind}{mark}" + (f"={default}" if default else "")


def main(source: str, origin: str) -> None:
    text = re.sub(r"//[^\n]*", "", Path(source).read_text())
    enums, unions, tables = {}, {}, {}
    for name, kind, body in re.findall(r"enum\s+(\w+)\s*:\s*(\w+)\s*\{([^}]*)\}", text):
        enums[name] = (SCALARS[kind], enumeration(body))
    for name, body in re.findall(r"union\s+(\w+)\s*\{([^}]*)\}", text):
        unions[name] = re.findall(r"(\w+)(?:\s*\(\w+\))?\s*(?:,|$)", body.strip())
    for name, body in re.findall(r"table\s+(\w+)[^{]*\{([^}]*)\}", text):
        tables[name] = [field(line.strip()) for line in body.split(";") if line.strip()]

    lines = [HEADER.format(origin=origin), "ENUMS: dict[str, str] = {\n"]
    lines += [f'    "{name}": "{kind} {compact(members)}",\n' for name, (kind, members) in enums.items()]
    lines += ["}\n\nUNIONS: dict[str, str] = {\n"]
    lines += [f'    "{name}": "{" ".join(members)}",\n' for name, members in unions.items()]
    lines += ["}\n\nTABLES: dict[str, str] = {\n"]
    lines += [f'    "{name}": "{" ".join(fields)}",\n' for name, fields in tables.items()]
    TARGET.write_text("".join(lines) + "}\n")
    print(f"{TARGET}: {len(tables)} tables, {len(unions)} unions, {len(enums)} enumerations")


if __name__ == "__main__":
    main(*sys.argv[1:])
