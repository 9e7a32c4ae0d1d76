# SPDX-License-Identifier: Apache-2.0
# Mounts the volume $1 of a component on its node, at $2, where the node's agents look for the data, until it is told to end.
# What the component wrote to $2 on the node before it had a volume is first copied into the volume.
set -eu
volume=$1 dir=$2

# Two paths show the same directory.
same() { [ -d "$dir" ] && [ "$(stat -c %d:%i "$volume")" = "$(stat -c %d:%i "$dir")" ]; }
mounted() { grep -q " $dir " /proc/self/mountinfo; }

# Each file gets its name only after its copy was compared. The originals stay in a directory beside, for a person to remove.
copy_in() {
  list=$volume/.to-copy
  (cd "$dir" && find . -xdev -type f) >"$list"
  if [ ! -s "$list" ]; then
    rm "$list"
    return
  fi
  while IFS= read -r f; do
    to=$volume/${f#./}
    if [ -e "$to" ]; then
      cmp -s "$dir/$f" "$to" || echo "$dir/${f#./} differs from the file in the volume, which is kept"
      continue
    fi
    mkdir -p "$(dirname "$to")"
    cp -p "$dir/$f" "$to.part"
    cmp "$dir/$f" "$to.part"
    mv "$to.part" "$to"
    echo "copied $dir/${f#./} into the volume"
  done <"$list"
  rm "$list"
  sync
  mv "$dir" "$dir.copied-$(date +%s)"
}

publish() {
  mkdir -p "$dir"
  mount --bind "$volume" "$dir"
  echo "mounted the volume at $dir on the node"
}

unpublish() {
  if same && mounted; then umount "$dir" 2>/dev/null || umount -l "$dir"; fi
  exit 0
}
trap unpublish TERM INT

# A volume that was deleted while its mount was left behind.
while grep -q "//deleted $dir " /proc/self/mountinfo; do umount -l "$dir"; done
if ! same; then
  mkdir -p "$dir"
  mounted || copy_in
  publish
fi

# A person may unmount it. There is nothing to watch that.
while :; do
  same || mounted || publish
  sleep 10 >/dev/null 2>&1 &
  wait $! || true
done
