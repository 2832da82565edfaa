"""The clients of brokers and name servers. Imports neither a broker nor a server.

connection     the channel to a broker: addresses, the first call
client         calls a broker, and repeats calls
source         reads the store of a broker
sink           writes to the store of a broker, and uploads staged files
admin          administers the store of a broker
version_watch  follows the versions of a store
lookup         finds brokers through name servers
broker         calls a broker in an event loop
brokers        finds all brokers of a client, and follows their notifications
"""

import pyrocket.wire  # noqa: F401 - reports packages that are missing
