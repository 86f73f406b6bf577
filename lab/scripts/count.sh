#!/bin/bash
# Count how often each word is in the file $1, write the counts to the file $2, and say in which distribution.
set -e
tr ' ' '\n' <"$1" | sort | uniq -c | sort -k1,1rn -k2 | sed 's/^ *//' >"$2"
# shellcheck source=/dev/null
. /etc/os-release
echo "counted $(wc -w <"$1") words in $NAME"
