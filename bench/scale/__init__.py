"""Many pilots against a real API server and etcd: their API traffic by the project's own code, all else faked."""
