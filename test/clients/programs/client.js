// node-postgres: the extended protocol with values, the simple one without.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const net = require("node:net");
const { Client, Pool } = require("pg");

const orders = process.env.ORDERS_TABLE;

// The library takes the server from libpq's variables, but for the certificate.
function options(more) {
  const mode = process.env.PGSSLMODE;
  const root = process.env.PGSSLROOTCERT;
  const ssl = mode && mode !== "disable" ? { rejectUnauthorized: Boolean(root), ca: root && fs.readFileSync(root) } : false;
  return { ssl, ...more };
}

async function connected(use, more) {
  const client = new Client(options(more));
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

async function table(client, name, columns) {
  await client.query(`DROP TABLE IF EXISTS ${name}`);
  await client.query(`CREATE TABLE ${name} (${columns})`);
}

async function fails(state, work) {
  await assert.rejects(work, (error) => {
    assert.strictEqual(error.code, state, error.message);
    return true;
  });
}

class Skip extends Error {}

const cases = {
  async connect() {
    await connected(async (c) => {
      const { rows } = await c.query("SELECT current_setting('application_name') AS name");
      assert.strictEqual(rows[0].name, "node client");
    }, { application_name: "node client" });
    const lost = new Client(options({ database: "no_such_database" }));
    await fails("3D000", lost.connect());
  },

  async types() {
    await connected(async (c) => {
      await table(c, "node_types", "a integer, b bigint, c numeric(20,5), d float8, e text, f bytea, g boolean, h timestamptz, i uuid, j jsonb, k integer[], l text");
      const moment = new Date("2024-02-29T12:34:56.789Z");
      const row = [7, "1152921504606846976", "12345.67890", 0.1, "grüße \\ ' \"", Buffer.from([0, 1, 255]), true, moment,
        "01234567-89ab-cdef-0123-456789abcdef", { a: 1 }, [1, 2, 3], null];
      await c.query(`INSERT INTO node_types VALUES (${row.map((_, i) => "$" + (i + 1)).join(", ")})`, row);
      const { rows, fields } = await c.query({ text: "SELECT * FROM node_types", rowMode: "array" });
      assert.deepStrictEqual(rows[0], row);
      assert.strictEqual(fields[3].dataTypeID, 701);
      await c.query("DROP TABLE node_types");
    });
  },

  async transaction() {
    await connected(async (c) => {
      await table(c, "node_transaction", "n integer");
      for (const end of ["ROLLBACK", "COMMIT"]) {
        await c.query("BEGIN");
        await c.query("INSERT INTO node_transaction VALUES ($1)", [end.length]);
        await c.query(end);
      }
      assert.deepStrictEqual((await c.query("SELECT n FROM node_transaction")).rows, [{ n: 6 }]);
      await c.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
      await fails("25006", c.query("INSERT INTO node_transaction VALUES (1)"));
      await fails("25P02", c.query("SELECT $1::integer", [1]));
      await c.query("ROLLBACK");
      await c.query("DROP TABLE node_transaction");
    });
  },

  async savepoint() {
    await connected(async (c) => {
      await table(c, "node_savepoint", "n integer PRIMARY KEY");
      await c.query("BEGIN");
      await c.query("INSERT INTO node_savepoint VALUES (1)");
      await c.query("SAVEPOINT s");
      await fails("23505", c.query("INSERT INTO node_savepoint VALUES ($1)", [1]));
      await c.query("ROLLBACK TO SAVEPOINT s");
      await c.query("INSERT INTO node_savepoint VALUES ($1)", [2]);
      await c.query("COMMIT");
      assert.strictEqual((await c.query("SELECT sum(n) FROM node_savepoint")).rows[0].sum, "3");
      await c.query("DROP TABLE node_savepoint");
    });
  },

  async error() {
    await connected(async (c) => {
      const failures = { "SELECT 1/0": "22012", "SELECT * FROM no_such_table": "42P01", "SELEC 1": "42601", "SELECT no_such_column": "42703" };
      for (const [text, state] of Object.entries(failures)) {
        await fails(state, c.query(text));
        await fails(state, c.query({ text, queryMode: "extended" }));
        assert.strictEqual((await c.query("SELECT 1 AS one")).rows[0].one, 1);
      }
    });
  },

  async prepared() {
    await connected(async (c) => {
      for (let n = 0; n < 20; n++) {
        const { rows } = await c.query({ name: "twice", text: "SELECT $1::integer * 2 AS twice", values: [n] });
        assert.strictEqual(rows[0].twice, 2 * n);
      }
    });
  },

  async several() {
    await connected(async (c) => {
      const results = await c.query("SELECT 1 AS a; SELECT 2 AS b, 3 AS c");
      assert.deepStrictEqual(results.map((r) => r.rows), [[{ a: 1 }], [{ b: 2, c: 3 }]]);
    });
  },

  async cursor() {
    await connected(async (c) => {
      await c.query("BEGIN");
      await c.query("DECLARE c CURSOR FOR SELECT n FROM generate_series(1, 250) n");
      let total = 0;
      for (let rows; rows !== 0; total += rows) {
        rows = (await c.query("FETCH 100 FROM c")).rowCount;
      }
      await c.query("COMMIT");
      assert.strictEqual(total, 250);
      // The protocol's own way: an Execute that is limited to some rows.
      const { rows } = await c.query({ text: "SELECT n FROM generate_series(1, 250) n", rows: 100 });
      assert.strictEqual(rows.length, 250);
    });
  },

  async copy() {
    throw new Skip("the library leaves COPY to another");
  },

  async cancel() {
    await connected(async (c) => {
      const sleeping = c.query("SELECT pg_sleep(60)");
      const cancelling = new Promise((resolve) => setTimeout(resolve, 300)).then(() => cancelRequest(c));
      await fails("57014", sleeping);
      await cancelling;
      assert.strictEqual((await c.query("SELECT 1 AS one")).rows[0].one, 1);
    });
  },

  async notice() {
    await connected(async (c) => {
      const heard = [];
      c.on("notice", (n) => heard.push(n.message));
      await c.query("DROP TABLE IF EXISTS no_such_table");
      assert.deepStrictEqual(heard, ['table "no_such_table" does not exist, skipping']);
    });
  },

  async listen() {
    await connected(async (listener) => {
      const heard = new Promise((resolve) => listener.once("notification", resolve));
      await listener.query("LISTEN node_channel");
      await connected((speaker) => speaker.query("SELECT pg_notify('node_channel', 'hello')"));
      assert.strictEqual((await heard).payload, "hello");
    });
  },

  async big() {
    await connected(async (c) => {
      const { rows } = await c.query("SELECT n, repeat('x', 200) AS text FROM generate_series(1, 50000) n");
      assert.strictEqual(rows.reduce((sum, row) => sum + row.n, 0), 1250025000);
      const size = 5 << 20;
      assert.strictEqual((await c.query("SELECT $1::text AS text", ["y".repeat(size)])).rows[0].text.length, size);
    });
  },

  async many() {
    const pool = new Pool(options({ max: 40 }));
    const sums = await Promise.all([...Array(200).keys()].map((n) => pool.query("SELECT $1::integer + 1 AS sum", [n])));
    sums.forEach(({ rows }, n) => assert.strictEqual(rows[0].sum, n + 1));
    await pool.end();
  },
};

if (orders) {
  cases.sharded = () => connected(async (c) => {
    for (let user = 0; user < 20; user++) {
      for (let id = 0; id < 3; id++) {
        await c.query({ name: "insert", text: `INSERT INTO ${orders} (user_id, id, note) VALUES ($1, $2, $3)`, values: [user, id, "order"] });
      }
      await c.query("BEGIN");
      assert.strictEqual((await c.query(`UPDATE ${orders} SET note = $1 WHERE user_id = $2`, ["changed", user])).rowCount, 3);
      assert.strictEqual((await c.query(`DELETE FROM ${orders} WHERE user_id = $1 AND id = $2`, [user, 2])).rowCount, 1);
      await c.query("COMMIT");
      const { rows } = await c.query({ name: "select", text: `SELECT id, note FROM ${orders} WHERE user_id = $1 ORDER BY id`, values: [user] });
      assert.deepStrictEqual(rows, [{ id: "0", note: "changed" }, { id: "1", note: "changed" }]);
    }
    await fails("23505", c.query(`INSERT INTO ${orders} VALUES ($1, $2, $3)`, [1, 0, "twice"]));
  });
}

// cancelRequest asks for the end of the client's statement, on a connection of its own that begins with nothing else.
function cancelRequest(client) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(process.env.PGPORT), process.env.PGHOST, () => {
      const packet = Buffer.alloc(16);
      packet.writeInt32BE(16, 0);
      packet.writeInt32BE(80877102, 4);
      packet.writeInt32BE(client.processID, 8);
      packet.writeInt32BE(client.secretKey, 12);
      socket.end(packet);
    });
    socket.on("close", resolve);
    socket.on("error", reject);
    socket.resume();
  });
}

async function main() {
  for (const [name, run] of Object.entries(cases)) {
    try {
      await run();
      console.log(`ok ${name}`);
    } catch (error) {
      if (error instanceof Skip) {
        console.log(`skip ${name}: ${error.message}`);
        continue;
      }
      process.exitCode = 1;
      console.error(error);
      console.log(`not ok ${name}: ${error.message.split("\n")[0]}`);
    }
  }
}

main();
