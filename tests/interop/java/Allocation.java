import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * RocketMQ's own allocation of queues. Each line of the input has fields in Base64, separated by
 * commas: strategy, its argument, client id, number of queues, the queues as "topic broker id", then
 * the client ids. Queues and client ids are sorted here, as a consumer does. Each line of the output
 * has the allocated queues in the same form, or E for an exception.
 */
public class Allocation {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // RocketMQ's log
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            List<String> words = new ArrayList<>();
            for (String word : line.split(",", -1)) {
                words.add(text(word));
            }
            answers.append(answer(words)).append('\n');
        }
        out.print(answers);
    }

    private static String answer(List<String> words) {
        int members = 4 + Integer.parseInt(words.get(3));
        List<MessageQueue> queues = queues(words.subList(4, members));
        List<String> ids = new ArrayList<>(words.subList(members, words.size()));
        Collections.sort(queues);
        Collections.sort(ids);
        try {
            return strategy(words.get(0), words.get(1)).allocate("g", words.get(2), queues, ids)
                .stream().map(Allocation::word).collect(Collectors.joining(","));
        } catch (IllegalArgumentException refused) {
            return "E";
        }
    }

    private static AllocateMessageQueueStrategy strategy(String name, String argument) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash(Integer.parseInt(argument));
            case "CONFIG":
                AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
                config.setMessageQueueList(queues(List.of(argument.split("\n"))));
                return config;
            case "MACHINE_ROOM":
                AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
                rooms.setConsumeridcs(Set.of(argument.split(" ")));
                return rooms;
            default:
                String[] inner = argument.split(" ", 2);
                return new AllocateMachineRoomNearby(strategy(inner[0], inner[1]), new Rooms());
        }
    }

    private static List<MessageQueue> queues(List<String> words) {
        List<MessageQueue> queues = new ArrayList<>();
        for (String word : words) {
            String[] fields = word.split(" ");
            queues.add(new MessageQueue(fields[0], fields[1], Integer.parseInt(fields[2])));
        }
        return queues;
    }

    private static String word(MessageQueue queue) {
        String fields = queue.getTopic() + " " + queue.getBrokerName() + " " + queue.getQueueId();
        return Base64.getEncoder().encodeToString(fields.getBytes(StandardCharsets.UTF_8));
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    /** The room is what precedes the first "@" of a broker's name or of a client id. */
    private static class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return room(queue.getBrokerName());
        }

        @Override
        public String consumerDeployIn(String id) {
            return room(id);
        }

        private static String room(String name) {
            return name.contains("@") ? name.substring(0, name.indexOf('@')) : "";
        }
    }
}
