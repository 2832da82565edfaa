import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import org.apache.rocketmq.client.AccessChannel;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.client.trace.TraceTransferBean;

/**
 * RocketMQ's own decoder and encoder of message traces. Each line of the input is the body of a
 * trace message in Base64. The answer is a line for each of its records: the decoded fields, then
 * what the encoder makes of the decoded record, then the keys of the record, all in Base64 and
 * separated by commas. An empty line ends the answer for a body.
 */
public class Trace {
    public static void main(String[] args) throws Exception {
        PrintStream output = System.out;
        System.setOut(System.err); // For log lines of RocketMQ.
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            String body = new String(Base64.getDecoder().decode(line), StandardCharsets.UTF_8);
            for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(body)) {
                answers.append(answer(context)).append('\n');
            }
            answers.append('\n');
        }
        output.print(answers);
    }

    private static String answer(TraceContext context) {
        List<Object> values = fields(context);
        context.setAccessChannel(AccessChannel.LOCAL);
        TraceTransferBean encoded = TraceDataEncoder.encoderFromContextBean(context);
        values.add(encoded.getTransData());
        values.addAll(encoded.getTransKey());
        List<String> words = new ArrayList<>();
        for (Object value : values) {
            byte[] bytes = String.valueOf(value).getBytes(StandardCharsets.UTF_8);
            words.add(Base64.getEncoder().encodeToString(bytes));
        }
        return String.join(",", words);
    }

    private static List<Object> fields(TraceContext context) {
        TraceBean bean = context.getTraceBeans().get(0);
        List<Object> values = new ArrayList<>();
        values.add(context.getTraceType());
        switch (context.getTraceType()) {
            case Pub:
                add(values, context.getTimeStamp(), context.getRegionId(), context.getGroupName());
                add(values, bean.getTopic(), bean.getMsgId(), bean.getTags(), bean.getKeys());
                add(values, bean.getStoreHost(), bean.getBodyLength(), context.getCostTime());
                add(values, bean.getMsgType().ordinal(), bean.getOffsetMsgId(), context.isSuccess());
                break;
            case SubBefore:
                add(values, context.getTimeStamp(), context.getRegionId(), context.getGroupName());
                add(values, context.getRequestId(), bean.getMsgId(), bean.getRetryTimes());
                add(values, bean.getKeys());
                break;
            case SubAfter:
                add(values, context.getRequestId(), bean.getMsgId(), context.getCostTime());
                add(values, context.isSuccess(), bean.getKeys(), context.getContextCode());
                add(values, context.getTimeStamp(), context.getGroupName());
                break;
            default:
                add(values, context.getTimeStamp(), context.getRegionId(), context.getGroupName());
                add(values, bean.getTopic(), bean.getMsgId(), bean.getTags(), bean.getKeys());
                add(values, bean.getStoreHost(), bean.getMsgType().ordinal());
                add(values, bean.getTransactionId(), bean.getTransactionState().name());
                add(values, bean.isFromTransactionCheck());
        }
        return values;
    }

    private static void add(List<Object> values, Object... more) {
        for (Object value : more) {
            values.add(value);
        }
    }
}
