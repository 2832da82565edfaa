"""Random schedules of faults in the fake cluster of RocketMQ; see `support.namesrv_schedules`."""

import pytest
from support.namesrv_schedules import Schedule
from support.rocketmq_cluster import rocketmq
from support.shares import share


@pytest.mark.parametrize("seed", share(range(300), 12))
def test_each_message_is_read_once_or_its_loss_is_named(tmp_path, seed):
    version = ("4.9", "5.5")[seed % 2]
    with rocketmq(tmp_path, version=version, name_servers=2, brokers=("a", "b")) as made:
        schedule = Schedule(made, seed)
        schedule.run(schedule.kill_or_start, schedule.expand, schedule.expire)
        schedule.finish()
