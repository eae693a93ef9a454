"""Real clients in Pods against handlers behind VIPs: isolation, volume, bad handlers, spoofing, ICMP."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from labcli import TWO_VPCS, LabCli, pod

pytestmark = pytest.mark.root

HANDLERS = Path(__file__).with_name("handlers.py")
VIP = "10.80.0.3"
BULK, WHO, RAISING, NEVER_READS, NEVER_CLOSES, FLOODS = range(8000, 8006)
COLOUR = 9000
MIB = 1 << 20
SERVER = ["python3", "-m", "http.server", "--bind", "0.0.0.0", "80"]

MANIFESTS = (
    TWO_VPCS
    + "---\napiVersion: juneau.loutres.me/v1alpha1\nkind: Subnet\nmetadata: {name: blue2}\n"
    + "spec: {vpc: blue, cidr: 10.80.1.0/24}\n"
    + pod("blue", "blue", "10.80.0.10")
    + pod("mate", "blue", "10.80.0.11", SERVER)
    + pod("far", "blue2", "10.80.1.10", SERVER)
    + pod("green", "green", "10.80.0.10")
    + pod("alone", "green", "10.80.0.12", SERVER)
)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCli]:
    lab = LabCli(tmp_path_factory.mktemp("town"))
    services = [
        part for name in ("Handlers", "Blue", "Green") for part in ("--service", f"{HANDLERS}:{name}")
    ]
    status = lab.up(MANIFESTS, *services)
    assert not [row for row in status["services"] if row["error"]]
    yield lab
    lab.run("lab", "down")
    assert lab.leftovers() == []


def curl(town: LabCli, where: str, url: str, *options: str, timeout_s: int = 20) -> str:
    done = town.in_pod(where, "curl", "-sS", "--max-time", str(timeout_s), *options, url)
    assert done.returncode == 0, done.stderr + town.log()
    return str(done.stdout)


def tenant(town: LabCli, vpc: str, subnet: str) -> str:
    status = town.json("lab", "status")
    vpc_id = next(row["vpcID"] for row in status["vpcs"] if row["name"] == vpc)
    return f"{vpc_id}/{next(row['vni'] for row in status['subnets'] if row['name'] == subnet)}"


def drops(town: LabCli) -> dict[str, int]:
    found: dict[str, int] = town.json("drops")["plane"]
    return found


def service_events(town: LabCli, vpc: str) -> dict[str, int]:
    rows = town.json("drops")["services"]
    found: dict[str, int] = next(r["events"] for r in rows if (r["service"], r["vpc"]) == ("handlers", vpc))
    return found


def test_one_handler_the_right_tenant(town: LabCli):
    for where in ("blue", "green"):
        assert curl(town, where, f"http://{VIP}:{WHO}/").strip() == tenant(town, where, where)
    assert curl(town, "far", f"http://10.80.1.3:{WHO}/").strip() == tenant(town, "blue", "blue2")


def test_same_vip_and_port_other_handler(town: LabCli):
    assert curl(town, "blue", f"http://{VIP}:{COLOUR}/") == "I am blue\n"
    assert curl(town, "green", f"http://{VIP}:{COLOUR}/") == "I am green\n"


def test_ping_and_closed_ports(town: LabCli):
    assert town.in_pod("blue", "ping", "-c", "3", "-i", "0.2", "-W", "2", VIP).returncode == 0
    started = time.monotonic()
    refused = town.in_pod("blue", "curl", "-sS", f"http://{VIP}:81/")
    assert refused.returncode == 7, refused.stderr
    assert time.monotonic() - started < 2
    probe = (
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(3)\n"
        f"s.connect(('{VIP}', 81)); s.send(b'x')\n"
        "try: s.recv(1)\n"
        "except ConnectionRefusedError: print('unreachable')"
    )
    assert town.in_pod("blue", "python3", "-c", probe).stdout == "unreachable\n"


def test_the_gateway_answers_pings_and_refuses_the_rest(town: LabCli):
    assert town.in_pod("blue", "ping", "-c", "2", "-i", "0.2", "-W", "2", "10.80.0.1").returncode == 0
    assert town.in_pod("blue", "curl", "-sS", "--max-time", "3", "http://10.80.0.1/").returncode == 7


@pytest.mark.parametrize("where", ["10.80.0.11", "10.80.1.10"], ids=["same subnet", "other subnet"])
def test_pods_of_one_vpc_reach_one_another(town: LabCli, where: str):
    assert town.in_pod("blue", "ping", "-c", "2", "-i", "0.2", "-W", "2", where).returncode == 0
    assert "Directory listing" in curl(
        town, "blue", f"http://{where}/", "--retry", "20", "--retry-connrefused"
    )


@pytest.mark.parametrize(
    "where", ["10.80.0.12", "10.80.1.10"], ids=["address of blue's range", "other subnet"]
)
def test_pods_of_different_vpcs_do_not(town: LabCli, where: str):
    """.12 exists in green only, .1.10 in blue only."""
    asking = "blue" if where == "10.80.0.12" else "green"
    assert town.in_pod(asking, "ping", "-c", "2", "-i", "0.2", "-W", "1", where).returncode == 1
    assert town.in_pod(asking, "curl", "-sS", "--max-time", "1", f"http://{where}/").returncode in (7, 28)


SPOOF = """
import socket, struct, sys
mac, ip = bytes.fromhex(sys.argv[1].replace(":", "")), socket.inet_aton(sys.argv[2])
gateway = bytes.fromhex(sys.argv[3].replace(":", ""))
def total(data):
    while data >> 16: data = (data & 0xffff) + (data >> 16)
    return data ^ 0xffff
def head(length):
    raw = struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, 1, 0, 64, 17, 0, ip, socket.inet_aton("10.80.0.2"))
    return raw[:10] + struct.pack("!H", total(sum(struct.unpack("!10H", raw)))) + raw[12:]
query = bytes.fromhex("000101000001000000000000") + b"\\x01x\\x05local\\0\\0\\x01\\0\\x01"
udp = struct.pack("!HHHH", 5353, 53, 8 + len(query), 0) + query
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("eth0", 0))
for _ in range(5):
    raw.send(gateway + mac + b"\\x08\\x00" + head(20 + len(udp)) + udp)
"""


@pytest.mark.parametrize("lie", ["mac", "ip", "none"])
def test_a_pod_cannot_speak_for_another(town: LabCli, lie: str):
    rows = {row["name"]: row for row in town.json("lab", "status")["pods"]}
    mac = rows["mate" if lie == "mac" else "blue"]["mac"]
    ip = rows["mate" if lie == "ip" else "blue"]["ip"]
    before = drops(town)
    queries = stack_count(town, "udp.received")
    sent = town.in_pod("blue", "python3", "-c", SPOOF, mac, ip, "02:00:00:00:00:00")
    assert sent.returncode == 0, sent.stderr
    after = drops(town)
    changed = {name: n - before.get(name, 0) for name, n in after.items() if n != before.get(name, 0)}
    arrived = stack_count(town, "udp.received") - queries
    if lie == "none":
        assert arrived == 5, "the probe itself works"
    else:
        assert changed == {f"bpf.spoofed_{lie}": 5}
        assert arrived == 0


BURST = """
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.settimeout(5)
s.connect(("10.80.0.2", 53))
queries = [n.to_bytes(2, "big") + bytes.fromhex("01000001000000000000") + b"\\x03%03d" % n
           + b"\\x03svc\\x07cluster\\x05local\\0\\0\\x01\\0\\x01" for n in range(200)]
for query in queries:
    s.send(query)
answers = [s.recv(9000) for _ in queries]
assert sorted(a[:2] for a in answers) == [q[:2] for q in queries], "each is answered"
assert all(a[12:].startswith(queries[int.from_bytes(a[:2], "big")][12:]) for a in answers), "its own question"
"""


def test_a_burst_of_queries_from_one_socket_is_answered_in_superframes(town: LabCli):
    answers, packets = stack_count(town, "udp.sent"), stack_count(town, "ip.sent")
    done = town.in_pod("blue", "python3", "-c", BURST)
    assert done.returncode == 0, done.stderr
    answers, packets = stack_count(town, "udp.sent") - answers, stack_count(town, "ip.sent") - packets
    assert answers == 200
    if kernel_release() >= (6, 2):
        assert packets < 200


def kernel_release() -> tuple[int, ...]:
    return tuple(map(int, os.uname().release.split(".")[:2]))


def stack_count(town: LabCli, name: str) -> int:
    return int(town.json("drops")["stacks"]["blue"].get(name, 0))


def start_client(town: LabCli, where: str, port: int, *, read: bool = True) -> subprocess.Popen[str]:
    """A TCP client that connects, says so, and stays until its stdin is closed."""
    script = (
        f"import socket, sys; s = socket.create_connection(('{VIP}', {port}), 5)\n"
        "s.send(b'x'); print('up', flush=True)\n" + ("s.recv(1)\n" if read else "") + "sys.stdin.read()"
    )
    client = town.start("lab", "exec", where, "--", "python3", "-c", script, stdin=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == "up\n"
    return client


def test_bad_handlers_hurt_nobody_else(town: LabCli):
    """While bad ones run, others answer; their errors are logged with the tenant and counted."""
    before = service_events(town, "blue")
    bad = [start_client(town, "blue", port, read=False) for port in (NEVER_READS, NEVER_CLOSES, FLOODS)]
    try:
        for _ in range(3):
            assert town.in_pod("blue", "curl", "-sS", "-m", "5", f"http://{VIP}:{RAISING}/").returncode != 0
        for where in ("blue", "green"):
            started = time.monotonic()
            assert curl(town, where, f"http://{VIP}:{WHO}/", timeout_s=5)
            assert (
                len(curl(town, where, f"http://{VIP}:{BULK}/4", "-o", "/dev/null", "-w", "%{size_download}"))
                > 0
            )
            assert time.monotonic() - started < 5
        states = [(c["state"], c["local"]) for c in town.json("conns") if c["vpc"] == "blue"]
        for port in (NEVER_READS, NEVER_CLOSES, FLOODS):
            assert ("ESTABLISHED", f"{VIP}:{port}") in states
    finally:
        for client in bad:
            client.communicate(timeout=20)
    assert service_events(town, "blue")["tcp.handler_errors"] - before.get("tcp.handler_errors", 0) == 3
    vpc_id, vni = tenant(town, "blue", "blue").split("/")
    assert f"vpc={vpc_id} subnet={vni} client=10.80.0.10" in town.log()
    assert "RuntimeError: on purpose" in town.log()


@pytest.mark.slow
@pytest.mark.parametrize("offload", ["on", "off"])
def test_200_mb_both_ways_in_both_vpcs_at_once(town: LabCli, tmp_path: Path, offload: str):
    for where in ("blue", "green"):
        for feature in ("tso", "gso", "tx"):
            town.in_pod(where, "ethtool", "-K", "eth0", feature, offload)
    data = os.urandom(MIB) * 200
    (tmp_path / "up").write_bytes(data)
    (tmp_path / "urls").write_text("")
    script = (
        f"curl -sS -m 100 -T {tmp_path}/up http://{VIP}:{BULK}/ && echo && "
        f"curl -sS -m 100 http://{VIP}:{BULK}/200 | sha256sum"
    )
    both = [town.start("lab", "exec", where, "--", "sh", "-c", script) for where in ("blue", "green")]
    down = hashlib.sha256(bytes(range(256)) * 4096 * 200).hexdigest()
    for process in both:
        out, err = process.communicate(timeout=110)
        assert out.split() == [hashlib.sha256(data).hexdigest(), down, "-"], err + town.log()


def test_no_connection_is_left(town: LabCli):
    """But those whose handlers still sleep: ending them is the idle limit's business, not the stack's."""
    asleep = tuple(f":{port}" for port in (NEVER_READS, NEVER_CLOSES))
    deadline = time.monotonic() + 10
    while left := [
        c for c in town.json("conns") if c["state"] != "TIME_WAIT" and not c["local"].endswith(asleep)
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def test_metrics_name_tenants_and_reasons(town: LabCli):
    url = "http://lab/metrics"
    text = subprocess.run(
        ["curl", "-sS", "--unix-socket", str(town.state.control), url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    vpc_id, vni = tenant(town, "blue", "blue").split("/")
    labels = f'event="tcp.served",service="handlers",subnet="{vni}",vpc="{vpc_id}"'
    assert f"juneau_service_events_total{{{labels}}}" in text
    assert 'juneau_plane_events_total{reason="bpf.spoofed_ip"}' in text
    assert f'juneau_stack_events_total{{event="ip.received",vpc="{vpc_id}"}}' in text


SERVED = """
import asyncio
async def handle(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\nfrom elsewhere\\n")
def datagram(request, responder):
    responder.write_response(request.payload[::-1])
"""


def test_serve_a_file_outside_the_repository(lab: LabCli):
    path = lab.write(SERVED, "elsewhere.py")
    lab.env.pop("JUNEAU_LAB")
    command = ["serve", f"{path}:handle", "--tcp", "8080", "--name", lab.settings.name, "--exec"]
    done = lab.run(*command, "curl -sS http://10.80.0.3:8080/; exit 9")
    assert (done.returncode, done.stdout) == (9, "from elsewhere\n"), done.stderr
    assert lab.leftovers() == []


def test_serve_udp_at_another_offset(lab: LabCli):
    path = lab.write(SERVED, "elsewhere.py")
    ask = (
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(3); "
        "s.connect(('10.80.0.7', 99)); s.send(b'abc'); print(s.recv(9).decode())"
    )
    done = lab.run(
        "serve", f"{path}:datagram", "--udp", "99", "--vip-offset", "7", "--name", lab.settings.name,
        "--exec", f'{sys.executable} -c "{ask}"',
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "cba\n"), done.stderr
