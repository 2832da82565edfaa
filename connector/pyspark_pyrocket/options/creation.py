"""Whether a write makes what is not there, and for whom."""

from pyrocket import StoreConfig
from pyrocket.errors import OptionError

from pyspark_pyrocket.options.given import Given
from pyspark_pyrocket.options.option import SINK, Option

ROWS = (
    Option(
        "createIfMissing",
        "`true`",
        (SINK,),
        "Create the store and the topics that do not exist yet. A stream creates a store only "
        "for its first micro-batch.",
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


def creates(given: Given) -> bool:
    """Tell whether the store and its topics are made when they are missing."""
    return given.boolean("createIfMissing", default=True)


def directory_mode(given: Given) -> int | None:
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
