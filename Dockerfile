# The same Node.js in both stages. From another registry: --build-arg NODE_IMAGE=registry.example.com/node:24.21-slim
ARG NODE_IMAGE=node:24.21-slim

FROM ${NODE_IMAGE} AS build
WORKDIR /app
COPY --chmod=0644 package.json package-lock.json .npmrc ./
# Scripts are left out: `prepare` builds, and the sources come in a later, more often changed layer.
RUN --mount=type=cache,target=/root/.npm npm ci --ignore-scripts
COPY tsconfig.json ./
COPY shared ./shared
COPY server ./server
COPY agent ./agent
COPY router ./router
COPY sidecars ./sidecars
COPY cli ./cli
COPY ui ./ui
COPY docs/errors.md ./docs/
COPY scripts/build.mjs scripts/join-chunks.mjs scripts/page.mjs scripts/revision.mjs ./scripts/
# The commit, for `culvert_build_info`: there is no .git here. docker build --build-arg REVISION=$(git rev-parse HEAD)
ARG REVISION=
RUN CULVERT_REVISION=$REVISION npm run build
# V8's code of a start and of a CONNECT. Node.js keeps it for each user and each path of a program apart. Without it, as
# where an emulated builder is too slow for the demo, a start takes a fifth longer.
USER 65532:65532
RUN mkdir /tmp/cache && \
    { NODE_COMPILE_CACHE=/tmp/cache node dist/cli/main.js demo --once || echo "the image has no compiled code"; }

# culvert as one file, which `npm run build:binary` has made before (docs/one-file.md):
# docker build --target one-file .
FROM debian:12-slim AS one-file
COPY --chmod=0755 dist-binary/culvert /usr/local/bin/
COPY --chmod=0755 docker/proxy-server docker/proxy-agent /
COPY --chmod=0755 docker/proxy-server docker/proxy-agent docker/control-plane-operator /usr/bin/
LABEL org.opencontainers.image.title="culvert" \
      org.opencontainers.image.description="Reach Kubernetes clusters you have no network to" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0"
USER 65532:65532
EXPOSE 8090 8091 8092 8093
ENTRYPOINT ["culvert"]
CMD ["--help"]

FROM ${NODE_IMAGE}
ENV NODE_ENV=production
WORKDIR /app
# Modes are given, because a clone may be private to its user (umask 077), and everything here is root's.
COPY --chmod=0644 package.json package-lock.json ./
RUN --mount=type=cache,target=/root/.npm npm ci --omit=dev --ignore-scripts --no-audit --no-fund
COPY --from=build /app/dist ./dist
COPY --from=build --chmod=0755 /tmp/cache ./cache
ENV NODE_COMPILE_CACHE=/app/cache
# As in the npm package: `culvert explain` reads docs/errors.md.
COPY --chmod=0755 docs ./docs
COPY --chmod=0644 LICENSE README.md CHANGELOG.md ./
COPY --chmod=0755 docker/culvert /usr/local/bin/
# Where Konnectivity's images have theirs: upstream's in /, OpenShift's in /usr/bin.
COPY --chmod=0755 docker/proxy-server docker/proxy-agent /
COPY --chmod=0755 docker/proxy-server docker/proxy-agent docker/control-plane-operator /usr/bin/
ARG REVISION=
LABEL org.opencontainers.image.title="culvert" \
      org.opencontainers.image.description="Reach Kubernetes clusters you have no network to" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}"
# As a number, so that Kubernetes' runAsNonRoot can check it. Nothing is written: the root may be read-only.
USER 65532:65532
# Callers, agents, health of server and agent. The admin ports bind to loopback.
EXPOSE 8090 8091 8092 8093
ENTRYPOINT ["culvert"]
CMD ["--help"]
