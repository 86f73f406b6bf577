#!/bin/sh
# Prints the path of a Python of the image's version, which the project's environment is made from: tests run on what
# ships. Usage: image-python.sh UV CACHE, where UV is the folder of uv and patchelf.
#
# 1. The machine has one, or uv has fetched one before.
# 2. uv fetches one (python-build-standalone, from GitHub).
# 3. From the packages of the image's Debian release, unpacked into CACHE, with their own C library: the program's
#    interpreter (ld.so) and library path are changed to it. Nothing on the machine changes.
set -eu
VERSION=3.14
SUITE=forky
PACKAGES="python$VERSION python$VERSION-minimal libpython$VERSION-minimal libpython$VERSION-stdlib libc6 libgcc-s1 libexpat1 zlib1g \
libssl3t64 libbz2-1.0 libdb5.3t64 libffi8 liblzma5 libncursesw6 libreadline8t64 libsqlite3-0 libtinfo6 libuuid1 libzstd1"
uv=$1/uv patchelf=$1/patchelf cache=$2/python-$VERSION

find_python() { "$uv" python find --quiet --no-python-downloads "$VERSION" 2>/dev/null; }

unpack() {
    mirror=${K8SPILOT_LAB_MIRROR:-$(sed -n 's/^URIs: *//p; s/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) .*/\2/p' \
        /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list /etc/apt/sources.list 2>/dev/null | head -1)}
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/debs"
    echo "deb $mirror $SUITE main" >"$work/sources.list"
    set -- -qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/lists" \
        -o "Dir::Cache=$work/cache" -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false \
        -o APT::Sandbox::User=
    apt-get "$@" update
    # shellcheck disable=SC2086 # a list of words
    (cd "$work/debs" && apt-get "$@" download $PACKAGES)
    for package in "$work"/debs/*.deb; do
        dpkg-deb --extract "$package" "$work/root"
    done
    rm -rf "$cache"
    mkdir -p "${cache%/*}"
    mv "$work/root" "$cache"
    libraries=$cache/usr/lib/$(uname -m)-linux-gnu
    "$patchelf" --set-interpreter "$libraries"/ld-linux-*.so.* --force-rpath --set-rpath "$libraries" "$cache/usr/bin/python$VERSION"
}

program=$cache/usr/bin/python$VERSION
if find_python; then
    exit
elif ! "$program" -c '' 2>/dev/null; then
    timeout 300 "$uv" python install --quiet "$VERSION" 2>/dev/null && find_python && exit
    command -v apt-get >/dev/null || {
        echo "no Python $VERSION is on this machine, and uv cannot fetch one: install it, or name it (make PYTHON=...)" >&2
        exit 1
    }
    unpack >&2
fi
echo "$program"
