"""The data source class that Spark calls; it delegates to `source` and `sink`."""

import os
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pyspark_pyrocket.boundary import called_by_spark
from pyspark_pyrocket.support import require_pyspark

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pyspark_pyrocket.options.target import Request


@called_by_spark
class DefaultSource(DataSource):
    """Topics of a RocketMQ store as DataFrames: `format("pyrocket")`.

    Read a topic, as a batch or as a stream:

    >>> spark.read.format("pyrocket").option("topic", "flights").load("/data/store")
    >>> spark.readStream.format("pyrocket").options(
    ...     path="/data/store", subscribe="flights,delays", startingOffsets="earliest"
    ... ).load()

    Select only the columns you need, in any order; the others are not decoded:

    >>> spark.read.format("pyrocket").schema("queueOffset BIGINT, body STRING").options(...)

    Write any DataFrame with a `body` (or `value`) column, or use valueFormat=json for others:

    >>> df.write.format("pyrocket").mode("append").options(path=..., topic="flights").save()
    >>> df.writeStream.format("pyrocket").options(path=..., topic="flights").start()

    To use a broker, set `endpoint` instead of `path`. Its options: endpoint.timeout, endpoint.tls,
    endpoint.ca, endpoint.serverName, accessKey, secretKey, secretKeyFile. They also apply to a
    cluster of Apache RocketMQ, which is used with `namesrv` and brokerAddresses.

    Options of reads: path, subscribe, subscribePattern, assign, topic, missingTopic,
    startingOffsets, startingTimestamp, startingOffsetsByTimestamp,
    startingOffsetsByTimestampStrategy, lastN, endingOffsets, endingTimestamp,
    endingOffsetsByTimestamp, onDataLoss, failOnDataLoss, removedBrokers, maxOffsetsPerTrigger,
    maxBytesPerTrigger, minOffsetsPerTrigger, maxTriggerDelay, coalesceQueues, minPartitions,
    maxRecordsPerPartition, maxBytesPerPartition, tags, subExpression, sql, keys, msgId,
    schemaMode, includeHeaders, valueFormat, valueSchema, valueColumn, mode,
    columnNameOfCorruptRecord, badRecordsTopic, view, onDamage, verifyCrc, group, commitToGroup,
    readOnly, readFrom, createIfMissing. Options of writes: path, topic, schemaMode, valueFormat,
    valueColumn, nullBody, keyEncoding, createIfMissing, directoryMode, retentionHours,
    retentionBytes, cleanTime, delivery, txnAppId, txnVersion, onReplayDifference, onBatchGap,
    flush, timerMaxDelay, brokerName. Names are case-insensitive; an unknown option raises an error.
    `connector/OPTIONS.md` describes all options.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Spark creates this object on the driver and pickles it from there, so relative paths and
        # environment variables are resolved on the driver.
        self._driver_directory = os.getcwd()
        self._driver_store = os.environ.get("PYROCKET_STORE", "")

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "pyrocket"

    def schema(self) -> "StructType":
        """Return the default columns, after checking the options, the store and the topics."""
        require_pyspark()
        from pyspark_pyrocket.source.batch_reader import default_schema

        return default_schema(self._request())

    def reader(self, schema: "StructType") -> "DataSourceReader":
        """Return the reader of a batch; `schema` is the projection."""
        require_pyspark()
        from pyspark_pyrocket.source.batch_reader import RocketReader

        return RocketReader(self._request(), schema)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        """Return the reader of a stream; `schema` is the projection."""
        require_pyspark()
        from pyspark_pyrocket.source.stream_reader import stream_reader

        return stream_reader(self._request(), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        """Check the target, create it if requested, and return the writer of a batch."""
        require_pyspark()
        from pyspark_pyrocket.sink.writer import batch_writer

        return batch_writer(self._request(), schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamArrowWriter":
        """Check the target as `writer` does, and return the writer of a micro-batch."""
        require_pyspark()
        from pyspark_pyrocket.sink.writer import stream_writer

        return stream_writer(self._request(), schema, overwrite)

    def _request(self) -> "Request":
        from pyspark_pyrocket.options.target import Request

        return Request(dict(self.options), self._driver_directory, self._driver_store)
