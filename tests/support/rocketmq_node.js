// Uses RocketMQ's own Node.js client, unmodified, and prints the results as one line of JSON.
//
//   node rocketmq_node.js FOLDER-WITH-node_modules ENDPOINT [USER SECRET]
//
// With a user, the connection uses TLS.

const [folder, endpoints, accessKey, accessSecret] = process.argv.slice(2);
const client = require(`${folder}/node_modules/rocketmq-client-nodejs`);

const quiet = { info() {}, warn() {}, error() {}, debug() {}, log() {} };
const security = accessKey ? { sslEnabled: true, sessionCredentials: { accessKey, accessSecret } } : {};
const base = { endpoints, namespace: '', logger: quiet, ...security };
const topic = 'orders';
const all = new Map([[topic, '*'], ['other', '*']]);

async function until(condition) {
  const end = Date.now() + 60000;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error('nothing came');
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}

async function send() {
  const checked = [];
  const checker = {
    async check(message) {
      checked.push(message.messageId);
      return 1; // COMMIT: the package does not export the enum.
    },
  };
  const producer = new client.Producer({ ...base, topic: [topic, 'other'], checker });
  await producer.startup();
  const normal = await producer.send({ topic, tag: 'a', keys: ['k'], body: Buffer.from('normal') });
  for (let i = 0; i < 3; i++) {
    await producer.send({ topic, messageGroup: 'group', body: Buffer.from(`fifo-${i}`) });
  }
  const late = await producer.send({ topic, delay: 60000, body: Buffer.from('recalled') });
  const recalled = (await producer.recallMessage(topic, late.recallHandle)).messageId;
  await producer.send({ topic, delay: 1000, body: Buffer.from('later') });
  for (const name of ['commit', 'rollback', 'check']) {
    const transaction = producer.beginTransaction();
    await producer.send({ topic, body: Buffer.from(name) }, transaction);
    if (name !== 'check') await transaction[name]();
  }
  await until(() => checked.length);
  await new Promise(resolve => setTimeout(resolve, 500)); // The answer to the check.
  await producer.shutdown();
  return {
    sameId: normal.messageId === normal.transactionId,
    recalled: recalled === late.messageId,
    checked: checked.length,
  };
}

async function receive(count) {
  const consumer = new client.SimpleConsumer({
    ...base, consumerGroup: 'simple', subscriptions: all, awaitDuration: 2000,
  });
  await consumer.startup();
  const seen = [];
  await until(async () => {
    for (const message of await consumer.receive(20, 15000)) {
      seen.push(message.body.toString());
      await consumer.ack(message);
    }
    return seen.length >= count;
  });
  await consumer.shutdown();
  return seen;
}

// A listener that fails once for the message `normal`. The process ends before its long poll does.
async function push(consumerGroup, count) {
  const seen = [];
  const messageListener = {
    async consume(message) {
      const body = message.body.toString();
      seen.push([body, message.deliveryAttempt]);
      const fails = body === 'normal' && seen.filter(one => one[0] === body).length === 1;
      return fails ? client.ConsumeResult.FAILURE : client.ConsumeResult.SUCCESS;
    },
  };
  const consumer = new client.PushConsumer({
    ...base, consumerGroup, subscriptions: all, messageListener,
  });
  await consumer.startup();
  await until(() => seen.length >= count);
  return seen;
}

async function main() {
  const sent = await send();
  const simple = await receive(7);
  const [standard, fifo] = await Promise.all([push('standard', 8), push('fifo', 8)]);
  process.stdout.write(JSON.stringify({ sent, simple, standard, fifo }) + '\n');
  process.exit(0);
}

main().catch(error => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
