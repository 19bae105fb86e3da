#!/bin/bash
# Boots VMs from an ISO once, or ejects it, by Redfish through their BMCs:
#
#   boot-iso.sh insert https://images.example.com/agent.x86_64.iso master-0 …
#   boot-iso.sh eject master-0 …
#
# The BMCs are VirtualMachineBMCs in the namespace of kubectl's context, or in
# $NAMESPACE. Address, CA and password are read from the cluster.
set -euo pipefail

usage() {
    echo "usage: $0 insert URL BMC… | eject BMC…" >&2
    exit 2
}

[ $# -ge 2 ] || usage
verb=$1
shift
case $verb in
insert)
    iso=$1
    shift
    [ $# -ge 1 ] || usage
    ;;
eject) ;;
*) usage ;;
esac

home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT

get() {
    kubectl ${NAMESPACE:+--namespace "$NAMESPACE"} get "$@"
}

# Passwords are in a file, not among the arguments of a process.
redfish() {
    curl --silent --show-error --fail-with-body --max-time 120 \
        --cacert "$home/ca.crt" --config "$home/login" \
        --header 'Content-Type: application/json' "$@"
}

for bmc in "$@"; do
    system=$(get vmbmc "$bmc" -o jsonpath='{.status.endpoints.redfish.url}')
    authority=$(get vmbmc "$bmc" -o \
        jsonpath='{.status.endpoints.redfish.certificateAuthority.configMap}')
    secret=$(get vmbmc "$bmc" -o jsonpath='{.status.authSecret}')
    get configmap "$authority" -o jsonpath='{.data.ca\.crt}' > "$home/ca.crt"
    login=$(get secret "$secret" -o go-template='{{.data.username |
        base64decode}}:{{.data.password | base64decode}}')
    login=${login//\\/\\\\}
    printf 'user = "%s"\n' "${login//\"/\\\"}" > "$home/login"
    cd=$system/VirtualMedia/Cd
    if [ "$verb" = insert ]; then
        redfish --data "{\"Image\": \"$iso\"}" \
            "$cd/Actions/VirtualMedia.InsertMedia"
        redfish --request PATCH --data '{"Boot": {
            "BootSourceOverrideTarget": "Cd",
            "BootSourceOverrideEnabled": "Once"}}' "$system"
        redfish --data '{"ResetType": "On"}' \
            "$system/Actions/ComputerSystem.Reset"
        echo "$bmc boots from $iso"
    else
        redfish --data '{}' "$cd/Actions/VirtualMedia.EjectMedia"
        echo "$bmc: ejected"
    fi
done
