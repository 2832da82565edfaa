import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * RocketMQ's own evaluation of SQL. Each line of the input is an expression, then names and values
 * of properties, all in Base64 and separated by commas. The answers are lines of one letter: T, F,
 * N (null), E (an exception), R (rejected by the parser).
 */
public class Sql {
    public static void main(String[] args) throws Exception {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            String[] words = line.split(",", -1);
            Map<String, String> properties = new HashMap<>();
            for (int i = 1; i + 1 < words.length; i += 2) {
                properties.put(text(words[i]), text(words[i + 1]));
            }
            answers.append(answer(text(words[0]), properties)).append('\n');
        }
        System.out.print(answers);
    }

    private static String answer(String sql, Map<String, String> properties) {
        Expression expression;
        try {
            expression = SelectorParser.parse(sql);
        } catch (Throwable refused) {
            return "R";
        }
        try {
            Object value = expression.evaluate(new Properties(properties));
            return value == null ? "N" : (Boolean) value ? "T" : "F";
        } catch (Throwable wrong) {
            return "E";
        }
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static class Properties implements EvaluationContext {
        private final Map<String, String> values;

        Properties(Map<String, String> values) {
            this.values = values;
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(values);
        }
    }
}
