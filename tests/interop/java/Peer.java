import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.namesrv.NamesrvStartup;

/**
 * RocketMQ's own client, controlled by lines of JSON: {"do": command, ...} returns {"answer": …}
 * or {"error": text}. The name server runs in the same process.
 *
 * Usage: Peer NAMESRV_CONFIG PORT
 */
public class Peer {
    private static final String PROPERTIES_OF_THE_CLIENT = "MIN_OFFSET MAX_OFFSET";
    private static String nameServer;
    private static int instances;

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        NamesrvStartup.main(new String[] {"-c", args[0]});
        nameServer = "127.0.0.1:" + args[1];
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            JSONObject reply = new JSONObject();
            try {
                reply.put("answer", run(JSON.parseObject(line)));
            } catch (Throwable error) {
                error.printStackTrace();
                reply.put("error", error.toString());
            }
            answers.println(reply.toJSONString());
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static Object run(JSONObject request) throws Exception {
        switch (request.getString("do")) {
            case "ready": return true;
            case "registered": return registered(request);
            case "send": return send(request);
            case "transaction": return transaction(request);
            case "checks": return checks(request);
            case "consume": return consume(request);
            case "pull": return pull(request);
            case "pullOnce": return pullOnce(request);
            case "query": return query(request);
            case "view": return view(request);
            case "commit": return commit(request);
            case "committed": return committed(request);
            default: throw new IllegalArgumentException(request.getString("do"));
        }
    }

    /** Returns whether the name server has a route to the broker at this address. */
    private static Object registered(JSONObject request) throws Exception {
        return withConsumer("pullers", consumer -> {
            try {
                var route = consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory()
                    .getMQClientAPIImpl().getTopicRouteInfoFromNameServer("TBW102", 5000);
                return route.getBrokerDatas().stream().anyMatch(
                    broker -> broker.getBrokerAddrs().containsValue(request.getString("address")));
            } catch (org.apache.rocketmq.client.exception.MQClientException noneYet) {
                return false;
            }
        });
    }

    // Sending

    private static Object send(JSONObject request) throws Exception {
        if (request.containsKey("compression")) {
            System.setProperty("rocketmq.message.compressType", request.getString("compression"));
        }
        DefaultMQProducer producer = new DefaultMQProducer("producers");
        System.clearProperty("rocketmq.message.compressType");
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(newName());
        producer.setSendMsgTimeout(20000);
        if (request.containsKey("queues")) {
            producer.setDefaultTopicQueueNums(request.getIntValue("queues"));
        }
        producer.start();
        try {
            return request.getBooleanValue("batch")
                ? sendBatch(producer, request) : sendEach(producer, request);
        } finally {
            end(producer::shutdown);
        }
    }

    private static Object sendEach(DefaultMQProducer producer, JSONObject request) throws Exception {
        JSONArray sent = new JSONArray();
        for (Object one : request.getJSONArray("messages")) {
            JSONObject given = (JSONObject) one;
            Message message = message(request.getString("topic"), given);
            SendResult result = given.containsKey("queue")
                ? producer.send(message, (queues, m, id) -> queues.stream()
                    .filter(queue -> queue.getQueueId() == (Integer) id).findFirst().get(),
                    given.getInteger("queue"))
                : producer.send(message);
            sent.add(sent(result));
        }
        return sent;
    }

    private static Object sendBatch(DefaultMQProducer producer, JSONObject request) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (Object one : request.getJSONArray("messages")) {
            batch.add(message(request.getString("topic"), (JSONObject) one));
        }
        JSONArray sent = new JSONArray();
        sent.add(sent(producer.send(batch)));
        return sent;
    }

    private static Message message(String topic, JSONObject given) {
        Message message = new Message(topic, Base64.getDecoder().decode(given.getString("body")));
        if (given.containsKey("tags")) {
            message.setTags(given.getString("tags"));
        }
        if (given.containsKey("keys")) {
            message.setKeys(given.getString("keys"));
        }
        if (given.containsKey("delay")) {
            message.setDelayTimeLevel(given.getIntValue("delay"));
        }
        if (given.containsKey("flag")) {
            message.setFlag(given.getIntValue("flag"));
        }
        JSONObject properties = given.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, (String) value));
        }
        JSONObject own = given.getJSONObject("own");
        if (own != null) {
            own.forEach((name, value) -> MessageAccessor.putProperty(message, name, (String) value));
        }
        return message;
    }

    private static JSONObject sent(SendResult result) {
        JSONObject sent = new JSONObject();
        sent.put("status", result.getSendStatus().name());
        sent.put("msgId", result.getMsgId());
        sent.put("offsetMsgId", result.getOffsetMsgId());
        sent.put("queue", result.getMessageQueue().getQueueId());
        sent.put("queueOffset", result.getQueueOffset());
        return sent;
    }

    // Transactions

    private static TransactionMQProducer transactionProducer(String group, TransactionListener listener)
        throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(newName());
        producer.setTransactionListener(listener);
        producer.start();
        return producer;
    }

    private static Object transaction(JSONObject request) throws Exception {
        TransactionMQProducer producer = transactionProducer(request.getString("group"),
            new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message half, Object state) {
                    return LocalTransactionState.valueOf((String) state);
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt half) {
                    return LocalTransactionState.UNKNOW;
                }
            });
        try {
            JSONArray sent = new JSONArray();
            for (Object one : request.getJSONArray("messages")) {
                JSONObject given = (JSONObject) one;
                Message half = message(request.getString("topic"), given);
                sent.add(sent(producer.sendMessageInTransaction(half, given.getString("state"))));
            }
            // The decisions are sent without waiting for an answer.
            Thread.sleep(300);
            return sent;
        } finally {
            end(producer::shutdown);
        }
    }

    /** Answer the broker's checks of half messages until the expected number has arrived. */
    private static Object checks(JSONObject request) throws Exception {
        LocalTransactionState state = LocalTransactionState.valueOf(request.getString("state"));
        BlockingQueue<MessageExt> asked = new LinkedBlockingQueue<>();
        TransactionMQProducer producer = transactionProducer(request.getString("group"),
            new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message half, Object argument) {
                    return LocalTransactionState.UNKNOW;
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt half) {
                    asked.add(half);
                    return state;
                }
            });
        // The broker checks with producers that sent a heartbeat, and only known routes get one.
        var factory = producer.getDefaultMQProducerImpl().getMqClientFactory();
        factory.updateTopicRouteInfoFromNameServer(request.getString("topic"));
        factory.sendHeartbeatToAllBrokerWithLock();
        try {
            JSONArray messages = new JSONArray();
            while (messages.size() < request.getIntValue("count")) {
                MessageExt half = asked.poll(request.getIntValue("seconds"), TimeUnit.SECONDS);
                if (half == null) {
                    break;
                }
                messages.add(describe(half));
            }
            Thread.sleep(300);
            return messages;
        } finally {
            end(producer::shutdown);
        }
    }

    // Consuming

    /** Consume until `count` messages succeeded; those whose body begins with `bad` always fail. */
    private static Object consume(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(newName());
        consumer.setPollNameServerInterval(300);
        consumer.setPersistConsumerOffsetInterval(300);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(request.getIntValue("maxReconsumeTimes"));
        consumer.subscribe(request.getString("topic"), "*");
        BlockingQueue<JSONObject> attempts = new LinkedBlockingQueue<>();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean bad = new String(messages.get(0).getBody(), StandardCharsets.UTF_8).startsWith("bad");
            JSONObject attempt = describe(messages.get(0));
            attempt.put("failed", bad);
            attempts.add(attempt);
            context.setDelayLevelWhenNextConsume(1);
            return bad ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        try {
            JSONArray seen = new JSONArray();
            while (seen.size() < request.getIntValue("attempts")) {
                JSONObject attempt = attempts.poll(request.getIntValue("seconds"), TimeUnit.SECONDS);
                if (attempt == null) {
                    break;
                }
                seen.add(attempt);
            }
            Thread.sleep(700);
            return seen;
        } finally {
            end(consumer::shutdown);
        }
    }

    private interface Work {
        Object with(DefaultMQPullConsumer consumer) throws Exception;
    }

    private static Object withConsumer(String group, Work work) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(newName());
        consumer.start();
        try {
            return work.with(consumer);
        } finally {
            end(consumer::shutdown);
        }
    }

    /** Returns every message of the queues given as [topic, queue id], with the queues' ranges. */
    private static Object pull(JSONObject request) throws Exception {
        String broker = request.getString("broker");
        return withConsumer("pullers", consumer -> {
            JSONArray queues = new JSONArray();
            for (Object one : request.getJSONArray("queues")) {
                JSONArray name = (JSONArray) one;
                queues.add(pullQueue(consumer, new MessageQueue(name.getString(0), broker, name.getIntValue(1))));
            }
            return queues;
        });
    }

    private static JSONObject pullQueue(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        long next = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        JSONObject pulled = new JSONObject();
        pulled.put("topic", queue.getTopic());
        pulled.put("queue", queue.getQueueId());
        pulled.put("min", next);
        pulled.put("max", end);
        JSONArray messages = new JSONArray();
        while (next < end) {
            PullResult result = consumer.pull(queue, "*", next, 32);
            if (result.getNextBeginOffset() <= next) {
                throw new IllegalStateException(queue + " at " + next + ": " + result);
            }
            if (result.getMsgFoundList() != null) {
                result.getMsgFoundList().forEach(message -> messages.add(describe(message)));
            }
            next = result.getNextBeginOffset();
        }
        pulled.put("messages", messages);
        return pulled;
    }

    private static Object pullOnce(JSONObject request) throws Exception {
        MessageQueue queue = queue(request);
        return withConsumer("pullers", consumer -> {
            consumer.maxOffset(queue);
            PullResult result = consumer.pull(queue, "*", request.getLongValue("offset"), 1);
            JSONObject pulled = new JSONObject();
            pulled.put("status", result.getPullStatus().name());
            pulled.put("next", result.getNextBeginOffset());
            pulled.put("min", result.getMinOffset());
            pulled.put("max", result.getMaxOffset());
            return pulled;
        });
    }

    private static Object query(JSONObject request) throws Exception {
        return withConsumer("pullers", consumer -> {
            JSONArray found = new JSONArray();
            consumer.fetchSubscribeMessageQueues(request.getString("topic"));
            try {
                consumer.queryMessage(request.getString("topic"), request.getString("key"), 64, 0, Long.MAX_VALUE)
                    .getMessageList().forEach(message -> found.add(describe(message)));
            } catch (org.apache.rocketmq.client.exception.MQClientException error) {
                // Java's answer if a key does not exist.
                if (error.getResponseCode() != 22 && error.getResponseCode() != 208) {
                    throw error;
                }
            }
            return found;
        });
    }

    private static Object view(JSONObject request) throws Exception {
        return withConsumer("pullers", consumer ->
            describe(consumer.viewMessage(request.getString("topic"), request.getString("id"))));
    }

    private static Object commit(JSONObject request) throws Exception {
        MessageQueue queue = queue(request);
        return withConsumer(request.getString("group"), consumer -> {
            consumer.maxOffset(queue);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore()
                .updateConsumeOffsetToBroker(queue, request.getLongValue("offset"), false);
            return true;
        });
    }

    private static Object committed(JSONObject request) throws Exception {
        MessageQueue queue = queue(request);
        return withConsumer(request.getString("group"), consumer -> {
            consumer.maxOffset(queue);
            return consumer.fetchConsumeOffset(queue, true);
        });
    }

    private static MessageQueue queue(JSONObject request) {
        return new MessageQueue(
            request.getString("topic"), request.getString("broker"), request.getIntValue("queue"));
    }

    private static JSONObject describe(MessageExt message) {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        for (String name : PROPERTIES_OF_THE_CLIENT.split(" ")) {
            properties.remove(name);
        }
        JSONObject shown = new JSONObject();
        shown.put("topic", message.getTopic());
        shown.put("queueId", message.getQueueId());
        shown.put("queueOffset", message.getQueueOffset());
        shown.put("physicalOffset", message.getCommitLogOffset());
        shown.put("storeSize", message.getStoreSize());
        shown.put("flag", message.getFlag());
        shown.put("sysFlag", message.getSysFlag());
        shown.put("msgId", message.getMsgId());
        shown.put("bornTimestamp", message.getBornTimestamp());
        shown.put("storeTimestamp", message.getStoreTimestamp());
        shown.put("bornHost", String.valueOf(message.getBornHost()));
        shown.put("storeHost", String.valueOf(message.getStoreHost()));
        shown.put("reconsumeTimes", message.getReconsumeTimes());
        shown.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        shown.put("properties", properties);
        // The client's decoder leaves the body of a message of 0 bytes null.
        byte[] body = message.getBody() == null ? new byte[0] : message.getBody();
        shown.put("body", Base64.getEncoder().encodeToString(body));
        return shown;
    }

    /** Shut a client down; in 5.x some of its threads take seconds to stop. */
    private static void end(Runnable shutdown) throws InterruptedException {
        Thread thread = new Thread(shutdown);
        thread.setDaemon(true);
        thread.start();
        thread.join(300);
    }

    private static String newName() {
        return "peer" + ++instances;
    }
}
