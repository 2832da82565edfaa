"""Whether a write, or a stream, makes what is not there, and for whom."""

from pyrocket import StoreConfig
from pyrocket.errors import OptionError

from pyspark_pyrocket.options.given import OptionReader
from pyspark_pyrocket.options.option import SINK, STREAM, Option

ROWS = (
    Option(
        "createIfMissing",
        "`true` (sink), `false` (stream)",
        (STREAM, SINK),
        "Create the store and the topics that do not exist yet. A stream creates a store only "
        "where it begins: a query that is restarted while its disk is not mounted makes no empty "
        "one. A source with `subscribePattern` creates no topics.",
        instead="A batch reads what is there: with missingTopic=wait it is empty without its "
        "topics.",
    ),
    Option(
        "directoryMode",
        "as the umask",
        (SINK,),
        "The permissions of a store that this write creates, such as `2770`: with the leading `2` "
        "the directory's group may do with all that is made in it what it may do with the "
        "directory, under whatever umask.",
    ),
)


def creates(given: OptionReader) -> bool:
    """Tell whether the store and its topics are made when they are missing."""
    return given.boolean("createIfMissing", default=given.query == SINK)


def source_creates(given: OptionReader) -> bool:
    """Tell the same for a read, which may have to leave the store alone."""
    wanted = creates(given)
    if wanted and given.boolean("readOnly", default=False):
        raise OptionError(
            "Both createIfMissing=true and readOnly=true are given, and it writes to the store.",
            remedy="Keep one of them.",
            code="OPTION_CONFLICT",
        )
    return wanted


def directory_mode(given: OptionReader) -> int | None:
    """Return the permissions of a new store's directory, or None where the umask says them."""
    if "directoryMode" not in given:
        return None
    if not creates(given):
        raise OptionError(
            "Option 'directoryMode' is given with createIfMissing=false, which creates nothing.",
            remedy="Remove one of them.",
            code="OPTION_CONFLICT",
        )
    try:
        return StoreConfig(dir_mode=int(given.text("directoryMode"), 8)).dir_mode
    except (ValueError, OptionError) as error:
        raise given.wrong(
            "directoryMode",
            "Write octal permissions, as in 2770 or 750: the owner's have to be 7.",
        ) from error
