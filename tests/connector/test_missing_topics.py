"""Topics that a running query has been asked for, and that are created only later."""


def test_a_query_that_waits_for_a_topic_reads_it_from_its_first_message(box, stream):
    box.create(queues=1).send("first", queue=0)
    del stream.options["topic"]
    stream.options |= {"subscribe": "t,later", "missingTopic": "wait", "startingOffsets": "latest"}
    query = stream.start()
    try:
        query.processAllAvailable()
        later = type(box)(box.path, "later").create(queues=2)
        later.send("sent at once", queue=1)
        query.processAllAvailable()
        later.send("sent after that", queue=1)
        box.send("second", queue=0)
        query.processAllAvailable()
    finally:
        query.stop()
    assert stream.output() == [
        ("later", 1, 0, "sent at once"),
        ("later", 1, 1, "sent after that"),
        ("t", 0, 1, "second"),
    ]
