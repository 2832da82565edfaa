"""Random SQL expressions and properties, including the special cases of RocketMQ's evaluation."""

from hypothesis import strategies as st

NAMES = ["a", "b", "c", "TAGS", "$x_1"]
TEXTS = [
    "abc", "10", "5", "-3", "+7", "007", "3.14", "-0.0", "0.0", "1e3", ".5", "5.", "1e400",
    "-1e-400", "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "NaN", "Infinity", "-Infinity", "infinity",
    "nan", "1_000", " 5", "5 ", " 5.5 ", "1f", "1D", "0x1p3", "0x.8P-1d", "0x10", "0x1p99999",
    "\u0663", "\U0001d7d3", "½", "true", "TRUE", "False", "it's", "", "中", "-", "+", ".", "e5",
    "1e", "--5", "1" * 40,
]  # fmt: skip
"""Values of properties; an empty value means no property, because a message's properties cannot be
empty.
"""

_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02")
_VALUES = st.one_of(
    st.sampled_from([text for text in TEXTS if text]),
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(repr),
    st.text(_CHARACTERS, min_size=1, max_size=6),
)
PROPERTIES = st.dictionaries(st.sampled_from(NAMES), _VALUES, max_size=5)

_TEXT = st.one_of(st.sampled_from(TEXTS), st.text(_CHARACTERS, max_size=4)).map(
    lambda text: "'" + text.replace("'", "''") + "'"
)
_NUMBER = st.one_of(
    st.sampled_from(
        ["0", "5", "10", "7", "2147483647", "2147483648", "5L", "3.14", "1e3", ".5", "5.", "1E-9"]
    ),
    st.integers(0, 2**63 - 1).map(str),
)
_VALUE = st.one_of(
    st.sampled_from(NAMES),
    _NUMBER,
    _NUMBER.map("-{}".format),
    _TEXT,
    st.sampled_from(["NULL", "TRUE"]),
)


def _tests(inner):
    """Return conditions on values, some of which are conditions themselves."""
    value = st.one_of(_VALUE, st.sampled_from(NAMES), inner.map("({})".format))
    texts = st.lists(_TEXT, min_size=1, max_size=3).map(", ".join)
    negated = st.sampled_from(["", "NOT "])
    return st.one_of(
        st.builds(
            "{} {} {}".format, value, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), value
        ),
        st.builds("{} {}BETWEEN {} AND {}".format, value, negated, value, value),
        st.builds("{} {}IN ({})".format, st.sampled_from(NAMES), negated, texts),
        st.builds("{} IS {}NULL".format, value, negated),
        st.builds(
            "{} {}{} {}".format,
            value,
            negated,
            st.sampled_from(["CONTAINS", "STARTSWITH", "endswith"]),
            _TEXT,
        ),
    )


def _joined(inner):
    return st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} or {}".format, inner, inner),
        inner.map("NOT ({})".format),
        inner.map("({})".format),
        inner.map("-({}) IS NULL".format),
        _tests(inner),
    )


EXPRESSIONS = st.recursive(
    st.one_of(_tests(_VALUE), st.sampled_from(["TRUE", "FALSE", "NULL", "a", "NOT b"])),
    _joined,
    max_leaves=5,
)
"""Return expressions, many of which are invalid, such as comparisons of strings by size."""
