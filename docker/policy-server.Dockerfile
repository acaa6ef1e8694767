# The policy server. The extras of sparring that it holds and its Python are build arguments:
#
#     EXTRAS=metaworld,metrics          the scripted experts, classes of your own in numpy, --metrics (the default)
#     EXTRAS=metaworld,metrics,torch    torch policies, too
#     BASE_IMAGE=python:3.12-slim-bookworm    what newer LeRobot releases want
#
# PIP_EXTRA_INDEX_URL names a further package index, for instance PyTorch's of CPU builds.
#
#     docker build -f docker/policy-server.Dockerfile -t sparring/policy-server:0.1.0 .
#
# The base takes a digest, too; tools/pin-base-image writes it here.
ARG BASE_IMAGE=python:3.11-slim-bookworm
ARG EXTRAS=metaworld,metrics

FROM ${BASE_IMAGE} AS base

FROM base AS requirements
ARG EXTRAS
WORKDIR /build
COPY docker/requirements.py pyproject.toml ./
RUN python requirements.py pyproject.toml "$EXTRAS" > requirements.txt

# What is depended on: made anew only when a version changes, not when our code or a linter's setting does.
FROM base AS dependencies
RUN python -m venv --without-pip /opt/venv && \
    echo /opt/sparring > "$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sparring.pth"
COPY docker/constraints/policy-server.txt /build/constraints.txt
COPY docker/requirements/policy-server.txt /build/locked.txt
COPY --from=requirements /build/requirements.txt /build/
ARG EXTRAS
ARG PIP_EXTRA_INDEX_URL
ARG PIP_FIND_LINKS
# As it is by default: every file by its hash; then, without an index, whether that is all that is asked for. With other
# extras only versions are pinned: torch has other files for each kind of GPU.
RUN --mount=type=cache,target=/root/.cache/pip \
    if [ "$EXTRAS" = metaworld,metrics ]; then \
        python -m pip --python /opt/venv/bin/python install --require-hashes --no-deps --only-binary :all: -r /build/locked.txt && \
        python -m pip --python /opt/venv/bin/python install --no-index -r /build/requirements.txt; \
    else \
        python -m pip --python /opt/venv/bin/python install -r /build/requirements.txt -c /build/constraints.txt; \
    fi

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
    install -d -o sparring -g sparring /run/sparring && \
    install -d -m 1777 /cache
COPY --from=dependencies /opt/venv /opt/venv
COPY --from=source /opt/sparring /opt/sparring
# The root filesystem may be read-only: what is written goes to /tmp (a tmpfs) and /cache (a volume).
ENV PATH=/opt/venv/bin:/opt/sparring/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SPARRING_PROBE=127.0.0.1:50051 \
    SPARRING_WATCHDOG=300 \
    HOME=/tmp \
    XDG_CACHE_HOME=/cache
ARG BASE_IMAGE
LABEL org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.title="sparring/policy-server" \
      org.opencontainers.image.description="Sparring's policy server" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      dev.sparring.protocol="4" \
      dev.sparring.role="policy-server"
USER sparring
WORKDIR /policies
HEALTHCHECK --interval=2s --timeout=10s --start-period=600s --retries=5 CMD python -m sparring.protos.net.probe "$SPARRING_PROBE"
ENTRYPOINT ["sparring"]
CMD ["serve", "--help"]
