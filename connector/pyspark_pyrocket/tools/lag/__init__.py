"""The lag of streaming queries: in log lines, and for Prometheus.

    pyspark_pyrocket.watch_lag(spark, store="/data/store", port=9400)

measure    lag by topic, from Spark's progress of a micro-batch
watch      `watch_lag`: the progress of every query of a session → lags, logged and reported
metrics    a reporter: Prometheus gauges with RocketMQ's names
"""
