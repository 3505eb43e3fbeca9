// An Azure Blob Storage server for tests (Azurite), which checks signatures, and a prompt that looks into it from outside:
// the same one as store.py has. Arguments: the folder with Azurite, and the port.
"use strict";
const crypto = require("node:crypto");
const http = require("node:http");
const path = require("node:path");
const readline = require("node:readline");

const [folder, port] = process.argv.slice(2);
const account = "sekishotest";
const key = Buffer.from("SecretOfTheTestThatIsNeverShown/0123456").toString("base64");
process.env.AZURITE_ACCOUNTS = `${account}:${key}`;
process.argv = [
  process.argv[0], "azurite-blob", "--blobHost", "127.0.0.1", "--blobPort", port,
  "--inMemoryPersistence", "--silent", "--disableTelemetry",
];

// Spaced as Python's; every line break is one between values.
const spaced = (value) =>
  JSON.stringify(value, null, 1).replace(/([[{])\n\s*/g, "$1").replace(/\n\s*([\]}])/g, "$1").replace(/\n\s*/g, " ");
const say = (value) => process.stdout.write(spaced(value) + "\n");
let base = null;
console.log = (line) => {
  const found = /successfully listens on http:\/\/127\.0\.0\.1:(\d+)/.exec(String(line));
  if (found) begin(Number(found[1]));
};
require(path.join(folder, "node_modules/azurite/dist/src/blob/main.js"));

// Signed by the rules of the documentation; nothing of it is shared with the server under test.
function ask(method, name, query = {}, fields = {}, body = Buffer.alloc(0)) {
  const target = `/${account}/bucket` + name.split("/").map(encodeURIComponent).join("/");
  const all = { "x-ms-date": new Date().toUTCString(), "x-ms-version": "2021-08-06", ...fields };
  const own = Object.keys(all).filter((it) => it.startsWith("x-ms-")).sort().map((it) => `${it}:${all[it]}\n`).join("");
  const pairs = Object.keys(query).sort().map((it) => `\n${it}:${query[it]}`).join("");
  const text = `${method}\n\n\n${body.length || ""}\n\n\n\n\n\n\n\n\n${own}/${account}${target}${pairs}`;
  const mac = crypto.createHmac("sha256", Buffer.from(key, "base64")).update(text).digest("base64");
  all.Authorization = `SharedKey ${account}:${mac}`;
  all["Content-Length"] = body.length;
  const search = new URLSearchParams(query).toString();
  return new Promise((resolve, reject) => {
    const options = { ...base, method, path: target + (search && "?" + search), headers: all };
    const request = http.request(options, (response) => {
      const pieces = [];
      response.on("data", (piece) => pieces.push(piece));
      response.on("end", () => {
        const answer = { status: response.statusCode, fields: response.headers, body: Buffer.concat(pieces) };
        if (answer.status < 300) resolve(answer);
        else reject(new Error(`${method} ${target}: ${answer.status} ${answer.body}`));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

const put = (name, body, type) =>
  ask("PUT", "/" + name, {}, { "x-ms-blob-type": "BlockBlob", ...(type && { "x-ms-blob-content-type": type }) }, Buffer.from(body));

async function names(more = {}) {
  const found = [];
  let marker = "";
  do {
    const query = { comp: "list", restype: "container", ...more, ...(marker && { marker }) };
    const text = (await ask("GET", "", query)).body.toString();
    found.push(...[...text.matchAll(/<Blob><Name>([^<]*)<\/Name>/g)].map((it) => it[1]));
    marker = (/<NextMarker>([^<]+)<\/NextMarker>/.exec(text) || ["", ""])[1];
  } while (marker);
  return found;
}

async function answer(command) {
  switch (command.do) {
    case "put":
      await put(command.key, command.body, command.type);
      return true;
    case "delete":
      await ask("DELETE", "/" + command.key);
      return true;
    case "keys":
      return names();
    case "sum":
      return crypto.createHash("sha256").update((await ask("GET", "/" + command.key)).body).digest("hex");
    case "type":
      return (await ask("HEAD", "/" + command.key)).fields["content-type"];
    case "fill":
      for (let number = 0; number < command.count; number++) {
        await put(command.prefix + String(number).padStart(6, "0"), "x");
      }
      return true;
    case "uploads": {
      const complete = new Set(await names());
      return (await names({ include: "uncommittedblobs" })).filter((name) => !complete.has(name));
    }
    // A signature for everything in the container.
    case "token": {
      const until = new Date(Date.now() + 3600e3).toISOString().replace(/\.\d+Z/, "Z");
      const said = ["racwdl", "", until, `/blob/${account}/bucket`, "", "", "", "2020-12-06", "c", "", "", "", "", "", "", ""];
      const mac = crypto.createHmac("sha256", Buffer.from(key, "base64")).update(said.join("\n")).digest("base64");
      return new URLSearchParams({ sp: "racwdl", se: until, sv: "2020-12-06", sr: "c", sig: mac }).toString();
    }
    default:
      throw new Error(command.do);
  }
}

async function begin(port) {
  base = { host: "127.0.0.1", port, agent: new http.Agent({ keepAlive: true }) };
  await ask("PUT", "", { restype: "container" });
  say({ port, access: account, secret: key });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      say({ ok: await answer(JSON.parse(line)) });
    } catch (error) {
      say({ error: String(error) });
    }
  }
}
