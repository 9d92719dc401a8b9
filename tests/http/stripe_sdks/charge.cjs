// Charges by stripe-node: PORT, then one JSON object for each call. Prints what came of each, as one JSON array.
const Stripe = require('stripe');

const [port, ...calls] = process.argv.slice(2);

async function charge({amount, key, how, retries}) {
  const stripe = new Stripe('sk_test_x', {
    host: '127.0.0.1', port, protocol: 'http', telemetry: false, maxNetworkRetries: retries,
  });
  try {
    const made = await stripe.charges.create({amount, currency: 'eur', description: how}, {idempotencyKey: key});
    return {id: made.id, replayed: made.lastResponse.headers['idempotent-replayed'] === 'true'};
  } catch (error) {
    return {error: error.type, type: error.rawType, code: error.code, status: error.statusCode};
  }
}

(async () => {
  const told = [];
  for (const call of calls) told.push(await charge(JSON.parse(call)));
  console.log(JSON.stringify(told));
})();
