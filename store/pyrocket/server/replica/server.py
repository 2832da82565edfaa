"""Serves a replica over gRPC: the calls that read. Every other call is REPLICA_READ_ONLY."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import grpc

from pyrocket.broker.consumers.consumers import Pulls
from pyrocket.broker.settings import Settings
from pyrocket.broker.work import Answers, Work
from pyrocket.disk.layout import Layout
from pyrocket.errors import InvalidInputError, PyrocketError
from pyrocket.metadata.role import RoleFile
from pyrocket.server.call_server import CallServer
from pyrocket.server.gate import Gate
from pyrocket.server.health import Health
from pyrocket.server.incoming import Incoming
from pyrocket.server.replica.broker import ReplicaBroker
from pyrocket.server.server import watch_versions
from pyrocket.server.service import BulkService, call_of, calls_of
from pyrocket.server.version_feed import VersionFeed
from pyrocket.values.message import LogMark
from pyrocket.wire.channel import CLIENTS, SERVICE
from pyrocket.wire.descriptors import service


class ReplicaServer(CallServer):
    """Serves one replica. Created and used inside an event loop."""

    def __init__(self, broker: ReplicaBroker, gate: Gate, settings: Settings) -> None:
        super().__init__(gate, settings)
        self._broker, self._feed = broker, VersionFeed(broker.version)
        broker.link.changed = self._feed.changed
        reads = BulkService(broker).reads()  # type: ignore[arg-type]
        # No group has members here.
        answers: Answers = {**reads, "Members": list, "Replicate": self._no_primary}
        calls = calls_of(SERVICE, {Work.READ: answers})
        handlers = {name: self.handler_of(call) for name, call in calls.items()}
        handlers["Watch"] = self.handler("Watch", partial(watch_versions, self._feed), streams=True)
        # A pull without new messages is answered at once.
        pull = Pulls(broker.store, is_replica=True).pull_queue
        pull_queue = call_of(service(CLIENTS).methods_by_name["PullQueue"], pull)
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(SERVICE, handlers),
                grpc.method_handlers_generic_handler(
                    CLIENTS, {"PullQueue": self.handler_of(pull_queue)}
                ),
                Health(self, lambda: broker.trouble).handlers(),
                _Refusing(self),
            )
        )

    def advertise(self, address: str, listens: Sequence[str]) -> None:
        """Do nothing: a replica stores no messages, whose ids would have its address."""

    async def stop(self, seconds: float = 30) -> None:
        """Accept no new calls, and cancel running calls after `seconds`."""
        self._stopping.set()
        self._feed.stop()
        await super().stop(seconds)

    def _no_primary(
        self, store: str, replica: str, name: str, term: int, end: int, mark: LogMark | None
    ) -> Any:
        own = self._broker.link.role
        if replica == own.replica:
            raise itself()
        raise InvalidInputError(
            f"this broker is a replica itself, of {own.primary}.",
            remedy=f"Use --replica-of {own.primary}.",
            code="REPLICA_OF_REPLICA",
        )

    async def refuse(self, incoming: Incoming) -> bytes:
        """Refuse a call."""
        refusal = await self.run(RoleFile(Layout(self._broker.path)).refusal)
        raise refusal or PyrocketError("this broker is a replica.", code="REPLICA_READ_ONLY")


class _Refusing(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Refuses the calls of all services that have no other handler."""

    def __init__(self, server: ReplicaServer) -> None:
        self._server = server

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler:
        name = handler_call_details.method.rpartition("/")[2]
        return self._server.handler(name, self._server.refuse, streams=True)


def itself() -> InvalidInputError:
    """Return the error of a replica that has its own address as that of its primary."""
    return InvalidInputError(
        "a broker cannot be a replica of itself.",
        remedy="Use the address of another broker for --replica-of.",
        code="REPLICA_OF_ITSELF",
    )
