#!/bin/sh
# HTCondor's STARTER_REMOTE_CMD: what a starter runs in the place of a job that is to have no container. The starter takes the
# file's text for the reason to hold the job, and anything but success for the need to.
echo 'this execution point runs jobs in containers only, and found no image for this one' > .worker_stdout
exit 1
