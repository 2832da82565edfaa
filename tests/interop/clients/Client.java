import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Uses RocketMQ's own Java client, unmodified, and prints the results as one line of JSON.
 *
 * <p>Arguments: endpoint, user and secret (may be empty; with a user, the connection uses TLS), and
 * a command: {@code all} uses each feature, {@code burst TOPIC COUNT IN_FLIGHT} sends, {@code push
 * GROUP TOPIC COUNT} consumes.
 */
public class Client {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final String TOPIC = "orders";
    static ClientConfiguration configuration;

    public static void main(String[] arguments) throws Exception {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(arguments[0]);
        builder.enableSsl(!arguments[1].isEmpty());
        if (!arguments[1].isEmpty()) {
            builder.setCredentialProvider(
                    new StaticSessionCredentialsProvider(arguments[1], arguments[2]));
        }
        configuration = builder.build();
        PrintStream out = System.out;
        switch (arguments[3]) {
            case "all":
                out.println(all());
                break;
            case "burst":
                out.println(burst(arguments[4], number(arguments[5]), number(arguments[6])));
                break;
            default:
                out.println(push(arguments[4], Map.of(arguments[5], FilterExpression.SUB_ALL),
                        number(arguments[6])));
        }
        out.flush();
        Runtime.getRuntime().halt(0);
    }

    static int number(String text) {
        return Integer.parseInt(text);
    }

    static void until(Callable<Boolean> condition) throws Exception {
        long end = System.currentTimeMillis() + 120_000;
        while (!condition.call()) {
            if (System.currentTimeMillis() > end) {
                throw new IllegalStateException("nothing came");
            }
            Thread.sleep(20);
        }
    }

    static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    static String body(MessageView message) {
        ByteBuffer body = message.getBody();
        byte[] bytes = new byte[body.remaining()];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static String all() throws Exception {
        Map<String, FilterExpression> both = new HashMap<>();
        both.put(TOPIC, FilterExpression.SUB_ALL);
        both.put("other", FilterExpression.SUB_ALL);
        return String.format("{\"sent\": %s, \"simple\": %s, \"standard\": %s, \"fifo\": %s}",
                send(), receive(both, 7), push("standard", both, 8), push("fifo", both, 8));
    }

    static String send() throws Exception {
        AtomicInteger checked = new AtomicInteger();
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
                .setTopics(TOPIC, "other").setTransactionChecker(message -> {
                    checked.incrementAndGet();
                    return TransactionResolution.COMMIT;
                }).build();
        SendReceipt normal = producer.send(message(TOPIC, "normal").setTag("a").setKeys("k").build());
        for (int i = 0; i < 3; i++) {
            producer.send(message(TOPIC, "fifo-" + i).setMessageGroup("group").build());
        }
        long now = System.currentTimeMillis();
        SendReceipt late = producer.send(message(TOPIC, "recalled").setDeliveryTimestamp(now + 60_000).build());
        String recalled = producer.recallMessage(TOPIC, late.getRecallHandle()).getMessageId().toString();
        producer.send(message(TOPIC, "later").setDeliveryTimestamp(now + 1_000).build());
        for (String name : List.of("commit", "rollback", "check")) {
            Transaction transaction = producer.beginTransaction();
            producer.send(message(TOPIC, name).build(), transaction);
            if (name.equals("commit")) {
                transaction.commit();
            } else if (name.equals("rollback")) {
                transaction.rollback();
            }
        }
        until(() -> checked.get() > 0);
        Thread.sleep(500); // The answer to the check.
        boolean same = recalled.equals(late.getMessageId().toString());
        return String.format("{\"sameId\": %s, \"recalled\": %s, \"checked\": %d}",
                normal.getMessageId() != null, same, checked.get());
    }

    static String receive(Map<String, FilterExpression> subscriptions, int count) throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup("simple").setAwaitDuration(Duration.ofSeconds(2))
                .setSubscriptionExpressions(subscriptions).build();
        List<String> seen = new ArrayList<>();
        until(() -> {
            for (MessageView message : consumer.receive(20, Duration.ofSeconds(15))) {
                seen.add('"' + body(message) + '"');
                consumer.ack(message);
            }
            return seen.size() >= count;
        });
        return seen.toString();
    }

    /** Consume messages; the first delivery of the message "normal" fails. */
    static String push(String group, Map<String, FilterExpression> subscriptions, int count) throws Exception {
        List<String> seen = Collections.synchronizedList(new ArrayList<>());
        MessageListener listener = message -> {
            String body = body(message);
            seen.add(String.format("[\"%s\", %d, %.3f]", body, message.getDeliveryAttempt(),
                    System.nanoTime() / 1e9));
            boolean fails = body.equals("normal") && message.getDeliveryAttempt() == 1;
            return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        };
        PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
                .setSubscriptionExpressions(subscriptions).setMessageListener(listener).build();
        until(() -> seen.size() >= count);
        return seen.toString();
    }

    /** Send messages with so many calls at a time, and repeat those that fail. */
    static String burst(String topic, int count, int inFlight) throws Exception {
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
                .setTopics(topic).setMaxAttempts(3).build();
        Semaphore free = new Semaphore(inFlight);
        List<Integer> failed = Collections.synchronizedList(new ArrayList<>());
        Map<String, Integer> errors = Collections.synchronizedMap(new HashMap<>());
        List<Integer> left = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            left.add(i);
        }
        while (!left.isEmpty()) {
            for (int one : left) {
                free.acquire();
                Message message = message(topic, Integer.toString(one)).build();
                producer.sendAsync(message).whenComplete((receipt, error) -> {
                    if (error != null) {
                        failed.add(one);
                        errors.merge(error.getClass().getSimpleName(), 1, Integer::sum);
                    }
                    free.release();
                });
            }
            free.acquire(inFlight);
            free.release(inFlight);
            left = new ArrayList<>(failed);
            failed.clear();
        }
        List<String> found = new ArrayList<>();
        errors.forEach((name, times) -> found.add('"' + name + "\": " + times));
        return "{\"sent\": " + count + ", \"errors\": {" + String.join(", ", found) + "}}";
    }
}
