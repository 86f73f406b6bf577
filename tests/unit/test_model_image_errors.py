"""The words of runtimes, the kubelet and skopeo, as they were seen.

Kubernetes 1.36, containerd 2.4, CRI-O 1.36, skopeo 1.22.
"""

import pytest

from k8spilot.model.image_errors import Cause, cause_of, scope_of
from k8spilot.model.reference import Reference

IMAGE = "registry.example:5000/busybox:latest"
OTHER = "registry.example:5000"
PULL = f'ErrImagePull: failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '
HEAD = "unexpected status from HEAD request to http://registry.example:5000/v2/busybox/manifests/latest: "
GET = f'ErrImagePull: failed to pull and unpack image "{IMAGE}": failed to copy: httpReadSeeker: failed open: '
LAYER = "(application/vnd.oci.image.layer.v1.tar+gzip sha256:00) to overlayfs as"
START = 'RunContainerError: failed to start containerd task "00": '
RUN = "RunContainerError: failed to create containerd task: failed to create shim task: OCI runtime create failed: "
CRIO = "ErrImagePull: unable to pull image or OCI artifact: pull image err: "
CRIO_ASKS = f"{CRIO}initializing source docker://{IMAGE}: reading manifest latest in registry.example:5000/busybox: "
NO_ARTIFACT = "; artifact err: image reference: reference is a container image, not an OCI artifact"
CRIO_START = (
    'CreateContainerError: container create failed: time="2026-11-27T20:26:40Z" level=error msg="runc create failed: '
)
CRIO_LAYER = (
    'writing blob: adding layer with blob "sha256:00"/""/"sha256:00": unpacking failed (error: exit status 1; output: '
)

FOR_GOOD = [
    f"{PULL}{IMAGE}: not found",
    f'ImagePullBackOff: Back-off pulling image "{IMAGE}": {PULL}{IMAGE}: not found',
    f"{GET}could not fetch content descriptor sha256:00 (application/json) from remote: not found",
    f'ErrImagePull: failed to pull and unpack image "{IMAGE}": no match for platform in manifest: not found',
    f'ErrImagePull: failed to pull and unpack image "{IMAGE}": failed to extract layer {LAYER} "x": unexpected EOF',
    "ErrImagePull: number of layers and diffIDs don't match: 1 != 0",
    'InvalidImageName: Failed to apply default image tag "A/b": couldn\'t parse image name "A/b": must be lowercase',
    f"{RUN}runc create failed: Cwd must be an absolute path",
    f"{RUN}runc create failed: exec /k8spilot/bin/payload-init: permission denied",
    "reading manifest 1 in registry.example:5000/no-such: manifest unknown",
    'choosing image instance: no image found in image index for architecture "amd64", variant "", OS "linux"',
    "name invalid",
    "Error reading configuration blob: exceeded maximum allowed size of 4194304 bytes",
    (
        f"{CRIO_ASKS}manifest unknown; artifact err: image reference: get manifest from ref: create image source: "
        "reading manifest latest in registry.example:5000/busybox: manifest unknown"
    ),
    f"{CRIO_ASKS}name unknown",
    f"{CRIO_ASKS}name invalid",
    (
        f"{CRIO}choosing an image from manifest list docker://{IMAGE}: no image found in image index for architecture "
        '"amd64", variant "", OS "linux"'
    ),
    f"{CRIO}parsing image configuration: fetching blob: blob unknown{NO_ARTIFACT}",
    f"{CRIO}reading blob sha256:00: fetching blob: blob unknown{NO_ARTIFACT}",
    f"{CRIO}parsing image configuration: json: cannot unmarshal array into Go value of type v1.Image{NO_ARTIFACT}",
    f"{CRIO}{CRIO_LAYER}archive/tar: invalid tar header)\nexhausting input failed (error: x){NO_ARTIFACT}",
    f"{CRIO}{CRIO_LAYER}unexpected EOF)\nexhausting input failed (error: unexpected EOF){NO_ARTIFACT}",
    f"{CRIO}writing blob: setting up to decompress blob: EOF{NO_ARTIFACT}",
    (
        f'{CRIO}trying to reuse blob sha256:00 at destination: layer 0 (blob "sha256:00"/""/"sha256:00") does not '
        f'match config\'s DiffID "sha256:11"{NO_ARTIFACT}'
    ),
    (
        f'{CRIO}committing the finished image: image with ID "00" already exists, but uses a different top layer: '
        f"that ID is already in use{NO_ARTIFACT}"
    ),
    f'{CRIO_START}Cwd must be an absolute path"\n',
    f'{CRIO_START}unable to start container process: error during container init: exec: \\"/x\\": permission denied"\n',
    "CreateContainerError: get exec user: unable to find user 65534: read /x/merged/etc/passwd: is a directory",
]
NO_REGISTRY = [
    'ErrImagePull: failed to do request: Head "https://no.invalid/v2/x": dial tcp: lookup no.invalid: no such host',
    'pinging container registry x: Get "https://x/v2/": dial tcp: lookup x on 10.255.255.53:53: no such host',
    'pinging container registry x: Get "https://x/v2/": x509: certificate signed by unknown authority',
    'pinging container registry x: Get "https://x/v2/": http: server gave HTTP response to HTTPS client',
    (
        "ErrImagePull: unable to pull image: initializing source docker://x/a:1: pinging container registry x: "
        'Get "https://x/v2/": dial tcp: lookup x on 10.255.255.53:53: no such host'
    ),
]
NO_ACCESS = [
    f"{PULL}{HEAD}401 Unauthorized",
    f"{PULL}{HEAD}403 Forbidden\ndenied",
    "reading manifest 1 in registry.example:5000/any: authentication required",
    "reading manifest 1 in docker.io/a/b: requested access to the resource is denied",
    f"{PULL}pull access denied, repository does not exist or may require authorization: insufficient_scope",
    'ErrImageNeverPull: Container image "x" is not present with pull policy of Never',
    "SignatureValidationFailed: image validation failed: signature not accepted",
    f"{CRIO_ASKS}unauthorized",
    f"{CRIO_ASKS}denied",
    f"{CRIO}reading blob sha256:00: fetching blob: denied: denied{NO_ARTIFACT}",
]
FOR_NOW = [
    f'{PULL}failed to do request: Head "http://{OTHER}/v2/": dial tcp 10.0.0.1: connect: connection refused',
    f'{PULL}failed to do request: Head "http://{OTHER}/v2/": EOF',
    f'{PULL}failed to do request: Head "http://{OTHER}/v2/": net/http: timeout awaiting response headers',
    f"{PULL}{HEAD}429 Too Many Requests",
    f"{PULL}{HEAD}503 Service Unavailable",
    f"{GET}unexpected status from GET request to http://x/v2/x: 429 Too Many Requests\ntoomanyrequests",
    f'ErrImagePull: failed to pull and unpack image "{IMAGE}": short read: expected 925 bytes: unexpected EOF',
    f'ErrImagePull: failed to extract layer {LAYER} "x": write /a: no space left on device',
    "RunContainerError: mkdir /run/x: no space left on device",
    "CreateContainerError: context deadline exceeded",
    f"{RUN}runc create failed: unable to start container process: error during container init: cannot allocate memory",
    f"{START}cannot start a stopped process",
    f"{START}OCI runtime start failed: cannot start a container that has stopped",
    f"{START}OCI runtime start failed: cannot start an already running container",
    f"{START}OCI runtime start failed: container process is already dead",
    f"{START}container `00` is not running",
    "RunContainerError: container 00 is not in created state: stopped",
    f"{START}OCI runtime start failed: /usr/bin/runc did not terminate successfully: exit status 137: ",
    f"{START}ttrpc: closed",
    (
        "RunContainerError: failed to create containerd task: failed to create shim task: OCI runtime create failed: "
        "unable to retrieve OCI runtime error (open /run/containerd/x/log.json: no such file or directory): "
        "/usr/bin/runc did not terminate successfully: exit status 137"
    ),
    (
        f"{RUN}runc create failed: unable to start container process: unable to apply cgroup configuration: unable to "
        'start unit "cri-containerd-00.scope" (properties []): Timeout waiting for systemd to create x.scope'
    ),
    (
        f"{RUN}runc create failed: unable to create new parent process: namespace path: lstat /proc/0/ns/ipc: no such "
        "file or directory"
    ),
    "RunContainerError: failed to create containerd task: failed to start shim: start failed: : exit status 2",
    "RunContainerError: rpc error: code = Unknown desc = transport is closing",
    "CreateContainerError: failed to get sandbox container task: no running task found: task 00 not found",
    "RunContainerError: failed to create containerd task: failed to start shim: pipe2: too many open files",
    'ErrImagePull: failed commit on ref "layer-sha256:00": unexpected commit digest sha256:01, expected x',
    "RegistryUnavailable",
    "received unexpected HTTP status: 503 Service Unavailable",
    'pinging container registry x: Get "http://x/v2/": dial tcp 10.0.0.1:5000: connect: connection refused',
    "toomanyrequests: rate limit",
    "Error reading configuration blob: unexpected EOF",
    f"{CRIO_ASKS}received unexpected HTTP status: 503 Service Unavailable",
    f"{CRIO_ASKS}toomanyrequests: rate limit; artifact err: image reference: context deadline exceeded",
    f"{CRIO_ASKS}unexpected EOF",
    f"{CRIO}parsing image configuration: fetching blob: received unexpected HTTP status: 503 Service Unavailable",
    (
        f'{CRIO}writing blob: storing blob to file "/x": happened during read: (heuristic tuning data: total 3672 '
        f"@1224.3 ms, last retry 1849 @100.9 ms, last progress @ 100.8 ms): unexpected EOF{NO_ARTIFACT}"
    ),
    (
        f'{CRIO}writing blob: storing blob to file "/x": happened during read: Digest did not match, expected '
        f"sha256:00, got sha256:11{NO_ARTIFACT}"
    ),
    f'{CRIO}writing blob: storing blob to file "/x": write /x: no space left on device{NO_ARTIFACT}',
    "RegistryUnavailable: image pull failed for x because the registry is unavailable: unable to pull image: x",
    f'{CRIO_START}unable to start container process: error during container init: cannot allocate memory"\n',
    'CreateContainerError: container create failed: time="2026" level=error msg="write /x: no space left on device"',
    "CreateContainerError: error reading from server: EOF",
    (
        "CreateContainerError: kubelet may be retrying requests that are timing out in CRI-O due to system load. "
        "Currently at stage container storage creation: the requested container x is now ready and will be provided to "
        "the kubelet on next retry"
    ),
    "CreateContainerError: error reserving ctr name x for id y: name is reserved",
    f"{CRIO}writing blob: setting up to decompress blob: read tcp 10.0.0.1:1: connection reset by peer{NO_ARTIFACT}",
    f"{CRIO}writing blob: setting up to decompress blob: write /x: input/output error{NO_ARTIFACT}",
    (
        'CreateContainerError: container create failed: time="x" level=warning msg="no oom count" error="no file"\n'
        'time="x" level=error msg="runc create failed: cannot allocate memory"\n'
    ),
    "something that nobody has seen",
]


@pytest.mark.parametrize("words", FOR_GOOD)
def test_the_user_is_told_what_will_not_change(words: str) -> None:
    assert cause_of(words) is Cause.IMAGE


@pytest.mark.parametrize("words", FOR_NOW)
def test_what_may_be_over_soon_is_not_the_jobs_fault(words: str) -> None:
    assert cause_of(words) is Cause.PASSING


@pytest.mark.parametrize("words", NO_REGISTRY + NO_ACCESS)
def test_what_another_site_may_have_is_not_the_jobs_fault(words: str) -> None:
    assert cause_of(words) is Cause.SITE


@pytest.mark.parametrize("words", NO_REGISTRY)
def test_a_registry_is_to_blame_only_where_its_own_name_is_unknown_or_not_trusted(words: str) -> None:
    registry = "no.invalid" if "no.invalid" in words else "x"
    assert scope_of(words, Reference(f"{registry}/a", "1")) == "registry"
    assert scope_of(words, Reference("other.example/a", "1")) == "image"


@pytest.mark.parametrize("words", NO_ACCESS)
def test_a_registry_decides_by_repository_who_may_pull(words: str) -> None:
    assert scope_of(words, Reference("registry.example:5000/any", "1")) == "repository"


ADDRESSED = 'failed to copy: httpReadSeeker: failed open: failed to do request: Get "{}": '
RATE = f"{GET}unexpected status from GET request to https://evil.example/x: 429 Too Many Requests"
OF_ONE_IMAGE = [
    f'ErrImagePull: failed to extract layer {LAYER} "x": write /a: no space left on device',
    f"RunContainerError: mkdir /{OTHER}: no space left on device",
    f"{GET}short read: expected 925 bytes: unexpected EOF",
    # A manifest's own addresses of a layer.
    f"{ADDRESSED.format('https://nohost.invalid/x')}dial tcp: lookup nohost.invalid on 10.96.0.10:53: no such host",
    f"{ADDRESSED.format(f'https://{OTHER}@nohost.invalid/x')}dial tcp: lookup nohost.invalid: no such host",
    f"{ADDRESSED.format('https://evil.example/x')}x509: certificate signed by unknown authority",
    f"{ADDRESSED.format(f'https://{OTHER}/x')}http: server gave HTTP response to HTTPS client",
    f"{ADDRESSED.format(f'https://{OTHER}:81/x')}dial tcp 10.0.0.1:81: connect: connection refused",
    f"{ADDRESSED.format(f'http://{OTHER}/v2/a/manifests/1')}EOF",
    RATE,
    f'{RATE}\ntoomanyrequests: failed to resolve reference "{IMAGE}": Head "http://{OTHER}/v2/": EOF',
    f"{GET}unexpected status from GET request to https://evil.example/x: 403 Forbidden",
    "something that nobody has seen",
]
OF_THE_REGISTRY = [
    f'{PULL}failed to do request: Head "http://{OTHER}/v2/": dial tcp 10.0.0.1: connect: connection refused',
    f"{PULL}{HEAD}429 Too Many Requests",
    f"{PULL}{HEAD}503 Service Unavailable",
    f"{GET}unexpected status from GET request to http://{OTHER}/v2/busybox/manifests/x: 429 Too Many Requests",
    f'pinging container registry {OTHER}: Get "http://{OTHER}/v2/": dial tcp 10.0.0.1: connect: connection refused',
]


@pytest.mark.parametrize("words", OF_ONE_IMAGE)
def test_no_content_of_an_image_closes_a_slot_for_its_registry(words: str) -> None:
    assert scope_of(words, Reference.parse(IMAGE)) == "image"


@pytest.mark.parametrize("words", OF_THE_REGISTRY)
def test_a_registry_that_the_node_cannot_ask_or_that_limits_its_rate_is_to_blame(words: str) -> None:
    assert scope_of(words, Reference.parse(IMAGE)) == "registry"


def test_docker_hub_has_several_hosts() -> None:
    words = f"{GET}unexpected status from GET request to https://registry-1.docker.io/v2/a/b: 429 Too Many Requests"
    assert scope_of(words, Reference.parse("busybox")) == "registry"
    assert scope_of(words, Reference.parse(IMAGE)) == "image"


@pytest.mark.parametrize("name", ["denied/not-found", "forbidden/eof", "a/unavailable:503", "no-space-left/x"])
def test_the_name_of_an_image_decides_nothing(name: str) -> None:
    image = f"registry.example/{name}"
    pull = f'ErrImagePull: failed to pull and unpack image "{image}": failed to resolve reference "{image}": '
    assert cause_of(f"{pull}{image}: not found") is Cause.IMAGE
    assert cause_of(f"reading manifest denied in {image}: manifest unknown") is Cause.IMAGE
    asks = f"{CRIO}initializing source docker://{image}:1: reading manifest 1 in {image}: "
    assert cause_of(f"{asks}manifest unknown") is Cause.IMAGE
    assert cause_of(f"{asks}received unexpected HTTP status: 503 Service Unavailable") is Cause.PASSING
    error = f"{pull}unexpected status from HEAD request to https://registry.example/v2/{name}: 503 Service Unavailable"
    assert cause_of(error) is Cause.PASSING
    assert cause_of("dial tcp: lookup denied.example on 10.0.0.1:53: something new") is Cause.PASSING
