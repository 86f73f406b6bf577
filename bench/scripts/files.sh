#!/bin/sh
# Make what jobs take with them in the folder $1: `big`, of 1 GiB, and `many`, with 10,000 files of 1 KiB.
set -e
rm -rf "$1"
mkdir -p "$1/many"
cd "$1"
head -c 1073741824 /dev/urandom >big
head -c 10240000 /dev/urandom | split -b 1024 -a 4 -d - many/
