// Drives the official Node client against the broker that PUBSUB_EMULATOR_HOST names, and prints what it saw as JSON.
import { PubSub } from "@google-cloud/pubsub";

const KEYS = 5;
const PER_KEY = 20;

const client = new PubSub({ projectId: "node-client" });
const [topic] = await client.createTopic("orders");
const [subscription] = await topic.createSubscription("worker", { enableMessageOrdering: true });
const ordered = client.topic("orders", { messageOrdering: true });

const seen = { received: 0, duplicates: 0, byKey: {}, nackedAgain: false };
const ids = new Set();
let nacked = null;

const all = new Promise((resolve, reject) => {
  subscription.on("error", reject);
  subscription.on("message", (message) => {
    if (nacked === null) {
      nacked = message.id; // the very first delivery is refused once
      message.nack();
      return;
    }
    seen.nackedAgain ||= message.id === nacked;
    if (ids.has(message.id)) seen.duplicates += 1;
    ids.add(message.id);
    (seen.byKey[message.orderingKey] ??= []).push(Number(message.data.toString()));
    message.ack();
    seen.received += 1;
    if (ids.size === KEYS * PER_KEY) resolve();
  });
});

const publishing = [];
for (let number = 0; number < PER_KEY; number += 1) {
  for (let key = 0; key < KEYS; key += 1) {
    publishing.push(ordered.publishMessage({ data: Buffer.from(String(number)), orderingKey: `key-${key}` }));
  }
}
await Promise.all(publishing);
await all;
await subscription.close();
await client.close();
console.log(JSON.stringify(seen));
