# A worker of Meta-World: the simulator, software rendering, no torch.
#
#     docker build -f docker/metaworld.Dockerfile -t sparring/metaworld:0.1.0 .
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim-bookworm AS requirements
WORKDIR /build
COPY docker/requirements.py pyproject.toml ./
RUN python requirements.py pyproject.toml metaworld > requirements.txt

# What is depended on: made anew only when a version changes, not when our code or a linter's setting does.
FROM python:${PYTHON_VERSION}-slim-bookworm AS dependencies
RUN python -m venv --without-pip /opt/venv && \
    echo /opt/sparring > "$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sparring.pth"
COPY docker/constraints/metaworld.txt /build/constraints.txt
COPY --from=requirements /build/requirements.txt /build/
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip --python /opt/venv/bin/python install -r /build/requirements.txt -c /build/constraints.txt

# Our code: a few seconds.
FROM python:${PYTHON_VERSION}-slim-bookworm AS source
RUN --mount=type=cache,target=/root/.cache/pip python -m pip install setuptools==80.9.0
COPY . /build
RUN python -m pip install --no-deps --no-build-isolation --target /opt/sparring /build && \
    sed -i '1s|.*|#!/opt/venv/bin/python|' /opt/sparring/bin/*

FROM python:${PYTHON_VERSION}-slim-bookworm
# A tmpfs at /cache gets this mode from older runtimes (runc before 1.2), whatever mode it is mounted with, and a new
# volume gets it from all: it is open like /tmp, because SPARRING_UID or `--user` may be anybody.
RUN apt-get update && \
    apt-get install -y --no-install-recommends libegl1 libegl-mesa0 libgl1-mesa-dri libopengl0 libosmesa6 && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --create-home sparring && \
    install -d -m 1777 /cache
COPY --from=dependencies /opt/venv /opt/venv
COPY --from=source /opt/sparring /opt/sparring
# The root filesystem may be read-only: what is written goes to /tmp (a tmpfs) and /cache (a volume).
ENV PATH=/opt/venv/bin:/opt/sparring/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    XDG_CACHE_HOME=/cache \
    SPARRING_HEARTBEAT=/tmp/heartbeat \
    MESA_SHADER_CACHE_DIR=/tmp/mesa
LABEL org.opencontainers.image.title="sparring/metaworld" \
      org.opencontainers.image.description="A Sparring worker with Meta-World" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      dev.sparring.protocol="2" \
      dev.sparring.benchmark="metaworld"
USER sparring
WORKDIR /tmp
HEALTHCHECK --interval=5s --timeout=5s --start-period=20s --retries=6 \
    CMD test -n "$(find "$SPARRING_HEARTBEAT" -newermt '-15 seconds')"
ENTRYPOINT ["sparring"]
CMD ["worker", "--benchmark", "metaworld", "--help"]
