"""`advise`: threads, processes and nodes of a consumer group."""

import math

import pytest
from pyrocket.client.advice import advise
from pyrocket.errors import InvalidInputError

QUEUES = {"orders": 8, "payments": 4}


def test_threads_keep_all_cores_busy_while_listeners_wait():
    found = advise(1, 4, cpu_ms=2, wait_ms=6, queues=QUEUES)
    assert (found.threads, found.thread_max) == (16, 4)
    assert advise(1, 3, cpu_ms=0.1, wait_ms=0.2, queues={}).threads == 9


def test_a_listener_that_never_waits_needs_one_thread_for_each_core():
    found = advise(1, 4, cpu_ms=2, queues=QUEUES)
    assert (found.threads, found.thread_max) == (4, 1)


def test_the_cpu_time_bounds_the_throughput_of_a_process():
    few, many = (advise(1, cores, cpu_ms=2, wait_ms=50, queues={}) for cores in (1, 8))
    assert few.process_rate == many.process_rate == 500
    assert (few.node_rate, many.node_rate) == (500, 4000)


def test_nodes_and_processes_are_rounded_up_for_the_peak():
    found = advise(9000, 4, cpu_ms=2, queues=QUEUES)
    # 2,000 messages/s for each node of 4 processes.
    assert (found.nodes, found.processes) == (5, 4)
    assert advise(8000, 4, cpu_ms=2, queues=QUEUES).nodes == 4
    small = advise(600, 8, cpu_ms=2, queues=QUEUES)
    assert (small.nodes, small.processes) == (1, 2)


def test_a_measured_throughput_replaces_the_computed_one_up_to_the_bound_of_the_cores():
    plain = advise(9000, 4, node_rate=1000, queues=QUEUES)
    assert (plain.nodes, plain.processes) == (9, 1)
    assert (plain.threads, plain.thread_max, plain.process_rate) == (None, None, None)
    measured = advise(9000, 4, cpu_ms=2, node_rate=1000, queues=QUEUES)
    assert (measured.nodes, measured.processes, measured.threads) == (9, 2, 4)
    assert advise(9000, 4, cpu_ms=2, node_rate=9000, queues=QUEUES).nodes == 5


def test_long_waits_are_bounded_by_the_maximum_number_of_threads():
    found = advise(1000, 1, cpu_ms=0.5, wait_ms=1999.5, queues={})
    assert (found.threads, found.thread_max) == (4000, 1000)
    assert (found.process_rate, found.nodes) == (500, 2)


def test_orderly_concurrency_is_the_number_of_queues_and_more_consumers_are_idle():
    found = advise(9000, 4, cpu_ms=2, queues=QUEUES)
    assert found.queues == 12
    # 20 consumers share the queues of each topic; the largest topic has 8.
    assert found.idle == 12
    assert advise(9000, 4, cpu_ms=2, queues={"orders": 20}).idle == 0
    assert advise(9000, 4, cpu_ms=2, queues={}).idle == 0


@pytest.mark.parametrize(
    "given",
    [
        {"peak": 0},
        {"peak": math.nan},
        {"peak": math.inf},
        {"cores": 0},
        {"cpu_ms": 0},
        {"cpu_ms": -1},
        {"wait_ms": -1},
        {"wait_ms": math.nan},
        {"node_rate": 0},
        {"cpu_ms": None},
    ],
)
def test_invalid_numbers_are_errors_that_name_the_argument(given):
    with pytest.raises(InvalidInputError) as caught:
        advise(**{"peak": 1, "cores": 1, "cpu_ms": 1, "queues": {}, **given})
    assert caught.value.code == "ADVICE_INPUT"
    assert next(iter(given)) in str(caught.value)
