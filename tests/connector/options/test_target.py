"""A query selects its store by path, endpoint or environment."""

import pytest
from pyrocket.errors import OptionError
from pyspark_pyrocket.options.endpoint import ADDRESSES, BROKER_ADDRESSES, NAME_SERVERS
from pyspark_pyrocket.options.target import Request, absolute_path, split_target


def target(default_store="", **options):
    return split_target(Request(options, "/work", default_store))[0]


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/data/store", "/data/store"),
        ("/data/../store/", "/store"),
        ("store", "/work/store"),
        ("./a:b", "/work/a:b"),
        ("file:/data/my%20store", "/data/my store"),
        ("file:///data/store", "/data/store"),
        ("file://localhost/data/store", "/data/store"),
        ("FILE:/data/a#b?c", "/data/a#b?c"),
        ("/data/100%25", "/data/100%25"),
    ],
)
def test_a_path_becomes_absolute_on_the_driver(given, path):
    assert absolute_path(given, "/work") == path


@pytest.mark.parametrize("uri", ["hdfs://nn/x", "s3a://b/x", "dbfs:/x", "http://h/x"])
def test_other_schemes_are_rejected_with_an_error_that_names_them(uri):
    with pytest.raises(OptionError, match=f"scheme '{uri.split(':')[0]}'"):
        absolute_path(uri, "/work")


@pytest.mark.parametrize("uri", ["file:data", "file://host/data", "file:"])
def test_a_file_uri_has_to_be_local_and_absolute(uri):
    with pytest.raises(OptionError, match="local absolute path"):
        absolute_path(uri, "/work")


def test_a_path_overrides_the_environment():
    assert target(path="/a", default_store="/b") == "/a"
    assert target(default_store="b") == "/work/b"


@pytest.mark.parametrize("options", [{}, {"path": ""}, {"path": "  "}])
def test_a_missing_target_explains_the_create_table_trap(options):
    with pytest.raises(OptionError, match=r"PYROCKET_STORE.*CREATE TABLE.*TEMPORARY VIEW") as info:
        target(**options)
    assert info.value.code == "OPTION_MISSING"


@pytest.mark.parametrize("more", [{"path": "/a"}, {"endpoint": "localhost:8081"}])
def test_name_servers_override_the_environment_and_exclude_other_targets(more):
    assert target(default_store="/b", NameSrv="h:9876") == ""
    with pytest.raises(OptionError, match="namesrv") as info:
        target(namesrv="h:9876", **more)
    assert info.value.code == "OPTION_CONFLICT"


def test_name_servers_and_addresses_of_brokers():
    assert NAME_SERVERS.parse("namesrv", "h1:9876; h2:9876,[::1]:9") == (
        *("h1:9876", "h2:9876"),
        "[::1]:9",
    )
    parsed = BROKER_ADDRESSES.parse("brokerAddresses", "broker-a=h:10911, b=h:10921")
    assert parsed == (("broker-a", "h:10911"), ("b", "h:10921"))
    for text in ("h:10911", "a=h", "=h:1", ""):
        with pytest.raises(OptionError):
            BROKER_ADDRESSES.parse("brokerAddresses", text)


def test_an_endpoint_overrides_the_environment_and_excludes_a_path():
    assert target(default_store="/b", EndPoint="localhost:8081") == ""
    with pytest.raises(OptionError, match="'/a'") as info:
        target(path="/a", endpoint="localhost:8081")
    assert info.value.code == "OPTION_CONFLICT"


@pytest.mark.parametrize(
    "text", ["localhost", "h:0", "h:65536", "http://h:1", "h:1,,h:2", "::1:80", ""]
)
def test_an_address_without_host_or_port_is_rejected(text):
    with pytest.raises(OptionError, match="host:port"):
        ADDRESSES.parse("endpoint", text)


def test_several_addresses_are_kept_in_their_order():
    assert ADDRESSES.parse("endpoint", "b:2, [::1]:1") == ("b:2", "[::1]:1")


@pytest.mark.parametrize("path", ["C:\\store", "c:/store", "D:store", "C:"])
def test_a_windows_path_is_rejected_with_the_reason(path):
    with pytest.raises(OptionError, match="Windows") as info:
        absolute_path(path, "/work")
    assert f"/mnt/{path[0].lower()}/" in info.value.remedy


def test_a_list_of_one_path_is_read_as_that_path():
    assert target(paths='["/a"]') == "/a"


@pytest.mark.parametrize("options", [{"paths": '["/a","/b"]'}, {"paths": '["/a"]', "path": "/b"}])
def test_several_paths_are_rejected(options):
    with pytest.raises(OptionError, match=r"Several paths.*union"):
        target(**options)
