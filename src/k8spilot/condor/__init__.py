"""HTCondor in the pilot container: its folders, credentials, configuration and master process."""
