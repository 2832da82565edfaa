"""All options of a read."""

from dataclasses import dataclass, field

from pyspark_pyrocket.options.batching import Admission, Splitting
from pyspark_pyrocket.options.creation import source_creates
from pyspark_pyrocket.options.endpoint import NO_ENDPOINT, Endpoint
from pyspark_pyrocket.options.option import READ
from pyspark_pyrocket.options.payload import Payload
from pyspark_pyrocket.options.policies import LossPolicy, Progress
from pyspark_pyrocket.options.selection import MESSAGES, KeyLookup, Selection, View, check_view
from pyspark_pyrocket.options.span import Span
from pyspark_pyrocket.options.table import given_options
from pyspark_pyrocket.options.target import Request
from pyspark_pyrocket.options.topics import SubscribedTopics


@dataclass(frozen=True, kw_only=True)
class ReadOptions(View):
    """The options of a read. Each part is documented in its own class.

    path: the store's directory, absolute; empty with an endpoint.
    create_if_missing: whether a new query creates the store and the topics that are missing.
    """

    path: str = ""
    endpoint: Endpoint = NO_ENDPOINT
    subscription: SubscribedTopics
    span: Span = field(default_factory=Span)
    loss: LossPolicy = field(default_factory=LossPolicy)
    admission: Admission = field(default_factory=Admission)
    splitting: Splitting = field(default_factory=Splitting)
    selection: Selection = field(default_factory=Selection)
    lookup: KeyLookup = field(default_factory=KeyLookup)
    payload: Payload = field(default_factory=Payload)
    progress: Progress = field(default_factory=Progress)
    create_if_missing: bool = False

    @classmethod
    def parse(cls, request: Request, query: str = READ) -> "ReadOptions":
        """Read and check the options of a batch or a stream; READ accepts those of both."""
        path, given = given_options(request, query)
        values = given.read_fields(cls)
        check_view(given, values["view"])
        return cls(
            **values,
            path=path,
            endpoint=Endpoint(**given.read_fields(Endpoint)),
            subscription=SubscribedTopics.parse(given, needed=values["view"] == MESSAGES),
            span=Span.parse(given),
            loss=LossPolicy.parse(given),
            admission=Admission.parse(given),
            splitting=Splitting(**given.read_fields(Splitting)),
            selection=Selection.parse(given),
            lookup=KeyLookup.parse(given),
            payload=Payload.parse(given),
            progress=Progress.parse(given),
            create_if_missing=source_creates(given),
        )
