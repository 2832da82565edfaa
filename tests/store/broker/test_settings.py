"""The settings of a broker, from flags, the environment, TOML files and broker.conf."""

import pytest
from pyrocket.broker.java_keys import JAVA_KEYS
from pyrocket.broker.settings import LIST, TEXT, Settings, load, table
from pyrocket.errors import OptionError


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def rejected(*arguments):
    with pytest.raises(OptionError) as caught:
        load(*arguments)
    assert caught.value.code == "BROKER_SETTING"
    return str(caught.value)


def test_a_flag_overrides_the_environment_which_overrides_the_file(write):
    path = write("broker.toml", 'drain = "1m"\nflush = "sync"\nread_threads = 3\nlisten = ["a:1"]')
    environment = {"PYROCKET_BROKER_FLUSH": "async", "PYROCKET_BROKER_READ_THREADS": "4"}
    found = load({"read_threads": "5"}, {**environment, "PATH": "x"}, path)
    assert (found.drain, found.flush, found.read_threads) == (60, "async", 5)
    assert found.listen == ("a:1",)
    assert load({}, {}) == Settings()


def test_limits_have_their_documented_defaults():
    found = Settings()
    assert (found.request_bytes, found.connection_bytes) == (16 << 20, 64 << 20)
    assert (found.total_bytes, found.streams_per_client) == (512 << 20, 2000)
    assert (found.parked_polls, found.stream_stalled) == (10_000, 60)
    assert (found.connection_idle, found.drain) == (1800, 30)


@pytest.mark.parametrize(
    ("listen", "creates"),
    [
        (["127.0.0.1:8081", "plain://[::1]:8082", "localhost:8083"], True),
        (["127.0.0.1:8081", "10.0.0.7:8081"], False),
        (["0.0.0.0:8081"], False),
        (["broker.example:8081"], False),
    ],
)
def test_only_a_broker_of_one_machine_creates_groups_by_default(listen, creates):
    assert Settings(listen=(*listen,)).creates_groups is creates
    for given in (True, False):
        assert Settings(listen=(*listen,), auto_create_groups=given).creates_groups is given


def test_a_broker_conf_of_rocketmq_is_read(write):
    lines = [
        *("brokerName = east", "# a comment", "flushDiskType=SYNC_FLUSH", "listenPort=9081"),
        *("fileReservedTime=48", "deleteWhen=04", "namesrvAddr=a:9876;b:9876", ""),
        *("maxMessageSize=65536", "timerMaxDelaySec=3600", "brokerId=0"),
        *("brokerRole=SYNC_MASTER", "slaveTimeout=1500"),
    ]
    found = load({}, {}, write("broker.conf", "\n".join(lines)))
    assert (found.broker_name, found.flush, found.listen) == ("east", "sync", ("127.0.0.1:9081",))
    config = found.store_config()
    assert (config.retention.hours, config.retention.at_hours) == (48, (4,))
    assert config.exclusive
    assert (config.max_message_bytes, config.timer_max_delay_ms) == (65_536, 3_600_000)
    assert found.nameserver == ("a:9876", "b:9876")
    assert found.ignored == ("brokerId",)
    assert (found.sync, found.replica_timeout) == (True, 1.5)
    assert not load({}, {}, write("c.conf", "brokerRole=ASYNC_MASTER")).replica_timeout
    assert "brokerRole" in rejected({}, {}, write("d.conf", "brokerRole=SLAVE"))
    assert "a size up to 4m" in rejected({}, {}, write("b.conf", "maxMessageSize=5000000"))


@pytest.mark.parametrize(
    "text", ["", ",", "127.0.0.1", ":8081", "plain://", "127.0.0.1:99999", "a:1,b:x", "unix:/x"]
)
def test_addresses_to_listen_at_have_a_host_and_a_port(text):
    assert "--listen" in rejected({"listen": text}, {})


KEYS = """
brokerId brokerIP1 brokerIP2 brokerPermission haListenPort storePathRootDir
storePathIndex storePathCommitLog storePathConsumeQueue storeCheckpoint abortFile
sendMessageThreadPoolNums pullMessageThreadPoolNums useReentrantLockWhenPutMessage
transientStorePoolEnable aclEnable authenticationEnabled enablePropertyFilter
osPageCacheBusyTimeOutMills diskMaxUsedSpaceRatio serverWorkerThreads clientCloseSocketIfTimeout
maxTransferBytesOnMessageInMemory slaveReadEnable flushCommitLogThoroughInterval
flushIntervalCommitLog timerWheelEnable enableControllerMode destroyMapedFileIntervalForcibly
redeleteHangedFileInterval checkCRCOnRecover messageIndexEnable tieredStorageLevel
rmqAddressServerDomain metricsExporterType
"""


def test_every_key_that_rocketmq_accepts_is_accepted(write):
    keys = KEYS.split()
    found = load({}, {}, write("broker.conf", "\n".join(f"{key} = 1" for key in keys)))
    assert found.ignored == (*keys,)


def test_every_key_that_has_an_effect_is_one_of_rocketmqs():
    assert {row.java for row in table().values() if row.java} <= JAVA_KEYS


def test_a_mistyped_key_is_rejected_with_the_nearest_of_all_keys(write):
    assert "Did you mean brokerRole?" in rejected({}, {}, write("b.conf", "brokerRol=MASTER"))
    unlike = rejected({}, {}, write("b.conf", "zzzz=1"))
    assert "flushDiskType" in unlike
    assert "haListenPort" not in unlike, "only the settings with an effect are listed"


def test_the_trace_settings_of_a_broker_conf_are_read(write):
    assert (Settings().trace, Settings().trace_topic) == (False, "RMQ_SYS_TRACE_TOPIC")
    found = load({}, {}, write("a.conf", "traceTopicEnable=true\nmsgTraceTopicName=traces"))
    assert (found.trace, found.trace_topic) == (True, "traces")
    for name in ("", "a b", "rmq_sys_pyrocket_pop", "SCHEDULE_TOPIC_XXXX"):
        assert "--trace-topic" in rejected({"trace_topic": name}, {})


def test_an_unknown_setting_is_rejected_with_the_nearest_name(write):
    assert "Did you mean drain?" in rejected({}, {}, write("b.toml", "drian = 1"))
    assert "PYROCKET_BROKER_FLUSH?" in rejected({}, {"PYROCKET_BROKER_FLUHS": "sync"})
    assert "flushDiskType?" in rejected({}, {}, write("b.conf", "flushDiskTyp=SYNC_FLUSH"))
    assert "has no value" in rejected({}, {}, write("b.conf", "brokerName"))
    assert "not valid TOML" in rejected({}, {}, write("b.toml", "drain = "))
    assert "cannot be read" in rejected({}, {}, "missing.toml")


def test_variables_of_a_service_of_kubernetes_are_ignored():
    of_service = {
        "SERVICE_HOST": "10.0.0.1",
        "SERVICE_PORT": "8081",
        "SERVICE_PORT_GRPC": "8081",
        "PORT": "tcp://10.0.0.1:8081",
        "PORT_8081_TCP": "tcp://10.0.0.1:8081",
        "PORT_8081_TCP_ADDR": "10.0.0.1",
        "METRICS_SERVICE_HOST": "10.0.0.2",
    }
    variables = {f"PYROCKET_BROKER_{name}": value for name, value in of_service.items()}
    assert load({}, {**variables, "PYROCKET_BROKER_DRAIN": "1m"}) == Settings(drain=60)
    assert "PYROCKET_BROKER_PORT" in rejected({}, {"PYROCKET_BROKER_PORT": "8081"})


@pytest.mark.parametrize(
    "name", [name for name, row in table().items() if row.kind not in (TEXT, LIST)]
)
def test_an_invalid_value_is_rejected_with_the_name_of_its_flag(name):
    row = table()[name]
    assert row.flag in rejected({name: "?"}, {})


def test_every_displayed_default_parses_to_the_default():
    for name, row in table().items():
        if row.default:
            assert getattr(load({name: row.default}, {}), name) == getattr(Settings(), name)


def test_the_store_of_a_broker_has_its_times_in_milliseconds():
    made = Settings(flush_timeout=2.5, timer_max_delay=0.5).store_config()
    assert (made.flush_timeout_ms, made.timer_max_delay_ms) == (2500, 500)
