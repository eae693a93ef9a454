"""What a lab makes is there while it is up and gone afterwards, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from labcli import JUNEAU, TWO_VPCS, LabCli, pod

from juneau.app import netns

pytestmark = pytest.mark.root

# the middle process makes a child in a session of its own: only the namespace tells that it is the Pod's
STRAY = ["sh", "-c", "setsid sleep 987654 & sleep 987655"]
PODS = TWO_VPCS + pod("a", "blue", "10.80.0.10", STRAY) + pod("b", "green", "10.80.0.10")


def wait_until(condition: object, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def processes_of(lab: LabCli) -> list[int]:
    return netns.processes(netns.names(f"juneau.{lab.settings.name}."))


def alive(pid: int) -> bool:
    """A zombie is not: who reaps orphans is the machine's business."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_up_status_exec_down(lab: LabCli):
    status = lab.up(PODS)
    assert status["phase"] == "ready"
    assert {p["name"]: (p["vpc"], p["ip"]) for p in status["pods"]} == {
        "a": ("blue", "10.80.0.10"), "b": ("green", "10.80.0.10"),
    }  # fmt: skip
    assert lab.json("lab", "status")["pods"][0]["containers"]["main"]["state"] == "running"

    assert lab.in_pod("a", "sh", "-c", "exit 7").returncode == 7
    assert lab.in_pod("default/a", "sh", "-c", "kill -9 $$").returncode in (137, -9)
    assert lab.in_pod("a", "no-such-command").returncode == 127
    assert lab.in_pod("a", "/etc/passwd").returncode == 126
    assert lab.in_pod("a", "cat", input="through\n").stdout == "through\n"
    assert lab.in_pod("a", "hostname").stdout == "a\n"
    assert (
        lab.in_pod("a", "sh", "-c", "echo /sys/class/net/*").stdout
        == "/sys/class/net/eth0 /sys/class/net/lo\n"
    )
    assert lab.in_pod("a", "cat", "/etc/resolv.conf").stdout.startswith(
        "nameserver 10.80.0.2\nsearch default.svc."
    )
    no_pod = lab.in_pod("c", "true")
    assert no_pod.returncode == 1
    assert no_pod.stderr == f"error: no pod c in lab {lab.settings.name!r} (pods: default/a, default/b)\n"

    removed = lab.json("lab", "down")["removed"]
    assert removed[0].startswith(f"lab {lab.settings.name!r} (pid ")
    assert lab.leftovers() == []


def test_a_pod_has_its_address_mac_and_one_route_given(lab: LabCli):
    status = lab.up(PODS)
    mac = status["pods"][0]["mac"]
    addresses = lab.in_pod("a", "ip", "-o", "address", "show", "eth0").stdout
    assert "inet 10.80.0.10/24" in addresses
    assert "inet6" not in addresses
    link = lab.in_pod("a", "ip", "link", "show", "eth0").stdout
    assert f"link/ether {mac}" in link
    assert "mtu 1450" in link
    assert lab.in_pod("a", "ip", "route").stdout.splitlines()[0].startswith("default via 10.80.0.1 dev eth0")


def test_output_of_commands_goes_to_a_file_each(lab: LabCli):
    status = lab.up(TWO_VPCS + pod("a", "blue", command=["sh", "-c", "echo out; echo err >&2; exit 3"]))
    main = status["pods"][0]["containers"]["main"]
    wait_until(lambda: lab.json("lab", "status")["pods"][0]["containers"]["main"]["state"] == "exited 3")
    assert sorted(Path(main["log"]).read_text().splitlines()) == ["err", "out"]


def test_kill_9_then_down_leaves_nothing(lab: LabCli):
    status = lab.up(PODS)
    wait_until(lambda: len(processes_of(lab)) >= 3)
    inside = processes_of(lab)
    os.kill(status["pid"], signal.SIGKILL)
    wait_until(lambda: not lab.state.busy)
    assert lab.leftovers(), "there is something to clear up"

    late = lab.run("lab", "status")
    assert late.returncode == 1
    assert "died without tearing down (clear up: juneau lab down" in late.stderr

    removed = lab.json("lab", "down")["removed"]
    assert lab.leftovers() == []
    assert not [pid for pid in inside if alive(pid)]
    kinds = {what.split()[0] for what in removed}
    assert {"veth", "network", "tap", "pin"} <= kinds, removed


def test_kill_9_then_up_clears_up_first(lab: LabCli):
    os.kill(lab.up(PODS)["pid"], signal.SIGKILL)
    wait_until(lambda: not lab.state.busy)
    process = lab.start("lab", "up", "-f", lab.write(PODS))
    assert process.stderr is not None
    assert process.stderr.readline().startswith(f"WARNING: lab {lab.settings.name} (pid ")
    assert "loading the packet plane" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert lab.leftovers() == []


def test_up_twice_says_so(lab: LabCli):
    status = lab.up(PODS)
    again = lab.run("lab", "up", "-f", lab.write(PODS))
    assert again.returncode == 1
    (line,) = again.stderr.splitlines()
    assert line.startswith(f"error: lab {lab.settings.name!r} is up already (pid {status['pid']}, since 20")
    assert f"juneau lab down --name {lab.settings.name}" in line
    assert lab.json("lab", "status")["pid"] == status["pid"], "the first is unharmed"


def test_two_labs_side_by_side(lab: LabCli, tmp_path: Path):
    other = LabCli(tmp_path)
    try:
        assert lab.up(PODS)["tap"] != other.up(PODS)["tap"]
    finally:
        other.run("lab", "down")
    assert other.leftovers() == []
    assert lab.in_pod("a", "true").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_a_foreground_lab_down(lab: LabCli, number: signal.Signals):
    process = lab.start("lab", "up", "-f", lab.write(PODS))
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("take it down:"):
            break
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert lab.leftovers() == []


def test_a_signal_while_starting_leaves_nothing(lab: LabCli):
    process = lab.start("lab", "up", "-f", lab.write(PODS))
    assert process.stderr is not None
    assert "loading the packet plane" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert lab.leftovers() == []


def test_run_exits_with_the_commands_status(lab: LabCli):
    path = lab.write(PODS)
    done = lab.run("lab", "run", "-f", path, "--", "sh", "-c", "juneau lab exec a hostname; exit 5")
    assert (done.returncode, done.stdout) == (5, "a\n"), done.stderr
    assert lab.leftovers() == []
    assert lab.run("lab", "run", "-f", path, "--", "no-such-command").returncode == 127
    assert lab.leftovers() == []


def test_terminated_run_ends_its_command(lab: LabCli):
    process = lab.start("lab", "run", "-f", lab.write(PODS), "--", "sh", "-c", "echo $$; exec sleep 987656")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert not alive(pid)
    assert lab.leftovers() == []


BAD = {
    "unknown kind": "---\napiVersion: v1\nkind: Gateway\nmetadata: {name: x}\n",
    "overlap": "---\napiVersion: juneau.loutres.me/v1alpha1\nkind: Subnet\nmetadata: {name: x}\n"
    "spec: {vpc: blue, cidr: 10.80.0.128/25}\n",
    "a /30": "---\napiVersion: juneau.loutres.me/v1alpha1\nkind: Subnet\nmetadata: {name: x}\n"
    "spec: {vpc: blue, cidr: 10.81.0.0/30}\n",
    "no subnet": "---\napiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
    "address taken": pod("x", "blue", "10.80.0.10"),
}


VERBS = [(["up"], kind) for kind in BAD] + [(["up", "--detach"], "a /30"), (["run"], "a /30")]


@pytest.mark.parametrize(("verb", "kind"), VERBS)
def test_bad_manifests_get_one_line_and_change_nothing(lab: LabCli, verb: list[str], kind: str):
    tail = ["--", "touch", str(lab.folder / "ran")] if verb == ["run"] else []
    done = lab.run("lab", *verb, "-f", lab.write(PODS + BAD[kind]), *tail)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {lab.folder}/lab.yaml:")
    assert " x: " in line.replace("default/x", "x")
    assert lab.leftovers() == []
    assert not (lab.folder / "ran").exists()


def test_a_lab_with_another_state_folder_is_left_alone(lab: LabCli, tmp_path: Path):
    lab.up(PODS)
    other = LabCli(tmp_path / "other")
    other.env |= {"JUNEAU_LAB": lab.settings.name}
    for command in (["lab", "up", "-f", str(tmp_path / "lab.yaml")], ["lab", "down"]):
        done = other.run(*command)
        assert done.returncode == 1
        assert "JUNEAU_STATE_DIR" in done.stderr
    assert lab.in_pod("a", "true").returncode == 0


def test_nothing_to_take_down(lab: LabCli):
    assert lab.json("lab", "down") == {"lab": lab.settings.name, "removed": []}
    done = lab.run("lab", "exec", "a", "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: lab {lab.settings.name!r} is not up (start it: juneau lab up")


def test_a_service_that_cannot_be_loaded_changes_nothing(lab: LabCli):
    done = lab.run("lab", "up", "-f", lab.write(PODS), "--service", "nowhere.py:X")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert lab.leftovers() == []


def test_exec_gives_the_command_a_terminal(lab: LabCli):
    lab.up(PODS)
    script = f"{' '.join(JUNEAU)} lab exec a -- tty"
    done = subprocess.run(
        ["script", "-qec", script, "/dev/null"],
        env=lab.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.strip().startswith("/dev/pts/"), done
