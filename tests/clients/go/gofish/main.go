// SPDX-License-Identifier: Apache-2.0

// Command gofish uses a BMC through the library of that name.
//
// Usage:
//
//	gofish reset TYPE...   one reset after the other
//	gofish boot TARGET     boot once from a target
//	gofish media URL       insert and eject a medium, three times
//	gofish inventory       print what the BMC has, as JSON
//
// Environment: BMC_URL, BMC_USER, BMC_PASSWORD, and SSL_CERT_FILE with the CA.
// The actions of a command use resources that are read once, at its start: the
// library sends the ETag of that reading with each of them.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/redfish"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "gofish:", err)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func main() {
	client := must(gofish.Connect(gofish.ClientConfig{
		Endpoint: os.Getenv("BMC_URL"),
		Username: os.Getenv("BMC_USER"),
		Password: os.Getenv("BMC_PASSWORD"),
	}))
	defer client.Logout()
	system := must(client.Service.Systems())[0]
	arguments := os.Args[2:]
	switch os.Args[1] {
	case "reset":
		for _, kind := range arguments {
			check(system.Reset(redfish.ResetType(kind)))
		}
	case "boot":
		check(system.SetBoot(redfish.Boot{
			BootSourceOverrideTarget:  redfish.BootSourceOverrideTarget(arguments[0]),
			BootSourceOverrideEnabled: redfish.OnceBootSourceOverrideEnabled,
		}))
	case "media":
		drive := must(system.VirtualMedia())[0]
		for range 2 {
			check(drive.InsertMedia(arguments[0], true, true))
			check(drive.EjectMedia())
		}
		check(drive.InsertMediaConfig(redfish.VirtualMediaConfig{
			Image:          arguments[0],
			Inserted:       true,
			MediaType:      drive.MediaTypes[0],
			TransferMethod: redfish.StreamTransferMethod,
			WriteProtected: true,
		}))
		check(drive.EjectMedia())
	case "inventory":
		inventory(client.Service, system)
	default:
		check(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}

func inventory(service *gofish.Service, system *redfish.ComputerSystem) {
	manager := must(service.Managers())[0]
	accounts := must(service.AccountService())
	updates := must(service.UpdateService())
	logs := must(system.LogServices())
	check(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"uuid":       system.UUID,
		"power":      system.PowerState,
		"chassis":    must(service.Chassis()),
		"manager":    manager.ODataID,
		"interfaces": must(manager.EthernetInterfaces()),
		"accounts":   must(accounts.Accounts()),
		"firmware":   must(updates.FirmwareInventories()),
		"entries":    must(logs[0].Entries()),
		"processors": must(system.Processors()),
		"memory":     must(system.Memory()),
		"nics":       must(system.EthernetInterfaces()),
		"storage":    must(system.Storage()),
		"bios":       must(system.Bios()).Attributes,
	}))
}
