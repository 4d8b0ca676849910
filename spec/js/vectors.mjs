// Replays the vectors (README.md of the specification).

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Fail } from "./fail.mjs";
import { parse, stringify } from "./json.mjs";
import { OPS } from "./ops.mjs";

/** Runs one operation: {output}, {error} or, for an unexpected exception, {crash}. */
export function run(op, input, context) {
  try {
    return { output: OPS[op](input, context) };
  } catch (e) {
    if (e instanceof Fail) return { error: e.name };
    return { crash: String((e && e.stack) || e) };
  }
}

function* files(folder) {
  const entries = readdirSync(folder, { withFileTypes: true }).sort((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of entries) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* files(path);
    else if (entry.name.endsWith(".json")) yield path;
  }
}

/** The changed inputs of a mutation, in their normative order. */
function* changes(bytes, flips) {
  for (const flip of flips) {
    for (let i = 0; i < bytes.length; i++) {
      const changed = Buffer.from(bytes);
      changed[i] ^= flip;
      yield changed;
    }
  }
  for (let n = 0; n < bytes.length; n++) yield bytes.subarray(0, n);
}

class Report {
  constructor() {
    this.ops = new Map();
    this.disagreements = [];
  }

  row(op) {
    if (!this.ops.has(op)) this.ops.set(op, { pass: 0, fail: 0, changes: 0, skipped: 0 });
    return this.ops.get(op);
  }

  result(op, ok, what) {
    const row = this.row(op);
    if (ok) row.pass++;
    else {
      row.fail++;
      this.disagreements.push(what);
    }
  }
}

const described = (r) => stringify(r).slice(0, 400);

function replayMutation(report, where, c, context) {
  const bytes = Buffer.from(c.input[c.field], "hex");
  const expected = [];
  for (const [name, times] of c.verdicts) for (let i = 0; i < times; i++) expected.push(name);
  let i = 0;
  let wrong = null;
  for (const changed of changes(bytes, c.flips)) {
    const r = run(c.op, { ...c.input, [c.field]: changed.toString("hex") }, context);
    const verdict = r.error !== undefined ? r.error : "crash" in r ? "crash" : stringify(r.output) === stringify(c.kept ?? null) ? "kept" : "other";
    if (verdict !== expected[i] && wrong === null) wrong = `change ${i}: expected ${expected[i]}, got ${described(r)}`;
    i++;
  }
  if (i !== expected.length) wrong = `${expected.length} verdicts of ${i} changes`;
  report.row(c.op).changes += i;
  report.result(c.op, wrong === null, `${where}: ${wrong}`);
}

export function replay(folder, only) {
  const report = new Report();
  for (const path of files(folder)) {
    const file = parse(readFileSync(path, "utf8"));
    const context = { operator: file.operator, roster: file.roster, max_events: file.max_events };
    for (const kind of ["valid", "invalid", "mutations"]) {
      for (const c of file[kind] ?? []) {
        if (only && !c.op.startsWith(only)) continue;
        const where = `${path.slice(folder.length).replace(/^\//, "")}: ${c.op}: ${c.name}`;
        if (OPS[c.op] === undefined) {
          report.row(c.op).skipped++;
        } else if (kind === "mutations") {
          replayMutation(report, where, c, context);
        } else {
          const expected = kind === "valid" ? { output: c.output } : { error: c.error };
          const r = run(c.op, c.input, context);
          report.result(c.op, stringify(r) === stringify(expected), `${where}: expected ${described(expected)}, got ${described(r)}`);
        }
      }
    }
  }
  return report;
}

/** Prints the report; returns the exit status. */
export function print(report, asJson) {
  const rows = [...report.ops].sort(([a], [b]) => (a < b ? -1 : 1));
  if (asJson) {
    console.log(stringify({ ops: Object.fromEntries(rows), disagreements: report.disagreements }));
  } else {
    for (const d of report.disagreements) console.log(d);
    const done = rows.filter(([, r]) => r.skipped === 0);
    for (const [op, r] of done) {
      const mutations = r.changes ? `, ${r.changes} changed inputs` : "";
      console.log(`${op.padEnd(22)} ${String(r.pass).padStart(4)} passed ${String(r.fail).padStart(4)} failed${mutations}`);
    }
    const sum = (k) => rows.reduce((n, [, r]) => n + r[k], 0);
    const skipped = rows.filter(([, r]) => r.skipped > 0).map(([op, r]) => `${op} (${r.skipped})`);
    if (skipped.length > 0) console.log(`not implemented, skipped: ${skipped.join(", ")}`);
    console.log(`${sum("pass")} cases passed, ${sum("fail")} failed, ${sum("skipped")} skipped, ${sum("changes")} changed inputs`);
  }
  return report.disagreements.length === 0 ? 0 : 1;
}
