import assert from "node:assert/strict";
import { test } from "node:test";
import { RefusedResumes } from "./refused-resumes.ts";

test("a refusal is new for each link, and again when its code changes", () => {
  const resumes = new RefusedResumes();
  const asked: [string, number][] = [
    ["a/1", 4421],
    ["a/1", 4421],
    ["a/2", 4421],
    ["a/1", 4420],
    ["a/1", 4420],
  ];
  assert.deepEqual(
    asked.map(([link, code]) => resumes.isNew(link, code)),
    [true, false, true, true, false],
  );
});

test("of more than 1,024 links the one that was refused longest ago is forgotten", () => {
  const resumes = new RefusedResumes();
  for (const link of ["first", "second", "first"]) resumes.isNew(link, 4421);
  for (let other = 0; other < 1_023; other++) resumes.isNew(`other/${other}`, 4421);
  assert.equal(resumes.isNew("first", 4421), false);
  assert.equal(resumes.isNew("second", 4421), true);
});
