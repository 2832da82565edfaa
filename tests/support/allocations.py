"""Random inputs for allocation strategies, and the queues that pyrocket allocates for them."""

from dataclasses import asdict, dataclass

from pyrocket.client import allocation
from pyrocket.errors import InvalidInputError
from pyrocket.values.message import MessageQueue

ROOMS = ["east", "west", "north"]
_BROKERS = [
    [f"broker-{letter}" for letter in "abcdef"],
    [f"{room}@{name}" for room in ROOMS for name in "ab"],
    ["east@a@", "east@a@b", "east@", "@a", "east", "west@a", "@", "west@@a"],
    ["中", "\U0001f680", "\uff21", "é", "b"],
]
_MEMBERS = [
    [f"10.0.0.{number}@{4000 + number}#{number}7" for number in range(30)],
    [f"{room}@{number}" for room in ROOMS for number in range(4)],
    ["中@1", "\U0001f680@2", "\uff21@3", "é@4", "b@5", "@", "east"],
]


@dataclass
class Case:
    """One input of a strategy. `queues` have the form "topic broker id"."""

    strategy: str
    argument: str
    client_id: str
    queues: list[str]
    members: list[str]

    def words(self):
        """Return the fields in the order that `Allocation.java` reads."""
        fields = [self.strategy, self.argument, self.client_id, str(len(self.queues))]
        return [*fields, *self.queues, *self.members]

    def answer(self):
        """Return the queues that pyrocket allocates; None if it rejects the input."""
        queues = allocation.sort_queues(map(_queue, self.queues))
        members = allocation.sort_members(self.members)
        try:
            strategy = _strategy(self.strategy, self.argument)
            found = strategy("g", self.client_id, queues, members)
        except InvalidInputError:
            return None
        return [f"{queue.topic} {queue.broker} {queue.queue_id}" for queue in found]

    def to_json(self, answer):
        return {**asdict(self), "answer": answer}


def random_case(random):
    """Return one case; some have an unknown client, no queues or members, or duplicate members."""
    name = random.choice(list(_ARGUMENTS))
    in_rooms = name in ("MACHINE_ROOM", "NEARBY") and random.random() < 0.8
    style = 1 if in_rooms else random.randrange(4)
    brokers = random.sample(_BROKERS[style], random.randint(1, min(3, len(_BROKERS[style]))))
    topic, each = random.choice(["orders", "%RETRY%billing"]), random.randint(1, 12)
    queues = [f"{topic} {broker} {number}" for broker in brokers for number in range(each)]
    known = _MEMBERS[random.choice([0, 1, 2] if style != 1 else [1])]
    members = random.sample(known, random.randint(1, len(known)))
    if random.random() < 0.1:
        members.append(random.choice(members))
    client_id = random.choice(members)
    if random.random() < 0.1:
        client_id, queues, members = random.choice(
            [("", queues, members), (client_id, [], members), ("c", queues, [])]
            + [("unknown", queues, members)] * 3
        )
    random.shuffle(queues)
    return Case(name, _ARGUMENTS[name](random, queues), client_id, queues, members)


def _nearby(random, queues):
    inner = random.choice([name for name in _ARGUMENTS if name != "NEARBY"])
    return f"{inner} {_ARGUMENTS[inner](random, queues)}"


_ARGUMENTS = {
    "AVG": lambda random, queues: "",
    "AVG_BY_CIRCLE": lambda random, queues: "",
    "CONSISTENT_HASH": lambda random, queues: random.choice(["10"] * 7 + ["0", "1", "100", "-1"]),
    "CONFIG": lambda random, queues: "\n".join(queues[:3]) or "orders broker-a 0",
    "MACHINE_ROOM": lambda random, queues: " ".join(random.sample(ROOMS, random.randint(1, 2))),
    "NEARBY": _nearby,
}


def _queue(word):
    topic, broker, queue_id = word.split(" ")
    return MessageQueue(topic, broker, int(queue_id))


def _strategy(name, argument):
    if name == "AVG":
        return allocation.averagely
    if name == "AVG_BY_CIRCLE":
        return allocation.by_circle
    if name == "CONSISTENT_HASH":
        return allocation.by_consistent_hash(int(argument))
    if name == "CONFIG":
        return allocation.by_config(list(map(_queue, argument.split("\n"))))
    if name == "MACHINE_ROOM":
        return allocation.by_machine_room(argument.split(" "))
    inner = _strategy(*argument.split(" ", 1))
    return allocation.machine_room_nearby(inner, lambda queue: _room(queue.broker), _room)


def _room(name):
    """Return the part before the first "@", or None if the name contains no "@"."""
    return name.partition("@")[0] if "@" in name else None
