/** What is published: built code, types, the licence and one page; and nothing that it needs. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("..", import.meta.url));
const read = (name) => readFileSync(`${folder}${name}`, "utf8");
const described = JSON.parse(read("package.json"));

test("the package has what was built, and no tests, sources or settings", () => {
  const told = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts", "--loglevel=error"], {
    cwd: folder,
    encoding: "utf8",
  });
  const [{ files, name }] = JSON.parse(told);
  const modules = readdirSync(`${folder}src`).map((file) => file.replace(/\.ts$/, ""));
  const built = modules.flatMap((module) => [`dist/${module}.d.ts`, `dist/${module}.js`]);

  assert.equal(name, "onceward");
  assert.deepEqual(files.map(({ path }) => path).sort(), ["LICENSE", "README.md", "package.json", ...built].sort());
});

test("packed and installed into somebody's project, it can be imported, without a network", () => {
  const project = mkdtempSync(join(tmpdir(), "onceward-pack-"));
  try {
    const npm = (...args) =>
      execFileSync("npm", [...args, "--ignore-scripts", "--loglevel=error"], { cwd: project, encoding: "utf8" });
    npm("pack", folder);
    writeFileSync(join(project, "package.json"), '{"type": "module"}');
    npm("install", "--offline", "--no-audit", "--no-fund", `onceward-${described.version}.tgz`);
    writeFileSync(
      join(project, "it.js"),
      'import { recipe } from "onceward"; console.log(recipe("charge:{order}").key({ order: 17 }));',
    );

    assert.equal(execFileSync("node", ["it.js"], { cwd: project, encoding: "utf8" }), "charge:17\n");
  } finally {
    rmSync(project, { recursive: true, force: true });
  }
});

test("it needs nothing: no dependencies, and no import but its own", () => {
  assert.deepEqual(
    [described.dependencies, described.peerDependencies, described.type],
    [undefined, undefined, "module"],
  );
  for (const file of readdirSync(`${folder}dist`)) {
    const imported = [...read(`dist/${file}`).matchAll(/(?:from|import)\s*\(?["']([^"']+)["']/g)].map(
      (found) => found[1],
    );
    assert.ok(
      imported.every((name) => name.startsWith("./") || name === "onceward"),
      `${file}: ${imported}`,
    );
  }
});

test("what is installed for working on it is pinned, and from no address", () => {
  const { packages } = JSON.parse(read("package-lock.json"));
  for (const [name, { resolved, integrity }] of Object.entries(packages)) {
    assert.equal(resolved, undefined, name);
    assert.ok(name === "" || integrity.startsWith("sha512-"), name);
  }
  assert.ok(Object.values(described.devDependencies).every((version) => /^\d+\.\d+\.\d+$/.test(version)));
});

test("version and licence are the project's", () => {
  const [, version] = /^version = "(.+)"$/m.exec(read("../../pyproject.toml"));
  assert.equal(described.version, version);
  assert.equal(read("LICENSE"), read("../../LICENSE"));
});
