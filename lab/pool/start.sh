# shellcheck shell=bash disable=SC2174  # the folder above them is there
# First process of the pool's pods: puts secrets where HTCondor trusts them, makes the users, becomes the master.
set -eu
mkdir -p -m 0700 /etc/condor/passwords.d /etc/condor/tokens.d
if [ -f /run/pool/signing-key ]; then install -m 0600 /run/pool/signing-key /etc/condor/passwords.d/POOL; fi
if [ -f /run/pool/token ]; then install -m 0600 /run/pool/token /etc/condor/tokens.d/pool; fi
for user in ${POOL_USERS:-}; do
    id "${user%:*}" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash --uid "${user#*:}" "${user%:*}"
done
install -d -o condor -g condor /run/condor /var/log/condor /var/spool/condor /var/lock/condor
exec condor_master -f -t
