"""How far streaming queries are behind: in log lines, and for Prometheus.

    from pyspark_pyrocket.tools import lag

    lag.watch(spark, store="/data/store", port=9400)

measure    lag by topic, from what Spark tells of a micro-batch
listener   what Spark tells, passed on
metrics    Prometheus, with RocketMQ's names
watching   the one line above
"""

from pyspark_pyrocket.tools.lag.listener import LagListener
from pyspark_pyrocket.tools.lag.measure import TopicLag, lag_of
from pyspark_pyrocket.tools.lag.watch import Watch, watch

__all__ = ["LagListener", "TopicLag", "Watch", "lag_of", "watch"]
