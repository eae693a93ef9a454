"""The header and its Python mirror agree: sizes, offsets and the enum, as clang sees them."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from pathlib import Path
from struct import Struct
from typing import Any

import pytest

from juneau.packetplane.bpf import abi, loader

HEADER = loader.source_folder() / "include" / "juneau_abi.h"
needs_tools = pytest.mark.skipif(
    not shutil.which("clang") or not shutil.which("bpftool"),
    reason="no clang or no bpftool (apt install clang bpftool)",
)


@pytest.fixture(scope="module")
def btf(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("btf")
    source, built = folder / "layout.c", folder / "layout.o"
    declared = [f"struct {name} a_{name};" for name in abi.STRUCTS]
    source.write_text("\n".join([f'#include "{HEADER}"', *declared, "enum plane_counter a_counter;"]))
    includes = Path(f"/usr/include/{platform.machine()}-linux-gnu")
    command = ["clang", "-g", "-O2", "-target", "bpf", f"-I{includes}", "-c", str(source), "-o", str(built)]
    subprocess.run(command, check=True, timeout=30)
    dump = subprocess.run(
        ["bpftool", "-j", "btf", "dump", "file", str(built)], check=True, capture_output=True, timeout=30
    )
    types: list[dict[str, Any]] = json.loads(dump.stdout)["types"]
    return types


@needs_tools
@pytest.mark.parametrize("name", abi.STRUCTS)
def test_struct_has_the_size_and_offsets_that_c_gives_it(btf: list[dict[str, Any]], name: str) -> None:
    layout, fields = abi.STRUCTS[name]
    [found] = [entry for entry in btf if entry["kind"] == "STRUCT" and entry["name"] == name]
    members = [member for member in found["members"] if not member["name"].startswith("pad")]
    assert layout.size == found["size"]
    assert [member["name"] for member in members] == [field.rstrip("_") for field in fields]
    assert field_offsets(layout) == [member["bits_offset"] // 8 for member in members]


@needs_tools
def test_no_byte_of_a_struct_is_without_a_name(btf: list[dict[str, Any]]) -> None:
    """Hidden padding is what the kernel hashes and we do not write."""
    sizes = {entry["id"]: entry for entry in btf}
    for name in abi.STRUCTS:
        [found] = [entry for entry in btf if entry["kind"] == "STRUCT" and entry["name"] == name]
        assert sum(size_of(sizes, member["type_id"]) for member in found["members"]) == found["size"], name


@needs_tools
def test_counters_have_the_same_names_and_numbers(btf: list[dict[str, Any]]) -> None:
    [found] = [entry for entry in btf if entry["kind"] == "ENUM" and entry["name"] == "plane_counter"]
    in_c = {value["name"]: value["val"] for value in found["values"]}
    assert in_c.pop("PLANE_COUNTERS") == abi.COUNTER_SLOTS
    assert in_c == {which.name: which.value for which in abi.PlaneCounter}
    assert max(abi.PlaneCounter) < abi.COUNTER_SLOTS


def test_every_counter_is_used_by_the_program() -> None:
    source = (loader.source_folder() / "pod_egress.c").read_text()
    assert [which.name for which in abi.PlaneCounter if which.name not in source] == []


def test_vnis_that_agree_in_16_bits_have_different_stamps() -> None:
    assert abi.Stamp(abi.STAMP_TAG, 1, abi.STAMP_TAG, 5).pack().hex() == "024a00000001024a00000005"
    assert abi.Stamp(abi.STAMP_TAG, 0x10001, abi.STAMP_TAG, 5).pack().hex() == "024a00010001024a00000005"


def test_values_survive_packing() -> None:
    flow = abi.FlowKey(0x10001, b"\x0a\x50\0\x0a", b"\x0a\x50\0\x02", 40_000, 53, 17)
    record = abi.FlowValue(1, 2, 3, b"abcdef", b"ghijkl", 4, 5, 6, 7)
    assert abi.FlowKey.unpack(flow.pack()) == flow
    assert abi.FlowValue.unpack(record.pack()) == record
    assert flow.pack()[12:16] == (40_000).to_bytes(2, "big") + (53).to_bytes(2, "big")


def size_of(types: dict[int, dict[str, Any]], type_id: int) -> int:
    entry = types[type_id]
    if entry["kind"] == "ARRAY":
        return int(entry["nr_elems"]) * size_of(types, entry["type_id"])
    return int(entry["size"]) if "size" in entry else size_of(types, entry["type_id"])


def field_offsets(layout: Struct) -> list[int]:
    """Offset of each value: pack a mark into one field at a time and see where it lands."""
    marks = [b"\xff" * 16 if "s" in kind else 0xFF for kind in kinds(layout)]
    blank = [b"" if "s" in kind else 0 for kind in kinds(layout)]
    little = Struct("<" + layout.format.lstrip("=!"))
    packed = (little.pack(*blank[:n], mark, *blank[n + 1 :]) for n, mark in enumerate(marks))
    return [raw.index(b"\xff") for raw in packed]


def kinds(layout: Struct) -> list[str]:
    """`=II4s6s2x` → I I 4s 6s."""
    found, count = [], ""
    for letter in layout.format.lstrip("=!"):
        if letter.isdigit():
            count += letter
            continue
        found += [] if letter == "x" else [count + letter] if letter == "s" else [letter] * int(count or 1)
        count = ""
    return found
