# shellcheck shell=bash
# Sourced by the scripts that make packages: what they are called and how old they say they are.
# version: 0.1.0 for the commit with the tag v0.1.0; before it 0.1.0~git42.0123abcd, which dpkg and rpm hold for older than 0.1.0 and for newer
# than the 41 commits before. SOURCE_DATE_EPOCH: the time of the commit, the only one that packages know.
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
if git rev-parse --git-dir >/dev/null 2>&1; then
    if [ "$(git describe --tags --exact-match 2>/dev/null)" != "v$version" ]; then
        version="$version~git$(git rev-list --count HEAD).$(git rev-parse HEAD | cut -c1-8)"
    fi
    git diff --quiet HEAD || version="$version.changed"
    : "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct)}"
fi
# Sources without their history know no time.
: "${SOURCE_DATE_EPOCH:=0}"
export SOURCE_DATE_EPOCH version
