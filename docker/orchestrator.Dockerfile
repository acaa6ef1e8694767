# The orchestrator: plans, hands out episodes, keeps the journal. No simulator, no policy.
#
#     docker build -f docker/orchestrator.Dockerfile -t sparring/orchestrator:0.1.0 .
#
# The base takes a digest, too; tools/pin-base-image writes it here.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS base

FROM base AS requirements
WORKDIR /build
COPY docker/requirements.py pyproject.toml ./
RUN python requirements.py pyproject.toml docker > requirements.txt

# What is depended on: made anew only when a version changes, not when our code or a linter's setting does.
FROM base AS dependencies
RUN python -m venv --without-pip /opt/venv && \
    echo /opt/sparring > "$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sparring.pth"
COPY docker/requirements/orchestrator.txt /build/locked.txt
COPY --from=requirements /build/requirements.txt /build/
# Every file by its hash; then, without an index, whether that is all that is asked for.
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip --python /opt/venv/bin/python install --require-hashes --no-deps --only-binary :all: -r /build/locked.txt && \
    python -m pip --python /opt/venv/bin/python install --no-index -r /build/requirements.txt

# Our code: a few seconds.
FROM base AS source
COPY docker/requirements/build.txt /build/
RUN --mount=type=cache,target=/root/.cache/pip python -m pip install --require-hashes -r /build/build.txt
COPY . /build
RUN python -m pip install --no-deps --no-build-isolation --target /opt/sparring /build && \
    sed -i '1s|.*|#!/opt/venv/bin/python|' /opt/sparring/bin/*

FROM base
RUN useradd --uid 10001 --create-home sparring && \
    install -d -o sparring -g sparring /outputs
COPY --from=dependencies /opt/venv /opt/venv
COPY --from=source /opt/sparring /opt/sparring
# The root filesystem may be read-only: results go to /outputs (a volume), everything else to /tmp (a tmpfs).
ENV PATH=/opt/venv/bin:/opt/sparring/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SPARRING_PROBE=127.0.0.1:50052 \
    HOME=/tmp
ARG BASE_IMAGE
LABEL org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.title="sparring/orchestrator" \
      org.opencontainers.image.description="Sparring's orchestrator" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      dev.sparring.protocol="4" \
      dev.sparring.role="orchestrator"
USER sparring
# `outputs/` is here.
WORKDIR /
HEALTHCHECK --interval=2s --timeout=10s --start-period=60s --retries=5 CMD python -m sparring.protos.net.probe "$SPARRING_PROBE"
ENTRYPOINT ["sparring"]
CMD ["--help"]
