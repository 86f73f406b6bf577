package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Node is a character device; it has the same path on the machine and in containers.
type Node struct {
	Path  string `json:"path"`
	Major int64  `json:"major"`
	Minor int64  `json:"minor"`
}

// Device is a GPU or a MIG instance; an instance has its GPU's node, too.
type Device struct {
	UUID  string `json:"uuid"`
	Index string `json:"index"`
	Nodes []Node `json:"nodes"`
}

// Resource is what pods ask for, and how they are told what they got.
type Resource struct {
	Name        string   `json:"name"`
	IDs         []string `json:"ids"`          // of the devices as the kubelet has them; replicas are UUID::n
	Lists       []string `json:"lists"`        // device list strategies: envvar, volume-mounts, cdi-annotations, cdi-cri
	ByIndex     bool     `json:"by_index"`     // the lists have indices, not UUIDs
	DeviceSpecs bool     `json:"device_specs"` // nodes come from the kubelet, too (the plugin's PASS_DEVICE_SPECS)
	Library     bool     `json:"library"`      // the kubelet mounts the library, as some vendors' plugins have it
	Instead     string   `json:"instead"`      // not empty: the last device's node is not given, but this one's
}

// Table is all that lab/gpu/devices.py says of the node's GPUs.
type Table struct {
	Library   string     `json:"library"`
	Settings  string     `json:"settings"` // a folder
	Specs     string     `json:"specs"`    // a folder with CDI specs
	Kind      string     `json:"kind"`     // vendor/class of the CDI names that the plugin gives
	Control   []Node     `json:"control"`  // what every container with a GPU has
	Devices   []Device   `json:"devices"`
	Resources []Resource `json:"resources"`
}

// tableBeside names the table of the lab whose folder bin a program was called from.
func tableBeside(program string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(program)), "gpu/table.json")
}

func readTable(path string) (*Table, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var table Table
	if err := json.Unmarshal(text, &table); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &table, nil
}

// find returns the device of a UUID or an index.
func (table *Table) find(name string) (*Device, bool) {
	for i, device := range table.Devices {
		if name == device.UUID || (name == device.Index && name != "") {
			return &table.Devices[i], true
		}
	}
	return nil, false
}
