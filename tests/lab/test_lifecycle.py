"""What a lab makes is there while it is up and gone afterwards, whatever ends it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from labcli import TWO_VPCS, LabCli, pod, wait_until

from juneau.app import netns

pytestmark = pytest.mark.root

# the middle process makes a child in a session of its own: only the namespace tells that it is the Pod's
STRAY = ["sh", "-c", "setsid sleep 987654 & sleep 987655"]
PODS = TWO_VPCS + pod("a", "blue", "10.80.0.10", STRAY) + pod("b", "green", "10.80.0.10")


def processes_of(lab: LabCli) -> list[int]:
    return netns.processes(netns.names(f"juneau.{lab.settings.name}."))


def alive(pid: int) -> bool:
    """A zombie is not: who reaps orphans is the machine's business."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


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


def test_a_lab_that_cannot_write_its_record_any_more_is_taken_down_all_the_same(lab: LabCli):
    lab.up(PODS)
    (lab.state.path / "state.json.new").mkdir()  # stands for a full disk
    removed = lab.json("lab", "down")["removed"]
    assert [what.split()[0] for what in removed] == ["lab"], "it did all of it by itself"
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


def test_nothing_to_take_down(lab: LabCli):
    assert lab.json("lab", "down") == {"lab": lab.settings.name, "removed": []}
    done = lab.run("lab", "exec", "a", "--", "true")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: lab {lab.settings.name!r} is not up (start it: juneau lab up")


def test_a_service_that_cannot_be_loaded_changes_nothing(lab: LabCli):
    done = lab.run("lab", "up", "-f", lab.write(PODS), "--service", "nowhere.py:X")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert lab.leftovers() == []
