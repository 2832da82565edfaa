"""Other names of commands, which the help leaves out: RocketMQ's `mqadmin`, and earlier ones.

Only the name is RocketMQ's; arguments and options are those of the command. `pyrocket aliases`
lists them.
"""

import click

ALIASES = {
    "brokerStatus": "broker status",
    "checkMsgSendRT": "bench",
    "cleanExpiredCQ": "store clean",
    "clusterList": "broker status",
    "consumeMessage": "message show",
    "consumerProgress": "group lag",
    "deleteExpiredCommitLog": "store clean",
    "deleteSubGroup": "group delete",
    "deleteTopic": "topic delete",
    "getBrokerConfig": "store info",
    "getConsumerConfig": "group show",
    "printMsg": "message show",
    "printMsgByQueue": "message show",
    "queryMsgById": "message find",
    "queryMsgByKey": "message find",
    "queryMsgByOffset": "message show",
    "queryMsgByUniqueKey": "message find",
    "resetOffsetByTime": "offset reset",
    "sendMessage": "message send",
    "statsAll": "group list",
    "topicList": "topic list",
    "topicRoute": "topic show",
    "topicStatus": "topic show",
    "updateSubGroup": "group create",
    "updateTopic": "topic alter --create-missing",
    "updateTopicPerm": "topic alter",
    "message consume": "message show",
    "message produce": "message send",
    "message query": "message find",
    "store set": "store retention",
}
"""Name → command, with the options that make it the same."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def aliases(as_json: bool) -> None:
    """List the other names of commands, among them those of RocketMQ's mqadmin."""
    from pyrocket.tools.cli.frame import show_json
    from pyrocket.tools.cli.show import show_rows

    if as_json:
        show_json({"aliases": ALIASES})
    else:
        show_rows(("alias", "command"), [*ALIASES.items()])
