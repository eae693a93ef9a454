"""The loop alone: virtual time, order, and ends that are findings."""

# ruff: noqa: ASYNC110, ASYNC251, RUF006

from __future__ import annotations

import asyncio
import random
import threading
import time

import pytest

from juneau.testing.network import Deadlock, Livelock, Network, OutOfTime


@pytest.fixture
def network():
    with Network(seed=7) as net:
        net.host("one")
        yield net


def test_time_jumps_and_is_exact(network):
    async def main():
        loop = asyncio.get_running_loop()
        seen = [loop.time()]
        for delay in (0.1, 0.2, 3600):
            await asyncio.sleep(delay)
            seen.append(loop.time())
        return seen

    began = time.monotonic()
    assert network.run(main()) == [0, 0.1, 0.3, 3600.3]
    assert time.monotonic() - began < 5


def test_sleeping_until_a_deadline_gets_there(network):
    async def main():
        loop = asyncio.get_running_loop()
        deadline = 0.1 + 0.2  # a little more than 0.3
        while loop.time() < deadline:
            await asyncio.sleep(deadline - loop.time())
        return loop.time()

    assert network.run(main()) == 0.300001


def test_callbacks_of_one_host_keep_their_order(network):
    async def main():
        loop = asyncio.get_running_loop()
        seen = []
        for i in range(50):
            loop.call_soon(seen.append, i)
        for i in range(50, 100):
            loop.call_later(1, seen.append, i)
        await asyncio.sleep(2)
        return seen

    assert network.run(main()) == list(range(100))


def interleaving(seed):
    """The order in which five hosts' tasks, started together, run; and each host's own order."""
    seen = []

    async def work(host):
        for step in range(4):
            seen.append((host.name, step))
            await asyncio.sleep(0)

    async def main(hosts):
        await asyncio.gather(*(host.run(work(host)) for host in hosts))

    with Network(seed=seed) as net:
        hosts = [net.host(f"h{i}") for i in range(5)]
        net.run(main(hosts), on=hosts[0])
    return seen


def test_the_seed_orders_hosts_and_leaves_each_hosts_own_order():
    orders = [interleaving(seed) for seed in range(10)]
    assert interleaving(3) == orders[3]
    assert len({tuple(order) for order in orders}) > 5
    for order in orders:
        for name in {name for name, _ in order}:
            assert [step for host, step in order if host == name] == [0, 1, 2, 3]


def test_a_wait_for_nothing_is_a_deadlock_that_names_the_tasks(network):
    async def forgotten():
        await asyncio.get_running_loop().create_future()

    async def main():
        task = asyncio.create_task(forgotten(), name="lost")
        await asyncio.sleep(5)
        await task

    with pytest.raises(Deadlock) as caught:
        network.run(main())
    assert caught.value.now == 5
    text = str(caught.value)
    assert "one: Task-1 test_a_wait" in text
    assert "one: lost test_a_wait" in text
    assert "in forgotten" in text


def test_the_timeout_is_virtual_and_names_the_tasks(network):
    async def main():
        while True:
            await asyncio.sleep(1)

    with pytest.raises(OutOfTime, match=r"at 60\.000000 s: the virtual time is up(.|\n)*in main") as caught:
        network.run(main(), timeout=60)
    assert isinstance(caught.value, TimeoutError)
    assert network.now >= 60


def test_a_spinning_program_is_reported(network):
    async def main():
        while True:
            await asyncio.sleep(0)

    with pytest.raises(Livelock, match="time stands still"):
        network.run(main(), timeout=60)


def test_a_network_runs_more_than_once_and_cancels_what_is_left(network):
    ended = []

    async def background():
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append(network.now)

    async def main():
        asyncio.create_task(background())
        await asyncio.sleep(1)
        return "done"

    assert network.run(main()) == "done"
    assert network.run(main()) == "done"
    assert ended == [1, 2]


def test_asyncio_timeouts(network):
    async def main():
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await asyncio.sleep(10)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10), 4)
        return loop.time()

    assert network.run(main()) == 7


def test_time_and_chance_are_the_networks_while_it_runs():
    async def main():
        await asyncio.sleep(86_400)
        return time.time(), time.monotonic(), random.random(), random.SystemRandom().random()

    def once(seed):
        with Network(seed=seed) as net:
            net.host("one")
            return net.run(main())

    state = random.getstate()
    real = time.time()
    first = once(1)
    assert first[:2] == (1_767_225_600 + 86_400, 86_400)
    assert once(1) == first
    assert once(2)[2:] != first[2:]
    assert random.getstate() == state
    assert abs(time.time() - real) < 60


def test_other_threads_keep_the_real_clock(network):
    seen = []
    outside, stop = threading.Event(), threading.Event()

    def watch():
        outside.set()
        stop.wait(10)
        seen.append(time.time())

    thread = threading.Thread(target=watch)
    thread.start()
    outside.wait(10)

    async def main():
        await asyncio.sleep(1)
        stop.set()
        while not seen:  # the other thread runs in real time
            time.sleep(0)
        return time.time()

    assert network.run(main()) == 1_767_225_601
    thread.join(10)
    assert abs(seen[0] - time.time()) < 60


def test_time_sleep_stalls_the_loop(network):
    async def main():
        loop = asyncio.get_running_loop()
        late = []
        loop.call_later(1, lambda: late.append(loop.time()))
        time.sleep(5)
        await asyncio.sleep(0.5)
        return late

    assert network.run(main()) == [5]


def test_work_for_an_executor_takes_turns_and_virtual_time(network):
    def work(n):
        time.sleep(n)
        return n, time.monotonic()

    async def main():
        return await asyncio.gather(asyncio.to_thread(work, 2), asyncio.to_thread(work, 1))

    assert network.run(main()) == [(2, 2), (1, 1)]


def test_executor_errors_arrive(network):
    def work():
        raise KeyError("x")

    async def main():
        with pytest.raises(KeyError):
            await asyncio.to_thread(work)
        with pytest.raises(TypeError):
            await asyncio.get_running_loop().run_in_executor(None, 5)

    network.run(main())


def test_threads_wait_on_threading_primitives(network):
    def consumer(condition, box, out):
        with condition:
            while not box:
                condition.wait()
            out.append((box.pop(), time.monotonic()))

    async def main():
        condition, box, out = threading.Condition(), [], []
        thread = threading.Thread(target=consumer, args=(condition, box, out))
        thread.start()
        await asyncio.sleep(3)
        with condition:
            box.append("bread")
            condition.notify()
        await asyncio.to_thread(thread.join)
        assert not thread.is_alive()
        event = threading.Event()
        assert not await asyncio.to_thread(event.wait, 2)
        return out, time.monotonic()

    assert network.run(main()) == ([("bread", 3)], 5)


def test_a_thread_may_wait_for_the_loop(network):
    async def double(n):
        await asyncio.sleep(1)
        return 2 * n

    def ask(loop):
        return asyncio.run_coroutine_threadsafe(double(21), loop).result()

    async def main():
        return await asyncio.to_thread(ask, asyncio.get_running_loop())

    assert network.run(main()) == 42


def test_threads_from_outside_are_refused(network):
    errors = []

    def meddle(loop, done):
        try:
            loop.call_soon_threadsafe(print)
        except RuntimeError as exc:
            errors.append(str(exc))
        done.append(1)

    go, done = threading.Event(), []

    async def main():
        go.set()
        while not done:
            time.sleep(0)

    def outside():
        go.wait(10)
        meddle(network.loop, done)

    thread = threading.Thread(target=outside)
    thread.start()
    network.run(main())
    thread.join(10)
    assert "outside the network" in errors[0]


def test_task_names_and_hashes_do_not_depend_on_the_process():
    async def main():
        tasks = {asyncio.create_task(asyncio.sleep(1)) for _ in range(20)}
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in done]

    def once():
        with Network() as net:
            net.host("one")
            return net.run(main())

    first = once()
    assert len(first) == 20
    assert once() == first


@pytest.mark.parametrize(
    "call",
    [
        lambda loop: loop.create_unix_server(asyncio.Protocol, "/tmp/x"),
        lambda loop: loop.create_unix_connection(asyncio.Protocol, "/tmp/x"),
        lambda loop: loop.subprocess_exec(asyncio.SubprocessProtocol, "true"),
        lambda loop: loop.subprocess_shell(asyncio.SubprocessProtocol, "true"),
        lambda loop: loop.connect_read_pipe(asyncio.Protocol, None),
        lambda loop: loop.connect_write_pipe(asyncio.Protocol, None),
    ],
)
def test_what_reaches_outside_is_refused_with_the_way(network, call):
    async def main():
        await call(asyncio.get_running_loop())

    with pytest.raises(NotImplementedError, match=r"the network in this process has no .* \(.+\)"):
        network.run(main())
