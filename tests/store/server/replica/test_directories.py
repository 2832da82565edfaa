"""Commands on the directory of a replica."""

from pyrocket import Message, Store
from pyrocket.tools.verify.verify import verify
from support.commands import run
from support.name_server import wait_until
from support.replicas import pass_files, pass_on, replica_of


def test_a_replica_is_sound_and_its_snapshot_is_a_store(primary, path, where, tmp_path):
    """It has no index of timers; a damaged role is a finding."""
    with primary:
        primary.run_services()
        timer = Message(topic="t", body=b"timer", deliver_at_ms=primary.now() + 500)
        primary.append(timer)
        wait_until(lambda: [one.body for one in primary.messages("t")])
        follower = replica_of(path, where)
        pass_files(path, follower)
        pass_on(path, follower)
        pass_files(path, follower)
    assert set(verify(where).counts) <= {"NOT_CLOSED"}
    assert run("snapshot", where, tmp_path / "beside").exit_code == 0
    follower.close(clean=True)
    assert verify(where).ok
    assert run("snapshot", where, tmp_path / "after").exit_code == 0
    for target in ("beside", "after"):
        with Store.open(tmp_path / target) as store:
            assert [one.body for one in store.messages("t")] == [b"timer"]
            store.append(Message(topic="t", body=b"more"))
    where.joinpath("pyrocket/role.json").write_text("xx")
    assert ("CONFIG_BROKEN", "pyrocket/role.json") in [
        (one.code, one.file) for one in verify(where).findings
    ]
