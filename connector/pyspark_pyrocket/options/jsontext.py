"""JSON that users type: a named error for each way in which it can be wrong."""

import json

from pyrocket.errors import OptionError


def parse(option: str, text: str, example: str) -> object:
    """Return the value of `text`; an object that names a key twice is refused too.

    example: a value of this option, for the error about text that is not JSON.
    """

    def refuse_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in pairs]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise OptionError(f"Option {option!r} names {', '.join(twice)} twice: {text}")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=refuse_twice)
    except (ValueError, RecursionError) as error:
        raise OptionError(
            f"Option {option!r} is not JSON: {error}: {text!r}.",
            remedy=f"Write for example {example}.",
        ) from error
