"""RocketMQ's own protocol, `apache.rocketmq.v2.MessagingService`, over the parts of a broker.

service       the table of calls, and how a call is answered
codes         RocketMQ's codes, and errors to codes
interface     its messages, enums, times and addresses
caller        who makes a call: client id, user, namespace, rights, and checked names
routes        QueryRoute, QueryAssignment
sent          a message of SendMessage, checked
sending       SendMessage, RecallMessage
delivered     stored messages as clients get them
transactions  EndTransaction, and the questions about undecided messages
sessions      the clients that are connected
telemetry     Telemetry, Heartbeat, NotifyClientTermination
offsets       UpdateOffset, GetOffset, QueryOffset
pulling       PullMessage
receiving     ReceiveMessage
receipts      AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue
long_polls    calls that wait for messages
pending_reply a reply that waits for the disk
"""
