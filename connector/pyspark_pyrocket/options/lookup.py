"""Single messages: which keys or ids a batch looks up."""

from dataclasses import dataclass

from pyspark_pyrocket.options import jsontext
from pyspark_pyrocket.options.given import OptionReader
from pyspark_pyrocket.options.option import BATCH, Option

_STREAMS = "A stream reads what comes: filter its DataFrame."

ROWS = (
    Option(
        "keys",
        "none",
        (BATCH,),
        "Only messages with one of these keys, words of RocketMQ's KEYS or unique ids: separated "
        'by commas, or as a JSON list (`["a,b","c"]`). Looked up through the key index instead of '
        "reading the topics, within whatever else says where to start and end.",
        instead=_STREAMS,
    ),
    Option(
        "msgId",
        "none",
        (BATCH,),
        "Only the messages with these ids, written as `keys` are: unique ids of producers, or ids "
        "of brokers, which name a place in the log.",
        instead=_STREAMS,
    ),
)


@dataclass(frozen=True, kw_only=True)
class KeyLookup:
    """keys: what messages have one of. ids: which they are. At most one of the two is given."""

    keys: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: OptionReader) -> "KeyLookup":
        """Read what to look up."""
        given.refuse_together("keys", "msgId", "An id is enough to find a message: keep one.")
        for option in ("keys", "msgId"):
            if given.text("view", "messages").lower() != "messages":
                given.refuse_together("view", option, "Views are read whole: filter the DataFrame.")
        return cls(keys=_words(given, "keys"), ids=_words(given, "msgId"))

    def __bool__(self) -> bool:
        return bool(self.keys or self.ids)

    def describe(self) -> str:
        """Return what is looked up, for a log line."""
        words, kind = (self.keys, "key") if self.keys else (self.ids, "id")
        return f"{len(words)} {kind}{'s' if len(words) > 1 else ''}"


def _words(given: OptionReader, option: str) -> tuple[str, ...]:
    if option not in given:
        return ()
    text = given.text(option)
    if text.startswith("["):
        words = jsontext.parse(option, text, '["a,b","c"]')
    else:
        words = [word.strip() for word in text.split(",")]
    if not isinstance(words, list) or not words or not all(map(_is_word, words)):
        raise given.wrong(
            option,
            'Write words separated by commas, or a JSON list of them, as in ["a,b","c"]. '
            "None is empty, and none has a space: RocketMQ separates keys by spaces.",
        )
    return tuple(dict.fromkeys(words))


def _is_word(word: object) -> bool:
    return isinstance(word, str) and word != "" and " " not in word
