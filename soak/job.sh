#!/bin/sh
# A job of a soak: $1 is its batch and number, such as 3.17, and $2 the URL of the ledger, which learns of each step.
run=$(cat /proc/sys/kernel/random/uuid)
tell() { wget -q -T 3 -O /dev/null "$2/$1/$run" 2>/dev/null || :; }
# With limits.sh beside it: the size of the container is the one that HTCondor has promised.
of_slot() { sed -n "s/^$1 = //p" "$_CONDOR_MACHINE_AD"; }
if [ -e limits.sh ]; then
    found=$(sh ./limits.sh)
    promised="its container has $(of_slot Cpus) CPUs and $(of_slot Memory) MiB"
    [ "$found" = "$promised" ] || echo "$found, and not $promised"
fi
tell "$1" "$2"
number=${1#*.}
for _ in $(seq 0 $((number % 5))); do
    sleep 0.4
    tell "$1" "$2"
done
sum=$(sha256sum input | cut -d' ' -f1)
echo "$1 $sum"
echo "of $1" >&2
echo "$sum" >"result.$number"
tell "$1" "$2"
exit $((number % 100))
