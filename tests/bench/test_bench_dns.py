"""What dnsperf says, and name servers that are asked for a moment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.model import BenchError, Settings, Unavailable
from bench.peers import dns, process
from bench.workloads.dns import measure, parse

GOOD = """\
Statistics:

  Queries sent:         246615
  Queries completed:    246615 (100.00%)
  Queries lost:         0 (0.00%)

  Response codes:       NOERROR 246615 (100.00%)
  Average packet size:  request 50, response 66
  Run time (s):         2.000192
  Queries per second:   123295.663616

  Average Latency (s):  0.000371 (min 0.000015, max 0.003748)
  Latency StdDev (s):   0.000305
"""
DEAF = """\
[Timeout] Query timed out: msg id 0
Statistics:

  Queries sent:         100
  Queries completed:    0 (0.00%)
  Queries lost:         100 (100.00%)

  Response codes:       
  Queries per second:   0.000000
"""  # noqa: W291


def test_answers_and_their_rate():
    assert parse(GOOD) == (246_615, 123_295.663616)


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (DEAF, "0 queries answered, 0 of them with NOERROR, 100 lost"),
        (GOOD.replace("lost:         0", "lost:         1"), "1 lost"),
        (
            GOOD.replace("NOERROR 246615 (100.00%)", "NOERROR 246000 (99.75%), NXDOMAIN 615 (0.25%)"),
            "246000 of them with NOERROR",
        ),
        (GOOD.replace("NOERROR", "SERVFAIL"), "0 of them with NOERROR"),
        ("", "0 queries answered"),
    ],
)
def test_a_query_that_was_lost_or_refused_is_no_figure(said: str, means: str):
    with pytest.raises(BenchError, match=means):
        parse(said)


def test_every_server_is_told_the_same_names():
    for config in (dns.unbound_conf(), dns.dnsmasq_conf(), dns.corefile(), dns.manifests("v")):
        for name, ip in dns.addresses():
            assert name.partition(".")[0] in config
            assert ip in config


def test_a_peer_that_was_not_made_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(process, "CACHE", tmp_path)
    with pytest.raises(Unavailable, match="bench/prepare"):
        process.made("coredns", "coredns")
    (tmp_path / "coredns.reason").write_text("no go\n")
    with pytest.raises(Unavailable, match=r"^no go$"):
        process.made("coredns", "coredns")


def test_a_program_that_is_not_installed():
    with pytest.raises(Unavailable, match="no-such-program is not installed"):
        process.installed("no-such-program")


def test_a_server_that_ends_says_its_last_words():
    command = ["sh", "-c", "echo first; echo last >&2; exit 3"]
    with process.serving(command) as server, pytest.raises(Unavailable, match="ended: last"):
        server.until(lambda: server.says("ready"))


@pytest.mark.root
def test_dnsmasq_is_measured(require: Callable[[str], None]):
    try:
        process.installed("dnsmasq")
        process.installed("dnsperf")
    except Unavailable as lack:
        require(str(lack))
    asked(dns.dnsmasq(Settings()))


@pytest.mark.root
@pytest.mark.parametrize("name", ["unbound", "coredns"])
def test_others_are_measured_where_the_bench_was_prepared(name: str):
    try:
        asked(dns.PEERS[name](Settings()))
    except Unavailable as lack:
        pytest.skip(str(lack))


def asked(peer) -> None:
    with peer as up:
        found = measure(up, 0.2)
    assert found["dns"] > 1_000
    assert 0 < found["dns-cpu"] < 1_000
