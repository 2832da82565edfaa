"""Signs calls as RocketMQ does: MQv2-HMAC-SHA1, in the metadata `authorization`.

The signature covers only the date, so without TLS an eavesdropper can replay it.
"""

import hmac
import re
from collections.abc import Iterable
from datetime import datetime, timezone

SCHEME = "MQv2-HMAC-SHA1"
DATE_KEY, AUTHORIZATION_KEY = "x-mq-date-time", "authorization"
_FIELD = re.compile(r"([A-Za-z]+)=([^,\s]*)")

Metadata = tuple[tuple[str, str], ...]


def sign(access_key: str, secret: str) -> Metadata:
    """Return the metadata of a call made now."""
    date = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    signature = hmac.new(secret.encode(), date.encode(), "sha1").hexdigest()
    text = f"{SCHEME} Credential={access_key}, SignedHeaders={DATE_KEY}, Signature={signature}"
    return (DATE_KEY, date), (AUTHORIZATION_KEY, text)


def parse(metadata: Iterable[tuple[str, str | bytes]]) -> tuple[str, bytes, bytes] | None:
    """Return the access key, the signed bytes and the signature of a call, or None.

    Some clients append region and service to the access key. An empty key means no credentials.
    """
    found = {key: value for key, value in metadata if isinstance(value, str)}
    scheme, _, rest = found.get(AUTHORIZATION_KEY, "").partition(" ")
    parts = dict(_FIELD.findall(rest))
    key = parts.get("Credential", "").partition("/")[0]
    if scheme != SCHEME or not key:
        return None
    try:
        signature = bytes.fromhex(parts.get("Signature", ""))
    except ValueError:
        signature = b""
    return key, found.get(DATE_KEY, "").encode(), signature
