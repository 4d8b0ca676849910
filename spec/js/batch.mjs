// `batch`: operations as lines of JSON on the standard input, and their results as lines on the standard output.

import { createInterface } from "node:readline";
import { parse, stringify } from "./json.mjs";
import { OPS } from "./ops.mjs";
import { run } from "./vectors.mjs";

const FLUSH_AT = 1 << 16;

function resultOf(line) {
  let request;
  try {
    request = parse(line);
  } catch {
    return { crash: "the line is not JSON" };
  }
  if (request === null || typeof request !== "object" || OPS[request.op] === undefined) return { crash: "no such operation" };
  const result = run(request.op, request.input ?? {}, request.context ?? {});
  // Only the message: a stack would make equal crashes look different.
  return result.crash === undefined ? result : { crash: result.crash.split("\n")[0] };
}

export async function batch(input, output) {
  let waiting = [];
  let size = 0;
  const flush = async () => {
    const text = waiting.join("");
    waiting = [];
    size = 0;
    if (!output.write(text)) await new Promise((resolve) => output.once("drain", resolve));
  };
  for await (const line of createInterface({ input, crlfDelay: Infinity })) {
    if (line.trim() === "") continue;
    let text;
    try {
      text = stringify(resultOf(line)) + "\n";
    } catch (e) {
      text = stringify({ crash: String(e) }) + "\n";
    }
    waiting.push(text);
    size += text.length;
    // A caller that waits for the answer to its line must get it, so keep results back only while more input is at hand.
    if (size >= FLUSH_AT || input.readableLength === 0) await flush();
  }
  await flush();
  return 0;
}
