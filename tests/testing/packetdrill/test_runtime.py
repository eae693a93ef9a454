"""The runner notices what it should, and says so in words."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from juneau.cli.main import app
from juneau.netstack.types import Endpoint
from juneau.testing import packets
from juneau.testing.packetdrill import PROFILES, run_script, run_text, summary, to_json, to_junit
from juneau.testing.packetdrill.flow import Flow
from juneau.testing.packetdrill.parser import parse
from juneau.testing.packetdrill.report import Mismatch
from juneau.testing.packetdrill.runtime import Runner
from juneau.testing.packetdrill.sockets import Socket, SocketLayer

ESTABLISHED = """
    0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
   +0 bind(3, ..., ...) = 0
   +0 listen(3, 1) = 0
   +0 < S 0:0(0) win 32792 <mss 1000,sackOK,TS val 700 ecr 0,nop,wscale 7>
   +0 > S. 0:0(0) ack 1 <mss 1460,sackOK,TS val 100 ecr 700,nop,wscale 8>
  +.1 < . 1:1(0) ack 1 win 257 <nop,nop,TS val 800 ecr 100>
   +0 accept(3, ..., ...) = 4
"""
SENT = ESTABLISHED + "   +0 write(4, ..., 100) = 100\n"
RIGHT = SENT + "   +0 > P. 1:101(100) ack 1 win 1054 <nop,nop,TS val 200 ecr 800>\n"


def test_it_passes_where_all_is_right():
    result = run_text(RIGHT)
    assert result.passed, result.diff()
    assert result.notes == []
    assert result.time == 100_000


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("> . 1:101(100) ack 1 <...>", "flags P. instead of ."),
        ("> P. 2:102(100) ack 1 <...>", "seq 1 instead of 2"),
        ("> P. 1:101(100) ack 2 <...>", "ack 1 instead of 2"),
        ("> P. 1:101(100) ack 1 win 9 <...>", "win 1054 instead of 9"),
        ("> P. 1:91(90) ack 1 <...>", "100 bytes instead of 90"),
        ("> P. 1:201(200) ack 1 <...>", "segments do not follow one another"),  # but a retransmission
        ("> P. 1:101(100) ack 1", "options"),
        ("> P. 1:101(100) ack 1 <nop,nop,TS val 200 ecr 799>", "options"),
        ("> [ect0] P. 1:101(100) ack 1 <...>", "ecn 0 instead of 2"),
        ("> (ttl 9) P. 1:101(100) ack 1 <...>", "ttl 64 instead of 9"),
        ("> udp (100)", "no packet was sent"),
    ],
)
def test_a_packet_that_differs(line: str, what: str):
    result = run_text(f"{SENT}   +0 {line}\n")
    assert result.status == "fail"
    assert what in result.what
    assert result.line == 10


@pytest.mark.parametrize(
    ("time", "passes"),
    [("+.004", True), ("+.005", False), ("+0~+.001", True), ("0.096", True), ("0.08", False), ("*", True)],
)
def test_a_packet_at_another_time(time: str, passes: bool):
    result = run_text(f"{SENT}   {time} > P. 1:101(100) ack 1 <...>\n")
    assert result.passed == passes
    assert passes or result.what == "the packet came at the wrong time"


def test_tolerance_grows_with_the_interval():
    late = "  +.{}~+.{} > P. 1:101(100) ack 1 <...>\n"
    again = RIGHT.replace(" win 1054", "")
    exact = next(
        ms for ms in range(200, 600) if run_text(again + f"+.{ms} > P. 1:101(100) ack 1 <...>").passed
    )
    assert run_text(again + late.format(exact + 5, exact + 6)).passed
    assert not run_text("--tolerance_percent=0\n" + again + late.format(exact + 95, exact + 96)).passed


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("+0 read(4, ..., 10) = 10", "read blocks"),
        ("+0 read(9, ..., 10) = 10", "read returned -1 EBADF"),
        ("+0 close(4) = -1 EBADF (Bad)", "close returned 0"),
        ("+0 getsockopt(4, SOL_TCP, TCP_MAXSEG, [900], [4]) = 0", "TCP_MAXSEG is not as expected"),
        ("+0 ioctl(4, SIOCINQ, [5]) = 0", "SIOCINQ is not as expected"),
        ("+0 %{ assert tcpi_snd_cwnd == 11, tcpi_snd_cwnd }%", "assertion failed"),
        ("+0 connect(3, ..., ...) = 0", "connect"),
        ("0.05 close(4) = 0", "the event came at the wrong time"),
        (
            "+0...0.150 read(4, ..., 10) = 10\n  +.2 < P. 1:11(10) ack 1 win 9 <nop,nop,TS val 900 ecr 100>",
            "wrong time",
        ),
    ],
)
def test_a_call_that_differs(line: str, what: str):
    result = run_text(ESTABLISHED + line + "\n")
    assert result.status == "fail"
    assert what in result.what


@pytest.mark.parametrize(
    "line",
    ["+0 mmap(1) = 0", "+0 fcntl(4, F_MAGIC) = 0", "+0 %{ assert tcpi_magic }%", "+0 < icmp mystery"],
)
def test_what_the_runner_cannot_do_is_no_failure_of_the_stack(line: str):
    assert run_text(ESTABLISHED + line).status == "unsupported"


def test_a_packet_that_nobody_asked_for_meets_the_next_line_or_a_note():
    extra = SENT + "  +.01 < P. 1:11(10) ack 1 win 257 <nop,nop,TS val 900 ecr 100>\n"
    assert run_text(extra + "   +0 > . 1:1(0) ack 11 <...>").status == "fail"
    assert "packets at the end" in run_text(extra).notes[-1]


def test_a_blocking_call_returns_when_its_event_comes():
    text = ESTABLISHED + "+0...0.250 read(4, ..., 10) = 10\n"
    packet = "+.15 < P. 1:11(10) ack 1 win 9 <nop,nop,TS val 900 ecr 100>\n"
    assert (
        run_text(text + packet).status == "fail"
    )  # 0.250 is absolute on the scale of a relative event: 0.35
    assert run_text(text + packet.replace("+.15", "+.25")).passed


class Corrupting:
    """Stands in for a connection that hands out wrong bytes."""

    recv_queue_bytes = 3
    at_eof = False

    def read(self, limit: int) -> list[bytes]:
        return [b"\0\1\3"]


def test_bytes_read_are_checked_against_the_stream():
    layer = SocketLayer(None, 0)  # type: ignore[arg-type]
    with pytest.raises(Mismatch, match="not bytes 0"):
        layer.read(Socket(conn=Corrupting()), 3)  # type: ignore[arg-type]


def test_bytes_sent_are_checked_against_the_stream():
    flow = Flow(Endpoint(1, 1), Endpoint(2, 2), local_iss=0)
    runner = Runner(parse("0 close(3) = 0"), PROFILES["linux"])
    right, wrong = (
        packets.decode(packets.tcp(data, src=1, dst=2, sport=1, dport=2, seq=11))
        for data in (b"\x0a\x0b", b"\x0a\x0c")
    )
    runner._check_stream(right, flow)
    with pytest.raises(Mismatch, match="not what was written"):
        runner._check_stream(wrong, flow)


def test_sysctls_reach_the_stack_and_the_rest_is_noted():
    text = "`sysctl -q net.ipv4.tcp_timestamps=0 net.ipv4.tcp_strange=1\nrm -rf nothing`\n" + ESTABLISHED
    result = run_text(text.replace("TS val 100 ecr 700", "nop,nop,TS val 100 ecr 700"))
    assert result.what == "options"
    assert result.got == "S. 0:0(0) ack 1 win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 8>"
    assert result.notes == ["ignored sysctl tcp_strange=1"]


def test_profiles_differ():
    text = """
    0 socket(..., SOCK_STREAM, IPPROTO_TCP) = 3
   +0 fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0
   +0 connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)
#ifdef linux
   +0 > S 0:0(0) win 65535 <mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 8>
#endif
#ifdef STANDARD
   +0 > S 0:0(0) win 65535 <mss 1460,nop,wscale 6,sackOK,TS val 100 ecr 0>
#endif
    """
    for profile in ("linux", "freebsd"):
        result = run_text(text, profile=profile)
        assert result.passed, result.diff()
        assert result.trace[-1].endswith(">")


def test_a_result_reads_well():
    result = run_text(f"{SENT}   +0 > P. 1:101(100) ack 7 <...>\n", path="x.pkt")
    assert result.one_line() == "FAIL        x.pkt:10: ack 1 instead of 7"
    assert result.diff().splitlines()[-2:] == [
        "  - P. 1:101(100) ack 7 <...>",
        "  + P. 1:101(100) ack 1 win 1054 <nop,nop,TS val 200 ecr 800>",
    ]


def test_reports_for_programs():
    results = [
        run_text(RIGHT, path="good"),
        run_text("0 fork() = 0", path="odd"),
        run_text("0 ]", path="bad"),
    ]
    assert summary(results) == "1 of 3 passed, 1 unsupported, 1 error"
    assert [entry["status"] for entry in json.loads(to_json(results))] == ["pass", "unsupported", "error"]
    suite = ElementTree.fromstring(to_junit(results))
    assert (suite.get("tests"), suite.get("errors"), suite.get("skipped")) == ("3", "1", "1")
    assert [case.get("name") for case in suite] == ["good", "odd", "bad"]


def test_a_missing_file_is_an_error_not_an_exception(tmp_path):
    assert run_script(tmp_path / "none.pkt").status == "error"


def test_the_command(tmp_path):
    (tmp_path / "good.pkt").write_text(RIGHT)
    run = CliRunner().invoke(app, ["packetdrill", str(tmp_path), "--junit", str(tmp_path / "out.xml")])
    assert (run.exit_code, run.output.splitlines()[-1]) == (0, "1 of 1 passed")
    assert ElementTree.parse(tmp_path / "out.xml").getroot().get("tests") == "1"
    (tmp_path / "bad.pkt").write_text(SENT + "+0 > . 1:1(0) ack 1\n")
    run = CliRunner().invoke(app, ["packetdrill", str(tmp_path), "--output", "json"])
    assert run.exit_code == 1
    assert [entry["status"] for entry in json.loads(run.output)] == ["fail", "pass"]
    assert CliRunner().invoke(app, ["packetdrill", str(tmp_path), "--exclude", ".pkt"]).exit_code == 2
