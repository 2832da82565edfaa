"""Tag expressions: `A || B` wants messages whose tags are exactly A or exactly B.

Source: `FilterAPI.buildSubscriptionData`, and `DefaultMQPushConsumerImpl` for the exact comparison.
"""

from pyrocket.errors import InvalidInputError

_JAVA_BLANKS = "".join(map(chr, range(33)))
"""What Java's `String.trim` takes off."""


def parse_tags(expression: str) -> frozenset[str] | None:
    """Return the tags that are wanted; None for `*` or nothing, which mean every message.

    Blanks around tags and empty pieces don't count. Raises InvalidInputError (TAGS_INVALID) if
    no tag is left.
    """
    if expression in ("", "*"):
        return None
    tags = frozenset(tag.strip(_JAVA_BLANKS) for tag in expression.split("||")) - {""}
    if not tags:
        raise InvalidInputError(
            f"the tag expression {expression!r} names no tag.",
            remedy="Write tags separated by ||, as in 'paid || shipped', or * for all messages.",
            code="TAGS_INVALID",
        )
    return tags
