"""Spark's DDL for the columns of a schema: text → types, and types → text. Pure.

The process that plans a Python source has no Spark session, so it cannot call Spark's parser. This
one reads the part of Spark's grammar (`SqlBaseParser.g4`: colType, complexColType) with the types
that JSON can represent.
"""

import json
import re

from pyrocket.errors import SchemaError
from pyspark.sql import types

_WITH_LENGTH = ("char", "character", "varchar")
"""Types with a length, which are read as STRING: bodies are neither padded nor cut."""

_WORDS: dict[str, types.DataType] = {
    "boolean": types.BooleanType(),
    "tinyint": types.ByteType(),
    "byte": types.ByteType(),
    "smallint": types.ShortType(),
    "short": types.ShortType(),
    "int": types.IntegerType(),
    "integer": types.IntegerType(),
    "bigint": types.LongType(),
    "long": types.LongType(),
    "float": types.FloatType(),
    "real": types.FloatType(),
    "double": types.DoubleType(),
    "date": types.DateType(),
    "timestamp": types.TimestampType(),
    "timestamp_ltz": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "string": types.StringType(),
    **dict.fromkeys(_WITH_LENGTH, types.StringType()),
    "binary": types.BinaryType(),
    "decimal": types.DecimalType(),
    "dec": types.DecimalType(),
    "numeric": types.DecimalType(),
}
_TOKEN = re.compile(
    r"\s*(?:(?P<name>`(?:[^`]|``)+`|\w+)|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")"
    r"|(?P<mark>[<>(),:]))",
    re.DOTALL,
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DEEPEST = 64


def parse_ddl(option: str, text: str) -> types.StructType:
    """Return the columns of `a INT, b STRUCT<c: STRING>`, `struct<...>`, or `schema.json()`.

    NOT NULL and COMMENT are accepted and ignored: bodies cannot guarantee NOT NULL.
    Raises SchemaError (SCHEMA_INVALID).
    """
    if text.lstrip().startswith("{"):
        return _from_json(option, text)
    return _Parser(option, text).schema()


def to_ddl(schema: types.StructType) -> str:
    """Return the columns as DDL; names are quoted if necessary."""
    return ", ".join(f"{_quoted(field.name)} {_type_ddl(field.dataType)}" for field in schema)


def _type_ddl(kind: types.DataType) -> str:
    if isinstance(kind, types.StructType):
        inner = (f"{_quoted(field.name)}: {_type_ddl(field.dataType)}" for field in kind)
        return f"STRUCT<{', '.join(inner)}>"
    if isinstance(kind, types.ArrayType):
        return f"ARRAY<{_type_ddl(kind.elementType)}>"
    if isinstance(kind, types.MapType):
        return f"MAP<{_type_ddl(kind.keyType)}, {_type_ddl(kind.valueType)}>"
    if isinstance(kind, types.StringType):
        return kind.simpleString().replace("string", "STRING").replace(" collate ", " COLLATE ")
    return kind.simpleString().upper()


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _from_json(option: str, text: str) -> types.StructType:
    try:
        schema = types.StructType.fromJson(json.loads(text))
    except Exception as error:  # `fromJson` lets any exception of its lookups through.
        raise SchemaError(
            f"Option {option!r} starts like JSON, but is not a Spark schema: {error!r}.",
            remedy="Write DDL, as in id BIGINT, name STRING, or what schema.json() returns.",
        ) from error
    return parse_ddl(option, to_ddl(schema))


class _Parser:
    """A recursive descent parser over tokens with their positions."""

    def __init__(self, option: str, text: str) -> None:
        self._option, self._text, self._at = option, text, 0
        self._tokens: list[tuple[str, str, int]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._wrong("Invalid character", at)
            self._tokens.append((str(match.lastgroup), match[str(match.lastgroup)], at))
            at = match.end()
        self._tokens.append(("end", "", end))

    def schema(self) -> types.StructType:
        if self._peek() == "struct" and self._tokens[self._at + 1][1] == "<":
            kind = self._type(0)
            assert isinstance(kind, types.StructType)
        else:
            kind = types.StructType(self._fields(0))
        if self._tokens[self._at][0] != "end":
            raise self._wrong("Unexpected text after the last column")
        return kind

    def _fields(self, depth: int) -> list[types.StructField]:
        fields = [self._field(depth)]
        while self._accept(","):
            fields.append(self._field(depth))
        names = [field.name for field in fields]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise self._wrong(f"{twice!r} is named twice")
        return fields

    def _field(self, depth: int) -> types.StructField:
        name = self._name()
        self._accept(":")
        kind = self._type(depth)
        if self._accept("not"):
            self._expect("null")
        if self._accept("comment"):
            self._take("text", "a comment in quotes")
        return types.StructField(name, kind)

    def _name(self) -> str:
        name = self._take("name", "the name of a column")
        return name[1:-1].replace("``", "`") if name.startswith("`") else name

    def _type(self, depth: int) -> types.DataType:
        if depth > _DEEPEST:
            raise self._wrong("Types are nested too deeply")
        before = self._at
        word = self._take("name", "a type").lower()
        if word in ("array", "map", "struct"):
            return self._nested(word, depth + 1)
        if word not in _WORDS:
            self._at = before
            raise self._wrong(f"{word.upper()} is not a type that JSON can be read into")
        if word in _WITH_LENGTH:
            self._length()
        if word == "string" and self._accept("collate"):
            return types.StringType(self._name())
        if isinstance(_WORDS[word], types.DecimalType) and self._accept("("):
            return self._decimal()
        return _WORDS[word]

    def _nested(self, word: str, depth: int) -> types.DataType:
        self._expect("<")
        kind: types.DataType
        if word == "struct":
            # An empty struct is legal.
            kind = types.StructType([] if self._peek() == ">" else self._fields(depth))
        elif word == "array":
            kind = types.ArrayType(self._type(depth))
        else:
            before = self._at
            key = self._type(depth)
            if not isinstance(key, types.StringType):
                self._at = before
                raise self._wrong("The keys of a map are STRING, as they are in JSON")
            self._expect(",")
            kind = types.MapType(key, self._type(depth))
        self._expect(">")
        return kind

    def _length(self) -> None:
        self._expect("(")
        self._number()
        self._expect(")")

    def _decimal(self) -> types.DecimalType:
        before = self._at
        precision, scale = self._number(), 0
        if self._accept(","):
            scale = self._number()
        self._expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            self._at = before
            raise self._wrong("A decimal has 1 to 38 digits, including those after the point")
        return types.DecimalType(precision, scale)

    def _number(self) -> int:
        digits = self._take("name", "a number")
        if not (digits.isascii() and digits.isdigit()):
            self._at -= 1
            raise self._wrong("Expected a number")
        return int(digits)

    def _peek(self) -> str:
        return self._tokens[self._at][1].lower()

    def _accept(self, word: str) -> bool:
        accepted = self._peek() == word
        self._at += accepted
        return accepted

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._wrong(f"Expected {word.upper()!r}")

    def _take(self, kind: str, what: str) -> str:
        actual, token, _ = self._tokens[self._at]
        if actual != kind:
            raise self._wrong(f"Expected {what}")
        self._at += 1
        return token

    def _wrong(self, happened: str, at: int | None = None) -> SchemaError:
        place = self._tokens[self._at][2] if at is None else at
        rest = self._text[place:].strip()
        words = dict.fromkeys(kind.simpleString().split("(")[0].upper() for kind in _WORDS.values())
        return SchemaError(
            f"Option {self._option!r}: {happened}, at {rest[:40]!r}."
            if rest
            else f"Option {self._option!r}: {happened}, at its end.",
            remedy="Write Spark's DDL, as in id BIGINT, at TIMESTAMP, items ARRAY<STRUCT<sku: "
            f"STRING, n: INT>>, with the types {', '.join(words)}, ARRAY, MAP, STRUCT.",
        )
