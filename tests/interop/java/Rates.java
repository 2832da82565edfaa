import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own clients with two threads, for benchmarks. Each line of the input is answered with
 * the number of messages: "pull TOPIC" and "lite TOPIC" read the queues 0 and 1, a thread each;
 * "send TOPIC ROWS" sends messages of 1 KiB in batches of 500, half of them in each thread.
 *
 * Usage: Rates NAMESRV BROKER
 */
public class Rates {
    private static final int THREADS = 2, BATCH = 500;
    private static String nameServer, broker;

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        nameServer = args[0];
        broker = args[1];
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("TOOLS_CONSUMER");
        consumer.setNamesrvAddr(nameServer);
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("rates");
        producer.setNamesrvAddr(nameServer);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            List<Future<Long>> parts = new ArrayList<>();
            for (int number = 0; number < THREADS; number++) {
                MessageQueue queue = new MessageQueue(words[1], broker, number);
                Callable<Long> part;
                switch (words[0]) {
                    case "pull": part = () -> pull(consumer, queue); break;
                    case "lite": part = () -> lite(queue); break;
                    default: part = () -> send(producer, words[1], Long.parseLong(words[2]) / THREADS);
                }
                parts.add(threads.submit(part));
            }
            long count = 0;
            for (Future<Long> part : parts) {
                count += part.get();
            }
            answers.println(count);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static long pull(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        long at = consumer.minOffset(queue), end = consumer.maxOffset(queue), count = 0;
        while (at < end) {
            PullResult pulled = consumer.pull(queue, "*", at, 32);
            if (pulled.getMsgFoundList() != null) {  // Otherwise, the broker could not read now.
                for (MessageExt message : pulled.getMsgFoundList()) {
                    count += message.getBody().length == 0 ? 0 : 1;
                }
            }
            at = pulled.getNextBeginOffset();
        }
        return count;
    }

    private static long lite(MessageQueue queue) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("rates" + queue.getQueueId());
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(queue.toString());
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(32);
        consumer.start();
        consumer.assign(Arrays.asList(queue));
        consumer.seekToBegin(queue);
        long end = consumer.offsetForTimestamp(queue, Long.MAX_VALUE), count = 0;
        for (long at = 0; at < end; ) {
            for (MessageExt message : consumer.poll()) {
                count += message.getBody().length == 0 ? 0 : 1;
                at = message.getQueueOffset() + 1;
            }
        }
        consumer.shutdown();
        return count;
    }

    private static long send(DefaultMQProducer producer, String topic, long rows) throws Exception {
        byte[] body = new byte[1024];
        Arrays.fill(body, (byte) 'x');
        for (long sent = 0; sent < rows; sent += BATCH) {
            List<Message> batch = new ArrayList<>(BATCH);
            for (int number = 0; number < BATCH; number++) {
                batch.add(new Message(topic, body));
            }
            producer.send(batch);
        }
        return rows;
    }
}
