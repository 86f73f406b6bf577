# The project's one image: the pod's init container `install`, the payload container's idle image and the pilot.
#   docker build -t k8spilot .          (or podman, or buildah)
ARG BASE=debian:forky-slim

FROM $BASE AS builder
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev musl-tools python3-venv \
 && rm -rf /var/lib/apt/lists/* /var/log/*.log /var/log/apt
# The build backend lives outside the image; --no-build-isolation then needs no network for a wheel.
RUN python3 -m venv /build && /build/bin/pip install --quiet --no-cache-dir --disable-pip-version-check hatchling==1.33.0
WORKDIR /source
COPY src/k8spilot/payload_init/*.c src/k8spilot/payload_init/*.h ./
RUN musl-gcc -std=c11 -static -Os -Wall -Wextra -Werror -s -o /payload-init payload-init.c command.c
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /build/bin/pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir /wheel .

# HTCondor and its tools: what changes least. Also the image of the lab's pool.
FROM $BASE AS htcondor
ARG CONDOR_VERSION=25.14.1
RUN apt-get update \
 && apt-get install --yes --no-install-recommends \
      "condor=$CONDOR_VERSION*" docker-cli skopeo python3 python3-venv ca-certificates procps \
      openssh-client openssh-server \
 && rm -rf /var/lib/apt/lists/* /var/log/*.log /var/log/apt /var/cache/debconf/*-old

FROM htcondor
# condor_ssh_to_job: sshd runs as the jobs' account, in a home where no job can leave it a file, and starts its shell.
RUN usermod --home / --shell /bin/bash nobody
COPY requirements.txt /opt/k8spilot/
RUN python3 -m venv /opt/k8spilot \
 && /opt/k8spilot/bin/pip install --quiet --no-cache-dir --disable-pip-version-check \
      --require-hashes --only-binary :all: --requirement /opt/k8spilot/requirements.txt \
 && ln -s /opt/k8spilot/bin/k8spilot /usr/local/bin/k8spilot
COPY --from=builder /payload-init /opt/k8spilot/libexec/payload-init
COPY --from=builder /wheel /wheel
RUN /opt/k8spilot/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --no-index --no-deps /wheel/*.whl \
 && rm -r /wheel
# For people: `kubectl exec POD -c pilot -- docker ps`.
ENV DOCKER_HOST=unix:///run/k8spilot/docker.sock
ENTRYPOINT ["k8spilot"]
