#!/bin/sh
# runc for CRI-O. `create` first takes out of config.json what a machine may not have: the controller hugetlb among the
# cgroups of version 1, and the right to a lower oom_score_adj (CAP_SYS_RESOURCE). containerd has settings for both.
# No text of a user matches: a quotation mark within a string follows a backslash in JSON.
for argument; do
    case $last in --bundle | -b) bundle=$argument ;; esac
    test "$argument" != create || creates=yes
    last=$argument
done
if test "$creates" = yes; then
    read -r own </proc/self/oom_score_adj
    sed -i -z "s/,\\s*\"hugepageLimits\":\\s*\[[^]]*\]//; s/\"oomScoreAdj\":\\s*-[0-9]*/\"oomScoreAdj\":$own/" \
        "$bundle/config.json"
fi
exec "${0%/*}/../bin/runc" "$@"
