# A worker of PushT: the simulator, which draws without GL, no torch.
#
#     docker build -f docker/pusht.Dockerfile -t sparring/pusht:0.1.0 .
#
# The base takes a digest, too; tools/pin-base-image writes it here.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS base

FROM base AS requirements
WORKDIR /build
COPY docker/requirements.py pyproject.toml ./
RUN python requirements.py pyproject.toml pusht > requirements.txt

# What is depended on: made anew only when a version changes, not when our code or a linter's setting does.
FROM base AS dependencies
RUN python -m venv --without-pip /opt/venv && \
    echo /opt/sparring > "$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sparring.pth"
COPY docker/requirements/pusht.txt /build/locked.txt
COPY --from=requirements /build/requirements.txt /build/
# The versions of `sparring env create pusht`: one list for both. Every file by its hash; then, without an index, whether that
# is all that is asked for.
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
# A tmpfs at /cache gets this mode from older runtimes (runc before 1.2), whatever mode it is mounted with, and a new
# volume gets it from all: it is open like /tmp, because SPARRING_UID or `--user` may be anybody.
RUN useradd --uid 10001 --create-home sparring && \
    install -d -m 1777 /cache
COPY --from=dependencies /opt/venv /opt/venv
COPY --from=source /opt/sparring /opt/sparring
# The root filesystem may be read-only: what is written goes to /tmp (a tmpfs) and /cache (a volume).
ENV PATH=/opt/venv/bin:/opt/sparring/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    XDG_CACHE_HOME=/cache \
    SPARRING_HEARTBEAT=/tmp/heartbeat
ARG BASE_IMAGE
LABEL org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.title="sparring/pusht" \
      org.opencontainers.image.description="A Sparring worker with PushT" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      dev.sparring.protocol="4" \
      dev.sparring.benchmark="pusht"
USER sparring
WORKDIR /tmp
HEALTHCHECK --interval=5s --timeout=5s --start-period=20s --retries=6 \
    CMD test -n "$(find "$SPARRING_HEARTBEAT" -newermt '-15 seconds')"
ENTRYPOINT ["sparring"]
CMD ["worker", "--benchmark", "pusht", "--help"]
