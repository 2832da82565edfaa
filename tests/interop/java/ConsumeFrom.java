import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Date;
import java.util.TimeZone;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.impl.MQAdminImpl;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.impl.consumer.RebalancePushImpl;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own choice of the offset at which a push consumer starts. Each line of the input has
 * words, separated by spaces; each line of the output has a number.
 *
 * <pre>
 * start WHERE TOPIC COMMITTED    COMMITTED is -1 for none; the answer is the offset, or 1000 for the
 *                                queue's maximum, or 2000 for the offset at the timestamp
 * time ZONE TEXT                 the epoch milliseconds of yyyyMMddHHmmss
 * </pre>
 */
public class ConsumeFrom {
    private static final long MAXIMUM = 1000, BY_TIMESTAMP = 2000;

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // RocketMQ's log
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        MQClientInstance broker = new Broker();
        StringBuilder answers = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            boolean isTime = words[0].equals("time");
            answers.append(isTime ? time(words) : start(words, broker)).append('\n');
        }
        out.print(answers);
        out.flush();
        Runtime.getRuntime().halt(0); // clients have threads
    }

    private static long time(String[] words) {
        TimeZone.setDefault(TimeZone.getTimeZone(words[1]));
        Date date = UtilAll.parseDate(words[2], UtilAll.YYYYMMDDHHMMSS);
        return date == null ? -1 : date.getTime();
    }

    private static long start(String[] words, MQClientInstance broker) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("g");
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf(words[1]));
        DefaultMQPushConsumerImpl impl = consumer.getDefaultMQPushConsumerImpl();
        impl.setOffsetStore(committed(Long.parseLong(words[3])));
        RebalancePushImpl rebalance = new RebalancePushImpl(impl);
        rebalance.setmQClientFactory(broker);
        return rebalance.computePullFromWhere(new MessageQueue(words[2], "b", 0));
    }

    private static OffsetStore committed(long offset) {
        return (OffsetStore) Proxy.newProxyInstance(ConsumeFrom.class.getClassLoader(),
            new Class<?>[] {OffsetStore.class},
            (proxy, method, arguments) -> method.getName().equals("readOffset") ? offset : null);
    }

    /** A client whose queries are answered here. */
    private static class Broker extends MQClientInstance {
        Broker() {
            super(new ClientConfig(), 0, "c");
        }

        @Override
        public MQAdminImpl getMQAdminImpl() {
            return new MQAdminImpl(this) {
                @Override
                public long maxOffset(MessageQueue queue) {
                    return MAXIMUM;
                }

                @Override
                public long searchOffset(MessageQueue queue, long timestamp) {
                    return BY_TIMESTAMP;
                }
            };
        }
    }
}
