"""All that a read asks for."""

from dataclasses import dataclass, field

from pyspark_pyrocket.options.admission import Admission
from pyspark_pyrocket.options.option import READ
from pyspark_pyrocket.options.payload import Payload
from pyspark_pyrocket.options.span import Span
from pyspark_pyrocket.options.splitting import Splitting
from pyspark_pyrocket.options.subscription import Subscription
from pyspark_pyrocket.options.table import given_options
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.view import MESSAGES, view_of


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What a read asks for: see the module of each part.

    path: the store's directory, absolute.
    view: MESSAGES, or what waits in the store, SCHEDULED or HALF.
    verify_crc: whether bodies are checked against their checksums.
    """

    path: str
    subscription: Subscription
    span: Span = field(default_factory=Span)
    admission: Admission = field(default_factory=Admission)
    splitting: Splitting = field(default_factory=Splitting)
    payload: Payload = field(default_factory=Payload)
    view: str = MESSAGES
    verify_crc: bool = False

    @classmethod
    def parse(cls, request: Request, query: str = READ) -> "ReadOptions":
        """Read and check the options of a batch, a stream or, for its schema, either."""
        path, given = given_options(request, query)
        return cls(
            path=path,
            subscription=Subscription.parse(given),
            span=Span.parse(given),
            admission=Admission.parse(given),
            splitting=Splitting.parse(given),
            payload=Payload.parse(given),
            view=view_of(given),
            verify_crc=given.boolean("verifyCrc", default=False),
        )
