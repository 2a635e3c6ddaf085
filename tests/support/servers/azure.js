// An Azure Blob server for the tests: azurite, in memory, on a free port of the loopback.
//
// It says `ready PORT`, and then answers each line of its input with one line: `make NAME` makes a container. It ends
// with its input, so it never outlives the process that started it, however that one ends.

const crypto = require("crypto");
const http = require("http");
const readline = require("readline");

// Azurite's own account: its name and key are in its documentation, and open nothing else.
const [account, key] = process.argv.splice(1);

function make(port, container) {
  const date = new Date().toUTCString();
  const path = `/${account}/${container}`;
  const version = "2021-08-06";
  const signed = [
    "PUT", "", "", "", "", "", "", "", "", "", "", "",
    `x-ms-date:${date}`, `x-ms-version:${version}`,
    `/${account}${path}`, "restype:container",
  ].join("\n");
  const signature = crypto.createHmac("sha256", Buffer.from(key, "base64")).update(signed, "utf8").digest("base64");
  const headers = {
    "Authorization": `SharedKey ${account}:${signature}`,
    "Content-Length": 0,
    "x-ms-date": date,
    "x-ms-version": version,
  };
  return new Promise((resolve, reject) => {
    const target = { host: "127.0.0.1", port, path: `${path}?restype=container`, method: "PUT", headers };
    const request = http.request(target, (response) => {
      response.resume().on("end", () =>
        response.statusCode === 201 ? resolve() : reject(new Error(`${container}: ${response.statusCode}`)));
    });
    request.on("error", reject).end();
  });
}

async function serve(port) {
  console.log(`ready ${port}`);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    await make(port, line.replace(/^make /, ""));
    console.log("done");
  }
  process.exit(0);
}

// It tells the port that it was given only in what it prints.
const print = console.log;
console.log = (line) => {
  const listens = /listens on http:\/\/127\.0\.0\.1:(\d+)$/.exec(line);
  if (listens) {
    console.log = print;
    serve(Number(listens[1])).catch((error) => {
      console.error(error);
      process.exit(1);
    });
  }
};
process.argv.push("azurite-blob", "--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence",
  "--blobHost", "127.0.0.1", "--blobPort", "0");
require("azurite/dist/src/blob/main");
