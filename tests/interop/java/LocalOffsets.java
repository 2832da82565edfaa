import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.store.LocalFileOffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own file with the offsets of broadcasting consumers. Each line of the input has words,
 * separated by spaces; FOLDER, CLIENT, GROUP, TOPIC and BROKER are in Base64:
 *
 * <pre>
 * save FOLDER CLIENT GROUP [TOPIC BROKER QUEUE OFFSET]...    merge these offsets into the file
 * read FOLDER CLIENT GROUP [TOPIC BROKER QUEUE]...           read the offsets; -1 if there is none
 * </pre>
 *
 * Each line of the output has the offsets. All lines must have the same folder, which RocketMQ
 * reads once per process.
 */
public class LocalOffsets {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // RocketMQ's log
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            answers.append(answer(line.split(" "))).append('\n');
        }
        out.print(answers);
        System.exit(0);
    }

    private static String answer(String[] words) throws Exception {
        System.setProperty("rocketmq.client.localOffsetStoreDir", text(words[1]));
        MQClientInstance client = new MQClientInstance(new ClientConfig(), 0, text(words[2]));
        LocalFileOffsetStore offsets = new LocalFileOffsetStore(client, text(words[3]));
        offsets.load();
        boolean saves = words[0].equals("save");
        int width = saves ? 4 : 3;
        Set<MessageQueue> queues = new LinkedHashSet<>();
        StringBuilder found = new StringBuilder();
        for (int i = 4; i < words.length; i += width) {
            MessageQueue queue =
                new MessageQueue(text(words[i]), text(words[i + 1]), Integer.parseInt(words[i + 2]));
            if (saves) {
                offsets.updateOffset(queue, Long.parseLong(words[i + 3]), false);
            }
            queues.add(queue);
        }
        if (saves) {
            offsets.persistAll(queues);
        }
        for (MessageQueue queue : queues) {
            found.append(offsets.readOffset(queue, ReadOffsetType.READ_FROM_STORE)).append(' ');
        }
        return found.toString().trim();
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }
}
