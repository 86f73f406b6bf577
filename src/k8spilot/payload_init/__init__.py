"""payload-init, the first process of every payload container, and the pilot's end of its socket."""
