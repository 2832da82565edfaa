"""Whether a key index that ends before the log does is a loss, a choice or nothing at all."""

from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import DISPATCHED, INDEXED, SharedState
from pyrocket.errors import StoreDamagedError
from pyrocket.metadata.identity import Identity
from pyrocket.tools.verify.finding import Severity


def lag_of(layout: Layout, identity: Identity) -> Severity | None:
    """Return what it means if the index lacks keys of the end of a store closed cleanly.

    A broker with an index has all of them in it, and so has a writer, whose words say so; they are
    believed in a copy, too. A writer without an index lags behind by intent, and one that appends
    nothing builds nothing: a note. Of a snapshot, which has no words, it is known: nothing.
    """
    if not identity.store_id:
        return Severity.WARNING if any(layout.index.glob("*")) else None
    try:
        page = SharedState(layout.state, writable=False)
    except (FileNotFoundError, ValueError, StoreDamagedError):
        return None
    try:
        return Severity.WARNING if page[INDEXED] >= page[DISPATCHED] > 0 else Severity.NOTE
    finally:
        page.close()
