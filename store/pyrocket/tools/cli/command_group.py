"""The class of all command groups, and the aliases of commands.

Aliases are names of RocketMQ's `mqadmin`, and earlier names of commands. The help does not list
them. An alias has the arguments and options of its command, not those of `mqadmin`.
"""

from difflib import get_close_matches

import click

from pyrocket.tools.cli.frame import ANY_WIDTH, show_json

ALIASES = {
    "brokerStatus": "broker status",
    "checkMsgSendRT": "bench",
    "cleanExpiredCQ": "store clean",
    "clusterList": "broker list",
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
    "topicRoute": "topic route",
    "topicStatus": "topic show",
    "updateSubGroup": "group alter --create-missing",
    "updateTopic": "topic alter --create-missing",
    "updateTopicPerm": "topic alter",
    "message produce": "message send",
    "message query": "message find",
    "store set": "store retention",
}
"""Alias → command."""


class CommandGroup(click.Group):
    """A group that shows complete command summaries and suggests names for mistyped commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their summaries, which click would truncate."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, command.get_short_help_str(limit=ANY_WIDTH))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command named by the first argument. Raises UsageError."""
        alias = args[0] if ctx.parent is None else f"{self.name} {args[0]}"
        if alias in ALIASES:
            words = ALIASES[alias].split()
            args = [*(words if ctx.parent is None else words[1:]), *args[1:]]
        names, name = self.list_commands(ctx), args[0]
        if name not in names and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, names)
            proposal = f"Did you mean {' or '.join(map(repr, near))}?" if near else ""
            message = proposal or f"The commands are {', '.join(names)}."
            raise click.UsageError(f"No such command {name!r}. {message}", ctx)
        return super().resolve_command(ctx, args)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def aliases(as_json: bool) -> None:
    """List the aliases of commands, including the names of RocketMQ's mqadmin."""
    from pyrocket.tools.cli.show import show_rows

    if as_json:
        show_json({"aliases": ALIASES})
    else:
        show_rows(("alias", "command"), [*ALIASES.items()])
