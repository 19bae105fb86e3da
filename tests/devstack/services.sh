#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Run services, as systemd does for DevStack: services.sh TOP
#
# The pipe TOP/services takes lines "start NAME COMMAND" and "stop NAME".

cd "$1" || exit
mkdir -p logs
mkfifo services
exec 3<> services
echo ready
while read -r verb name command <&3; do
    if [[ $verb == start ]]; then
        # Words are split, but not by a shell, as in a unit.
        $command < /dev/null > "logs/$name.log" 2>&1 3>&- &
        echo $! > "logs/$name.pid.new"
        mv "logs/$name.pid.new" "logs/$name.pid"
    else
        # The process itself ends those that it has started.
        kill "$(< "logs/$name.pid")"
        wait "$(< "logs/$name.pid")"
        rm "logs/$name.pid"
    fi
done
