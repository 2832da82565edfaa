"""Runs Apache RocketMQ: name server and client in one process, and each broker in another.
`maven.py` determines the class path.
"""

import base64
import json
import queue
import random
import socket
import subprocess
import threading
import time
from pathlib import Path

from interop.maven import UnavailableError

START_SECONDS = 90
STOP_SECONDS = 60

JVM = [
    *("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    # RocketMQ 4 was written for Java 8.
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.nio.ch")),
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    # On a nearly full disk, a broker would otherwise reject messages.
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
    "-Drocketmq.client.rebalance.waitInterval=500",
    "-Drocketmq.client.rebalance.minInterval=300",
]

LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{log}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %-5level %logger{{0}} - %msg%n</pattern></encoder>
  </appender>
  <root level="{level}"><appender-ref ref="file"/></root>
</configuration>
"""

SMALL = {
    "mappedFileSizeCommitLog": 64 * 1024,
    "mappedFileSizeConsumeQueue": 30 * 20,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
"""Sizes with small files; pyrocket's index files have 4 items per slot."""

CLUSTER, BROKER = "DefaultCluster", "broker-a"


class JavaError(Exception):
    """An error of RocketMQ's client."""


def free_ports():
    """Return a port p such that p - 2, p and p + 1, a broker's fast, listen and replication ports,
    are free. All are below the range of ephemeral ports.
    """
    for _ in range(100):
        port = random.randrange(12_000, 32_000)
        if all(is_free(port + step) for step in (-2, 0, 1)):
            return port
    raise UnavailableError("no free ports")


def is_free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


class Program:
    """A Java process with its own home directory, which ends with the test at the latest."""

    def __init__(self, classes, home, main, *arguments, jvm=(), **streams):
        self.home = Path(home)
        (self.home / "conf").mkdir(parents=True)
        for name, level in (("broker", "INFO"), ("namesrv", "WARN")):
            text = LOGBACK.format(log=self.home / f"{name}.log", level=level)
            (self.home / f"conf/logback_{name}.xml").write_text(text)
        self.output = self.home / "output.log"
        options = [f"-Duser.home={self.home}", f"-Drocketmq.home.dir={self.home}", "-cp", classes]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                ["java", *JVM, *jvm, *options, main, *map(str, arguments)],
                stderr=output,
                cwd=self.home,
                **({"stdin": subprocess.DEVNULL, "stdout": output} | streams),
            )

    def kill(self):
        """kill -9."""
        self.process.kill()
        return self.process.wait(STOP_SECONDS)

    def stop(self):
        """Shut the process down cleanly."""
        self.process.terminate()
        assert self.process.wait(STOP_SECONDS) == 143, "the process did not shut down cleanly"

    def exit_status(self, seconds=START_SECONDS):
        """Wait until the process ends by itself."""
        return self.process.wait(seconds)

    def said(self, text):
        return text in self.output.read_text(errors="replace")

    def logs(self):
        """Return the ends of all logs of the process, to find the cause of a failure."""
        for path in sorted(self.home.rglob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-40:]
            if lines:
                yield str(path.relative_to(self.home.parent)), "\n".join(lines)


class Broker(Program):
    """A broker for a directory, with its own ports. At the end it is killed, unless it was stopped
    before.
    """

    def __init__(self, peer, classes, home, store, address="127.0.0.1", jvm=(), **config):
        self.peer, self.store, self.port = peer, Path(store), free_ports()
        self.address = address
        settings = {
            "brokerClusterName": CLUSTER,
            "brokerName": BROKER,
            "brokerId": 0,
            "brokerIP1": address,
            "brokerIP2": address,
            "listenPort": self.port,
            "haListenPort": self.port + 1,
            "namesrvAddr": f"127.0.0.1:{peer.port}",
            "storePathRootDir": store,
            "storePathCommitLog": Path(store) / "commitlog",
            # No file expires during a test, and the disk is never considered full.
            "fileReservedTime": 100_000,
            "diskMaxUsedSpaceRatio": 95,
            # While stopping, a broker checks half messages once more, unless they are new.
            "transactionCheckInterval": 3_600_000,
            "transactionTimeOut": 3_600_000,
            "traceTopicEnable": "false",
        }
        path = Path(home).with_suffix(".conf")
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{name}={value}\n" for name, value in (settings | config).items())
        path.write_text(text)
        super().__init__(
            classes, home, "org.apache.rocketmq.broker.BrokerStartup", "-c", path, jvm=jvm
        )

    def await_start(self):
        """Wait until the broker serves; fail if it exits."""
        deadline = time.monotonic() + START_SECONDS
        while not self.said("boot success"):
            assert self.process.poll() is None, "the broker exited while it was starting"
            assert time.monotonic() < deadline, "the broker did not start in time"
            time.sleep(0.05)
        while not self.peer.ask("registered", address=f"{self.address}:{self.port}"):
            assert time.monotonic() < deadline, "the name server did not register the broker"
            time.sleep(0.05)
        return self

    def __enter__(self):
        try:
            return self.await_start()
        except BaseException:
            self.kill()
            raise

    def __exit__(self, kind, error, trace):
        self.kill()

    # Requests to this broker by the client.

    def queues_on_disk(self):
        """Return every (topic, queue id) that has files, whether or not a table contains it."""
        folders = (self.store / "consumequeue").glob("*/*")
        return sorted((folder.parent.name, int(folder.name)) for folder in folders)

    def pull(self, queues=None):
        """Return all messages of all queues: {(topic, queue id): {"min", "max", "messages"}}."""
        names = self.queues_on_disk() if queues is None else queues
        pulled = self.peer.ask("pull", broker=BROKER, queues=names)
        return {(one["topic"], one["queue"]): one for one in pulled}

    def pull_once(self, topic, queue_id, offset):
        """Return status, next, min and max offset of one pull."""
        place = {"topic": topic, "queue": queue_id, "offset": offset}
        return self.peer.ask("pullOnce", broker=BROKER, **place)

    def query(self, topic, key):
        """Return the messages that the broker finds by a key, oldest first."""
        found = self.peer.ask("query", topic=topic, key=key)
        return sorted(found, key=lambda one: one["physicalOffset"])

    def view(self, topic, message_id):
        return self.peer.ask("view", topic=topic, id=message_id)

    def committed(self, group, topic, queue_id):
        return self.peer.ask("committed", broker=BROKER, group=group, topic=topic, queue=queue_id)

    def commit(self, group, topic, queue_id, offset):
        asked = {"group": group, "topic": topic, "queue": queue_id, "offset": offset}
        return self.peer.ask("commit", broker=BROKER, **asked)


class NameServer:
    """A name server of its own process, which keeps its port when it is killed and started."""

    def __init__(self, classes, folder, jvm=()):
        self.classes, self.folder, self.jvm = classes, folder, jvm
        self.port, self._starts = free_ports(), 0
        self.start()

    def start(self):
        self._starts += 1
        home = self.folder / f"names{self._starts}"
        config = home.with_suffix(".conf")
        config.write_text(f"listenPort={self.port}\n")
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        self.program = Program(self.classes, home, main, "-c", config, jvm=self.jvm)
        deadline = time.monotonic() + START_SECONDS
        while not self.program.said("boot success"):
            assert time.monotonic() < deadline, "the name server did not start in time"
            time.sleep(0.05)
        self.is_alive = True

    def kill(self):
        self.is_alive = False
        self.program.kill()


class Peer(Program):
    """The name server and the client, shared by all tests of a version."""

    def __init__(self, classes, home):
        self.port = free_ports()
        config = Path(home).with_suffix(".conf")
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f"listenPort={self.port}\n")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        super().__init__(classes, home, "Peer", config, self.port, **pipes)
        self._answers = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.ask("ready")

    def _listen(self):
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def ask(self, command, timeout=120, **arguments):
        """Run a command in the client. Raises JavaError with the client's message."""
        request = json.dumps({"do": command, **arguments}) + "\n"
        self.process.stdin.write(request.encode())
        self.process.stdin.flush()
        line = self._answers.get(timeout=timeout)
        assert line, "the client died"
        reply = json.loads(line)
        if "error" in reply:
            raise JavaError(reply["error"])
        return reply["answer"]

    def close(self):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()

    def send(self, topic, messages, **options):
        """Send messages (see `outgoing`) one by one, or with `batch` as one batch."""
        return self.ask("send", topic=topic, messages=messages, **options)

    def consume(self, topic, group, attempts, max_reconsume_times=1, seconds=30):
        """Consume until this number of attempts was made; messages whose body begins with `bad`
        fail.
        """
        return self.ask(
            "consume",
            topic=topic,
            group=group,
            attempts=attempts,
            maxReconsumeTimes=max_reconsume_times,
            seconds=seconds,
        )


def outgoing(body, **more):
    """Return a message for `Peer.send`: tags, keys (as one string), properties, delay, flag, queue,
    state. `own` contains system properties.
    """
    return {"body": base64.b64encode(body).decode(), **more}
