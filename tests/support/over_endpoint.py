"""Selects the connector's tests that run with both targets, `path` and `endpoint`.

In every run, tests in `QUICK` run over `endpoint` and the other tests of `MODULES` with `path`; the
heavy run adds the other target. Tests of truncated, restored and golden stores also run with both,
by their own fixtures.
"""

QUICK = frozenset(
    {
        "test_every_column_is_read_in_its_type",
        "test_a_stream_copies_a_topic_to_another",
        "test_a_micro_batch_that_was_not_published_is_published_by_its_replay",
        "test_a_view_of_a_store_in_use_shows_the_state_at_planning_time",
    }
)
"""Reads, a stream, a sink, exactly-once, a view."""

MODULES = {
    "test_batch_read": {
        # The ways to pass a directory.
        "test_a_path_can_be_given_to_load_and_as_a_uri",
    },
    "test_stream_read": {
        # Tests the delay service of a reader; a broker delivers by itself.
        "test_running_query_delivers_delayed_messages_without_a_writer",
    },
    "test_deleted_while_stopped": set(),
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
        # The option sets the limit of the store that the writer opens; a broker has its own limit.
        "test_the_longest_delay_of_rows_is_an_option",
    },
    "test_payload": set(),
    "test_key_read": {
        # Use a store with its own clock, and a store that only RocketMQ has opened.
        "test_a_look_up_is_limited_to_a_time_range",
        "test_messages_of_a_rocketmq_broker_are_found_by_key",
        # The line is logged by the store in the driver.
        "test_a_log_line_names_the_indexes_used_and_the_unread_messages",
    },
    "test_pending": {
        # Uses a copied store.
        "test_half_messages_are_rows",
    },
    "test_group_progress": {
        # Hold the lock of the directory, or count the waits for it.
        "test_available_now_waits_for_its_last_commit",
        "test_a_store_held_by_another_process_fails_the_start_with_the_reason",
        "test_a_broker_that_opens_the_directory_later_does_not_end_the_query",
        "test_a_busy_writer_does_not_fail_the_start",
        # Serves the store itself.
        "test_a_slow_commit_of_a_broker_fails_neither_the_start_nor_a_commit",
        # Reads right after an append, which a broker reports some milliseconds later.
        "test_small_batches_share_a_commit_and_the_end_of_the_query_commits_the_rest",
    },
    "test_missing_topics": {
        # These tests have no store at first; a broker always has one.
        "test_a_query_that_waits_still_needs_a_store",
        "test_columns_cannot_be_inferred_from_a_missing_topic",
        "test_a_new_query_creates_its_store_and_topic_when_spark_asks_where_it_starts",
        "test_a_restarted_query_never_creates_its_store",
        "test_a_store_with_all_topics_is_not_opened_for_writing",
        "test_a_folder_that_is_not_a_store_does_not_become_one",
        "test_by_default_a_query_creates_nothing",
    },
    "test_cleaned": set(),
    "test_groups": set(),
    "test_admission": set(),
}
"""Module → its tests that run with `path` only, because they test the directory itself."""


def runs(module, test):
    """Return whether a test runs with both targets."""
    return module in MODULES and test not in MODULES[module]
