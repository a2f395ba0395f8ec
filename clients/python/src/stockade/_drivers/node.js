// The node that stays in a sandbox; see python.py. Descriptor 0 is a socket, and each line of it is JSON.
"use strict";
const fs = require("fs"), util = require("util"), vm = require("vm");
const load = require("module").createRequire(process.cwd() + "/");
Object.assign(globalThis, { require: load });
let count = 0, rest = Buffer.alloc(0);
const say = (answer) => {
  let data = Buffer.from(JSON.stringify(answer) + "\n");
  while (data.length) {
    try { data = data.subarray(fs.writeSync(0, data)); } catch (error) { if (error.code !== "EAGAIN") throw error; }
  }
};
const shown = (value) => {
  const result = { text: typeof value === "string" ? util.inspect(value) : util.inspect(value, { depth: 4 }) };
  try {
    if (value && typeof value === "object") { JSON.stringify(value); result.json = value; }
  } catch (error) { /* it has no JSON */ }
  return result;
};
globalThis.display = (value) => say({ result: shown(value) });
const evaluate = (code, filename) => {
  try {
    return vm.runInThisContext(code, { filename, breakOnSigint: true });
  } catch (error) {
    if (!(error instanceof SyntaxError) || !/\bawait\b/.test(code)) throw error;
    return vm.runInThisContext(`(async () => {${code}\n})()`, { filename, breakOnSigint: true });
  }
};
const interrupted = () => new Promise((_, refuse) => process.once("SIGINT", () => refuse(new Error("interrupted"))));
const answer = async (request) => {
  count += 1;
  const before = {};
  let error = null;
  for (const [name, value] of Object.entries(request.env || {})) { before[name] = process.env[name]; process.env[name] = value; }
  try {
    let value = evaluate(request.code, `<cell ${count}>`);
    if (value && typeof value.then === "function") value = await Promise.race([value, interrupted()]);
    if (value !== undefined) say({ result: shown(value), main: true });
  } catch (raised) {
    const is = raised instanceof Error || (raised && raised.stack);
    error = { name: is ? String(raised.name) : "Error", value: is ? String(raised.message) : util.inspect(raised), traceback: is ? String(raised.stack) : "" };
  }
  process.removeAllListeners("SIGINT");
  process.on("SIGINT", () => {});
  for (const [name, value] of Object.entries(before)) { if (value === undefined) delete process.env[name]; else process.env[name] = value; }
  // What console.log wrote to a pipe is written when this is: both are synchronous on Linux.
  say({ done: request.id, error, count });
};
process.on("SIGINT", () => {});
process.on("uncaughtException", (error) => console.error(error));
const read = () => fs.read(0, Buffer.alloc(1 << 16), 0, 1 << 16, null, async (error, length, piece) => {
  if (error || !length) return process.exit(0);
  rest = Buffer.concat([rest, piece.subarray(0, length)]);
  for (let end; (end = rest.indexOf(10)) >= 0; ) {
    const line = rest.subarray(0, end).toString();
    rest = rest.subarray(end + 1);
    await answer(JSON.parse(line));
  }
  read();
});
say({ ready: 1 });
read();
