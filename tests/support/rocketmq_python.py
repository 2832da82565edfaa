"""Programs that use RocketMQ's own Python client, unmodified; each runs as a separate process.

    python rocketmq_python.py PROGRAM ENDPOINT [OPTIONS AS JSON]

The client registers `apache.rocketmq.v2` in protobuf's default pool, so it cannot share a process
with other users of that name. Each program prints its result as one line of JSON.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

TOPIC, DELAYED = "orders", "delayed"
TIMEOUT_S = 120


def start(program, endpoint, home, environment=None, **options):
    """Start a program; the client's log and its errors are written to `home`.

    A pipe for the errors would fill up during a long run, and block the client.
    """
    command = [sys.executable, __file__, program, endpoint, json.dumps(options)]
    variables = {**os.environ, **(environment or {}), "HOME": str(home)}
    path = Path(tempfile.mkdtemp(dir=home)) / "errors"
    with path.open("w") as errors:
        process = subprocess.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    process.errors = path
    return process


def result(process, timeout_s=TIMEOUT_S):
    """Wait for a program, and return its result."""
    out, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, process.errors.read_text()
    return json.loads(out.splitlines()[-1])


def kind_of(message):
    return message.body.decode().partition("-")[0]


class Log:
    """The messages that the consumers of each group have received, and the errors of calls."""

    def __init__(self):
        self.seen, self.errors = {"simple": [], "push": []}, []

    def add(self, group, message):
        """Record a message, and return its kind."""
        self.seen[group].append([message.body.decode(), message.delivery_attempt])
        return kind_of(message)

    def all(self, group, messages):
        for message in messages:
            self.add(group, message)
        return messages

    @contextmanager
    def recording_errors(self, call):
        began = time.monotonic()
        try:
            yield
        except Exception as error:
            self.errors.append(f"{call}, {time.monotonic() - began:.1f} s: {error!r}")
            time.sleep(0.1)


class Programs:
    """The programs; these methods share a client configuration."""

    def __init__(self, endpoint, options):
        import rocketmq

        self.rocketmq, self.options = rocketmq, options
        keys = options.get("user", ""), options.get("secret", "")
        credentials = rocketmq.Credentials(*keys)
        self.configuration = rocketmq.ClientConfiguration(endpoint, credentials, "")
        self.tls = {"tls_enable": options.get("tls", False)}

    def message(self, body, topic=TOPIC, **fields):
        message = self.rocketmq.Message()
        message.topic, message.body = topic, body.encode()
        for name, value in fields.items():
            setattr(message, name, value)
        return message

    def producer(self, checker=None):
        made = self.rocketmq.Producer(self.configuration, (TOPIC,), checker=checker, **self.tls)
        made.startup()
        return made

    def simple(self, group):
        topics = {TOPIC: self.rocketmq.FilterExpression()}
        made = self.rocketmq.SimpleConsumer(
            self.configuration, group, topics, await_duration=2, **self.tls
        )
        made.startup()
        return made

    def send(self):
        """Send messages of all types; return the content of the receipts."""
        checked = []
        programs = self

        class Checker(self.rocketmq.TransactionChecker):
            def check(self, message):
                checked.append(message.message_id)
                return programs.rocketmq.TransactionResolution.COMMIT

        producer = self.producer(Checker())
        normal = self.message("normal", tag="a", keys="k")
        normal.add_property("color", "blue")
        sent = {"normal": producer.send(normal).message_id}
        for number in range(3):
            producer.send(self.message(f"fifo-{number}", message_group="group"))
        soon = int(time.time()) + 2
        later = self.message("later", DELAYED, delivery_timestamp=soon)
        sent["later"] = producer.send(later).message_id
        receipt = producer.send(self.message("recalled", DELAYED, delivery_timestamp=soon + 60))
        sent["recalled"] = producer.recall_message(DELAYED, receipt.recall_handle)
        try:
            producer.recall_message(DELAYED, receipt.recall_handle)
        except Exception as error:
            sent["recalled again"] = type(error).__name__
        for name in ("commit", "rollback", "check"):
            transaction = producer.begin_transaction()
            sent[name] = producer.send(self.message(name), transaction).message_id
            if name != "check":
                getattr(transaction, name)()
        self.until(lambda: checked)
        time.sleep(0.5)  # Wait for the answer to the check to be sent.
        producer.shutdown()
        return {**sent, "checked": checked}

    def receive(self):
        """Receive a number of messages with a simple consumer, the first one twice."""
        consumer, seen, nacked = self.simple("simple"), [], False

        def look():
            nonlocal nacked
            for message in consumer.receive(32, 15) or []:
                seen.append([message.body.decode(), message.delivery_attempt])
                if not nacked:
                    nacked = True
                    consumer.change_invisible_duration(message, 1)
                else:
                    consumer.ack(message)
            return len(seen) >= self.options["count"]

        self.until(look)
        consumer.shutdown()
        return seen

    def push(self):
        """Run a push consumer; the message `fail` fails the number of times that the options
        give.
        """
        programs, seen = self, []

        class Listener(self.rocketmq.MessageListener):
            def consume(self, message):
                body = message.body.decode()
                seen.append([body, message.delivery_attempt])
                failures = [each for each in seen if each[0] == "fail"]
                fails = body == "fail" and len(failures) <= programs.options["failures"]
                results = programs.rocketmq.ConsumeResult
                return results.FAILURE if fails else results.SUCCESS

        topics = {TOPIC: self.rocketmq.FilterExpression()}
        consumer = self.rocketmq.PushConsumer(
            self.configuration, self.options["group"], Listener(), topics, **self.tls
        )
        consumer.startup()
        self.until(lambda: len(seen) >= self.options["count"])
        time.sleep(1)
        consumer.shutdown()
        return seen

    def push_rate(self):
        """Return the messages per second of a push consumer, from the first to the last one."""
        programs, times = self, []

        class Listener(self.rocketmq.MessageListener):
            def consume(self, message):
                times.append(time.perf_counter())
                return programs.rocketmq.ConsumeResult.SUCCESS

        topics = {TOPIC: self.rocketmq.FilterExpression()}
        consumer = self.rocketmq.PushConsumer(
            self.configuration, self.options["group"], Listener(), topics, **self.tls
        )
        consumer.startup()
        self.until(lambda: len(times) >= self.options["count"])
        return len(times) / (times[-1] - times[0])

    def send_rate(self):
        """Return the messages of 1 KiB per second that one thread sends."""
        producer, count = self.producer(), self.options["count"]
        producer.send(self.message("first"))
        began = time.perf_counter()
        for _ in range(count):
            producer.send(self.message("x" * 1024))
        return count / (time.perf_counter() - began)

    def produce(self):
        """Send with a number of producers for some seconds; return the acknowledged bodies."""
        sent, log = [], Log()
        end = time.monotonic() + self.options["seconds"]

        def work(name):
            producer, number = self.producer(), 0
            while time.monotonic() < end:
                number += 1
                kind = {5: "dead", 10: "late"}.get(number % 100, "plain")
                body = f"{kind}-{name}-{number}"
                with log.recording_errors("send"):
                    producer.send(self.message(body))
                    sent.append(body)

        self.in_threads(work)
        return {"sent": sent, "errors": log.errors}

    def consume_all(self):
        """Receive with simple and push consumers of two groups until the file `stop` exists.

        Messages `dead-…` always fail. Simple consumers neither ack nor nack the first delivery of
        messages `late-…`.
        """
        log, results = Log(), self.rocketmq.ConsumeResult

        class Listener(self.rocketmq.MessageListener):
            def consume(self, message):
                return results.FAILURE if log.add("push", message) == "dead" else results.SUCCESS

        topics = {TOPIC: self.rocketmq.FilterExpression()}
        for _ in range(self.options["clients"]):
            made = self.rocketmq.PushConsumer(
                self.configuration, "push", Listener(), topics, **self.tls
            )
            made.startup()
        self.in_threads(lambda _: self.consume_simply(log))
        return {"seen": log.seen, "errors": log.errors}

    def consume_simply(self, log):
        consumer, invisible_s = self.simple("simple"), self.options["invisible_s"]
        while not os.path.exists(self.options["stop"]):
            with log.recording_errors("receive"):
                for message in log.all("simple", consumer.receive(8, invisible_s) or []):
                    with log.recording_errors("end a delivery"):
                        self.end_delivery(consumer, message)

    def end_delivery(self, consumer, message):
        kind = kind_of(message)
        if kind == "dead":
            consumer.change_invisible_duration(message, 1)
        elif kind == "plain" or message.delivery_attempt > 1:
            consumer.ack(message)

    def in_threads(self, work):
        """Run `work` once per client, and wait for all of them."""
        threads = [
            threading.Thread(target=work, args=(number,))
            for number in range(self.options["clients"])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def exchange(self):
        """Send and receive one message."""
        producer, consumer = self.producer(), self.simple("exchange")
        producer.send(self.message("hello"))
        seen = []
        self.until(lambda: seen.extend(consumer.receive(1, 15) or []) or seen)
        consumer.ack(seen[0])
        producer.shutdown()
        consumer.shutdown()
        return [seen[0].body.decode()]

    def refused(self):
        """Return the name of the error of a send."""
        try:
            producer = self.producer()
            producer.send(self.message("hello"))
        except Exception as error:
            return [type(error).__name__, str(error)]
        return []

    def until(self, condition):
        end = time.monotonic() + 60
        while not condition():
            if time.monotonic() > end:
                raise AssertionError("nothing came")
            time.sleep(0.05)


if __name__ == "__main__":
    _, program, endpoint, options = sys.argv
    found = getattr(Programs(endpoint, json.loads(options)), program)()
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)  # The client's threads may still be running.
