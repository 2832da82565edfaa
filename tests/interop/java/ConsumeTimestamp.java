import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Date;
import java.util.TimeZone;
import org.apache.rocketmq.common.UtilAll;

/**
 * RocketMQ's own conversion of `consumeTimestamp`. Each line of the input is a time zone and a text
 * like yyyyMMddHHmmss, separated by a space; each line of the output has the epoch milliseconds.
 */
public class ConsumeTimestamp {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // RocketMQ's log
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(" ");
            TimeZone.setDefault(TimeZone.getTimeZone(words[0]));
            Date date = UtilAll.parseDate(words[1], UtilAll.YYYYMMDDHHMMSS);
            answers.append(date == null ? -1 : date.getTime()).append('\n');
        }
        out.print(answers);
        out.flush();
    }
}
