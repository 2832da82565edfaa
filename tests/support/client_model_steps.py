"""What happens in the schedules of `client_model`: each step is chosen at random."""

import asyncio

from support.client_model_members import FileOffsets, Running
from support.simulated_brokers import TIMEOUT_S

HOUR_MS = 3_600_000


class Steps:
    """The steps of one schedule. They start something, and don't wait for its end."""

    def __init__(self, schedule):
        self._schedule, self._random = schedule, schedule.random
        self._cluster, self._promises = schedule.cluster, schedule.promises
        self._members = schedule.members
        self._started = {}

    def all(self):
        """Return all steps, the frequent ones more than once."""
        return [
            *(self.send, self.send, self.send, self.join, self.join, self.leave),
            *(self.kill, self.join_and_kill, self.suspend, self.sleep, self.cut_off),
            *(self.restart_broker, self.stop_broker, self.hang_broker, self.set_clock_back),
            *(self.refuse_commits, self.fail_callbacks, self.cut_off_name_server),
            *(self.create_topic, self.delete_topic, self.add_queue, self.remove_queue),
        ]

    # Members.

    def join(self):
        """Start a member; of a broadcasting group, perhaps one that has ended."""
        ended = self._ended()
        if ended and self._random.random() < 0.7:
            return self._start(self._random.choice(ended))
        return self._start(f"c{len(self._started) + 1}")

    def join_again(self):
        """Start the members of a broadcasting group that have ended; one if there is none."""
        for name in self._ended():
            self._start(name)
        if not self._members:
            self.join()

    def _ended(self):
        return [name for name in sorted(self._schedule.files) if self._started[name].has_ended]

    def _start(self, name):
        if self._schedule.broadcasting:
            self._schedule.files.setdefault(name, FileOffsets())
        one = Running(self._schedule, name, self._schedule.files.get(name))
        self._members[name] = self._started[name] = one
        return name

    def leave(self):
        if len(self._members) > 1:
            one = self._members.pop(self._any_member().name)
            one.process.create_task(one.stop())

    def kill(self):
        if len(self._members) > 1:
            self._members.pop(self._any_member().name).kill()

    def join_and_kill(self):
        """Kill a member before it has committed."""
        name = self.join()
        self._later(self._random.choice([0.01, 0.1, 1, 4, 8]), self._kill, self._members[name])

    def _kill(self, one):
        if self._members.get(one.name) is one:
            del self._members[one.name]
            one.kill()

    def suspend(self):
        """Stop a process, as SIGSTOP does."""
        self._suspend(has_slept=False)

    def sleep(self):
        """Let the machine of a process sleep: its monotonic clock stands still."""
        self._suspend(has_slept=True)

    def _suspend(self, *, has_slept):
        one = self._any_member()
        if one is not None and not one.process.is_stopped:
            one.process.suspend()
            seconds = self._for([1, 40, 130, 300])
            self._later(seconds, lambda: one.process.resume(has_slept=has_slept))

    def cut_off(self):
        if (one := self._any_member()) is not None:
            one.network.is_cut_off = True
            self._later(self._for([1, 10, 100, 200]), setattr, one.network, "is_cut_off", False)

    def fail_callbacks(self):
        """Let the application's functions raise, and files of offsets be not writable."""
        self._schedule.callbacks_fail = True
        for file in self._schedule.files.values():
            file.fails = True
        self._later(self._for([1, 30, 100]), self._mend_callbacks)

    def _mend_callbacks(self):
        self._schedule.callbacks_fail = False
        for file in self._schedule.files.values():
            file.fails = False

    def _any_member(self):
        if not self._members:
            return None
        return self._members[self._random.choice(sorted(self._members))]

    # Brokers.

    def restart_broker(self):
        self._promises.trouble(TIMEOUT_S)
        self._cluster.restart(self._any_broker().name)

    def stop_broker(self):
        broker = self._any_broker()
        broker.down = True
        self._later(self._for([1, 20]), self._up, broker)

    def _up(self, broker):
        self._cluster.restart(broker.name)
        broker.down = False

    def hang_broker(self):
        """Stop the process of a broker for a while: no call is answered or refused."""
        broker = self._any_broker()
        broker.hangs = True
        self._later(self._for([5, 50, 200]), broker.resume)

    def set_clock_back(self):
        self._any_broker().clock_ahead_ms -= HOUR_MS

    def refuse_commits(self):
        broker = self._any_broker()
        broker.refuses_commits = True
        self._later(self._for([5, 50, 150]), setattr, broker, "refuses_commits", False)

    def cut_off_name_server(self):
        self._cluster.has_routes = False
        self._later(self._for([1, 20, 100]), setattr, self._cluster, "has_routes", True)

    def _any_broker(self):
        return self._cluster.brokers[self._random.choice(sorted(self._cluster.brokers))]

    def hang_for(self, name, seconds):
        """Stop the process of a broker while everything else works."""
        broker = self._cluster.brokers[name]
        broker.hangs = True
        self._later(seconds, broker.resume)

    # Topics and messages.

    def send(self):
        queues = [
            queue for topic in self._schedule.topics for queue in self._cluster.writable(topic)
        ]
        for _ in range(self._random.randint(1, 30) if queues else 0):
            self._promises.send(self._random.choice(queues))

    def create_topic(self):
        """Create a topic that was deleted or did not exist yet, and send to it at once."""
        missing = [topic for topic in self._schedule.topics if topic not in self._cluster.queues]
        if missing:
            self._cluster.create_topic(self._random.choice(missing), self._random.randint(1, 4))
            self.send()

    def delete_topic(self):
        """Delete a topic; in half of the cases, create it again at once."""
        if (topic := self._any_topic()) is not None:
            self._cluster.delete_topic(topic)
            if self._random.random() < 0.5:
                self.create_topic()

    def add_queue(self):
        """Add a queue, and send to it at once."""
        if (topic := self._any_topic()) is not None:
            before = {*self._cluster.writable(topic)}
            self._cluster.add_queue(topic, self._any_broker().name)
            for queue in {*self._cluster.writable(topic)} - before:
                self._promises.send(queue)

    def remove_queue(self):
        """Remove a queue in RocketMQ's order: nothing is sent to it, and it is read to its end."""
        if (topic := self._any_topic()) is not None:
            queue = self._cluster.close_queue(topic, self._any_broker().name)
            if queue is not None:
                self._remove_when_read(queue)

    def _remove_when_read(self, queue):
        queues = self._cluster.queues.get(queue.topic, ())
        # The topic was deleted, or a queue was added instead.
        if queue not in queues or queue in self._cluster.writable(queue.topic):
            return
        last = max(one for one in queues if one.broker == queue.broker)
        if queue == last and not any(place == queue for place, _ in self._schedule.left()):
            self._cluster.remove_queue(queue)
        else:
            self._later(20, self._remove_when_read, queue)

    def _any_topic(self):
        there = [topic for topic in self._schedule.topics if topic in self._cluster.queues]
        return self._random.choice(there) if there else None

    # Time.

    def _for(self, choices):
        """Return for how long something fails."""
        seconds = self._random.choice(choices)
        self._promises.trouble(seconds + 2 * TIMEOUT_S)
        return seconds

    def _later(self, seconds, call, *arguments):
        asyncio.get_running_loop().call_later(seconds, call, *arguments)
