from __future__ import annotations

from juneau.testing.clock import VirtualClock


def test_calls_run_in_order_of_time_then_of_scheduling():
    clock, seen = VirtualClock(), []
    for name, when in (("c", 30), ("a", 10), ("b", 10)):
        clock.call_at(when, lambda name=name: seen.append((name, clock.now)))
    clock.advance(29)
    assert (seen, clock.now) == ([("a", 10), ("b", 10)], 29)
    clock.advance(1)
    assert seen[-1] == ("c", 30)


def test_a_call_may_schedule_another_within_the_same_advance():
    clock, seen = VirtualClock(5), []
    clock.call_later(10, lambda: clock.call_later(10, lambda: seen.append(clock.now)))
    clock.advance(20)
    assert seen == [25]


def test_a_cancelled_call_never_runs_and_is_no_deadline():
    clock, seen = VirtualClock(), []
    clock.call_at(10, lambda: seen.append("x")).cancel()
    assert clock.next_deadline() is None
    assert not clock.step()
    clock.advance(20)
    assert seen == []


def test_the_past_means_now():
    clock, seen = VirtualClock(100), []
    clock.call_at(1, lambda: seen.append(clock.now))
    clock.advance(0)
    assert seen == [100]


def test_step_stops_at_its_bound():
    clock, seen = VirtualClock(), []
    clock.call_at(10, lambda: seen.append(1))
    assert not clock.step(until=9)
    assert clock.now == 0
    assert clock.step(until=10)
