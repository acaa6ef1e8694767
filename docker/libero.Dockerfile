# A worker of LIBERO: the simulator, software rendering, no torch. Its assets are mounted, or downloaded to /cache.
#
#     docker build -f docker/libero.Dockerfile -t sparring/libero:0.1.0 .
#
# The base takes a digest, too; tools/pin-base-image writes it here.
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS base

FROM base AS requirements
WORKDIR /build
COPY docker/requirements.py pyproject.toml ./
RUN python requirements.py pyproject.toml libero > requirements.txt

FROM base AS runtime
# A tmpfs at /cache gets this mode from older runtimes (runc before 1.2), whatever mode it is mounted with, and a new
# volume gets it from all: it is open like /tmp, because SPARRING_UID or `--user` may be anybody.
RUN apt-get update && \
    apt-get install -y --no-install-recommends libegl1 libegl-mesa0 libgl1-mesa-dri libopengl0 libosmesa6 && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --create-home sparring && \
    install -d -m 1777 /cache

# What is depended on: made anew only when a version changes, not when our code or a linter's setting does.
FROM runtime AS dependencies
RUN apt-get update && apt-get install -y --no-install-recommends binutils
RUN python -m venv --without-pip /opt/venv && \
    echo /opt/sparring > "$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/sparring.pth"
# The versions of `sparring env create libero`: one list for both.
COPY docker/requirements/libero.txt /build/locked.txt
COPY docker/requirements/build.txt /build/
COPY --from=requirements /build/requirements.txt /build/
# Every file by its hash (bddl has no wheel: it is built from its sources, with the one builder that is pinned, too);
# then, without an index, whether that is all that is asked for.
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m pip install --require-hashes -r /build/build.txt && \
    python -m pip wheel --require-hashes --no-deps --no-build-isolation -w /build/wheels -r /build/locked.txt && \
    python -m pip --python /opt/venv/bin/python install --no-compile --no-deps --no-index /build/wheels/*.whl && \
    python -m pip --python /opt/venv/bin/python install --no-index -r /build/requirements.txt && \
    rm -r /build/wheels
COPY docker/slim_libero.py /build/
# Bytecode is kept of what a worker imports, and of nothing else: that is what importing it once leaves behind.
RUN packages=$(/opt/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
    python /build/slim_libero.py "$packages" && \
    strip --strip-unneeded "$packages"/llvmlite/binding/*.so $(find "$packages/scipy" -name '*.so') && \
    export LIBERO_CONFIG_PATH=/build MUJOCO_GL=egl && echo n | /opt/venv/bin/python -c 'import libero.libero.envs' && \
    /opt/venv/bin/python -c 'import av, click, gymnasium, pydantic, rich.progress, rich.table, yaml' && \
    /opt/venv/bin/python -c 'import grpc.aio, grpc_health.v1.health_pb2_grpc, numpy, scipy.spatial.transform'

COPY docker/compile_libero.py /build/
ENV NUMBA_CACHE_DIR=/opt/numba NUMBA_CPU_NAME=generic
RUN find /opt/venv -path '*/robosuite/utils/*.py' -exec touch -d 2020-01-01 {} + && \
    MUJOCO_GL=egl /opt/venv/bin/python -B /build/compile_libero.py

# Our code: a few seconds.
FROM base AS source
COPY docker/requirements/build.txt /build/
RUN --mount=type=cache,target=/root/.cache/pip python -m pip install --require-hashes -r /build/build.txt
COPY . /build
RUN python -m pip install --no-deps --no-build-isolation --target /opt/sparring /build && \
    sed -i '1s|.*|#!/opt/venv/bin/python|' /opt/sparring/bin/*

# Our own control loop is compiled, too. Numba looks at the time of its source, so that is fixed first.
FROM dependencies AS compiled
COPY --from=source /opt/sparring /opt/sparring
RUN touch -d 2020-01-01 /opt/sparring/sparring/env_worker/benchmarks/_libero/compiled_control.py && \
    MUJOCO_GL=egl /opt/venv/bin/python -B -c 'from sparring.env_worker.benchmarks._libero import robosuite_log, preloaded'

FROM runtime
COPY --from=dependencies /opt/venv /opt/venv
COPY --from=compiled /opt/numba /opt/numba
COPY --from=compiled /opt/sparring /opt/sparring
# The root filesystem may be read-only: what is written goes to /tmp (a tmpfs) and /cache (a volume).
ENV PATH=/opt/venv/bin:/opt/sparring/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    XDG_CACHE_HOME=/cache \
    HF_HUB_DISABLE_XET=1 \
    SPARRING_HEARTBEAT=/tmp/heartbeat \
    MESA_SHADER_CACHE_DIR=/tmp/mesa \
    MPLCONFIGDIR=/tmp/matplotlib \
    NUMBA_CACHE_DIR=/tmp/numba \
    NUMBA_CPU_NAME=generic
ARG BASE_IMAGE
LABEL org.opencontainers.image.base.name="${BASE_IMAGE}" \
      org.opencontainers.image.title="sparring/libero" \
      org.opencontainers.image.description="A Sparring worker with LIBERO" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="0.1.0" \
      dev.sparring.protocol="4" \
      dev.sparring.benchmark="libero"
USER sparring
WORKDIR /tmp
HEALTHCHECK --interval=5s --timeout=5s --start-period=20s --retries=6 \
    CMD test -n "$(find "$SPARRING_HEARTBEAT" -newermt '-15 seconds')"
# Numba only reads a cache where it could also write.
ENTRYPOINT ["/bin/sh", "-c", "cp -r /opt/numba /tmp/ && exec sparring \"$@\"", "sparring"]
CMD ["worker", "--benchmark", "libero", "--help"]
