"""A lab that is up: what its Pods are like, what the commands say of it, what cannot happen to it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from labcli import JUNEAU, TWO_VPCS, LabCli, pod, wait_until

pytestmark = pytest.mark.root

PODS = (
    TWO_VPCS
    + pod("a", "blue", "10.80.0.10", ["sleep", "987653"])
    + pod("b", "green", "10.80.0.10")
    + pod("talks", "blue", command=["sh", "-c", "echo out; echo err >&2; exit 3"])
)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabCli]:
    lab = LabCli(tmp_path_factory.mktemp("shared"))
    lab.up(PODS)
    yield lab
    removed = lab.json("lab", "down")["removed"]
    assert removed[0].startswith(f"lab {lab.settings.name!r} (pid ")
    assert lab.leftovers() == []


def pods_of(lab: LabCli) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in lab.json("lab", "status")["pods"]}


def test_status(shared: LabCli):
    pods = pods_of(shared)
    assert {name: (row["vpc"], row["ip"]) for name, row in pods.items()} == {
        "a": ("blue", "10.80.0.10"), "b": ("green", "10.80.0.10"), "talks": ("blue", "10.80.0.4"),
    }  # fmt: skip
    assert pods["a"]["containers"]["main"]["state"] == "running"
    assert pods["b"]["containers"]["main"]["state"] == "no command"
    table = shared.ok("lab", "status").splitlines()
    assert ["default/a", "blue", "blue", "10.80.0.10", "main:", "running"] in [line.split() for line in table]


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "kill -9 $$"], -9),
        (["no-such"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_exec_has_the_commands_status(shared: LabCli, command: list[str], status: int):
    assert shared.in_pod("a", *command).returncode == status


def test_exec_sees_the_pods_own(shared: LabCli):
    script = "hostname; echo /sys/class/net/*; cat /etc/resolv.conf; cat"
    assert shared.in_pod("default/a", "sh", "-c", script, input="stdin\n").stdout.splitlines() == [
        "a",
        "/sys/class/net/eth0 /sys/class/net/lo",
        "nameserver 10.80.0.2",
        "search default.svc.cluster.local svc.cluster.local cluster.local",
        "options ndots:5",
        "stdin",
    ]
    assert Path("/etc/resolv.conf").read_text().find("10.80.0.2") < 0, "the machine's own is untouched"


def test_exec_in_no_pod(shared: LabCli):
    done = shared.in_pod("c", "true")
    assert done.returncode == 1
    known = "default/a, default/b, default/talks"
    assert done.stderr == f"error: no pod c in lab {shared.settings.name!r} (pods: {known})\n"


def test_a_pod_has_its_address_mac_and_one_route_given(shared: LabCli):
    script = "ip -o address show eth0; ip link show eth0; ip route show default"
    shown = shared.in_pod("a", "sh", "-c", script).stdout
    assert "inet 10.80.0.10/24" in shown
    assert "inet6" not in shown
    assert f"link/ether {pods_of(shared)['a']['mac']}" in shown
    assert "mtu 1450" in shown
    assert "default via 10.80.0.1 dev eth0" in shown


def test_output_of_commands_goes_to_a_file_each(shared: LabCli):
    wait_until(lambda: pods_of(shared)["talks"]["containers"]["main"]["state"] == "exited 3")
    log = Path(pods_of(shared)["talks"]["containers"]["main"]["log"])
    assert sorted(log.read_text().splitlines()) == ["err", "out"]


def test_two_labs_side_by_side(shared: LabCli, lab: LabCli):
    tap = shared.json("lab", "status")["tap"]
    assert lab.up(PODS)["tap"] != tap
    lab.ok("lab", "down")
    assert shared.in_pod("a", "true").returncode == 0


def test_up_twice_says_so(shared: LabCli):
    pid = shared.json("lab", "status")["pid"]
    again = shared.run("lab", "up", "-f", shared.write(PODS))
    assert again.returncode == 1
    (line,) = again.stderr.splitlines()
    assert line.startswith(f"error: lab {shared.settings.name!r} is up already (pid {pid}, since 20")
    assert f"juneau lab down --name {shared.settings.name}" in line
    assert shared.json("lab", "status")["pid"] == pid, "the first is unharmed"


def test_a_lab_with_another_state_folder_is_left_alone(shared: LabCli, tmp_path: Path):
    (tmp_path / "lab.yaml").write_text(PODS)
    other = LabCli(tmp_path / "other")
    other.env |= {"JUNEAU_LAB": shared.settings.name}
    for command in (["lab", "up", "-f", str(tmp_path / "lab.yaml")], ["lab", "down"]):
        done = other.run(*command)
        assert done.returncode == 1
        assert "JUNEAU_STATE_DIR" in done.stderr
    assert shared.in_pod("a", "true").returncode == 0


def test_exec_gives_the_command_a_terminal(shared: LabCli):
    script = f"{' '.join(JUNEAU)} lab exec a -- tty"
    done = subprocess.run(
        ["script", "-qec", script, "/dev/null"],
        env=shared.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.strip().startswith("/dev/pts/"), done
