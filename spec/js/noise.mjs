// The noise of private sums (sums.md, section 2.4).

import { chacha20Block } from "./crypto.mjs";

const ONE = 1n << 60n;
const UNIT = 1n << 32n;
const HIGHEST = 1n << 62n;
const THOUSAND = 1000n;
const TERMS = 63n;

/** Rule 4. */
export function boundOf(epsilon, parts, scale) {
  const e = BigInt(epsilon);
  return (40n * THOUSAND * parts * scale + e - 1n) / e;
}

/** Rule 5. */
function alphaOf(epsilon, parts, scale) {
  const y = (BigInt(epsilon) * ONE) / (THOUSAND * parts * scale);
  let sum = 0n;
  let term = ONE;
  for (let k = 1n; k <= TERMS; k++) {
    sum = k % 2n === 1n ? sum + term : sum - term;
    term = (term * y) / ONE / k;
  }
  const alpha = ((sum + 64n) >> 28n) + 1n;
  return alpha < UNIT ? alpha : UNIT - 1n;
}

function power(base, exponent) {
  let result = HIGHEST;
  let x = base;
  for (let h = exponent; h > 0n; h /= 2n) {
    if (h % 2n === 1n) result = (result * x) / HIGHEST;
    x = (x * x) / HIGHEST;
  }
  return result;
}

/** Rule 6. */
function zeroOf(alpha, h) {
  const limit = (UNIT - alpha) << 30n;
  let x = 0n;
  // From the highest bit: a bit is set if the power is still not above the limit. The power does not decrease with x.
  for (let bit = 1n << 61n; bit > 0n; bit >>= 1n) if (power(x | bit, h) <= limit) x |= bit;
  return x << 26n;
}

/** Rule 7 for several numbers at once. */
function numbersOf(us, alpha, h, bound) {
  const out = us.map(() => 0n);
  let p = zeroOf(alpha, h);
  let c = 0n;
  for (let x = 0n; x < bound; x++) {
    c += p;
    let isAbove = false;
    us.forEach((u, i) => {
      if (u < c) return;
      out[i]++;
      isAbove = true;
    });
    // The sums do not decrease.
    if (!isAbove) break;
    p = (p * alpha) / UNIT;
    p = (p * (x * h + 1n)) / ((x + 1n) * h);
  }
  return out;
}

/**
 * The noise that a source adds in an epoch of a query with this epsilon and number of parts. `key` is that of the query, and `ring` the
 * number of sources in the key group.
 */
export class Noise {
  constructor(epsilon, parts, key, epoch, ring) {
    this.epsilon = epsilon;
    this.parts = parts;
    this.key = key;
    this.nonce = Buffer.alloc(12);
    this.nonce.writeBigUInt64LE(epoch, 4);
    this.h = (ring + 1n) / 2n;
  }

  /** The words `from` to below `until` of the block of a field, as one integer. */
  words(field, from, until) {
    const block = chacha20Block(this.key, field, this.nonce);
    let out = 0n;
    for (let i = until - 1; i >= from; i--) out = (out << 32n) | BigInt(block.readUInt32LE(4 * i));
    return out;
  }

  /** What is added to a field: rule 8. */
  added(field, scale) {
    const { epsilon, parts } = this;
    const bound = boundOf(epsilon, parts, scale);
    const us = [this.words(field, 0, 3), this.words(field, 3, 6)].map((w) => BigInt.asUintN(88, w));
    const [a, b] = numbersOf(us, alphaOf(epsilon, parts, scale), this.h, bound);
    return bound + a - b;
  }

  /** The steps of a counted reading: rule 9. */
  steps(field, v, { low, high }) {
    const span = high > low ? high - low : 1n;
    const rest = (this.words(field, 6, 8) * span) >> 64n;
    return (32n * (v - low) + rest) / span;
  }
}

export function squareRoot(v) {
  if (v < 2n) return v;
  let x = 1n << BigInt((v.toString(2).length + 1) >> 1);
  for (;;) {
    const y = (x + v / x) >> 1n;
    if (y >= x) return x;
    x = y;
  }
}

/** The distance `w` of a field with this scale: rule 10. */
export function distanceOf(epsilon, parts, scale, participants, ring) {
  const alpha = alphaOf(epsilon, parts, scale);
  const keyGroups = (participants + ring - 1n) / ring;
  return 1n + squareRoot((4n * keyGroups * alpha * UNIT * 50176n) / ((UNIT - alpha) ** 2n * 10000n));
}
