"""Jobs in a payload container: from the bind of an image to the result."""
