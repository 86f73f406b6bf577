# The pilot's image: the pod's init container `install`, the payload container's idle image and the pilot. The stage
# `provisioner` is the image of `k8spilot provision`.
#   docker build -t k8spilot .          (or podman, or buildah)
# For an image that can be built again, byte for byte (docs/reference/image.md): the base by its digest, Debian's packages as of
# one moment, and one time for all files.
#   --build-arg BASE=debian:forky-slim@sha256:... --build-arg SNAPSHOT=20261101T000000Z
#   --build-arg SOURCE_DATE_EPOCH=... with the builder's own option for files (buildah: --timestamp, docker: rewrite-timestamp)
ARG BASE=debian:forky-slim

# Where Debian's packages come from; with SNAPSHOT, they are those of that moment. Lists that old have expired.
FROM $BASE AS base
ARG SNAPSHOT=
RUN if [ -n "$SNAPSHOT" ]; then \
      rm -f /etc/apt/sources.list /etc/apt/sources.list.d/* \
      && echo "deb [check-valid-until=no] http://snapshot.debian.org/archive/debian/$SNAPSHOT forky main" >/etc/apt/sources.list; \
    fi

FROM base AS builder
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev musl-tools python3-venv \
 && rm -rf /var/lib/apt/lists/* /var/log/*.log /var/log/apt
# pip and the build backend live outside the image; --no-build-isolation then needs no network for a wheel.
COPY requirements-build.txt requirements.txt /
RUN python3 -m venv /build \
 && /build/bin/pip install --quiet --no-cache-dir --disable-pip-version-check \
      --require-hashes --only-binary :all: --requirement /requirements-build.txt
# Compiled once, by content and not by time: the same bytes each time, and nothing to look up when they are imported.
RUN python3 -m venv --without-pip /opt/k8spilot \
 && /build/bin/pip --python /opt/k8spilot/bin/python install --quiet --no-cache-dir --disable-pip-version-check \
      --require-hashes --only-binary :all: --no-compile --requirement /requirements.txt \
 && /opt/k8spilot/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/k8spilot/lib
WORKDIR /source
COPY src/k8spilot/payload_init/*.c src/k8spilot/payload_init/*.h src/k8spilot/condor/*.c src/k8spilot/condor/*.h src/k8spilot/supervisor/*.c ./
RUN musl-gcc -std=c11 -static -Os -Wall -Wextra -Werror -s -o /payload-init payload-init.c command.c packet.c scope.c wear.c keyrings.c \
 && musl-gcc -std=c11 -static -Os -Wall -Wextra -Werror -s -o /tidy tidy.c unlock.c measure.c \
 && musl-gcc -std=c11 -static -Os -Wall -Wextra -Werror -s -o /starter starter.c \
 && musl-gcc -std=c11 -static -Os -Wall -Wextra -Werror -s -o /docker-client docker-client.c engine.c sandbox.c \
 && musl-gcc -std=c11 -static -Os -Wall -Wextra -Werror -s -o /engine-get engine-get.c \
 && musl-gcc -std=c11 -static -Os -Wall -Wextra -Werror -s -o /supervisor supervisor.c keyrings.c
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY manifests manifests
COPY components components
COPY overlays overlays
# What the project adds to its dependencies, apart from them: it changes more often.
RUN /build/bin/pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir /wheel . \
 && site=$(/opt/k8spilot/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
 && /build/bin/pip install --quiet --no-cache-dir --disable-pip-version-check \
      --no-index --no-deps --no-compile --target "/installed$site" /wheel/*.whl \
 && rm -r "/installed$site/bin" && rm -f "/installed$site"/k8spilot-*/direct_url.json \
 && /opt/k8spilot/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /installed "/installed$site" \
 && install -D -m 0755 --target-directory /installed/opt/k8spilot/libexec /payload-init /tidy /starter /docker-client /engine-get /supervisor \
 && mkdir /installed/opt/k8spilot/bin \
 && printf '#!/opt/k8spilot/bin/python\nimport sys\nfrom k8spilot.cli.main import main\nif __name__ == "__main__":\n    sys.exit(main())\n' \
      >/installed/opt/k8spilot/bin/k8spilot \
 && chmod 0755 /installed/opt/k8spilot/bin/k8spilot

# HTCondor and its tools: what changes least. Also the image of the lab's pool. /etc/machine-id is emptied, and sshd's host
# keys are removed: everybody who has the image would have these keys, and condor_ssh_to_job makes its own.
# Docker's client is for people, and for the sessions of jobs. It is Debian stable's: a start of forky's (28.5) costs 65 ms
# of processor time, 45 ms more: its go-runewidth computes the width of every character at each start.
FROM base AS htcondor
ARG CONDOR_VERSION=25.14.1
RUN for file in $(find /etc/apt -name '*.list' -o -name '*.sources'); do \
      sed s/forky/trixie/g "$file" >"/etc/apt/sources.list.d/trixie-${file##*/}"; \
    done \
 && printf 'Package: %s\nPin: release n=trixie*\nPin-Priority: %s\n\n' '*' -1 docker-cli 1000 >/etc/apt/preferences.d/trixie \
 && apt-get update \
 && apt-get install --yes --no-install-recommends \
      "condor=$CONDOR_VERSION*" docker-cli skopeo python3 ca-certificates procps \
      openssh-client openssh-server \
 && rm -rf /etc/apt/sources.list.d/trixie-* /etc/apt/preferences.d/trixie \
      /var/lib/apt/lists/* /var/log/*.log /var/log/apt /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache \
      /var/cache/apt/*.bin /etc/ssh/ssh_host_* /etc/passwd- /etc/shadow- /etc/group- /etc/gshadow- \
 && : >/etc/machine-id

# The provisioner's own image (docker build --target provisioner): the same program with the packages that it alone needs,
# without HTCondor's daemons.
FROM builder AS provisioner-builder
COPY requirements-provisioner.txt /
# Neither the pilot's packages nor its programs.
RUN rm -r /opt/k8spilot /installed/opt/k8spilot/libexec \
 && python3 -m venv --without-pip /opt/k8spilot \
 && /build/bin/pip --python /opt/k8spilot/bin/python install --quiet --no-cache-dir --disable-pip-version-check \
      --require-hashes --only-binary :all: --no-compile --requirement /requirements-provisioner.txt \
 && /opt/k8spilot/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/k8spilot/lib

FROM base AS provisioner
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 ca-certificates \
 && rm -rf /var/lib/apt/lists/* /var/log/*.log /var/log/apt /var/cache/debconf/*-old /var/cache/ldconfig/aux-cache \
      /var/cache/apt/*.bin /etc/passwd- /etc/shadow- /etc/group- /etc/gshadow- \
 && echo 'provisioner:*:64200:64200::/nonexistent:/usr/sbin/nologin' >>/etc/passwd \
 && : >/etc/machine-id
COPY --from=provisioner-builder /opt/k8spilot /opt/k8spilot
COPY --from=provisioner-builder /installed /
COPY requirements-provisioner.txt /opt/k8spilot/
RUN ln -s /opt/k8spilot/bin/k8spilot /usr/local/bin/k8spilot
USER 64200:64200
ENTRYPOINT ["k8spilot"]

FROM htcondor
# condor_ssh_to_job: sshd runs as the jobs' account, in a home where no job can leave it a file, and starts its shell.
RUN usermod --home / --shell /bin/bash nobody && rm -f /etc/passwd- /etc/shadow- /etc/group- /etc/gshadow-
# Where nothing is root (components/restricted), HTCondor runs as condor, whose number the manifest has to name, and the
# engine as an account of its own.
RUN test "$(id -u condor):$(id -g condor)" = 101:101 \
 && echo 'k8spilot:*:64100:101::/nonexistent:/usr/sbin/nologin' >>/etc/passwd \
 && for number in $(seq 64); do \
      echo "job$number:*:$((64300 + number)):$((64300 + number))::/:/bin/bash" >>/etc/passwd; \
    done
COPY --from=builder /opt/k8spilot /opt/k8spilot
COPY --from=builder /installed /
COPY requirements.txt /opt/k8spilot/
RUN ln -s /opt/k8spilot/bin/k8spilot /usr/local/bin/k8spilot
# For people: `kubectl exec POD -c pilot -- docker ps`, and HTCondor's tools with the configuration of the pilot's daemons.
ENV DOCKER_HOST=unix:///run/k8spilot/docker.sock CONDOR_CONFIG=/run/k8spilot/condor/condor_config
ENTRYPOINT ["k8spilot"]
