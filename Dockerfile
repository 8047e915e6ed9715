# The same Node release in both stages: nothing native is built, but what was tested is what runs.
FROM node:22-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# Scripts are left out: `prepare` builds, and the sources come in a later, more often changed layer.
RUN npm ci --ignore-scripts
COPY tsconfig.json tsconfig.build.json ./
COPY shared ./shared
COPY server ./server
COPY agent ./agent
COPY router ./router
COPY cli ./cli
COPY scripts/revision.mjs ./scripts/
# The commit, for `culvert_build_info`: there is no .git here. docker build --build-arg REVISION=$(git rev-parse HEAD)
ARG REVISION=
RUN CULVERT_REVISION=$REVISION npm run build && npm prune --omit=dev --ignore-scripts

FROM node:22-slim
ENV NODE_ENV=production
WORKDIR /app
COPY --from=build /app/package.json ./
COPY --from=build /app/node_modules ./node_modules
COPY --from=build /app/dist ./dist
# As in the npm package: `culvert explain` reads docs/errors.md.
COPY docs ./docs
COPY LICENSE README.md CHANGELOG.md ./
# As a number, so that Kubernetes' runAsNonRoot can check it.
USER 65532:65532
# Callers, agents, health of server and agent. The admin ports bind to loopback.
EXPOSE 8090 8091 8092 8093
# Node itself, without a shell or npm in front: signals reach the process that drains.
ENTRYPOINT ["node", "/app/dist/cli/main.js"]
CMD ["--help"]
