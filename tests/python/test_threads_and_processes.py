"""One plan from many threads, the GIL released while it runs, and the children of a fork."""

from __future__ import annotations

import multiprocessing
import threading
import time
from typing import Any

import numpy as np

import qkvfuse
from calls import arrays_of, bits, qwen_plan


def _result(plan: qkvfuse.Plan, seed: int) -> list[Any]:
    arrays = arrays_of(plan, 64, seed)
    plan.run(threads=2, **arrays)
    return [bits(arrays[name]) for name in ("q_out", "k_cache", "v_cache")]


def test_one_plan_runs_from_many_threads_with_arrays_of_any_strides() -> None:
    plan = qwen_plan()
    expected = [_result(plan, seed) for seed in range(8)]
    failures: list[str] = []

    def work(seed: int) -> None:
        for round_ in range(20):
            arrays = arrays_of(plan, 64, seed)
            if round_ % 2:
                arrays["x"] = np.asfortranarray(arrays["x"])
            plan.run(**arrays)
            for name, bits_ in zip(("q_out", "k_cache", "v_cache"), expected[seed], strict=True):
                if not np.array_equal(bits(arrays[name]), bits_):
                    failures.append(f"thread {seed}, round {round_}: {name}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_other_threads_run_meanwhile() -> None:
    plan = qkvfuse.Plan(
        x_dtype="float32",
        heads=(64, 8, 8),
        head_dim=128,
        rope="interleaved",
        path="general",
        q_norm="per_head",
    )
    arrays = arrays_of(plan, 4096)
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    begin = time.perf_counter()
    plan.run(threads=1, **arrays)
    end = time.perf_counter()
    stop.set()
    ticker.join()
    inside = [at for at in ticks if begin < at < end]
    # The switch interval is 5 ms: with the GIL held there would be none but at the ends.
    assert end - begin > 0.02 and len(inside) >= 5, (end - begin, len(inside))


def _child(seed: int, queue: Any) -> None:
    queue.put(_result(qwen_plan(), seed))


def _forks() -> None:
    """Runs, forks, and compares what children compute; raises what fails."""
    plan = qwen_plan()
    expected = [_result(plan, seed) for seed in range(2)]
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()
    for seed in range(2):
        child = context.Process(target=_child, args=(seed, queue))
        child.start()
        result = queue.get(timeout=60)
        child.join(timeout=60)
        assert child.exitcode == 0
        assert all(np.array_equal(a, b) for a, b in zip(result, expected[seed], strict=True))


def test_fork_after_a_run() -> None:
    # In a process of its own: other tests have imported libraries that must not be forked.
    parent = multiprocessing.get_context("spawn").Process(target=_forks)
    parent.start()
    parent.join(timeout=120)
    assert parent.exitcode == 0


def test_plans_go_to_spawned_workers() -> None:
    context = multiprocessing.get_context("spawn")
    plan = qwen_plan()
    with context.Pool(1) as pool:
        described = pool.apply(qkvfuse.Plan.describe, (plan, 3))
    assert described == plan.describe(3)
