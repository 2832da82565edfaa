"""`remote`: makes a method from the name of a call and the signature of the method."""

import inspect
from collections.abc import Callable
from functools import cached_property, partial
from types import NoneType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast, get_type_hints

from google.protobuf.message import Message

from pyrocket.rpc.client import Client
from pyrocket.rpc.messages import values_of

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Method = Callable[Concatenate[Any, _P], _R]


class RemoteMethod(Generic[_P, _R]):
    """A method of an object with a `client`, which makes a call with one reply.

    The arguments are the fields of the request. The reply is converted to the type that the method
    returns.
    """

    def __init__(self, call: str, method: "_Method[_P, _R]") -> None:
        self._call, self._method = call, method
        self._signature = inspect.signature(method)

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[_P, _R]:
        """Return the method of an object; for a class, the method that it was made from."""
        return partial(self._of, instance) if instance else cast("Callable[_P, _R]", self._method)

    @cached_property
    def _kind(self) -> Any:
        return get_type_hints(self._method)["return"]

    def _of(self, instance: Any, *given: Any, **named: Any) -> Any:
        bound = self._signature.bind(instance, *given, **named)
        bound.apply_defaults()
        _, *arguments = bound.arguments.items()
        client: Client = instance.client
        return value_of(client.call(self._call, **dict(arguments)), self._kind)


def remote(call: str) -> Callable[["_Method[_P, _R]"], RemoteMethod[_P, _R]]:
    """Return a decorator that makes a method call the broker; its body is not executed."""
    return partial(RemoteMethod, call)


def value_of(reply: Message, kind: Any) -> Any:
    """Return the value of a reply, or the dataclass whose fields are those of the reply."""
    if kind is NoneType:
        return None
    if "value" in reply.DESCRIPTOR.fields_by_name:
        return values_of(reply, {"value": kind})["value"]
    return kind(**values_of(reply, get_type_hints(kind)))
