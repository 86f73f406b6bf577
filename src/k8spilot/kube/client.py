"""The connection to the API server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config

from k8spilot.errors import SurroundingsError


@asynccontextmanager
async def connect() -> AsyncIterator[ApiClient]:
    """Connect with the pod's own service account.

    The token is read again as the kubelet renews it (the library does, once a minute).

    Raises:
        SurroundingsError: this is no pod, or no token is mounted.
    """
    configuration = Configuration()
    # Python 3.13 and later want a keyUsage in the cluster's CA (RFC 5280, 4.2.1.3), which many do not have.
    configuration.disable_strict_ssl_verification = True
    try:
        load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as error:
        raise SurroundingsError(
            f"no service account token for the Kubernetes API can be used here ({error}); run in a pod and mount a "
            "projected serviceAccountToken at /var/run/secrets/kubernetes.io/serviceaccount"
        ) from error
    async with ApiClient(configuration) as api:
        yield api
