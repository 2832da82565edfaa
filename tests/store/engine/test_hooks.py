"""A writer calls the hooks of services at the right time."""

from dataclasses import replace

from pyrocket import Store
from support.inner import inner
from support.stores import filled, log_files, message


def hooks(store):
    return inner(store).services.hooks


def start_of(file):
    return int(file.name)


def test_files_that_a_service_needs_are_kept_and_older_files_are_deleted(tmp_path):
    with filled(tmp_path, 200) as store:
        before = list(map(start_of, log_files(tmp_path)))
        held = before[3]
        hooks(store).holds.update(first=lambda: held + 5, second=lambda: held + 9000)
        planned = store.clean(total_bytes=0, dry_run=True)
        report = store.clean(total_bytes=0)
        assert list(map(start_of, log_files(tmp_path))) == before[3:]
        assert [one.file.start for one in report.removals] == before[:3]
        assert [(one.file.start, one.held_by) for one in report.kept] == [
            (start, "first") for start in before[3:-1]
        ]
        assert report.kept_bytes == 4096 * len(report.kept)
        assert report.log_start == held
        assert replace(planned, dry_run=False) == report


def test_a_cleaning_leaves_no_gap_if_a_service_releases_files_between_two_exclusive_sections(
    tmp_path,
):
    with filled(tmp_path, 500) as store:
        files = list(map(start_of, log_files(tmp_path)))
        assert len(files) > 12, "one exclusive section deletes fewer files"
        hooks(store).holds["it"] = lambda: files[3]
        hooks(store).after_section.append(lambda: hooks(store).holds.pop("it", None))
        report = store.clean(total_bytes=0)
        assert list(map(start_of, log_files(tmp_path))) == files[3:]
        assert [one.file.start for one in report.kept] == files[3:-1]


def test_a_service_is_called_before_files_are_deleted(tmp_path):
    with filled(tmp_path, 200) as store:
        seen = []
        hooks(store).before_removal.append(
            lambda start: seen.append((start, start_of(log_files(tmp_path)[0])))
        )
        before = start_of(log_files(tmp_path)[0])
        report = store.clean(total_bytes=0)
        assert seen[0][1] == before
        assert max(start for start, _ in seen) == report.log_start


def test_messages_that_a_service_reappends_are_durable_before_files_are_deleted(tmp_path):
    with filled(tmp_path, 200) as store:
        writer, order = inner(store).writer, []
        hooks(store).before_removal.append(lambda start: order.append("moved"))
        cleaner, run = inner(store).cleaner, writer.files.log.run
        flush, remove = cleaner._flush, run.remove
        cleaner._flush = lambda: (order.append("flushed"), flush())
        run.remove = lambda start: (order.append("removed"), remove(start))
        store.clean(total_bytes=0)
        assert order[:3] == ["moved", "flushed", "removed"]


def test_services_called_after_an_exclusive_section_may_enter_one_themselves(tmp_path):
    with filled(tmp_path, 1) as store:
        called = []

        def service():
            with inner(store).writer.try_exclusive():
                called.append(store.max_offset("t", 0))

        hooks(store).after_section.append(service)
        store.append(message(b"one"))
        assert called == [2]


def test_services_are_called_before_a_clean_shutdown_but_not_before_an_unclean_one(tmp_path):
    called = []
    for clean in (False, True):
        store = filled(tmp_path, 1)
        hooks(store).before_clean_shutdown.append(lambda clean=clean: called.append(clean))
        store.close(clean=clean)
    assert called == [True]
    with Store.open(tmp_path, read_only=True) as store:
        assert store.max_offset("t", 0) == 2
