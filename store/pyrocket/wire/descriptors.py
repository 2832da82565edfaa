"""Creates message classes from the compiled .proto files when they are first used.

The descriptors are in a separate pool, because RocketMQ's client registers the same package in
the default pool, and a process can use both. Unlike generated code, this works with every protobuf
runtime of version 5 or later.
"""

from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass


@cache
def _pool() -> DescriptorPool:
    compiled = files("pyrocket.wire").joinpath("proto/descriptors.bin").read_bytes()
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(compiled).file:
        pool.Add(file)
    return pool


@cache
def message_class(name: str) -> type[Any]:
    """Return the class of a message by its full name, such as `pyrocket.v1.HelloReply`."""
    return GetMessageClass(_pool().FindMessageTypeByName(name))


@cache
def service(name: str) -> ServiceDescriptor:
    """Return a service by its full name, such as `pyrocket.v1.Broker`."""
    return _pool().FindServiceByName(name)
