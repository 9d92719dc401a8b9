/** Somebody between a client and its service: notes what passes, and spoils it on purpose. A real server on a socket. */

import http from "node:http";

/**
 * `spoil` says what to do with each request to come:
 *
 *     "lose answer"             pass it on, and cut the line in place of the answer
 *     "half answer"             pass it on, and cut the line in the middle of the answer
 *     "cut"                     cut the line at once
 *     "hold"                    pass it on, and never answer
 *     { status, headers, body } answer that
 *     ""                        nothing: pass it on
 */
export class Proxy {
  passed = [];
  spoil = [];
  #held = [];
  #server = http.createServer((request, response) => this.#handle(request, response));

  static async before(address) {
    const proxy = new Proxy();
    proxy.target = new URL(address);
    await new Promise((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve));
    proxy.address = `http://127.0.0.1:${proxy.#server.address().port}`;
    return proxy;
  }

  async close() {
    for (const response of this.#held) response.destroy();
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  /** Method, path, key, plan, step and body of what came by: what must be equal on every attempt. */
  get sent() {
    return this.passed.map(({ method, path, headers, body }) => {
      const [key, plan, step] = ["idempotency-key", "plan-key", "plan-step"].map((name) => headers[name]);
      return JSON.stringify({ method, path, key, plan, step, body });
    });
  }

  async #handle(request, response) {
    let body = "";
    for await (const piece of request.setEncoding("utf8")) body += piece;
    this.passed.push({ method: request.method, path: request.url, headers: request.headers, body });
    const spoiled = this.spoil.shift() ?? "";
    if (typeof spoiled === "object") {
      response.writeHead(spoiled.status, spoiled.headers ?? {}).end(spoiled.body ?? "");
      return;
    }
    if (spoiled === "cut") {
      request.socket.destroy();
      return;
    }
    const answer = await this.#forward(request, body);
    if (spoiled === "hold") {
      this.#held.push(response);
    } else if (spoiled === "lose answer") {
      request.socket.destroy();
    } else if (spoiled === "half answer") {
      response.writeHead(answer.status, { ...answer.headers, "content-length": answer.body.length });
      response.write(answer.body.subarray(0, answer.body.length / 2), () => request.socket.destroy());
    } else {
      response.writeHead(answer.status, answer.headers).end(answer.body);
    }
  }

  #forward(request, body) {
    return new Promise((resolve, reject) => {
      const { host, ...headers } = request.headers;
      const { hostname, port } = this.target;
      const options = {
        hostname,
        port,
        method: request.method,
        path: request.url,
        headers: { ...headers, connection: "close" },
      };
      const onward = http.request(options, (answer) => {
        const pieces = [];
        answer.on("data", (piece) => pieces.push(piece));
        answer.on("end", () => {
          const { connection, "content-length": length, "transfer-encoding": coding, ...kept } = answer.headers;
          resolve({ status: answer.statusCode, headers: kept, body: Buffer.concat(pieces) });
        });
      });
      onward.on("error", reject);
      onward.end(body);
    });
  }
}
