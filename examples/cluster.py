"""A local cluster of Apache RocketMQ: a name server and a broker, which Maven fetches."""
# ruff: noqa: T201

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

POM = Path(__file__).with_suffix(".xml")
GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
JVM = [
    *("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC"),
    # RocketMQ 4 was written for Java 8.
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in ("java.nio", "sun.nio.ch")),
    *(f"--add-{what}=java.base/jdk.internal.ref=ALL-UNNAMED" for what in ("opens", "exports")),
]
ROCKETMQ = "org.apache.rocketmq"
START_S = 90


def class_path(version: str, folder: Path) -> str:
    """Return the jars of a version, fetched into Maven's repository."""
    listing = folder / "jars"
    options = [f"-Drocketmq={version}", "-Dstyle.color=never", f"-Dmdep.outputFile={listing}"]
    try:
        subprocess.run(["mvn", "-B", "-q", "-f", POM, *options, GOAL], check=True)
    except FileNotFoundError:
        raise SystemExit("Maven is not installed: this example needs `mvn` and `java`.") from None
    return listing.read_text().strip()


class Cluster:
    """The processes of a cluster whose files and logs are in one folder."""

    def __init__(self, version: str, folder: Path, port: int) -> None:
        self.folder, self.port, self._processes = folder, port, ExitStack()
        self._jars = class_path(version, folder)
        (folder / "conf").mkdir(exist_ok=True)
        for name in ("namesrv", "broker", "tools"):  # RocketMQ 4 does not start without them.
            (folder / "conf" / f"logback_{name}.xml").write_text("<configuration/>")

    def command(self, main: str, *arguments: str) -> list[str]:
        """Return the command that runs a class of RocketMQ."""
        home = [f"-Duser.home={self.folder}", f"-Drocketmq.home.dir={self.folder}"]
        return ["java", *JVM, *home, "-cp", self._jars, f"{ROCKETMQ}.{main}", *arguments]

    def start(self, main: str, **settings: object) -> None:
        """Start a server, and wait until it serves."""
        name = main.rpartition(".")[2]
        config, output = self.folder / f"{name}.conf", self.folder / f"{name}.out"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        with output.open("wb") as log:
            command = self.command(main, "-c", str(config))
            process = subprocess.Popen(command, stdout=log, stderr=log)
        self._processes.callback(process.wait)
        self._processes.callback(process.terminate)
        deadline = time.monotonic() + START_S
        while b"boot success" not in output.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name} did not start: {output.read_text()[-500:]}")
            time.sleep(0.1)

    def mqadmin(self, command: str, *arguments: str) -> str:
        """Return the output of a command of `mqadmin`."""
        server = ["-n", f"127.0.0.1:{self.port}"]
        main = self.command("tools.command.MQAdminStartup", command, *server, *arguments)
        done = subprocess.run(main, capture_output=True, text=True, check=False)
        return done.stdout or done.stderr

    def create(self, topic: str) -> None:
        """Create a topic with four queues."""
        queues = ["-r", "4", "-w", "4"]
        output = self.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", topic, *queues)
        if "success" not in output:
            raise SystemExit(f"{topic} was not created: {output[-500:]}")

    def __enter__(self) -> "Cluster":
        try:
            self.start("namesrv.NamesrvStartup", listenPort=self.port)
            self.start(
                "broker.BrokerStartup",
                namesrvAddr=f"127.0.0.1:{self.port}",
                brokerName="broker-a",
                brokerIP1="127.0.0.1",
                listenPort=self.port + 1035,
                storePathRootDir=self.folder / "store",
                storePathCommitLog=self.folder / "store" / "commitlog",
            )
        except BaseException:
            self._processes.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._processes.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topic", action="append", default=[], help="create this topic")
    parser.add_argument("--version", default="5.5.0", help="RocketMQ 4.9.7, or 5 and newer")
    parser.add_argument("--port", type=int, default=9876, help="of the name server")
    parser.add_argument("--folder", type=Path, help="keep the files of the cluster here")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        cluster = stack.enter_context(Cluster(given.version, folder.resolve(), given.port))
        for topic in given.topic:
            cluster.create(topic)
        topics = f" with the topics {', '.join(given.topic)}" if given.topic else ""
        print(f"RocketMQ {given.version} serves at namesrv=127.0.0.1:{given.port}{topics}")
        print("Ctrl+C ends it.", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("The cluster is stopped.")


if __name__ == "__main__":
    main()
