"""The data source class: values fixed on creation, and its pickled state."""

import os
import pickle

import pytest
from pyrocket.errors import OptionError
from pyspark_pyrocket import DefaultSource


def test_the_environment_selects_the_store_if_there_is_no_path(box, monkeypatch):
    box.create()
    monkeypatch.setenv("PYROCKET_STORE", box.path)
    source = DefaultSource({"topic": "t"})
    monkeypatch.delenv("PYROCKET_STORE")
    assert "body" in pickle.loads(pickle.dumps(source)).schema().names


def test_a_relative_path_is_resolved_on_the_driver_for_all_workers(box, monkeypatch):
    box.create()
    monkeypatch.chdir(os.path.dirname(box.path))
    source = pickle.dumps(DefaultSource({"path": "store", "topic": "t"}))
    monkeypatch.chdir("/")
    assert "body" in pickle.loads(source).schema().names


def test_the_options_determine_the_schema(box):
    box.create()

    def names(**options):
        return DefaultSource({**box.options, **options}).schema().names

    assert names()[:2] == ["topic", "brokerName"]
    assert names(schemaMode="kafka")[:2] == ["key", "value"]
    assert names(schemaMode="kafka", includeHeaders="true")[-1] == "headers"


def test_creating_the_source_validates_nothing():
    source = DefaultSource({"unheard_of": "x"})
    with pytest.raises(OptionError):
        source.schema()
