"""`juneau capture` beside real traffic, read back by ourselves and by tshark."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from labcli import TWO_VPCS, LabCli, pod

from juneau.netstack.wire import pcapng

pytestmark = pytest.mark.root

HANDLERS = Path(__file__).with_name("handlers.py")
VIP = "10.80.0.3"
BULK, WHO = 8000, 8001
LOBBY = pod("blue", "blue", "10.80.0.10") + pod("mate", "blue", "10.80.0.11") + pod("green", "green")
ODD_PROTOCOL = (
    "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 200).sendto(b'odd', ('10.80.0.3', 0))"
)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCli]:
    lab = LabCli(tmp_path_factory.mktemp("captured"))
    lab.up(TWO_VPCS + LOBBY, "--service", f"{HANDLERS}:Handlers")
    yield lab
    lab.run("lab", "down")
    assert lab.leftovers() == []


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "it.pcapng"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def start(town: LabCli, file: Path, *options: str) -> subprocess.Popen[str]:
    process = town.start("capture", "-w", str(file), *options)
    until(lambda: file.exists() and file.stat().st_size > 0)
    return process


def finish(process: subprocess.Popen[str], number: int = signal.SIGINT) -> str:
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    return said


def ask(town: LabCli, where: str) -> None:
    assert town.in_pod(where, "curl", "-sS", "--max-time", "10", f"http://{VIP}:{WHO}/").returncode == 0


def packets(file: Path) -> list[pcapng.Packet]:
    return list(pcapng.read_packets(file.read_bytes()))


def interfaces(file: Path) -> set[str]:
    return {packet.interface for packet in packets(file)}


def test_names_directions_and_reasons(town: LabCli, file: Path):
    process = start(town, file)
    for where in ("blue", "green"):
        ask(town, where)
    assert town.in_pod("mate", "python3", "-c", ODD_PROTOCOL).returncode == 0
    until(lambda: "blue/mate" in interfaces(file))
    assert finish(process).splitlines()[-1] == f"{len(packets(file))} packets"

    assert interfaces(file) == {"blue/blue", "blue/mate", "green/green"}
    for packet in packets(file):
        from_vip = packet.data[12:16] == bytes([10, 80, 0, 3])
        assert from_vip == (packet.direction == pcapng.OUTBOUND), "inbound is from the Pod"
    dropped = {(p.interface, p.comment) for p in packets(file) if p.comment}
    assert dropped == {("blue/mate", "dropped: ip.unknown_protocol")}
    assert {row.interface for row in pcapng.read_statistics(file.read_bytes())} == interfaces(file)


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark")
def test_tshark_reads_it(town: LabCli, file: Path):
    process = start(town, file, "--vpc", "blue")
    ask(town, "blue")
    town.in_pod("mate", "python3", "-c", ODD_PROTOCOL)
    until(lambda: "blue/mate" in interfaces(file))
    finish(process, signal.SIGTERM)
    fields = ("frame.interface_name", "frame.packet_flags_direction", "frame.comment", "http.response.code")
    command = ["tshark", "-r", str(file), "-T", "fields", "-E", "separator=|", "-d", f"tcp.port=={WHO},http"]
    command += [word for field in fields for word in ("-e", field)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    rows = run.stdout.splitlines()
    assert "blue/blue|0x00000001||" in rows
    assert "blue/blue|0x00000002||200" in rows
    assert "blue/mate|0x00000001|dropped: ip.unknown_protocol|" in rows


def test_frames_that_reach_no_stack(town: LabCli, file: Path):
    tap = town.settings.node.tap_name
    frame = bytes(12) + b"\x08\x00" + bytes(50)
    process = start(town, file)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as outside:
        outside.bind((tap, 0))
        outside.send(frame)
    until(lambda: tap in interfaces(file))
    finish(process)
    assert [(p.data, p.direction, p.comment) for p in packets(file) if p.interface == tap] == [
        (frame, pcapng.INBOUND, "dropped: rx.no_stamp")
    ]


def test_one_pod_or_one_vpc_only(town: LabCli, tmp_path: Path):
    by_pod, by_vpc = tmp_path / "pod", tmp_path / "vpc"
    processes = [start(town, by_pod, "--pod", "blue"), start(town, by_vpc, "--vpc", "green")]
    for where in ("mate", "blue", "green"):
        ask(town, where)
    for process in processes:
        finish(process)
    assert interfaces(by_pod) == {"blue/blue"}
    assert interfaces(by_vpc) == {"green/green"}


def test_unknown_names(town: LabCli, file: Path):
    for option, said in (
        (
            "--pod",
            f"no pod x in lab {town.settings.name!r} (pods: default/blue, default/mate, default/green)",
        ),
        ("--vpc", "ask the lab for capture: no vpc x (vpcs: default, blue, green)"),
    ):
        done = town.run("capture", "-w", str(file), option, "x")
        assert done.returncode == 1
        assert done.stderr == f"error: {said}\n"
        assert not file.exists()


def test_a_count_and_a_duration_end_it(town: LabCli, file: Path):
    process = start(town, file, "--count", "3")
    ask(town, "blue")
    assert process.communicate(timeout=20)[1].splitlines()[-1] == "3 packets"
    assert process.returncode == 0
    assert len(packets(file)) == 3
    started = time.monotonic()
    assert town.run("capture", "-w", str(file), "--duration", "0.3").stderr.endswith("it\n0 packets\n")
    assert time.monotonic() - started > 0.3
    assert packets(file) == []


def test_a_slow_reader_loses_packets_and_hears_it(town: LabCli):
    process = town.start("capture", "-w", "-", text=False)
    assert process.stdout is not None
    head = os.read(process.stdout.fileno(), 100)
    done = town.in_pod(
        "blue", "curl", "-sS", "--max-time", "30", "-o", "/dev/null", f"http://{VIP}:{BULK}/64"
    )
    assert done.returncode == 0, "the stacks do not wait for whoever captures"
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=30)
    assert process.returncode == 0
    data = head + out
    lost = sum(row.dropped for row in pcapng.read_statistics(data))
    assert lost > 0
    taken = len(list(pcapng.read_packets(data)))
    assert said.decode().splitlines()[-1].startswith(f"{taken} packets, {lost} lost because")


def test_a_reader_that_has_enough_is_no_error(town: LabCli):
    process = town.start("capture", "-w", "-", text=False)
    assert process.stdout is not None
    os.read(process.stdout.fileno(), 100)
    process.stdout.close()
    ask(town, "blue")
    assert process.wait(20) == 0
    assert process.stderr is not None
    process.stderr.close()


def test_a_file_that_cannot_be_written(town: LabCli, tmp_path: Path):
    done = town.run("capture", "-w", str(tmp_path / "no" / "x"), "--duration", "1")
    assert (done.returncode, done.stderr) == (1, f"error: open {tmp_path}/no/x: No such file or directory\n")
    process = town.start("capture", "-w", "/dev/full")
    assert "error: write /dev/full: No space left on device\n" in process.communicate(timeout=20)[1]
    assert process.returncode == 1


def test_a_lab_that_ends_ends_its_captures(lab: LabCli, file: Path):
    lab.up(TWO_VPCS + LOBBY, "--service", f"{HANDLERS}:Handlers")
    process = start(lab, file)
    ask(lab, "blue")
    lab.ok("lab", "down")
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    assert len(packets(file)) > 5
    assert list(pcapng.read_statistics(file.read_bytes()))


def test_a_killed_lab_leaves_whole_blocks(lab: LabCli, file: Path):
    pid = lab.up(TWO_VPCS + LOBBY, "--service", f"{HANDLERS}:Handlers")["pid"]
    process = start(lab, file)
    ask(lab, "blue")
    until(lambda: len(packets(file)) > 5)
    os.kill(pid, signal.SIGKILL)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 1
    assert said.splitlines()[-1].startswith("error: capture: the lab ended it")
    assert len(packets(file)) > 5
