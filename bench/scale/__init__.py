"""Many pilots with a real API server and etcd. The project's own code makes the API traffic; the rest is simulated."""
