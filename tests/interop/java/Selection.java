import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.impl.producer.TopicPublishInfo;
import org.apache.rocketmq.client.latency.LatencyFaultTolerance;
import org.apache.rocketmq.client.latency.MQFaultStrategy;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own choice of a queue for a send. Each line of the input has words, separated by spaces:
 *
 * <pre>
 * round START PICKS LAST BROKER...    TopicPublishInfo; LAST is "-" for none
 * faults START PICKS LAST BROKER...   MQFaultStrategy with a fault table; only since 5.1.4
 * latency MILLISECONDS                how long a broker is unavailable; since 5.1.4 as tested
 * hash QUEUES KIND ARGUMENT           KIND is String, in Base64, Integer or Long
 * </pre>
 *
 * A BROKER has a queue; it ends in "-" if it is unavailable and in "--" if it is unreachable, too.
 * Each line of the output has numbers: indexes of queues, or milliseconds.
 */
public class Selection {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // RocketMQ's log
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            answers.append(answer(words)).append('\n');
        }
        out.print(answers);
        System.exit(0);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "latency":
                Method duration = MQFaultStrategy.class.getDeclaredMethod("computeNotAvailableDuration", long.class);
                duration.setAccessible(true);
                return duration.invoke(faults(), Long.parseLong(words[1])).toString();
            case "hash":
                List<MessageQueue> all = new ArrayList<>();
                for (int i = 0; i < Integer.parseInt(words[1]); i++) {
                    all.add(new MessageQueue("t", "b", i));
                }
                Object argument = argument(words[2], words.length > 3 ? words[3] : "");
                return "" + new SelectMessageQueueByHash().select(all, null, argument).getQueueId();
            default:
                return picks(words);
        }
    }

    private static String picks(String[] words) throws Exception {
        TopicPublishInfo topic = new TopicPublishInfo();
        for (int i = 4; i < words.length; i++) {
            topic.getMessageQueueList().add(new MessageQueue("t", words[i], i - 4));
        }
        Field index = topic.getSendWhichQueue().getClass().getDeclaredField("threadLocalIndex");
        index.setAccessible(true);
        @SuppressWarnings("unchecked")
        ThreadLocal<Integer> position = (ThreadLocal<Integer>) index.get(topic.getSendWhichQueue());
        position.set(Integer.parseInt(words[1]));
        String last = words[3].equals("-") ? null : words[3];
        MQFaultStrategy faults = words[0].equals("faults") ? faults() : null;
        StringBuilder answers = new StringBuilder();
        for (int i = 0; i < Integer.parseInt(words[2]); i++) {
            MessageQueue queue = faults == null
                ? topic.selectOneMessageQueue(last)
                : (MessageQueue) MQFaultStrategy.class
                    .getMethod("selectOneMessageQueue", TopicPublishInfo.class, String.class, boolean.class)
                    .invoke(faults, topic, last, false);
            answers.append(queue.getQueueId()).append(' ');
        }
        return answers.toString().trim();
    }

    /** A strategy whose fault table is derived from the names of brokers. 4.9 has no such constructor. */
    private static MQFaultStrategy faults() throws Exception {
        Object table = Proxy.newProxyInstance(Selection.class.getClassLoader(),
            new Class<?>[] {LatencyFaultTolerance.class}, (proxy, method, arguments) -> {
                switch (method.getName()) {
                    case "isAvailable":
                        return !((String) arguments[0]).endsWith("-");
                    case "isReachable":
                        return !((String) arguments[0]).endsWith("--");
                    default:
                        return null;
                }
            });
        MQFaultStrategy strategy = (MQFaultStrategy) MQFaultStrategy.class.getConstructor(
            ClientConfig.class, type("Resolver"), type("ServiceDetector"))
            .newInstance(new ClientConfig(), null, null);
        Field field = MQFaultStrategy.class.getDeclaredField("latencyFaultTolerance");
        field.setAccessible(true);
        field.set(strategy, table);
        strategy.setSendLatencyFaultEnable(true);
        return strategy;
    }

    private static Class<?> type(String name) throws Exception {
        return Class.forName("org.apache.rocketmq.client.latency." + name);
    }

    private static Object argument(String kind, String word) {
        switch (kind) {
            case "Integer":
                return Integer.valueOf(word);
            case "Long":
                return Long.valueOf(word);
            default:
                return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
        }
    }
}
