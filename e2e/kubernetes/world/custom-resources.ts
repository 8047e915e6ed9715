type Schema = Readonly<Record<string, unknown>>;

const STRING = { type: "string" };
const BOOLEAN = { type: "boolean" };
const INTEGER = { type: "integer" };
const PORT = { type: "integer", minimum: 1, maximum: 65_535 };
const INT_OR_STRING = { "x-kubernetes-int-or-string": true };
const LABELS = { type: "object", additionalProperties: STRING };
const LABEL_SELECTOR = object({ matchLabels: LABELS });
const REFERENCE = { name: STRING, namespace: STRING };
const DURATION = { type: "string", pattern: "^([0-9]+(ms|[smhdwy]))+$" };
const RELABELING = object({
  action: STRING,
  sourceLabels: list(STRING),
  targetLabel: STRING,
  regex: STRING,
  replacement: STRING,
  separator: STRING,
  modulus: INTEGER,
});
const ENDPOINT = {
  port: STRING,
  path: STRING,
  scheme: STRING,
  interval: DURATION,
  scrapeTimeout: DURATION,
  honorLabels: BOOLEAN,
  relabelings: list(RELABELING),
  metricRelabelings: list(RELABELING),
};
const RULE = object(
  { alert: STRING, record: STRING, expr: INT_OR_STRING, for: DURATION, labels: LABELS, annotations: LABELS },
  ["expr"],
);

/**
 * Definitions of the custom resources that the charts render, with the fields that the charts use and no others: an API
 * server refuses a field that its schema does not have (field validation "Strict"). Names and types are those of the
 * projects' own definitions.
 */
export function customResourceDefinitions(): object[] {
  return [
    definition("monitoring.coreos.com", ["v1"], "ServiceMonitor", {
      selector: LABEL_SELECTOR,
      namespaceSelector: object({ any: BOOLEAN, matchNames: list(STRING) }),
      endpoints: list(object(ENDPOINT)),
    }),
    definition("monitoring.coreos.com", ["v1"], "PodMonitor", {
      selector: LABEL_SELECTOR,
      podMetricsEndpoints: list(object(ENDPOINT)),
    }),
    definition("monitoring.coreos.com", ["v1"], "PrometheusRule", {
      groups: list(object({ name: STRING, interval: STRING, rules: list(RULE) }, ["name"])),
    }),
    definition(
      "gateway.networking.k8s.io",
      ["v1alpha2", "v1alpha3", "v1"],
      "TLSRoute",
      {
        parentRefs: list(
          object({ group: STRING, kind: STRING, ...REFERENCE, sectionName: STRING, port: PORT }, ["name"]),
        ),
        hostnames: list(STRING),
        rules: list(object({ name: STRING, backendRefs: list(object({ ...REFERENCE, port: PORT }, ["name"])) })),
      },
      ["rules"],
    ),
    definition(
      "route.openshift.io",
      ["v1"],
      "Route",
      {
        host: STRING,
        port: object({ targetPort: INT_OR_STRING }, ["targetPort"]),
        tls: object(
          {
            termination: oneOf("edge", "reencrypt", "passthrough"),
            insecureEdgeTerminationPolicy: oneOf("Allow", "None", "Redirect", ""),
          },
          ["termination"],
        ),
        to: object({ kind: oneOf("Service"), name: STRING, weight: INTEGER }, ["kind", "name"]),
        wildcardPolicy: oneOf("None", "Subdomain", ""),
      },
      ["to"],
    ),
    definition(
      "cert-manager.io",
      ["v1"],
      "Certificate",
      {
        secretName: STRING,
        isCA: BOOLEAN,
        commonName: STRING,
        subject: object({ organizations: list(STRING) }),
        dnsNames: list(STRING),
        ipAddresses: list(STRING),
        uris: list(STRING),
        duration: STRING,
        renewBefore: STRING,
        usages: list(oneOf("server auth", "client auth", "digital signature", "key encipherment", "cert sign")),
        privateKey: object({
          algorithm: oneOf("RSA", "ECDSA", "Ed25519"),
          size: INTEGER,
          rotationPolicy: oneOf("Never", "Always"),
        }),
        issuerRef: object({ name: STRING, kind: STRING, group: STRING }, ["name"]),
      },
      ["secretName", "issuerRef"],
    ),
    definition("cert-manager.io", ["v1"], "Issuer", {
      ca: object({ secretName: STRING }, ["secretName"]),
      selfSigned: object({}),
    }),
  ];
}

function object(properties: Readonly<Record<string, Schema>>, required: readonly string[] = []): Schema {
  return { type: "object", properties, ...(required.length === 0 ? {} : { required }) };
}

function list(items: Schema): Schema {
  return { type: "array", items };
}

function oneOf(...values: readonly string[]): Schema {
  return { type: "string", enum: values };
}

function definition(
  group: string,
  versions: readonly string[],
  kind: string,
  spec: Readonly<Record<string, Schema>>,
  required: readonly string[] = [],
): object {
  const plural = `${kind.toLowerCase()}s`;
  const openAPIV3Schema = object({ spec: object(spec, required) }, ["spec"]);
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: {
      name: `${plural}.${group}`,
      // Names below *.k8s.io are kept for Kubernetes' own, which this stands for.
      ...(group.endsWith(".k8s.io") ? { annotations: { "api-approved.kubernetes.io": "unapproved, for a test" } } : {}),
    },
    spec: {
      group,
      scope: "Namespaced",
      names: { kind, plural, singular: kind.toLowerCase(), listKind: `${kind}List` },
      versions: versions.map((name, index) => ({
        name,
        served: true,
        storage: index === 0,
        schema: { openAPIV3Schema },
      })),
    },
  };
}
