#!/bin/sh
# Starts an agent as if on another machine: in a network namespace that reaches one address of this one, and where the
# directory HIDDEN is empty.
# Where the cache has a file no-fuse, the machine has no FUSE.
# elsewhere.sh NETNS CACHE LOG HIDDEN PROGRAM ARGUMENTS..
netns=$1 cache=$2 log=$3 hidden=$4
shift 4
echo "$*" >> "$log"
export SHOAL_CACHE="$cache"
exec nsenter --net="/run/netns/$netns" unshare --mount --propagation private /bin/sh -c '
    hidden=$1
    shift
    mount -t tmpfs -o ro tmpfs "$hidden" || exit 1
    if test -e "$SHOAL_CACHE/no-fuse"; then mount --bind /dev/null /dev/fuse; fi
    cd / && exec "$@"' agent "$hidden" "$@"
