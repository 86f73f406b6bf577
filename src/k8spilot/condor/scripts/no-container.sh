#!/bin/sh
# HTCondor's STARTER_REMOTE_CMD: the command that a starter runs in place of a job without a container. If it fails, the
# starter holds the job, with the text of the file as the reason.
echo 'this execution point runs jobs in containers only, and found no image for this one' > .worker_stdout
exit 1
