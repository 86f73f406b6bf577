package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	multiarch      = "/usr/lib/x86_64-linux-gnu"
	settingsFolder = "/run/nvml-stub"
	defaultKind    = "nvidia.com/gpu" // of names without one
)

// mode is how NVIDIA's runtime works, as its configuration calls it.
type mode string

const (
	justInTime mode = "jit-cdi" // what `auto` is since toolkit 1.18; all is given by CDI, and so the variable becomes void
	namesOnly  mode = "cdi"     // only names that CDI specs have
	legacy     mode = "legacy"  // nvidia-container-cli's work; the variable stays, annotations do not count
)

// runContainer is runc, but for `create`: there the bundle's config.json first gets what its variables, mounts and
// annotations ask for.
func runContainer(table string, arguments []string, as mode) error {
	if slices.Contains(arguments, "create") {
		if err := equip(table, valueOf(arguments, "--bundle", "."), as); err != nil {
			tell(valueOf(arguments, "--log", ""), err)
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return syscall.Exec(runc, append([]string{"runc"}, arguments...), os.Environ())
}

func valueOf(arguments []string, option, otherwise string) string {
	for i, argument := range arguments {
		if value, found := strings.CutPrefix(argument, option+"="); found {
			return value
		}
		if argument == option && i+1 < len(arguments) {
			return arguments[i+1]
		}
	}
	return otherwise
}

// tell writes to runc's log, where containerd looks for the reason of a failure.
func tell(path string, problem error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer file.Close()
	_ = json.NewEncoder(file).Encode(map[string]string{"level": "error", "msg": problem.Error()})
}

func equip(table, bundle string, as mode) error {
	known, err := readTable(table)
	if err != nil {
		return err
	}
	path := filepath.Join(bundle, "config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // 64 bits stay 64 bits
	var content map[string]any
	if err := decoder.Decode(&content); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	container := &spec{content: content, bundle: bundle}
	wanted := container.wanted(as != legacy)
	if len(wanted) == 0 {
		return nil
	}
	if err := inject(known, container, wanted, as); err != nil {
		return err
	}
	if text, err = json.Marshal(content); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// inject adds the devices that are asked for, by whichever names the mode takes: all, none, UUIDs, indices, CDI's.
func inject(table *Table, container *spec, wanted []string, as mode) error {
	qualified := func(name string) bool { return strings.Contains(name, "=") }
	if as == namesOnly || (as == justInTime && !slices.ContainsFunc(wanted, func(one string) bool { return !qualified(one) })) {
		for i, name := range wanted {
			if !qualified(name) {
				wanted[i] = defaultKind + "=" + name
			}
		}
		return injectNames(table.Specs, container, wanted)
	}
	var devices []Device
	for _, name := range wanted {
		device, found := table.find(name)
		switch {
		case name == "none":
		case name == "all":
			devices = append(devices, table.Devices...)
		case found:
			devices = append(devices, *device)
		case as == legacy:
			return fmt.Errorf("nvidia-container-cli: device error: %s: unknown device", name)
		default:
			return fmt.Errorf("failed to generate CDI spec: failed to get device handle from %q: Not Found", name)
		}
	}
	for _, device := range devices {
		container.addNodes(device.Nodes)
	}
	if as == legacy || len(devices) > 0 {
		container.addNodes(table.Control)
	}
	if as == justInTime {
		container.addVariables([]string{visibleDevices + "=void"})
	}
	if as == justInTime || container.isCapable("utility") {
		container.addMount(table.Library, libraryFolder(container)+"/libnvidia-ml.so.1")
	}
	container.addMount(table.Settings, settingsFolder)
	return nil
}

// libraryFolder is where the container's distribution has libraries.
func libraryFolder(container *spec) string {
	if _, err := os.Stat(container.root() + multiarch); err == nil {
		return multiarch
	}
	return "/usr/lib64"
}
