"""POST /containers/create: from the request of a Docker client to a specification, and its image bound."""
