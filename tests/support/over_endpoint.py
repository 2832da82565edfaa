"""Selects the connector's tests that run with both targets, `path` and `endpoint`.

The tests in `QUICK` run with both in each run, all others of `MODULES` in the heavy run.
"""

QUICK = frozenset(
    {
        "test_every_column_arrives_in_its_type",
        "test_the_first_action_determines_the_messages_of_a_dataframe",
        "test_restarted_query_reads_every_message_exactly_once",
        "test_running_query_discovers_new_queues_and_topics",
        "test_a_topic_flows_into_another",
        "test_rows_of_all_tasks_and_topics_appear_in_one_publication",
        "test_a_micro_batch_that_was_not_published_is_published_by_its_replay",
        "test_a_view_of_a_store_in_use_is_as_of_its_plan",
    }
)
"""Tests that run over `endpoint` by default: a read, a stream, a sink, exactly-once, a view."""

MODULES = {
    "test_batch_read": {
        # Tests the forms in which a directory is given.
        "test_a_path_can_be_given_to_load_and_as_a_uri",
        "test_sql_reads_and_writes_through_a_temporary_view",
        "test_a_table_without_options_explains_the_trap_and_how_to_pass_them",
    },
    "test_stream_read": {
        # Tests the delay service of a reader; a broker has its own.
        "test_running_query_delivers_delayed_messages_without_a_writer",
    },
    "test_stream_promises": set(),
    "test_batch_write": set(),
    "test_stream_write": set(),
    "test_delivery": {
        # Reads the staging files.
        "test_a_write_leaves_no_staged_files",
    },
    "test_kafka_mode": set(),
    "test_value_columns": set(),
    "test_views": set(),
    "test_delayed_write": {
        # Sets a limit of the store that the writer opens; a broker has its own.
        "test_how_far_ahead_rows_may_be_due_is_an_option",
    },
}
"""Module → its tests whose subject is the directory itself."""


def runs(module, test):
    """Return whether a test runs with both targets."""
    return module in MODULES and test not in MODULES[module]
