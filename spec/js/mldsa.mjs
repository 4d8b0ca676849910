// Verification of ML-DSA-44 (FIPS 204, algorithms 3 and 8; pure, with the empty context). Node 20 has SHAKE but not ML-DSA.

import { createHash } from "node:crypto";

const Q = 8380417;
const N = 256;
const K = 4;
const L = 4;
const D = 13;
const TAU = 39;
const GAMMA1 = 1 << 17;
const GAMMA2 = (Q - 1) / 88;
const BETA = 78;
const OMEGA = 80;
const LAMBDA_BYTES = 32;

const shake = (name, size, ...parts) => {
  const h = createHash(name, { outputLength: size });
  for (const p of parts) h.update(p);
  return h.digest();
};
// Both factors are below 2^23, so the product is exact.
const mul = (a, b) => (a * b) % Q;

const ZETAS = (() => {
  const powers = [1];
  for (let i = 1; i < 512; i++) powers.push(mul(powers[i - 1], 1753));
  const reversed = (i) => parseInt(i.toString(2).padStart(8, "0").split("").reverse().join(""), 2);
  return Array.from({ length: N }, (_, i) => powers[reversed(i)]);
})();

function ntt(w) {
  let m = 0;
  for (let len = 128; len >= 1; len >>= 1) {
    for (let start = 0; start < N; start += 2 * len) {
      const z = ZETAS[++m];
      for (let j = start; j < start + len; j++) {
        const t = mul(z, w[j + len]);
        w[j + len] = (w[j] + Q - t) % Q;
        w[j] = (w[j] + t) % Q;
      }
    }
  }
  return w;
}

function inverseNtt(w) {
  let m = N;
  for (let len = 1; len < N; len <<= 1) {
    for (let start = 0; start < N; start += 2 * len) {
      const z = Q - ZETAS[--m];
      for (let j = start; j < start + len; j++) {
        const t = w[j];
        w[j] = (t + w[j + len]) % Q;
        w[j + len] = mul(z, (t + Q - w[j + len]) % Q);
      }
    }
  }
  for (let j = 0; j < N; j++) w[j] = mul(w[j], 8347681);
  return w;
}

/** RejNTTPoly (algorithm 30). */
function uniform(seed) {
  for (let size = 1344; ; size *= 2) {
    const bytes = shake("shake128", size, seed);
    const w = [];
    for (let i = 0; i + 2 < size && w.length < N; i += 3) {
      const v = bytes[i] | (bytes[i + 1] << 8) | ((bytes[i + 2] & 0x7f) << 16);
      if (v < Q) w.push(v);
    }
    if (w.length === N) return w;
  }
}

/** SampleInBall (algorithm 29). */
function challenge(seed) {
  for (let size = 272; ; size *= 2) {
    const bytes = shake("shake256", size, seed);
    const c = new Array(N).fill(0);
    let p = 8;
    let i = N - TAU;
    for (; i < N; i++) {
      while (p < size && bytes[p] > i) p++;
      if (p >= size) break;
      const j = bytes[p++];
      c[i] = c[j];
      const bit = i + TAU - N;
      c[j] = (bytes[bit >> 3] >> (bit & 7)) & 1 ? Q - 1 : 1;
    }
    if (i === N) return c;
  }
}

/** `count` integers of `bits` bits, little-endian. */
function unpack(bytes, bits, count) {
  const out = [];
  let value = 0;
  let have = 0;
  let p = 0;
  for (let i = 0; i < count; i++) {
    while (have < bits) {
      value += bytes[p++] * 2 ** have;
      have += 8;
    }
    out.push(value % 2 ** bits);
    value = Math.floor(value / 2 ** bits);
    have -= bits;
  }
  return out;
}

/** HintBitUnpack (algorithm 21); null if it is malformed. */
function hints(y) {
  const out = [];
  let p = 0;
  for (let i = 0; i < K; i++) {
    const h = new Uint8Array(N);
    const end = y[OMEGA + i];
    if (end < p || end > OMEGA) return null;
    for (let first = p; p < end; p++) {
      if (p > first && y[p - 1] >= y[p]) return null;
      h[y[p]] = 1;
    }
    out.push(h);
  }
  for (; p < OMEGA; p++) if (y[p] !== 0) return null;
  return out;
}

/** UseHint (algorithm 40). */
function useHint(h, r) {
  let r0 = r % (2 * GAMMA2);
  if (r0 > GAMMA2) r0 -= 2 * GAMMA2;
  let r1;
  if (r - r0 === Q - 1) {
    r1 = 0;
    r0 -= 1;
  } else {
    r1 = (r - r0) / (2 * GAMMA2);
  }
  if (!h) return r1;
  return r0 > 0 ? (r1 + 1) % 44 : (r1 + 43) % 44;
}

const EXPANDED = new Map();

/** The matrix, in NTT form, and the other values of a public key. Remembered, since the matrix is most of the work. */
function expand(key) {
  const id = key.toString("latin1");
  let known = EXPANDED.get(id);
  if (known === undefined) {
    const rho = key.subarray(0, 32);
    const matrix = [];
    for (let r = 0; r < K; r++) {
      matrix.push([]);
      for (let s = 0; s < L; s++) matrix[r].push(uniform(Buffer.concat([rho, Buffer.from([s, r])])));
    }
    const t1 = [];
    for (let i = 0; i < K; i++) {
      const packed = key.subarray(32 + 320 * i, 352 + 320 * i);
      t1.push(ntt(unpack(packed, 10, N).map((v) => mul(v, 1 << D))));
    }
    known = { matrix, t1, tr: shake("shake256", 64, key) };
    if (EXPANDED.size >= 64) EXPANDED.clear();
    EXPANDED.set(id, known);
  }
  return known;
}

export function verifyMlDsa44(key, message, signature) {
  const seed = signature.subarray(0, LAMBDA_BYTES);
  const z = [];
  for (let i = 0; i < L; i++) {
    const packed = signature.subarray(LAMBDA_BYTES + 576 * i, LAMBDA_BYTES + 576 * (i + 1));
    const poly = unpack(packed, 18, N).map((v) => GAMMA1 - v);
    if (poly.some((v) => Math.abs(v) >= GAMMA1 - BETA)) return false;
    z.push(ntt(poly.map((v) => (v + Q) % Q)));
  }
  const h = hints(signature.subarray(LAMBDA_BYTES + 576 * L));
  if (h === null) return false;
  const { matrix, t1, tr } = expand(key);
  const mu = shake("shake256", 64, tr, Buffer.from([0, 0]), message);
  const c = ntt(challenge(seed));
  const w1 = Buffer.alloc(192 * K);
  for (let r = 0; r < K; r++) {
    const w = new Array(N);
    for (let j = 0; j < N; j++) {
      let v = Q - mul(c[j], t1[r][j]);
      for (let s = 0; s < L; s++) v += mul(matrix[r][s][j], z[s][j]);
      w[j] = v % Q;
    }
    inverseNtt(w);
    for (let j = 0; j < N; j += 4) {
      const [a, b, d, e] = [0, 1, 2, 3].map((i) => useHint(h[r][j + i], w[j + i]));
      const p = 192 * r + (j / 4) * 3;
      w1[p] = a | (b << 6);
      w1[p + 1] = (b >> 2) | (d << 4);
      w1[p + 2] = (d >> 4) | (e << 2);
    }
  }
  return shake("shake256", LAMBDA_BYTES, mu, w1).equals(seed);
}
