"""Serves RocketMQ's own protocol, `apache.rocketmq.v2.MessagingService`, with a broker.

service       the calls, and their dispatch
unary         the calls with one reply
codes         RocketMQ's codes; converts errors to codes
interface     the messages, enums and times of the protocol
caller        the client of a call: id, user, namespace, rights, and checked names
routes        QueryRoute, QueryAssignment
sending       SendMessage, RecallMessage: checks and converts the messages
delivered     converts stored messages for clients
transactions  EndTransaction
sessions      the connected clients, and check requests to them
telemetry     Telemetry, Heartbeat, NotifyClientTermination
offsets       UpdateOffset, GetOffset, QueryOffset
pulling       PullMessage
receive_calls ReceiveMessage
receipts      AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue
long_polls    calls that wait for messages
"""
