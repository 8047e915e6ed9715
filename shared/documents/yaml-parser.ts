/** What `yamlEntries` uses of yaml. By `import()`, a package in CommonJS has no names in the bundled build (0039). */
export { isMap, isScalar, isSeq, Parser, parseDocument } from "yaml";
