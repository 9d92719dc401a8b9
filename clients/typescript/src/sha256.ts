/**
 * SHA-256 (FIPS 180-4), of bytes that are all there.
 *
 * Not `crypto.subtle`: that is asynchronous, so that every key would have to be awaited, and it is missing in Node 18
 * and on pages without TLS. Keys are no secrets, so the time that this takes tells nobody anything.
 */

const ROUNDS = 64;

/** The first 32 bits of the fractional parts of the square (initial state) and cube (rounds) roots of the first primes. */
const [INITIAL, CONSTANTS] = fractions();

function fractions(): [Uint32Array, Uint32Array] {
  const primes: number[] = [];
  for (let number = 2; primes.length < ROUNDS; number++) {
    if (primes.every((prime) => number % prime !== 0)) primes.push(number);
  }
  const roots = (power: number) => Uint32Array.from(primes, (prime) => (prime ** power % 1) * 2 ** 32);
  return [roots(1 / 2).slice(0, 8), roots(1 / 3)];
}

const rotated = (word: number, by: number): number => (word >>> by) | (word << (32 - by));

/** The digest: 32 bytes. */
export function sha256(bytes: Uint8Array): Uint8Array {
  const padded = new Uint8Array((((bytes.length + 8) >> 6) << 6) + 64);
  padded.set(bytes);
  padded[bytes.length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(bytes.length / 2 ** 29));
  view.setUint32(padded.length - 4, bytes.length << 3);
  const state = INITIAL.slice();
  const words = new Uint32Array(ROUNDS);
  for (let start = 0; start < padded.length; start += 64) {
    for (let i = 0; i < 16; i++) words[i] = view.getUint32(start + 4 * i);
    for (let i = 16; i < ROUNDS; i++) {
      const [early, late] = [words[i - 15]!, words[i - 2]!];
      const first = rotated(early, 7) ^ rotated(early, 18) ^ (early >>> 3);
      const second = rotated(late, 17) ^ rotated(late, 19) ^ (late >>> 10);
      words[i] = words[i - 16]! + first + words[i - 7]! + second;
    }
    compress(state, words);
  }
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setUint32(4 * i, word));
  return new Uint8Array(digest.buffer);
}

function compress(state: Uint32Array, words: Uint32Array): void {
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let i = 0; i < ROUNDS; i++) {
    const mixed = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
    const first = (h + mixed + ((e & f) ^ (~e & g)) + CONSTANTS[i]! + words[i]!) | 0;
    const second = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => (state[i] = state[i]! + word));
}

/** The digest as 64 lower-case hex digits. */
export function sha256Hex(bytes: Uint8Array): string {
  return hex(sha256(bytes));
}

/** Bytes as lower-case hex digits. */
export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
