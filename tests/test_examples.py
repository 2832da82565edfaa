"""Every example runs and prints the expected output; the flights example detects differences."""

import re
import runpy
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from flights_check import count_differences, differences, flights_of, totals

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SHORT = ["without_spark", "pipe", "kafka_job"]
SOURCE = pa.table({"id": ["a", "b", "c"], "carrier": ["UA", "UA", "AA"], "distance": [10, 20, 30]})


def run(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def test_the_example_without_spark_prints_messages_by_queue(capsys):
    assert run("without_spark", capsys) == [
        "order 0 of ann: queue 1, offset 0",
        "order 1 of eve: queue 0, offset 0",
        "order 2 of ann: queue 1, offset 1",
        "queue 0 contains order 1",
        "queue 1 contains order 0",
        "queue 1 contains order 2",
    ]


def test_the_pipe_example_forwards_urgent_messages(spark, capsys):
    assert run("pipe", capsys) == ["urgent: pump 3 is hot"]


def test_the_kafka_example_counts_the_messages_of_each_key(spark, capsys):
    assert run("kafka_job", capsys) == ["ann: 2", "eve: 1"]


@pytest.mark.parametrize("name", SHORT)
def test_short_examples_are_short(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 40


@pytest.mark.heavy
def test_the_flights_in_all_results_agree_with_their_source(spark, tmp_path, capsys):
    import flights

    assert flights.main(["--path", str(tmp_path / "new")]) == 0
    printed = capsys.readouterr().out
    assert "336,776 rows" in printed
    assert "Source, topic, windowed count, stream and export agree." in printed
    assert str(tmp_path / "new") in printed


def test_the_source_has_all_flights_and_nulls_where_planes_are_not_known():
    from flights_source import load_flights

    flights = load_flights()
    assert len(flights) == len(set(flights["id"].to_pylist())) == 336_776
    assert flights["tailnum"].null_count == 2512


def test_the_flights_example_requires_an_empty_folder(tmp_path):
    import flights

    (tmp_path / "something").touch()
    with pytest.raises(SystemExit, match="new or an empty folder"):
        flights.main(["--path", str(tmp_path)])


def folder_after(monkeypatch, tmp_path, arguments):
    """Return the paths that remain in the folder of the flights after the example has ended or
    failed.
    """
    import flights

    monkeypatch.setattr(flights.tempfile, "tempdir", str(tmp_path))
    with suppress(ZeroDivisionError), flights._folder(flights._parse(arguments)) as folder:
        (folder / "file").write_text("")
        raise ZeroDivisionError
    return folder.exists()


def test_the_flights_example_leaves_no_files_without_keep(monkeypatch, tmp_path):
    assert not folder_after(monkeypatch, tmp_path, [])
    assert folder_after(monkeypatch, tmp_path, ["--keep"])
    assert folder_after(monkeypatch, tmp_path, ["--path", str(tmp_path / "named")])


def test_steps_show_no_bars_if_the_output_is_not_a_terminal(capsys):
    from console import Steps

    steps = Steps(2)
    assert steps.run("load", lambda: "loaded", lambda: (1000, 1000, "rows")) == "loaded"
    steps.run("start", lambda: None)
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"1/2 load +0\.\d s  1,000 rows", first)
    assert re.fullmatch(r"2/2 start +0\.\d s", second)


def test_a_terminal_shows_the_progress_of_a_step(monkeypatch, capsys):
    from console import Steps

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    seen = threading.Event()

    def done():
        seen.set()
        return 250, 1000, "rows"

    Steps(4).run("publish", seen.wait, done)
    printed = capsys.readouterr().out
    assert "━" in printed
    assert "250 of 1,000 rows" in printed


def test_a_difference_is_printed_and_exits_with_1(capsys):
    import flights
    from console import Steps

    assert flights._conclude(Steps(1), ["topic: 1 missing, such as a"]) == 1
    assert "DIFFERENT: topic: 1 missing, such as a" in capsys.readouterr().out


def test_equal_flights_have_no_differences():
    assert differences(SOURCE, SOURCE.take([2, 0, 1])) == []
    assert count_differences(SOURCE, {"UA": 2, "AA": 1}) == []


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (
            SOURCE.slice(1),
            ["UA: Totals(flights=1, distance=20) instead of", "1 missing, such as a"],
        ),
        (SOURCE.take([0, 0, 2]), ["UA: ", "1 missing, such as b", "1 more than once"]),
        (SOURCE.take([0, 1, 2, 2]), ["AA: ", "1 more than once"]),
        (SOURCE.set_column(0, "id", [["a", "b", "x"]]), ["1 missing", "1 not in the source"]),
        (SOURCE.set_column(2, "distance", [[10, 20, 31]]), ["AA: "]),
    ],
)
def test_lost_repeated_and_changed_flights_are_detected(found, expected):
    lines = differences(SOURCE, found)
    assert len(lines) == len(expected)
    for line, start in zip(lines, expected, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize("counts", [{"UA": 2}, {"UA": 2, "AA": 2}, {"UA": 2, "AA": 1, "XX": 1}])
def test_flights_that_are_missing_or_repeated_in_the_windowed_count_are_detected(counts):
    assert len(count_differences(SOURCE, counts)) == 1


def test_a_message_is_counted_by_its_own_key_and_tag():
    message = {"key": ["UA1"], "tags": ["UA"], "body": ['{"id":"other","distance":7}']}
    assert totals(flights_of(pa.table(message)))["UA"].distance == 7
